/* names.c - see names.h. */
#include "names.h"

#include <stdio.h>
#include <string.h>

#define PREFIX "transformer."

static const char *plain(const char *name)
{
    return strncmp(name, PREFIX, sizeof PREFIX - 1) == 0 ? name + sizeof PREFIX - 1 : name;
}

static bool ends_with(const char *text, const char *end)
{
    size_t n = strlen(text), m = strlen(end);
    return n >= m && strcmp(text + n - m, end) == 0;
}

uint32_t kc_name_parts(const char *name, const struct kc_shape *shape)
{
    return strchr(name, '*') && shape->rank ? (uint32_t)shape->size[0] : 1;
}

void kc_name_part_shape(const char *name, const struct kc_shape *shape, struct kc_shape *out)
{
    *out = *shape;
    if (!strchr(name, '*') || !shape->rank)
        return;
    out->rank--;
    memmove(out->size, out->size + 1, out->rank * sizeof out->size[0]);
    out->size[out->rank] = 0;
}

void kc_name_part(const char *name, uint32_t i, char out[KC_TENSOR_NAME_MAX])
{
    const char *star = strchr(name, '*');
    if (star)
        snprintf(out, KC_TENSOR_NAME_MAX, "%.*s%u%s", (int)(star - name), name, i, star + 1);
    else
        snprintf(out, KC_TENSOR_NAME_MAX, "%s", name);
}

/* A number as printf writes it; -1 none. *end: behind it. */
static int64_t index_at(const char *text, const char **end)
{
    int64_t n = 0;
    const char *c = text;
    for (; *c >= '0' && *c <= '9' && n < UINT32_MAX; c++)
        n = n * 10 + (*c - '0');
    *end = c;
    return c == text || (*text == '0' && c > text + 1) ? -1 : n;
}

int64_t kc_name_match(const char *name, uint32_t parts, const char *file_name)
{
    const char *star, *end;
    name = plain(name);
    file_name = plain(file_name);
    star = strchr(name, '*');
    if (!star)
        return strcmp(name, file_name) == 0 ? 0 : -1;
    const size_t before = (size_t)(star - name);
    if (strncmp(name, file_name, before) != 0)
        return -1;
    const int64_t i = index_at(file_name + before, &end);
    return i >= 0 && i < parts && strcmp(end, star + 1) == 0 ? i : -1;
}

bool kc_name_is_constant(const char *file_name)
{
    const bool mask = strncmp(plain(file_name), "h.", 2) == 0 &&
                      (ends_with(file_name, ".attn.bias") || ends_with(file_name, ".attn.masked_bias"));
    return mask || ends_with(file_name, ".rotary_emb.inv_freq");
}

bool kc_name_is_head(const char *file_name)
{
    return strcmp(plain(file_name), "lm_head.weight") == 0;
}

bool kc_name_is_embedding(const char *name)
{
    return strcmp(plain(name), "wte.weight") == 0 || strcmp(name, "model.embed_tokens.weight") == 0;
}
