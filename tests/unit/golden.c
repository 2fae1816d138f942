/* golden.c - see golden.h. */
#include "tests/unit/golden.h"

#include "base/json.h"

#include <check.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static unsigned char *read_file(const char *path, size_t *bytes)
{
    FILE *f = fopen(path, "rb");
    ck_assert_msg(f, "%s is missing; tests run from the project's root", path);
    fseek(f, 0, SEEK_END);
    *bytes = (size_t)ftell(f);
    rewind(f);
    unsigned char *data = malloc(*bytes + 1);
    ck_assert_uint_eq(fread(data, 1, *bytes, f), *bytes);
    fclose(f);
    return data;
}

struct safetensors safetensors_open(const char *path)
{
    struct safetensors s;
    size_t bytes;
    uint64_t length;
    s.data = read_file(path, &bytes);
    memcpy(&length, s.data, 8);
    s.head = json_loadb((char *)s.data + 8, length, 0, NULL);
    ck_assert_ptr_nonnull(s.head);
    s.body = s.data + 8 + length;
    return s;
}

void safetensors_close(struct safetensors *s)
{
    json_decref(s->head);
    free(s->data);
}

float *safetensors_floats(const struct safetensors *s, const char *name, uint64_t *count)
{
    json_t *t = json_object_get(s->head, name);
    ck_assert_msg(t, "%s is not in the file", name);
    json_t *at = json_object_get(t, "data_offsets");
    uint64_t from = (uint64_t)json_integer_value(json_array_get(at, 0)),
             to = (uint64_t)json_integer_value(json_array_get(at, 1));
    *count = (to - from) / 4;
    float *copy = malloc(to - from);
    memcpy(copy, s->body + from, to - from);
    return copy;
}

size_t golden_shape(const struct kc_graph_tensor *t, uint64_t size[KC_DIMS_MAX])
{
    size_t rank = 0;
    for (int d = 0; d < t->rank; d++)
        if (t->join >> d & 1)
            size[rank - 1] *= t->size[d];
        else
            size[rank++] = t->size[d];
    return rank;
}

struct golden golden_open(const char *name)
{
    struct golden g;
    char path[128];
    size_t bytes;
    int32_t head[3];
    snprintf(g.folder, sizeof g.folder, "tests/golden/%s", name);
    snprintf(path, sizeof path, "%s/reference.json", g.folder);
    g.reference = json_load_file(path, 0, NULL);
    ck_assert_msg(g.reference != NULL, "%s", path);
    g.arguments = json_object_get(g.reference, "arguments");
    g.steps = json_object_get(g.reference, "steps");
    g.context = (uint32_t)golden_number(&g, "context");
    snprintf(path, sizeof path, "%s/train.bin", g.folder);
    g.file = read_file(path, &bytes);
    memcpy(head, g.file, sizeof head);
    ck_assert(head[0] == 20240520 && head[1] == 1 && 1024 + 2 * (size_t)head[2] == bytes);
    g.tokens = (const uint16_t *)(g.file + 1024);
    g.samples = ((uint64_t)head[2] - 1) / g.context;
    return g;
}

void golden_close(struct golden *g)
{
    json_decref(g->reference);
    free(g->file);
}

double golden_number(const struct golden *g, const char *argument)
{
    json_t *value = json_object_get(g->arguments, argument);
    ck_assert_msg(json_is_number(value) || json_is_boolean(value), "%s", argument);
    return json_is_boolean(value) ? json_is_true(value) : json_number_value(value);
}

struct kc_job_spec golden_spec(const struct golden *g, uint32_t micro)
{
#define NUMBER(argument) (uint32_t)golden_number(g, argument)
    struct kc_job_spec s = test_spec(NUMBER("layers"), NUMBER("hidden"), NUMBER("heads"), g->context, NUMBER("vocab"),
                                     micro);
    const char *family = kc_json_text(g->arguments, "family", "");
    for (uint32_t f = 0; f < KC_FAMILIES; f++)
        if (strcmp(family, kc_family_name[f]) == 0)
            s.family = f;
    ck_assert_str_eq(kc_family_name[s.family], family);
    s.sequences = NUMBER("sequences");
    s.weight_decay = golden_number(g, "decay");
    s.clip = golden_number(g, "clip");
    if (s.family != KC_FAMILY_GPT2) {
        s.kv_heads = NUMBER("kv_heads"), s.ffn = NUMBER("ffn"), s.tied = NUMBER("tied");
        s.rope_theta = golden_number(g, "theta"), s.rms_eps = 1e-5;
    }
    if (s.family == KC_FAMILY_MOE) {
        s.experts = NUMBER("experts"), s.top_k = NUMBER("top_k"), s.balance = golden_number(g, "balance");
    }
#undef NUMBER
    return s;
}

int golden_load(void *self, int evaluate, uint64_t position, uint32_t rows, const struct kc_load_part *part,
                int32_t *tokens, int32_t *targets, int32_t *starts, struct kc_error *e)
{
    (void)evaluate, (void)starts, (void)e;
    const struct golden *g = self;
    const uint32_t context = part->context;
    for (uint32_t r = 0; r < rows; r++)
        for (uint32_t i = 0; i < context; i++) {
            const uint16_t *at = g->tokens + (position + r) % g->samples * context + i;
            tokens[r * context + i] = at[0];
            targets[r * context + i] = at[1];
        }
    return 0;
}

double golden_apart(const float *got, double scale, const float *want, uint64_t first, uint64_t last)
{
    double d = 0, largest = 0;
    for (uint64_t i = first; i < last; i++) {
        double delta = fabs((double)got[i] * scale - (double)want[i]);
        d = delta <= d ? d : delta;
        largest = fmax(largest, fabs((double)want[i]));
    }
    return d / largest;
}

/* The values of tensor t, of whose name a star stands for each index of dimension 0. */
static float *golden_values(const struct safetensors *s, const struct kc_graph_tensor *t, const char *name, uint64_t *n)
{
    const char *star = strchr(name, '*');
    if (!star)
        return safetensors_floats(s, name, n);
    float *all = NULL;
    uint64_t part = 0;
    for (uint64_t i = 0; i < t->size[0]; i++) {
        char one[128];
        snprintf(one, sizeof one, "%.*s%d%s", (int)(star - name), name, (int)i, star + 1);
        float *values = safetensors_floats(s, one, &part);
        all = realloc(all, (i + 1) * part * sizeof *all);
        memcpy(all + i * part, values, part * sizeof *all);
        free(values);
    }
    *n = t->size[0] * part;
    return all;
}

static void values_from(const char *path, bool adapters, struct runner *r)
{
    struct safetensors s = safetensors_open(path);
    for (uint32_t i = 0; i < r->graph->tensors.count; i++) {
        const struct kc_graph_tensor *t = graph_runner_tensor(r, (int32_t)i);
        if (t->role != KC_PARAMETER || !strstr(KC_TEXT(r->graph, t->name), ".lora_") == adapters)
            continue;
        uint64_t n;
        float *values = golden_values(&s, t, KC_TEXT(r->graph, t->name), &n);
        ck_assert_uint_eq(n, graph_runner_elements(r, (int32_t)i));
        graph_runner_set(r, (int32_t)i, values);
        free(values);
    }
    safetensors_close(&s);
}

void golden_parameters(const struct golden *g, struct runner *r)
{
    char path[128];
    snprintf(path, sizeof path, "%s/model/model.safetensors", g->folder);
    values_from(path, false, r);
}

void golden_adapters(const char *folder, struct runner *r)
{
    char path[128];
    snprintf(path, sizeof path, "%s/adapters.safetensors", folder);
    values_from(path, true, r);
}

/* The key third of c_attn.bias has true gradient zero, of which rounding remains: apart. */
static void key_bias_compare(const float *got, double scale, const float *want, uint64_t n, enum kc_role role)
{
    const double near = role == KC_GRADIENT ? 1e-7 : 2e-2;
    for (uint64_t k = n / 3; k < n / 3 * 2; k++)
        ck_assert_msg(fabs((double)got[k] * scale - (role == KC_GRADIENT ? 0 : (double)want[k])) <= near,
                      "c_attn.bias[%llu] is %.3g", (unsigned long long)k, (double)got[k] * scale);
}

void golden_compare(struct runner *r, enum kc_role role, double scale, const char *path, double tolerance)
{
    struct safetensors s = safetensors_open(path);
    size_t compared = 0;
    for (uint32_t i = 0; i < r->graph->tensors.count; i++) {
        const struct kc_graph_tensor *t = graph_runner_tensor(r, (int32_t)i);
        if (t->role != role)
            continue;
        const char *name = KC_TEXT(r->graph, (role == KC_GRADIENT ? graph_runner_tensor(r, t->of) : t)->name);
        uint64_t n, h = 0;
        const float *want = golden_values(&s, t, name, &n), *got = r->data[i];
        ck_assert_uint_eq(n, graph_runner_elements(r, (int32_t)i));
        if (strstr(name, "c_attn.bias")) {
            h = n / 3;
            key_bias_compare(got, scale, want, n, role);
            ck_assert_msg(golden_apart(got, scale, want, 0, h) <= tolerance, "%s, query third", name);
        }
        double d = golden_apart(got, scale, want, h ? 2 * h : 0, n);
        ck_assert_msg(d <= tolerance, "%s is off by %.3g of its largest value", name, d);
        free((void *)want);
        compared += strchr(name, '*') ? t->size[0] : 1;
    }
    ck_assert_uint_eq(compared, json_object_size(s.head) - (json_object_get(s.head, "__metadata__") != NULL));
    safetensors_close(&s);
}

double golden_rate(const struct golden *g, uint64_t step)
{
    const double lr = golden_number(g, "lr"), low = lr * golden_number(g, "floor");
    const uint64_t steps = (uint64_t)golden_number(g, "steps"), warmup = (uint64_t)golden_number(g, "warmup");
    const char *kind = kc_json_text(g->arguments, "kind", "");
    if (step < warmup)
        return lr * (double)(step + 1) / (double)warmup;
    const double r = (double)(step - warmup) / (double)(steps - warmup);
    if (strcmp(kind, "cosine") == 0)
        return low + 0.5 * (1 + cos(M_PI * r)) * (lr - low);
    if (strcmp(kind, "linear") == 0)
        return low + (1 - r) * (lr - low);
    if (strcmp(kind, "wsd") == 0) {
        const uint64_t from = steps - steps / 5;
        return step < from ? lr : low + (1 - sqrt((double)(step - from) / (double)(steps - from))) * (lr - low);
    }
    ck_assert_str_eq(kind, "constant");
    return lr;
}
