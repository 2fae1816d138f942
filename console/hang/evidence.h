/* evidence.h - all that is known of a job at a moment, as plain data: gather.c collects it, verdict.c judges it, tests make
 * it by hand. What is unknown is zero and says so (known, count, torn); nothing here was believed, only bounded.
 *
 * Two looks are taken, so that what gets on is told from what stands still: the board's figures are those of the second. */
#ifndef KC_CONSOLE_HANG_EVIDENCE_H
#define KC_CONSOLE_HANG_EVIDENCE_H

#include "look.h"

#include "shm/reader.h"

#include <stdbool.h>
#include <stdint.h>

#define KC_HANG_WORD(id, name, layer, help) KC_HANG_##id,
enum kc_hang_word {
#include "words.def"
    KC_HANG_WORDS
};
#undef KC_HANG_WORD
struct kc_hang_word_row {
    const char *name, *help;
    uint8_t layer; /* enum kc_owner */
};
extern const struct kc_hang_word_row kc_hang_word_row[KC_HANG_WORDS];
extern const char *const kc_hang_word_name[KC_HANG_WORDS];

/* One rank. Its process is that of this incarnation, or none. */
struct kc_rank_evidence {
    struct kc_rank_view view;       /* as the board has it; identity.pid 0: nobody took the slot in this incarnation */
    struct kc_op_seen *op;          /* the newest of this incarnation, oldest first; owned by the evidence */
    uint32_t ops, ops_torn;         /* how many; entries between them that could not be read whole */
    bool wrapped;                   /* there were earlier ones, which the ring no longer has */
    uint64_t trace[KC_TRACE_LANES]; /* instructions ended so far */
    uint64_t trace_end;             /* kc_now() when the last of them ended, either lane; 0 unknown */
    uint64_t trace_slowest;         /* ns that the slowest of them took that the board still has; 0 unknown */
    struct kc_rank_pace pace;       /* samples 0: unknown */
    struct kc_look first, second;   /* its process, looked at twice; known 0: nothing could be looked at */
    bool gone;                      /* it was looked for where it should be, and there is no such process any more */
    bool moved;                     /* between the looks its step, phase, an operation, a wait or an instruction changed */
};

/* A job. Ages count by `now`. */
struct kc_evidence {
    char job[64];                   /* its id; "" unknown */
    struct kc_job_facts facts;
    struct kc_job_status status;
    struct kc_ack ack;
    struct kc_watch_seen watch;     /* what the keeper says of its getting on; incarnation 0: unknown */
    uint64_t control, abort;        /* the words of the board: KC_CONTROL_…, KC_ABORT_… */
    uint64_t now;                   /* the clock: of the second look, or when the board was saved */
    uint64_t between;               /* ns between the looks; 0: there was one, so nothing is known to stand still */
    bool saved;                     /* of a file, not of something that lives */
    bool keeper_alive;              /* means something unless saved */
    uint32_t ranks;
    struct kc_group_entry *group;   /* whose names and members are known; owned */
    uint32_t groups;
    struct kc_rank_evidence *rank;  /* (ranks), owned */
};

/* For `ranks` ranks with no operation, no group and nothing known. -EINVAL ranks, -ENOMEM. */
int kc_evidence_new(uint32_t ranks, struct kc_evidence **out);
/* NULL is fine. */
void kc_evidence_free(struct kc_evidence *e);

/* The group of that id; NULL: unknown. */
const struct kc_group_entry *kc_evidence_group(const struct kc_evidence *e, uint32_t id);

#endif
