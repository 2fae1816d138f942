/* along.c - see along.h. */
#include "along.h"

#include "base/json.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>

#define LIMIT (UINT64_C(256) << 20) /* bytes of one: vocabularies have some ten MiB */

static const char *const names[] = {"tokenizer.json", "tokenizer_config.json", "tokenizer.model", "vocab.json", "merges.txt",
    "vocab.txt", "special_tokens_map.json", "added_tokens.json", "chat_template.jinja", "generation_config.json"};
static const char *const tokens[] = {"bos_token_id", "eos_token_id", "pad_token_id"};

static int copy(const struct kc_storage *st, const char *from, const char *to, const char *name, uint32_t *count, struct kc_error *e)
{
    char path[4096], target[4096], *data;
    size_t bytes;
    snprintf(path, sizeof path, "%.4000s/%s", from, name);
    snprintf(target, sizeof target, "%.4000s/%s", to, name);
    int r = kc_storage_read_file(st, path, LIMIT, &data, &bytes);
    if (r == -ENOENT || r == -ENOTDIR)
        return 0;
    if (r < 0)
        return kc_storage_fail(st, e, r, "read", path, 0);
    r = kc_storage_write_file(st, target, data, bytes);
    free(data);
    *count += r == 0;
    return r < 0 ? kc_storage_fail(st, e, r, "write", target, bytes) : 0;
}

int kc_along_copy(const struct kc_storage *st, const char *from, const char *to, bool config, uint32_t *count, struct kc_error *e)
{
    int r = 0;
    *count = 0;
    for (size_t i = 0; i < sizeof names / sizeof names[0] && r == 0; i++)
        r = copy(st, from, to, names[i], count, e);
    return r == 0 && config ? copy(st, from, to, "config.json", count, e) : r;
}

bool kc_along_any(const struct kc_storage *st, const char *folder)
{
    char path[4096];
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        snprintf(path, sizeof path, "%.4000s/%s", folder, names[i]);
        const int fd = st->open(st->self, path, O_RDONLY | O_NONBLOCK);
        if (fd >= 0)
            st->close(st->self, fd);
        if (fd >= 0)
            return true;
    }
    return false;
}

json_t *kc_along_tokens(const struct kc_storage *st, const char *from)
{
    char path[4096];
    json_t *config = NULL, *out;
    snprintf(path, sizeof path, "%.4000s/config.json", from);
    if (kc_storage_read_json(st, path, &config, &(struct kc_error){""}) < 0)
        return NULL;
    out = json_object();
    for (size_t i = 0; i < sizeof tokens / sizeof tokens[0]; i++) {
        json_t *v = json_object_get(config, tokens[i]);
        if (json_is_integer(v) || json_is_array(v))
            json_object_set(out, tokens[i], v);
    }
    json_decref(config);
    return out;
}
