/* trace_compare.c - see trace_compare.h. */
#include "trace_compare.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A row and whose it is. */
struct part {
    const struct kc_traced *row;
    const struct kc_step_trace *of;
};

static const char *text(const struct part *p, kc_text t)
{
    return KC_TEXT(p->of, t);
}

/* ---- figures ---- */

static void side_add(struct trace_side *s, const struct part *p)
{
    if (!s->parts++) {
        s->row = p->row;
        s->rank = p->of->rank;
    }
    s->count += p->row->count;
    s->digest += p->row->digest;
    s->nonfinite += p->row->nonfinite;
    s->sum += p->row->sum;
    s->squares += p->row->squares;
    s->largest = fmax(s->largest, p->row->largest);
}

static double share(double difference, double of)
{
    return difference == 0 ? 0 : of > 0 ? fabs(difference) / of : (double)INFINITY;
}

/* How far apart they are, as a share of what they are. */
static double apart(const struct trace_side *a, const struct trace_side *b)
{
    const double squares = fmax(a->squares, b->squares);
    if (a->nonfinite != b->nonfinite || a->count != b->count)
        return (double)INFINITY;
    double far = share(a->sum - b->sum, sqrt((double)a->count * squares));
    far = fmax(far, share(a->squares - b->squares, squares) / 2);
    return fmax(far, share(a->largest - b->largest, fmax(a->largest, b->largest)));
}

/* ---- bit by bit ---- */

static bool same_place(const struct part *a, const struct part *b)
{
    const struct kc_traced *x = a->row, *y = b->row;
    return x->instruction == y->instruction && x->operand == y->operand && x->lane == y->lane && x->type == y->type &&
           x->rank == y->rank && x->micro == y->micro && x->lo == y->lo && x->count == y->count &&
           !memcmp(x->whole, y->whole, sizeof x->whole) && !memcmp(x->first, y->first, sizeof x->first) &&
           !memcmp(x->size, y->size, sizeof x->size) && !strcmp(text(a, x->op), text(b, y->op)) &&
           !strcmp(text(a, x->what), text(b, y->what)) && !strcmp(text(a, x->tensor), text(b, y->tensor));
}

static struct part part_of(const struct trace *t, uint32_t rank, uint32_t row)
{
    return (struct part){trace_rows(t->rank[rank]) + row, t->rank[rank]};
}

/* Do both run the same instructions on the same parts of the same tensors? */
static bool same_layout(const struct trace *a, const struct trace *b)
{
    if (a->ranks != b->ranks)
        return false;
    for (uint32_t r = 0; r < a->ranks; r++) {
        if (a->rank[r]->rows.count != b->rank[r]->rows.count)
            return false;
        for (uint32_t i = 0; i < a->rank[r]->rows.count; i++) {
            const struct part x = part_of(a, r, i), y = part_of(b, r, i);
            if (!same_place(&x, &y))
                return false;
        }
    }
    return true;
}

static void compare_rows(const struct trace *a, const struct trace *b, double tolerance, struct trace_difference *d)
{
    for (uint32_t r = 0; r < a->ranks; r++)
        for (uint32_t i = 0; i < a->rank[r]->rows.count; i++) {
            const struct part x = part_of(a, r, i), y = part_of(b, r, i);
            struct trace_side p = {0}, q = {0};
            side_add(&p, &x);
            side_add(&q, &y);
            d->compared++;
            const bool alike = x.row->when == y.row->when && x.row->digest == y.row->digest;
            const double far = alike ? 0 : x.row->when != y.row->when ? (double)INFINITY : apart(&p, &q);
            if (alike || (!isnan(tolerance) && far <= tolerance))
                continue;
            if (d->differ++ == 0 || x.row->instruction < d->a.row->instruction)
                d->a = p, d->b = q, d->relative = isnan(tolerance) ? (double)NAN : far;
        }
}

/* ---- joined by place ---- */

/* By what a tensor is called and when it was seen, then by rank, then by the order of the step. */
static int by_tensor(const void *a, const void *b)
{
    const struct part *x = a, *y = b;
    int c = strcmp(text(x, x->row->tensor), text(y, y->row->tensor));
    c = c ? c : strcmp(text(x, x->row->what), text(y, y->row->what));
    c = c ? c : (int)x->row->when - (int)y->row->when;
    c = c ? c : (x->of->rank > y->of->rank) - (x->of->rank < y->of->rank);
    c = c ? c : (int)x->row->batched - (int)y->row->batched;
    if (!c && x->row->batched)
        c = (int)x->row->micro - (int)y->row->micro;
    return c ? c : (x->row->instruction > y->row->instruction) - (x->row->instruction < y->row->instruction);
}

static bool same_tensor(const struct part *x, const struct part *y)
{
    return x->row->when == y->row->when && !strcmp(text(x, x->row->tensor), text(y, y->row->tensor)) &&
           !strcmp(text(x, x->row->what), text(y, y->row->what));
}

struct parts {
    struct part *part;
    size_t count;
};

static int parts_of(const struct trace *t, struct parts *out)
{
    size_t room = 1;
    for (uint32_t r = 0; r < t->ranks; r++)
        room += t->rank[r]->rows.count;
    struct parts p = {calloc(room, sizeof *p.part), 0};
    if (!p.part)
        return -ENOMEM;
    for (uint32_t r = 0; r < t->ranks; r++)
        for (uint32_t i = 0; i < t->rank[r]->rows.count; i++)
            if (trace_rows(t->rank[r])[i].when != KC_TRACED_NOT)
                p.part[p.count++] = part_of(t, r, i);
    qsort(p.part, p.count, sizeof *p.part, by_tensor);
    *out = p;
    return 0;
}

/* The end of the parts of one tensor that begin at `first`. */
static size_t tensor_end(const struct parts *p, size_t first)
{
    size_t end = first + 1;
    while (end < p->count && same_tensor(&p->part[first], &p->part[end]))
        end++;
    return end;
}

/* Does a later instruction of the rank write it again: in the same micro-batch, where each has its own? */
static bool overwritten(const struct parts *p, size_t i, size_t end)
{
    const struct kc_traced *x = p->part[i].row;
    for (size_t k = i + 1; k < end && p->part[k].of->rank == p->part[i].of->rank; k++) {
        const struct kc_traced *y = p->part[k].row;
        if (y->instruction != x->instruction && (!x->batched || y->micro == x->micro))
            return true;
    }
    return false;
}

static bool same_part(const struct kc_traced *x, const struct kc_traced *y)
{
    return (!x->batched || x->micro == y->micro) && x->lo == y->lo && x->count == y->count &&
           !memcmp(x->first, y->first, sizeof x->first) && !memcmp(x->size, y->size, sizeof x->size);
}

/* What the ranks hold of the tensor at the end, each part once, summands left out: where they have been added up, some rank
 * has the sum. false: that is not the tensor once and whole. */
static bool join(const struct parts *p, size_t first, size_t end, struct trace_side *out)
{
    const struct kc_traced *row = p->part[first].row;
    const uint64_t whole = trace_elements(row) * (row->batched ? p->part[first].of->micro_batches : 1);
    struct trace_side s = {0};
    for (size_t i = first; i < end; i++) {
        bool again = p->part[i].row->partial || overwritten(p, i, end);
        for (size_t k = first; k < i && !again; k++)
            again = !p->part[k].row->partial && same_part(p->part[k].row, p->part[i].row) && !overwritten(p, k, end);
        if (again)
            continue;
        if (memcmp(p->part[i].row->whole, row->whole, sizeof row->whole))
            return false;
        side_add(&s, &p->part[i]);
    }
    *out = s;
    return s.count == whole;
}

/* Is it one of a micro-batch though it has no batch, as a count of rows is? Micro-batches of two layouts need not be the same. */
static bool of_micro_batch(const struct part *p)
{
    const char *what = text(p, p->row->what);
    return !p->row->batched && (!strcmp(what, kc_role_name[KC_ACTIVATION]) || !strcmp(what, kc_role_name[KC_DERIVATIVE]));
}

static bool comparable(const struct part *a, const struct part *b)
{
    return !of_micro_batch(a) || a->of->micro_batches == b->of->micro_batches;
}

static void compare_tensors(const struct parts *a, const struct parts *b, double tolerance, struct trace_difference *d)
{
    size_t at = 0;
    for (size_t first = 0, end; first < a->count; first = end) {
        struct trace_side p, q;
        end = tensor_end(a, first);
        while (at < b->count && !same_tensor(&a->part[first], &b->part[at]) && by_tensor(&b->part[at], &a->part[first]) < 0)
            at = tensor_end(b, at), d->left_out++;
        if (at == b->count || !same_tensor(&a->part[first], &b->part[at])) {
            d->left_out++;
            continue;
        }
        const size_t other = at;
        at = tensor_end(b, at);
        if (!comparable(&a->part[first], &b->part[other]) || !join(a, first, end, &p) || !join(b, other, at, &q) || p.count != q.count) {
            /* counts: its shape follows the layout */
            d->left_out++;
            continue;
        }
        d->compared++;
        const double far = p.digest == q.digest ? 0 : apart(&p, &q);
        if (far <= tolerance)
            continue;
        if (d->differ++ == 0 || p.row->instruction < d->a.row->instruction)
            d->a = p, d->b = q, d->relative = far;
    }
    while (at < b->count)
        at = tensor_end(b, at), d->left_out++;
}

int trace_compare(const struct trace *a, const struct trace *b, double tolerance, struct trace_difference *out)
{
    struct trace_difference d = {.tolerance = tolerance, .bits = isnan(tolerance), .relative = (double)NAN};
    if (same_layout(a, b)) {
        compare_rows(a, b, tolerance, &d);
    } else {
        struct parts x = {NULL, 0}, y = {NULL, 0};
        d.bits = false;
        d.tolerance = isnan(tolerance) ? TRACE_TOLERANCE : tolerance;
        int rc = parts_of(a, &x);
        if (!rc)
            rc = parts_of(b, &y);
        if (!rc)
            compare_tensors(&x, &y, d.tolerance, &d);
        free(x.part);
        free(y.part);
        if (rc)
            return rc;
    }
    d.same = d.differ == 0;
    *out = d;
    return 0;
}
