/* marks.c - Check notes each ck_assert that holds, so that it can say where a test died: a write for each, and its reader moves
 * what is left of its buffer once for each. The same line again says nothing new, and loops over elements do it millions of
 * times. `-Wl,--wrap` puts this in between. */
#include <check.h>
#include <stddef.h>

void __wrap__mark_point(const char *file, int line);
void __real__mark_point(const char *file, int line);

void __wrap__mark_point(const char *file, int line)
{
    static _Thread_local const char *last_file;
    static _Thread_local int last_line;
    if (line == last_line && file == last_file)
        return;
    last_file = file, last_line = line;
    __real__mark_point(file, line);
}
