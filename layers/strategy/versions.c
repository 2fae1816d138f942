/* versions.c - see versions.h. */
#include "versions.h"

#include "placement.h"
#include "scratch.h"

#include <errno.h>
#include <string.h>

/* ---- versions ---- */

static bool usable(const struct kc_making *m, const struct kc_version *v)
{
    return v->part == m->part || (v->part == 0 && v->settled);
}

static bool lies(const struct kc_making *m, int32_t tensor, const struct kc_placement want[KC_AXES])
{
    for (int a = 0; a < KC_AXES; a++)
        if (kc_cut_uses(m->cut->spec, a) && !kc_placement_equal(m->made->tensors[tensor].place[a], want[a]))
            return false;
    return true;
}

static int32_t version_find(const struct kc_making *m, int32_t tensor, const struct kc_placement want[KC_AXES])
{
    for (int32_t v = m->versions[tensor].next; v >= 0; v = m->versions[v].next)
        if (usable(m, &m->versions[v]) && lies(m, v, want))
            return v;
    return lies(m, tensor, want) ? tensor : -1;
}

/* The tensor, or what has taken its place: versions stand youngest first. */
int32_t kc_version_base(const struct kc_making *m, int32_t tensor)
{
    for (int32_t v = m->versions[tensor].next; v >= 0; v = m->versions[v].next)
        if (usable(m, &m->versions[v]) && m->versions[v].settled)
            return v;
    return tensor;
}

static int32_t tensor_like(struct kc_making *m, int32_t from)
{
    const uint32_t i = m->made->tensor_count++;
    m->made->tensors[i] = m->made->tensors[from];
    return (int32_t)i;
}

static void version_add(struct kc_making *m, int32_t version, bool settled)
{
    struct kc_version *v = m->versions;
    v[version] = (struct kc_version){.next = v[m->tensor].next, .part = (uint8_t)m->part, .settled = settled};
    v[m->tensor].next = version;
}

/* ---- sizes ---- */

int kc_local_sizes(const struct kc_shard_plan *plan, struct kc_plan_tensor *t, const char *name, struct kc_error *e)
{
    memcpy(t->local, t->global, sizeof t->local);
    for (int d = 0; d < t->rank; d++) {
        uint64_t least = t->global[d];
        for (int a = KC_AXES; a-- > 0;) {
            const struct kc_placement p = t->place[a];
            if (p.kind != KC_PLACE_SHARDED || p.dim != t->dim[d])
                continue;
            const uint32_t n = plan->axis[a] / (p.repeat ? p.repeat : 1u);
            if (least < n)
                return kc_fail(e, -EINVAL, "%s: %llu of its dimension %s are less than parallel.%s = %u; lower that", name,
                               (unsigned long long)least, kc_dim_name[t->dim[d]], kc_axis_name[a], n);
            least /= n;
            t->local[d] = (t->local[d] + n - 1) / n;
        }
    }
    return 0;
}

uint64_t kc_local_elements(const struct kc_plan_tensor *t)
{
    uint64_t n = 1;
    for (int d = 0; d < t->rank; d++)
        n *= t->local[d];
    return n;
}

static const char *name_of(const struct kc_making *m, int32_t tensor)
{
    return KC_TEXT(m->cut->graph, m->made->tensors[tensor].name);
}

static int place(struct kc_making *m, int32_t tensor, int axis, struct kc_placement to)
{
    m->made->tensors[tensor].place[axis] = to;
    return kc_local_sizes(m->plan, &m->made->tensors[tensor], name_of(m, tensor), m->e);
}

/* ---- ops ---- */

static struct kc_made_op *op_new(struct kc_making *m, uint16_t opcode, int32_t in, int32_t out)
{
    struct kc_made_op *op = &m->made->ops[m->made->op_count++];
    int32_t *at = kc_scratch_take(m->arena, 2, sizeof *at);
    if (!at)
        return NULL;
    at[0] = in, at[1] = out;
    *op = (struct kc_made_op){.at = at, .inputs = 1, .outputs = 1};
    op->plan.opcode = opcode;
    op->plan.klass = m->part == CUT_PARTS - 1 ? KC_WEIGHT_GRADIENT : KC_FORWARD; /* backward: see classes() */
    op->plan.layer = m->layer;
    op->plan.collective = -1;
    return op;
}

uint32_t kc_collective_new(struct kc_making *m, struct kc_made_collective c)
{
    m->made->collectives[m->made->collective_count] = c;
    return m->made->collective_count++;
}

/* Which dimension of a tensor an axis cuts, and whether the dimensions before it have one element on a rank: then its parts
 * are whole blocks of memory. */
static int dimension(const struct kc_plan_tensor *t, uint8_t dim, bool *blocks)
{
    int d = 0;
    uint64_t outer = 1;
    while (d < t->rank && t->dim[d] != dim)
        outer *= t->local[d++];
    *blocks = outer == 1;
    return d;
}

/* Parts of the dimension one behind the other, or back. */
static int pack(struct kc_making *m, uint16_t opcode, int32_t in, int32_t out, int d, uint32_t parts)
{
    struct kc_made_op *op = op_new(m, opcode, in, out);
    double *attr = op ? kc_scratch_take(m->arena, 2, sizeof *attr) : NULL;
    if (!attr)
        return -ENOSPC;
    attr[0] = d, attr[1] = parts;
    op->attr = attr, op->attrs = 2;
    return 0;
}

/* `whole` is not cut on the axis. */
static int even(struct kc_making *m, int32_t whole, int d, uint32_t parts)
{
    const struct kc_plan_tensor *t = &m->made->tensors[whole];
    if (t->local[d] % parts == 0)
        return 0;
    return kc_fail(m->e, -EINVAL, "%s: %llu of its dimension %s are not a multiple of %u ranks that each get as many",
                   name_of(m, whole), (unsigned long long)t->local[d], kc_dim_name[t->dim[d]], parts);
}

static int collective(struct kc_making *m, int axis, struct kc_conversion how, int32_t in, int32_t out)
{
    const struct kc_plan_tensor *t = &m->made->tensors[in];
    struct kc_made_op *op = op_new(m, 0, in, out);
    if (!op)
        return -ENOSPC;
    op->plan.in_place = how.primitive == KC_ALL_REDUCE;
    op->plan.collective = (int32_t)kc_collective_new(
        m, (struct kc_made_collective){.primitive = how.primitive, .type = t->type, .reduce = how.reduce, .axis = (uint8_t)axis,
                                       .purpose = KC_PURPOSE_ACTIVATION, .count = kc_local_elements(t)});
    return 0;
}

/* One primitive, with what must be done to memory before and after. */
static int primitive(struct kc_making *m, int axis, struct kc_conversion how, int32_t from, int32_t to)
{
    const struct kc_placement was = m->made->tensors[from].place[axis], is = m->made->tensors[to].place[axis];
    const uint32_t parts = m->plan->axis[axis];
    int32_t in = from, out = to;
    bool blocks;
    int r = 0;
    if (is.kind == KC_PLACE_SHARDED) { /* what goes to one rank lies together */
        const int d = dimension(&m->made->tensors[from], is.dim, &blocks);
        r = even(m, from, d, parts);
        if (r == 0 && !blocks) {
            in = tensor_like(m, from);
            r = pack(m, m->opcodes.pack, from, in, d, parts);
        }
    }
    int back = -1;
    if (r == 0 && was.kind == KC_PLACE_SHARDED) { /* so does what comes from one */
        back = dimension(&m->made->tensors[to], was.dim, &blocks);
        r = even(m, to, back, parts);
        if (blocks)
            back = -1;
        else
            out = tensor_like(m, to);
    }
    if (r == 0)
        r = collective(m, axis, how, in, out);
    if (r == 0 && back >= 0)
        r = pack(m, m->opcodes.unpack, out, to, back, parts);
    return r;
}

static int box(struct kc_making *m, int axis, int32_t from, int32_t to)
{
    struct kc_made_op *op = op_new(m, m->opcodes.box, from, to);
    const struct kc_placement was = m->made->tensors[from].place[axis], is = m->made->tensors[to].place[axis];
    if (!op)
        return -ENOSPC;
    if (was.kind != KC_PLACE_REPLICATED || is.kind != KC_PLACE_PARTIAL)
        return 0;
    uint32_t *omit = kc_scratch_take(m->arena, 2, sizeof *omit); /* zeros but on the first rank */
    if (!omit)
        return -ENOSPC;
    omit[0] = 1u << axis;
    op->omit = omit;
    return 0;
}

/* Where several axes cut one dimension the slower one cuts first, so a cut along an axis comes or goes only while no faster one
 * cuts the dimension. */
static int innermost(struct kc_making *m, int32_t tensor, int axis, struct kc_placement place)
{
    const struct kc_plan_tensor *t = &m->made->tensors[tensor];
    for (int a = 0; a < axis && place.kind == KC_PLACE_SHARDED; a++)
        if (t->place[a].kind == KC_PLACE_SHARDED && t->place[a].dim == place.dim)
            return kc_fail(m->e, -ENOTSUP, "%s: its dimension %s is cut along axis %s, under which axis %s cannot cut anew",
                           name_of(m, tensor), kc_dim_name[place.dim], kc_axis_name[a], kc_axis_name[axis]);
    return 0;
}

/* `*from` along one axis as `to`. */
static int along(struct kc_making *m, int axis, struct kc_placement to, int32_t *from)
{
    const struct kc_placement was = m->made->tensors[*from].place[axis];
    const struct kc_conversion how = kc_placement_convert(was, to);
    const bool sum = was.kind == KC_PLACE_PARTIAL, whole = *from == m->tensor || m->versions[*from].settled;
    int r = innermost(m, *from, axis, was);
    if (r < 0 || (r = innermost(m, *from, axis, to)) < 0)
        return r;
    const int32_t reader = m->layer, out = tensor_like(m, *from);
    r = place(m, out, axis, to);
    if (sum)
        m->layer = m->producer_layer[m->tensor];
    if (r == 0)
        r = how.kind == CONVERT_PRIMITIVE ? primitive(m, axis, how, *from, out) : box(m, axis, *from, out);
    m->layer = reader;
    if (r < 0)
        return r;
    version_add(m, out, sum && whole);
    *from = out;
    return 0;
}

/* In which turn an axis is converted: sums first, they serve others too; then what is no longer cut, from the fastest axis on;
 * then what is cut, from the slowest on. */
enum turn { TURN_SUM, TURN_SCATTER, TURN_JOIN, TURN_CUT, TURNS };
static enum turn turn_of(struct kc_placement was, struct kc_placement to)
{
    if (was.kind == KC_PLACE_PARTIAL)
        return to.kind == KC_PLACE_SHARDED ? TURN_SCATTER : TURN_SUM;
    return to.kind == KC_PLACE_SHARDED && was.kind == KC_PLACE_REPLICATED ? TURN_CUT : TURN_JOIN;
}

/* A version of the tensor that lies so. */
int kc_version_make(struct kc_making *m, int32_t tensor, const struct kc_placement want[KC_AXES], int32_t *out)
{
    m->tensor = tensor;
    *out = version_find(m, tensor, want);
    if (*out >= 0)
        return 0;
    int32_t at = kc_version_base(m, tensor);
    for (int turn = 0; turn < TURNS; turn++)
        for (int i = 0; i < KC_AXES; i++) {
            const int a = turn == TURN_SCATTER || turn == TURN_CUT ? KC_AXES - 1 - i : i;
            const struct kc_placement was = m->made->tensors[at].place[a];
            if (!kc_cut_uses(m->cut->spec, a) || kc_placement_equal(was, want[a]) || (int)turn_of(was, want[a]) != turn)
                continue;
            int r = along(m, a, want[a], &at);
            if (r < 0)
                return r;
        }
    *out = at;
    return 0;
}
