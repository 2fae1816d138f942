/* trace_file.c - see trace_file.h. */
#include "trace_file.h"

#include "base/file.h"

#include "contracts/exec_plan.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>


static bool text_ends(const struct kc_step_trace *t, kc_text text)
{
    return text < t->head.bytes && memchr((const char *)t + text, 0, t->head.bytes - text);
}

/* The product of `rank` sizes, none of them 0; 0 where it is not below 2^62. */
static uint64_t product(const uint64_t *size, uint8_t rank)
{
    uint64_t n = 1;
    for (int d = 0; d < rank; d++)
        if (size[d] == 0 || size[d] > (UINT64_C(1) << 62) / n)
            return 0;
        else
            n *= size[d];
    return n;
}

uint64_t trace_elements(const struct kc_traced *row)
{
    return product(row->whole, row->rank);
}

static bool row_fits(const struct kc_step_trace *t, const struct kc_traced *r)
{
    if (r->when >= KC_TRACED_WHENS || r->lane >= KC_LANES || r->type >= KC_TYPES || r->rank > KC_DIMS_MAX)
        return false;
    for (int d = 0; d < r->rank; d++)
        if (r->whole[d] < r->size[d] || r->first[d] > r->whole[d] - r->size[d])
            return false;
    const uint64_t box = product(r->size, r->rank);
    return box && product(r->whole, r->rank) && r->lo <= box && r->count <= box - r->lo && text_ends(t, r->op) &&
           text_ends(t, r->what) && text_ends(t, r->tensor);
}

/* The digest says that the block is what was written; what was written need not make sense. */
static bool makes_sense(const struct kc_step_trace *t)
{
    const uint64_t bytes = t->head.bytes;
    if (bytes < sizeof *t || t->ranks == 0 || t->ranks > KC_RANKS_MAX || t->rank >= t->ranks || !text_ends(t, t->variant))
        return false;
    if (t->rows.offset % _Alignof(struct kc_traced) || t->rows.offset > bytes ||
        t->rows.count > (bytes - t->rows.offset) / sizeof(struct kc_traced) || (t->rows.count && t->rows.offset < sizeof *t))
        return false;
    for (uint32_t i = 0; i < t->rows.count; i++)
        if (!row_fits(t, &trace_rows(t)[i]))
            return false;
    return true;
}

/* The block at the beginning of `data`, in memory of its own. */
static int take(const char *data, size_t bytes, uint32_t rank, const struct trace *before, struct kc_step_trace **out)
{
    struct kc_contract head;
    if (bytes < sizeof head)
        return -EBADMSG;
    memcpy(&head, data, sizeof head);
    if (head.magic != KC_CONTRACT_MAGIC || head.kind != KC_CONTRACT_STEP_TRACE || head.version != KC_STEP_TRACE_VERSION)
        return -EPROTO;
    if (head.bytes > bytes || head.bytes < sizeof head)
        return -EBADMSG;
    struct kc_step_trace *t = malloc(head.bytes);
    if (!t)
        return -ENOMEM;
    memcpy(t, data, head.bytes);
    int rc = kc_contract_check(t, head.bytes, KC_CONTRACT_STEP_TRACE, KC_STEP_TRACE_VERSION);
    if (!rc && (!makes_sense(t) || t->rank != rank))
        rc = -EBADMSG;
    if (!rc && rank && (t->ranks != before->rank[0]->ranks || t->step != before->rank[0]->step))
        rc = -EBADMSG;
    if (rc)
        free(t);
    else
        *out = t;
    return rc;
}

int trace_load(const char *path, struct trace *out, struct kc_error *e)
{
    struct trace t = {0};
    char *data = NULL;
    size_t bytes = 0, at = 0;
    int rc = kc_file_read(path, KC_STEP_TRACE_MOST, &data, &bytes);
    if (!rc && !(t.rank = calloc(KC_RANKS_MAX, sizeof *t.rank)))
        rc = -ENOMEM;
    while (!rc && (t.ranks == 0 || t.ranks < t.rank[0]->ranks)) {
        rc = take(data + at, bytes - at, t.ranks, &t, &t.rank[t.ranks]);
        if (!rc)
            at += t.rank[t.ranks++]->head.bytes;
    }
    if (!rc && at != bytes)
        rc = -EBADMSG;
    free(data);
    if (!rc) {
        *out = t;
        return 0;
    }
    trace_free(&t);
    return kc_fail(e, rc, rc == -EPROTO    ? "%s: no trace that this kc reads. `kc trace JOB --step S` writes one"
                          : rc == -EBADMSG ? "%s: a damaged trace, or cut off. Make it again: kc trace JOB --step S"
                          : rc == -ENOENT  ? "%s: neither a job nor a file"
                                           : "%s: it can't be read", path);
}

void trace_free(struct trace *t)
{
    for (uint32_t i = 0; t->rank && i < t->ranks; i++)
        free(t->rank[i]);
    free(t->rank);
    *t = (struct trace){0};
}
