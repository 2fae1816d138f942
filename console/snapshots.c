/* snapshots.c */
#include "snapshots.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define SNAPSHOTS_MAX 65536 /* the newest; more would not be looked at */

static int by_version(const void *a, const void *b)
{
    const struct kc_snapshot_info *x = a, *y = b;
    return (x->version > y->version) - (x->version < y->version);
}

/* Of a folder of snapshots, which need not be there. */
static int list_folder(const char *directory, struct snapshots *out, struct kc_error *e)
{
    struct stat st;
    size_t count = 0;
    memset(out, 0, sizeof *out);
    if (stat(directory, &st) && errno == ENOENT)
        return 0;
    for (size_t room = 64;; room = count + 16 < SNAPSHOTS_MAX ? count + 16 : SNAPSHOTS_MAX) {
        struct kc_snapshot_info *info = calloc(room, sizeof *info);
        if (!info)
            return kc_fail(e, -ENOMEM, "no memory for a list of %zu snapshots", room);
        int rc = kc_snapshot_list(directory, info, room, &count, e);
        if (rc || count <= room || room == SNAPSHOTS_MAX) {
            if (rc && rc != -ENOENT) {
                free(info);
                return rc;
            }
            count = rc ? 0 : count < room ? count : room;
            qsort(info, count, sizeof *info, by_version);
            *out = (struct snapshots){info, count};
            return 0;
        }
        free(info);
    }
}

int snapshots_of_job(const struct job *j, struct snapshots *out, struct kc_error *e)
{
    char directory[JOB_PATH_ROOM + 16];
    snprintf(directory, sizeof directory, "%s/snapshots", j->directory);
    return list_folder(directory, out, e);
}

int snapshots_aside(const struct job *j, struct kc_snapshot_info *out, struct kc_error *e)
{
    char directory[JOB_PATH_ROOM + 16];
    snprintf(directory, sizeof directory, "%s/snapshots", j->directory);
    return kc_snapshot_aside(directory, out, e);
}

void snapshots_of_model(const struct kc_home *home, const char *name, char *path, size_t room)
{
    snprintf(path, room, "%s/models/%s", home->home, name);
}

static bool is_folder(const char *path)
{
    struct stat st;
    return !stat(path, &st) && S_ISDIR(st.st_mode);
}

int snapshots_in_model(const struct kc_home *home, const char *name, struct snapshots *out, struct kc_error *e)
{
    char model[JOB_PATH_ROOM] = "";
    if (kc_id_valid(name))
        snapshots_of_model(home, name, model, sizeof model);
    return is_folder(model) ? list_folder(model, out, e) : kc_fail(e, -ENOENT, "there is no imported model %.100s", name);
}

/* The version that a word names behind a slash: JOB/3, JOB/v00000003; 0 none. job: what stands before it. */
static uint64_t version_behind(const char *word, char job[KC_ID_MAX + 1])
{
    const char *slash = strchr(word, '/'), *digits = slash ? slash + 1 + (slash[1] == 'v') : "";
    unsigned long long version = 0;
    int end = 0;
    if (!slash || slash - word > KC_ID_MAX || sscanf(digits, "%12llu%n", &version, &end) != 1 || digits[end])
        return 0;
    snprintf(job, KC_ID_MAX + 1, "%.*s", (int)(slash - word), word);
    return version;
}

static int one_folder(const char *path, struct snapshots *out, struct kc_error *e)
{
    struct kc_snapshot_info *info = calloc(1, sizeof *info);
    if (!info)
        return kc_fail(e, -ENOMEM, "no memory");
    snprintf(info->path, sizeof info->path, "%s", path);
    *out = (struct snapshots){info, 1};
    return 0;
}

int snapshots_find(const struct kc_home *home, const char *word, struct snapshots *out, struct kc_error *e)
{
    struct job j;
    char path[JOB_PATH_ROOM], job[KC_ID_MAX + 1];
    if (!is_folder(word) && version_behind(word, job)) {
        int rc = snapshots_pick(home, word, path, sizeof path, e);
        return rc ? rc : one_folder(path, out, e);
    }
    if (kc_id_valid(word) && !job_read(home, word, &j, NULL)) {
        int rc = snapshots_of_job(&j, out, e);
        job_free(&j);
        return rc;
    }
    if (!is_folder(word) && snapshots_in_model(home, word, out, NULL) == 0)
        return 0;
    if (!is_folder(word))
        return kc_fail(e, -ENOENT, "\"%.200s\" is no job, no folder of a snapshot and no imported model. "
                       "`kc ps` lists jobs, `kc snap ls JOB` snapshots", word);
    return one_folder(word, out, e);
}

int snapshots_pick(const struct kc_home *home, const char *word, char *path, size_t room, struct kc_error *e)
{
    struct snapshots list;
    char job[KC_ID_MAX + 1] = "";
    struct stat st;
    const uint64_t version = stat(word, &st) ? version_behind(word, job) : 0;
    const char *whose = version ? job : word;
    int rc = snapshots_find(home, whose, &list, e);
    if (rc)
        return rc;
    size_t pick = list.count;
    if (pick == 1 && !version && !list.info[0].version) { /* a folder */
        snprintf(path, room, "%s", list.info[0].path);
        snapshots_free(&list);
        return 0;
    }
    if (version) {
        while (pick > 0 && list.info[pick - 1].version != version)
            pick--;
    } else {
        while (pick > 0 && !list.info[pick - 1].verified)
            pick--;
        pick = pick ? pick : list.count; /* whoever reads it tells what is wrong with it */
    }
    if (pick)
        snprintf(path, room, "%s", list.info[pick - 1].path);
    else if (version && list.count)
        rc = kc_fail(e, -ENOENT, "%s has no snapshot of version %llu. `kc snap ls %s` lists those there are", whose,
                     (unsigned long long)version, whose);
    else
        rc = kc_fail(e, -ENOENT, "%s has no snapshot yet. Write one: kc checkpoint %s", whose, whose);
    snapshots_free(&list);
    return rc;
}

void snapshots_newest(struct job *j)
{
    struct snapshots list;
    if (j->snapshot.step >= 0 || snapshots_of_job(j, &list, NULL))
        return;
    size_t newest = list.count;
    while (newest > 0 && list.info[newest - 1].error) /* not whole: the one before it counts */
        newest--;
    if (newest > 0) {
        const struct kc_snapshot_info *i = &list.info[newest - 1];
        j->snapshot.version = (int64_t)i->version;
        j->snapshot.step = (int64_t)i->step;
        j->snapshot.bytes = (double)i->bytes;
        j->snapshot.verified = i->verified;
        snprintf(j->snapshot.root, sizeof j->snapshot.root, "%s", i->state_root);
    }
    snapshots_free(&list);
}

bool snapshots_newest_once(struct job *j, struct kept *kept, bool read)
{
    if (!job_ended(j) || j->snapshot.step >= 0)
        return false;
    struct kept_job *k = kept_job(kept, j->id);
    if (!k || (!k->saved_known && !read))
        return false;
    const bool known = k->saved_known;
    if (!known) {
        snapshots_newest(j);
        k->saved = j->snapshot;
        k->saved_known = true;
    }
    j->snapshot = k->saved;
    return !known;
}

void snapshots_free(struct snapshots *s)
{
    free(s->info);
    memset(s, 0, sizeof *s);
}
