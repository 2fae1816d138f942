/* contract.c - see contract.h. Reads only what the layout names, bounds nothing: blocks are checked once, when they come in. */
#include "base/contract.h"

#include "base/json.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

void *kc_contract_begin(struct kc_arena *a, uint16_t kind, uint16_t version, size_t root_bytes)
{
    struct kc_contract *c = kc_arena_take(a, root_bytes, 64);
    if (c)
        *c = (struct kc_contract){.magic = KC_CONTRACT_MAGIC, .kind = kind, .version = version};
    return c;
}

void *kc_contract_array(struct kc_arena *a, struct kc_span *span, size_t count, size_t element_bytes)
{
    if (count > UINT32_MAX || (element_bytes && count > SIZE_MAX / element_bytes))
        return NULL;
    unsigned char *p = kc_arena_take(a, count * element_bytes, 8);
    if (p)
        *span = (struct kc_span){.offset = count ? (uint32_t)(p - a->base) : 0, .count = (uint32_t)count};
    return p;
}

kc_text kc_contract_text(struct kc_arena *a, const char *text)
{
    if (!text || !*text)
        return 0;
    size_t n = strlen(text) + 1;
    unsigned char *p = kc_arena_take(a, n, 1);
    if (!p)
        return 0;
    memcpy(p, text, n);
    return (kc_text)(p - a->base);
}

static struct kc_digest block_digest(struct kc_contract *c)
{
    struct kc_digest old = c->digest;
    c->digest = (struct kc_digest){0};
    struct kc_digest d = kc_digest(c, c->bytes);
    c->digest = old;
    return d;
}

int kc_contract_seal(struct kc_arena *a)
{
    if (a->need > a->size || a->need > UINT32_MAX)
        return -ENOSPC;
    struct kc_contract *c = (struct kc_contract *)a->base;
    c->bytes = a->used;
    c->digest = block_digest(c);
    return kc_arena_freeze(a);
}

int kc_contract_check(const void *block, size_t bytes, uint16_t kind, uint16_t version)
{
    const struct kc_contract *c = block;
    if (bytes < sizeof *c || c->magic != KC_CONTRACT_MAGIC || c->kind != kind || c->version != version)
        return -EPROTO;
    if (c->bytes > bytes || c->bytes < sizeof *c)
        return -EBADMSG;
    /* the digest covers the block with the digest field zero: hash a copy of the head and then the rest */
    struct kc_arena copy;
    int r = kc_arena_new(&copy, c->bytes);
    if (r < 0)
        return r;
    memcpy(copy.base, block, c->bytes);
    r = kc_digest_equal(block_digest((struct kc_contract *)copy.base), c->digest) ? 0 : -EBADMSG;
    kc_arena_free(&copy);
    return r;
}

static size_t scalar_bytes(int kind)
{
    static const uint8_t bytes[] = {[KC_FIELD_U8] = 1, [KC_FIELD_U16] = 2, [KC_FIELD_U32] = 4, [KC_FIELD_U64] = 8,
        [KC_FIELD_I32] = 4, [KC_FIELD_I64] = 8, [KC_FIELD_F32] = 4, [KC_FIELD_F64] = 8, [KC_FIELD_TEXT] = 4};
    return bytes[kind];
}

static size_t field_bytes(const struct kc_field *f)
{
    if (f->kind == KC_FIELD_SPAN)
        return sizeof(struct kc_span);
    return f->kind == KC_FIELD_STRUCT ? f->of->bytes : scalar_bytes(f->kind);
}

static uint64_t load_unsigned(const char *at, int kind)
{
    uint64_t v = 0;
    memcpy(&v, at, scalar_bytes(kind)); /* little-endian hosts: the low bytes come first */
    return v;
}

static json_t *scalar_json(const void *block, const char *at, int kind, const struct kc_field *f)
{
    switch (kind) {
    case KC_FIELD_TEXT: {
        uint32_t t;
        memcpy(&t, at, sizeof t);
        return json_string_nocheck(KC_TEXT(block, t));
    }
    case KC_FIELD_F32: {
        float v;
        memcpy(&v, at, sizeof v);
        return kc_json_number((double)v);
    }
    case KC_FIELD_F64: {
        double v;
        memcpy(&v, at, sizeof v);
        return kc_json_number(v);
    }
    case KC_FIELD_I32: {
        int32_t v;
        memcpy(&v, at, sizeof v);
        return json_integer(v);
    }
    default: {
        uint64_t v = load_unsigned(at, kind);
        if (f->names && v < f->names_count)
            return json_string(f->names[v]);
        return json_integer((json_int_t)v);
    }
    }
}

static json_t *struct_json(const void *block, const char *at, const struct kc_layout *layout);

static json_t *value_json(const void *block, const char *at, const struct kc_field *f)
{
    if (f->kind == KC_FIELD_STRUCT)
        return struct_json(block, at, f->of);
    if (f->kind != KC_FIELD_SPAN)
        return scalar_json(block, at, f->kind, f);
    struct kc_span span;
    memcpy(&span, at, sizeof span);
    json_t *list = json_array();
    size_t step = f->of ? f->of->bytes : scalar_bytes(f->scalar);
    for (uint32_t i = 0; list && i < span.count; i++) {
        const char *element = (const char *)block + span.offset + i * step;
        json_array_append_new(list, f->of ? struct_json(block, element, f->of) : scalar_json(block, element, f->scalar, f));
    }
    return list;
}

static json_t *struct_json(const void *block, const char *at, const struct kc_layout *layout)
{
    json_t *object = json_object();
    for (uint32_t i = 0; object && i < layout->count; i++) {
        const struct kc_field *f = &layout->fields[i];
        json_t *value;
        if (f->kind == KC_FIELD_HIDDEN)
            continue;
        if (f->count <= 1) {
            value = value_json(block, at + f->offset, f);
        } else {
            value = json_array();
            for (uint32_t k = 0; k < f->count; k++)
                json_array_append_new(value, value_json(block, at + f->offset + k * field_bytes(f), f));
        }
        json_object_set_new(object, f->name, value);
    }
    return object;
}

struct json_t *kc_contract_json(const void *block, const struct kc_layout *layout)
{
    return struct_json(block, block, layout);
}

/* Walks both blocks side by side; `path` is the name of what is being compared. */
struct walk {
    const char *a, *b; /* the blocks */
    char path[256];
    char *text;
    size_t room;
};

static int differ(struct walk *w, json_t *left, json_t *right)
{
    char *l = json_dumps(left, JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(17));
    char *r = json_dumps(right, JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(17));
    snprintf(w->text, w->room, "%s: %s and %s", w->path, l ? l : "?", r ? r : "?");
    free(l);
    free(r);
    json_decref(left);
    json_decref(right);
    return 1;
}

static int struct_difference(struct walk *w, const char *a, const char *b, const struct kc_layout *layout);

static int scalar_difference(struct walk *w, const char *a, const char *b, int kind, const struct kc_field *f)
{
    if (kind == KC_FIELD_TEXT) {
        uint32_t s, t;
        memcpy(&s, a, sizeof s);
        memcpy(&t, b, sizeof t);
        if (strcmp(KC_TEXT(w->a, s), KC_TEXT(w->b, t)) == 0)
            return 0;
    } else if (memcmp(a, b, scalar_bytes(kind)) == 0) {
        return 0;
    }
    return differ(w, scalar_json(w->a, a, kind, f), scalar_json(w->b, b, kind, f));
}

static int value_difference(struct walk *w, const char *a, const char *b, const struct kc_field *f)
{
    if (f->kind == KC_FIELD_STRUCT)
        return struct_difference(w, a, b, f->of);
    if (f->kind != KC_FIELD_SPAN)
        return scalar_difference(w, a, b, f->kind, f);
    struct kc_span s, t;
    memcpy(&s, a, sizeof s);
    memcpy(&t, b, sizeof t);
    size_t length = strlen(w->path), step = f->of ? f->of->bytes : scalar_bytes(f->scalar);
    for (uint32_t i = 0; i < s.count && i < t.count; i++) {
        snprintf(w->path + length, sizeof w->path - length, "[%u]", i);
        const char *x = w->a + s.offset + i * step, *y = w->b + t.offset + i * step;
        if (f->of ? struct_difference(w, x, y, f->of) : scalar_difference(w, x, y, f->scalar, f))
            return 1;
    }
    w->path[length] = 0;
    if (s.count == t.count)
        return 0;
    snprintf(w->path + length, sizeof w->path - length, ".count");
    return differ(w, json_integer(s.count), json_integer(t.count));
}

static int struct_difference(struct walk *w, const char *a, const char *b, const struct kc_layout *layout)
{
    size_t length = strlen(w->path);
    for (uint32_t i = 0; i < layout->count; i++) {
        const struct kc_field *f = &layout->fields[i];
        if (f->kind == KC_FIELD_HIDDEN)
            continue;
        for (uint32_t k = 0; k < (f->count > 1 ? f->count : 1u); k++) {
            snprintf(w->path + length, sizeof w->path - length, f->count > 1 ? "%s%s[%u]" : "%s%s", length ? "." : "",
                     f->name, k);
            size_t at = f->offset + k * field_bytes(f);
            if (value_difference(w, a + at, b + at, f))
                return 1;
        }
    }
    w->path[length] = 0;
    return 0;
}

int kc_contract_difference(const void *a, const void *b, const struct kc_layout *layout, char *text, size_t room)
{
    struct walk w = {.a = a, .b = b, .text = text, .room = room};
    return struct_difference(&w, a, b, layout);
}
