/* terminal.h - the terminal itself: taken with ncurses, given back on every way out. A canvas is copied whole;
 * ncurses sends what changed, and nothing if nothing did. */
#ifndef KC_CONSOLE_SCREEN_TERMINAL_H
#define KC_CONSOLE_SCREEN_TERMINAL_H

#include "canvas.h"

#include "console/config.h"

#include <stdbool.h>

/* Take stdin and stdout. TERM, INT and HUP set terminal_ended(); a crash puts the terminal back before it goes its
 * way. -ENOTTY; -EINVAL: TERM is unknown; -ENOTSUP: it cannot place its cursor (then nothing was taken). */
int terminal_open(const struct config *c);
void terminal_close(void);
/* The signal that asks us to end, or 0. */
int terminal_ended(void);
/* It asked something else: wait for the next one. */
void terminal_go_on(void);
void terminal_size(int *rows, int *cols);
/* Would it take something now? What is on its way already counts where the kernel tells it: of a serial line, not of a
 * pseudo-terminal, which takes some 16 KiB first. */
bool terminal_takes(void);
/* Copy the canvas; one write at most. */
void terminal_show(const struct canvas *c);
/* Forget what the terminal shows and send all again. */
void terminal_redraw(void);
/* Leave the screen for a while: `text` on the plain terminal, where it can be selected and scrolled, until Enter, q, Esc
 * or a signal that ends us. */
void terminal_plain(const char *text);
/* Of the key KEY_MOUSE: where, and which button, 1 a press, 4 and 5 the wheel up and down. false: another. */
bool terminal_mouse(int *row, int *col, int *button);
/* Nobody is there any more, though no signal said so. */
bool terminal_gone(void);
/* Next key without waiting: false: none. *character: a letter, else an ncurses key code. */
bool terminal_key(int *code, bool *character);
/* The part that is ncurses alone: the canvas into the current screen's window; tests call it on a screen of their
 * own. */
void terminal_paint(const struct canvas *c);
/* Choose the looks of roles for the current screen: by the theme, with at most so many colours; 0: all that it has. */
void terminal_colours(const char *theme, int most);

#endif
