/* route.c - which tokens go to which experts: probabilities, choices, the order of rows, there and back. Whoever is
 * chosen twice alike goes by number: of equal probabilities the lower one first, of equal experts the earlier token. */
#include "cpu.h"

#include <math.h>

struct route_arg {
    const struct kernels *k;
    const void *logits;        /* (rows, experts) */
    float *probabilities;      /* likewise */
    int32_t *choice;           /* (rows, top) */
    float *share;              /* (rows, top) */
    void *dlogits;
    uint64_t rows, experts, top; /* rows: of a tile, backward: a sequence */
    double balance;            /* of the gradient by a probability, for each choice of an expert in the sequence */
};

/* The largest `top` of p, in falling order. */
static void choose(const float *p, uint64_t experts, uint64_t top, int32_t *choice)
{
    uint8_t taken[KC_EXPERTS_MAX] = {0};
    for (uint64_t j = 0; j < top; j++) {
        uint64_t best = 0;
        while (taken[best])
            best++;
        for (uint64_t i = best + 1; i < experts; i++)
            if (!taken[i] && p[i] > p[best])
                best = i;
        taken[best] = 1;
        choice[j] = (int32_t)best;
    }
}

static void route_tile(void *arg, uint32_t index, uint32_t worker)
{
    (void)worker;
    const struct route_arg *a = arg;
    const struct range rows = tile_range(index, ROW_TILE, a->rows);
    float z[KC_EXPERTS_MAX];
    for (uint64_t r = rows.first; r < rows.last; r++) {
        float *p = a->probabilities + r * a->experts, *share = a->share + r * a->top, largest = -INFINITY;
        int32_t *choice = a->choice + r * a->top;
        double sum = 0, chosen = 0;
        a->k->widen(number_at(a->k, a->logits, r * a->experts), z, a->experts);
        for (uint64_t i = 0; i < a->experts; i++)
            largest = z[i] > largest ? z[i] : largest;
        for (uint64_t i = 0; i < a->experts; i++)
            sum += p[i] = (float)exp((double)z[i] - (double)largest);
        for (uint64_t i = 0; i < a->experts; i++)
            p[i] = (float)(p[i] / sum);
        choose(p, a->experts, a->top, choice);
        for (uint64_t j = 0; j < a->top; j++)
            chosen += p[choice[j]];
        for (uint64_t j = 0; j < a->top; j++)
            share[j] = (float)(p[choice[j]] / chosen);
    }
}

static int sizes_check(const char *op, uint64_t experts, uint64_t top, struct kc_error *e)
{
    if (experts && experts <= KC_EXPERTS_MAX && top && top <= experts && top <= KC_TOP_K_MAX)
        return 0;
    return kc_fail(e, -EINVAL, "op %s: %llu of %llu experts; there may be up to %d of %d", op, (unsigned long long)top,
                   (unsigned long long)experts, KC_TOP_K_MAX, KC_EXPERTS_MAX);
}

int op_route(void *self, const struct kc_op_call *call, struct kc_lane *lane, struct kc_error *e)
{
    struct cpu *c = self;
    const struct kc_view *logits = &call->in[0];
    const uint64_t rows = view_tokens(logits), experts = view_features(logits), top = view_features(&call->out[1]);
    int r = CALL_CHECK(c, call, e, {0, stored_type(logits), rows * experts}, {1, KC_F32, rows * experts},
                       {2, KC_I32, rows * top}, {3, KC_F32, rows * top});
    if (r < 0 || rows == 0 || (r = sizes_check("route", experts, top, e)) < 0)
        return r;
    struct route_arg a = {.k = kernels_for(c, logits), .logits = logits->data, .probabilities = call->out[0].data,
                          .choice = call->out[1].data, .share = call->out[2].data, .rows = rows, .experts = experts,
                          .top = top};
    return enqueue(lane, route_tile, &a, sizeof a, tiles_of(rows, ROW_TILE));
}

/* With S the sum of the chosen p and share = p/S: dp = (dshare − Σ share·dshare)/S for the chosen, and to every p what
 * the balancing loss adds; then dlogit = p·(dp − Σ p·dp). One sequence. */
static void route_input_tile(void *arg, uint32_t index, uint32_t worker)
{
    (void)worker;
    const struct route_arg *a = arg;
    double added[KC_EXPERTS_MAX] = {0}, dp[KC_EXPERTS_MAX];
    float dz[KC_EXPERTS_MAX];
    const uint64_t first = index * a->rows;
    for (uint64_t i = first * a->top; i < (first + a->rows) * a->top; i++)
        added[a->choice[i]] += a->balance;
    for (uint64_t r = first; r < first + a->rows; r++) {
        const float *p = a->probabilities + r * a->experts, *dshare = a->share + r * a->top;
        const int32_t *choice = a->choice + r * a->top;
        double chosen = 0, along = 0, mean = 0;
        for (uint64_t j = 0; j < a->top; j++) {
            chosen += p[choice[j]];
            along += (double)p[choice[j]] * dshare[j];
        }
        memcpy(dp, added, a->experts * sizeof *dp);
        for (uint64_t j = 0; j < a->top; j++)
            dp[choice[j]] += (dshare[j] - along / chosen) / chosen;
        for (uint64_t i = 0; i < a->experts; i++)
            mean += p[i] * dp[i];
        for (uint64_t i = 0; i < a->experts; i++)
            dz[i] = (float)(p[i] * (dp[i] - mean));
        a->k->narrow(dz, number_at(a->k, a->dlogits, r * a->experts), a->experts);
    }
}

int op_route_input(void *self, const struct kc_op_call *call, struct kc_lane *lane, struct kc_error *e)
{
    struct cpu *c = self;
    const struct kc_view *p = &call->in[1], *dlogits = &call->out[0];
    const uint64_t rows = view_tokens(p), experts = view_features(p), top = view_features(&call->in[2]);
    int r = CALL_CHECK(c, call, e, {0, KC_F32, rows * top}, {1, KC_F32, rows * experts}, {2, KC_I32, rows * top},
                       {3, stored_type(dlogits), rows * experts});
    if (r < 0 || rows == 0 || (r = sizes_check("route.i", experts, top, e)) < 0)
        return r;
    if (call->attrs != 1)
        return kc_fail(e, -EINVAL, "op route.i: takes one attribute, balance; has %u", call->attrs);
    /* E·Σ fₑ·Pₑ of a sequence of T tokens: fₑ is choices/(T·top), Pₑ a mean over T */
    const double t = (double)p->size[1];
    struct route_arg a = {.k = kernels_for(c, dlogits), .probabilities = p->data, .choice = call->in[2].data,
                          .share = call->in[0].data, .dlogits = dlogits->data, .rows = p->size[1], .experts = experts,
                          .top = top};
    if (call->attr[0] != 0)
        a.balance = call->attr[0] * (double)call->step->tokens * (double)experts / (t * t * (double)top);
    return enqueue(lane, route_input_tile, &a, sizeof a, (uint32_t)p->size[0]);
}

struct arrange_arg {
    const int32_t *choice;
    int32_t *counts, *place;
    uint64_t choices, experts;
};

static void arrange_tile(void *arg, uint32_t index, uint32_t worker)
{
    (void)index, (void)worker;
    const struct arrange_arg *a = arg;
    int32_t next[KC_EXPERTS_MAX];
    memset(a->counts, 0, a->experts * sizeof *a->counts);
    for (uint64_t i = 0; i < a->choices; i++)
        a->counts[a->choice[i]]++;
    for (uint64_t i = 0, sum = 0; i < a->experts; sum += (uint64_t)a->counts[i++])
        next[i] = (int32_t)sum;
    for (uint64_t i = 0; i < a->choices; i++)
        a->place[i] = next[a->choice[i]]++;
}

int op_arrange(void *self, const struct kc_op_call *call, struct kc_lane *lane, struct kc_error *e)
{
    const uint64_t choices = view_elements(&call->in[0]), experts = view_elements(&call->out[0]);
    int r = CALL_CHECK(self, call, e, {0, KC_I32, choices}, {1, KC_I32, experts}, {2, KC_I32, choices});
    if (r < 0 || (r = sizes_check("arrange", experts, 1, e)) < 0)
        return r;
    struct arrange_arg a = {.choice = call->in[0].data, .counts = call->out[0].data, .place = call->out[1].data,
                            .choices = choices, .experts = experts};
    return enqueue(lane, arrange_tile, &a, sizeof a, 1);
}

struct tally_arg {
    const int32_t *counts;
    double *sums; /* whole numbers: exact in any order */
    uint64_t experts;
    int add;
};

static void tally_tile(void *arg, uint32_t index, uint32_t worker)
{
    (void)index, (void)worker;
    const struct tally_arg *a = arg;
    for (uint64_t i = 0; i < a->experts; i++)
        a->sums[i] = (a->add ? a->sums[i] : 0) + a->counts[i];
}

/* counts → load, left out by ranks whose tokens another one counts */
int op_tally(void *self, const struct kc_op_call *call, struct kc_lane *lane, struct kc_error *e)
{
    const uint64_t experts = view_elements(&call->in[0]);
    if (!call->out[0].data)
        return 0;
    int r = CALL_CHECK(self, call, e, {0, KC_I32, experts}, {1, KC_F64, experts});
    const struct tally_arg a = {call->in[0].data, call->out[0].data, experts, call->accumulate};
    return r < 0 ? r : enqueue(lane, tally_tile, &a, sizeof a, 1);
}
