/* body_loss.h - cross entropy over the vocabulary, natural logarithm. Included by the variants only. */

static float row_max(const float *row, size_t n)
{
    vf top = v_all(-INFINITY);
    V_EACH(n, top = v_max(top, v_get(row + i, lanes, -INFINITY)));
    return v_largest(top);
}

static float row_sum(const float *row, size_t n, float largest)
{
    vf total = v_all(0);
    V_EACH(n, total += v_exp(v_get(row + i, lanes, -INFINITY) - v_all(largest)));
    return v_sum(total);
}

static void cross_entropy(const float *logits, const int32_t *targets, float *lse, double sum[2], size_t rows,
                          size_t n)
{
    for (size_t r = 0; r < rows; r++, logits += n) {
        const float largest = row_max(logits, n);
        lse[r] = largest + (float)log((double)row_sum(logits, n, largest));
        if (targets[r] < 0)
            continue;
        sum[0] += (double)(lse[r] - logits[targets[r]]);
        sum[1] += 1;
    }
}

static void cross_entropy_input(const float *logits, const int32_t *targets, const float *lse, float *dlogits,
                                size_t rows, size_t n)
{
    for (size_t r = 0; r < rows; r++, logits += n, dlogits += n) {
        if (targets[r] < 0) {
            memset(dlogits, 0, n * sizeof *dlogits);
            continue;
        }
        const vf base = v_all(lse[r]);
        V_EACH(n, v_put(dlogits + i, lanes, v_exp(v_get(logits + i, lanes, 0) - base)));
        if ((size_t)targets[r] < n)
            dlogits[targets[r]] -= 1.f;
    }
}
