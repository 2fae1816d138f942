/* ranks_grid.c - a letter per rank: 1024 of them on 80 columns and 16 lines, eight a group and eight groups a line. */
#include "ranks.h"

#include "console/report.h"

#include <stdlib.h>

bool ranks_have_nodes(const struct job *j)
{
    for (size_t i = 1; i < j->ranks_known; i++)
        if (ranks_node(j, i) != ranks_node(j, 0))
            return true;
    return false;
}

int ranks_node(const struct job *j, size_t rank)
{
    const struct job_rank *r = j->rank;
    size_t before = rank, after = rank;
    while (before > 0 && r[before].node < 0)
        before--;
    while (after + 1 < j->ranks_known && r[after].node < 0)
        after++;
    if (r[before].node < 0 || r[after].node < 0 || r[before].node == r[after].node)
        return r[before].node < 0 ? r[after].node : r[before].node;
    /* Between two: machines have as many ranks as one another, as a rule. */
    const size_t each = after / (size_t)(r[after].node > 0 ? r[after].node : 1);
    return each && rank / each == (size_t)r[after].node ? r[after].node : r[before].node;
}

/* Ranks from `first` that stand together. */
static int group_size(const struct job *j, size_t first, int most)
{
    int n = 1;
    while (n < most && first + (size_t)n < j->ranks_known && ranks_node(j, first + (size_t)n) == ranks_node(j, first))
        n++;
    return n;
}

int ranks_layout(const struct job *j, int cols, struct ranks_place *out)
{
    const int width = cols > RANKS_LABEL ? cols - RANKS_LABEL : 1, most = width < RANKS_GROUP ? width : RANKS_GROUP;
    int line = 0, at = 0, left = 0;
    for (size_t i = 0; i < j->ranks_known; i++) {
        if (left == 0) {
            left = group_size(j, i, most);
            at += at > 0;
            if (at + left > width) {
                line++;
                at = 0;
            }
        }
        out[i] = (struct ranks_place){(uint16_t)line, (uint16_t)(RANKS_LABEL + at++)};
        left--;
    }
    return j->ranks_known ? line + 1 : 0;
}

int ranks_lines(const struct job *j, int cols)
{
    struct ranks_place *place = calloc(j->ranks_known + 1, sizeof *place);
    const int lines = place ? ranks_layout(j, cols, place) : 0;
    free(place);
    return lines;
}

int ranks_line(const struct job *j, int cols, int rank, int by)
{
    struct ranks_place *place = calloc(j->ranks_known + 1, sizeof *place);
    int best = rank, least = 1 << 20;
    if (place)
        ranks_layout(j, cols, place);
    for (int i = 0; place && i < (int)j->ranks_known; i++) {
        const int away = abs(place[i].col - place[rank].col);
        if (place[i].line == place[rank].line + by && away < least) {
            best = i;
            least = away;
        }
    }
    free(place);
    return best;
}

enum role ranks_role(const struct job *j, const struct job_rank *r)
{
    char text[512];
    return r->state == KC_RANK_FAILED || job_rank_hangs(j, r) ? ROLE_BAD : ranks_says(j, r, text, sizeof text);
}

void ranks_draw_grid(struct view *v, const struct job *j, struct canvas *c)
{
    struct ranks_place *place = calloc(j->ranks_known + 1, sizeof *place);
    struct list_source s;
    const bool nodes = ranks_have_nodes(j), any = view_source_ranks(v, &s);
    const struct list *l = &v->list[VIEW_RANKS];
    const int lines = place ? ranks_layout(j, c->cols, place) : 0;
    int top = place && v->rank < (int)j->ranks_known ? place[v->rank].line - c->rows + 1 : 0;
    top = top < 0 ? 0 : top > lines - c->rows ? lines - c->rows : top;
    for (int i = 0; place && i < (int)j->ranks_known; i++) {
        const struct job_rank *r = &j->rank[i];
        const int row = place[i].line - top;
        const char letter = any && list_shows(l, &s, (size_t)i) ? report_letter(j, r) : ' ';
        if (row < 0 || row >= c->rows)
            continue;
        if (place[i].col == RANKS_LABEL)
            canvas_text(c, row, 0, RANKS_LABEL - 1, ROLE_DIM, nodes ? "n%d" : "%4d", nodes ? ranks_node(j, (size_t)i) : i);
        if (letter != ' ' || i == v->rank)
            canvas_put(c, row, place[i].col, i == v->rank ? ROLE_CURSOR : ranks_role(j, r), (uint32_t)(unsigned char)letter, letter);
    }
    free(place);
}
