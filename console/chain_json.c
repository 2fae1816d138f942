/* chain_json.c - the list as `kc snap ls --json` prints it, and read back by the screen, whose own thread never waits for a disk. */
#include "chain.h"

#include "session.h"
#include "when.h"

#include "base/clock.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static json_t *known(bool is, uint64_t n)
{
    return is ? json_integer((json_int_t)n) : json_null();
}

json_t *chain_snapshot_json(const struct kc_snapshot_info *i)
{
    bool all = chain_described(i);
    return json_pack("{s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:b,s:o}", "version", known(i->version > 0, i->version), "step",
                     known(all, i->step), "state_root", session_text(i->state_root), "path", session_text(i->path), "bytes",
                     known(all, i->bytes), "values", known(all && i->raw_bytes, i->raw_bytes), "parent",
                     known(i->parents > 0, i->parent), "parents", json_integer(i->parents), "verified", i->verified, "reason",
                     session_text(i->reason));
}

static json_t *row_json(const struct chain_row *r)
{
    char written[32] = "";
    json_t *o = chain_snapshot_json(&r->info);
    if (!isnan(r->written))
        kc_wall_text((uint64_t)(r->written * 1e9), written);
    json_object_set_new(o, "tier", json_string(chain_tier_name[r->tier]));
    json_object_set_new(o, "broken", json_boolean(r->info.error));
    json_object_set_new(o, "written", session_text(written));
    json_object_set_new(o, "cost", cost_json(&r->cost));
    return o;
}

static json_t *rows_json(const struct chain *c, size_t from, size_t count)
{
    json_t *array = json_array();
    for (size_t i = from; i < from + count; i++)
        json_array_append_new(array, row_json(&c->row[i]));
    return array;
}

static json_t *plan_json(const struct chain *c)
{
    json_t *array = json_array();
    for (int i = 0; c->planned && i < CHAIN_AFTERS; i++) {
        const struct chain_restore *r = &c->after[i];
        const bool reads = r->version >= 0;
        json_array_append_new(array, json_pack("{s:s,s:s,s:o,s:o,s:o,s:o,s:s}", "after", chain_after_name[i], "what",
                                               chain_after_what[i], "action", session_text(r->action), "version",
                                               known(reads, (uint64_t)r->version), "step", known(reads, (uint64_t)r->step), "tier",
                                               session_text(reads ? chain_tier_name[r->tier] : ""), "text", r->text));
    }
    return array;
}

void chain_json(const struct chain *c, json_t *into)
{
    const size_t aside = c->disk + c->memory;
    json_object_set_new(into, "snapshots", rows_json(c, 0, c->disk));
    json_object_set_new(into, "copies", rows_json(c, c->disk, c->memory));
    json_object_set_new(into, "nonfinite", c->count > aside ? row_json(&c->row[aside]) : json_null());
    json_object_set_new(into, "restore", plan_json(c));
}

/* ---- and back ---- */

static int name_of(const char *const *names, int count, const char *name)
{
    for (int i = 0; i < count; i++)
        if (strcmp(names[i], name) == 0)
            return i;
    return -1;
}

static void row_of_json(const json_t *o, struct chain_row *r)
{
    struct kc_snapshot_info *i = &r->info;
    const json_t *cost = json_object_get(o, "cost");
    const int tier = name_of(chain_tier_name, CHAIN_TIERS, kc_json_text(o, "tier", ""));
    *r = (struct chain_row){.tier = tier < 0 ? CHAIN_DISK : (enum chain_tier)tier, .written = when_seconds(kc_json_text(o, "written", ""))};
    i->version = (uint64_t)kc_json_integer(o, "version", 0);
    i->step = (uint64_t)kc_json_integer(o, "step", 0);
    i->bytes = (uint64_t)kc_json_integer(o, "bytes", 0);
    i->raw_bytes = (uint64_t)kc_json_integer(o, "values", 0);
    i->parent = (uint64_t)kc_json_integer(o, "parent", 0);
    i->parents = (uint32_t)kc_json_integer(o, "parents", 0);
    i->verified = json_is_true(json_object_get(o, "verified"));
    i->error = json_is_true(json_object_get(o, "broken")) ? -EBADMSG : 0;
    snprintf(i->state_root, sizeof i->state_root, "%s", kc_json_text(o, "state_root", ""));
    snprintf(i->path, sizeof i->path, "%s", kc_json_text(o, "path", ""));
    snprintf(i->reason, sizeof i->reason, "%s", kc_json_text(o, "reason", ""));
    if (json_is_object(cost)) {
        r->cost = (struct job_cost){.version = i->version, .step = i->step};
        for (int f = 0; f < KC_FIGURES; f++)
            r->cost.figure[f] = kc_json_real(cost, kc_figure_name[f], (double)NAN);
    }
}

static void plan_of_json(const json_t *plan, struct chain *out)
{
    size_t i;
    json_t *o;
    out->planned = json_array_size(plan) > 0;
    json_array_foreach((json_t *)plan, i, o) {
        const int after = name_of(chain_after_name, CHAIN_AFTERS, kc_json_text(o, "after", ""));
        const int tier = name_of(chain_tier_name, CHAIN_TIERS, kc_json_text(o, "tier", ""));
        if (after < 0)
            continue;
        struct chain_restore *r = &out->after[after];
        r->version = kc_json_integer(o, "version", -1);
        r->step = kc_json_integer(o, "step", -1);
        r->tier = tier < 0 ? CHAIN_DISK : (enum chain_tier)tier;
        snprintf(r->action, sizeof r->action, "%s", kc_json_text(o, "action", ""));
        snprintf(r->text, sizeof r->text, "%s", kc_json_text(o, "text", ""));
    }
}

int chain_of_json(const json_t *object, struct chain *out)
{
    const json_t *disk = json_object_get(object, "snapshots"), *memory = json_object_get(object, "copies"),
                 *aside = json_object_get(object, "nonfinite");
    *out = (struct chain){.disk = json_array_size(disk), .memory = json_array_size(memory)};
    if (!json_is_array(disk) || !json_is_array(memory))
        return -EINVAL;
    out->row = calloc(out->disk + out->memory + 1, sizeof *out->row);
    if (!out->row)
        return -ENOMEM;
    snprintf(out->id, sizeof out->id, "%s", kc_json_text(object, "id", ""));
    for (size_t i = 0; i < out->disk; i++)
        row_of_json(json_array_get(disk, i), &out->row[out->count++]);
    for (size_t i = 0; i < out->memory; i++)
        row_of_json(json_array_get(memory, i), &out->row[out->count++]);
    if (json_is_object(aside))
        row_of_json(aside, &out->row[out->count++]);
    plan_of_json(json_object_get(object, "restore"), out);
    return 0;
}
