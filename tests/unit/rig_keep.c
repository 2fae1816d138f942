/* rig_keep.c - the example world's snapshots and governance: of quickstart-2, with a version on disk, a second one that is broken,
 * and copies in memory; rules of which one is broken; what was done in two hours. */
#include "screen_rig.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define NOW 1764500000.0 /* 2025-11-30T10:53:20Z */

static struct chain_row row[6];
static struct chain chain;
static struct border rule[4];
static struct border_exemption exemption[1];
static struct borders borders;
static struct deed deed[8];
static struct ledger_row ledger[6];
static struct governance governance;

static struct chain_row *add_row(enum chain_tier tier, uint64_t version, uint64_t step, double ago)
{
    struct chain_row *r = &row[chain.count++];
    *r = (struct chain_row){.tier = tier, .written = NOW - ago, .info = {.version = version, .step = step, .verified = true,
                            .bytes = version == 1 ? 10328064 : 4194304, .raw_bytes = 10303488}};
    snprintf(r->info.state_root, sizeof r->info.state_root, "7b68d78cfc6c273eb7d75bc8a97719%02d", (int)version);
    if (version > 1)
        r->info.parent = version - 1, r->info.parents = (uint32_t)version - 1;
    chain.disk += tier == CHAIN_DISK || tier == CHAIN_ELSEWHERE;
    chain.memory += tier == CHAIN_MEMORY;
    return r;
}

static void fill_chain(void)
{
    const struct kc_job_spec spec = {.on_nonfinite = KC_NONFINITE_ROLLBACK, .max_rollbacks = 3, .on_crash = KC_CRASH_RESTART,
                                     .max_restarts = 3, .on_hang = KC_HANG_REPORT};
    chain = (struct chain){.id = "quickstart-2", .row = row};
    struct chain_row *r = add_row(CHAIN_ELSEWHERE, 1, 100, 7200);
    r->cost = (struct job_cost){.version = 1, .step = 100};
    for (int f = 0; f < KC_FIGURES; f++)
        r->cost.figure[f] = (double)NAN;
    r->cost.figure[KC_FIGURE_STALL] = 0.003;
    r->cost.figure[KC_FIGURE_RATE] = 310;
    r = add_row(CHAIN_DISK, 2, 140, 125);
    r->info.error = -EBADMSG;
    r->info.verified = false;
    snprintf(r->info.reason, sizeof r->info.reason, "pack-0: the extent at byte 4096 is damaged");
    add_row(CHAIN_MEMORY, 1, 100, (double)NAN);
    add_row(CHAIN_MEMORY, 3, 160, (double)NAN);
    chain_plan(&chain, &spec, &(struct kc_policy_history){.restarts = 1});
    rig_view.kept.chain = &chain;
    rig_view.kept.wall = NOW;
    rig_view.kept.trouble = "";
}

/* Two ranks are through with a half of 10 MB together, in 2.5 s. */
void rig_under_way(void)
{
    for (int i = 0; i < 2; i++) {
        double *m = rig_rank[i].metric;
        m[KC_METRIC_SNAPSHOT_STAGE] = KC_SAVING_WRITING;
        m[KC_METRIC_SNAPSHOT_STEP] = 160;
        m[KC_METRIC_SNAPSHOT_DUE_BYTES] = 10303488;
        m[KC_METRIC_SNAPSHOT_DONE_BYTES] = i ? 7000000 : 3303488;
        m[KC_METRIC_SNAPSHOT_STAGE_SECONDS] = 2.5;
    }
}

static void fill_borders(void)
{
    const struct border rules[] = {
        {.id = "include-comm", .says = "comm knows types, calls and the probe; no plan, no state, no model", .net = "compile",
         .strength = "core", .owner = "communication", .version = 1, .state = BORDER_KEPT},
        {.id = "call-base", .says = "base calls no other room", .net = "link", .strength = "core", .owner = "foundations", .version = 1,
         .state = BORDER_BROKEN, .findings = 1, .place = "libbase.a(file.o)", .text = "calls kc_probe_set, which is of shm"},
        {.id = "words-clock", .says = "strategy reads no clock", .net = "compile", .strength = "edge", .owner = "parallelism",
         .version = 2, .state = BORDER_WARNS, .findings = 2, .place = "layers/strategy/cut.c:12", .text = "names kc_now"},
        {.id = "stamp-kc", .says = "kc was built under this checklist", .net = "start", .strength = "core", .owner = "governance",
         .version = 1, .state = BORDER_EXEMPT, .findings = 1, .place = "kc", .text = "was not built under this checklist"},
    };
    memcpy(rule, rules, sizeof rules);
    exemption[0] = (struct border_exemption){.rule = "stamp-kc", .place = "kc", .reason = "built by hand on the cluster",
                                             .reach = "node7", .back = "make install", .expires = "2026-01-15", .days = 45};
    borders = (struct borders){.rule = rule, .rules = 4, .exemption = exemption, .exemptions = 1, .checked = true,
                               .count = {[BORDER_KEPT] = 1, [BORDER_EXEMPT] = 1, [BORDER_WARNS] = 1, [BORDER_BROKEN] = 1}};
    rig_view.borders = &borders;
}

static void add_deed(const char *time, const char *who, const char *what, const char *action, int rank, int step, unsigned times,
                     const char *why)
{
    struct deed *d = &deed[governance.deeds++];
    *d = (struct deed){.who = who, .rank = rank, .step = step, .times = times};
    snprintf(d->time, sizeof d->time, "2025-11-30T%sZ", time);
    snprintf(d->what, sizeof d->what, "%s", what);
    snprintf(d->action, sizeof d->action, "%s", action);
    snprintf(d->why, sizeof d->why, "%s", why);
}

static void fill_governance(void)
{
    const struct kc_job_spec spec = {.on_nonfinite = KC_NONFINITE_ROLLBACK, .max_rollbacks = 3, .on_crash = KC_CRASH_RESTART,
                                     .max_restarts = 3, .on_hang = KC_HANG_REPORT};
    governance = (struct governance){.deed = deed, .ledger = ledger};
    governance.rulings = governance_rule(&spec, &(struct kc_policy_history){.restarts = 1}, governance.ruling);
    add_deed("08:53:10.100", "user", "queued", "start", -1, -1, 1, "");
    add_deed("09:40:00.250", "govern", "rollback", "rollback", 0, 61, 1, "step 61 was not finite; rollback 1 of at most 3");
    add_deed("10:20:31.000", "keeper", "fault", "restart", 1, 97, 1,
             "rank 1 at step 97 in phase backward: killed by someone (signal 9, SIGKILL); and 1 other followed");
    add_deed("10:41:02.500", "state", "unexpected-caller", "refuse", 0, 130, 1, "jobs asked to write parameter bucket 3");
    add_deed("10:52:11.000", "govern", "snapshot-skipped", "leave-out", 0, 175, 16, "that of step 160 is under way");
    static const double of[] = {1200, 300, 600, 600, 0};
    for (int i = 0; i < 5; i++) {
        ledger[i] = (struct ledger_row){.caller = "schedule", .of = i == 1 ? "communication" : "state", .rank = i < 3 ? -1 : i - 3,
                                        .opened = i == 0 ? 5400 : i == 1 ? 8650 : 2700, .viewed = i == 0 ? 2000000 : 1000000,
                                        .refused = (double)NAN};
        for (int k = 0; k < KC_STATES; k++)
            ledger[i].by_class[k] = i == 0 ? 2 * of[k] : of[k];
    }
    for (int k = 0; k < KC_STATES; k++)
        ledger[1].by_class[k] = ledger[2].by_class[k] = (double)NAN;
    ledger[1].viewed = ledger[2].opened = ledger[2].viewed = (double)NAN;
    ledger[2].refused = 1;
    snprintf(ledger[2].caller, sizeof ledger[2].caller, "jobs");
    governance.ledgers = 5;
    rig_view.governance = &governance;
}

void rig_fill_keep(void)
{
    fill_chain();
    fill_borders();
    fill_governance();
}

/* ---- at random ---- */

static double any_number(uint64_t (*any)(uint64_t n))
{
    static const double numbers[] = {(double)NAN, 0, 1, -1, 1e-9, 5400, 1e15, 1e300};
    return numbers[any(sizeof numbers / sizeof *numbers)];
}

static void any_text(uint64_t (*any)(uint64_t n), char *out, size_t room)
{
    const size_t n = any(3) ? any(20) : any(room);
    for (size_t i = 0; i < n; i++)
        out[i] = (char)(1 + any(any(4) ? 126 : 255));
    out[n] = 0;
}

static void any_row(uint64_t (*any)(uint64_t n), struct chain_row *r)
{
    *r = (struct chain_row){.tier = (enum chain_tier)any(CHAIN_TIERS), .written = any_number(any)};
    r->info.version = any(3) ? any(10) : UINT64_MAX - any(2);
    r->info.step = any(2) ? any(1000) : UINT64_MAX;
    r->info.parents = (uint32_t)any(4);
    r->info.error = any(3) ? 0 : -EBADMSG;
    r->info.bytes = any(2) ? any(1 << 30) : UINT64_MAX;
    any_text(any, r->info.state_root, sizeof r->info.state_root);
    any_text(any, r->info.reason, sizeof r->info.reason);
    any_text(any, r->info.path, 200);
}

static void any_deed(uint64_t (*any)(uint64_t n), struct deed *d)
{
    static const char *const who[] = {"user", "keeper", "govern"};
    *d = (struct deed){.who = who[any(3)], .rank = (int64_t)any(3) - 1, .step = any(2) ? -1 : INT64_MAX, .times = (uint32_t)any(3) * 4000000};
    any_text(any, d->time, sizeof d->time);
    any_text(any, d->what, sizeof d->what);
    any_text(any, d->action, sizeof d->action);
    any_text(any, d->why, sizeof d->why);
}

void rig_any_keep(uint64_t (*any)(uint64_t n))
{
    chain.count = any(sizeof row / sizeof *row + 1);
    chain.disk = chain.count ? any(chain.count) : 0;
    chain.memory = any(chain.count - chain.disk + 1);
    chain.planned = any(2);
    for (size_t i = 0; i < chain.count; i++)
        any_row(any, &row[i]);
    for (int i = 0; i < CHAIN_AFTERS; i++) {
        chain.after[i].version = (int64_t)any(4) - 1;
        chain.after[i].step = any(2) ? -1 : (int64_t)any(1u << 30);
    }
    governance.deeds = any(sizeof deed / sizeof *deed + 1);
    for (size_t i = 0; i < governance.deeds; i++)
        any_deed(any, &deed[i]);
    governance.ledgers = any(6);
    for (size_t i = 0; i < governance.ledgers; i++)
        ledger[i].opened = any_number(any);
    governance.rulings = any(2) ? KC_FAULTS : 0;
    for (size_t i = 0; i < borders.rules; i++)
        rule[i].state = (enum border_state)any(BORDER_STATES);
    exemption[0].days = (int)any(400) - 200;
    borders.exemptions = any(2);
    rig_view.kept.chain = any(4) ? &chain : NULL;
    rig_view.kept.came = any(2) ? 0 : rig_view.now;
    rig_view.kept.wall = any_number(any);
    rig_view.borders = any(4) ? &borders : NULL;
    rig_view.governance = any(4) ? &governance : NULL;
    if (any(2))
        rig_under_way();
}
