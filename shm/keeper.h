/* keeper.h - the supervisor's side of the board: a job segment as its keeper writes it, and the directory as kcd
 * does. Each is used by one thread. A text that is too long for its field is cut. */
#ifndef KC_SHM_KEEPER_H
#define KC_SHM_KEEPER_H

#include "base/error.h"
#include "shm/records.h"

#include <stdint.h>

struct kc_reader;

/* ---- a job's board (keeper) ---- */
struct kc_board;
/* Make the job's segment with facts->ranks slots; keeper pid and start time are filled here. One that a dead
 * keeper left is replaced. Errors as kc_segment_create(). */
int kc_board_create(const char *instance, const struct kc_job_facts *facts, struct kc_board **out,
                    struct kc_error *e);
/* Unmap and give up the lock; remove 1: also remove the name if no rank uses it any more. NULL is fine. */
void kc_board_free(struct kc_board *b, int remove);
/* The fd for ranks to inherit; close-on-exec is set, clear it in the child. Borrowed. */
int kc_board_fd(const struct kc_board *b);
/* A reader of the same memory; borrowed, dies with the board. */
struct kc_reader *kc_board_reader(struct kc_board *b);

/* Begin incarnation n (from 1, rising). All ranks of the former one must be gone: clears the abort word and
 * the processes; the gate is closed for n. The control word stays: what is wanted is still wanted. */
void kc_board_incarnation(struct kc_board *b, uint32_t n);
void kc_board_facts(struct kc_board *b, const struct kc_job_facts *facts);
void kc_board_status(struct kc_board *b, const struct kc_job_status *status);
void kc_board_process(struct kc_board *b, uint32_t rank, const struct kc_rank_process *process);
void kc_board_watch(struct kc_board *b, const struct kc_watch_seen *watch);
void kc_board_pace(struct kc_board *b, uint32_t rank, const struct kc_rank_pace *pace);
/* Open the gate for the incarnation that was begun: its ranks are recorded and may run. Wakes them. */
void kc_board_gate_open(struct kc_board *b);
/* Set the control word (KC_CONTROL_…, probe.h) and wake all ranks. */
void kc_board_control(struct kc_board *b, uint64_t word);
uint64_t kc_board_control_word(const struct kc_board *b);
/* Abort the group as its keeper, once; wakes all ranks. Returns the word that stands now (KC_ABORT_…, probe.h). */
uint64_t kc_board_abort(struct kc_board *b, enum kc_reason reason);
/* Abort on behalf of a rank that can't any more: it died of a signal. */
uint64_t kc_board_abort_for(struct kc_board *b, uint32_t rank, enum kc_reason reason);
void kc_board_wake(struct kc_board *b);
/* Metrics of layer "supervisor". */
void kc_board_set(struct kc_board *b, enum kc_metric m, double value);
void kc_board_add(struct kc_board *b, enum kc_metric m, double amount);

/* ---- the node's directory (kcd) ---- */
struct kc_directory;
/* kcd pid and start time are filled here. -EBUSY: another kcd of this instance lives. */
int kc_directory_create(const char *instance, const struct kc_directory_facts *facts, struct kc_directory **out,
                        struct kc_error *e);
void kc_directory_free(struct kc_directory *d, int remove);
struct kc_reader *kc_directory_reader(struct kc_directory *d);
void kc_directory_facts(struct kc_directory *d, const struct kc_directory_facts *facts);
/* Entry i of the tables; NULL clears it. -EINVAL index. */
int kc_directory_job(struct kc_directory *d, uint32_t i, const struct kc_directory_job *job);
int kc_directory_device(struct kc_directory *d, uint32_t i, const struct kc_directory_device *device);

#endif
