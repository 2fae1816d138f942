/* manifest.c - builds and parses manifests. Believes nothing of a file before its digest is right, and checks what
 * the program relies on even then. */
#include "manifest.h"

#include "base/json.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HEAD "{\"manifest\":"
#define TAIL ",\"digest\":\""
#define END "\"}\n"
#define LIMIT (UINT64_C(1) << 30)
#define FRAME_TAIL (sizeof TAIL - 1 + 32 + sizeof END - 1) /* bytes behind the body */

bool kc_manifest_finite(const struct kc_manifest *m)
{
    return m->progress.step == 0 || isfinite(m->loss);
}

void kc_manifest_free(struct kc_manifest *m)
{
    for (uint32_t i = 0; m->tensor && i < m->tensors; i++)
        free(m->tensor[i].name);
    free(m->tensor);
    free(m->parent);
    m->tensor = NULL;
    m->parent = NULL;
    m->tensors = m->parents = 0;
}

int kc_manifest_tensors(struct kc_manifest *m, const struct kc_map *map)
{
    m->tensor = calloc(map->tensors + 1u, sizeof *m->tensor);
    if (!m->tensor)
        return -ENOMEM;
    for (; m->tensors < map->tensors; m->tensors++) {
        struct kc_manifest_tensor *t = &m->tensor[m->tensors];
        t->name = strdup(map->tensor[m->tensors].name);
        if (!t->name)
            return -ENOMEM;
        t->shape = map->tensor[m->tensors].shape;
        t->dims = map->tensor[m->tensors].dims;
        t->count = map->tensor[m->tensors].total;
        t->frozen = map->bucket[map->tensor[m->tensors].bucket].frozen;
    }
    return 0;
}

/* ---- writing ---- */

static json_t *digest_json(struct kc_digest d)
{
    char text[33];
    kc_digest_text(d, text);
    return json_string(text);
}

static json_t *shape_json(const struct kc_shape *s)
{
    json_t *list = json_array();
    for (uint32_t d = 0; d < s->rank; d++)
        json_array_append_new(list, json_integer((json_int_t)s->size[d]));
    return list;
}

static json_t *tensors_json(const struct kc_manifest *m)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < m->tensors; i++) {
        const struct kc_manifest_tensor *t = &m->tensor[i];
        json_t *o = json_pack("{s:s, s:s, s:o}", "name", t->name, "type", "f32", "shape", shape_json(&t->shape));
        if (!kc_shape_equal(&t->shape, &t->dims))
            json_object_set_new(o, "dims", shape_json(&t->dims));
        if (t->frozen)
            json_object_set_new(o, "frozen", json_true());
        json_array_append_new(list, o);
    }
    return list;
}

static json_t *layout_json(const struct kc_manifest *m)
{
    json_t *o = json_pack("{s:i, s:i}", "ranks", (int)m->ranks, "zero", (int)m->zero);
    for (int a = 0; a < KC_AXES; a++)
        json_object_set_new(o, kc_axis_name[a], json_integer((json_int_t)m->axis[a]));
    return o;
}

static json_t *model_json(const struct kc_model_numbers *m)
{
    return json_pack("{s:s, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:b, s:f, s:f, s:i, s:i}", "family", m->family, "layers",
                     (int)m->layers, "hidden", (int)m->hidden, "heads", (int)m->heads, "context", (int)m->context, "vocab",
                     (int)m->vocab, "kv_heads", (int)m->kv_heads, "ffn", (int)m->ffn, "tied", (int)m->tied, "rope_theta",
                     m->rope_theta, "rms_eps", m->rms_eps, "experts", (int)m->experts, "top_k", (int)m->top_k);
}

static json_t *packs_json(const struct kc_manifest *m)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < m->packs; i++) {
        char name[32];
        snprintf(name, sizeof name, "rank-%u.pack", i);
        json_array_append_new(list, json_pack("{s:s, s:I, s:I, s:o}", "file", name, "bytes",
                                              (json_int_t)m->pack[i].bytes, "extents", (json_int_t)m->pack[i].extents,
                                              "digest", digest_json(m->pack[i].index)));
    }
    return list;
}

static json_t *parents_json(const struct kc_manifest *m)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < m->parents; i++)
        json_array_append_new(list, json_pack("{s:I, s:o}", "version", (json_int_t)m->parent[i].version, "manifest",
                                              digest_json(m->parent[i].manifest)));
    return list;
}

static json_t *history_json(const struct kc_history *h)
{
    json_t *points = json_array();
    for (uint32_t i = 0; i < h->count; i++)
        json_array_append_new(points, kc_json_number(h->point[i]));
    return json_pack("{s:I, s:I, s:I, s:o, s:o}", "first", (json_int_t)h->first, "stride", (json_int_t)h->stride,
                     "open_steps", (json_int_t)h->open_steps, "open_sum", kc_json_number(h->open_sum), "points",
                     points);
}

static json_t *body_json(const struct kc_manifest *m)
{
    json_t *body = json_pack("{s:i, s:I, s:o, s:s, s:I, s:I, s:I, s:{s:s, s:I}, s:i, s:i, s:I, s:o, s:o, s:o, s:o, s:o, s:s, s:s, s:s,"
                     " s:b,"
                     " s:o, s:o, s:o, s:o}",
                     "format", KC_SNAPSHOT_FORMAT, "version", (json_int_t)m->version, "parents", parents_json(m), "written",
                     m->written, "step", (json_int_t)m->progress.step, "tokens", (json_int_t)m->progress.tokens, "position",
                     (json_int_t)m->progress.position, "rng", "kind", "philox4x32-10", "seed", (json_int_t)m->seed,
                     "restarts", (int)m->progress.restarts, "rollbacks", (int)m->progress.rollbacks, "skipped",
                     (json_int_t)m->progress.skipped, "loss", kc_json_number(m->loss), "grad_norm",
                     kc_json_number(m->grad_norm), "state_root", digest_json(m->root), "spec", digest_json(m->spec),
                     "layout", layout_json(m), "variant", m->variant, "plan", m->plan, "precision",
                     kc_precision_name[m->precision], "verified", 1, "model", model_json(&m->model), "packs", packs_json(m),
                     "tensors", tensors_json(m), "history", history_json(&m->history));
    if (m->lora_rank)
        json_object_set_new(body, "lora", json_pack("{s:I, s:f}", "rank", (json_int_t)m->lora_rank, "alpha", m->lora_alpha));
    return body;
}

static int frame(char *body, char **out, size_t *bytes)
{
    size_t n = strlen(body);
    char digest[33], *text = malloc(n + sizeof HEAD + FRAME_TAIL);
    if (!text)
        return -ENOMEM;
    kc_digest_text(kc_digest(body, n), digest);
    *bytes = (size_t)snprintf(text, n + sizeof HEAD + FRAME_TAIL, "%s%s%s%s%s", HEAD, body, TAIL, digest, END);
    *out = text;
    return 0;
}

int kc_manifest_text(const struct kc_manifest *m, char **out, size_t *bytes)
{
    json_t *json = body_json(m);
    char *body = json ? json_dumps(json, JSON_COMPACT | JSON_REAL_PRECISION(17)) : NULL;
    json_decref(json);
    int r = body ? frame(body, out, bytes) : -ENOMEM;
    free(body);
    return r;
}

int kc_manifest_write(const struct kc_storage *st, const char *folder, const struct kc_manifest *m, struct kc_error *e)
{
    char path[4096 + sizeof KC_MANIFEST_NAME + 1], *text = NULL;
    size_t bytes = 0;
    int r = kc_manifest_text(m, &text, &bytes);
    snprintf(path, sizeof path, "%s/%s", folder, KC_MANIFEST_NAME);
    if (r < 0)
        r = kc_fail(e, r, "no memory for the manifest %s", path);
    else if ((r = kc_storage_write_file(st, path, text, bytes)) < 0)
        r = kc_storage_fail(st, e, r, "write", path, bytes);
    free(text);
    return r;
}

/* ---- reading ---- */

static int parse_digest(const json_t *o, const char *key, struct kc_digest *out)
{
    return kc_digest_parse(kc_json_text(o, key, ""), out);
}

static double parse_number(const json_t *o, const char *key)
{
    return kc_json_real(o, key, (double)NAN);
}

/* A count: an integer from 0 to `most`. */
static int parse_count(const json_t *o, const char *key, uint64_t most, uint64_t *out)
{
    long long v = kc_json_integer(o, key, -1);
    if (v < 0 || (uint64_t)v > most)
        return -EINVAL;
    *out = (uint64_t)v;
    return 0;
}

static int parse_shape(const json_t *list, struct kc_shape *out)
{
    if (!json_is_array(list) || json_array_size(list) > KC_DIMS_MAX)
        return -EINVAL;
    out->rank = (uint32_t)json_array_size(list);
    for (uint32_t d = 0; d < out->rank; d++) {
        json_int_t n = json_integer_value(json_array_get(list, d));
        if (n < 0)
            return -EINVAL;
        out->size[d] = (uint64_t)n;
    }
    return 0;
}

static int parse_tensor(const json_t *o, struct kc_manifest_tensor *out)
{
    const json_t *dims = json_object_get(o, "dims");
    const char *name = kc_json_text(o, "name", "");
    uint64_t as_cut;
    if (!*name || strcmp(kc_json_text(o, "type", ""), "f32") != 0 || parse_shape(json_object_get(o, "shape"), &out->shape) < 0 ||
        kc_shape_elements(&out->shape, &out->count) < 0)
        return -EINVAL;
    out->dims = out->shape;
    if (dims && (parse_shape(dims, &out->dims) < 0 || kc_shape_elements(&out->dims, &as_cut) < 0 || as_cut != out->count))
        return -EINVAL;
    out->frozen = json_is_true(json_object_get(o, "frozen"));
    out->name = strdup(name);
    return out->name ? 0 : -ENOMEM;
}

static int parse_tensors(const json_t *list, struct kc_manifest *m)
{
    size_t n = json_array_size(list);
    if (!json_is_array(list) || n > UINT32_MAX / 16)
        return -EINVAL;
    m->tensor = calloc(n + 1, sizeof *m->tensor);
    if (!m->tensor)
        return -ENOMEM;
    for (; m->tensors < n; m->tensors++) {
        int r = parse_tensor(json_array_get(list, m->tensors), &m->tensor[m->tensors]);
        if (r < 0)
            return r;
    }
    return 0;
}

static int parse_packs(const json_t *list, struct kc_manifest *m)
{
    m->packs = (uint32_t)json_array_size(list);
    if (!json_is_array(list) || json_array_size(list) != m->ranks)
        return -EINVAL;
    for (uint32_t i = 0; i < m->packs; i++) {
        const json_t *o = json_array_get(list, i);
        uint64_t extents;
        if (parse_count(o, "bytes", INT64_MAX, &m->pack[i].bytes) < 0 ||
            parse_count(o, "extents", UINT32_MAX, &extents) < 0 || parse_digest(o, "digest", &m->pack[i].index) < 0)
            return -EINVAL;
        m->pack[i].extents = (uint32_t)extents;
    }
    return 0;
}

static int parse_history(const json_t *o, struct kc_history *h)
{
    const json_t *points = json_object_get(o, "points");
    size_t n = json_array_size(points);
    if (parse_count(o, "first", INT64_MAX, &h->first) < 0 || parse_count(o, "stride", INT64_MAX, &h->stride) < 0 ||
        parse_count(o, "open_steps", INT64_MAX, &h->open_steps) < 0 || n > KC_HISTORY_POINTS || h->stride == 0 ||
        (h->stride & (h->stride - 1)) != 0 || h->open_steps >= h->stride)
        return -EINVAL;
    h->open_sum = parse_number(o, "open_sum");
    h->count = (uint32_t)n;
    for (size_t i = 0; i < n; i++) {
        const json_t *v = json_array_get(points, i);
        h->point[i] = json_is_number(v) ? json_number_value(v) : (double)NAN;
    }
    return 0;
}

/* What was written before there was a choice does not say, and is fp32. */
static int parse_precision(const json_t *o, enum kc_precision *out)
{
    const char *name = kc_json_text(o, "precision", kc_precision_name[KC_PRECISION_FP32]);
    for (int i = 0; i < KC_PRECISIONS; i++)
        if (strcmp(name, kc_precision_name[i]) == 0) {
            *out = (enum kc_precision)i;
            return 0;
        }
    return -EINVAL;
}

/* What was written before there were other axes has ranks along data alone. */
static int parse_layout(const json_t *o, struct kc_manifest *m)
{
    uint64_t ranks, zero, size;
    if (parse_count(o, "ranks", KC_RANKS_MAX, &ranks) < 0 || parse_count(o, "zero", 3, &zero) < 0 || ranks == 0)
        return -EINVAL;
    m->ranks = (uint32_t)ranks;
    m->zero = (uint32_t)zero;
    for (int a = 0; a < KC_AXES; a++) {
        size = a == KC_DATA ? ranks : 1;
        if (m->format > 1 && parse_count(o, kc_axis_name[a], KC_RANKS_MAX, &size) < 0)
            return -EINVAL;
        m->axis[a] = (uint32_t)size;
    }
    return 0;
}

/* Older ones, each newer than the next: so a version cannot lean on itself. Before format 3 there were none. */
static int parse_parents(const json_t *list, struct kc_manifest *m)
{
    const size_t n = json_array_size(list);
    uint64_t before = m->version;
    if (m->format < 3)
        return 0;
    if (!json_is_array(list) || n > KC_PARENTS_MAX)
        return -EINVAL;
    m->parent = calloc(n + 1, sizeof *m->parent);
    if (!m->parent)
        return -ENOMEM;
    for (; m->parents < n; m->parents++) {
        struct kc_manifest_parent *p = &m->parent[m->parents];
        const json_t *o = json_array_get(list, m->parents);
        if (parse_count(o, "version", INT64_MAX, &p->version) < 0 || parse_digest(o, "manifest", &p->manifest) < 0 ||
            p->version == 0 || p->version >= before)
            return -EINVAL;
        before = p->version;
    }
    return 0;
}

static void parse_model(const json_t *o, struct kc_model_numbers *m)
{
    const struct {
        const char *key;
        uint32_t *to;
    } row[] = {{"layers", &m->layers}, {"hidden", &m->hidden}, {"heads", &m->heads}, {"context", &m->context},
               {"vocab", &m->vocab}, {"kv_heads", &m->kv_heads}, {"ffn", &m->ffn}, {"experts", &m->experts},
               {"top_k", &m->top_k}};
    for (size_t i = 0; i < sizeof row / sizeof row[0]; i++) {
        uint64_t n = 0;
        parse_count(o, row[i].key, UINT32_MAX, &n);
        *row[i].to = (uint32_t)n;
    }
    snprintf(m->family, sizeof m->family, "%s", kc_json_text(o, "family", ""));
    m->tied = json_is_true(json_object_get(o, "tied"));
    m->rope_theta = kc_json_real(o, "rope_theta", 0);
    m->rms_eps = kc_json_real(o, "rms_eps", 0);
}

static int parse_body(const json_t *o, struct kc_manifest *m)
{
    const json_t *rng = json_object_get(o, "rng");
    uint64_t restarts;
    long long rollbacks = kc_json_integer(o, "rollbacks", 0), skipped = kc_json_integer(o, "skipped", 0); /* once there were none */
    if (rollbacks < 0 || rollbacks > UINT32_MAX || skipped < 0 || parse_count(o, "version", INT64_MAX, &m->version) < 0 ||
        parse_count(o, "step", INT64_MAX, &m->progress.step) < 0 ||
        parse_count(o, "tokens", INT64_MAX, &m->progress.tokens) < 0 ||
        parse_count(o, "position", INT64_MAX, &m->progress.position) < 0 ||
        parse_count(o, "restarts", UINT32_MAX, &restarts) < 0 || parse_layout(json_object_get(o, "layout"), m) < 0)
        return -EINVAL;
    if (strcmp(kc_json_text(rng, "kind", ""), "philox4x32-10") != 0 ||
        !json_is_integer(json_object_get(rng, "seed")) || parse_digest(o, "state_root", &m->root) < 0 ||
        parse_digest(o, "spec", &m->spec) < 0 || parse_precision(o, &m->precision) < 0 ||
        !json_is_true(json_object_get(o, "verified")))
        return -EINVAL;
    m->seed = (uint64_t)kc_json_integer(rng, "seed", 0);
    m->progress.restarts = (uint32_t)restarts;
    m->progress.rollbacks = (uint32_t)rollbacks;
    m->progress.skipped = (uint64_t)skipped;
    parse_model(json_object_get(o, "model"), &m->model);
    parse_count(json_object_get(o, "lora"), "rank", UINT32_MAX, &m->lora_rank);
    m->lora_alpha = kc_json_real(json_object_get(o, "lora"), "alpha", 0);
    m->loss = parse_number(o, "loss");
    m->grad_norm = parse_number(o, "grad_norm");
    snprintf(m->variant, sizeof m->variant, "%s", kc_json_text(o, "variant", ""));
    snprintf(m->plan, sizeof m->plan, "%s", kc_json_text(o, "plan", ""));
    snprintf(m->written, sizeof m->written, "%s", kc_json_text(o, "written", ""));
    int r = parse_packs(json_object_get(o, "packs"), m);
    if (r == 0)
        r = parse_parents(json_object_get(o, "parents"), m);
    if (r == 0)
        r = parse_tensors(json_object_get(o, "tensors"), m);
    if (r == 0)
        r = parse_history(json_object_get(o, "history"), &m->history);
    return r;
}

/* The body within the frame, or NULL if any byte of the frame or the digest is wrong. */
static const char *unframe(const char *text, size_t bytes, size_t *body_bytes)
{
    size_t head = sizeof HEAD - 1;
    struct kc_digest said;
    char hex[33];
    if (bytes < head + FRAME_TAIL || memcmp(text, HEAD, head) != 0)
        return NULL;
    const char *body = text + head, *tail = text + bytes - FRAME_TAIL;
    *body_bytes = (size_t)(tail - body);
    memcpy(hex, tail + sizeof TAIL - 1, 32);
    hex[32] = 0;
    if (memcmp(tail, TAIL, sizeof TAIL - 1) != 0 || memcmp(text + bytes - sizeof END + 1, END, sizeof END - 1) != 0 ||
        kc_digest_parse(hex, &said) < 0 || !kc_digest_equal(said, kc_digest(body, *body_bytes)))
        return NULL;
    return body;
}

int kc_manifest_read(const struct kc_storage *st, const char *folder, struct kc_manifest *out, struct kc_error *e)
{
    char path[4096 + sizeof KC_MANIFEST_NAME + 1], *text;
    size_t bytes, n = 0;
    json_error_t je;
    snprintf(path, sizeof path, "%s/%s", folder, KC_MANIFEST_NAME);
    int r = kc_storage_read_file(st, path, LIMIT, &text, &bytes);
    if (r == -ENOENT)
        return kc_fail(e, -EBADMSG, "%s is missing", path);
    if (r == -EFBIG)
        return kc_fail(e, -EBADMSG, "%s is larger than any manifest", path);
    if (r < 0)
        return kc_storage_fail(st, e, r, "read", path, 0);
    const char *body = unframe(text, bytes, &n);
    json_t *json = body ? json_loadb(body, n, JSON_REJECT_DUPLICATES, &je) : NULL;
    struct kc_manifest *m = calloc(1, sizeof *m);
    long long format = kc_json_integer(json, "format", -1);
    if (!m)
        r = kc_fail(e, -ENOMEM, "no memory to read %s", path);
    else if (!json)
        r = kc_fail(e, -EBADMSG, "%s is damaged: its digest is not that of its %zu bytes", path, bytes);
    else if (format < KC_SNAPSHOT_OLDEST || format > KC_SNAPSHOT_FORMAT)
        r = kc_fail(e, -EBADMSG, "%s has format %lld, this program reads %d to %d", path, format, KC_SNAPSHOT_OLDEST,
                    KC_SNAPSHOT_FORMAT);
    else if (m->format = (uint32_t)format, (r = parse_body(json, m)) < 0)
        r = kc_fail(e, r == -ENOMEM ? r : -EBADMSG, "%s does not say what a manifest must say", path);
    if (r == 0) {
        m->digest = kc_digest(body, n);
        *out = *m;
    } else if (m) {
        kc_manifest_free(m);
    }
    free(m);
    json_decref(json);
    free(text);
    return r;
}
