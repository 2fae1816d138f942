/* drill.c - which faults are this rank's, and when their moment is. A rank's programs are known, so a decorator follows them:
 * who looks on (trace_if.h) is told which one begins, and each call after that is the next instruction of its lane. */
#include "drill_impl.h"

#include "shm/probe.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- where the rank is ---- */

static void count_snapshot(struct kc_drill *d)
{
    for (uint32_t i = 0; i < d->faults; i++)
        if (d->fault[i].say->what == KC_DRILL_NOSPACE && atomic_load(&d->step) >= d->fault[i].say->step)
            atomic_fetch_add(&d->fault[i].begun, 1);
}

/* A step that was not finite is run once more, to find out why: the same numbers come again. */
static void repeat(struct kc_drill *d, uint64_t step)
{
    for (uint32_t i = 0; i < d->faults; i++) {
        struct fault *f = &d->fault[i];
        if (f->say->what == KC_DRILL_NONFINITE && f->met_in == step && !f->repeated && atomic_load(&f->done)) {
            f->repeated = true, f->met = 0;
            atomic_store(&f->done, false);
        }
    }
}

static bool program_begins(void *self, uint32_t program, uint64_t step)
{
    struct kc_drill *d = self;
    if (program == KC_PROGRAM_TRAIN && d->program == KC_PROGRAM_TRAIN && atomic_load(&d->step) == step + 1)
        repeat(d, step + 1);
    d->program = program;
    d->instruction = KC_AT(d->exec, struct kc_exec_instruction, d->exec->instructions) + d->exec->programs[program].first;
    d->count = d->exec->programs[program].count;
    d->next[KC_LANE_COMPUTE] = d->next[KC_LANE_COMM] = 0;
    if (program == KC_PROGRAM_TRAIN)
        atomic_store(&d->step, step + 1);
    else if (program == KC_PROGRAM_SNAPSHOT_BEGIN)
        count_snapshot(d);
    return d->trace && d->trace->wants(d->trace->self, program, step);
}

static void operand_seen(void *self, uint32_t n, uint32_t operand, const void *data)
{
    const struct kc_drill *d = self;
    d->trace->seen(d->trace->self, n, operand, data);
}

const struct kc_exec_instruction *drill_instruction(struct kc_drill *d, enum kc_lane_id lane, uint8_t kind, uint16_t opcode)
{
    for (uint32_t n = d->next[lane]; n < d->count; n++) {
        const struct kc_exec_instruction *i = &d->instruction[n];
        if (i->lane == lane && i->kind == kind && (kind == KC_I_COLLECTIVE || i->opcode == opcode)) {
            d->next[lane] = n + 1;
            return i;
        }
    }
    return NULL;
}

enum kc_drill_at drill_place(const struct kc_drill *d, const struct kc_exec_instruction *i)
{
    static const uint8_t part[KC_PARTS] = {[KC_PART_DATA] = KC_DRILL_AT_DATA,
                                           [KC_PART_FORWARD] = KC_DRILL_AT_FORWARD,
                                           [KC_PART_BACKWARD] = KC_DRILL_AT_BACKWARD,
                                           [KC_PART_COMM] = KC_DRILL_AT_COMMUNICATION,
                                           [KC_PART_OPTIMIZER] = KC_DRILL_AT_OPTIMIZER,
                                           [KC_PART_STATE] = KC_DRILL_ATS};
    switch (d->program) {
    case KC_PROGRAM_TRAIN:
        return !i                          ? KC_DRILL_ATS
               : i->kind == KC_I_COLLECTIVE ? KC_DRILL_AT_COMMUNICATION
                                            : (enum kc_drill_at)part[i->part];
    case KC_PROGRAM_EVALUATE:
        return KC_DRILL_AT_EVALUATE;
    case KC_PROGRAM_SNAPSHOT_BEGIN:
    case KC_PROGRAM_SNAPSHOT_COPIED:
    case KC_PROGRAM_SNAPSHOT_WRITTEN:
    case KC_PROGRAM_SNAPSHOT_COMMITTED:
        return KC_DRILL_AT_SNAPSHOT;
    case KC_PROGRAM_RESTORE:
        return KC_DRILL_AT_RESTORE;
    default:
        return KC_DRILL_ATS;
    }
}

/* ---- moments ---- */

bool drill_begun(const struct kc_drill *d, const struct fault *f, enum kc_drill_at at)
{
    return f->say->at == at && atomic_load(&d->step) >= f->say->step;
}

bool drill_due(struct kc_drill *d, struct fault *f, enum kc_drill_at at)
{
    const uint64_t step = atomic_load(&d->step);
    if (atomic_load(&f->done) || f->say->at != at || (f->say->step && f->say->step != step))
        return false;
    if (f->met_in != step)
        f->met_in = step, f->met = 0;
    return f->met++ == f->say->nth;
}

void drill_tell(struct kc_drill *d, struct fault *f, const char *detail)
{
    char text[200];
    atomic_store(&f->done, true);
    if (f->repeated)
        return;
    snprintf(text, sizeof text, "%s in %s%s%s", kc_drill_name[f->say->what], kc_drill_at_name[f->say->at],
             *detail ? ": " : "", detail);
    kc_probe_event(d->c.probe, KC_EVENT_INJECTED, atomic_load(&d->step), 0, text);
}

/* ---- life ---- */

static bool concerns(const struct kc_drill_config *c, const struct kc_spec_injection *i)
{
    return (i->rank == KC_DRILL_ALL || i->rank == c->rank) && (i->again || c->incarnation == 1);
}

int kc_drill_new(const struct kc_drill_config *config, struct kc_drill **out, struct kc_error *e)
{
    const struct kc_spec_injection *list = KC_AT(config->spec, struct kc_spec_injection, config->spec->inject);
    uint32_t count = 0;
    for (uint32_t i = 0; i < config->spec->inject.count; i++)
        count += concerns(config, &list[i]);
    *out = NULL;
    if (!count)
        return 0;
    struct kc_drill *d = calloc(1, sizeof *d);
    if (!d || !(d->fault = calloc(count, sizeof *d->fault))) {
        kc_drill_free(d);
        return kc_fail(e, -ENOMEM, "no memory for a drill");
    }
    d->c = *config;
    for (uint32_t i = 0; i < config->spec->inject.count; i++)
        if (concerns(config, &list[i]))
            d->fault[d->faults++] = (struct fault){.say = &list[i], .bucket = -1};
    drill_make_storage(d);
    *out = d;
    return 0;
}

void kc_drill_free(struct kc_drill *d)
{
    if (!d)
        return;
    free(d->own_op);
    free(d->fault);
    free(d);
}

int kc_drill_start(struct kc_drill *d, struct kc_error *e)
{
    return d ? drill_process(d, KC_DRILL_AT_START, e) : 0;
}

const struct kc_storage *kc_drill_storage(struct kc_drill *d)
{
    for (uint32_t i = 0; d && i < d->faults; i++)
        if (d->fault[i].say->what == KC_DRILL_NOSPACE)
            return &d->storage;
    return NULL;
}

int kc_drill_wire(struct kc_drill *d, const struct kc_drill_wires *w, struct kc_error *e)
{
    if (!d)
        return 0;
    d->exec = w->exec;
    d->plan = w->plan;
    if (drill_wire_ops(d, w->ops) < 0)
        return kc_fail(e, -ENOMEM, "no memory for a drill");
    drill_wire_comm(d, w->comm);
    drill_wire_state(d, w->state);
    d->trace = *w->trace;
    d->own_trace = (struct kc_trace_if){.self = d, .wants = program_begins, .seen = operand_seen};
    *w->trace = &d->own_trace;
    return 0;
}
