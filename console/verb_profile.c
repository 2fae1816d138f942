/* verb_profile.c - follows the traces of a job's ranks until so many steps are whole, and shows where their time
 * went. The plans are made again from the job's spec, and their digests compared with what its ranks run. */
#include "check.h"
#include "follow.h"
#include "profile_report.h"
#include "report.h"
#include "session.h"
#include "verbs.h"

#include "base/clock.h"
#include "base/print.h"
#include "shm/reader.h"
#include "supervisor/protocol.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define ROOM 32                          /* steps kept beyond those that are wanted */
#define NAP_SHORTEST (1 * KC_MILLISECOND)/* between two looks at the rings: they must not run full meanwhile */
#define NAP_LONGEST (32 * KC_MILLISECOND)
#define LOOK_NS (100 * KC_MILLISECOND)   /* how often to look at the job itself */
#define BATCH 256

struct wish {
    uint32_t steps;
    int rank; /* -1 all */
    enum profile_by by;
    const char *trace;
    uint64_t limit_ns;
    const char *limit; /* as it was typed */
};

/* A job that is followed. */
struct chase {
    struct session *s;
    const struct wish *wish;
    const char *id;
    struct check check;
    struct kc_reader *reader;
    struct profile_rank rank[KC_RANKS_MAX];
    uint64_t cursor[KC_RANKS_MAX][KC_TRACE_LANES];
    uint32_t incarnation[KC_RANKS_MAX];
    uint32_t ranks, common[PROFILE_STEPS_MAX];
    uint64_t lost;
    bool live; /* it runs: steps from now on; else what the rings hold */
};

/* ---- options --------------------------------------------------------------------------------------------------- */

static int read_wish(const struct arguments *a, struct wish *w, struct kc_error *e)
{
    const char *by = a->option[OPTION_BY];
    uint32_t steps = 5, rank = 0;
    int way = PROFILE_OP, rc = argument_whole(a, OPTION_STEPS, 1, PROFILE_STEPS_MAX, &steps, e);
    if (!rc)
        rc = argument_whole(a, OPTION_RANK, 0, KC_RANKS_MAX - 1, &rank, e);
    if (!rc && by)
        for (way = 0; way < PROFILE_WAYS && strcmp(by, profile_by_name[way]) != 0; way++)
            ;
    if (!rc && way == PROFILE_WAYS)
        rc = kc_fail(e, -EINVAL, "--by wants op, layer or instruction, not \"%.40s\"", by);
    *w = (struct wish){.steps = steps, .rank = a->option[OPTION_RANK] ? (int)rank : -1, .by = (enum profile_by)way,
                       .trace = a->option[OPTION_TRACE], .limit = a->option[OPTION_TIMEOUT]};
    if (!rc && a->option[OPTION_TIMEOUT])
        rc = duration_parse(a->option[OPTION_TIMEOUT], &w->limit_ns, e);
    return rc;
}

/* ---- the job and its plans ------------------------------------------------------------------------------------- */

/* Its ranks left something to read, or will. */
static int look_at_job(struct session *s, const struct job *j, const struct wish *w)
{
    if (j->board_error)
        return session_fail(s, j->board_error == -EPROTO ? KC_EXIT_VERSION : KC_EXIT_INCOMPLETE, "%s", j->board_text);
    if (w->rank >= 0 && j->ranks >= 0 && w->rank >= j->ranks)
        return session_fail(s, KC_EXIT_NO_OBJECT, "%s has no rank %d: it has %lld, from 0", j->id, w->rank,
                            (long long)j->ranks);
    if (j->board)
        return KC_EXIT_OK;
    if (job_ended(j))
        return session_fail(s, KC_EXIT_REFUSED, "%s is %s: its trace went with its board; profile a job that runs",
                            j->id, job_state_text(j));
    if (*j->host && strcmp(j->host, s->home.host) != 0)
        return session_fail(s, KC_EXIT_REFUSED, "%s is %s on %s, and its board is there: run kc profile there", j->id,
                            job_state_text(j), j->host);
    return session_fail(s, KC_EXIT_REFUSED,
                        "%s is %s and trains nothing yet; kc wait %s --for 'step>=1' tells when it does", j->id,
                        job_state_text(j), j->id);
}

/* Do the ranks run what this program would make of their spec? -ENOENT: they have not planned yet. */
static int compare_plans(const struct chase *c, struct kc_error *e)
{
    struct kc_plan_facts f;
    const struct kc_plans *p = &c->check.plans;
    int rc = kc_reader_plan(c->reader, &f);
    if (rc)
        return rc;
    const struct {
        const char *name;
        struct kc_digest runs, here;
    } plan[] = {{"shard_plan", f.shard, p->shard->head.digest},
                {"comm_plan", f.comm, p->comm->head.digest},
                {"exec_plan", f.exec, p->exec[0]->head.digest}};
    for (size_t i = 0; i < sizeof plan / sizeof *plan; i++)
        if (plan[i].runs.low != plan[i].here.low || plan[i].runs.high != plan[i].here.high)
            return kc_fail(e, -EPROTO,
                           "%s runs another %s than this kc makes of its spec; use the kc it was started with", c->id,
                           plan[i].name);
    return 0;
}

static int open_chase(struct chase *c, const struct job *j, struct kc_error *e)
{
    char path[JOB_PATH_ROOM + 16];
    snprintf(path, sizeof path, "%s/spec.json", j->directory);
    int rc = check_plan(&c->s->home, path, &c->check, e);
    if (!rc)
        rc = kc_reader_attach(*j->instance ? j->instance : c->s->home.instance, j->id, &c->reader, e);
    if (rc)
        return rc;
    uint32_t all = c->check.plans.shard->ranks, first = c->wish->rank < 0 ? 0 : (uint32_t)c->wish->rank;
    if (all != kc_reader_ranks(c->reader) || first >= all)
        return kc_fail(e, -EPROTO, "the board of %s has %u ranks, its spec %u", c->id, kc_reader_ranks(c->reader),
                       all);
    for (uint32_t r = first; r < (c->wish->rank < 0 ? all : first + 1); r++) {
        struct profile_plan plan;
        rc = profile_plan_make(&c->check.plans, c->check.devices, r, &plan);
        if (!rc && (rc = profile_rank_make(&c->rank[c->ranks], &plan, c->wish->steps + ROOM)) != 0)
            profile_plan_free(&plan);
        if (rc)
            return kc_fail(e, rc, "no memory for the steps of %u ranks; ask for less: --steps, --rank", all);
        for (int lane = 0; lane < KC_TRACE_LANES; lane++)
            c->cursor[c->ranks][lane] = c->live ? KC_TRACE_NEW : 0;
        c->ranks++;
    }
    return 0;
}

static void close_chase(struct chase *c)
{
    for (uint32_t r = 0; r < c->ranks; r++)
        profile_rank_free(&c->rank[r]);
    kc_reader_free(c->reader);
    check_free(&c->check);
}

/* ---- following ------------------------------------------------------------------------------------------------- */

/* Read what is new; returns the share of a ring that was, at most. */
static double read_rings(struct chase *c)
{
    static const double size[KC_TRACE_LANES] = {KC_TRACE_COMPUTE, KC_TRACE_COMM};
    struct kc_trace_seen seen[BATCH];
    double most = 0;
    for (uint32_t r = 0; r < c->ranks; r++)
        for (uint32_t lane = 0; lane < KC_TRACE_LANES; lane++) {
            uint64_t lost = 0, before = c->cursor[r][lane];
            int n;
            do {
                uint64_t gap = lost;
                n = kc_reader_trace(c->reader, c->rank[r].plan.rank, lane, &c->cursor[r][lane], seen, BATCH, &lost);
                if (lost != gap)
                    profile_gap(&c->rank[r]);
                for (int i = 0; i < n; i++)
                    profile_feed(&c->rank[r], lane, &seen[i]);
            } while (n == BATCH);
            double share = before == KC_TRACE_NEW ? 0 : (double)(c->cursor[r][lane] - before) / size[lane];
            most = share > most ? share : most;
            c->lost += lost;
        }
    return most;
}

/* Steps of two incarnations are never joined: a restart takes some back. */
static void look_at_incarnations(struct chase *c)
{
    bool changed = false;
    for (uint32_t r = 0; r < c->ranks; r++) {
        struct kc_rank_view v;
        if (kc_reader_rank(c->reader, c->rank[r].plan.rank, &v) || !v.identity.pid)
            continue;
        changed |= c->incarnation[r] && c->incarnation[r] != v.identity.incarnation;
        c->incarnation[r] = v.identity.incarnation;
    }
    for (uint32_t r = 0; changed && r < c->ranks; r++)
        profile_forget(&c->rank[r]);
}

/* Does it train, or will it? */
static bool trains(const struct job *j)
{
    return j->keeper_alive && !job_ended(j) && j->state != KC_JOB_PAUSED;
}

/* As what it stands there, in a sentence. */
static const char *as_it_is(const struct job *j)
{
    return job_ended(j) || j->keeper_alive ? job_state_text(j) : "without its keeper";
}

/* Will more steps come? `j` is read again. */
static bool goes_on(struct chase *c, struct job *j)
{
    struct kc_segment_info info;
    struct job now;
    kc_reader_info(c->reader, &info);
    if (info.replaced || !c->live)
        return false;
    if (job_read(&c->s->home, c->id, &now, NULL))
        return false;
    job_free(j);
    *j = now;
    look_at_incarnations(c);
    return trains(j);
}

/* Until there are enough steps. An exit code; *count steps are whole in any case. */
static int follow(struct chase *c, struct job *j, uint32_t *count, struct kc_error *e)
{
    uint64_t nap = NAP_SHORTEST, end = c->wish->limit_ns ? kc_now() + c->wish->limit_ns : UINT64_MAX, look = 0;
    bool planned = false, more = true;
    interrupt_catch();
    for (;;) {
        if (kc_now() >= look) { /* before the rings: what it did until it ended is in them */
            more = goes_on(c, j);
            look = kc_now() + LOOK_NS;
        }
        int rc = planned ? 0 : compare_plans(c, e);
        planned |= rc == 0;
        if (rc == -EPROTO)
            return KC_EXIT_VERSION;
        double share = read_rings(c);
        *count = profile_common(c->rank, c->ranks, c->wish->steps, c->common);
        if (planned && *count == c->wish->steps)
            return KC_EXIT_OK;
        if (!more)
            return KC_EXIT_INCOMPLETE;
        if (interrupt_seen())
            return KC_EXIT_INTERRUPTED;
        if (kc_now() >= end)
            return KC_EXIT_TIMEOUT;
        nap = share > 0.25 ? nap / 2 : share < 0.0625 ? nap * 2 : nap;
        nap = nap < NAP_SHORTEST ? NAP_SHORTEST : nap > NAP_LONGEST ? NAP_LONGEST : nap;
        nanosleep(&(struct timespec){.tv_nsec = (long)nap}, NULL);
    }
}

/* ---- the answer ------------------------------------------------------------------------------------------------ */

static int nothing_seen(struct chase *c, const struct job *j, int code)
{
    uint64_t strange = 0;
    for (uint32_t r = 0; r < c->ranks; r++)
        strange += c->rank[r].strange;
    if (strange)
        return session_fail(c->s, KC_EXIT_VERSION,
                            "%s runs a program that this kc does not know; use the kc it was started with", c->id);
    if (code == KC_EXIT_INTERRUPTED)
        return interrupt_told(c->s, c->id);
    if (code == KC_EXIT_TIMEOUT)
        return session_fail(c->s, code, "%s is %s: no whole step ended within %s", c->id, as_it_is(j),
                            c->wish->limit);
    return session_fail(c->s, KC_EXIT_REFUSED,
                        "%s is %s, and no whole step of it is in the trace; profile a job that trains", c->id,
                        as_it_is(j));
}

/* What a reader has to know about the steps below. */
static void notes(struct chase *c, const struct job *j, uint32_t count, int code)
{
    if (!c->live)
        session_note(c->s, "%s is %s: these are the last steps that its trace holds", c->id, as_it_is(j));
    if (count < c->wish->steps)
        session_note(c->s, "%u of %u step%s: %s", count, c->wish->steps, kc_plural(c->wish->steps),
                     code == KC_EXIT_TIMEOUT       ? "the time is over"
                     : code == KC_EXIT_INTERRUPTED ? "interrupted; the job goes on"
                     : c->live                     ? "the job went on no longer"
                                                   : "the trace holds no more");
}

static int show(struct chase *c, const struct job *j, uint32_t count, int code)
{
    struct kc_error e = {""};
    struct profile p;
    if (profile_make(c->rank, c->ranks, c->common, count, c->wish->by, &p))
        return session_fail(c->s, KC_EXIT_SYSTEM, "no memory for a profile of %u ranks", c->ranks);
    int rc = c->wish->trace ? profile_trace(c->wish->trace, c->id, c->rank, c->ranks, c->common, count, &e) : 0;
    if (rc) {
        profile_free(&p);
        return session_fail(c->s, KC_EXIT_SYSTEM, "%s", e.text);
    }
    notes(c, j, count, code);
    int written;
    if (c->s->json) {
        json_t *o = session_envelope(c->s);
        json_object_set_new(o, "job", session_text(c->id));
        json_object_set_new(o, "state", session_text(job_state_text(j)));
        json_object_set_new(o, "complete", json_boolean(count == c->wish->steps));
        json_object_set_new(o, "trace", session_text(c->wish->trace));
        profile_json(&p, c->wish->by, o);
        written = session_emit(c->s, o);
    } else {
        struct draft d;
        FILE *out = draft_open(&d);
        fprintf(out, "%s: ", c->id);
        profile_print(&p, out);
        if (c->wish->trace)
            fprintf(out, "trace written to %s; open it at https://ui.perfetto.dev\n", c->wish->trace);
        written = draft_close(c->s, &d);
    }
    profile_free(&p);
    return written ? written : code;
}

int verb_profile(struct session *s, const struct arguments *a)
{
    struct wish w;
    struct kc_error e = {""};
    struct job j;
    uint32_t count = 0;
    int rc = read_wish(a, &w, &e);
    if (!rc && w.trace)
        rc = profile_trace_possible(w.trace, &e);
    if (rc)
        return session_fail(s, rc == -EINVAL ? KC_EXIT_USAGE : session_code(rc), "%s", e.text);
    rc = job_read(&s->home, a->word[0], &j, &e);
    if (rc)
        return session_fail(s, session_code(rc), "%s", e.text);
    int code = look_at_job(s, &j, &w);
    struct chase *c = code ? NULL : calloc(1, sizeof *c);
    if (!code && !c)
        code = session_fail(s, KC_EXIT_SYSTEM, "no memory to follow %s", j.id);
    if (c) {
        char id[JOB_ID_ROOM];
        snprintf(id, sizeof id, "%s", j.id);
        c->s = s, c->wish = &w, c->id = id;
        c->live = trains(&j);
        rc = open_chase(c, &j, &e);
        code = rc ? session_code(rc) : follow(c, &j, &count, &e);
        if (rc || (code == KC_EXIT_VERSION && *e.text))
            code = session_fail(s, code, "%s", e.text);
        else if (count == 0)
            code = nothing_seen(c, &j, code);
        else
            code = show(c, &j, count, code);
        close_chase(c);
        free(c);
    }
    job_free(&j);
    return code;
}
