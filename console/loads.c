/* loads.c - see loads.h. */
#include "loads.h"

#include "base/json.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct loads *loads_new(uint64_t step, uint32_t layers, uint32_t experts, const uint32_t *choices)
{
    const size_t n = (size_t)layers * experts;
    struct loads *l = malloc(sizeof *l + n * sizeof *choices);
    if (!l)
        return NULL;
    l->step = step, l->layers = layers, l->experts = experts;
    memcpy(l->choices, choices, n * sizeof *choices);
    return l;
}

void loads_worst(const struct loads *l, struct loads_worst *out)
{
    *out = (struct loads_worst){.imbalance = NAN, .most = NAN, .least = NAN};
    for (uint32_t i = 0; i < l->layers; i++) {
        const uint32_t *of = l->choices + (size_t)i * l->experts;
        uint32_t busiest = 0, idlest = 0;
        double sum = 0;
        for (uint32_t x = 0; x < l->experts; x++) {
            sum += of[x];
            busiest = of[x] > of[busiest] ? x : busiest;
            idlest = of[x] < of[idlest] ? x : idlest;
        }
        const double imbalance = sum > 0 ? of[busiest] * (double)l->experts / sum : NAN;
        if (isnan(imbalance) || out->imbalance >= imbalance)
            continue;
        *out = (struct loads_worst){i, busiest, idlest, imbalance, of[busiest] / sum, of[idlest] / sum};
    }
}

void loads_text(const struct loads *l, char *out, size_t room)
{
    struct loads_worst w = {.imbalance = NAN};
    if (l)
        loads_worst(l, &w);
    if (isnan(w.imbalance))
        snprintf(out, room, "-");
    else
        snprintf(out, room, "worst layer %u: expert %u has %.1f%% (%.2f x mean), expert %u %.1f%%", w.layer, w.busiest,
                 w.most * 100, w.imbalance, w.idlest, w.least * 100);
}

json_t *loads_json(const struct loads *l)
{
    struct loads_worst w;
    if (!l)
        return json_null();
    loads_worst(l, &w);
    json_t *rows = json_array();
    for (uint32_t i = 0; i < l->layers; i++) {
        json_t *row = json_array();
        for (uint32_t x = 0; x < l->experts; x++)
            json_array_append_new(row, json_integer(l->choices[(size_t)i * l->experts + x]));
        json_array_append_new(rows, row);
    }
    return json_pack("{s:I,s:i,s:o,s:o,s:o,s:o}", "step", (json_int_t)l->step, "layer", (int)w.layer, "imbalance",
                     kc_json_number(w.imbalance), "busiest_share", kc_json_number(w.most), "idlest_share",
                     kc_json_number(w.least), "choices", rows);
}
