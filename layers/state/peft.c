/* peft.c - adapter_config.json: what Hugging Face PEFT reads beside adapter_model.safetensors. */
#include "adapters.h"
#include "json_file.h"
#include "names.h"

#include "base/json.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The module of the weight beside an adapter A, "model.layers.0.self_attn.q_proj"; its length, 0: it is no A. */
static int module(const char *name)
{
    const char *end = strstr(name, ".lora_A.");
    return end ? (int)(end - name) : 0;
}

/* The last two words of a module's name. */
static const char *ending(const char *name, int length)
{
    int dots = 0, at = length;
    while (at > 0 && (dots += name[at - 1] == '.') < 2)
        at--;
    return name + at;
}

/* How many modules of the model have that ending. */
static uint32_t alike(const struct kc_manifest *m, const char *end, int length)
{
    uint32_t n = 0;
    char text[KC_TENSOR_NAME_MAX];
    snprintf(text, sizeof text, ".%.*s.weight", length, end);
    for (uint32_t t = 0; t < m->tensors; t++) {
        const size_t all = strlen(m->tensor[t].name), last = strlen(text);
        n += all > last && strcmp(m->tensor[t].name + all - last, text) == 0;
    }
    return n;
}

/* An ending stands for all modules that have it, if all have adapters; else each is named. */
static json_t *targets(const struct kc_manifest *m)
{
    json_t *endings = json_object(), *list = json_array();
    const char *key;
    json_t *value;
    char text[KC_TENSOR_NAME_MAX];
    for (uint32_t t = 0; t < m->tensors; t++) {
        const char *name = m->tensor[t].name, *end = ending(name, module(name));
        if (!module(name))
            continue;
        snprintf(text, sizeof text, "%.*s", (int)(name + module(name) - end), end);
        json_object_set_new(endings, text, json_integer(json_integer_value(json_object_get(endings, text)) + 1));
    }
    json_object_foreach(endings, key, value)
        if (json_integer_value(value) == (json_int_t)alike(m, key, (int)strlen(key)))
            json_array_append_new(list, json_string(key));
    for (uint32_t t = 0; t < m->tensors; t++) {
        const char *name = m->tensor[t].name, *end = ending(name, module(name));
        const int length = (int)(name + module(name) - end);
        snprintf(text, sizeof text, "%.*s", length, end);
        if (module(name) && json_integer_value(json_object_get(endings, text)) != (json_int_t)alike(m, end, length))
            json_array_append_new(list, json_stringn(name, (size_t)module(name)));
    }
    json_decref(endings);
    return list;
}

int kc_peft_write(const struct kc_storage *st, const char *folder, const struct kc_manifest *m, const char *base, struct kc_error *e)
{
    const bool in_out = strcmp(m->model.family, kc_family_name[KC_FAMILY_GPT2]) == 0;
    json_t *json = json_pack("{s:s, s:s, s:s?, s:I, s:f, s:f, s:s, s:b, s:b, s:b, s:o}", "peft_type", "LORA", "task_type",
                             "CAUSAL_LM", "base_model_name_or_path", base && *base ? base : NULL, "r", (json_int_t)m->lora_rank,
                             "lora_alpha", m->lora_alpha, "lora_dropout", 0.0, "bias", "none", "fan_in_fan_out", in_out,
                             "inference_mode", 1, "init_lora_weights", 1, "target_modules", targets(m));
    return kc_json_write(st, folder, "adapter_config.json", json, e);
}
