/* home.c */
#include "base/home.h"

#include <ctype.h>
#include <errno.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The part of an absolute path that the environment decides. */
static int home_text(const char *home, char *out, size_t room, struct kc_error *e)
{
    const char *value = home && *home ? home : getenv("KC_HOME"), *tail = "";
    char here[PATH_MAX] = "";
    if (!value || !*value) {
        value = getenv("XDG_STATE_HOME");
        tail = "/kuangchao";
    }
    if (!value || !*value) {
        value = getenv("HOME");
        if (!value || !*value) {
            const struct passwd *me = getpwuid(getuid());
            value = me ? me->pw_dir : NULL;
        }
        tail = "/.local/state/kuangchao";
    }
    if (!value || !*value)
        return kc_fail(e, -EINVAL, "no home directory is known for user %u; set KC_HOME", (unsigned)getuid());
    if (value[0] != '/' && !getcwd(here, sizeof here - 1))
        return kc_fail(e, -errno, "the current directory is not readable: %s", strerror(errno));
    size_t length = strlen(value);
    while (length > 1 && value[length - 1] == '/')
        length--;
    int n = snprintf(out, room, "%s%s%.*s%s", here, *here ? "/" : "", (int)length, value, tail);
    if (n < 0 || (size_t)n >= room)
        return kc_fail(e, -ENAMETOOLONG, "KC_HOME is longer than %zu bytes; choose a shorter path", room - 1);
    return 0;
}

int kc_home_find(const char *home, const char *instance, struct kc_home *out, struct kc_error *e)
{
    struct kc_home h = {0};
    if (!instance || !*instance)
        instance = getenv("KC_INSTANCE");
    if (!instance || !*instance)
        instance = "default";
    size_t letters = strspn(instance, "abcdefghijklmnopqrstuvwxyz0123456789-");
    if (letters == 0 || letters >= KC_INSTANCE_ROOM || instance[letters])
        return kc_fail(e, -EINVAL, "instance name '%.60s' is not [a-z0-9-]{1,%d}; choose another (KC_INSTANCE)", instance,
                       KC_INSTANCE_ROOM - 1);
    snprintf(h.instance, sizeof h.instance, "%s", instance);
    if (gethostname(h.host, sizeof h.host - 1) != 0 || !h.host[0])
        snprintf(h.host, sizeof h.host, "localhost");
    for (char *c = h.host; *c; c++)
        if (!isalnum((unsigned char)*c) && *c != '.' && *c != '-')
            *c = '_';
    if (h.host[0] == '.')
        h.host[0] = '_';
    int r = home_text(home, h.home, sizeof h.home, e);
    if (r < 0)
        return r;
    int n = snprintf(h.node, sizeof h.node, "%s/run/%s", h.home, h.host);
    int m = snprintf(h.run, sizeof h.run, "%s/%s", h.node, h.instance);
    if (n < 0 || (size_t)n >= sizeof h.node || m < 0 || (size_t)m >= sizeof h.run)
        return kc_fail(e, -ENAMETOOLONG, "KC_HOME is too long (%zu bytes); choose a shorter path", strlen(h.home));
    *out = h;
    return 0;
}
