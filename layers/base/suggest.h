/* suggest.h - the known name nearest to a mistyped one. */
#ifndef KC_BASE_SUGGEST_H
#define KC_BASE_SUGGEST_H

#include <stddef.h>

/* The name of `names` (count of them) with the smallest edit distance to `word`, or NULL if none is near enough to be
 * meant (more than a third of the letters differ, at least two). Borrowed from `names`. */
const char *kc_suggest(const char *word, const char *const *names, size_t count);

#endif
