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

struct kc_orders kc_orders_decide(const struct kc_orders_input *in)
{
    bool last = in->step >= in->steps;
    bool due = in->trained && in->every && (in->step % in->every == 0 || last);
    struct kc_orders o = {0};
    o.answer = in->wish.checkpoints != in->answered;
    o.leave = in->wish.stop || last;
    o.save = (o.answer || due || in->wish.stop) && !in->saved;
    o.hold = in->wish.pause && !o.leave;
    return o;
}
