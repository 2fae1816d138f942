/* body_loss.h - cross entropy over the vocabulary, natural logarithm. Included by the variants only. */

#define MASKED (-1)

static float row_lse(const float *row, size_t n)
{
    vf top = v_all(-INFINITY), total = v_all(0);
    V_EACH(n, top = v_max(top, v_get(row + i, lanes, -INFINITY)));
    const float largest = v_largest(top);
    V_EACH(n, total += v_exp(v_get(row + i, lanes, -INFINITY) - v_all(largest)));
    return largest + (float)log((double)v_sum(total));
}

static void cross_entropy(const float *logits, const int32_t *targets, float *lse, double sum[2], size_t rows,
                          size_t n)
{
    for (size_t r = 0; r < rows; r++, logits += n) {
        lse[r] = row_lse(logits, n);
        if (targets[r] == MASKED)
            continue;
        sum[0] += (double)(lse[r] - logits[targets[r]]);
        sum[1] += 1;
    }
}

static void cross_entropy_input(const float *logits, const int32_t *targets, const float *lse, float *dlogits,
                                size_t rows, size_t n)
{
    for (size_t r = 0; r < rows; r++, logits += n, dlogits += n) {
        if (targets[r] == MASKED) {
            memset(dlogits, 0, n * sizeof *dlogits);
            continue;
        }
        const vf base = v_all(lse[r]);
        V_EACH(n, v_put(dlogits + i, lanes, v_exp(v_get(logits + i, lanes, 0) - base)));
        dlogits[targets[r]] -= 1.f;
    }
}
