/* test_increment.c - snapshots that lean on earlier ones: what is referred to, what is kept for it, and what happens when it is
 * damaged or gone. Rows F32, F33 of the list of faults. */
#include "copy_rig.h"
#include "rig_faults.h"

#include "state/catalog.h"
#include "state/state_impl.h"
#include "tests/unit/suite.h"

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[256];

static void setup(void)
{
    rig_folder(folder, true);
}

static void teardown(void)
{
    rig_keep = 2;
    rig_keep_every = 0;
    rig_full_every = 1;
    rig_copies = 0;
    rig_remove(folder);
}

static const struct rig_layout two = {2, 1, 2, false, false};

static void version_path(uint64_t version, const char *file, char out[512])
{
    snprintf(out, 512, "%s/v%08llu%s%s", folder, (unsigned long long)version, *file ? "/" : "", file);
}

static bool there(uint64_t version)
{
    char path[512];
    struct stat st;
    version_path(version, "", path);
    return stat(path, &st) == 0;
}

/* Give all elements of a tensor and kind other values, on all ranks. */
static void change(struct rig *r, uint32_t tensor, int kind, uint64_t step)
{
    for (uint32_t rank = 0; rank < r->ranks; rank++) {
        const struct rig_part part = rig_part(r, tensor, rank);
        const enum kc_state_class what = rig_class(r, kind);
        const uint32_t bucket = (uint32_t)part.tensor->bucket;
        void *data;
        ck_assert_int_eq(r->io[rank].open(r->io[rank].self, what, bucket, &data), 0);
        for (uint64_t i = 0; i < part.count; i++)
            if (rig_keeps(&part, what, i))
                ((float *)data)[part.tensor->offset + i] = rig_value(tensor, kind, rig_global(&part, i), step);
        r->io[rank].close(r->io[rank].self, what, bucket);
    }
}

static void advance(struct rig *r)
{
    for (uint32_t i = 0; i < r->ranks; i++)
        kc_state_advance(r->state[i], 100, 8, 2, 1);
}

static void save(struct rig *r)
{
    ck_assert_int_eq(rig_snapshot(r), 0);
}

static uint64_t draw(uint64_t *seed)
{
    uint64_t z = *seed += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

/* That version is whole to the last bit, and another layout restores it: the root is compared with the one it was saved with. */
static void check_version(uint64_t version, const struct rig_layout *layout)
{
    struct kc_snapshot_info info;
    struct kc_error e = {""};
    struct rig r;
    char path[512];
    version_path(version, "", path);
    ck_assert_msg(kc_snapshot_verify(path, false, &info, &e) == 0, "%s", e.text);
    ck_assert_msg(kc_snapshot_verify(path, true, &info, &e) == 0, "%s", e.text);
    rig_open(&r, rig_small, rig_small_count, *layout, folder, NULL, "");
    ck_assert_msg(rig_restore(&r, version, &e) == 0, "%s", e.text);
    rig_close(&r);
}

/* ---- what is stored ---- */

/* What did not change takes an entry of the index, and the values come back on any layout. */
START_TEST(what_did_not_change_is_referred_to)
{
    static const struct rig_layout other = {3, 1, 1, true, false};
    struct kc_snapshot_info info;
    struct rig r;
    rig_full_every = 50;
    rig_keep = 8;
    rig_open(&r, rig_large, rig_large_count, two, folder, NULL, "");
    rig_train(&r);
    save(&r);
    kc_state_last_snapshot(r.state[0], &info);
    ck_assert(info.parent == 0 && info.bytes > info.raw_bytes / 2);
    const uint64_t full = info.bytes;
    for (uint64_t v = 2; v < 6; v++) {
        struct kc_snapshot_view *view;
        struct kc_error e = {""};
        char path[512];
        change(&r, 1, 0, v); /* 5 elements */
        advance(&r);
        save(&r);
        kc_state_last_snapshot(r.state[0], &info);
        ck_assert_uint_eq(info.parent, v - 1);
        ck_assert_uint_lt(info.bytes, full / 300);
        version_path(v, "", path);
        ck_assert_int_eq(kc_snapshot_look(path, &view, &e), 0);
        ck_assert_uint_eq(view->info.parents, 1); /* never a chain of references */
        ck_assert_uint_eq(view->info.parent, 1);
        ck_assert_uint_eq(view->info.raw_bytes, info.raw_bytes);
        ck_assert_uint_eq(view->tensor[0].bytes[0], (uint64_t)1025 * 1031 * 4); /* of values, wherever they are stored */
        kc_snapshot_view_free(view);
    }
    rig_close(&r);
    for (uint64_t v = 1; v < 6; v++) {
        struct kc_error e = {""};
        struct rig o;
        rig_open(&o, rig_large, rig_large_count, other, folder, NULL, "");
        ck_assert_msg(rig_restore(&o, v, &e) == 0, "%s", e.text);
        rig_close(&o);
    }
}
END_TEST

/* Another layout after a restart has other extents: the first snapshot is full. The same layout goes on leaning. */
START_TEST(after_a_restart_the_same_layout_leans_on)
{
    static const struct rig_layout layouts[] = {{2, 1, 2, false, false}, {2, 1, 3, false, false}, {3, 1, 2, false, false},
                                                {1, 0, 2, false, false}, {2, 1, 2, false, false}};
    struct kc_error e = {""};
    struct kc_snapshot_info info;
    struct rig r;
    rig_full_every = 50;
    rig_keep = 20;
    for (size_t i = 0; i < sizeof layouts / sizeof layouts[0]; i++) {
        rig_open(&r, rig_large, rig_large_count, layouts[i], folder, NULL, "");
        if (i)
            ck_assert_msg(rig_restore(&r, 0, &e) == 0, "%s", e.text);
        else
            rig_train(&r);
        for (int k = 0; k < 2; k++) {
            change(&r, 1, 0, i);
            advance(&r);
            save(&r);
            kc_state_last_snapshot(r.state[0], &info);
            /* buckets filled otherwise cut the extents of ranks otherwise, but some are the same */
            ck_assert_int_eq(info.bytes < info.raw_bytes / 100, k == 1);
        }
        rig_close(&r);
    }
    rig_open(&r, rig_large, rig_large_count, two, folder, NULL, "");
    ck_assert_msg(rig_restore(&r, 0, &e) == 0, "%s", e.text);
    change(&r, 1, 0, 77);
    advance(&r);
    save(&r);
    kc_state_last_snapshot(r.state[0], &info);
    ck_assert_uint_lt(info.bytes, info.raw_bytes / 100);
    rig_close(&r);
}
END_TEST

/* What is restored from memory is on disk as well: the next snapshot leans on that, if it is. */
START_TEST(after_a_restart_from_memory_it_leans_on_the_disk)
{
    struct kc_error e = {""};
    struct kc_snapshot_info info;
    struct rig r;
    int fds[RIG_RANKS];
    rig_full_every = 50;
    rig_keep = 20;
    rig_open(&r, rig_large, rig_large_count, two, folder, NULL, "");
    copy_rig_open(&r, fds);
    rig_close(&r);
    rig_copy_fds = fds;
    for (int i = 0; i < 3; i++) {
        rig_open(&r, rig_large, rig_large_count, two, folder, NULL, "");
        if (i) {
            ck_assert_int_eq(kc_state_choose(r.state[0], 0, &info, &e), 0);
            ck_assert(info.memory && info.step == (uint64_t)i);
            if (i == 2) { /* the disk has another state by that number: nothing to lean on */
                char path[512];
                version_path(2, "/MANIFEST.json", path);
                rig_flip(path, 100);
            }
            ck_assert_msg(rig_restore(&r, 0, &e) == 0, "%s", e.text);
            change(&r, 1, 0, (uint64_t)i);
            advance(&r);
        } else {
            rig_train(&r);
        }
        save(&r);
        kc_state_last_snapshot(r.state[0], &info);
        ck_assert_msg((info.bytes < info.raw_bytes / 100) == (i == 1), "%d: %d bytes", i, (int)info.bytes);
        rig_close(&r);
    }
    rig_copy_fds = NULL;
    for (int i = 0; i < 2; i++)
        close(fds[i]);
}
END_TEST

/* ---- differences ---- */

/* Every value a little other than it was: what coding sees late in training. */
static void drift(struct rig *r, uint64_t step)
{
    for (uint32_t rank = 0; rank < r->ranks; rank++) {
        for (uint32_t t = 0; t < r->plan->tensors.count; t++)
            for (int k = 0; k < 3; k++) {
                const struct rig_part part = rig_part(r, t, rank);
                const enum kc_state_class what = rig_class(r, k);
                void *data;
                ck_assert_int_eq(r->io[rank].open(r->io[rank].self, what, (uint32_t)part.tensor->bucket, &data), 0);
                for (uint64_t i = 0; i < part.count; i++)
                    if (rig_keeps(&part, what, i)) {
                        const uint64_t e = rig_global(&part, i);
                        ((float *)data)[part.tensor->offset + i] = rig_value(t, k, e, 1) * (1 + 1e-6f * rig_value(t, k, e, step) / 215);
                    }
                r->io[rank].close(r->io[rank].self, what, (uint32_t)part.tensor->bucket);
            }
    }
    advance(r);
}

/* The copy of the version before is what the next is compared with: differences, until eight stand on each other or they take
 * that all stand on; then one begins anew. */
START_TEST(differences_lean_on_the_copy_before)
{
    static const struct rig_layout other = {1, 0, 3, true, false};
    struct kc_snapshot_info info;
    struct rig r;
    uint64_t full = 0, sum = 0, links = 0, first = 1, anews = 0;
    rig_copies = 2;
    rig_keep = 2;
    rig_full_every = 50;
    rig_open(&r, rig_large, rig_large_count, two, folder, NULL, "");
    for (uint64_t v = 1; v <= 20; v++) {
        struct kc_error e = {""};
        drift(&r, v);
        save(&r);
        kc_state_last_snapshot(r.state[0], &info);
        const bool anew = v == 1 || links == 8 || sum > 2 * full;
        full = v == 1 ? info.bytes : full;
        sum = anew ? 0 : sum + info.bytes;
        links = anew ? 0 : links + 1;
        anews += anew;
        ck_assert_msg(anew ? info.bytes > full * 9 / 10 : info.bytes < full * 7 / 10, "version %llu: %llu bytes, full %llu",
                      (unsigned long long)v, (unsigned long long)info.bytes, (unsigned long long)full);
        struct rig o;
        rig_copies = 0;
        rig_open(&o, rig_large, rig_large_count, other, folder, NULL, "");
        ck_assert_msg(rig_restore(&o, v, &e) == 0, "%s", e.text);
        rig_close(&o);
        rig_copies = 2;
        /* two are kept, and what they stand on, back to the one that began anew */
        for (uint64_t w = 1; w <= v; w++)
            ck_assert_msg(there(w) == (w >= first), "at %llu: version %llu", (unsigned long long)v, (unsigned long long)w);
        first = anew ? v : first;
    }
    ck_assert_uint_ge(anews, 3);
    rig_close(&r);
}
END_TEST

/* A copy that is no longer what was saved is leant on by nothing. */
START_TEST(a_copy_that_changed_is_no_base)
{
    struct kc_snapshot_info info;
    struct kc_error e = {""};
    struct rig r;
    char path[512];
    rig_copies = 2;
    rig_full_every = 50;
    rig_open(&r, rig_large, rig_large_count, two, folder, NULL, "");
    for (uint64_t v = 1; v <= 2; v++) {
        drift(&r, v);
        if (v == 2)
            for (uint32_t i = 0; i < 2; i++) {
                struct kc_state *s = r.state[i];
                for (uint32_t k = 0; k < s->background->pack.count; k++) {
                    const struct kc_extent *x = &s->background->pack.extent[k];
                    float *values = (float *)(void *)(s->background->image + x->offset);
                    values[(x->hi - x->lo) / 2] += 1;
                }
            }
        save(&r);
    }
    version_path(2, "", path);
    ck_assert_msg(kc_snapshot_verify(path, true, &info, &e) == 0, "%s", e.text);
    ck_assert_uint_eq(info.parents, 0);
    rig_close(&r);
}
END_TEST

/* ---- what is kept ---- */

enum { VERSIONS = 40 };

/* What a version leans on, kept by hand: bit v is version v. */
struct model {
    uint64_t leans[VERSIONS + 1];
    uint64_t holds[8][3]; /* the version that stores the present values of a tensor and kind */
    bool there[VERSIONS + 1];
};

static void model_save(struct model *m, uint64_t version, bool full, uint32_t changed)
{
    for (uint32_t t = 0; t < rig_small_count; t++)
        for (int k = 0; k < 3; k++) {
            if (full || changed >> (t * 3 + (uint32_t)k) & 1)
                m->holds[t][k] = version;
            if (m->holds[t][k] != version)
                m->leans[version] |= UINT64_C(1) << m->holds[t][k] | m->leans[m->holds[t][k]];
        }
    m->there[version] = true;
}

/* The newest `keep`, what `every` divides, and what these lean on; all versions are whole. */
static void model_prune(struct model *m, uint64_t newest, uint32_t keep, uint64_t every)
{
    uint64_t needed = 0;
    uint32_t kept = 0;
    for (uint64_t v = newest; v > 0; v--) {
        if (!m->there[v])
            continue;
        const bool stays = kept < keep || (every && v % every == 0) || (needed >> v & 1);
        kept++;
        if (stays)
            needed |= m->leans[v];
        m->there[v] = stays;
    }
}

/* All that are left but the newest were held, by those that are left and lean on them. */
static void check_held(const struct model *m, const struct kc_pruned *done)
{
    size_t n = 0;
    for (uint64_t v = 1; v < VERSIONS; v++) {
        struct kc_prune_held want = {.version = v};
        for (uint64_t w = v + 1; w <= VERSIONS; w++)
            if (m->there[w] && m->leans[w] >> v & 1) {
                want.leaning++;
                want.newest = w;
            }
        if (!m->there[v])
            continue;
        ck_assert(n < done->held_count && done->held[n].version == v);
        ck_assert_uint_eq(done->held[n].leaning, want.leaning);
        ck_assert_uint_eq(done->held[n++].newest, want.newest);
    }
    ck_assert_uint_eq(n, done->held_count);
}

START_TEST(retention_keeps_what_others_lean_on)
{
    uint64_t seed = (uint64_t)_i;
    struct model m = {.leans = {0}};
    struct rig r;
    static const struct rig_layout other = {1, 0, 3, true, false};
    rig_keep = 1 + (uint32_t)(draw(&seed) % 3);
    rig_keep_every = draw(&seed) % 2 ? 5 : 0;
    rig_full_every = 2 + (uint32_t)(draw(&seed) % 14);
    rig_open(&r, rig_small, rig_small_count, two, folder, NULL, "");
    for (uint64_t v = 1; v <= VERSIONS; v++) {
        const uint32_t changed = (uint32_t)(draw(&seed) & draw(&seed) & draw(&seed)) & ((1u << 3 * rig_small_count) - 1);
        for (uint32_t t = 0; t < rig_small_count; t++)
            for (int k = 0; k < 3; k++)
                if (v == 1 || changed >> (t * 3 + (uint32_t)k) & 1)
                    change(&r, t, k, v);
        advance(&r);
        save(&r);
        model_save(&m, v, (v - 1) % rig_full_every == 0, changed);
        model_prune(&m, v, rig_keep, rig_keep_every);
        for (uint64_t w = 1; w <= v; w++) {
            ck_assert_msg(there(w) == m.there[w], "seed %d, at %llu: version %llu", _i, (unsigned long long)v, (unsigned long long)w);
            if (there(w) && (w == v || draw(&seed) % 8 == 0))
                check_version(w, &other);
        }
    }
    uint64_t gone[VERSIONS];
    struct kc_prune_held held[VERSIONS];
    struct kc_pruned done = {.version = gone, .held = held, .room = VERSIONS};
    struct kc_error e = {""};
    ck_assert_int_eq(kc_snapshot_prune(folder, &(struct kc_prune){1, 0, false}, &done, &e), 0);
    model_prune(&m, VERSIONS, 1, 0);
    for (uint64_t w = 1; w <= VERSIONS; w++)
        ck_assert_int_eq(there(w), m.there[w]);
    check_held(&m, &done);
    check_version(VERSIONS, &other);
    rig_close(&r);
}
END_TEST

/* Version 6 leans on 1 to 5. Whatever can't be read for a while, nothing that is leant on may go, nor anything else. */
START_TEST(what_cannot_be_read_lets_nothing_go)
{
    static const int codes[] = {-EIO, -EMFILE, -ENOMEM};
    static struct rig_faults f;
    struct kc_catalog old = {0};
    struct kc_error e = {""};
    struct rig r;
    uint32_t hits = 0;
    rig_full_every = 50;
    rig_keep = 20;
    rig_open(&r, rig_small, rig_small_count, two, folder, NULL, "");
    for (uint64_t v = 1; v <= 8; v++) {
        for (uint32_t t = 0; t < rig_small_count; t++)
            if (v == 1 || v == 7 || t == v % rig_small_count) /* 7 needs only itself, so what is before it goes but for `every` */
                for (int k = 0; k < 3; k++)
                    change(&r, t, k, v);
        advance(&r);
        save(&r);
    }
    rig_close(&r);
    for (uint64_t n = 1;; n++) {
        rig_faults(&f);
        f.at = n;
        f.code = codes[_i];
        const int got = kc_catalog_old(&f.storage, folder, 1, 6, &old, NULL, &e);
        if (!f.failed)
            break;
        if (strcmp(f.failed, "close") == 0)
            continue;
        hits++;
        ck_assert_msg(got == codes[_i], "call %d, %s: %d, %u may go", (int)n, f.failed, got, old.count);
        ck_assert_uint_eq(old.count, 0);
    }
    kc_catalog_free(&old);
    ck_assert_uint_gt(hits, 20);
}
END_TEST

/* ---- damage ---- */

/* Where the first extent of a kind is stored, by the page. */
static long stored_at(const char *path, uint32_t kind)
{
    uint64_t at, offset = 0;
    uint32_t is = UINT32_MAX;
    FILE *f = fopen(path, "rbe");
    ck_assert(f && fseek(f, -48, SEEK_END) == 0 && fread(&at, sizeof at, 1, f) == 1);
    for (; is != kind; at += 192) {
        ck_assert(fseek(f, (long)at + 4, SEEK_SET) == 0 && fread(&is, sizeof is, 1, f) == 1);
        ck_assert(fseek(f, (long)at + 104, SEEK_SET) == 0 && fread(&offset, sizeof offset, 1, f) == 1);
    }
    fclose(f);
    return (long)offset;
}

enum harm { EXTENT, INDEX, GONE, PACK_GONE, MARKED, OTHER, HARMS };

/* Version 2 leans on 1, version 3 is full, version 4 leans on 3. Harm to 3 costs 4 and 3, and one line says which it was. */
START_TEST(harm_to_what_is_leant_on_costs_what_leans)
{
    struct kc_snapshot_info info[8];
    struct kc_error e = {""};
    struct kc_snapshot_info chosen;
    size_t count;
    char path[512];
    struct rig r;
    rig_full_every = 2;
    rig_keep = 8;
    rig_open(&r, rig_small, rig_small_count, two, folder, NULL, "");
    for (uint64_t v = 1; v <= 4; v++) {
        for (uint32_t t = 0; t < (v % 2 ? rig_small_count : 1); t++)
            change(&r, t, 0, v);
        advance(&r);
        save(&r);
    }
    version_path(3, _i == OTHER ? "" : "rank-1.pack", path);
    if (_i == EXTENT)
        rig_flip(path, stored_at(path, KC_KIND_MOMENT1));
    else if (_i == INDEX)
        rig_flip(path, -60);
    else if (_i == PACK_GONE)
        ck_assert_int_eq(remove(path), 0);
    else if (_i == MARKED || _i == GONE) {
        version_path(3, "", path);
        if (_i == GONE)
            rig_remove(path);
        else
            kc_catalog_mark_broken(&kc_storage_posix, path, "by hand\n");
    } else { /* another version of that number: whole, and not the one that was leant on */
        rig_remove(path);
        char from[512];
        struct rig o;
        rig_folder(from, true);
        rig_open(&o, rig_small, rig_small_count, two, from, NULL, "");
        for (int v = 1; v <= 3; v++) {
            rig_train(&o);
            save(&o);
        }
        rig_close(&o);
        char other[512 + 16];
        snprintf(other, sizeof other, "%s/v00000003", from);
        ck_assert_int_eq(rename(other, path), 0);
        rig_remove(from);
    }
    int code = kc_state_choose(r.state[0], 0, &chosen, &e);
    for (int tries = 0; code == 0 && tries < 3 && rig_restore(&r, 0, &e) < 0; tries++)
        code = kc_state_choose(r.state[0], 0, &chosen, &e);
    ck_assert_msg(code == 0, "%s", e.text);
    const uint64_t expected = _i == OTHER ? 3 : 2; /* the other one is whole by itself */
    ck_assert_uint_eq(chosen.version, expected);
    ck_assert_msg(strstr(chosen.reason, "v00000003") != NULL && !strchr(chosen.reason, '\n'), "%s", chosen.reason);
    ck_assert_msg(strstr(chosen.reason, "passed over v00000004") != NULL, "%s", chosen.reason);
    ck_assert_int_eq(kc_snapshot_list(folder, info, 8, &count, &e), 0);
    for (size_t i = 0; i < count; i++)
        ck_assert_int_eq(info[i].error == 0, info[i].version == expected || info[i].version < 3);
    version_path(4, "BROKEN", path); /* it is not damaged itself: when what it leans on is back it can be used */
    struct stat st;
    ck_assert(_i == OTHER || stat(path, &st) != 0);
    rig_close(&r);
}
END_TEST

/* Where rank 1 of a version stores the last extent of a tensor and kind. */
static long place_of(const char *path, const char *tensor, enum kc_kind kind)
{
    struct kc_error e = {""};
    struct kc_whole *w;
    long at = -1;
    ck_assert_msg(kc_whole_open(&kc_storage_posix, path, &w, &e) == 0, "%s", e.text);
    for (uint32_t i = 0; i < w->pack[1].count; i++) {
        const struct kc_extent *x = &w->pack[1].extent[i];
        if (x->kind == (uint32_t)kind && x->stored && strcmp(w->manifest.tensor[x->tensor].name, tensor) == 0)
            at = (long)x->offset;
    }
    kc_whole_free(&kc_storage_posix, w);
    ck_assert_int_ge(at, 0);
    return at;
}

/* Version 2 has a master of its own and leans on version 1 for the rest: one byte of version 1 breaks it where it leans, else it
 * is told, and costs nothing that is restored. */
START_TEST(damage_that_is_not_leant_on_is_told_apart)
{
    const bool needed = _i == 0;
    struct kc_snapshot_info info;
    struct kc_error e = {""};
    char path[512], first[512], pack[512];
    struct rig r;
    rig_full_every = 50;
    rig_keep = 8;
    rig_open(&r, rig_small, rig_small_count, two, folder, NULL, "");
    rig_train(&r);
    save(&r);
    change(&r, 0, KC_MASTER, 2);
    advance(&r);
    save(&r);
    version_path(1, "", first);
    version_path(1, "rank-1.pack", pack);
    version_path(2, "", path);
    rig_flip(pack, place_of(first, rig_small[0].name, needed ? KC_KIND_MOMENT1 : KC_MASTER));
    for (int deep = 0; deep < 2; deep++) {
        ck_assert_int_eq(kc_snapshot_verify(first, deep, &info, &e), -EBADMSG);
        ck_assert_int_eq(kc_snapshot_verify(path, deep, &info, &e), needed ? -EBADMSG : 0);
        ck_assert_msg(strstr(needed ? e.text : info.reason, "v00000001") != NULL, "%s | %s", e.text, info.reason);
        ck_assert(needed || strstr(info.reason, "rank-1.pack"));
    }
    ck_assert_int_eq(kc_snapshot_verify_values(path, &info, &e), needed ? -EBADMSG : 0);
    ck_assert_int_eq(rig_restore(&r, 2, &e) == 0, !needed);
    rig_close(&r);
}
END_TEST

/* What is leant on goes while the job runs: that attempt fails and says so, the next is full. */
START_TEST(a_parent_that_goes_costs_one_attempt)
{
    struct kc_snapshot_info info;
    char path[512];
    struct rig r;
    rig_full_every = 50;
    rig_keep = 8;
    rig_open(&r, rig_small, rig_small_count, two, folder, NULL, "");
    for (uint64_t v = 1; v < 4; v++) {
        if (v == 1)
            rig_train(&r);
        change(&r, 0, 0, 9 + v);
        advance(&r);
        if (v < 3)
            save(&r);
    }
    version_path(1, "", path);
    rig_remove(path);
    ck_assert_int_eq(rig_snapshot(&r), -EBADMSG);
    kc_state_last_snapshot(r.state[0], &info);
    ck_assert_msg(strstr(info.reason, "needs v00000001") != NULL, "%s", info.reason);
    save(&r);
    kc_state_last_snapshot(r.state[0], &info);
    ck_assert_uint_eq(info.parent, 0);
    check_version(info.version, &two);
    rig_close(&r);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("increment");
    TCase *c = tcase_create("increment");
    tcase_set_timeout(c, 300);
    tcase_add_checked_fixture(c, setup, teardown);
    tcase_add_test(c, what_did_not_change_is_referred_to);
    tcase_add_test(c, after_a_restart_the_same_layout_leans_on);
    tcase_add_test(c, after_a_restart_from_memory_it_leans_on_the_disk);
    tcase_add_test(c, differences_lean_on_the_copy_before);
    tcase_add_test(c, a_copy_that_changed_is_no_base);
    tcase_add_loop_test(c, retention_keeps_what_others_lean_on, 0, 6);
    tcase_add_loop_test(c, what_cannot_be_read_lets_nothing_go, 0, 3);
    tcase_add_loop_test(c, harm_to_what_is_leant_on_costs_what_leans, 0, HARMS);
    tcase_add_loop_test(c, damage_that_is_not_leant_on_is_told_apart, 0, 2);
    tcase_add_test(c, a_parent_that_goes_costs_one_attempt);
    suite_add_tcase(suite, c);
    return suite_run(suite);
}
