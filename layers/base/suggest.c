/* suggest.c - Damerau-Levenshtein distance, restricted (Damerau 1964; adjacent letters swapped count once). */
#include "base/suggest.h"

#include <string.h>

#define LONGEST 63

static int least(int a, int b)
{
    return a < b ? a : b;
}

static int distance(const char *a, const char *b)
{
    int n = (int)strnlen(a, LONGEST + 1), m = (int)strnlen(b, LONGEST + 1);
    int d[3][LONGEST + 1];
    if (n > LONGEST || m > LONGEST)
        return LONGEST;
    for (int i = 0; i <= n; i++) {
        int *now = d[i % 3], *before = d[(i + 2) % 3], *earlier = d[(i + 1) % 3];
        for (int j = 0; j <= m; j++) {
            if (i == 0 || j == 0) {
                now[j] = i + j;
                continue;
            }
            now[j] = least(least(before[j] + 1, now[j - 1] + 1), before[j - 1] + (a[i - 1] != b[j - 1]));
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                now[j] = least(now[j], earlier[j - 2] + 1);
        }
    }
    return d[n % 3][m];
}

const char *kc_suggest(const char *word, const char *const *names, size_t count)
{
    const char *best = NULL;
    int limit = (int)strnlen(word, LONGEST) / 3, near = (limit < 2 ? 2 : limit) + 1;
    for (size_t i = 0; i < count; i++) {
        int d = distance(word, names[i]);
        if (d < near) {
            near = d;
            best = names[i];
        }
    }
    return best;
}
