/* call.c - checks and names calls. Touches no buffer. */
#include "call.h"

#include <errno.h>
#include <inttypes.h>

#define COUNT_LIMIT (SIZE_MAX >> 12) /* elements × 8 bytes × 64 ranks still is a size */

static size_t sum(const uint64_t *counts, uint32_t n)
{
    size_t total = 0;
    for (uint32_t i = 0; i < n; i++)
        total += counts[i];
    return total;
}

size_t call_in_count(const struct kc_comm_call *c, uint32_t members, uint32_t position)
{
    switch ((enum kc_primitive)c->primitive) {
    case KC_BROADCAST: return (int32_t)position == c->peer ? c->count : 0;
    case KC_ALL_TO_ALL: return sum(c->send_counts, members);
    case KC_RECV: case KC_BARRIER: return 0;
    default: return c->count;
    }
}

size_t call_out_count(const struct kc_comm_call *c, uint32_t members, uint32_t position)
{
    (void)position;
    switch ((enum kc_primitive)c->primitive) {
    case KC_ALL_GATHER: return c->count * members;
    case KC_REDUCE_SCATTER: return c->count / members;
    case KC_ALL_TO_ALL: return sum(c->recv_counts, members);
    case KC_SEND: case KC_BARRIER: return 0;
    default: return c->count;
    }
}

static int check_counts(const struct kc_group *g, const struct kc_comm_call *c, struct kc_error *e)
{
    if (c->primitive != KC_ALL_TO_ALL) {
        if (c->count > COUNT_LIMIT)
            return kc_fail(e, -EINVAL, "%zu elements are more than there can be", c->count);
        if (c->primitive == KC_REDUCE_SCATTER && c->count % g->count)
            return kc_fail(e, -EINVAL, "reduce-scatter of %zu elements over %u ranks: the count must be a multiple",
                           c->count, g->count);
        return 0;
    }
    if (!c->send_counts || !c->recv_counts)
        return kc_fail(e, -EINVAL, "all-to-all needs send_counts and recv_counts");
    for (uint32_t i = 0; i < g->count; i++) {
        if (c->send_counts[i] > COUNT_LIMIT || c->recv_counts[i] > COUNT_LIMIT)
            return kc_fail(e, -EINVAL, "all-to-all: the counts for position %u are more than there can be", i);
    }
    if (c->send_counts[g->position] != c->recv_counts[g->position])
        return kc_fail(e, -EINVAL, "all-to-all: position %u sends itself %" PRIu64 " elements but expects %" PRIu64,
                       g->position, c->send_counts[g->position], c->recv_counts[g->position]);
    return 0;
}

/* In place means exactly here; everything else must be apart. */
static int check_overlap(const struct kc_group *g, const struct kc_comm_call *c, size_t in_bytes, size_t out_bytes,
                         struct kc_error *e)
{
    uintptr_t in = (uintptr_t)c->in, out = (uintptr_t)c->out, bytes = kc_type_bytes[c->type];
    if (!in_bytes || !out_bytes || in + in_bytes <= out || out + out_bytes <= in)
        return 0;
    bool exact = in == out;
    if (c->primitive == KC_ALL_GATHER)
        exact = in == out + g->position * c->count * bytes;
    else if (c->primitive == KC_REDUCE_SCATTER)
        exact = out == in + g->position * (c->count / g->count) * bytes;
    if (!exact)
        return kc_fail(e, -EINVAL, "in and out overlap: they must be apart, or in place");
    if (c->primitive == KC_ALL_TO_ALL && memcmp(c->send_counts, c->recv_counts, g->count * sizeof *c->send_counts))
        return kc_fail(e, -EINVAL, "all-to-all in place needs equal send_counts and recv_counts");
    return 0;
}

static int check_buffers(const struct kc_group *g, const struct kc_comm_call *c, struct kc_error *e)
{
    uintptr_t bytes = kc_type_bytes[c->type];
    size_t in = call_in_count(c, g->count, g->position) * bytes,
           out = call_out_count(c, g->count, g->position) * bytes;
    bool root = c->primitive == KC_BROADCAST && c->peer == (int32_t)g->position;
    if (root && !c->out)
        out = 0;
    if ((in && !c->in) || (out && !c->out))
        return kc_fail(e, -EINVAL, "%s is missing", in && !c->in ? "in" : "out");
    if ((in && (uintptr_t)c->in % bytes) || (out && (uintptr_t)c->out % bytes))
        return kc_fail(e, -EINVAL, "in and out must be aligned to the %u bytes of %s", kc_type_bytes[c->type],
                       kc_type_name[c->type]);
    return check_overlap(g, c, in, out, e);
}

static int check_peer(const struct kc_group *g, const struct kc_comm_call *c, struct kc_error *e)
{
    if (c->primitive != KC_BROADCAST && !call_pairs(c))
        return 0;
    if (c->peer < 0 || (uint32_t)c->peer >= g->count)
        return kc_fail(e, -EINVAL, "%s: position %d is not in the group of %u", kc_primitive_name[c->primitive],
                       c->peer, g->count);
    if (call_pairs(c) && (uint32_t)c->peer == g->position)
        return kc_fail(e, -EINVAL, "%s: position %d is this rank itself", kc_primitive_name[c->primitive], c->peer);
    return 0;
}

int call_check(const struct kc_group *g, const struct kc_comm_call *c, struct kc_error *e)
{
    if (c->primitive >= KC_PRIMITIVES || c->algorithm >= KC_ALGORITHMS)
        return kc_fail(e, -EINVAL, "primitive %u, algorithm %u: there is no such one", c->primitive, c->algorithm);
    if (c->primitive == KC_BARRIER)
        return 0;
    if (c->type >= KC_TYPES || (call_reduces(c) && c->reduce >= KC_REDUCES))
        return kc_fail(e, -EINVAL, "type %u, reduce %u: there is no such one", c->type, c->reduce);
    int code = check_peer(g, c, e);
    if (code == 0)
        code = check_counts(g, c, e);
    if (code == 0)
        code = check_buffers(g, c, e);
    return code;
}

void call_normalise(struct kc_comm_call *c)
{
    if (c->primitive == KC_BARRIER) {
        c->type = 0;
        c->count = 0;
        c->in = c->out = NULL;
    }
    if (c->primitive == KC_ALL_TO_ALL)
        c->count = 0;
    if (c->primitive == KC_SEND)
        c->out = NULL;
    if (c->primitive == KC_RECV)
        c->in = NULL;
    if (!call_reduces(c))
        c->reduce = 0;
    if (c->primitive != KC_BROADCAST && !call_pairs(c))
        c->peer = -1;
}

/* A name from a table; the index may come from a corrupt peer. */
static const char *name(const char *const *names, uint32_t count, uint32_t i)
{
    return i < count ? names[i] : "?";
}

void call_text(const struct kc_comm_call *c, int32_t peer, char out[CALL_TEXT])
{
    const char *what = name(kc_primitive_name, KC_PRIMITIVES, c->primitive);
    const char *how = name(kc_algorithm_name, KC_ALGORITHMS, c->algorithm);
    const char *type = name(kc_type_name, KC_TYPES, c->type);
    if (c->primitive == KC_BARRIER)
        snprintf(out, CALL_TEXT, "%s %s #%" PRIu64, what, how, c->sequence);
    else if (c->primitive == KC_ALL_TO_ALL)
        snprintf(out, CALL_TEXT, "%s %s %s #%" PRIu64, what, type, how, c->sequence);
    else if (call_reduces(c))
        snprintf(out, CALL_TEXT, "%s %s %s %s %zu #%" PRIu64, what, type, name(kc_reduce_name, KC_REDUCES, c->reduce),
                 how, c->count, c->sequence);
    else if (c->primitive == KC_BROADCAST)
        snprintf(out, CALL_TEXT, "%s %s %s %zu from position %d #%" PRIu64, what, type, how, c->count, peer,
                 c->sequence);
    else if (call_pairs(c))
        snprintf(out, CALL_TEXT, "%s %s %s %zu %s rank %d #%" PRIu64, what, type, how, c->count,
                 c->primitive == KC_SEND ? "to" : "from", peer, c->sequence);
    else
        snprintf(out, CALL_TEXT, "%s %s %s %zu #%" PRIu64, what, type, how, c->count, c->sequence);
}
