/* kept.c */
#include "kept.h"

#include "base/file.h"
#include "shm/reader.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define FILE_LIMIT (4u << 20)

struct kept {
    struct kept_job **job; /* each stays where it is */
    size_t count, room, next;
    unsigned look;
};

struct kept *kept_new(void)
{
    return calloc(1, sizeof(struct kept));
}

void kept_job_clear(struct kept_job *k)
{
    for (int i = 0; i < KEPT_FILES; i++)
        json_decref(k->file[i].o);
    kc_reader_free(k->board);
    free(k->told);
    memset(k, 0, sizeof *k);
}

static void job_drop(struct kept_job *k)
{
    kept_job_clear(k);
    free(k);
}

void kept_free(struct kept *k)
{
    for (size_t i = 0; k && i < k->count; i++)
        job_drop(k->job[i]);
    if (k)
        free(k->job);
    free(k);
}

void kept_begin(struct kept *k)
{
    if (k)
        k->look++;
}

void kept_end(struct kept *k)
{
    size_t n = 0;
    for (size_t i = 0; k && i < k->count; i++)
        if (k->job[i]->look == k->look)
            k->job[n++] = k->job[i];
        else
            job_drop(k->job[i]);
    if (k)
        k->count = n;
}

static struct kept_job *add(struct kept *k, const char *id)
{
    if (k->count == k->room) {
        const size_t room = k->room ? k->room * 2 : 64;
        void *more = realloc(k->job, room * sizeof *k->job);
        if (!more)
            return NULL;
        k->job = more;
        k->room = room;
    }
    struct kept_job *j = calloc(1, sizeof *j);
    if (j) {
        snprintf(j->id, sizeof j->id, "%s", id);
        k->job[k->count++] = j;
    }
    return j;
}

/* A folder lists its jobs in the same order again: the next one is most often the one behind. */
static struct kept_job *find(struct kept *k, const char *id)
{
    for (size_t i = 0; k && i < k->count; i++) {
        const size_t at = (k->next + i) % k->count;
        if (strcmp(k->job[at]->id, id))
            continue;
        k->next = at + 1;
        return k->job[at];
    }
    return NULL;
}

struct kept_job *kept_job(struct kept *k, const char *id)
{
    struct kept_job *found = find(k, id);
    if (k && !found)
        found = add(k, id);
    if (found)
        found->look = k->look;
    return found;
}

struct kc_reader *kept_reader(struct kept *k, const char *id)
{
    struct kept_job *found = find(k, id);
    return found && found->look == k->look ? found->board : NULL;
}

static json_t *parse(const char *path)
{
    char *text = NULL;
    size_t bytes = 0;
    if (kc_file_read(path, FILE_LIMIT, &text, &bytes))
        return NULL;
    json_t *o = json_loadb(text, bytes, 0, NULL);
    free(text);
    if (json_is_object(o))
        return o;
    json_decref(o);
    return NULL;
}

static bool same(const struct stat *a, const struct stat *b)
{
    return a->st_ino == b->st_ino && a->st_dev == b->st_dev && a->st_size == b->st_size &&
           a->st_mtim.tv_sec == b->st_mtim.tv_sec && a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

const json_t *kept_json(struct kept_job *k, enum kept_name which, const char *path)
{
    struct kept_file *f = &k->file[which];
    struct stat st;
    if (stat(path, &st)) {
        k->saved_known &= !f->there;
        json_decref(f->o);
        *f = (struct kept_file){.there = false};
        return NULL;
    }
    if (f->there && same(&f->of, &st))
        return f->o;
    k->saved_known = false;
    json_decref(f->o);
    *f = (struct kept_file){.there = true, .of = st, .o = parse(path)};
    return f->o;
}

void kept_leave_board(struct kept_job *k)
{
    kc_reader_free(k->board);
    k->board = NULL;
}

int kept_board(struct kept_job *k, const char *instance, struct kc_reader **out, struct kc_error *e)
{
    struct kc_segment_info info;
    if (k->board) {
        kc_reader_info(k->board, &info);
        if (info.replaced || strcmp(k->instance, instance))
            kept_leave_board(k);
    }
    int rc = k->board ? 0 : kc_reader_attach(instance, k->id, &k->board, e);
    if (rc)
        return rc;
    snprintf(k->instance, sizeof k->instance, "%s", instance);
    *out = k->board;
    return 0;
}
