/* window.c - offsets in a window: pure arithmetic, the same on every rank. */
#include "window.h"

static size_t round_up(size_t n, size_t to)
{
    return (n + to - 1) / to * to;
}

/* `total` shared among the ranks, rounded down to a power of two, within low … high (powers of two). */
static size_t share(size_t total, uint32_t ranks, size_t low, size_t high)
{
    size_t n = high;
    while (n > low && n > total / ranks)
        n /= 2;
    return n;
}

size_t window_chunk(uint32_t ranks)
{
    return share(1 << 20, ranks, 64 << 10, 256 << 10);
}

size_t window_pair_chunk(uint32_t ranks)
{
    return share(128 << 10, ranks, 2 << 10, 64 << 10);
}

static size_t control_bytes(uint32_t ranks)
{
    return sizeof(struct cell) + 2 * sizeof(struct counts) + 2 * ranks * sizeof(struct cell);
}

static size_t staging_at(uint32_t ranks, uint32_t slots)
{
    return WINDOW_PAGE + round_up(slots * control_bytes(ranks), WINDOW_PAGE);
}

static size_t staging_bytes(uint32_t ranks)
{
    return 4 * window_chunk(ranks) + 4 * ranks * window_pair_chunk(ranks);
}

size_t window_data_at(uint32_t ranks, uint32_t slots)
{
    return staging_at(ranks, slots) + slots * staging_bytes(ranks);
}

struct cell *window_cell(void *window, uint32_t ranks, uint32_t slot)
{
    return (struct cell *)((uint8_t *)window + WINDOW_PAGE + slot * control_bytes(ranks));
}

struct counts *window_counts(void *window, uint32_t ranks, uint32_t slot)
{
    return (struct counts *)(window_cell(window, ranks, slot) + 1);
}

struct cell *window_send_cell(void *window, uint32_t ranks, uint32_t slot, uint32_t peer)
{
    return (struct cell *)(window_counts(window, ranks, slot) + 2) + peer;
}

struct cell *window_receive_cell(void *window, uint32_t ranks, uint32_t slot, uint32_t peer)
{
    return window_send_cell(window, ranks, slot, ranks + peer);
}

uint8_t *window_staging(void *window, uint32_t ranks, uint32_t slots, uint32_t slot)
{
    return (uint8_t *)window + staging_at(ranks, slots) + slot * staging_bytes(ranks);
}

uint8_t *window_pair_staging(void *window, uint32_t ranks, uint32_t slots, uint32_t slot, uint32_t peer)
{
    return window_staging(window, ranks, slots, slot) + 4 * window_chunk(ranks) + 4 * peer * window_pair_chunk(ranks);
}
