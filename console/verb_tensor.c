/* verb_tensor.c - kc tensor: figures of a job's tensors, without touching a rank. */
#include "copy.h"
#include "session.h"
#include "snapshots.h"
#include "text.h"
#include "verbs.h"

#include "contracts/types.h"
#include "state/state.h"
#include "supervisor/protocol.h"

#include <math.h>
#include <stdio.h>
#include <sys/stat.h>

static json_t *version_json(const struct kc_snapshot_info *i)
{
    if (!*i->path)
        return json_null();
    return json_pack("{s:I,s:I,s:b,s:o,s:s}", "version", (json_int_t)i->version, "step", (json_int_t)i->step, "memory", i->memory,
                     "path", session_text(i->path), "state_root", i->state_root);
}

static json_t *row_json(const struct kc_tensor_row *r, bool names)
{
    const double share = r->elements ? (double)r->nonfinite / (double)r->elements : NAN;
    json_t *shape = json_array();
    for (uint32_t d = 0; d < r->rank; d++)
        json_array_append_new(shape, json_integer((json_int_t)r->size[d]));
    json_t *o = json_pack("{s:o,s:s,s:o,s:I}", "tensor", session_text(r->name), "kind", kc_kind_name[r->kind], "shape", shape,
                          "elements", (json_int_t)r->elements);
    const struct { const char *key; double v; } figures[] = {
        {"mean", r->mean}, {"std", r->deviation}, {"min", r->least}, {"max", r->most}, {"largest", r->largest}, {"norm", r->norm},
        {"nonfinite_share", share}, {"change", r->change}, {"change_largest", r->change_largest},
        {"change_relative", r->change_relative}};
    for (size_t i = 0; i < sizeof figures / sizeof figures[0] && !names; i++)
        json_object_set_new(o, figures[i].key, kc_json_number(figures[i].v));
    if (!names)
        json_object_set_new(o, "nonfinite", json_integer((json_int_t)r->nonfinite));
    return o;
}

static int emit(struct session *s, const char *job, const struct kc_tensor_view *v, bool names)
{
    json_t *o = session_envelope(s), *rows = json_array();
    for (uint32_t i = 0; i < v->rows; i++)
        json_array_append_new(rows, row_json(&v->row[i], names));
    json_object_set_new(o, "id", session_text(job));
    json_object_set_new(o, "of", version_json(&v->info));
    json_object_set_new(o, "before", version_json(&v->before));
    json_object_set_new(o, "bytes_read", json_integer((json_int_t)v->bytes_read));
    json_object_set_new(o, "tensors", rows);
    return session_emit(s, o);
}

static void print_version(FILE *out, const struct kc_snapshot_info *i)
{
    if (i->memory)
        fprintf(out, "the copy in memory of step %llu", (unsigned long long)i->step);
    else
        fprintf(out, "version %llu on disk, of step %llu", (unsigned long long)i->version, (unsigned long long)i->step);
}

static void print_figure(FILE *out, double v)
{
    char text[32];
    fprintf(out, " %10s", text_number(v, "%.3g", text, sizeof text));
}

static void print_row(FILE *out, int name, const struct kc_tensor_row *r, bool names)
{
    char shape[KC_DIMS_MAX * 24 + 1] = "", share[32];
    int n = 0;
    for (uint32_t d = 0; d < r->rank; d++)
        n += snprintf(shape + n, sizeof shape - (size_t)n, "%s%llu", d ? "×" : "", (unsigned long long)r->size[d]);
    fprintf(out, "%-*s %-8s", name, r->name, kc_kind_name[r->kind]);
    if (names) {
        fprintf(out, " %12llu  %s\n", (unsigned long long)r->elements, shape);
        return;
    }
    const double figures[] = {r->mean, r->deviation, r->least, r->most, r->largest, r->norm};
    for (size_t i = 0; i < sizeof figures / sizeof figures[0]; i++)
        print_figure(out, figures[i]);
    snprintf(share, sizeof share, "%.3g %%", r->elements ? 100 * (double)r->nonfinite / (double)r->elements : 0);
    fprintf(out, " %9s", share);
    print_figure(out, r->change);
    print_figure(out, r->change_relative);
    fputc('\n', out);
}

static int print(struct session *s, const struct kc_tensor_view *v, bool names)
{
    struct draft d;
    FILE *out = draft_open(&d);
    int name = 24;
    for (uint32_t i = 0; i < v->rows; i++)
        name = text_width(v->row[i].name) > name ? text_width(v->row[i].name) : name;
    fputs("of      ", out);
    print_version(out, &v->info);
    if (*v->before.path && !names) {
        fputs("\nchange  since ", out);
        print_version(out, &v->before);
    }
    if (names)
        fprintf(out, "\n\n%-*s %-8s %12s  %s\n", name, "TENSOR", "KIND", "ELEMENTS", "SHAPE");
    else
        fprintf(out, "\n\n%-*s %-8s %10s %10s %10s %10s %10s %10s %9s %10s %10s\n", name, "TENSOR", "KIND", "MEAN", "STD", "MIN",
                "MAX", "MAX |X|", "NORM", "NOT FIN.", "CHANGE", "RELATIVE");
    for (uint32_t i = 0; i < v->rows; i++)
        print_row(out, name, &v->row[i], names);
    return draft_close(s, &d);
}

static bool is_folder(const char *path)
{
    struct stat st;
    return !stat(path, &st) && S_ISDIR(st.st_mode);
}

/* A job's folder of snapshots and what its keeper holds; else a folder of snapshots, or an imported model. */
static int find(struct session *s, const char *word, char *directory, size_t room, struct copy_objects *copies)
{
    struct kc_error e = {""};
    struct job j;
    *copies = (struct copy_objects){.fd = NULL};
    int rc = job_read(&s->home, word, &j, &e);
    if (rc == 0) {
        snprintf(directory, room, "%s/snapshots", j.directory);
        copy_find(&s->home, &j, copies);
        job_free(&j);
        return 0;
    }
    snprintf(directory, room, "%s", word);
    if (!is_folder(word))
        snapshots_of_model(&s->home, word, directory, room);
    return is_folder(directory) ? 0 : session_fail(s, session_code(rc), "%s", e.text);
}

int verb_tensor(struct session *s, const struct arguments *a)
{
    char directory[JOB_PATH_ROOM + 16];
    struct copy_objects copies;
    struct kc_tensor_view *v = NULL;
    struct kc_error e = {""};
    const bool names = !a->option[OPTION_STATS];
    int code = find(s, a->word[0], directory, sizeof directory, &copies);
    if (code)
        return code;
    const struct kc_tensor_question q = {.directory = directory, .fds = copies.fd, .ranks = copies.ranks,
        .pattern = a->words > 1 ? a->word[1] : "", .names = names};
    int rc = kc_tensor_look(&q, &v, &e);
    copy_free(&copies);
    if (rc)
        return session_fail(s, session_code(rc), "%s", e.text);
    code = s->json ? emit(s, a->word[0], v, names) : print(s, v, names);
    kc_tensor_view_free(v);
    return code;
}
