/* pace.c */
#include "pace.h"

#include "base/clock.h"

#define EVERY_LEAST (2 * KC_SECOND)
#define EVERY_MOST (120 * KC_SECOND)
#define REST_MOST (120 * KC_SECOND)
#define FORGET (600 * KC_SECOND)
#define RESTS 8 /* times as long as it took nothing: what is still on its way then is many times what has left */

static void slower(struct pace *p, uint64_t now)
{
    p->every = p->every * 2 < EVERY_LEAST ? EVERY_LEAST : p->every * 2 > EVERY_MOST ? EVERY_MOST : p->every * 2;
    p->changed = now;
}

static void faster(struct pace *p, uint64_t now)
{
    if (!p->every || now - p->changed < FORGET)
        return;
    p->every = p->every / 2 < EVERY_LEAST ? 0 : p->every / 2;
    p->changed = now;
}

static void rest(struct pace *p, uint64_t now, uint64_t blocked)
{
    const uint64_t long_enough = blocked * RESTS;
    p->rest = now + (long_enough < REST_MOST ? long_enough : REST_MOST);
}

bool pace_may_send(struct pace *p, uint64_t now, bool takes, bool asked)
{
    if (!takes) {
        if (!p->blocked) {
            p->blocked = now;
            slower(p, now);
        }
        return false;
    }
    if (p->blocked)
        rest(p, now, now - p->blocked);
    p->blocked = 0;
    if (now < p->rest)
        return false;
    faster(p, now);
    return asked || !p->every || now - p->sent >= p->every;
}

void pace_sent(struct pace *p, uint64_t now)
{
    p->sent = now;
}
