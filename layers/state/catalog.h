/* catalog.h - a directory of snapshots: which versions there are, which of them is whole, marking, pruning, cleaning.
 *
 *   v00000042/  a committed version      v00000042/BROKEN  found damaged: never used again
 *   CURRENT     the newest, for people   LOCK              held while somebody writes
 *   tmp.*       in flight, or what a dead attempt left
 *   nonfinite.v00000043/  a state that is not finite (aside.c): no version, but its number is taken */
#ifndef KC_STATE_CATALOG_H
#define KC_STATE_CATALOG_H

#include "whole.h"

/* All zero: empty. kc_catalog_free(). */
struct kc_catalog {
    uint32_t count, room;
    uint64_t *version; /* ascending */
    uint64_t highest;  /* of committed and of half-made ones */
};

/* -errno of the directory, -ENOMEM; a directory that does not exist is empty. *out may have been filled before. */
int kc_catalog_scan(const struct kc_storage *st, const char *directory, struct kc_catalog *out, struct kc_error *e);
void kc_catalog_free(struct kc_catalog *c);
/* Of c->version[from … *at - 1] the newest that is whole, opened; *at is its place. One that is damaged or can't be read is told to
 * `passed` (NULL: nobody asks), which may end the search (< 0), and is passed over: any other failure is the answer, as it says
 * nothing of the version. -ENOENT, without a text: none is whole. */
typedef int kc_passed(void *arg, uint64_t version, const char *why);
int kc_catalog_newest(const struct kc_storage *st, const char *directory, const struct kc_catalog *c, uint32_t from, uint32_t *at,
                      kc_passed *passed, void *arg, struct kc_whole **out, struct kc_error *e);
/* Of a failure of opening or reading a version: a search goes on to the one before. */
bool kc_catalog_passes(int code);
/* The number that the name of a version's folder gives: "v" and digits only, 8 at least; 0 for anything else. */
uint64_t kc_catalog_version(const char *name);
#define KC_ASIDE "nonfinite."
uint64_t kc_aside_version(const char *name); /* 0: no such name */
void kc_catalog_path(const char *directory, uint64_t version, char out[4096]);
void kc_catalog_tmp_path(const char *directory, uint64_t version, char out[4096]);
void kc_catalog_pack_path(const char *folder, uint32_t rank, char *out, size_t room);

/* Make the directory if it is not there; its own entry is durable then. */
int kc_catalog_make(const struct kc_storage *st, const char *directory, struct kc_error *e);
/* Make the version of w->manifest, whose packs are written under its temporary name, the newest one. The order is the
 * protocol: packs proven, manifest, rename, pointer, each durable before the next. Under the lock. `replaces`: there is a
 * damaged version of that number, which kc_catalog_clean() removes afterwards. */
int kc_commit_version(const struct kc_storage *st, const char *directory, struct kc_whole *w, bool replaces, struct kc_error *e);
/* Mark a version so that nobody chooses it again. Best effort: a read-only medium leaves it unmarked. */
void kc_catalog_mark_broken(const struct kc_storage *st, const char *path, const char *why);
/* Take the directory's lock; ends with the descriptor. -EWOULDBLOCK somebody else writes here. */
int kc_catalog_lock(const struct kc_storage *st, const char *directory);
/* Rename a version to what kc_catalog_clean() removes. */
int kc_catalog_hide(const struct kc_storage *st, const char *directory, uint64_t version, char hidden[4096]);
/* Remove what dead attempts left. Only under the lock. */
int kc_catalog_clean(const struct kc_storage *st, const char *directory);
/* Point CURRENT at a version, durably. */
int kc_catalog_point(const struct kc_storage *st, const char *directory, uint64_t version, struct kc_error *e);
/* Versions that stay only because others that stay lean on them, oldest first. */
struct kc_held {
    uint32_t count;
    struct kc_prune_held *row; /* free() */
};
/* What retention lets go, oldest first: all that is older than the newest `keep` (at least 1) whole versions, but not the newest
 * with a finite loss, no version that `every` divides (0: none), and none that a kept one leans on: these in `held`, which may be
 * NULL. Where fewer are whole, nothing. -errno where it is not known what a version is or leans on: then nothing may go. */
int kc_catalog_old(const struct kc_storage *st, const char *directory, uint32_t keep, uint64_t every, struct kc_catalog *out,
                   struct kc_held *held, struct kc_error *e);
/* Remove the versions of `old`; under the lock. */
int kc_catalog_remove(const struct kc_storage *st, const char *directory, const struct kc_catalog *old, struct kc_error *e);

#endif
