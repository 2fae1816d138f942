/* encode.c - the team. Threads live as long as one call: a stretch is megabytes, a thread is microseconds. */
#include "encode.h"

#include "base/json.h"
#include "base/thread.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define BLOCK 262144 /* bytes of text that a thread takes at a time */

struct encode_team {
    const struct kc_tokenizer *tokenizer;
    unsigned threads;
    struct kc_encoder **encoder; /* (threads) */
    struct encoded *block;       /* (room) */
    size_t room, count;
    enum text_kind kind;
    _Atomic size_t next; /* block that nobody has taken yet */
};

struct worker {
    struct encode_team *team;
    struct kc_encoder *encoder;
    pthread_t thread;
};

int encode_team_new(const struct kc_tokenizer *t, unsigned threads, struct encode_team **out)
{
    struct encode_team *team = calloc(1, sizeof *team);
    if (!team)
        return -ENOMEM;
    team->tokenizer = t;
    team->threads = threads;
    team->encoder = calloc(threads, sizeof(struct kc_encoder *));
    for (unsigned i = 0; i < threads; i++)
        if (!team->encoder || !(team->encoder[i] = kc_encoder_new(t))) {
            encode_team_free(team);
            return -ENOMEM;
        }
    *out = team;
    return 0;
}

void encode_team_free(struct encode_team *team)
{
    if (!team)
        return;
    for (unsigned i = 0; team->encoder && i < team->threads; i++)
        kc_encoder_free(team->encoder[i]);
    for (size_t i = 0; i < team->room; i++) {
        free(team->block[i].tokens.token);
        free(team->block[i].prompts.token);
    }
    free(team->encoder);
    free(team->block);
    free(team);
}

bool encode_may_cut(const struct kc_tokenizer *t, enum text_kind kind, const unsigned char *text, size_t at)
{
    return kind == TEXT_LINES ? text[at - 1] == '\n' : kc_tokenizer_may_cut(t, text, at);
}

/* ---- one block ---- */

static int encode_member(struct kc_encoder *c, const json_t *text, struct kc_token_list *out)
{
    return kc_encode(c, json_string_value(text), json_string_length(text), out);
}

/* A document: its end-of-text token first, if there is one, then its text, or prompt and completion, each by itself. */
static int encode_document(struct encode_team *team, struct kc_encoder *c, struct encoded *b, const json_t *document)
{
    const json_t *text = json_object_get(document, "text"), *prompt = json_object_get(document, "prompt"),
                 *completion = json_object_get(document, "completion");
    bool pair = json_is_string(prompt) && json_is_string(completion);
    const int32_t end = kc_tokenizer_end_of_text(team->tokenizer);
    if (pair == json_is_string(text))
        return kc_fail(&b->error, -EINVAL, "a document is {\"text\":…} or {\"prompt\":…,\"completion\":…}");
    int r = end >= 0 ? kc_token_list_add(&b->tokens, &end, 1) : 0;
    if (r == 0 && !pair)
        return encode_member(c, text, &b->tokens);
    int32_t place[2] = {(int32_t)b->tokens.count};
    if (r == 0)
        r = encode_member(c, prompt, &b->tokens);
    place[1] = (int32_t)b->tokens.count - place[0];
    if (r == 0)
        r = kc_token_list_add(&b->prompts, place, 2);
    return r == 0 ? encode_member(c, completion, &b->tokens) : r;
}

static bool is_blank(const unsigned char *line, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        if (line[i] != ' ' && line[i] != '\t' && line[i] != '\r')
            return false;
    return true;
}

static int encode_lines(struct encode_team *team, struct kc_encoder *c, struct encoded *b)
{
    json_error_t at;
    int r = 0;
    for (const unsigned char *line = b->text, *end = line + b->bytes, *after; r == 0 && line < end; line = after) {
        const unsigned char *stop = memchr(line, '\n', (size_t)(end - line));
        after = stop ? stop + 1 : end;
        size_t n = (size_t)((stop ? stop : end) - line);
        b->lines++;
        if (is_blank(line, n))
            continue;
        json_t *document = json_loadb((const char *)line, n, JSON_ALLOW_NUL, &at);
        r = document ? encode_document(team, c, b, document)
                     : kc_fail(&b->error, -EINVAL, "column %d: %s", at.column, at.text);
        json_decref(document);
    }
    return r;
}

static void *work(void *arg)
{
    struct worker *w = arg;
    struct encode_team *team = w->team;
    for (size_t i; (i = atomic_fetch_add(&team->next, 1)) < team->count;) {
        struct encoded *b = &team->block[i];
        b->tokens.count = b->prompts.count = b->lines = 0;
        b->error.text[0] = 0;
        b->code = team->kind == TEXT_LINES ? encode_lines(team, w->encoder, b)
                                           : kc_encode(w->encoder, b->text, b->bytes, &b->tokens);
    }
    return NULL;
}

/* ---- all of them ---- */

static int cut_blocks(struct encode_team *team, const unsigned char *text, size_t bytes)
{
    team->count = 0;
    for (size_t from = 0, to; from < bytes; from = to) {
        to = bytes - from > BLOCK ? from + BLOCK : bytes;
        while (to < bytes && !encode_may_cut(team->tokenizer, team->kind, text, to))
            to++;
        if (team->count == team->room) {
            size_t room = team->room ? team->room * 2 : 16;
            struct encoded *block = realloc(team->block, room * sizeof *block);
            if (!block)
                return -ENOMEM;
            memset(block + team->room, 0, (room - team->room) * sizeof *block);
            team->block = block;
            team->room = room;
        }
        team->block[team->count].text = text + from;
        team->block[team->count++].bytes = to - from;
    }
    return 0;
}

/* The first block that failed, by its lines. */
static int first_failure(const struct encode_team *team, const char *path, uint64_t line, struct kc_error *e)
{
    for (size_t i = 0; i < team->count; i++) {
        const struct encoded *b = &team->block[i];
        if (b->code == -EINVAL)
            return kc_fail(e, b->code, "%s: line %llu: %s", path, (unsigned long long)(line + b->lines - 1),
                           b->error.text);
        if (b->code < 0)
            return kc_fail(e, b->code, "%s: out of memory", path);
        line += b->lines;
    }
    return 0;
}

int encode_text(struct encode_team *team, enum text_kind kind, const unsigned char *text, size_t bytes,
                const char *path, uint64_t line, const struct encoded **blocks, size_t *count, struct kc_error *e)
{
    team->kind = kind;
    if (cut_blocks(team, text, bytes) < 0)
        return kc_fail(e, -ENOMEM, "%s: out of memory", path);
    unsigned threads = team->count < team->threads ? (unsigned)team->count : team->threads, started = 0;
    struct worker *worker = calloc(team->threads, sizeof *worker);
    if (!worker)
        return kc_fail(e, -ENOMEM, "%s: out of memory", path);
    atomic_store(&team->next, 0);
    for (unsigned i = 0; i < threads; i++)
        worker[i] = (struct worker){.team = team, .encoder = team->encoder[i]};
    while (started + 1 < threads && kc_thread_start(&worker[1 + started].thread, work, &worker[1 + started]) == 0)
        started++;
    work(&worker[0]); /* also alone, where no thread could be had */
    for (unsigned i = 0; i < started; i++)
        pthread_join(worker[1 + i].thread, NULL);
    free(worker);
    int r = first_failure(team, path, line, e);
    if (r < 0)
        return r;
    *blocks = team->block;
    *count = team->count;
    return 0;
}
