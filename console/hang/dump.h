/* dump.h - a folder that keeps a diagnosis with all that it was made of, for the morning after: the board, what was seen of
 * the processes, the verdicts, stacks. It is there whole or not at all. `kc hang` opens it like a job. */
#ifndef KC_CONSOLE_HANG_DUMP_H
#define KC_CONSOLE_HANG_DUMP_H

#include "verdict.h"

#include "base/error.h"
#include "base/json.h"

#define KC_DUMP_STACKS (10 * UINT64_C(1000000000)) /* ns that stacks may take at most */

struct kc_dump {
    const struct kc_evidence *evidence;
    const struct kc_diagnosis *diagnosis;
    const json_t *answer;     /* verdict.json: what `kc hang --json` prints */
    struct kc_reader *board;
    bool stacks;              /* of a board that lives: hold its ranks for a moment */
};

/* Make the folder `path`, which must not be there; its parents are made. board, looks.json, verdict.json and verdict.txt
 * are in it, or it is not there; stacks.txt where they could be had. -EEXIST, else -errno. */
int kc_dump_write(const char *path, const struct kc_dump *d, struct kc_error *e);
/* Evidence as it was when the folder was written. -ENOENT there is no board in it, else as kc_reader_open(). */
int kc_dump_read(const char *path, struct kc_evidence **out, struct kc_error *e);

#endif
