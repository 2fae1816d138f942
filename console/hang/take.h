/* take.h - stacks of a job's ranks: who they are, and whether they got on meanwhile, is read from its board. */
#ifndef KC_CONSOLE_HANG_TAKE_H
#define KC_CONSOLE_HANG_TAKE_H

#include "stack.h"

#include "shm/reader.h"

#define KC_TAKE_LOOKS 3
#define KC_TAKE_GAP (200 * KC_MILLISECOND)

/* Stacks of one rank, or of all (rank -1), in KC_TAKE_LOOKS looks within `limit` ns. Of a live board alone. 0 also where
 * some or all ranks gave nothing: out->rank[] says why. -ESRCH no rank has a process now, -ENOENT there is no such rank,
 * -EINVAL a saved board, -ENOMEM. */
int kc_take(struct kc_reader *board, int rank, uint64_t limit, struct kc_stacks **out, struct kc_error *e);
/* What ranks that died of a signal left on the board, also a saved one: where each was. `program` is the
 * file that ran, NULL: the kc-rank beside this kc; names are right only if it is. 0 with no stacks where none left any. -ENOENT
 * no such rank, -ENOMEM. */
int kc_take_words(struct kc_reader *board, int rank, const char *program, struct kc_stacks **out, struct kc_error *e);
/* The merged tree of all ranks as text into a new file of mode 0600, as `kc stack` prints it; `limit` ns for all. On failure
 * there is no file. Errors as above, or of the file. */
int kc_take_write(struct kc_reader *board, const char *title, const char *path, uint64_t limit, struct kc_error *e);

#endif
