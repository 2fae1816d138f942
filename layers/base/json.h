/* json.h - small helpers over jansson. A number that JSON cannot hold (NaN, infinity) becomes null, never a lost object. */
#ifndef KC_BASE_JSON_H
#define KC_BASE_JSON_H

#include <jansson.h>

/* Nine significant digits, sorted as inserted, compact: how every file and --json output of ours is written. */
#define KC_JSON_FLAGS (JSON_COMPACT | JSON_REAL_PRECISION(9))
#define KC_JSON_PRETTY (JSON_INDENT(1) | JSON_REAL_PRECISION(9))

/* A new reference: the number, or null if it is not finite. */
json_t *kc_json_number(double value);
/* Object member access with a default; a member that is missing or of another type gives the default. Borrowed. */
const char *kc_json_text(const json_t *object, const char *key, const char *otherwise);
double kc_json_real(const json_t *object, const char *key, double otherwise);
long long kc_json_integer(const json_t *object, const char *key, long long otherwise);

#endif
