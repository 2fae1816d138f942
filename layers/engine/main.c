/* main.c - kc-rank: one rank of a job. Started by a keeper with everything it needs in its environment; see kc-rank(8). */
#include "base/error.h"
#include "base/version.h"
#include "engine/engine.h"
#include "govern/spec.h"
#include "process.h"
#include "resource/resource.h"
#include "shm/probe.h"
#include "task.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Seconds beyond the spec's grace that a rank without keeper has for its last step and snapshot. */
#define ORPHAN_SECONDS 60

static const char help[] =
    "kc-rank - one rank of a Kuangchao job\n\n"
    "usage: kc-rank                      started by a keeper, with its facts in the environment (kc-rank(8))\n"
    "       kc-rank --task sample …      continue a text with a snapshot's model (kc sample)\n"
    "       kc-rank --task bench-comm …  time the collectives between processes (kc bench comm)\n"
    "       kc-rank --task peak …        time matrix products on one core (kc bench step)\n"
    "       kc-rank --task keep …        write the copy of the state in memory to disk (a keeper)\n"
    "       kc-rank --task replay …      train steps of a job once more (kc snap prove, kc trace)\n"
    "       kc-rank --help | --version\n";

/* Say why on the board and in the log, and tell the peers: they are woken at once. */
static int leave(struct kc_probe *probe, enum kc_reason reason, int code, int32_t peer, const char *text)
{
    fprintf(stderr, "kc-rank: %s\n", text);
    kc_probe_leave(probe, reason, code, peer, text); /* its words have the phase that it was in */
    kc_probe_phase(probe, KC_PHASE_LEAVING);
    kc_probe_abort(probe, reason);
    return 1;
}

static int run_rank(const struct kc_birth *birth, struct kc_probe *probe)
{
    struct kc_error e = {""};
    struct kc_arena arena = {0};
    const struct kc_job_spec *spec;
    struct kc_engine *engine = NULL;
    struct kc_outcome outcome = {.peer = -1};
    enum kc_reason reason = KC_REASON_SPEC;
    char path[PATH_MAX], allowed[KC_CPUS_TEXT];

    kc_probe_state(probe, KC_RANK_STARTING);
    kc_probe_phase(probe, KC_PHASE_STARTING);
    kc_process_readable();
    int code = kc_process_signals(probe);
    if (code == 0)
        code = kc_arena_new(&arena, 1 << 20);
    snprintf(path, sizeof path, "%s/spec.json", birth->directory);
    if (code == 0)
        code = kc_spec_load(path, &arena, &spec, &e);
    if (code == 0)
        code = kc_spec_runs(spec, &e);
    if (code == 0 && spec->inject.count && !birth->drills)
        code = kc_fail(&e, -EPERM, "inject: faults are put into a job only where kcd was started with --allow-drills");
    if (code < 0)
        return leave(probe, reason, code, -1, e.text[0] ? e.text : strerror(-code));
    code = kc_process_watch(probe, birth->keeper_fd, spec->grace_seconds + ORPHAN_SECONDS);
    if (code < 0)
        return leave(probe, KC_REASON_ERROR, code, -1, "no thread to watch the keeper");
    kc_probe_state(probe, KC_RANK_READY);
    code = kc_probe_gate_wait(probe, 0);
    kc_probe_state(probe, KC_RANK_STARTING);
    if (code < 0)
        return leave(probe, code == -ESTALE ? KC_REASON_KEEPER : KC_REASON_ENDED, code, -1, "ended at the gate");

    reason = KC_REASON_LEASE;
    if (kc_resource_allowed(allowed, sizeof allowed) < 0)
        allowed[0] = 0; /* then background threads run where the rank does */
    code = kc_resource_bind(birth->cpus, &e);
    if (code == 0) {
        struct kc_engine_config c = {.spec = spec,
                                     .rank = birth->rank,
                                     .incarnation = birth->incarnation,
                                     .leases = birth->leases,
                                     .allowed = allowed,
                                     .window_fds = birth->window_fds,
                                     .copy_fds = birth->copies ? birth->copy_fds : NULL,
                                     .directory = birth->directory,
                                     .probe = probe,
                                     .load = true,
                                     .drills = birth->drills};
        code = kc_engine_new(&c, &engine, &reason, &e);
    }
    if (code == 0) {
        code = kc_engine_govern(engine, &kc_process_told_to_stop, &outcome, &e);
        reason = outcome.reason;
    }
    if (code < 0)
        return leave(probe, reason, code, outcome.peer, e.text[0] ? e.text : strerror(-code));
    /* a stop that nobody asked for is what ranks without a keeper do: whoever finds them starts the job again */
    if (reason == KC_REASON_STOPPED && !(kc_probe_control(probe) & KC_CONTROL_STOP) && !kc_probe_keeper_alive(probe))
        reason = KC_REASON_KEEPER;
    /* the engine is not torn down piece by piece: the process ends, and the kernel is faster at it */
    kc_probe_leave(probe, reason, outcome.snapshot_lost ? -EIO : 0, -1, outcome.root);
    printf("kc-rank: %s at step %llu, state_root %s\n", kc_name_of(kc_reason_name, KC_REASONS, reason),
           (unsigned long long)outcome.step, outcome.root);
    return 0;
}

int main(int argc, char **argv)
{
    struct kc_birth birth;
    struct kc_probe *probe;
    struct kc_error e = {""};
    if (argc > 2 && strcmp(argv[1], "--task") == 0)
        return kc_task_main(argc - 2, argv + 2);
    if (argc > 1 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0))
        return fputs(help, stdout) < 0;
    if (argc > 1 && strcmp(argv[1], "--version") == 0)
        return puts("kc-rank " KC_VERSION) < 0;
    if (argc > 1) {
        fprintf(stderr, "kc-rank: unknown argument %s\n%s", argv[1], help);
        return 2;
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    int code = kc_birth_read(&birth, &e);
    if (code == 0)
        code = kc_probe_attach(birth.board_fd, birth.rank, birth.incarnation, &probe, &e);
    if (code < 0) {
        fprintf(stderr, "kc-rank: %s%s\n", e.text,
                code == -EPROTO ? "; this kc-rank and the kcd that started it are of different builds" : "");
        return 2;
    }
    code = run_rank(&birth, probe);
    fflush(stdout);
    return code; /* the probe stays: a signal or the thread that watches the keeper may want it until the very end */
}
