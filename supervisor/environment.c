/* environment.c */
#include "environment.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const allowed[] = {KC_ENVIRONMENT_LIST};

bool kc_environment_allowed(const char *name, size_t length)
{
    for (size_t i = 0; i < sizeof allowed / sizeof *allowed; i++) {
        const char *a = allowed[i];
        size_t n = strlen(a);
        if (a[0] == '*' && length > n - 1 && memcmp(name + length - (n - 1), a + 1, n - 1) == 0)
            return true;
        if (a[n - 1] == '*' ? length >= n - 1 && memcmp(name, a, n - 1) == 0 : length == n && memcmp(name, a, n) == 0)
            return true;
    }
    return false;
}

/* Takes `entry`. */
static int put(struct kc_environment *env, char *entry, size_t name)
{
    if (!entry)
        return -ENOMEM;
    for (size_t i = 0; i < env->count; i++) {
        if (strncmp(env->entry[i], entry, name + 1) != 0)
            continue;
        free(env->entry[i]);
        env->entry[i] = entry;
        return 0;
    }
    if (env->count + 2 > env->room) {
        size_t room = env->room ? 2 * env->room : 64;
        char **grown = realloc(env->entry, room * sizeof *grown);
        if (!grown) {
            free(entry);
            return -ENOMEM;
        }
        env->entry = grown;
        env->room = room;
    }
    env->entry[env->count++] = entry;
    env->entry[env->count] = NULL;
    return 0;
}

int kc_environment_set(struct kc_environment *env, const char *name, const char *format, ...)
{
    char *value, *entry;
    va_list list;
    va_start(list, format);
    int n = vasprintf(&value, format, list);
    va_end(list);
    if (n < 0)
        return -ENOMEM;
    n = asprintf(&entry, "%s=%s", name, value);
    free(value);
    return put(env, n < 0 ? NULL : entry, strlen(name));
}

int kc_environment_make(struct kc_environment *env, char *const *from, const struct kc_job_spec *spec)
{
    struct kc_environment new = {0};
    int r = 0;
    for (; r == 0 && *from; from++) {
        size_t name = strcspn(*from, "=");
        if ((*from)[name] == '=' && kc_environment_allowed(*from, name))
            r = put(&new, strdup(*from), name);
    }
    const struct kc_spec_env *e = KC_AT(spec, struct kc_spec_env, spec->env);
    for (uint32_t i = 0; r == 0 && i < spec->env.count; i++)
        r = kc_environment_set(&new, KC_TEXT(spec, e[i].name), "%s", KC_TEXT(spec, e[i].value));
    if (r < 0) {
        kc_environment_free(&new);
        return r;
    }
    *env = new;
    return 0;
}

void kc_environment_free(struct kc_environment *env)
{
    for (size_t i = 0; i < env->count; i++)
        free(env->entry[i]);
    free(env->entry);
    *env = (struct kc_environment){0};
}
