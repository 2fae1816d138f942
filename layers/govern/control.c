/* control.c - decisions only: nothing here acts, waits or remembers. */
#include "govern/control.h"

#include "contracts/exec_plan.h"
#include "shm/probe.h"

struct kc_wish kc_wish_read(const double *agreed)
{
    uint64_t word = (uint64_t)agreed[KC_AGREE_CONTROL];
    return (struct kc_wish){
        .pause = word & KC_CONTROL_PAUSE,
        .stop = (word & KC_CONTROL_STOP) || agreed[KC_AGREE_STOP] > 0,
        .checkpoints = KC_CONTROL_CHECKPOINTS(word),
    };
}

#define NAME_ROW(id, name, extra) name,
const char *const kc_next_name[KC_NEXTS] = {KC_NEXT_TABLE(NAME_ROW)};

enum kc_next kc_next_decide(const struct kc_next_input *in)
{
    const bool last = in->step >= in->steps, leave = in->wish.stop || last;
    const bool due = in->trained && in->every && (in->step % in->every == 0 || last);
    const bool asked = in->wish.checkpoints != in->answered;
    const bool busy = in->saving != KC_SAVING_NONE, older = busy && in->saving_step != in->step;
    if (busy && (in->ready || leave || (due && older && in->wait)))
        return KC_NEXT_ADVANCE;
    if (due && older)
        return KC_NEXT_SKIP;
    if (asked && !busy && in->saved)
        return KC_NEXT_ANSWER;
    if (!busy && !in->saved && (asked || ((due || in->wish.stop) && !in->tried)))
        return KC_NEXT_BEGIN;
    return leave ? KC_NEXT_LEAVE : in->wish.pause ? KC_NEXT_HOLD : KC_NEXT_TRAIN;
}
