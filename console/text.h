/* text.h - text that we did not write (logs, samples, names, saved boards) on its way to a terminal or a screen: it
 * becomes valid UTF-8 without control characters. The only door: nothing foreign reaches a terminal around it. */
#ifndef KC_CONSOLE_TEXT_H
#define KC_CONSOLE_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define TEXT_KEEP_LINES 1 /* leave newlines and tabs as they are */

/* Copy `bytes` of `data`: every control character (C0, DEL, C1, also as UTF-8), every byte that is not UTF-8 and
 * every mark that turns the direction of text becomes \xNN per byte. NUL-terminated, cut at a whole character.
 * Returns the length written. */
size_t text_clean(const char *data, size_t bytes, int keep, char *out, size_t room);
/* The same straight to a stream, newlines kept. Call with whole lines or the whole text. */
void text_print(FILE *out, const char *data, size_t bytes);

/* The length of the valid UTF-8 character at `p` (1 to 4) and its code, or 0: not valid. */
size_t text_character(const char *p, size_t bytes, unsigned *code);
/* Columns that a character takes: 0 (combining), 1 or 2. Independent of the locale. */
int text_columns(unsigned code);
/* Columns of a whole clean text. */
int text_width(const char *text);

/* Numbers for people. All return `out`. Unknown (NaN) is "-". */
const char *text_number(double v, const char *format, char *out, size_t room);
const char *text_bytes(double v, char *out, size_t room);    /* "1.5 MiB" */
const char *text_seconds(double v, char *out, size_t room);  /* "0.31 s", "2 min 5 s", "3 h 10 min" */
/* In five columns, for lists: "<1s", "41s", "2m13s", "12m", "3h10m", "23h", "5d2h", "120d" */
const char *text_brief(double v, char *out, size_t room);
/* "875264 parameters", and where some are frozen ": 36864 trained, 838400 frozen" */
const char *text_parameters(uint64_t all, uint64_t trained, char *out, size_t room);
const char *text_rate(double v, char *out, size_t room);     /* "412k", "9.31k", "870" */

#endif
