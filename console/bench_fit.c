/* bench_fit.c */
#include "bench_fit.h"

#define NO_BYTES 1e12 /* bytes a second where nothing was sent */

void bench_fit(const struct fit_point *points, size_t count, uint32_t steps, double *latency_ns,
               double *bytes_per_second)
{
    /* minimise Σ (a/t + b·x/t − 1)²: a = latency · steps in seconds, b = seconds a byte */
    double uu = 0, uv = 0, vv = 0, u = 0, v = 0, a, b;
    for (size_t i = 0; i < count; i++) {
        double one = 1 / points[i].seconds, bytes = points[i].bytes / points[i].seconds;
        uu += one * one, uv += one * bytes, vv += bytes * bytes;
        u += one, v += bytes;
    }
    double determinant = uu * vv - uv * uv;
    if (vv == 0 ||
        determinant <= 1e-12 * uu * vv) /* one size only: no two figures come out of it */
        a = vv == 0 ? u / uu : 0, b = vv == 0 ? 0 : v / vv;
    else
        a = (u * vv - v * uv) / determinant, b = (v * uu - u * uv) / determinant;
    if (a < 0)
        a = 0, b = v / vv;
    if (b <= 0) { /* larger was no slower: noise; all is latency */
        a = u / uu;
        b = 1 / NO_BYTES;
    }
    *latency_ns = a * 1e9 / steps;
    *bytes_per_second = 1 / b;
}
