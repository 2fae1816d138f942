/* chain.c - see chain.h. */
#include "chain.h"

#include "copy.h"
#include "snapshots.h"
#include "spent.h"

#include "shm/reader.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define NAME_ROW(id, name, ...) name,
#define WHAT_ROW(id, name, what) what,
const char *const chain_tier_name[CHAIN_TIERS] = {CHAIN_TIER_TABLE(NAME_ROW)};
const char *const chain_after_name[CHAIN_AFTERS] = {CHAIN_AFTER_TABLE(NAME_ROW)};
const char *const chain_after_what[CHAIN_AFTERS] = {CHAIN_AFTER_TABLE(WHAT_ROW)};

bool chain_described(const struct kc_snapshot_info *i)
{
    return *i->state_root != 0;
}

const char *chain_word(const struct chain_row *r)
{
    return r->tier == CHAIN_MEMORY || r->tier == CHAIN_ASIDE ? chain_tier_name[r->tier]
           : r->info.error                                   ? "broken"
           : r->info.verified                                ? "yes"
                                                             : "no";
}

/* ---- reading ---- */

/* Is what stands there a link out of the job's folder? */
static bool is_elsewhere(const char *directory, const char *path)
{
    char inside[PATH_MAX], real[PATH_MAX];
    if (!realpath(directory, inside) || !realpath(path, real))
        return false;
    const size_t n = strlen(inside);
    return strncmp(real, inside, n) != 0 || real[n] != '/';
}

static double written_at(const char *path)
{
    char manifest[JOB_PATH_ROOM + 32];
    struct stat st;
    snprintf(manifest, sizeof manifest, "%s/MANIFEST.json", path);
    return stat(manifest, &st) ? (double)NAN : (double)st.st_mtim.tv_sec + (double)st.st_mtim.tv_nsec * 1e-9;
}

static int take_rows(struct chain *c, const struct kc_snapshot_info *info, size_t count, enum chain_tier tier,
                     const char *directory)
{
    struct chain_row *more = realloc(c->row, (c->count + count + 1) * sizeof *more);
    if (!more)
        return -ENOMEM;
    c->row = more;
    for (size_t i = 0; i < count; i++) {
        struct chain_row *r = &c->row[c->count++];
        *r = (struct chain_row){.info = info[i], .tier = tier, .written = (double)NAN};
        if (tier != CHAIN_MEMORY)
            r->written = written_at(info[i].path);
        if (tier == CHAIN_DISK && directory && is_elsewhere(directory, info[i].path))
            r->tier = CHAIN_ELSEWHERE;
    }
    return 0;
}

/* What its keeper holds in memory. */
static int take_copies(const struct kc_home *home, const struct job *j, struct chain *c)
{
    static struct kc_snapshot_info info[KC_COPIES_MAX];
    struct copy_objects objects;
    struct kc_copies *copies;
    copy_find(home, j, &objects);
    if (objects.fd && kc_copies_open(objects.fd, objects.ranks, &copies, NULL) == 0) {
        c->memory = kc_copies_list(copies, info);
        kc_copies_free(copies);
    }
    copy_free(&objects);
    return take_rows(c, info, c->memory, CHAIN_MEMORY, NULL);
}

static void take_costs(const struct job *j, struct chain *c)
{
    struct costs costs;
    uint64_t least = UINT64_MAX;
    for (size_t i = 0; i < c->count; i++)
        if (c->row[i].info.version < least)
            least = c->row[i].info.version;
    costs_read(j->directory, least, &costs);
    for (size_t i = 0; i < c->count; i++) {
        const struct job_cost *cost = costs_find(&costs, c->row[i].info.version, c->row[i].info.step);
        if (cost)
            c->row[i].cost = *cost;
    }
    costs_free(&costs);
}

static void plan_by_files(const struct job *j, struct chain *c)
{
    struct spent spent;
    spent_read(j, &spent);
    if (spent.spec)
        chain_plan(c, spent.spec, &spent.history);
    spent_free(&spent);
}

static int read_job(const struct kc_home *home, const struct job *j, struct chain *out, struct kc_error *e)
{
    static struct kc_snapshot_info aside;
    struct snapshots list;
    int rc = snapshots_of_job(j, &list, e);
    if (rc)
        return rc;
    rc = take_rows(out, list.info, list.count, CHAIN_DISK, j->directory);
    out->disk = rc ? 0 : list.count;
    if (rc == 0)
        rc = take_copies(home, j, out);
    if (rc == 0 && snapshots_aside(j, &aside, NULL) == 0)
        rc = take_rows(out, &aside, 1, CHAIN_ASIDE, NULL);
    take_costs(j, out);
    snapshots_free(&list);
    if (rc == 0 && !job_ended(j))
        plan_by_files(j, out);
    return rc ? kc_fail(e, rc, "no memory for a list of snapshots") : 0;
}

int chain_read(const struct kc_home *home, const char *word, struct chain *out, struct kc_error *e)
{
    struct job j;
    struct snapshots list;
    *out = (struct chain){.count = 0};
    snprintf(out->id, sizeof out->id, "%.*s", JOB_ID_ROOM - 1, word);
    int rc = job_read(home, word, &j, e);
    if (rc == 0) {
        rc = read_job(home, &j, out, e);
        job_free(&j);
    } else if (snapshots_in_model(home, word, &list, NULL) == 0) {
        rc = take_rows(out, list.info, list.count, CHAIN_DISK, NULL);
        out->disk = rc ? 0 : list.count;
        snapshots_free(&list);
    }
    if (rc)
        chain_free(out);
    return rc;
}

int chain_of_board(const struct kc_reader *r, const char *id, struct chain *out)
{
    struct kc_snapshot_entry entry[KC_SNAPSHOTS];
    const int n = kc_reader_snapshots(r, entry, NULL);
    *out = (struct chain){.row = calloc((size_t)(n > 0 ? n : 1), sizeof *out->row)};
    snprintf(out->id, sizeof out->id, "%s", id);
    if (!out->row)
        return -ENOMEM;
    for (int i = n; i-- > 0;) { /* oldest first */
        struct chain_row *row = &out->row[out->count++];
        struct kc_snapshot_info *info = &row->info;
        *info = (struct kc_snapshot_info){.version = entry[i].version, .step = entry[i].step, .bytes = entry[i].bytes,
                                          .verified = entry[i].verified && !entry[i].broken, .error = entry[i].broken ? -EBADMSG : 0};
        kc_digest_text(entry[i].root, info->state_root);
        snprintf(info->path, sizeof info->path, "%.*s", (int)sizeof entry[i].path, entry[i].path);
        row->written = entry[i].time ? (double)entry[i].time * 1e-9 : (double)NAN;
    }
    out->disk = out->count;
    out->told = true;
    return 0;
}

void chain_free(struct chain *c)
{
    free(c->row);
    *c = (struct chain){.count = 0};
}

/* ---- the plan ---- */

static bool is_whole(const struct chain_row *r)
{
    return chain_described(&r->info) && !r->info.error && r->info.version > 0;
}

const struct chain_row *chain_newest(const struct chain *c, bool keeper, bool damaged)
{
    const struct chain_row *disk = NULL, *memory = NULL;
    uint64_t bad = 0;
    for (size_t i = c->disk; damaged && i-- > 0 && !bad;)
        bad = is_whole(&c->row[i]) ? c->row[i].info.version : 0;
    for (size_t i = 0; i < c->disk; i++) /* no version leans on a newer one */
        if (is_whole(&c->row[i]) && c->row[i].info.verified && c->row[i].info.version != bad)
            disk = &c->row[i];
    for (size_t i = c->disk; keeper && i < c->disk + c->memory; i++)
        if (is_whole(&c->row[i]))
            memory = &c->row[i];
    return memory && (!disk || memory->info.version >= disk->info.version) ? memory : disk;
}

/* What the policy is asked. */
static const enum kc_fault fault_of[CHAIN_AFTERS] = {
    [CHAIN_AFTER_CRASH] = KC_FAULT_CRASH,   [CHAIN_AFTER_HANG] = KC_FAULT_HANG,       [CHAIN_AFTER_DEVICE] = KC_FAULT_DEVICE,
    [CHAIN_AFTER_NONFINITE] = KC_FAULT_NONFINITE, [CHAIN_AFTER_KEEPER] = KC_FAULT_KEEPER, [CHAIN_AFTER_MACHINE] = KC_FAULT_KEEPER,
    [CHAIN_AFTER_DAMAGE] = KC_FAULT_KEEPER,
};

static void say_source(const struct chain_row *r, enum chain_after what, struct chain_restore *out)
{
    static const char *const first[CHAIN_AFTERS] = {[CHAIN_AFTER_KEEPER] = "what its ranks save as they leave; else "};
    static const char *const then[CHAIN_AFTERS] = {
        [CHAIN_AFTER_NONFINITE] = ", if its loss was finite; else the newest of which it was",
        [CHAIN_AFTER_MACHINE] = ", when kcd runs again",
    };
    const char *from = !r ? "the beginning: nothing is saved" : r->tier == CHAIN_MEMORY ? "the copy in memory"
                     : r->tier == CHAIN_ELSEWHERE ? "the disk, elsewhere" : "the disk";
    snprintf(out->text, sizeof out->text, "%s%s%s", first[what] ? first[what] : "", from, then[what] ? then[what] : "");
    if (!r)
        return;
    out->version = (int64_t)r->info.version;
    out->step = (int64_t)r->info.step;
    out->tier = r->tier;
}

void chain_plan(struct chain *c, const struct kc_job_spec *spec, const struct kc_policy_history *history)
{
    const struct kc_policy_history none = {.restarts = 0};
    c->planned = true;
    for (int i = 0; i < CHAIN_AFTERS; i++) {
        struct chain_restore *out = &c->after[i];
        const enum kc_action action = kc_policy_decide(fault_of[i], spec, history), first = kc_policy_decide(fault_of[i], spec, &none);
        *out = (struct chain_restore){.version = -1, .step = -1};
        snprintf(out->action, sizeof out->action, "%s", kc_action_name[action]);
        if (action == KC_ACTION_RESTART || action == KC_ACTION_ROLLBACK)
            say_source(chain_newest(c, i != CHAIN_AFTER_KEEPER && i != CHAIN_AFTER_MACHINE && i != CHAIN_AFTER_DAMAGE,
                                    i == CHAIN_AFTER_DAMAGE), (enum chain_after)i, out);
        else if (action != first)
            snprintf(out->text, sizeof out->text, "%s are used up", first == KC_ACTION_ROLLBACK ? "rollbacks" : "restarts");
        else
            snprintf(out->text, sizeof out->text, "%s", kc_action_help[action]);
    }
}
