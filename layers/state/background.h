/* background.h - what a rank does for a snapshot while training goes on. Two threads: the copier, at the lanes' priority, as a
 * ticket may wait for it; and the writer, which stands back: it looks at the copy, writes it, commits. The stages follow each
 * other as the programs of the snapshot say; here is only where the work of a stage is done. */
#ifndef KC_STATE_BACKGROUND_H
#define KC_STATE_BACKGROUND_H

#include "copy.h"
#include "mark.h"
#include "worker.h"

#define KC_WRITER_NICE 10

struct kc_state;

struct kc_background {
    struct kc_background_if on;
    struct kc_worker copier, writer;
    struct kc_marking marking;
    struct kc_pack pack; /* of the copy: as planned, every extent as it is; digests of the last mark */
    uint32_t slot;
    unsigned char *image; /* of the slot */
    uint64_t *limb;      /* root parts of the copy, as in the store vector from [2] on */
    _Atomic bool stop;
    void (*work)(struct kc_state *s); /* the writer's */
    /* ---- of the stage under way: the threads write, who waited for them reads ---- */
    int code;            /* of the copy */
    struct kc_error said;
    uint64_t copy_ns, write_ns;
};

/* Its threads start; the copier first has every page of the slots. -ENOMEM. */
int kc_background_new(struct kc_state *s, const struct kc_background_if *on, struct kc_error *e);
/* Breaks off what is under way. NULL is fine. */
void kc_background_free(struct kc_background *b);

/* The slot for the copy of s->attempt.version is taken: what it held is no copy any more. Position 0 before the others. */
void kc_background_take(struct kc_state *s);
/* From here on the copy gets the state as it is now. */
void kc_background_mark(struct kc_state *s);
/* Run `work` on the writer, which takes its time. */
void kc_background_run(struct kc_state *s, void (*work)(struct kc_state *s));
/* Nothing is under way when it returns. Of the copy: b->code, b->said, limbs, digests are there. */
void kc_background_wait(struct kc_background *b);
/* What the copy took, added. */
void kc_background_tell(const struct kc_background *b, struct kc_snapshot_info *info);
bool kc_background_idle(const struct kc_background *b);

#endif
