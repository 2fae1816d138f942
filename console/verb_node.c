/* verb_node.c - the machine: devices and who holds them, memory, supervisor; devices that are taken out of the pool, and put
 * back. What a living kcd publishes of its devices, else what their locks say, so it needs no kcd. */
#include "client.h"
#include "directory.h"
#include "text.h"
#include "verbs.h"

#include "resource/resource.h"
#include "supervisor/protocol.h"

#include <math.h>
#include <string.h>

static double known(const struct kc_device *d, enum kc_device_field field, double value)
{
    return d->valid & field ? value : NAN;
}

struct node {
    const struct kc_pool *pool;
    const struct kc_memory *memory; /* NULL: unknown */
    struct directory_devices *kcd;  /* NULL: none lives */
    int pid;                        /* of the kcd that answers; 0 */
};

/* State and holder of device i. */
static void live_of(const struct node *n, size_t i, struct kc_device_live *out)
{
    char name[32];
    const struct kc_directory_device *seen = NULL;
    kc_pool_live(n->pool, i, out);
    kc_device_name(kc_pool_device(n->pool, i), name);
    if (n->kcd)
        seen = directory_device(n->kcd, name);
    if (!seen || seen->state >= KC_DEVICE_STATE_UNKNOWN)
        return;
    out->state = seen->state == KC_DEVICE_STATE_FAULTY   ? KC_DEVICE_FAULTY
                 : seen->state == KC_DEVICE_STATE_LEASED ? KC_DEVICE_LEASED
                                                         : KC_DEVICE_IDLE;
    out->leased = *seen->job != 0;
    out->shared = out->shared && out->leased;
    snprintf(out->job, sizeof out->job, "%s", seen->job);
    out->rank = seen->rank < 0 ? 0 : (uint32_t)seen->rank;
    snprintf(out->reason, sizeof out->reason, "%s", strcmp(seen->health, "ok") ? seen->health : "");
}

static json_t *device_json(const struct kc_device *d, const struct kc_device_live *live)
{
    char name[32];
    json_t *o = json_object();
    kc_device_name(d, name);
    json_object_set_new(o, "name", json_string(name));
    json_object_set_new(o, "kind", json_string(d->kind));
    json_object_set_new(o, "model", session_text(d->model));
    json_object_set_new(o, "isa", session_text(d->isa));
    json_object_set_new(o, "numa", d->valid & KC_DEVICE_NUMA ? json_integer(d->numa) : json_null());
    json_object_set_new(o, "core", d->valid & KC_DEVICE_CORE ? json_integer(d->core) : json_null());
    json_object_set_new(o, "peak_flops", kc_json_number(known(d, KC_DEVICE_PEAK, d->peak_flops)));
    json_object_set_new(o, "memory_bytes", kc_json_number(known(d, KC_DEVICE_MEMORY_TOTAL, (double)d->memory_total)));
    json_object_set_new(o, "memory_free_bytes",
                        kc_json_number(known(d, KC_DEVICE_MEMORY_FREE, (double)d->memory_free)));
    json_object_set_new(
        o, "state", live->state == KC_DEVICE_UNKNOWN ? json_null() : json_string(kc_device_state_name[live->state]));
    json_object_set_new(o, "reason", session_text(live->reason));
    json_object_set_new(o, "job", session_text(live->job));
    json_object_set_new(o, "rank", *live->job ? json_integer(live->rank) : json_null());
    return o;
}

static void print_device(FILE *out, const struct kc_device *d, const struct kc_device_live *live)
{
    char name[32], numa[16] = "-", peak[32], memory[32], holder[96] = "-";
    kc_device_name(d, name);
    if (d->valid & KC_DEVICE_NUMA)
        snprintf(numa, sizeof numa, "%u", d->numa);
    if (*live->job)
        snprintf(holder, sizeof holder, "%s/%u%s", live->job, live->rank, live->shared ? " and others" : "");
    fprintf(out, "%-10s %-8s %-9s %4s %9s %10s  %s%s%s\n", name, kc_device_state_name[live->state], d->isa,
            numa, text_rate(known(d, KC_DEVICE_PEAK, d->peak_flops), peak, sizeof peak),
            text_bytes(known(d, KC_DEVICE_MEMORY_TOTAL, (double)d->memory_total), memory, sizeof memory), holder,
            *live->reason ? ": " : "", live->reason);
}

static void print_memory(FILE *out, const struct kc_memory *m)
{
    char a[32], b[32], c[32];
    fprintf(out, "memory      %s, %s available", text_bytes((double)m->total, a, sizeof a),
            text_bytes((double)m->available, b, sizeof b));
    if (m->limited)
        fprintf(out, ", limited to %s, of which %s are left", text_bytes((double)m->limit, a, sizeof a),
                text_bytes((double)m->headroom, c, sizeof c));
    fputc('\n', out);
}

static json_t *memory_json(const struct kc_memory *m)
{
    return json_pack("{s:I,s:I,s:o,s:o}", "total_bytes", (json_int_t)m->total, "available_bytes",
                     (json_int_t)m->available, "limit_bytes",
                     m->limited ? json_integer((json_int_t)m->limit) : json_null(), "headroom_bytes",
                     m->limited ? json_integer((json_int_t)m->headroom) : json_null());
}

static int emit_node(struct session *s, const struct node *n)
{
    json_t *o = session_envelope(s), *devices = json_array();
    for (size_t i = 0; i < kc_pool_count(n->pool); i++) {
        struct kc_device_live live;
        live_of(n, i, &live);
        json_array_append_new(devices, device_json(kc_pool_device(n->pool, i), &live));
    }
    json_object_set_new(o, "host", session_text(s->home.host));
    json_object_set_new(o, "instance", session_text(s->home.instance));
    json_object_set_new(o, "home", session_text(s->home.home));
    json_object_set_new(o, "kcd", n->pid ? json_integer(n->pid) : json_null());
    json_object_set_new(o, "memory", n->memory ? memory_json(n->memory) : json_null());
    json_object_set_new(o, "devices_told_by", json_string(n->kcd ? "kcd" : "locks"));
    json_object_set_new(o, "devices", devices);
    return session_emit(s, o);
}

static int print_node(struct session *s, const struct node *n)
{
    struct draft d;
    FILE *out = draft_open(&d);
    fprintf(out, "node        %s, instance %s\nhome        %s\n", s->home.host, s->home.instance, s->home.home);
    if (n->pid)
        fprintf(out, "kcd         pid %d\n", n->pid);
    else
        fprintf(out, "kcd         none. Start one: kcd --daemon\n");
    if (n->memory)
        print_memory(out, n->memory);
    fprintf(out, "\n%-10s %-8s %-9s %4s %9s %10s  %s\n", "DEVICE", "STATE", "ISA", "NUMA", "FLOP/S", "MEMORY",
            "HELD BY");
    for (size_t i = 0; i < kc_pool_count(n->pool); i++) {
        struct kc_device_live live;
        live_of(n, i, &live);
        print_device(out, kc_pool_device(n->pool, i), &live);
    }
    return draft_close(s, &d);
}

int verb_node(struct session *s, const struct arguments *a)
{
    (void)a;
    static struct directory_devices kcd; /* 130 KiB */
    struct kc_pool_config config = {.home = s->home.home, .run_dir = s->home.node, .look = true};
    struct kc_pool *pool = NULL;
    struct kc_memory memory;
    struct kc_error e = {""};
    int rc = kc_pool_open(&config, &pool, &e), code = KC_EXIT_OK;
    if (rc)
        return session_fail(s, session_code(rc), "%s", e.text);
    struct node n = {.pool = pool, .pid = client_pid(&s->home)};
    if (!kc_resource_memory(NULL, &memory))
        n.memory = &memory;
    if (!directory_devices(&s->home, &kcd))
        n.kcd = &kcd;
    code = s->json ? emit_node(s, &n) : print_node(s, &n);
    kc_pool_close(pool);
    return code;
}

/* ---- drain and return ---- */

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
            json_object_set_new(o, "device", device_json(kc_pool_device(pool, i), &live));
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
