/* comms_read.c - from a board to what its ranks do together. */
#include "comms.h"

#include "shm/reader.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct reading {
    const struct kc_reader *r;
    struct comm_source *source;  /* (ranks) */
    struct kc_op_seen *op;       /* (ranks, each) */
    struct comm_group *group;    /* (KC_GROUPS) */
    int ranks, groups;
    uint32_t each;
};

static void read_group(struct reading *x, uint32_t id)
{
    struct kc_group_entry g;
    if (x->groups == KC_GROUPS)
        return;
    for (int i = 0; i < x->groups; i++)
        if (x->group[i].id == id)
            return;
    struct comm_group *out = &x->group[x->groups++];
    *out = (struct comm_group){.id = id};
    if (kc_reader_group(x->r, id, &g))
        return;
    uint16_t *rank = calloc(g.count ? g.count : 1, sizeof *rank);
    if (!rank)
        return; /* as if the board did not name it */
    for (uint32_t i = 0; i < g.count; i++)
        rank[i] = g.ranks[i];
    snprintf(out->name, sizeof out->name, "%s", g.name);
    out->rank = rank;
    out->count = (int)g.count;
}

static void read_rank(struct reading *x, int rank)
{
    struct comm_source *s = &x->source[rank];
    struct kc_op_seen *op = &x->op[(size_t)rank * x->each];
    struct kc_rank_view v;
    uint32_t torn = 0;
    *s = (struct comm_source){.rank = rank, .op = op};
    if (kc_reader_rank(x->r, (uint32_t)rank, &v))
        return;
    s->gone = v.process.ended != 0;
    s->known = v.identity.pid && !(v.torn & KC_TORN_IDENTITY);
    if (!s->known)
        return;
    const int n = kc_reader_ops(x->r, (uint32_t)rank, op, x->each, &torn);
    s->ops = n > 0 ? n : 0;
    s->missing = (int)torn;
    s->first = v.identity.first_op;
    s->next = v.identity.first_op + v.ops;
    if (s->ops && op[s->ops - 1].number >= s->next)
        s->next = op[s->ops - 1].number + 1; /* begun meanwhile */
    for (int i = 0; i < s->ops; i++)
        if (i == 0 || op[i].group != op[i - 1].group)
            read_group(x, op[i].group);
}

int comms_read(const struct kc_reader *r, struct comms *out, struct kc_error *e)
{
    const uint32_t ranks = kc_reader_ranks(r);
    struct kc_segment_info info;
    if (!ranks)
        return kc_fail(e, -EBADMSG, "that is not the board of a job");
    struct reading x = {.r = r, .ranks = (int)ranks, .each = COMM_RECORDS / ranks > KC_OPS ? KC_OPS : COMM_RECORDS / ranks};
    x.source = calloc(ranks, sizeof *x.source);
    x.op = malloc((size_t)ranks * x.each * sizeof *x.op);
    x.group = calloc(KC_GROUPS, sizeof *x.group);
    int rc = x.source && x.op && x.group ? 0 : -ENOMEM;
    for (uint32_t i = 0; !rc && i < ranks; i++)
        read_rank(&x, (int)i);
    if (!rc) /* the clock last: nothing that was read is younger */
        rc = comms_make(x.source, x.ranks, x.group, x.groups, kc_reader_now(r), out);
    kc_reader_info(r, &info);
    if (!rc)
        out->left = !info.saved && !info.recorded && !info.creator_alive;
    for (int i = 0; i < x.groups; i++)
        free((void *)x.group[i].rank);
    free(x.source);
    free(x.op);
    free(x.group);
    return rc ? kc_fail(e, rc, "no memory for the operations of %u ranks", ranks) : 0;
}
