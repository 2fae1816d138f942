/* misfit.c - see misfit.h. */
#include "misfit.h"

#include "base/print.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

#define WORDS_ROW(id, lead, glue) {lead, glue},
static const struct {
    const char *lead, *glue;
} words[KC_MISFIT_KINDS] = {KC_MISFIT_TABLE(WORDS_ROW)};

void kc_misfit(struct kc_misfits *m, enum kc_misfit kind, const char *format, ...)
{
    va_list args;
    const uint32_t n = m->of[kind].count++;
    if (n >= KC_MISFIT_FIRST)
        return;
    va_start(args, format);
    vsnprintf(m->of[kind].text[n], KC_MISFIT_TEXT, format, args);
    va_end(args);
}

uint32_t kc_misfits_count(const struct kc_misfits *m)
{
    uint32_t n = 0;
    for (int k = 0; k < KC_MISFIT_KINDS; k++)
        n += m->of[k].count;
    return n;
}

/* At most `most` of each kind by name. */
static void put(const struct kc_misfits *m, uint32_t most, struct kc_print *p)
{
    for (int k = 0; k < KC_MISFIT_KINDS; k++) {
        const uint32_t count = m->of[k].count, named = count < most ? count : most;
        if (count)
            kc_print(p, "%s%s", p->length ? "; " : "", words[k].lead);
        for (uint32_t i = 0; i < named; i++)
            kc_print(p, "%s%s", i ? words[k].glue : "", m->of[k].text[i]);
        if (count > named)
            kc_print(p, named ? " and %" PRIu32 " more" : "%" PRIu32, count - named);
    }
}

void kc_misfits_text(const struct kc_misfits *m, char *out, size_t room)
{
    for (uint32_t most = KC_MISFIT_FIRST + 1; most-- > 0;) {
        struct kc_print p = {.out = out, .room = room};
        out[0] = 0;
        put(m, most, &p);
        if (p.length < room)
            return;
    }
}
