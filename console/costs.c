/* costs.c - see costs.h. A line a rank: of a snapshot the times of the slowest are told, and the rates of the one that wrote longest. */
#include "costs.h"

#include "journal.h"
#include "text.h"

#include "base/print.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool is_known(const struct job_cost *c)
{
    for (int f = 0; f < KC_FIGURES; f++)
        if (!isnan(c->figure[f]))
            return true;
    return false;
}

/* What another rank says of the same snapshot. */
static void merge(struct job_cost *c, const double figure[KC_FIGURES])
{
    const double *before = c->figure;
    const bool longer = isnan(before[KC_FIGURE_WRITE]) || figure[KC_FIGURE_WRITE] > before[KC_FIGURE_WRITE];
    for (int f = 0; f < KC_FIGURES; f++) {
        const bool rate = f == KC_FIGURE_RATE || f == KC_FIGURE_DISK_RATE;
        c->figure[f] = !rate ? fmax(before[f], figure[f]) /* NaN yields to a number */ : longer ? figure[f] : before[f];
    }
}

bool cost_of_event(const json_t *event, struct job_cost *out)
{
    const long long version = kc_json_integer(event, "version", 0), step = kc_json_integer(event, "step", -1);
    if (version <= 0 || step < 0 || strcmp(kc_json_text(event, "event", ""), kc_event_name[KC_EVENT_SNAPSHOT]) != 0)
        return false;
    *out = (struct job_cost){.version = (uint64_t)version, .step = (uint64_t)step};
    for (int f = 0; f < KC_FIGURES; f++) {
        const json_t *v = json_object_get(event, kc_figure_name[f]);
        out->figure[f] = json_is_number(v) ? json_number_value(v) : NAN;
    }
    return true;
}

/* Most lines tell something else, or of versions that are gone: both are seen without parsing. */
static bool is_worth(const char *line, size_t bytes, uint64_t least)
{
    static const char key[] = "\"version\":";
    const char *at = strstr(line, key);
    return at && journal_may_tell(line, bytes, kc_event_name[KC_EVENT_SNAPSHOT]) &&
           (at[sizeof key - 1] == ' ' || strtoull(at + sizeof key - 1, NULL, 10) >= least);
}

static bool take_line(struct costs *c, size_t *room, uint64_t least, const char *line, size_t bytes)
{
    struct job_cost one;
    json_t *o = is_worth(line, bytes, least) ? json_loadb(line, bytes, 0, NULL) : NULL;
    bool fits = true;
    if (cost_of_event(o, &one)) {
        struct job_cost *last = c->count ? &c->row[c->count - 1] : NULL;
        if (last && last->version == one.version && last->step == one.step) {
            merge(last, one.figure);
        } else {
            struct job_cost *more = c->row;
            if (c->count == *room)
                more = realloc(c->row, (*room = 2 * *room + 64) * sizeof *more);
            fits = more != NULL;
            c->row = fits ? more : c->row;
            if (fits)
                c->row[c->count++] = one;
        }
    }
    json_decref(o);
    return fits;
}

void costs_read(const char *directory, uint64_t least, struct costs *out)
{
    char path[PATH_MAX + 16], *line = NULL;
    size_t room = 0, rows = 0;
    *out = (struct costs){NULL, 0};
    snprintf(path, sizeof path, "%s/events.jsonl", directory);
    FILE *f = fopen(path, "re");
    for (ssize_t n; f && (n = getline(&line, &room, f)) > 0;)
        if (line[n - 1] == '\n' /* else it is being written */ && !take_line(out, &rows, least, line, (size_t)n))
            break;
    free(line);
    if (f)
        fclose(f);
}

void costs_read_of(const char *version_path, uint64_t least, struct costs *out)
{
    char directory[PATH_MAX];
    const char *at = strstr(version_path, "/snapshots/"), *next;
    *out = (struct costs){NULL, 0};
    while (at && (next = strstr(at + 1, "/snapshots/")))
        at = next;
    if (!at || (size_t)snprintf(directory, sizeof directory, "%.*s", (int)(at - version_path), version_path) >= sizeof directory)
        return;
    costs_read(directory, least, out);
}

const struct job_cost *costs_find(const struct costs *c, uint64_t version, uint64_t step)
{
    for (size_t i = c->count; i-- > 0;)
        if (c->row[i].version == version)
            return c->row[i].step == step && is_known(&c->row[i]) ? &c->row[i] : NULL;
    return NULL;
}

void costs_free(struct costs *c)
{
    free(c->row);
    *c = (struct costs){NULL, 0};
}

void costs_newest(struct job *j)
{
    struct costs all;
    if (j->snapshot.step < 0)
        return;
    costs_read(j->directory, (uint64_t)j->snapshot.version, &all);
    const struct job_cost *c = costs_find(&all, (uint64_t)j->snapshot.version, (uint64_t)j->snapshot.step);
    j->snapshot.cost = c ? *c : (struct job_cost){.version = 0};
    costs_free(&all);
}

/* Of 1. */
static double share(const struct job_cost *c)
{
    return c->figure[KC_FIGURE_RATE] / c->figure[KC_FIGURE_DISK_RATE];
}

json_t *cost_json(const struct job_cost *c)
{
    if (!c || !c->version)
        return json_null();
    json_t *o = json_object();
    for (int f = 0; f < KC_FIGURES; f++)
        json_object_set_new(o, kc_figure_name[f], kc_json_number(c->figure[f]));
    json_object_set_new(o, "disk_share", kc_json_number(share(c)));
    return o;
}

void cost_text(const struct job_cost *c, char *out, size_t room)
{
    char a[32], b[32];
    struct kc_print p = {.out = out, .room = room};
    out[0] = 0;
    if (!c || !c->version)
        return;
    const double *v = c->figure;
    kc_print(&p, "training stood %s; ", text_seconds(v[KC_FIGURE_STALL], a, sizeof a));
    if (!isnan(v[KC_FIGURE_COPY]))
        kc_print(&p, "copied in %s, ", text_seconds(v[KC_FIGURE_COPY], a, sizeof a));
    kc_print(&p, "written in %s, ", text_seconds(v[KC_FIGURE_WRITE], a, sizeof a));
    kc_print(&p, "%s for %s", text_bytes(v[KC_FIGURE_BYTES], a, sizeof a), text_bytes(v[KC_FIGURE_RAW_BYTES], b, sizeof b));
    if (!isnan(v[KC_FIGURE_RATE]))
        kc_print(&p, "; %.*f MiB/s", v[KC_FIGURE_RATE] < 9.95 ? 1 : 0, v[KC_FIGURE_RATE]);
    if (!isnan(share(c)))
        kc_print(&p, ", %.0f %% of the disk's own rate", 100 * share(c));
}
