/* increment.c - which version the next snapshot leans on: the newest that is committed, if this rank knows its index. A
 * snapshot's number says whether it leans at all, so all ranks decide alike without a word. */
#include "state_impl.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static void forget(struct kc_known *k)
{
    free(k->extent);
    *k = (struct kc_known){.version = 0};
}

/* Differences stand on each other no longer than they save: not when the last saved less than an eighth of the version that all
 * of them stand on, nor when there are as many as a chain may have, or so many that they take twice its bytes. */
static bool is_worn(const struct kc_chain *c)
{
    return c->links >= KC_DEPTH_MAX || c->solid == 0 || c->last > c->solid - c->solid / 8 || c->sum > 2 * c->solid;
}

/* A version of so many bytes, which all ranks know, was committed. */
static void lengthen(struct kc_chain *c, bool differs, uint64_t bytes)
{
    if (differs)
        *c = (struct kc_chain){.links = c->links + 1, .solid = c->solid, .last = bytes, .sum = c->sum + bytes};
    else
        *c = (struct kc_chain){.solid = bytes};
}

bool kc_increment_of(const struct kc_state *s, struct kc_increment *out)
{
    const uint64_t every = s->spec->snapshot_full_every ? s->spec->snapshot_full_every : 1;
    const uint64_t phase = (s->attempt.version - 1) % every;
    if (phase == 0 || s->base.version == 0 || s->base.version >= s->attempt.version)
        return false;
    *out = (struct kc_increment){.version = s->base.version, .extent = s->base.extent, .count = s->base.count,
        .rebase = is_worn(&s->chain)};
    return true;
}

void kc_increment_written(struct kc_state *s, struct kc_pack *p)
{
    forget(&s->next);
    s->next = (struct kc_known){.version = s->attempt.version, .extent = p->extent, .count = p->count};
    p->extent = NULL;
    p->count = 0;
}

void kc_increment_concluded(struct kc_state *s)
{
    const int error = s->attempt.error;
    struct kc_increment before;
    if (error == 0)
        lengthen(&s->chain, kc_increment_of(s, &before) && !before.rebase, s->attempt.bytes);
    if (error == 0 && s->next.version == s->attempt.version) {
        forget(&s->base);
        s->base = s->next;
        s->next = (struct kc_known){.version = 0};
    } else if (error == -EBADMSG) { /* it may be what was leant on that is damaged or gone: the next is full */
        forget(&s->base);
    }
    forget(&s->next);
}

/* The same tensors by the same numbers. */
static bool same_tensors(const struct kc_map *map, const struct kc_manifest *m)
{
    bool same = map->tensors == m->tensors;
    for (uint32_t t = 0; t < map->tensors && same; t++)
        same = strcmp(map->tensor[t].name, m->tensor[t].name) == 0 && map->tensor[t].total == m->tensor[t].count;
    return same;
}

/* `w` is a version in the directory. */
static void lean_on(struct kc_state *s, const struct kc_whole *w)
{
    if (w->manifest.packs != s->shard->ranks || !same_tensors(&s->map, &w->manifest))
        return;
    const struct kc_pack *p = &w->pack[s->rank];
    struct kc_extent *index = malloc((p->count + 1u) * sizeof *index);
    if (!index)
        return; /* then the next is full */
    memcpy(index, p->extent, p->count * sizeof *index);
    s->base = (struct kc_known){.version = w->manifest.version, .extent = index, .count = p->count};
}

void kc_increment_restored(struct kc_state *s, const struct kc_whole *w)
{
    char path[4096];
    struct kc_whole *twin;
    kc_catalog_path(s->directory, w->manifest.version, path);
    forget(&s->base);
    s->chain = (struct kc_chain){.solid = 0}; /* how long it was is not known: no differences at first */
    if (strcmp(path, w->path) == 0) {
        lean_on(s, w);
    } else if (kc_whole_open(s->st, path, &twin, NULL) == 0) { /* what was restored is the copy in memory of that one */
        if (kc_digest_equal(twin->manifest.root, w->manifest.root))
            lean_on(s, twin);
        kc_whole_free(s->st, twin);
    }
}

void kc_increment_free(struct kc_state *s)
{
    forget(&s->base);
    forget(&s->next);
}
