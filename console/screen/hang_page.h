/* hang_page.h - what `kc hang --json` and `kc stack --json` say, and where each rank is in each channel, as lines for the view of
 * a hang. Pure. Nothing of the JSON is believed: what is of another form is left out. */
#ifndef KC_CONSOLE_SCREEN_HANG_PAGE_H
#define KC_CONSOLE_SCREEN_HANG_PAGE_H

#include "page.h"

#include "console/comms.h"

#include <jansson.h>

/* The whole in a sentence, then verdict by verdict: who and why, the owner, the evidence, what to type. */
void hang_page_verdicts(struct page *p, const json_t *hang);
/* A row for ranks that are at the same numbers, a column for each channel as far as they fit, those that stand first. Where
 * they are many, only ranks that are not as most are. Nothing if none of it is known. */
void hang_page_numbers(struct page *p, const struct comms *c);
/* The tree of stacks: a line a function, and where ways part, which ranks go which. */
void hang_page_stacks(struct page *p, const json_t *stack);

#endif
