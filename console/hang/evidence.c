/* evidence.c - room for what is known, and the words of verdicts as a table. */
#include "evidence.h"

#include <errno.h>
#include <stdlib.h>

#define KC_HANG_WORD(id, name, layer, help) {name, help, KC_OWNER_##layer},
const struct kc_hang_word_row kc_hang_word_row[KC_HANG_WORDS] = {
#include "words.def"
};
#undef KC_HANG_WORD
#define KC_HANG_WORD(id, name, layer, help) name,
const char *const kc_hang_word_name[KC_HANG_WORDS] = {
#include "words.def"
};
#undef KC_HANG_WORD

int kc_evidence_new(uint32_t ranks, struct kc_evidence **out)
{
    if (ranks < 1 || ranks > KC_RANKS_MAX)
        return -EINVAL;
    struct kc_evidence *e = calloc(1, sizeof *e);
    if (!e)
        return -ENOMEM;
    e->ranks = ranks;
    e->group = calloc(KC_GROUPS, sizeof *e->group);
    e->rank = calloc(ranks, sizeof *e->rank);
    bool whole = e->group && e->rank;
    for (uint32_t r = 0; whole && r < ranks; r++) {
        e->rank[r].op = calloc(KC_OPS, sizeof *e->rank[r].op);
        whole = e->rank[r].op != NULL;
    }
    if (!whole) {
        kc_evidence_free(e);
        return -ENOMEM;
    }
    *out = e;
    return 0;
}

void kc_evidence_free(struct kc_evidence *e)
{
    if (!e)
        return;
    for (uint32_t r = 0; e->rank && r < e->ranks; r++)
        free(e->rank[r].op);
    free(e->rank);
    free(e->group);
    free(e);
}

const struct kc_group_entry *kc_evidence_group(const struct kc_evidence *e, uint32_t id)
{
    for (uint32_t i = 0; i < e->groups; i++)
        if (e->group[i].id == id)
            return &e->group[i];
    return NULL;
}
