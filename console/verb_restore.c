/* verb_restore.c - kc snap restore --dry-run: what a resume would read, and whether it would go on with the same bits. */
#include "check.h"
#include "copy.h"
#include "session.h"
#include "snapshots.h"
#include "text.h"
#include "verbs.h"

#include "contracts/types.h"
#include "govern/spec.h"
#include "jobs/jobs.h"
#include "resource/resource.h"
#include "state/state.h"
#include "supervisor/protocol.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* What is asked, and what was planned for it. */
struct asked {
    struct kc_restore_question q;
    char directory[JOB_PATH_ROOM + 16], spec[JOB_PATH_ROOM + 32], variant[64], plan[KC_PLAN_TEXT], kernels[64];
    bool other_layout; /* --ranks, --parallel or --spec: not as the job is */
    uint32_t ranks;    /* 0: not said */
    json_t *parallel;  /* NULL: not said */
    struct job job;    /* found: it is one, and all of its snapshots are asked about */
    bool found;
    struct check check;
};

/* ---- which snapshots, and by which spec ---- */

/* Where the job of a word is, JOB or JOB/VERSION; false: it names none. */
static bool find_job(struct session *s, const char *word, struct asked *q, bool *alone)
{
    const size_t n = strcspn(word, "/");
    char id[JOB_ID_ROOM] = "";
    struct job j;
    if (n < sizeof id)
        snprintf(id, sizeof id, "%.*s", (int)n, word);
    if (!kc_id_valid(id) || job_read(&s->home, id, &j, NULL))
        return false;
    snprintf(q->directory, sizeof q->directory, "%s/snapshots", j.directory);
    snprintf(q->spec, sizeof q->spec, "%s/spec.json", j.directory);
    q->found = *alone = !word[n];
    q->job = j;
    if (!q->found)
        job_free(&j);
    return true;
}

/* A job's snapshots, or one of them; or a folder, of one or of several. */
static int find(struct session *s, const struct arguments *a, struct asked *q)
{
    struct kc_error e = {""};
    char path[JOB_PATH_ROOM + 64];
    struct stat st;
    const bool folder = strchr(a->word[0], '/') && !stat(a->word[0], &st);
    bool alone = false, of_job = !folder && find_job(s, a->word[0], q, &alone);
    if (of_job && alone)
        return 0;
    int rc = snapshots_pick(&s->home, a->word[0], path, JOB_PATH_ROOM, &e);
    if (rc)
        return session_fail(s, session_code(rc), "%s", e.text);
    snprintf(q->directory, sizeof q->directory, "%.*s", JOB_PATH_ROOM, path);
    snprintf(path, sizeof path, "%.*s/MANIFEST.json", JOB_PATH_ROOM, q->directory);
    q->q.one = of_job || stat(path, &st) == 0;
    snprintf(path, sizeof path, "%.*s/%sspec.json", JOB_PATH_ROOM, q->directory, q->q.one ? "../../" : "../");
    if (!of_job && stat(path, &st) == 0)
        snprintf(q->spec, sizeof q->spec, "%.*s", JOB_PATH_ROOM + 31, path);
    return 0;
}

static uint64_t axes_product(const json_t *parallel)
{
    uint64_t product = 1;
    for (int x = 0; x < KC_AXES; x++)
        product *= (uint64_t)kc_json_integer(parallel, kc_axis_name[x], 1);
    return product;
}

/* "tensor=2,data=2,zero=1" → members of spec.parallel; axes that it does not name are 1. */
static int read_parallel(const char *text, json_t **out, struct kc_error *e)
{
    char words[256], *rest = words, *word;
    json_t *parallel = json_object();
    snprintf(words, sizeof words, "%.255s", text);
    for (int x = 0; x < KC_AXES; x++)
        json_object_set_new(parallel, kc_axis_name[x], json_integer(1));
    while ((word = strsep(&rest, ","))) {
        char *value = strchr(word, '='), *end = "";
        if (!value || value == word || !value[1]) {
            json_decref(parallel);
            return kc_fail(e, -EINVAL, "--parallel wants NAME=VALUE,… such as tensor=2,data=2,zero=1, not \"%.60s\"", text);
        }
        *value++ = 0;
        const long n = strtol(value, &end, 10);
        json_object_set_new(parallel, word, !*end ? json_integer(n) : strcmp(value, "true") == 0 ? json_true()
                                            : strcmp(value, "false") == 0 ? json_false() : json_string(value));
    }
    *out = parallel;
    return 0;
}

/* What was typed of another layout. */
static int request(struct session *s, const struct arguments *a, struct asked *q)
{
    struct kc_error e = {""};
    if (!a->option[OPTION_DRY_RUN])
        return session_fail(s, KC_EXIT_USAGE, "a job restores itself: `kc resume %s`. --dry-run shows what that would read", a->word[0]);
    q->other_layout = a->option[OPTION_RANKS] || a->option[OPTION_PARALLEL] || a->option[OPTION_SPEC];
    if (argument_whole(a, OPTION_RANKS, 1, 16384, &q->ranks, &e) ||
        (a->option[OPTION_PARALLEL] && read_parallel(a->option[OPTION_PARALLEL], &q->parallel, &e)))
        return session_fail(s, KC_EXIT_USAGE, "%s", e.text);
    return 0;
}

/* With ranks alone the data axis has what the others leave; with axes alone there are as many ranks as these make. */
static void take_layout(const struct asked *q, json_t *spec)
{
    json_t *parallel = json_object_get(spec, "parallel");
    if (q->parallel)
        json_object_update(parallel, q->parallel);
    const uint64_t all = axes_product(parallel), data = (uint64_t)kc_json_integer(parallel, "data", 1), others = data ? all / data : 1;
    if (q->ranks && !q->parallel && others && q->ranks % others == 0)
        json_object_set_new(parallel, "data", json_integer((json_int_t)(q->ranks / others)));
    if (q->ranks || q->parallel)
        json_object_set_new(spec, "ranks", json_integer(q->ranks ? (json_int_t)q->ranks : (json_int_t)axes_product(parallel)));
}

/* The job as it is, by its own table of costs; or another spec or layout. */
static int plan_it(struct session *s, const struct arguments *a, struct asked *q, struct kc_error *e)
{
    struct kc_arena arena = {0};
    const struct kc_job_spec *spec;
    const char *path = a->option[OPTION_SPEC] ? a->option[OPTION_SPEC] : q->spec;
    if (!*path)
        return kc_fail(e, -ENOENT, "no job's spec.json lies above %s: name one with --spec", q->directory);
    if (!q->other_layout)
        return check_plan(&s->home, path, &q->check, e);
    int rc = kc_arena_new(&arena, 2 * KC_SPEC_BYTES_MAX);
    if (rc == 0)
        rc = kc_spec_load(path, &arena, &spec, e);
    json_t *json = rc == 0 ? kc_spec_json(spec) : NULL;
    if (json)
        take_layout(q, json);
    char *text = json ? json_dumps(json, JSON_REAL_PRECISION(17)) : NULL;
    if (rc == 0)
        rc = text ? check_text(&s->home, text, &q->check, e) : kc_fail(e, -ENOMEM, "no memory for a spec");
    free(text);
    json_decref(json);
    kc_arena_free(&arena);
    return rc;
}

/* The kernels that a resume takes: those that wrote the newest snapshot, if this machine has them. */
static void choose_kernels(struct asked *q)
{
    struct kc_jobs_config c = {.spec = q->check.spec, .variant = q->variant};
    struct kc_op_table *table = NULL;
    struct kc_error e;
    if (q->q.one || kc_snapshot_variant(q->directory, q->variant, sizeof q->variant) < 0)
        c.variant = NULL;
    if (kc_jobs_cpu_table(&c, &table, &e) < 0) {
        c.variant = NULL;
        if (kc_jobs_cpu_table(&c, &table, &e) < 0)
            return;
    }
    snprintf(q->kernels, sizeof q->kernels, "%s", table->variant);
    kc_jobs_cpu_table_free(table);
}

/* The step of the copy in memory that a restart of its ranks would read instead; -1 none. */
static int64_t step_in_memory(struct session *s, const struct asked *q, const struct kc_restore_view *v)
{
    struct copy_objects copies;
    struct kc_tensor_view *t = NULL;
    int64_t step = -1;
    if (!q->found || q->other_layout)
        return -1;
    copy_find(&s->home, &q->job, &copies);
    const struct kc_tensor_question of = {.directory = q->directory, .fds = copies.fd, .ranks = copies.ranks, .pattern = "", .names = true};
    if (copies.fd && kc_tensor_look(&of, &t, &(struct kc_error){""}) == 0 && t->info.memory && t->info.step >= v->info.step)
        step = (int64_t)t->info.step;
    kc_tensor_view_free(t);
    copy_free(&copies);
    return step;
}

/* ---- what is told ---- */

/* What is told beside the view. */
struct more {
    int verified; /* -1: not asked */
    const char *damage;
    int64_t memory;
};

static const char *same_bits(const struct kc_restore_view *v)
{
    return v->info.bits_change ? "change" : v->same_layout ? "same" : "other layout";
}

static json_t *layout_json(uint32_t ranks, uint32_t zero, const uint32_t *axis)
{
    json_t *o = json_pack("{s:I,s:I}", "ranks", (json_int_t)ranks, "zero", (json_int_t)zero);
    for (int x = 0; x < KC_AXES; x++)
        json_object_set_new(o, kc_axis_name[x], json_integer((json_int_t)axis[x]));
    return o;
}

static int emit(struct session *s, const struct asked *q, const struct kc_restore_view *v, const struct more *m)
{
    const struct kc_job_spec *spec = q->check.spec;
    json_t *o = session_envelope(s), *passed = json_array(), *ranks = json_array();
    for (uint32_t i = 0; i < v->passed_count; i++)
        json_array_append_new(passed, json_pack("{s:I,s:o}", "version", (json_int_t)v->passed[i].version, "reason",
                                                session_text(v->passed[i].why)));
    for (uint32_t i = 0; i < v->ranks && v->fits; i++) {
        const struct kc_restore_rank *r = &v->rank[i];
        json_array_append_new(ranks, json_pack("{s:I,s:I,s:I,s:I,s:I,s:I}", "rank", (json_int_t)i, "extents",
                                               (json_int_t)r->extents, "bytes", (json_int_t)r->bytes, "files", (json_int_t)r->files,
                                               "reads", (json_int_t)r->reads, "read_bytes", (json_int_t)r->read_bytes));
    }
    json_object_set_new(o, "version", json_integer((json_int_t)v->info.version));
    json_object_set_new(o, "step", json_integer((json_int_t)v->info.step));
    json_object_set_new(o, "path", session_text(v->info.path));
    json_object_set_new(o, "state_root", json_string(v->info.state_root));
    json_object_set_new(o, "memory_step", m->memory < 0 ? json_null() : json_integer((json_int_t)m->memory));
    json_object_set_new(o, "passed_over", passed);
    json_object_set_new(o, "fits", json_boolean(v->fits));
    json_object_set_new(o, "why", session_text(v->why));
    json_object_set_new(o, "bits", json_string(same_bits(v)));
    json_object_set_new(o, "bits_why", session_text(v->bits));
    json_object_set_new(o, "written_by", layout_json(v->wrote_ranks, v->wrote_zero, v->wrote_axis));
    json_object_set_new(o, "read_by", layout_json(spec->ranks, spec->zero, spec->axis));
    json_object_set_new(o, "kernels", session_text(q->kernels));
    json_object_set_new(o, "ranks", ranks);
    json_object_set_new(o, "bytes", json_integer((json_int_t)v->all_bytes));
    json_object_set_new(o, "rank_memory_bytes", json_integer((json_int_t)q->check.figures.most.rank));
    json_object_set_new(o, "memory_bytes", json_integer((json_int_t)q->check.figures.memory_all));
    json_object_set_new(o, "free_bytes", q->check.room ? json_integer((json_int_t)q->check.room) : json_null());
    json_object_set_new(o, "verified", m->verified < 0 ? json_null() : json_boolean(m->verified));
    json_object_set_new(o, "damage", session_text(m->damage));
    return session_emit(s, o);
}

static void print_layout(FILE *out, uint32_t ranks, uint32_t zero, const uint32_t *axis)
{
    fprintf(out, "%u rank%s", ranks, ranks == 1 ? "" : "s");
    for (int x = 0; x < KC_AXES; x++)
        if (axis[x] > 1)
            fprintf(out, ", %s %u", kc_axis_name[x], axis[x]);
    fprintf(out, ", ZeRO %u", zero);
}

static bool same_rank(const struct kc_restore_rank *a, const struct kc_restore_rank *b)
{
    return memcmp(a, b, sizeof *a) == 0;
}

/* Ranks that follow each other and read as much are one line. */
static void print_ranks(FILE *out, const struct kc_restore_view *v)
{
    char bytes[32], all[32];
    fprintf(out, "\n%-9s %8s %10s %6s %6s %10s\n", "RANK", "EXTENTS", "VALUES", "FILES", "READS", "READ");
    for (uint32_t i = 0, n; i < v->ranks; i += n) {
        char ranks[32];
        for (n = 1; i + n < v->ranks && same_rank(&v->rank[i], &v->rank[i + n]); n++)
            ;
        snprintf(ranks, sizeof ranks, n == 1 ? "%u" : "%u-%u", i, i + n - 1);
        fprintf(out, "%-9s %8llu %10s %6u %6llu %10s\n", ranks, (unsigned long long)v->rank[i].extents,
                text_bytes((double)v->rank[i].bytes, bytes, sizeof bytes), v->rank[i].files, (unsigned long long)v->rank[i].reads,
                text_bytes((double)v->rank[i].read_bytes, all, sizeof all));
    }
}

static int print(struct session *s, const struct asked *q, const struct kc_restore_view *v, const struct more *m)
{
    const struct kc_job_spec *spec = q->check.spec;
    char a[32], b[32], c[32];
    struct draft d;
    FILE *out = draft_open(&d);
    fprintf(out, "version     %llu of step %llu: %s\n", (unsigned long long)v->info.version, (unsigned long long)v->info.step,
            v->info.path);
    if (m->memory >= 0)
        fprintf(out, "in memory   step %lld: while the job lives, its ranks begin again from that copy\n", (long long)m->memory);
    for (uint32_t i = 0; i < v->passed_count; i++)
        fprintf(out, "passed over %llu: %s\n", (unsigned long long)v->passed[i].version, v->passed[i].why);
    fputs("written by  ", out);
    print_layout(out, v->wrote_ranks, v->wrote_zero, v->wrote_axis);
    fputs("\nread by     ", out);
    print_layout(out, spec->ranks, spec->zero, spec->axis);
    fprintf(out, "; kernels %s\n", *q->kernels ? q->kernels : "-");
    fprintf(out, "fits        %s%s\n", v->fits ? "yes: model, seed and what is frozen are the same" : "no: ", v->fits ? "" : v->why);
    if (v->fits)
        fprintf(out, "bits        %s\n", v->info.bits_change ? v->bits : v->same_layout ? "as if it had never stopped"
                : "of the state the same; later sums are taken in another layout");
    fprintf(out, "memory      %s a rank at most, %s in all; %s free\n",
            text_bytes((double)q->check.figures.most.rank, a, sizeof a), text_bytes((double)q->check.figures.memory_all, b, sizeof b),
            q->check.room ? text_bytes((double)q->check.room, c, sizeof c) : "unknown");
    if (v->fits)
        fprintf(out, "expected    state_root %s after the load; %llu tokens are behind it, sample %llu is next\n", v->info.state_root,
                (unsigned long long)v->tokens, (unsigned long long)v->position);
    if (m->verified >= 0)
        fprintf(out, "values      %s%s\n", m->verified ? "all were read: every digest and state_root are right" : "damaged: ",
                m->verified ? "" : m->damage);
    if (v->fits)
        print_ranks(out, v);
    return draft_close(s, &d);
}

static int look(struct session *s, const struct arguments *a, struct asked *q)
{
    struct kc_restore_view *v = NULL;
    struct kc_snapshot_info info;
    struct kc_error e = {""}, damage = {""};
    struct kc_memory memory;
    struct more m = {.verified = -1, .damage = damage.text};
    int rc = plan_it(s, a, q, &e);
    if (rc == 0)
        rc = plan_figure(q->check.spec, &q->check.plans, &q->check.figures, &e);
    if (rc == 0) {
        if (!kc_resource_memory(NULL, &memory))
            q->check.room = kc_memory_room(&memory);
        choose_kernels(q);
        kc_startup_plan_text(&q->check.plans, q->plan, sizeof q->plan);
        q->q.spec = q->check.spec;
        q->q.shard = q->check.plans.shard;
        q->q.directory = q->directory;
        q->q.variant = q->kernels;
        q->q.plan = q->plan;
        rc = kc_restore_look(&q->q, &v, &e);
    }
    if (rc)
        return session_fail(s, session_code(rc), "%s", e.text);
    if (a->option[OPTION_DEEP])
        m.verified = kc_snapshot_verify_values(v->info.path, &info, &damage) == 0;
    m.memory = step_in_memory(s, q, v);
    int code = s->json ? emit(s, q, v, &m) : print(s, q, v, &m);
    if (!v->fits || m.verified == 0) /* it would fail: the same code as the rank's */
        code = code ? code : KC_EXIT_INVALID;
    kc_restore_view_free(v);
    return code;
}

int verb_snap_restore(struct session *s, const struct arguments *a)
{
    struct asked *q = calloc(1, sizeof *q);
    if (!q)
        return session_fail(s, KC_EXIT_SYSTEM, "no memory to look at a restore");
    int code = request(s, a, q);
    if (code == 0)
        code = find(s, a, q);
    if (code == 0)
        code = look(s, a, q);
    check_free(&q->check);
    if (q->found)
        job_free(&q->job);
    json_decref(q->parallel);
    free(q);
    return code;
}
