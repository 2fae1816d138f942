/* hang_rig.h - evidence made by hand: a job whose ranks are where a test puts them, without a process or a board. */
#ifndef KC_TESTS_HANG_RIG_H
#define KC_TESTS_HANG_RIG_H

#include "console/hang/verdict.h"

#include "base/clock.h"

#include <stdarg.h>

#define RIG_NOW (1000 * KC_SECOND)
#define RIG_WORLD 0u /* group of all ranks */

/* A running job of incarnation 1, looked at twice: every rank is alive, sleeps, in phase forward of step 10, and changed
 * something 0.1 s ago. No operation yet. The process of rank r is 100 + r, with one thread. */
struct kc_evidence *rig_job(uint32_t ranks);
/* Members end with -1. */
void rig_group(struct kc_evidence *e, uint32_t id, const char *name, ...);

/* An all-reduce of f32 as others do it, to be changed where a test wants another. */
struct kc_op_seen rig_call(uint32_t group, uint64_t sequence);
struct kc_op_seen rig_message(uint32_t group, uint64_t sequence, enum kc_primitive primitive, int32_t peer);
/* Rank `r` has done it. */
void rig_done(struct kc_evidence *e, uint32_t r, struct kc_op_seen op);
/* Rank `r` stands in it since so many seconds: it neither moves nor changes anything else. */
void rig_stands(struct kc_evidence *e, uint32_t r, struct kc_op_seen op, double seconds);
/* comm refused it: signatures differ. */
void rig_refused(struct kc_evidence *e, uint32_t r, struct kc_op_seen op);
/* All ranks but those of `but` stand in all-reduce `sequence` of the world since so many seconds, after the one before it,
 * which all have done. */
void rig_all_stand(struct kc_evidence *e, uint64_t sequence, uint64_t but, double seconds);
/* The rank has not changed anything for so long, and did not move between the looks. */
void rig_still(struct kc_evidence *e, uint32_t r, enum kc_phase phase, double seconds);
/* It says that it waits. */
void rig_waits(struct kc_evidence *e, uint32_t r, enum kc_wait what, uint32_t group, uint64_t sequence, double seconds);

/* Its process, in both looks. */
void rig_state(struct kc_evidence *e, uint32_t r, char state);
/* Its main thread, in both looks: in a system call, and so much of a core between them. */
void rig_thread(struct kc_evidence *e, uint32_t r, char state, enum kc_call_kind kind, const char *target, double busy);
void rig_ended(struct kc_evidence *e, uint32_t r, int code, int signal, bool first);
void rig_words(struct kc_evidence *e, uint32_t r, enum kc_reason reason, const char *text);

/* The diagnosis; freed by the next call, and with NULL. Every verdict of it has evidence, a sentence, an owner and a next
 * step. */
const struct kc_diagnosis *rig_diagnose(const struct kc_evidence *e);
/* Exactly one verdict: this word about these ranks, and it hangs or not. */
#define RIG_ONE(e, w, who, hangs)                                                                                       \
    do {                                                                                                               \
        const struct kc_diagnosis *rig_d = rig_diagnose(e);                                                            \
        ck_assert_msg(rig_d->count == 1, "%u verdicts: %s", rig_d->count, rig_d->text);                                \
        ck_assert_msg(rig_d->verdict[0].word == (w), "%s: %s", kc_hang_word_name[rig_d->verdict[0].word],              \
                      rig_d->verdict[0].text);                                                                         \
        ck_assert_msg(rig_d->verdict[0].ranks == (who), "%#llx: %s", (unsigned long long)rig_d->verdict[0].ranks,       \
                      rig_d->verdict[0].text);                                                                         \
        ck_assert_msg(rig_d->verdict[0].hung == (hangs) && rig_d->hung == (hangs), "%s", rig_d->text);                 \
    } while (0)
/* Some row of the first verdict has this text. */
bool rig_tells(const struct kc_diagnosis *d, const char *text);

#endif
