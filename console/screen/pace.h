/* pace.h - how often the screen is sent to a terminal that takes it slowly. Data is read at its own pace; of a slow line only
 * the pictures become fewer, so that the one that arrives is of now and not of a minute ago. Pure.
 *
 * All that is seen of a line is whether it takes more at this moment: a pseudo-terminal takes some 16 KiB before it says
 * no. So a no is followed by a rest in which that can leave, and by pictures half as often as before; ten minutes without one
 * by twice as many. */
#ifndef KC_CONSOLE_SCREEN_PACE_H
#define KC_CONSOLE_SCREEN_PACE_H

#include <stdbool.h>
#include <stdint.h>

struct pace {               /* zero: a line that takes all */
    uint64_t blocked;       /* since when it takes nothing; 0: it does */
    uint64_t rest;          /* nothing is sent before */
    uint64_t every;         /* from one picture to the next, at least; 0: as they come */
    uint64_t sent, changed; /* the last picture; the last change of `every` */
};

/* May a picture be sent now? `takes`: the terminal would take something. `asked`: a key was pressed, whose answer is waited
 * for. Times are kc_now(). */
bool pace_may_send(struct pace *p, uint64_t now, bool takes, bool asked);
/* One was sent. How long that took tells nothing: on a busy machine all does. */
void pace_sent(struct pace *p, uint64_t now);

#endif
