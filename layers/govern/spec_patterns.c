/* spec_patterns.c - lists of shell patterns. Whether they match anything, the model says (jobs/models). */
#include "spec_impl.h"

#include <errno.h>

#define PATTERNS_MAX 1024

int spec_read_patterns(struct reader *r, const char *what, const json_t *value, struct kc_span *out)
{
    char room[64];
    const size_t count = json_array_size(value);
    if (!json_is_array(value) || count > PATTERNS_MAX)
        return kc_fail(r->e, -EINVAL, "%s is %s: it must be a list of at most %d patterns", what, spec_shown(value, room),
                       PATTERNS_MAX);
    kc_text *list = kc_contract_array(r->arena, out, count, sizeof *list);
    for (size_t i = 0; i < count; i++) {
        const char *text = json_string_value(json_array_get(value, i));
        if (!text || !*text)
            return kc_fail(r->e, -EINVAL, "%s[%zu] is %s: it must be a pattern such as \"*.wte.weight\"", what, i,
                           spec_shown(json_array_get(value, i), room));
        if (!list)
            return -ENOSPC;
        list[i] = kc_contract_text(r->arena, text);
    }
    return 0;
}

json_t *spec_patterns_json(const struct kc_job_spec *spec, struct kc_span patterns)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < patterns.count; i++)
        json_array_append_new(list, json_string(KC_TEXT(spec, KC_AT(spec, kc_text, patterns)[i])));
    return list;
}
