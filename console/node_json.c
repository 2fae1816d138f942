/* node_json.c - struct node as the object that `kc node --json` prints, and back: the screen asks for it by another kc. */
#include "node.h"

#include "session.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static json_t *whole(int64_t n)
{
    return n < 0 ? json_null() : json_integer(n);
}

static json_t *bytes_json(double bytes)
{
    return isnan(bytes) ? json_null() : json_integer((json_int_t)bytes);
}

static json_t *user_json(const struct node_user *u)
{
    json_t *o = json_pack("{s:I}", "pid", (json_int_t)u->pid);
    json_object_set_new(o, "user", session_text(u->user));
    json_object_set_new(o, "ours", *u->user ? json_boolean(u->ours) : json_null());
    json_object_set_new(o, "program", session_text(u->program));
    json_object_set_new(o, "memory_bytes", bytes_json(u->memory));
    return o;
}

json_t *node_device_json(const struct node_device *d)
{
    json_t *o = json_object(), *users = d->users < 0 ? json_null() : json_array();
    for (size_t i = 0; i < d->named; i++)
        json_array_append_new(users, user_json(&d->user[i]));
    json_object_set_new(o, "name", json_string(d->name));
    json_object_set_new(o, "kind", json_string(d->kind));
    json_object_set_new(o, "model", session_text(d->model));
    json_object_set_new(o, "isa", session_text(d->isa));
    json_object_set_new(o, "numa", whole(d->numa));
    json_object_set_new(o, "core", whole(d->core));
    json_object_set_new(o, "peak_flops", kc_json_number(d->peak_flops));
    json_object_set_new(o, "memory_bytes", bytes_json(d->memory));
    json_object_set_new(o, "memory_free_bytes", bytes_json(d->memory_free));
    json_object_set_new(o, "busy_ratio", kc_json_number(d->busy));
    json_object_set_new(o, "temperature_celsius", kc_json_number(d->celsius));
    json_object_set_new(o, "power_watts", kc_json_number(d->watts));
    json_object_set_new(o, "state", d->state == KC_DEVICE_UNKNOWN ? json_null() : json_string(kc_device_state_name[d->state]));
    json_object_set_new(o, "reason", session_text(d->reason));
    json_object_set_new(o, "job", session_text(d->job));
    json_object_set_new(o, "rank", whole(d->rank));
    json_object_set_new(o, "shared", json_boolean(d->shared));
    json_object_set_new(o, "processes_count", whole(d->users));
    json_object_set_new(o, "processes", users);
    return o;
}

void node_json(const struct node *n, json_t *o)
{
    json_t *devices = json_array(), *memory = json_null(), *load = json_null();
    for (size_t i = 0; i < n->devices; i++)
        json_array_append_new(devices, node_device_json(&n->device[i]));
    if (!isnan(n->memory)) {
        memory = json_object();
        json_object_set_new(memory, "total_bytes", bytes_json(n->memory));
        json_object_set_new(memory, "available_bytes", bytes_json(n->available));
        json_object_set_new(memory, "limit_bytes", bytes_json(n->limit));
        json_object_set_new(memory, "headroom_bytes", bytes_json(n->headroom));
    }
    if (!isnan(n->load[0]))
        load = json_pack("[f,f,f]", n->load[0], n->load[1], n->load[2]);
    json_object_set_new(o, "host", session_text(n->host));
    json_object_set_new(o, "instance", session_text(n->instance));
    json_object_set_new(o, "home", session_text(n->home));
    json_object_set_new(o, "kcd", whole(n->kcd));
    json_object_set_new(o, "memory", memory);
    json_object_set_new(o, "load_averages", load);
    json_object_set_new(o, "devices_told_by", json_string(n->told_by_kcd ? "kcd" : "locks"));
    json_object_set_new(o, "devices", devices);
}

/* ---- back ---- */

static double real_in(const json_t *o, const char *key)
{
    const json_t *v = json_object_get(o, key);
    return json_is_number(v) ? json_number_value(v) : NAN;
}

#define TEXT_IN(object, key, field) snprintf(field, sizeof(field), "%s", kc_json_text(object, key, ""))

static void take_user(const json_t *o, struct node_user *u)
{
    u->pid = kc_json_integer(o, "pid", -1);
    u->ours = json_is_true(json_object_get(o, "ours"));
    u->memory = real_in(o, "memory_bytes");
    TEXT_IN(o, "user", u->user);
    TEXT_IN(o, "program", u->program);
}

static int take_device(const json_t *o, struct node_device *d)
{
    const json_t *users = json_object_get(o, "processes");
    const int state = kc_name_find(kc_device_state_name, KC_DEVICE_STATES, kc_json_text(o, "state", ""));
    *d = (struct node_device){.numa = kc_json_integer(o, "numa", -1),
                              .core = kc_json_integer(o, "core", -1),
                              .peak_flops = real_in(o, "peak_flops"),
                              .memory = real_in(o, "memory_bytes"),
                              .memory_free = real_in(o, "memory_free_bytes"),
                              .busy = real_in(o, "busy_ratio"),
                              .celsius = real_in(o, "temperature_celsius"),
                              .watts = real_in(o, "power_watts"),
                              .state = state < 0 ? KC_DEVICE_UNKNOWN : state,
                              .rank = kc_json_integer(o, "rank", -1),
                              .shared = json_is_true(json_object_get(o, "shared")),
                              .users = kc_json_integer(o, "processes_count", -1)};
    TEXT_IN(o, "name", d->name);
    TEXT_IN(o, "kind", d->kind);
    TEXT_IN(o, "model", d->model);
    TEXT_IN(o, "isa", d->isa);
    TEXT_IN(o, "reason", d->reason);
    TEXT_IN(o, "job", d->job);
    if (json_array_size(users) == 0)
        return 0;
    d->user = calloc(json_array_size(users), sizeof *d->user);
    if (!d->user)
        return -ENOMEM;
    for (; d->named < json_array_size(users); d->named++)
        take_user(json_array_get(users, d->named), &d->user[d->named]);
    return 0;
}

int node_of_json(const json_t *o, struct node *out)
{
    const json_t *devices = json_object_get(o, "devices"), *memory = json_object_get(o, "memory");
    const json_t *load = json_object_get(o, "load_averages");
    struct node n = {.kcd = kc_json_integer(o, "kcd", -1),
                     .told_by_kcd = strcmp(kc_json_text(o, "devices_told_by", ""), "kcd") == 0,
                     .memory = real_in(memory, "total_bytes"),
                     .available = real_in(memory, "available_bytes"),
                     .limit = real_in(memory, "limit_bytes"),
                     .headroom = real_in(memory, "headroom_bytes")};
    if (!json_is_array(devices))
        return -EINVAL;
    for (size_t i = 0; i < 3; i++) {
        const json_t *v = json_array_get(load, i);
        n.load[i] = json_is_number(v) ? json_number_value(v) : NAN;
    }
    TEXT_IN(o, "host", n.host);
    TEXT_IN(o, "instance", n.instance);
    TEXT_IN(o, "home", n.home);
    n.device = calloc(json_array_size(devices) + 1, sizeof *n.device);
    int rc = n.device ? 0 : -ENOMEM;
    for (size_t i = 0; !rc && i < json_array_size(devices); i++, n.devices++)
        rc = take_device(json_array_get(devices, i), &n.device[i]);
    if (rc) {
        node_free(&n);
        return rc;
    }
    *out = n;
    return 0;
}
