/* trouble.h - the worst that can be said of a job now, or of all: with whom it lies and the key that shows it. Pure. */
#ifndef KC_CONSOLE_SCREEN_TROUBLE_H
#define KC_CONSOLE_SCREEN_TROUBLE_H

#include "canvas.h"

#include "console/model.h"

/* From the least to the worst. */
enum trouble_kind {
    TROUBLE_NONE,
    TROUBLE_RESTARTED,  /* it was, and goes on */
    TROUBLE_FAILED,     /* it is over */
    TROUBLE_STRAGGLER,
    TROUBLE_UNSAVED,    /* its snapshots fail */
    TROUBLE_RESTARTING,
    TROUBLE_TORN,       /* parts of its board cannot be read whole */
    TROUBLE_WAIT,       /* a rank waits for others for long */
    TROUBLE_UNREADABLE, /* its board */
    TROUBLE_KEEPER,     /* it is lost */
    TROUBLE_HANG,
    TROUBLES
};

struct trouble {
    enum trouble_kind kind;
    enum role role;
    const struct job *job;
    char text[720];     /* "" with TROUBLE_NONE */
    int key;            /* bytes at its end that name the key, "  [7] hang" */
};

/* j may be NULL: none. named: it says of which job it is. */
struct trouble trouble_of(const struct job *j, bool named);
/* The worst of all that are not over; of equal ones that of the newest job. */
struct trouble trouble_worst(const struct model *m);

#endif
