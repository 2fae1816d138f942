/* stream_avx2.c - copies with stores that do not go through the caches. Called only where reduce_wide_possible(). */
#if defined(__x86_64__)
#include <immintrin.h>
#include <stdint.h>
#include <string.h>

#define LINE 64
#define PAGE 4096
#define PAGES 4 /* side by side: four rows of memory are open at once, and the prefetchers follow four streams */

void stream_avx2_copy(void *to, const void *from, size_t bytes);
void stream_avx2_end(void);

static inline void line(uint8_t *to, const uint8_t *from)
{
    __m256i low = _mm256_loadu_si256((const __m256i *)from), high = _mm256_loadu_si256((const __m256i *)(from + 32));
    _mm256_stream_si256((__m256i *)to, low);
    _mm256_stream_si256((__m256i *)(to + 32), high);
}

void stream_avx2_copy(void *to, const void *from, size_t bytes)
{
    size_t head = (LINE - (uintptr_t)to % LINE) % LINE;
    if (bytes < head + LINE) {
        memcpy(to, from, bytes);
        return;
    }
    memcpy(to, from, head);
    uint8_t *t = (uint8_t *)to + head;
    const uint8_t *f = (const uint8_t *)from + head;
    size_t left = bytes - head;
    for (; left >= PAGES * PAGE; left -= PAGES * PAGE, t += PAGES * PAGE, f += PAGES * PAGE) {
        for (size_t i = 0; i < PAGE; i += LINE)
            for (size_t k = 0; k < PAGES; k++)
                line(t + k * PAGE + i, f + k * PAGE + i);
    }
    for (; left >= LINE; left -= LINE, t += LINE, f += LINE)
        line(t, f);
    memcpy(t, f, left);
}

void stream_avx2_end(void)
{
    _mm_sfence();
}
#else
typedef int stream_avx2_is_empty; /* ISO C wants a declaration in every file */
#endif
