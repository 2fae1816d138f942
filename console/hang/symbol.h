/* symbol.h - private: places in code by name: function, file and line where the file has DWARF, else function, else module and
 * offset. Looks at files on this machine alone (no debuginfod). */
#ifndef KC_CONSOLE_HANG_SYMBOL_H
#define KC_CONSOLE_HANG_SYMBOL_H

#include "stack.h"

struct symbol_book;

int symbol_book_new(struct symbol_book **out);
/* NULL is fine. */
void symbol_book_free(struct symbol_book *b);
/* The module of a file, under a name of its own; the same for the same build. `id`: build id of what runs: another file at that
 * path is not looked into. Its number, or -ENOMEM. */
int symbol_book_module(struct symbol_book *b, const char *name, const char *path, const uint8_t *id, uint32_t id_bytes);
/* Is there anything at that offset? Of a file that could not be opened nothing is. */
bool symbol_book_holds(const struct symbol_book *b, int module, uint64_t offset);
/* What stands at an offset: the innermost function first, behind it those that it was put into. Adds them to s->symbol and
 * writes at most `room` indices. How many, at least 1 unless there is no memory. module < 0: an address in no file. */
int symbol_book_find(struct symbol_book *b, struct kc_stacks *s, int module, uint64_t offset, uint32_t *out, uint32_t room);

#endif
