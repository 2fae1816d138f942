/* theme.h - how a role looks: by theme, and by how many colours the terminal has. Pure; terminal.c gives it to ncurses. */
#ifndef KC_CONSOLE_SCREEN_THEME_H
#define KC_CONSOLE_SCREEN_THEME_H

#include "canvas.h"

struct paint {
    short ink;          /* colour number; -1: that of the terminal */
    bool bold, reverse;
};

/* `theme` of config.def; `colours` the terminal has, fewer than 8: as mono. Backgrounds are always the terminal's own. */
struct paint theme_paint(const char *theme, int colours, enum role role);

#endif
