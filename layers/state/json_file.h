/* json_file.h - a file of JSON beside values. */
#ifndef KC_STATE_JSON_FILE_H
#define KC_STATE_JSON_FILE_H

#include "storage.h"

struct json_t;

/* Write `json` to the new file folder/name, as people read it; takes the reference. NULL is -ENOMEM. */
int kc_json_write(const struct kc_storage *st, const char *folder, const char *name, struct json_t *json, struct kc_error *e);

#endif
