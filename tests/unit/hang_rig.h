/* hang_rig.h - evidence made by hand: a job whose ranks are where a test puts them, without a process or a board. */
#ifndef KC_TESTS_HANG_RIG_H
#define KC_TESTS_HANG_RIG_H

#include "console/hang/verdict.h"

#include "base/clock.h"

#include <stdarg.h>

#define HANG_NOW (1000 * KC_SECOND)
#define HANG_WORLD 0u /* group of all ranks */

/* A running job of incarnation 1, looked at twice: every rank is alive, sleeps, in phase forward of step 10, and changed
 * something 0.1 s ago. No operation yet. The process of rank r is 100 + r, with one thread. */
struct kc_evidence *hang_job(uint32_t ranks);
/* Members end with -1. */
void hang_group(struct kc_evidence *e, uint32_t id, const char *name, ...);

/* An all-reduce of f32 as others do it, to be changed where a test wants another. */
struct kc_op_seen hang_call(uint32_t group, uint64_t sequence);
struct kc_op_seen hang_message(uint32_t group, uint64_t sequence, enum kc_primitive primitive, int32_t peer);
/* Rank `r` has done it. */
void hang_done(struct kc_evidence *e, uint32_t r, struct kc_op_seen op);
/* Rank `r` stands in it since so many seconds: it neither moves nor changes anything else. */
void hang_stands(struct kc_evidence *e, uint32_t r, struct kc_op_seen op, double seconds);
/* comm refused it: signatures differ. */
void hang_refused(struct kc_evidence *e, uint32_t r, struct kc_op_seen op);
/* All ranks but those of `but` stand in all-reduce `sequence` of the world since so many seconds, after the one before it,
 * which all have done. */
void hang_all_stand(struct kc_evidence *e, uint64_t sequence, uint64_t but, double seconds);
/* The rank has not changed anything for so long, and did not move between the looks. */
void hang_still(struct kc_evidence *e, uint32_t r, enum kc_phase phase, double seconds);
/* It says that it waits. */
void hang_waits(struct kc_evidence *e, uint32_t r, enum kc_wait what, uint32_t group, uint64_t sequence, double seconds);

/* Its process, in both looks. */
void hang_state(struct kc_evidence *e, uint32_t r, char state);
/* Its main thread, in both looks: in a system call, and so much of a core between them. */
void hang_thread(struct kc_evidence *e, uint32_t r, char state, enum kc_call_kind kind, const char *target, double busy);
void hang_ended(struct kc_evidence *e, uint32_t r, int code, int signal, bool first);
void hang_words(struct kc_evidence *e, uint32_t r, enum kc_reason reason, const char *text);

/* The diagnosis; freed by the next call, and with NULL. Every verdict of it has evidence, a sentence, an owner and a next
 * step. */
const struct kc_diagnosis *hang_diagnose(const struct kc_evidence *e);
/* Exactly one verdict: this word about these ranks, and it hangs or not. */
#define HANG_ONE(e, w, who, hangs)                                                                                       \
    do {                                                                                                               \
        const struct kc_diagnosis *hang_d = hang_diagnose(e);                                                            \
        ck_assert_msg(hang_d->count == 1, "%u verdicts: %s", hang_d->count, hang_d->text);                                \
        ck_assert_msg(hang_d->verdict[0].word == (w), "%s: %s", kc_hang_word_name[hang_d->verdict[0].word],              \
                      hang_d->verdict[0].text);                                                                         \
        ck_assert_msg(hang_d->verdict[0].ranks == (who), "%#llx: %s", (unsigned long long)hang_d->verdict[0].ranks,       \
                      hang_d->verdict[0].text);                                                                         \
        ck_assert_msg(hang_d->verdict[0].hung == (hangs) && hang_d->hung == (hangs), "%s", hang_d->text);                 \
    } while (0)
/* Some row of the first verdict has this text. */
bool hang_tells(const struct kc_diagnosis *d, const char *text);

#endif
