/* config.c - one table for reading and for writing. */
#include "config.h"
#include "json_file.h"

#include "base/json.h"
#include "base/print.h"

#include <errno.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GPT2 = 1 << KC_FAMILY_GPT2, LLAMA = 1 << KC_FAMILY_LLAMA, MOE = 1 << KC_FAMILY_MOE, ALL = GPT2 | LLAMA | MOE };
enum type { COUNT, AT_LEAST, REAL, TRUTH };
#define AT(member) offsetof(struct kc_model_numbers, member)
#define NEEDED ((double)NAN) /* as `otherwise`: it must be there */
#define HEADS (-1.0)         /* as many as heads */

/* A number of the model. It may have another name, and stand in an object of `inside`. */
static const struct row {
    int families;
    enum type type;
    const char *key, *other, *inside, *field;
    size_t at;
    double otherwise; /* what it is when the file has none */
} rows[] = {
    {GPT2, COUNT, "n_layer", "num_hidden_layers", NULL, "model.layers", AT(layers), NEEDED},
    {GPT2, COUNT, "n_embd", "hidden_size", NULL, "model.hidden", AT(hidden), NEEDED},
    {GPT2, COUNT, "n_head", "num_attention_heads", NULL, "model.heads", AT(heads), NEEDED},
    {GPT2, COUNT, "n_positions", "n_ctx", NULL, "model.context", AT(context), NEEDED},
    {LLAMA | MOE, COUNT, "num_hidden_layers", NULL, NULL, "model.layers", AT(layers), NEEDED},
    {LLAMA | MOE, COUNT, "hidden_size", NULL, NULL, "model.hidden", AT(hidden), NEEDED},
    {LLAMA | MOE, COUNT, "num_attention_heads", NULL, NULL, "model.heads", AT(heads), NEEDED},
    {LLAMA | MOE, COUNT, "num_key_value_heads", NULL, NULL, "model.kv_heads", AT(kv_heads), HEADS},
    {LLAMA | MOE, COUNT, "intermediate_size", NULL, NULL, "model.ffn", AT(ffn), NEEDED},
    {LLAMA | MOE, AT_LEAST, "max_position_embeddings", NULL, NULL, "model.context", AT(context), NEEDED},
    {MOE, COUNT, "num_local_experts", NULL, NULL, "model.experts", AT(experts), NEEDED},
    {MOE, COUNT, "num_experts_per_tok", NULL, NULL, "model.top_k", AT(top_k), NEEDED},
    {ALL, COUNT, "vocab_size", NULL, NULL, "model.vocab", AT(vocab), NEEDED},
    {LLAMA | MOE, REAL, "rope_theta", NULL, "rope_parameters", "model.rope_theta", AT(rope_theta), 10000},
    {LLAMA | MOE, REAL, "rms_norm_eps", NULL, NULL, "model.rms_eps", AT(rms_eps), NEEDED},
    {LLAMA | MOE, TRUTH, "tie_word_embeddings", NULL, NULL, "model.tied", AT(tied), 0},
};

/* What a family is, whatever its numbers; with another value it is another model. */
static const struct fact {
    int families;
    const char *key, *inside, *value; /* value: JSON */
    bool free;                        /* any value does when it is read */
} facts[] = {
    {GPT2, "activation_function", NULL, "\"gelu_new\"", false},
    {GPT2, "layer_norm_epsilon", NULL, "1e-05", false},
    {GPT2, "scale_attn_weights", NULL, "true", false},
    {GPT2, "scale_attn_by_inverse_layer_idx", NULL, "false", false},
    {GPT2, "tie_word_embeddings", NULL, "true", false},
    {GPT2, "attn_pdrop", NULL, "0.0", true},
    {GPT2, "embd_pdrop", NULL, "0.0", true},
    {GPT2, "resid_pdrop", NULL, "0.0", true},
    {LLAMA | MOE, "hidden_act", NULL, "\"silu\"", false},
    {LLAMA | MOE, "rope_type", "rope_parameters", "\"default\"", false},
    {LLAMA | MOE, "attention_dropout", NULL, "0.0", true},
    {LLAMA, "attention_bias", NULL, "false", false},
    {LLAMA, "mlp_bias", NULL, "false", false},
    {MOE, "sliding_window", NULL, "null", false},
    {ALL, "bos_token_id", NULL, "null", true},
    {ALL, "eos_token_id", NULL, "null", true},
};

static const struct {
    const char *type, *architecture;
} names[KC_FAMILIES] = {[KC_FAMILY_GPT2] = {"gpt2", "GPT2LMHeadModel"},
                        [KC_FAMILY_LLAMA] = {"llama", "LlamaForCausalLM"},
                        [KC_FAMILY_MOE] = {"mixtral", "MixtralForCausalLM"}};

void kc_model_numbers(const struct kc_job_spec *s, struct kc_model_numbers *out)
{
    *out = (struct kc_model_numbers){.layers = s->layers, .hidden = s->hidden, .heads = s->heads, .context = s->context,
        .vocab = s->vocab, .kv_heads = s->kv_heads, .ffn = s->ffn, .tied = s->tied, .experts = s->experts,
        .top_k = s->top_k, .rope_theta = s->rope_theta, .rms_eps = s->rms_eps};
    snprintf(out->family, sizeof out->family, "%s", s->family < KC_FAMILIES ? kc_family_name[s->family] : "?");
}

static int family_of(const struct kc_model_numbers *m)
{
    for (int f = 0; f < KC_FAMILIES; f++)
        if (strcmp(kc_family_name[f], m->family) == 0)
            return f;
    return -1;
}

static double number(const struct kc_model_numbers *m, const struct row *row)
{
    const char *at = (const char *)m + row->at;
    uint32_t count;
    double real;
    memcpy(&count, at, sizeof count);
    if (row->type == REAL)
        memcpy(&real, at, sizeof real);
    return row->type == REAL ? real : count;
}

/* ---- reading ---- */

static const json_t *find(const json_t *json, const char *key, const char *inside)
{
    const json_t *there = inside ? json_object_get(json_object_get(json, inside), key) : NULL;
    return there ? there : json_object_get(json, key);
}

/* NaN where it is missing or no number. */
static double found(const json_t *json, const struct row *row, const struct kc_model_numbers *m)
{
    const json_t *v = find(json, row->key, row->inside);
    if (!v && row->other)
        v = json_object_get(json, row->other);
    if (json_is_boolean(v))
        return json_is_true(v);
    if (json_is_number(v))
        return json_number_value(v);
    return row->otherwise == HEADS ? m->heads : row->otherwise;
}

static void check_row(const json_t *json, const struct row *row, const struct kc_model_numbers *m, struct kc_print *p)
{
    const double have = found(json, row, m), want = number(m, row);
    if (isnan(have))
        kc_print(p, "; %s is missing (%s is %.10g)", row->key, row->field, want);
    else if (row->type == AT_LEAST ? have < want : have != want)
        kc_print(p, "; %s is %.10g, %s is %.10g", row->key, have, row->field, want);
}

static void check_fact(const json_t *json, const struct fact *fact, struct kc_print *p)
{
    const json_t *have = find(json, fact->key, fact->inside);
    json_t *want = json_loads(fact->value, JSON_DECODE_ANY, NULL);
    if (have && !json_is_null(have) && !fact->free && !json_equal(have, want)) {
        char *text = json_dumps(have, JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(10));
        kc_print(p, "; %s is %.60s, this family has %s", fact->key, text ? text : "?", fact->value);
        free(text);
    }
    json_decref(want);
}

/* Older files call the kind of rotary positions otherwise; any scaling of them is not ours. */
static void check_scaling(const json_t *json, struct kc_print *p)
{
    const json_t *scaling = json_object_get(json, "rope_scaling");
    const char *type = kc_json_text(scaling, "rope_type", kc_json_text(scaling, "type", "default"));
    if (json_is_object(scaling) && strcmp(type, "default") != 0)
        kc_print(p, "; rope_scaling is \"%.40s\", this family has none", type);
}

static void check_all(const json_t *json, const struct kc_model_numbers *m, int family, struct kc_print *p)
{
    const char *type = kc_json_text(json, "model_type", "");
    const json_t *head = json_object_get(json, "head_dim");
    if (strcmp(type, names[family].type) != 0)
        kc_print(p, "; model_type is \"%.40s\", model.family \"%s\" reads \"%s\"", type, m->family, names[family].type);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (rows[i].families >> family & 1)
            check_row(json, &rows[i], m, p);
    if (json_is_integer(head) && m->heads && json_integer_value(head) != m->hidden / m->heads)
        kc_print(p, "; head_dim is %lld, model.hidden / model.heads is %u", (long long)json_integer_value(head),
                 m->hidden / m->heads);
    for (size_t i = 0; i < sizeof facts / sizeof facts[0]; i++)
        if (facts[i].families >> family & 1)
            check_fact(json, &facts[i], p);
    check_scaling(json, p);
}

int kc_config_check(const struct kc_model_numbers *m, const char *path, struct kc_error *e)
{
    char list[512] = "";
    struct kc_print p = {.out = list, .room = sizeof list};
    int r, family = family_of(m);
    json_t *json;
    if (family < 0)
        return kc_fail(e, -EINVAL, "%s cannot be compared with a model of family \"%s\"", path, m->family);
    r = kc_storage_read_json(&kc_storage_posix, path, &json, e);
    if (r < 0)
        return r;
    check_all(json, m, family, &p);
    json_decref(json);
    return p.length ? kc_fail(e, -EINVAL, "%s does not fit the spec: %s%s", path, list + 2,
                              p.length >= sizeof list ? " …" : "") : 0;
}

static int family_called(const char *type)
{
    for (int f = 0; f < KC_FAMILIES; f++)
        if (strcmp(names[f].type, type) == 0)
            return f;
    return -1;
}

static void set(struct kc_model_numbers *m, const struct row *row, double v)
{
    char *at = (char *)m + row->at;
    const uint32_t count = row->type != REAL && v >= 0 && v <= UINT32_MAX ? (uint32_t)v : 0;
    if (row->type == REAL)
        memcpy(at, &v, sizeof v);
    else
        memcpy(at, &count, sizeof count);
}

/* heads stands before kv_heads in the table, which may be as many. */
static void take_rows(const json_t *json, int family, struct kc_model_numbers *m, struct kc_print *p)
{
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (!(rows[i].families >> family & 1))
            continue;
        const double v = found(json, &rows[i], m);
        if (isnan(v))
            kc_print(p, "; %s is missing", rows[i].key);
        else
            set(m, &rows[i], v);
    }
    if (family == KC_FAMILY_GPT2) {
        const json_t *inner = json_object_get(json, "n_inner");
        m->kv_heads = m->heads, m->ffn = 4 * m->hidden, m->tied = 1;
        if (json_is_integer(inner) && json_integer_value(inner) != m->ffn)
            kc_print(p, "; n_inner is %lld, this family has 4 n_embd = %u", (long long)json_integer_value(inner), m->ffn);
    }
}

int kc_config_read(const char *path, struct kc_model_numbers *out, struct kc_error *e)
{
    char list[512] = "";
    struct kc_print p = {.out = list, .room = sizeof list};
    struct kc_model_numbers m = {.layers = 0};
    json_t *json;
    int r = kc_storage_read_json(&kc_storage_posix, path, &json, e);
    if (r < 0)
        return r;
    const char *type = kc_json_text(json, "model_type", "");
    const int family = family_called(type);
    if (family < 0)
        r = kc_fail(e, -EINVAL, "%s: model_type is \"%.40s\"; gpt2, llama and mixtral are read", path, type);
    if (r == 0) {
        snprintf(m.family, sizeof m.family, "%s", kc_family_name[family]);
        take_rows(json, family, &m, &p);
        if (p.length == 0)
            check_all(json, &m, family, &p);
        if (p.length)
            r = kc_fail(e, -EINVAL, "%s is of a model that cannot be trained here: %s%s", path, list + 2,
                        p.length >= sizeof list ? " …" : "");
    }
    json_decref(json);
    if (r == 0)
        *out = m;
    return r;
}

int kc_numbers_check(const struct kc_model_numbers *m, const struct kc_model_numbers *have, const char *path, struct kc_error *e)
{
    char list[512] = "";
    struct kc_print p = {.out = list, .room = sizeof list};
    const int family = family_of(have);
    if (strcmp(m->family, have->family) != 0)
        kc_print(&p, "; it is %s, model.family is \"%s\"", have->family, m->family);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (rows[i].families >> family & 1 && number(m, &rows[i]) != number(have, &rows[i]))
            kc_print(&p, "; it has %.10g, %s is %.10g", number(have, &rows[i]), rows[i].field, number(m, &rows[i]));
    return p.length ? kc_fail(e, -EINVAL, "%s does not fit the spec: %s", path, list + 2) : 0;
}

/* ---- writing ---- */

static void put(json_t *json, const char *key, const char *inside, json_t *value)
{
    json_t *to = inside ? json_object_get(json, inside) : json;
    if (!to) {
        to = json_object();
        json_object_set_new(json, inside, to);
    }
    json_object_set_new(to, key, value);
}

static json_t *value_of(const struct row *row, double v)
{
    return row->type == REAL ? json_real(v) : row->type == TRUTH ? json_boolean(v != 0) : json_integer((json_int_t)v);
}

int kc_config_write(const struct kc_storage *st, const char *folder, const struct kc_model_numbers *m, bool bf16,
                    json_t *tokens, struct kc_error *e)
{
    const int family = family_of(m);
    if (family < 0)
        return kc_fail(e, -ENOTSUP, "a model of family \"%s\" has no config.json", m->family);
    json_t *json = json_pack("{s:[s], s:s, s:s}", "architectures", names[family].architecture, "model_type",
                             names[family].type, "dtype", bf16 ? "bfloat16" : "float32");
    int r = json ? 0 : kc_fail(e, -ENOMEM, "no memory for config.json");
    for (size_t i = 0; i < sizeof rows / sizeof rows[0] && r == 0; i++) {
        const double v = number(m, &rows[i]);
        if (!(rows[i].families >> family & 1))
            continue;
        if (v == 0 && rows[i].type != TRUTH)
            r = kc_fail(e, -ENOTSUP, "the snapshot does not say what %s was: it was written before snapshots kept that. "
                        "Resume the job for one more snapshot, and export that", rows[i].field);
        put(json, rows[i].key, rows[i].inside, value_of(&rows[i], v));
    }
    for (size_t i = 0; i < sizeof facts / sizeof facts[0] && r == 0; i++)
        if (facts[i].families >> family & 1)
            put(json, facts[i].key, facts[i].inside, json_loads(facts[i].value, JSON_DECODE_ANY, NULL));
    if (r == 0 && tokens)
        json_object_update(json, tokens);
    if (r == 0)
        return kc_json_write(st, folder, "config.json", json, e);
    json_decref(json);
    return r;
}

json_t *kc_numbers_json(const struct kc_model_numbers *m)
{
    const int family = family_of(m);
    json_t *o = json_pack("{s:s}", "family", m->family);
    for (size_t i = 0; o && i < sizeof rows / sizeof rows[0]; i++)
        if (rows[i].families >> family & 1)
            json_object_set_new(o, strchr(rows[i].field, '.') + 1, value_of(&rows[i], number(m, &rows[i])));
    return o;
}
