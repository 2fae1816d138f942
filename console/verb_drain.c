/* verb_drain.c - kc node drain and kc node return: devices that are taken out of the pool, and put back. Works without kcd. */
#include "client.h"
#include "node.h"
#include "session.h"
#include "verbs.h"

#include "resource/resource.h"
#include "supervisor/protocol.h"

#include <stdio.h>
#include <string.h>

static int unknown_device(struct session *s, const struct kc_pool *pool, const char *name)
{
    char list[256] = "", one[32];
    for (size_t i = 0; i < kc_pool_count(pool) && strlen(list) < 200; i++) {
        kc_device_name(kc_pool_device(pool, i), one);
        snprintf(list + strlen(list), sizeof list - strlen(list), "%s%s", i ? ", " : "", one);
    }
    return session_fail(s, KC_EXIT_NO_OBJECT, "there is no device %.60s here. There are %s", name, list);
}

static void print_mark(struct session *s, const char *name, const char *reason, const struct kc_device_live *live)
{
    fprintf(s->out, "%s %s", name, reason ? "is drained" : live->state == KC_DEVICE_FAULTY ? "is no longer drained" : "is back");
    if (!reason && live->state == KC_DEVICE_FAULTY)
        fprintf(s->out, ", but faulty: %s", live->reason);
    else if (live->leased)
        fprintf(s->out, "; %s/%u has it%s", live->job, live->rank, reason ? " until its ranks end or fail" : "");
    fputc('\n', s->out);
}

/* reason NULL: back into the pool. */
static int mark(struct session *s, const char *name, const char *reason)
{
    struct kc_pool_config config = {.home = s->home.home, .run_dir = s->home.node};
    struct kc_pool *pool = NULL;
    struct kc_device_live live;
    struct kc_error e = {""};
    char one[32];
    size_t i = 0;
    int rc = kc_pool_open(&config, &pool, &e), code;
    if (rc)
        return session_fail(s, session_code(rc), "%s", e.text);
    for (; i < kc_pool_count(pool); i++) {
        kc_device_name(kc_pool_device(pool, i), one);
        if (strcmp(one, name) == 0)
            break;
    }
    if (i == kc_pool_count(pool)) {
        code = unknown_device(s, pool, name);
    } else if ((rc = kc_pool_mark(pool, i, reason, &e)) < 0) {
        code = session_fail(s, session_code(rc), "%s", e.text);
    } else {
        kc_pool_live(pool, i, &live);
        if (client_pid(&s->home)) /* who has jobs waiting for devices looks at once; without one it is done, too */
            client_ask(s, "devices", NULL, NULL);
        if (s->json) {
            json_t *o = session_envelope(s);
            struct node_device d;
            node_device_of(kc_pool_device(pool, i), &live, &d);
            json_object_set_new(o, "device", node_device_json(&d));
            code = session_emit(s, o);
        } else {
            print_mark(s, name, reason, &live);
            code = KC_EXIT_OK;
        }
    }
    kc_pool_close(pool);
    return code;
}

int verb_node_drain(struct session *s, const struct arguments *a)
{
    const char *reason = a->option[OPTION_REASON];
    if (reason && (!*reason || strlen(reason) > 100 || strpbrk(reason, "\n\r")))
        return session_fail(s, KC_EXIT_USAGE, "--reason is one line of 1 to 100 bytes");
    return mark(s, a->word[0], reason ? reason : "drained");
}

int verb_node_return(struct session *s, const struct arguments *a)
{
    return mark(s, a->word[0], NULL);
}
