/* model.c - jobs: which there are, and their parts put together. */
#include "model.h"

#include "directory.h"
#include "kept.h"
#include "text.h"

#include "base/print.h"
#include "base/suggest.h"

#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define STUCK_SECONDS 5.0
#define TORN_RANKS 8 /* that are named */

#define SPLIT_ROW(id, name, letter) [SPLIT_##id] = name,
const char *const split_name[SPLITS] = {SPLIT_TABLE(SPLIT_ROW)};
#undef SPLIT_ROW
#define SPLIT_ROW(id, name, letter) [SPLIT_##id] = letter,
const char split_letter[SPLITS] = {SPLIT_TABLE(SPLIT_ROW)};
#undef SPLIT_ROW

#define JOB_TORN_ROW(id, name) name,
const char *const job_torn_name[JOB_TORNS] = {JOB_TORN_TABLE(JOB_TORN_ROW)};
#undef JOB_TORN_ROW

void job_clear(struct job *j, const char *id, const char *directory)
{
    memset(j, 0, sizeof *j);
    snprintf(j->id, sizeof j->id, "%s", id);
    snprintf(j->directory, sizeof j->directory, "%s", directory);
    j->owner = j->state = -1;
    j->step = j->steps = j->ranks = j->zero = j->restarts = j->incarnation = j->exit_code = j->keeper = -1;
    j->queue = j->asked_ranks = j->hang_rank = -1;
    j->loss = j->validation_loss = j->grad_norm = j->lr = j->tokens_per_second = j->step_seconds = j->pace_seconds = j->seconds = NAN;
    j->imbalance = j->restart_in = j->hangs = NAN;
    j->validation_step = -1;
    for (int i = 0; i < SPLITS; i++)
        j->split[i] = NAN;
    for (int i = 0; i < KC_METRICS; i++)
        j->metric[i] = NAN;
    j->failure.rank = j->failure.step = j->failure.followers = -1;
    j->snapshot.version = j->snapshot.step = -1;
    j->snapshot.bytes = NAN;
}

void job_rank_clear(struct job_rank *r, int rank)
{
    memset(r, 0, sizeof *r);
    r->rank = rank;
    r->node = -1;
    r->pid = r->step = r->incarnation = -1;
    r->state = r->phase = r->wait.what = -1;
    r->wait.sequence = -1;
    r->age = r->wait.seconds = r->busy = NAN;
    r->letter = '?';
    for (int i = 0; i < KC_METRICS; i++)
        r->metric[i] = NAN;
}

void job_free(struct job *j)
{
    free(j->rank);
    free(j->loads);
    j->rank = NULL;
    j->loads = NULL;
    j->ranks_known = 0;
}

void model_free(struct model *m)
{
    for (size_t i = 0; i < m->count; i++)
        job_free(&m->job[i]);
    free(m->job);
    memset(m, 0, sizeof *m);
}

static int read_one(const struct kc_home *home, const char *id, struct kept_job *kept, struct job *out)
{
    char directory[JOB_PATH_ROOM];
    struct stat st;
    snprintf(directory, sizeof directory, "%s/jobs/%s", home->home, id);
    if (stat(directory, &st))
        return -errno;
    if (!S_ISDIR(st.st_mode))
        return -ENOTDIR;
    job_clear(out, id, directory);
    if (job_read_files(out, kept))
        return -ENOENT;
    /* An ended job has no board; one of another node has it there. */
    if (!job_ended(out) && (!*out->host || !strcmp(out->host, home->host)))
        job_read_board(out, home, kept);
    else
        kept_leave_board(kept);
    if (out->state != KC_JOB_RUNNING) /* the files have the speed of the last step, which is not one of now */
        out->tokens_per_second = NAN;
    return 0;
}

/* The number behind the last hyphen: ids are claimed with rising numbers only within a name, so it orders just
 * those. */
static long number_of(const char *id)
{
    const char *hyphen = strrchr(id, '-');
    return hyphen ? strtol(hyphen + 1, NULL, 10) : 0;
}

static int newest_first(const void *a, const void *b)
{
    const struct job *x = a, *y = b;
    int by_time = strcmp(y->created, x->created);
    if (by_time)
        return by_time;
    long n = number_of(x->id), m = number_of(y->id);
    return n != m ? (n < m) - (n > m) : strcmp(x->id, y->id);
}

/* The ids of all jobs, in no order. *ids is owned: one block. */
static int list_ids(const struct kc_home *home, char (**ids)[JOB_ID_ROOM], size_t *count, struct kc_error *e)
{
    char path[JOB_PATH_ROOM];
    size_t room = 0, n = 0;
    char(*list)[JOB_ID_ROOM] = NULL;
    snprintf(path, sizeof path, "%s/jobs", home->home);
    DIR *d = opendir(path);
    if (!d && errno == ENOENT) {
        *ids = NULL;
        *count = 0;
        return 0;
    }
    if (!d)
        return kc_fail(e, -errno, "%s: %s", path, strerror(errno));
    for (struct dirent *entry; (entry = readdir(d));) {
        if (!kc_id_valid(entry->d_name) || !strchr(entry->d_name, '-'))
            continue;
        if (n == room) {
            room = room ? room * 2 : 64;
            void *more = realloc(list, room * sizeof *list);
            if (!more) {
                free(list);
                closedir(d);
                return kc_fail(e, -ENOMEM, "no memory for a list of %zu jobs", room);
            }
            list = more;
        }
        snprintf(list[n++], JOB_ID_ROOM, "%.63s", entry->d_name); /* a valid id fits */
    }
    closedir(d);
    *ids = list;
    *count = n;
    return 0;
}

/* A job of a look; without a memory of its own where none is kept. */
static int look_at(const struct kc_home *home, struct kept *kept, const char *id, struct job *out)
{
    struct kept_job none = {.look = 0}, *k = kept_job(kept, id);
    if (k)
        return read_one(home, id, k, out);
    snprintf(none.id, sizeof none.id, "%s", id);
    int rc = read_one(home, id, &none, out);
    kept_job_clear(&none);
    return rc;
}

int model_read(const struct kc_home *home, struct kept *kept, struct model *out, struct kc_error *e)
{
    char(*ids)[JOB_ID_ROOM] = NULL;
    struct model m = {0};
    size_t count = 0;
    int rc = list_ids(home, &ids, &count, e);
    if (rc)
        return rc;
    m.job = calloc(count ? count : 1, sizeof *m.job);
    if (!m.job) {
        free(ids);
        return kc_fail(e, -ENOMEM, "no memory for %zu jobs", count);
    }
    kept_begin(kept);
    for (size_t i = 0; i < count; i++)
        if (!look_at(home, kept, ids[i], &m.job[m.count])) /* one that was removed meanwhile is left out */
            m.count++;
    kept_end(kept);
    free(ids);
    qsort(m.job, m.count, sizeof *m.job, newest_first);
    directory_queue(home, m.job, m.count);
    *out = m;
    return 0;
}

static int no_such_job(const struct kc_home *home, const char *id, struct kc_error *e)
{
    char(*ids)[JOB_ID_ROOM] = NULL;
    size_t count = 0;
    const char *near = NULL;
    if (!list_ids(home, &ids, &count, NULL)) {
        const char **names = calloc(count ? count : 1, sizeof *names);
        for (size_t i = 0; names && i < count; i++)
            names[i] = ids[i];
        if (names)
            near = kc_suggest(id, names, count);
        free(names);
    }
    if (near)
        kc_fail(e, -ENOENT, "no job %.80s in %s. Did you mean %s? `kc ps` lists them", id, home->home, near);
    else
        kc_fail(e, -ENOENT, "no job %.80s in %s. `kc ps` lists them", id, home->home);
    free(ids);
    return -ENOENT;
}

int job_read(const struct kc_home *home, const char *id, struct job *out, struct kc_error *e)
{
    return job_look(home, NULL, id, out, e);
}

int job_look(const struct kc_home *home, struct kept *kept, const char *id, struct job *out, struct kc_error *e)
{
    struct job j;
    if (!kc_id_valid(id))
        return kc_fail(e, -ENOENT, "\"%.80s\" is not a job's id: ids look like quickstart-1. `kc ps` lists them", id);
    kept_begin(kept);
    int rc = look_at(home, kept, id, &j);
    kept_end(kept);
    if (rc == -ENOENT || rc == -ENOTDIR)
        return no_such_job(home, id, e);
    if (rc)
        return kc_fail(e, rc, "%s/jobs/%s: %s", home->home, id, strerror(-rc));
    directory_queue(home, &j, 1);
    *out = j;
    return 0;
}

bool job_ended(const struct job *j)
{
    return j->state >= 0 && kc_job_state_row[j->state].ended;
}

bool job_failed(const struct job *j)
{
    /* by the state, and by what it ended with: a job whose last snapshot failed is told by its exit code alone */
    return j->state == KC_JOB_FAILED || j->state == KC_JOB_INTERRUPTED || j->exit_code > 0;
}

bool job_unsaved(const struct job *j)
{
    return (j->state == KC_JOB_FINISHED || j->state == KC_JOB_STOPPED) && j->exit_code > 0;
}

const char *job_hang_text(const struct job *j, char *out, size_t room)
{
    char seconds[32];
    *out = 0;
    if (!isnan(j->hangs))
        snprintf(out, room, "hangs for %s: %s", text_seconds(j->hangs, seconds, sizeof seconds),
                 *j->hang_text ? j->hang_text : "kc hang looks into it");
    return out;
}

const char *job_torn_text(const struct job *j, char *out, size_t room)
{
    struct kc_print p = {out, room, 0};
    size_t ranks = 0;
    *out = 0;
    for (int i = 0; i < JOB_TORNS; i++)
        if (j->torn >> i & 1)
            kc_print(&p, "%s%s", p.length ? ", " : "torn: ", job_torn_name[i]);
    for (size_t i = 0; i < j->ranks_known; i++)
        if (j->rank[i].torn && ranks++ < TORN_RANKS)
            kc_print(&p, "%s%zu", ranks > 1 ? "," : p.length ? ", rank " : "torn: rank ", i);
    if (ranks > TORN_RANKS)
        kc_print(&p, " and %zu more", ranks - TORN_RANKS);
    return out;
}

const char *job_restart_text(const struct job *j, char *out, size_t room)
{
    *out = 0;
    if (!isnan(j->restart_in))
        snprintf(out, room, "restarts in %.0f s: %s", ceil(j->restart_in), j->restart_why);
    return out;
}

const char *job_state_text(const struct job *j)
{
    return j->state >= 0 ? kc_job_state_name[j->state] : "?";
}

double job_eta(const struct job *j)
{
    if (j->state != KC_JOB_RUNNING || j->step < 0 || j->steps < j->step || isnan(j->step_seconds) || !isnan(j->hangs))
        return NAN;
    return (double)(j->steps - j->step) * (isnan(j->pace_seconds) ? j->step_seconds : j->pace_seconds);
}

double job_unchanged(const struct job *j)
{
    double least = NAN;
    for (size_t i = 0; i < j->ranks_known && !job_ended(j); i++)
        if (isnan(least) || j->rank[i].age < least)
            least = j->rank[i].age;
    return least;
}

#define STILL 10.0 /* seconds */

bool job_rank_hangs(const struct job *j, const struct job_rank *r)
{
    const int kind = r->wait.what > KC_WAIT_NONE ? kc_wait_row[r->wait.what].kind : KC_WAIT_KIND_LOCAL;
    if (!isnan(j->hangs) && *j->hang_text && r->rank == j->hang_rank)
        return true; /* also one that has come to what the others wait in */
    if (r->state != KC_RANK_RUNNING || !(r->age > STILL) || kind == KC_WAIT_KIND_PEER || kind == KC_WAIT_KIND_HELD)
        return false;
    return !isnan(j->hangs) || r->age > 3 * j->step_seconds; /* false where that is unknown */
}

int64_t job_rank_restarts(const struct job_rank *r)
{
    return r->incarnation < 1 ? -1 : r->incarnation - 1;
}

bool job_wait_tells(int what, double seconds, double age)
{
    if (what <= KC_WAIT_NONE || kc_wait_row[what].kind != KC_WAIT_KIND_LOCAL)
        return true;
    return seconds >= STUCK_SECONDS && age >= STUCK_SECONDS;
}
