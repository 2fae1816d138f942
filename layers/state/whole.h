/* whole.h - a version opened for reading: manifest and all packs' indices, and those of the versions that it leans on, proven
 * to fit together. Values are read by unpack.h. */
#ifndef KC_STATE_WHOLE_H
#define KC_STATE_WHOLE_H

#include "manifest.h"
#include "pack.h"

struct kc_whole {
    char path[4096];
    struct kc_manifest manifest;
    uint32_t packs;        /* manifest.packs, once they are opened */
    struct kc_pack *pack;
    uint64_t bytes;        /* of all its packs */
    uint32_t parents;      /* as in the manifest, and in its order; their files are closed, and opened as they are read */
    struct kc_whole **parent;
};

/* -EBADMSG not whole or marked broken, or a version that it leans on is (e says why), -ENOMEM, -errno. */
int kc_whole_open(const struct kc_storage *st, const char *path, struct kc_whole **out, struct kc_error *e);
/* The same; on failure *own says whether it is that version which is not as it must be, or one that it leans on. */
int kc_whole_open_blame(const struct kc_storage *st, const char *path, struct kc_whole **out, bool *own, struct kc_error *e);
/* An error of opening that is not of what was to be opened: another time it may be whole. */
bool kc_whole_says_nothing(int code);
/* One with nothing in it, to be filled; NULL no memory. */
struct kc_whole *kc_whole_new(void);
void kc_whole_free(const struct kc_storage *st, struct kc_whole *w); /* NULL is fine */

/* One with a manifest that is borrowed, and given back before that is freed. */
struct kc_whole *kc_whole_of(const struct kc_manifest *lent);
void kc_whole_free_of(const struct kc_storage *st, struct kc_whole *w, const struct kc_manifest *lent); /* NULL is fine */

/* A version that is being made: every pack in `folder` against the table of w->manifest, whose rows of packs and parents are
 * filled in. The versions that it leans on lie in `directory`. */
int kc_whole_learn(const struct kc_storage *st, const char *folder, const char *directory, struct kc_whole *w, struct kc_error *e);

/* Where an extent that leans finds what it needs. */
struct kc_place {
    const struct kc_whole *whole; /* w or one of its parents */
    uint32_t pack, extent;
};
/* The next place of the chain; of an opened version there is one. */
struct kc_place kc_whole_next(const struct kc_whole *w, struct kc_place at);
static inline const struct kc_extent *kc_place_extent(struct kc_place p)
{
    return &p.whole->pack[p.pack].extent[p.extent];
}

#endif
