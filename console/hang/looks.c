/* looks.c - looks as JSON and back. Numbers of 64 bits that JSON readers may round (arguments, addresses) are texts. */
#include "looks.h"

#include "console/session.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SCHEMA "kc.looks/1"

/* ---- out ------------------------------------------------------------------------------------------------------------------ */

static json_t *hex(uint64_t n)
{
    char text[24];
    snprintf(text, sizeof text, "%#" PRIx64, n);
    return json_string(text);
}

static json_t *letter(char c)
{
    char text[2] = {c, 0};
    return session_text(text);
}

static json_t *thread_json(const struct kc_look_thread *t)
{
    json_t *arguments = json_array();
    for (size_t i = 0; i < sizeof t->argument / sizeof *t->argument; i++)
        json_array_append_new(arguments, hex(t->argument[i]));
    return json_pack("{s:I,s:o,s:o,s:I,s:o,s:i,s:i,s:o,s:o,s:o,s:i,s:o}", "tid", (json_int_t)t->tid, "state", letter(t->state),
                     "name", session_text(t->name), "cpu_ns", (json_int_t)t->cpu, "wait", session_text(t->wait), "kind", (int)t->kind,
                     "call", (int)t->call, "arguments", arguments, "stack", hex(t->stack), "pc", hex(t->pc), "fd", (int)t->fd,
                     "target", session_text(t->target));
}

static json_t *look_json(const struct kc_look *l)
{
    json_t *threads = json_array();
    if (!l->known) {
        json_decref(threads);
        return json_null();
    }
    for (uint32_t i = 0; i < l->threads; i++)
        json_array_append_new(threads, thread_json(&l->thread[i]));
    return json_pack("{s:I,s:o,s:I,s:o,s:I,s:I,s:o}", "pid", (json_int_t)l->pid, "start", hex(l->start), "time_ns", (json_int_t)l->time,
                     "state", letter(l->state), "cpu_ns", (json_int_t)l->cpu, "more", (json_int_t)l->more, "threads", threads);
}

json_t *kc_looks_json(const struct kc_evidence *e)
{
    json_t *ranks = json_array();
    for (uint32_t r = 0; r < e->ranks; r++) {
        const struct kc_rank_evidence *k = &e->rank[r];
        json_array_append_new(ranks, json_pack("{s:I,s:b,s:b,s:o,s:o}", "rank", (json_int_t)r, "gone", k->gone, "moved", k->moved, "first",
                                               look_json(&k->first), "second", look_json(&k->second)));
    }
    return json_pack("{s:s,s:I,s:I,s:o}", "schema", SCHEMA, "now_ns", (json_int_t)e->now, "between_ns", (json_int_t)e->between, "ranks",
                     ranks);
}

/* ---- in -------------------------------------------------------------------------------------------------------------------- */

static uint64_t number(const json_t *o, const char *key)
{
    long long n = kc_json_integer(o, key, 0);
    return n < 0 ? 0 : (uint64_t)n;
}

static uint64_t wide(const json_t *o, const char *key)
{
    return strtoull(kc_json_text(o, key, "0"), NULL, 16);
}

static void put_text(char *out, size_t room, const json_t *o, const char *key)
{
    snprintf(out, room, "%s", kc_json_text(o, key, ""));
}

static struct kc_look_thread put_thread(const json_t *o)
{
    struct kc_look_thread t = {.tid = (uint32_t)number(o, "tid"), .state = *kc_json_text(o, "state", ""), .cpu = number(o, "cpu_ns"),
                               .call = (int32_t)kc_json_integer(o, "call", -2), .stack = wide(o, "stack"), .pc = wide(o, "pc"),
                               .fd = (int32_t)kc_json_integer(o, "fd", -1)};
    const long long kind = kc_json_integer(o, "kind", KC_CALL_UNKNOWN);
    const json_t *arguments = json_object_get(o, "arguments");
    t.kind = kind < 0 || kind > KC_CALL_OTHER ? KC_CALL_UNKNOWN : (enum kc_call_kind)kind;
    for (size_t i = 0; i < sizeof t.argument / sizeof *t.argument; i++) {
        const char *text = json_string_value(json_array_get(arguments, i));
        t.argument[i] = text ? strtoull(text, NULL, 16) : 0;
    }
    put_text(t.name, sizeof t.name, o, "name");
    put_text(t.wait, sizeof t.wait, o, "wait");
    put_text(t.target, sizeof t.target, o, "target");
    return t;
}

static void put_look(struct kc_look *l, const json_t *o)
{
    const json_t *threads = json_object_get(o, "threads");
    memset(l, 0, sizeof *l);
    if (!json_is_object(o))
        return;
    l->known = 1;
    l->pid = (uint32_t)number(o, "pid");
    l->start = wide(o, "start");
    l->time = number(o, "time_ns");
    l->state = *kc_json_text(o, "state", "");
    l->cpu = number(o, "cpu_ns");
    l->more = (uint32_t)number(o, "more");
    for (size_t i = 0; i < json_array_size(threads) && l->threads < KC_LOOK_THREADS; i++)
        l->thread[l->threads++] = put_thread(json_array_get(threads, i));
}

int kc_looks_put(const json_t *looks, struct kc_evidence *e, struct kc_error *error)
{
    const json_t *ranks = json_object_get(looks, "ranks"), *o;
    size_t i;
    if (strcmp(kc_json_text(looks, "schema", ""), SCHEMA) != 0 || !json_is_array(ranks))
        return kc_fail(error, -EINVAL, "it does not hold looks of schema " SCHEMA);
    e->between = number(looks, "between_ns");
    if (number(looks, "now_ns") < e->now) /* the board was saved a moment after the looks */
        e->now = number(looks, "now_ns");
    json_array_foreach(ranks, i, o) {
        const long long r = kc_json_integer(o, "rank", -1);
        if (r < 0 || r >= e->ranks)
            continue;
        struct kc_rank_evidence *k = &e->rank[r];
        k->gone = json_is_true(json_object_get(o, "gone"));
        k->moved = json_is_true(json_object_get(o, "moved"));
        put_look(&k->first, json_object_get(o, "first"));
        put_look(&k->second, json_object_get(o, "second"));
    }
    return 0;
}
