/* along.h - files that go along with a model and are none of ours: its tokenizer, and how it is asked to write. They are copied
 * as they are. */
#ifndef KC_STATE_ALONG_H
#define KC_STATE_ALONG_H

#include "storage.h"

#include <stdbool.h>

#define KC_ALONG_FOLDER "tokenizer" /* where an import keeps them, beside its versions */

/* Copy those that `from` has into the folder `to`; with `config` config.json too. *count: how many. -errno. */
int kc_along_copy(const struct kc_storage *st, const char *from, const char *to, bool config, uint32_t *count, struct kc_error *e);
/* Does a folder have any of them? */
bool kc_along_any(const struct kc_storage *st, const char *folder);
/* What `from`/config.json says of special tokens: an object of those that it has, NULL: none. New reference. */
struct json_t *kc_along_tokens(const struct kc_storage *st, const char *from);

#endif
