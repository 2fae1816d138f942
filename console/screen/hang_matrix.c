/* hang_matrix.c - where each rank is: a row for ranks that are at the same numbers, a column for each channel. */
#include "hang_page.h"

#include "console/text.h"

#include "base/print.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CELL 16        /* columns */
#define LABEL 15       /* of a row */
#define CHANNELS 12    /* columns at most */
#define MANY 32        /* ranks: of more, those that are as most are have one row … */
#define ROWS 20        /* … and of the others so many */

struct matrix {
    const struct comms *all;
    const struct comm_channel *channel[CHANNELS];
    int channels, left;          /* left: channels that have no column */
    int ranks;
    char (*text)[CHANNELS * CELL]; /* by rank: its row; "" it is in none of them */
    bool *told;
};

static bool is_open(const struct comm_channel *c)
{
    const struct comm_op *o = comm_newest(c);
    return o && o->done + o->unknown < o->members;
}

/* Those that stand, the oldest first; then others. */
static void choose(struct matrix *m, int most)
{
    const struct comms *c = m->all;
    for (int pass = 0; pass < 2; pass++)
        for (size_t i = 0; i < c->channels; i++) {
            if (is_open(&c->channel[i]) != (pass == 0))
                continue;
            if (m->channels < most)
                m->channel[m->channels++] = &c->channel[i];
            else
                m->left++;
        }
}

/* "6649 came". */
static void put_cell(const struct comm_member *x, char *out)
{
    static const char *const word[COMM_PLACES] = {"unknown", "absent", "enqueued", "came", "done"};
    char text[48], number[24] = "-";
    if (x->sequence >= 0)
        snprintf(number, sizeof number, "%lld", (long long)x->sequence);
    snprintf(text, sizeof text, "%s %s", number, x->gone && x->place != COMM_DONE ? "ended" : word[x->place]);
    snprintf(out, CELL + 1, "%-*.*s", CELL, CELL - 1, text);
}

static void fill(struct matrix *m)
{
    for (int k = 0; k < m->channels; k++) {
        const struct comm_channel *c = m->channel[k];
        for (int i = 0; i < c->members; i++) {
            const int rank = c->member[i].rank;
            if (rank < 0 || rank >= m->ranks)
                continue;
            char *row = m->text[rank], cell[CELL + 1];
            const size_t at = (size_t)k * CELL, has = strlen(row);
            if (has < at)
                memset(row + has, ' ', at - has);
            put_cell(&c->member[i], cell);
            memcpy(row + at, cell, CELL);
            row[at + (k == CHANNELS - 1 ? CELL - 1 : CELL)] = 0;
        }
    }
}

/* The row that more than half of the ranks have; "": there is none. */
static const char *common(const struct matrix *m)
{
    const char *most = "";
    int lead = 0, same = 0;
    for (int i = 0; i < m->ranks; i++) {
        if (!lead)
            most = m->text[i];
        lead += strcmp(m->text[i], most) ? -1 : 1;
    }
    for (int i = 0; i < m->ranks; i++)
        same += !strcmp(m->text[i], most);
    return same * 2 > m->ranks ? most : "";
}

/* All ranks with the row of this one: "ranks 0-2,5"; where that does not fit, "129 from 0". */
static void name_row(struct matrix *m, int rank, char out[LABEL])
{
    struct kc_print p = {.out = out, .room = LABEL}, few = {.out = out, .room = LABEL};
    bool one = true;
    int count = 0;
    for (int i = rank + 1; i < m->ranks && one; i++)
        one = m->told[i] || strcmp(m->text[i], m->text[rank]) != 0;
    kc_print(&p, one ? "rank " : "ranks ");
    for (int i = rank; i < m->ranks; i++) {
        if (m->told[i] || strcmp(m->text[i], m->text[rank]) != 0)
            continue;
        int last = i;
        while (last + 1 < m->ranks && !m->told[last + 1] && !strcmp(m->text[last + 1], m->text[rank]))
            m->told[last++] = true;
        m->told[last] = true;
        count += last - i + 1;
        kc_print(&p, last > i ? "%s%d-%d" : "%s%d", i > rank ? "," : "", i, last);
        i = last;
    }
    if (p.length >= LABEL)
        kc_print(&few, "%d from %d", count, rank);
}

static bool waits(const char *row)
{
    return strstr(row, " came") || strstr(row, " enqueued");
}

static void add_row(struct page *p, struct matrix *m, int rank)
{
    char label[LABEL];
    const char *row = m->text[rank];
    const bool missing = strstr(row, " absent") || strstr(row, " ended");
    name_row(m, rank, label);
    page_add(p, missing ? ROLE_BAD : waits(row) ? ROLE_WARN : ROLE_NORMAL, LABEL, "%-*s %s", LABEL - 1, label, row);
}

static void add_rows(struct page *p, struct matrix *m)
{
    const char *most = m->ranks > MANY ? common(m) : "";
    int rows = 0, rest = 0, as_most = 0;
    for (int i = 0; i < m->ranks; i++) {
        if (m->told[i] || !*m->text[i])
            continue;
        if (*most && !strcmp(m->text[i], most)) {
            as_most++;
            continue;
        }
        if (m->ranks > MANY && rows == ROWS) {
            rest++;
            continue;
        }
        add_row(p, m, i);
        rows++;
    }
    if (as_most)
        page_add(p, ROLE_NORMAL, LABEL, "%-*s %s", LABEL - 1, "all others", most);
    if (rest)
        page_add(p, ROLE_DIM, 0, "and %d more ranks; `4` has them by channel", rest);
}

void hang_page_numbers(struct page *p, const struct comms *c)
{
    struct matrix m = {.all = c, .ranks = c ? c->ranks : 0};
    char head[CHANNELS * CELL + 1] = "";
    const int fit = (p->cols - LABEL) / CELL;
    if (!c || !c->channels || fit < 1)
        return;
    choose(&m, fit < CHANNELS ? fit : CHANNELS);
    m.text = calloc((size_t)m.ranks, sizeof *m.text);
    m.told = calloc((size_t)m.ranks, sizeof *m.told);
    if (m.text && m.told) {
        for (int k = 0; k < m.channels; k++) {
            char name[COMM_TEXT];
            snprintf(head + k * CELL, sizeof head - (size_t)(k * CELL), "%-*.*s", CELL, CELL - 1,
                     comm_channel_text(m.channel[k], name, sizeof name));
        }
        page_add(p, ROLE_DIM, 0, "%-*s %s", LABEL - 1, "AT", head);
        if (m.left)
            page_add(p, ROLE_DIM, 0, "%-*s and %d more channel%s: `4`", LABEL - 1, "", m.left, kc_plural((uint64_t)m.left));
        fill(&m);
        add_rows(p, &m);
    }
    free(m.text);
    free(m.told);
}
