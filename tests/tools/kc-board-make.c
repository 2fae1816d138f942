/* kc-board-make - boards of jobs that never ran, for tests, benches and pictures.
 *
 *   kc-board-make [wish] FILE                    one saved board
 *   kc-board-make [wish] --recording DIR         a recording of --moments, a second and a step apart
 *   kc-board-make [wish] --home DIR [--jobs N]   the files of jobs; with --live also their boards in /dev/shm, which move on
 *                                                each --tick seconds until SIGTERM; with --leave they stand, their keeper dead
 * It prints one line when all is there. The wish: see options[] below. */
#include "tests/unit/board_home.h"

#include "base/clock.h"
#include "shm/board.h"
#include "shm/keeper.h"
#include "shm/reader.h"
#include "shm/recording.h"
#include "shm/segment.h"

#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define JOBS_MOST 256

#define OPTION_TABLE(X)                                                                                                \
    X(RANKS, "ranks", 1, "N: 1 to 1024 (64)")                                                                          \
    X(NODES, "nodes", 1, "N: machines (one for each 8 ranks)")                                                         \
    X(STATE, "state", 1, "STATE: of the job, as kc ps says it (running)")                                              \
    X(STEP, "step", 1, "N: steps done (1234)")                                                                         \
    X(STEPS, "steps", 1, "N: of the whole run (20000)")                                                                \
    X(STEP_SECONDS, "step-seconds", 1, "S: of one step (2)")                                                           \
    X(PHASES, "phases", 1, "PHASE:WEIGHT,…: of ranks that run (as in a run)")                                          \
    X(HUNG, "hung", 1, "RANKS: stand still for --stuck seconds, all others wait for them")                             \
    X(STUCK, "stuck", 1, "S: (75)")                                                                                    \
    X(FAILED, "failed", 1, "RANKS: ended by a signal; the first is the first failure")                                 \
    X(ABSENT, "absent", 1, "RANKS: not started")                                                                       \
    X(EXITED, "exited", 1, "RANKS: ended")                                                                             \
    X(SLOW, "slow", 1, "RANKS: stragglers")                                                                            \
    X(SILENT, "silent", 1, "RANKS: have said nothing for --stuck seconds")                                             \
    X(TORN, "torn", 1, "WHAT,…: records whose writer died in them; a rank's of --torn-ranks (all)")            \
    X(TORN_RANKS, "torn-ranks", 1, "RANKS")                                                                            \
    X(OPS, "ops", 1, "N: operations kept per rank (16)")                                                               \
    X(EVENTS, "events", 1, "N: per rank (2)")                                                                          \
    X(EXPERTS, "experts", 1, "N: a layer (0)")                                                                         \
    X(SNAPSHOTS, "snapshots", 1, "N: in the index (3)")                                                                \
    X(SEED, "seed", 1, "N (1)")                                                                                        \
    X(NAME, "name", 1, "NAME: of the job; ids are NAME-1 … (made)")                                                    \
    X(TEXT, "text", 1, "TEXT: of its verdict")                                                                         \
    X(HOME, "home", 1, "DIR: a KC_HOME")                                                                               \
    X(INSTANCE, "instance", 1, "NAME: of its kcd (default)")                                                           \
    X(JOBS, "jobs", 1, "N: in the home (1); --mixed: every fourth has ended, every ninth waits")                       \
    X(MIXED, "mixed", 0, "")                                                                                           \
    X(LIVE, "live", 0, "boards in shared memory, too")                                                                 \
    X(LEAVE, "leave", 0, "leave them and end")                                                                         \
    X(TICK, "tick", 1, "S: (1)")                                                                                       \
    X(RECORDING, "recording", 1, "DIR")                                                                                \
    X(MOMENTS, "moments", 1, "N: (60)")                                                                                \
    X(HELP, "help", 0, "")
#define OPTION_ROW(id, name, argument, help) OPTION_##id,
enum { OPTION_TABLE(OPTION_ROW) OPTIONS };
#undef OPTION_ROW
#define OPTION_ROW(id, name, argument, help) {name, argument, NULL, OPTION_##id},
static const struct option options[] = {OPTION_TABLE(OPTION_ROW){0}};
#undef OPTION_ROW
#define OPTION_ROW(id, name, argument, help) help,
static const char *const helps[] = {OPTION_TABLE(OPTION_ROW)};
#undef OPTION_ROW

struct order {
    struct board_wish wish;
    const char *home, *instance, *recording, *file;
    uint32_t jobs, moments;
    bool mixed, live, leave, all_torn;
    double tick;
};

static volatile sig_atomic_t ended;

static void end(int signal)
{
    ended = signal;
}

static int bad(const char *what, const char *text)
{
    fprintf(stderr, "kc-board-make: --%s: '%s' is none\n", what, text);
    return -EINVAL;
}

/* ---- options ------------------------------------------------------------------------------------------------------- */

static int parse_phases(uint32_t weight[KC_PHASES], char *text)
{
    for (char *save, *one = strtok_r(text, ",", &save); one; one = strtok_r(NULL, ",", &save)) {
        char *colon = strchr(one, ':');
        if (colon)
            *colon++ = 0;
        int phase = kc_name_find(kc_phase_name, KC_PHASES, one);
        if (phase < 0)
            return bad("phases", one);
        weight[phase] = colon ? (uint32_t)strtoul(colon, NULL, 10) : 1;
    }
    return 0;
}

static int parse_torn(struct order *o, char *text)
{
#define BOARD_TORN_ROW(id, name) name,
    static const char *const names[] = {BOARD_TORN_TABLE(BOARD_TORN_ROW)};
#undef BOARD_TORN_ROW
    for (char *save, *one = strtok_r(text, ",", &save); one; one = strtok_r(NULL, ",", &save)) {
        int what = kc_name_find(names, BOARD_TORNS, one);
        if (what < 0)
            return bad("torn", one);
        o->wish.torn |= 1u << what;
    }
    return 0;
}

static int parse_set(struct board_set *s, int option, const char *text)
{
    return board_set_parse(s, text) < 0 ? bad(options[option].name, text) : 0;
}

static int parse_number(uint64_t *out, int option, uint64_t most, const char *text)
{
    char *stop;
    *out = strtoull(text, &stop, 10);
    return *stop || stop == text || *out > most ? bad(options[option].name, text) : 0;
}

static int take(struct order *o, int option, char *text)
{
    struct board_wish *w = &o->wish;
    uint64_t n = 0;
    int code = 0;
    switch (option) {
    case OPTION_STATE:
        code = kc_name_find(kc_job_state_name, KC_JOB_STATES, text);
        w->state = (enum kc_job_state)code;
        return code < 0 ? bad("state", text) : 0;
    case OPTION_PHASES: return parse_phases(w->phase, text);
    case OPTION_TORN: return parse_torn(o, text);
    case OPTION_TORN_RANKS: o->all_torn = false; return parse_set(&w->torn_rank, option, text);
    case OPTION_HUNG: return parse_set(&w->hung, option, text);
    case OPTION_FAILED: return parse_set(&w->failed, option, text);
    case OPTION_ABSENT: return parse_set(&w->absent, option, text);
    case OPTION_EXITED: return parse_set(&w->exited, option, text);
    case OPTION_SLOW: return parse_set(&w->slow, option, text);
    case OPTION_SILENT: return parse_set(&w->silent, option, text);
    case OPTION_STUCK: w->stuck_seconds = strtod(text, NULL); return 0;
    case OPTION_STEP_SECONDS: w->step_seconds = strtod(text, NULL); return 0;
    case OPTION_TICK: o->tick = strtod(text, NULL); return 0;
    case OPTION_NAME: snprintf(w->name, sizeof w->name, "%.40s", text); return 0;
    case OPTION_TEXT: snprintf(w->text, sizeof w->text, "%s", text); return 0;
    case OPTION_HOME: o->home = text; return 0;
    case OPTION_INSTANCE: o->instance = text; return 0;
    case OPTION_RECORDING: o->recording = text; return 0;
    case OPTION_MIXED: o->mixed = true; return 0;
    case OPTION_LIVE: o->live = true; return 0;
    case OPTION_LEAVE: o->leave = true; return 0;
    default: break;
    }
    code = parse_number(&n, option, option == OPTION_STEP || option == OPTION_STEPS ? 1u << 30 : option == OPTION_SEED ? UINT64_MAX : 16384, text);
    switch (option) {
    case OPTION_RANKS:
        w->ranks = (uint32_t)n;
        w->nodes = (uint32_t)(n + 7) / 8;
        return code < 0 || n < 1 || n > KC_BOARD_RANKS ? bad("ranks", text) : 0;
    case OPTION_NODES: w->nodes = (uint32_t)n; break;
    case OPTION_STEP: w->step = n; break;
    case OPTION_STEPS: w->steps = n; break;
    case OPTION_OPS: w->ops = (uint32_t)n; break;
    case OPTION_EVENTS: w->events = (uint32_t)n; break;
    case OPTION_EXPERTS: w->experts = (uint32_t)n; break;
    case OPTION_SNAPSHOTS: w->snapshots = (uint32_t)n; break;
    case OPTION_SEED: w->seed = n; break;
    case OPTION_JOBS: o->jobs = (uint32_t)n; return code < 0 || n > JOBS_MOST ? bad("jobs", text) : 0;
    case OPTION_MOMENTS: o->moments = (uint32_t)n; break;
    }
    return code;
}

static void usage(FILE *out)
{
    fprintf(out, "kc-board-make [option …] FILE | --recording DIR | --home DIR [--live [--leave]]\n");
    for (int i = 0; i < OPTIONS; i++)
        fprintf(out, "  --%-13s %s\n", options[i].name, helps[i]);
}

/* ---- living boards ------------------------------------------------------------------------------------------------- */

struct made {
    struct board_wish wish;
    struct kc_segment segment; /* head NULL: it has none */
};

static enum kc_job_state state_of(const struct order *o, uint32_t i)
{
    return o->mixed && i % 9 == 8 ? KC_JOB_QUEUED : o->mixed && i % 4 == 3 ? KC_JOB_FINISHED : o->wish.state;
}

static int make_job(const struct order *o, uint32_t i, struct made *m, struct kc_error *e)
{
    struct board_wish *w = &m->wish;
    *w = o->wish;
    snprintf(w->id, sizeof w->id, "%.40s-%u", w->name, i + 1);
    w->seed += i;
    w->state = state_of(o, i);
    w->now = kc_now();
    w->wall = kc_wall();
    if (w->state == KC_JOB_FINISHED)
        w->step = w->steps;
    int code = board_home_job(o->home, o->instance, w, e);
    if (code < 0 || !o->live || kc_job_state_row[w->state].ended || w->state == KC_JOB_QUEUED)
        return code;
    code = kc_segment_create(o->instance, w->id, w->ranks, &m->segment, e);
    if (code == 0)
        board_fill((struct kc_job_segment *)(void *)m->segment.head, w);
    return code;
}

static int move_on(const struct order *o, struct made *m, struct kc_error *e)
{
    struct board_wish *w = &m->wish;
    if (!m->segment.head)
        return 0;
    w->now = kc_now();
    w->wall = kc_wall();
    bool moves = w->state == KC_JOB_RUNNING && w->step < w->steps;
    for (uint32_t r = 0; r < w->ranks; r++)
        moves = moves && !board_has(&w->hung, r);
    if (!moves)
        return 0;
    w->step++;
    board_fill((struct kc_job_segment *)(void *)m->segment.head, w);
    return board_home_step(o->home, w, e);
}

static int run_home(const struct order *o, struct kc_error *e)
{
    struct made *m = calloc(o->jobs, sizeof *m);
    int code = m ? 0 : -ENOMEM;
    for (uint32_t i = 0; i < o->jobs && code == 0; i++)
        code = make_job(o, i, &m[i], e);
    if (code == 0) {
        printf("%u jobs of %u ranks in %s\n", o->jobs, o->wish.ranks, o->home);
        fflush(stdout);
    }
    while (code == 0 && o->live && !o->leave && !ended) {
        const uint64_t ns = (uint64_t)(o->tick * 1e9);
        nanosleep(&(struct timespec){.tv_sec = (time_t)(ns / KC_SECOND), .tv_nsec = (long)(ns % KC_SECOND)}, NULL);
        for (uint32_t i = 0; i < o->jobs && code == 0 && !ended; i++)
            code = move_on(o, &m[i], e);
    }
    for (uint32_t i = 0; m && i < o->jobs; i++)
        if (m[i].segment.head) {
            kc_segment_close(&m[i].segment);
            if (!o->leave)
                kc_segment_remove(o->instance, m[i].wish.id, NULL);
        }
    free(m);
    return code;
}

/* ---- files --------------------------------------------------------------------------------------------------------- */

/* The recorder looks at a board as its keeper has it: one that nobody else knows of. */
static int run_recording(struct order *o, struct kc_error *e)
{
    char instance[32];
    struct kc_reader *r = NULL;
    struct kc_recorder *recorder = NULL;
    struct kc_segment s = {.fd = -1};
    struct board_wish *w = &o->wish;
    snprintf(instance, sizeof instance, "made%d", (int)getpid());
    int code = kc_segment_create(instance, w->id, w->ranks, &s, e);
    if (code == 0)
        code = kc_reader_attach(instance, w->id, &r, e);
    if (code == 0)
        code = kc_recorder_new(o->recording, w->id, r, &recorder, e);
    for (uint32_t i = 0; i < o->moments && code == 0; i++) {
        const bool wrong = w->state != KC_JOB_RUNNING;
        board_fill((struct kc_job_segment *)(void *)s.head, w);
        code = kc_recorder_look(recorder, w->now, w->wall, wrong, e);
        w->step++;
        w->now += KC_SECOND;
        w->wall += KC_SECOND;
    }
    kc_recorder_free(recorder);
    kc_reader_free(r);
    kc_segment_close(&s);
    kc_segment_remove(instance, w->id, NULL);
    return code;
}

int main(int argc, char **argv)
{
    struct order o = {.wish = board_wish(64), .instance = "default", .jobs = 1, .moments = 60, .tick = 1, .all_torn = true};
    struct kc_error e = {""};
    for (int option; (option = getopt_long(argc, argv, "", options, NULL)) != -1;)
        if (option == OPTION_HELP) {
            usage(stdout);
            return 0;
        } else if (option == '?' || take(&o, option, optarg) < 0) {
            return 2;
        }
    o.file = optind < argc ? argv[optind] : NULL;
    if (!o.file == (!o.home && !o.recording)) {
        usage(stderr);
        return 2;
    }
    snprintf(o.wish.id, sizeof o.wish.id, "%.40s-1", o.wish.name);
    if (o.all_torn)
        memset(&o.wish.torn_rank, 0xff, sizeof o.wish.torn_rank);
    signal(SIGTERM, end);
    signal(SIGINT, end);
    int code = o.file ? board_make_file(&o.wish, o.file, &e) : o.recording ? run_recording(&o, &e) : run_home(&o, &e);
    if (code < 0)
        fprintf(stderr, "kc-board-make: %s\n", e.text);
    return code < 0;
}
