/* drill_judge.c - what was expected against what was seen. Pure. */
#include "drill.h"

#include "base/print.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define NAME_ROW(id, name) name,
const char *const drill_end_name[DRILL_ENDS] = {DRILL_END_TABLE(NAME_ROW)};

bool drill_has_word(const json_t *words, const char *word)
{
    size_t i;
    json_t *one;
    json_array_foreach(words, i, one)
        if (strcmp(json_string_value(one), word) == 0)
            return true;
    return false;
}

static bool same_ranks(const json_t *wanted, const struct drill_said *said)
{
    if (!wanted)
        return true;
    size_t found = 0, i;
    json_t *one;
    json_array_foreach(wanted, i, one)
        for (size_t k = 0; k < said->ranks; k++)
            found += said->rank[k] == json_integer_value(one);
    return found == json_array_size(wanted) && found == said->ranks;
}

static bool one_fits(const struct drill *d, const json_t *words, const struct drill_said *said, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (drill_has_word(words, said[i].word) && same_ranks(d->ranks, &said[i]))
            return true;
    return false;
}

/* Somebody is blamed who should not be: the worst of faults. */
static bool blames_others(const struct drill *d, const struct drill_seen *s)
{
    for (size_t i = 0; d->verdict && i < s->verdicts; i++)
        if (!one_fits(d, d->verdict, &s->verdict[i], 1))
            return true;
    return false;
}

/* A job that stands was stopped by us. */
static bool ended_well(const struct drill *d, const char *end)
{
    return d->end == DRILL_STANDS ? strcmp(end, "stopped") == 0 || strcmp(end, "failed") == 0
                                  : strcmp(end, drill_end_name[d->end]) == 0;
}

bool drill_judge(const struct drill *d, const struct drill_seen *s, const char *reference, char *why, size_t room)
{
    *why = 0;
    if (s->trouble[0])
        snprintf(why, room, "%s", s->trouble);
    else if (!s->injected)
        snprintf(why, room, "the fault did not happen");
    else if (d->verdict && !one_fits(d, d->verdict, s->verdict, s->verdicts))
        snprintf(why, room, s->verdicts ? "another diagnosis" : "no diagnosis");
    else if (blames_others(d, s))
        snprintf(why, room, "others are blamed, too");
    else if (d->fault && !one_fits(d, d->fault, &s->fault, 1))
        snprintf(why, room, s->fault.word[0] ? "another first failure" : "no first failure");
    else if (d->event && !one_fits(d, d->event, &s->event, 1))
        snprintf(why, room, s->event.word[0] ? "the event names another rank" : "no such event");
    else if (s->unwanted[0])
        snprintf(why, room, "event %s", s->unwanted);
    else if (!ended_well(d, s->end))
        snprintf(why, room, "it ended %s, not %s", s->end[0] ? s->end : "never", drill_end_name[d->end]);
    else if (s->processes + s->segments + s->files)
        snprintf(why, room, "left over: %s", s->left);
    else if (d->same_root && (!reference[0] || strcmp(reference, s->root) != 0))
        snprintf(why, room, reference[0] ? "its state is not that of the job without the fault"
                                         : "the job without the fault did not finish");
    return *why == 0;
}

/* ---- as text ---- */

static void print_words(struct kc_print *p, const char *what, const json_t *words)
{
    size_t i;
    json_t *one;
    if (!words)
        return;
    kc_print(p, "%s%s", p->length ? ", " : "", what);
    json_array_foreach(words, i, one)
        kc_print(p, "%s%s", i ? "|" : "", json_string_value(one));
}

void drill_expected_text(const struct drill *d, char *out, size_t room)
{
    struct kc_print p = {.out = out, .room = room};
    size_t i;
    json_t *one;
    *out = 0;
    print_words(&p, "", d->verdict);
    print_words(&p, "first ", d->fault);
    print_words(&p, "event ", d->event);
    print_words(&p, "no ", d->without);
    json_array_foreach(d->ranks, i, one)
        kc_print(&p, "%s%lld", i ? "," : " ", (long long)json_integer_value(one));
    if (!*out)
        kc_print(&p, "nothing");
}

static void print_said(struct kc_print *p, const char *what, const struct drill_said *said)
{
    kc_print(p, "%s%s%s", p->length ? ", " : "", what, said->word[0] ? said->word : "-");
    for (size_t i = 0; i < said->ranks && i < 8; i++)
        kc_print(p, "%s%lld", i ? "," : " ", (long long)said->rank[i]);
}

void drill_got_text(const struct drill *d, const struct drill_seen *s, char *out, size_t room)
{
    struct kc_print p = {.out = out, .room = room};
    *out = 0;
    for (size_t i = 0; d->verdict && i < s->verdicts; i++)
        print_said(&p, "", &s->verdict[i]);
    if (d->fault)
        print_said(&p, "first ", &s->fault);
    if (d->event)
        print_said(&p, "event ", &s->event);
    if (!*out)
        kc_print(&p, d->verdict ? "-" : "nothing");
}
