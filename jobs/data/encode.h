/* encode.h - a stretch of text to tokens, by several threads at once. The text is cut where cutting changes nothing,
 * so the tokens are the same for any number of threads and any size of stretch. */
#ifndef KC_JOBS_DATA_ENCODE_H
#define KC_JOBS_DATA_ENCODE_H

#include "base/error.h"
#include "tokenizer.h"

enum text_kind {
    TEXT_PLAIN, /* one document, or several with end-of-text tokens in them */
    TEXT_LINES, /* JSON Lines: a document a line, {"text"} or {"prompt", "completion"} */
};

/* What a block of text became. */
struct encoded {
    struct kc_token_list tokens;
    struct kc_token_list prompts; /* pairs: where in `tokens` a prompt begins, and its tokens; none of them count */
    uint64_t lines;
    const unsigned char *text;
    size_t bytes;
    int code; /* why it could not be */
    struct kc_error error;
};

struct encode_team;

/* Threads that encode by one tokenizer. -ENOMEM. */
int encode_team_new(const struct kc_tokenizer *t, unsigned threads, struct encode_team **out);
/* NULL is fine. */
void encode_team_free(struct encode_team *team);

/* May the text be cut before byte `at` (0 < at < its length)? */
bool encode_may_cut(const struct kc_tokenizer *t, enum text_kind kind, const unsigned char *text, size_t at);
/* Encode a text that begins and ends where it may be cut. blocks: *count of them in order, until the next call.
 * `path` and `line` (of its first one) are for messages. -EINVAL a line that is no document, -ENOMEM. */
int encode_text(struct encode_team *team, enum text_kind kind, const unsigned char *text, size_t bytes,
                const char *path, uint64_t line, const struct encoded **blocks, size_t *count, struct kc_error *e);

#endif
