/* json.c */
#include "base/json.h"

#include <math.h>

json_t *kc_json_number(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

const char *kc_json_text(const json_t *object, const char *key, const char *otherwise)
{
    const char *s = json_string_value(json_object_get(object, key));
    return s ? s : otherwise;
}

double kc_json_real(const json_t *object, const char *key, double otherwise)
{
    const json_t *v = json_object_get(object, key);
    return json_is_number(v) ? json_number_value(v) : otherwise;
}

long long kc_json_integer(const json_t *object, const char *key, long long otherwise)
{
    const json_t *v = json_object_get(object, key);
    return json_is_integer(v) ? json_integer_value(v) : otherwise;
}
