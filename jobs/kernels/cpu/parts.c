/* parts.c - numbers on their way between a tensor and its parts: no arithmetic but a change of the type. */
#include "cpu.h"

#define MOVE_TILE (128u << 10) /* bytes of the output */

static uint64_t product_of(const uint64_t *size, int from, int to)
{
    uint64_t n = 1;
    for (int d = from; d < to; d++)
        n *= size[d];
    return n;
}

/* ---- box: the part of the logical tensor that both views have, zero elsewhere ---- */

/* Dimensions behind `cut`, the last in which the views differ, make one run with it: a row. */
struct box_arg {
    struct kc_view in, out;
    int cut;
    uint64_t row, bytes;     /* of a row of the output; of all */
    uint64_t from, to, skip; /* of a row: what is copied; where that begins in a row of the input */
    uint64_t in_row;
};

/* Where the input has row r of the output; NULL: it does not. */
static const char *box_row(const struct box_arg *a, uint64_t r)
{
    uint64_t at = 0, step = 1;
    for (int d = a->cut - 1; d >= 0; d--) {
        const uint64_t i = a->out.first[d] + r % a->out.size[d] - a->in.first[d];
        if (i >= a->in.size[d])
            return NULL;
        r /= a->out.size[d];
        at += i * step;
        step *= a->in.size[d];
    }
    return (const char *)a->in.data + at * a->in_row;
}

static uint64_t at_most(uint64_t x, uint64_t most)
{
    return x < most ? x : most;
}

/* Bytes [first, last) of a row of the output. */
static void box_fill(const struct box_arg *a, const char *in, char *out, uint64_t first, uint64_t last)
{
    const uint64_t from = in ? a->from : a->row, to = in ? a->to : a->row;
    const uint64_t copy = from > first ? at_most(from, last) : first, end = to > copy ? at_most(to, last) : copy;
    memset(out + first, 0, copy - first);
    if (end > copy)
        memcpy(out + copy, in + a->skip + (copy - from), end - copy);
    memset(out + end, 0, last - end);
}

static void box_tile(void *arg, uint32_t index, uint32_t worker)
{
    (void)worker;
    const struct box_arg *a = arg;
    const struct range bytes = tile_range(index, MOVE_TILE, a->bytes);
    for (uint64_t r = bytes.first / a->row; r * a->row < bytes.last; r++) {
        const uint64_t begin = r * a->row;
        box_fill(a, a->in.data ? box_row(a, r) : NULL, (char *)a->out.data + begin,
                 bytes.first > begin ? bytes.first - begin : 0, at_most(a->row, bytes.last - begin));
    }
}

static void box_rows(struct box_arg *a)
{
    const struct kc_view *in = &a->in, *out = &a->out;
    const uint64_t element = kc_type_bytes[out->type];
    a->cut = out->rank - 1;
    while (a->cut > 0 && in->first[a->cut] == out->first[a->cut] && in->size[a->cut] == out->size[a->cut])
        a->cut--;
    if (a->cut < 0) { /* of rank 0: one element */
        a->cut = 0;
        a->row = a->in_row = a->to = element;
        return;
    }
    const int d = a->cut;
    const uint64_t inner = product_of(out->size, d + 1, out->rank) * element;
    const uint64_t first = in->first[d] > out->first[d] ? in->first[d] : out->first[d];
    const uint64_t last = at_most(in->first[d] + in->size[d], out->first[d] + out->size[d]);
    a->row = out->size[d] * inner, a->in_row = in->size[d] * inner;
    if (last <= first)
        return;
    a->from = (first - out->first[d]) * inner, a->to = (last - out->first[d]) * inner;
    a->skip = (first - in->first[d]) * inner;
}

int op_box(void *self, const struct kc_op_call *call, struct kc_lane *lane, struct kc_error *e)
{
    struct box_arg a = {.in = call->in[0], .out = call->out[0]};
    const uint64_t n = view_elements(&a.out);
    int r = CALL_CHECK(self, call, e, {1, a.out.type, n});
    if (r < 0)
        return r;
    if (!a.in.data) { /* left out: of a sum it is nothing */
        a.in = a.out;
        a.in.data = NULL;
    }
    if (a.in.type != a.out.type || a.in.rank != a.out.rank)
        return kc_fail(e, -EINVAL, "op box: from %u dimensions of %s to %u of %s", a.in.rank, kc_type_name[a.in.type],
                       a.out.rank, kc_type_name[a.out.type]);
    box_rows(&a);
    a.bytes = n * kc_type_bytes[a.out.type];
    return enqueue(lane, box_tile, &a, sizeof a, tiles_of(a.bytes, MOVE_TILE));
}

/* ---- pack, unpack: (outer, parts, m, inner) to (parts, outer, m, inner) and back ---- */
struct pack_arg {
    const char *in;
    char *out;
    uint64_t outer, parts, run, bytes; /* run: bytes of (m, inner) */
    int unpack;
};

static void pack_tile(void *arg, uint32_t index, uint32_t worker)
{
    (void)worker;
    const struct pack_arg *a = arg;
    const struct range bytes = tile_range(index, MOVE_TILE, a->bytes); /* of the side that is packed */
    for (uint64_t at = bytes.first, end; at < bytes.last; at = end) {
        const uint64_t run = at / a->run, other = (run % a->outer * a->parts + run / a->outer) * a->run + at % a->run;
        end = at_most((run + 1) * a->run, bytes.last);
        memcpy(a->out + (a->unpack ? other : at), a->in + (a->unpack ? at : other), end - at);
    }
}

static int pack(struct cpu *c, const struct kc_op_call *call, int unpack, struct kc_lane *lane, struct kc_error *e)
{
    const struct kc_view *v = unpack ? &call->out[0] : &call->in[0]; /* the side that is not packed */
    const uint64_t n = view_elements(v), element = kc_type_bytes[v->type];
    int r = CALL_CHECK(c, call, e, {0, v->type, n}, {1, v->type, n});
    if (r < 0)
        return r;
    if (call->attrs != 2 || call->attr[0] < 0 || call->attr[0] >= v->rank || call->attr[1] < 1)
        return kc_fail(e, -EINVAL, "op %s: takes two attributes, a dimension of %u and parts; has %u",
                       unpack ? "unpack" : "pack", v->rank, call->attrs);
    const int dim = (int)call->attr[0];
    const uint64_t parts = (uint64_t)call->attr[1];
    if (v->size[dim] % parts)
        return kc_fail(e, -EINVAL, "op %s: dimension %d of %llu is not to be had in %llu parts",
                       unpack ? "unpack" : "pack", dim, (unsigned long long)v->size[dim], (unsigned long long)parts);
    struct pack_arg a = {.in = call->in[0].data, .out = call->out[0].data, .outer = product_of(v->size, 0, dim),
                         .parts = parts, .run = product_of(v->size, dim, v->rank) / parts * element,
                         .bytes = n * element, .unpack = unpack};
    return enqueue(lane, pack_tile, &a, sizeof a, tiles_of(a.bytes, MOVE_TILE));
}

int op_pack(void *self, const struct kc_op_call *call, struct kc_lane *lane, struct kc_error *e)
{
    return pack(self, call, 0, lane, e);
}

int op_unpack(void *self, const struct kc_op_call *call, struct kc_lane *lane, struct kc_error *e)
{
    return pack(self, call, 1, lane, e);
}

/* ---- convert ---- */
struct convert_arg {
    const struct kernels *k;
    const char *in;
    char *out;
    uint64_t n;
    uint8_t from, to;
};

static void convert_run(const struct kernels *k, const void *in, uint8_t from, void *out, uint8_t to, uint64_t n)
{
    if (from == to)
        memcpy(out, in, n * kc_type_bytes[to]);
    else if (to == KC_BF16)
        k->bf16->narrow(in, out, n);
    else
        k->bf16->widen(in, out, n);
}

static void convert_tile(void *arg, uint32_t index, uint32_t worker)
{
    (void)worker;
    const struct convert_arg *a = arg;
    const struct range r = tile_range(index, RUN_TILE, a->n);
    convert_run(a->k, a->in + r.first * kc_type_bytes[a->from], a->from, a->out + r.first * kc_type_bytes[a->to], a->to,
                r.last - r.first);
}

int op_convert(void *self, const struct kc_op_call *call, struct kc_lane *lane, struct kc_error *e)
{
    const struct cpu *c = self;
    struct convert_arg a = {.k = c->k, .in = call->in[0].data, .out = call->out[0].data,
                            .n = view_elements(&call->in[0]), .from = stored_type(&call->in[0]),
                            .to = stored_type(&call->out[0])};
    int r = CALL_CHECK(self, call, e, {0, a.from, a.n}, {1, a.to, a.n});
    return r < 0 ? r : enqueue(lane, convert_tile, &a, sizeof a, tiles_of(a.n, RUN_TILE));
}

/* ---- split, join: q, k and v in one tensor (B, T, 3, A, D), and apart ---- */
struct split_arg {
    const struct kernels *k;
    char *whole, *part[3];
    uint64_t rows, width; /* of a part */
    uint8_t whole_type, part_type;
    int join;
};

static void split_tile(void *arg, uint32_t index, uint32_t worker)
{
    (void)worker;
    const struct split_arg *a = arg;
    const struct range rows = tile_range(index, ROW_TILE, a->rows);
    for (uint64_t r = rows.first; r < rows.last; r++)
        for (uint64_t i = 0; i < 3; i++) {
            char *whole = a->whole + (3 * r + i) * a->width * kc_type_bytes[a->whole_type];
            char *part = a->part[i] + r * a->width * kc_type_bytes[a->part_type];
            if (a->join)
                convert_run(a->k, part, a->part_type, whole, a->whole_type, a->width);
            else
                convert_run(a->k, whole, a->whole_type, part, a->part_type, a->width);
        }
}

static int split(struct cpu *c, const struct kc_op_call *call, int join, struct kc_lane *lane, struct kc_error *e)
{
    const struct kc_view *whole = join ? &call->out[0] : &call->in[0], *part = join ? call->in : call->out;
    struct split_arg a = {.k = c->k, .whole = whole->data, .rows = view_tokens(&part[0]), .width = view_features(&part[0]),
                          .whole_type = stored_type(whole), .part_type = stored_type(&part[0]), .join = join};
    const uint64_t n = a.rows * a.width;
    const int at = join ? 0 : 1;
    int r = CALL_CHECK(c, call, e, {join ? 3 : 0, a.whole_type, 3 * n}, {at, a.part_type, n}, {at + 1, a.part_type, n},
                       {at + 2, a.part_type, n});
    for (int i = 0; i < 3; i++)
        a.part[i] = part[i].data;
    return r < 0 ? r : enqueue(lane, split_tile, &a, sizeof a, tiles_of(a.rows, ROW_TILE));
}

int op_split(void *self, const struct kc_op_call *call, struct kc_lane *lane, struct kc_error *e)
{
    return split(self, call, 0, lane, e);
}

int op_join(void *self, const struct kc_op_call *call, struct kc_lane *lane, struct kc_error *e)
{
    return split(self, call, 1, lane, e);
}
