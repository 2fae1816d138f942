/* event_words.h - what an event tells beside its rank and step, for people. Pure. */
#ifndef KC_CONSOLE_EVENT_WORDS_H
#define KC_CONSOLE_EVENT_WORDS_H

#include "base/json.h"

/* Its text, behind the state that it names; of a snapshot what that cost; else its members: "incarnation 2, ranks 4". "" nothing. */
void event_words(const json_t *event, char *out, size_t room);

#endif
