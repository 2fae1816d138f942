/* split.h - cuts text into the pieces that GPT-2's tokenizer merges within: its pattern
 *   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
 * over UTF-8, written out by hand. Letters, numbers and spaces beyond ASCII are utf8proc's. A byte that is not UTF-8 is a
 * character of its own that is neither, so nothing of the text is lost. */
#ifndef KC_JOBS_DATA_SPLIT_H
#define KC_JOBS_DATA_SPLIT_H

#include <stdbool.h>
#include <stddef.h>

/* Bytes of the first piece of a text of at least one byte. */
size_t split_piece(const unsigned char *text, size_t bytes);
/* May the text be cut before byte `at` (0 < at < bytes), so that its two parts, split alone, have the pieces of the
 * whole? True before white space behind something else: no piece goes on there, and none looks ahead over it. (Not
 * everywhere that it would be allowed.) */
bool split_may_cut(const unsigned char *text, size_t at);

#endif
