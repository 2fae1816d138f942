/* theme.c */
#include "theme.h"

#include <string.h>

/* Per role: bold, reverse, and its ink with 8, 16 and 256 colours on a dark ground, then on a light one. Numbers below 16 are
 * what the person's terminal makes of them; from 16 on they are fixed (the 6×6×6 cube, then greys), chosen for a contrast
 * of at least 4.5 : 1 against black, or white (WCAG 2.1). Yellow on white is hard to read: a light ground has magenta for it. */
static const struct {
    bool bold, reverse;
    short ink[2][3];
} roles[ROLES] = {
    [ROLE_NORMAL] = {false, false, {{-1, -1, -1}, {-1, -1, -1}}},
    [ROLE_DIM] = {false, false, {{6, 6, 245}, {4, 4, 242}}},
    [ROLE_STRONG] = {true, false, {{-1, -1, -1}, {-1, -1, -1}}},
    [ROLE_TITLE] = {false, true, {{-1, -1, -1}, {-1, -1, -1}}},
    [ROLE_CURSOR] = {false, true, {{-1, -1, -1}, {-1, -1, -1}}},
    [ROLE_GOOD] = {false, false, {{2, 10, 114}, {2, 2, 28}}},
    [ROLE_WARN] = {true, false, {{3, 11, 221}, {5, 5, 130}}},
    [ROLE_BAD] = {true, false, {{1, 9, 203}, {1, 1, 160}}},
    [ROLE_CURVE] = {false, false, {{2, 10, 80}, {4, 4, 26}}},
};

struct paint theme_paint(const char *theme, int colours, enum role role)
{
    const int light = !strcmp(theme, "light"), depth = colours >= 256 ? 2 : colours >= 16 ? 1 : 0;
    struct paint p = {.ink = -1, .bold = roles[role].bold, .reverse = roles[role].reverse};
    if (strcmp(theme, "mono") && colours >= 8)
        p.ink = roles[role].ink[light][depth];
    return p;
}
