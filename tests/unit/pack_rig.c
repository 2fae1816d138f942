/* pack_rig.c - see pack_rig.h. */
#include "pack_rig.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct rig_tensor tensors[PACK_WAYS] = {
    {"stays", 2, {3, 9001}, KC_INIT_ONE, 0},  {"constant", 1, {5003}, KC_INIT_ONE, 0}, {"drifts", 1, {30011}, KC_INIT_ONE, 0},
    {"fresh", 1, {30011}, KC_INIT_ONE, 0},    {"noise", 1, {5003}, KC_INIT_ONE, 0},    {"odd", 2, {7, 1501}, KC_INIT_ONE, 0}};

static uint32_t mix(uint64_t x)
{
    x = (x + 1) * UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return (uint32_t)(x >> 32);
}

static uint32_t bits_of(float v)
{
    uint32_t b;
    memcpy(&b, &v, sizeof b);
    return b;
}

/* Something between -scale and scale. */
static float about(uint64_t seed, float scale)
{
    return ((float)(mix(seed) >> 8) / (float)(1 << 23) - 1) * scale;
}

uint32_t pack_bits(uint32_t tensor, uint32_t kind, uint64_t i, uint64_t version)
{
    /* not a number, both of them loud and quiet, infinities, both zeros, the smallest and the largest subnormal */
    static const uint32_t odd[] = {0x7fc00001, 0xff800001, 0x7f800000, 0xff800000, 0x80000000, 0, 1, 0x807fffff};
    const uint64_t seed = i * 8 + tensor + ((uint64_t)kind << 40);
    switch ((enum pack_way)tensor) {
    case PACK_STAYS:
        return bits_of(about(seed, 0.02f));
    case PACK_CONSTANT:
        return bits_of((float)version);
    case PACK_DRIFTS:
        return bits_of(about(seed, 0.02f) + about(seed + version * 1000003, 1e-7f));
    case PACK_FRESH:
        return bits_of(about(seed + version * 1000003, 0.02f));
    case PACK_NOISE:
        return mix(seed + version * 1000003);
    default:
        return i % 3 == 0 ? odd[mix(seed) % 8] : bits_of(about(seed, 1)) ^ (i % 101 == version % 101);
    }
}

static void fill(const struct kc_pack *p, unsigned char *image, uint64_t version)
{
    memset(image, 0, p->bytes);
    for (uint32_t i = 0; i < p->count; i++) {
        const struct kc_extent *x = &p->extent[i];
        uint32_t *to = (uint32_t *)(void *)(image + x->offset);
        for (uint64_t k = x->lo; k < x->hi; k++) /* boxes are whole tensors here */
            to[k - x->lo] = pack_bits(x->tensor, x->kind, k, version);
    }
}

void pack_rig_open(struct pack_rig *p)
{
    memset(p, 0, sizeof *p);
    rig_folder(p->folder, true);
    rig_plan(&p->rig, tensors, PACK_WAYS, (struct rig_layout){PACK_RANKS, 1, 2, false, false});
    ck_assert_int_eq(kc_coder_new(&p->coder), 0);
    p->coder->coding = KC_CODING_ALWAYS; /* what the disk of a test takes says nothing */
    for (uint32_t r = 0; r < PACK_RANKS; r++) {
        struct kc_pack plan;
        ck_assert_int_eq(kc_map_new(p->rig.plan, r, &p->map[r], NULL), 0);
        ck_assert_int_eq(kc_pack_plan(&p->map[r], &plan), 0);
        p->last[r].fd = -1;
        p->image[r] = aligned_alloc(KC_PACK_ALIGN, (plan.bytes / KC_PACK_ALIGN + 1) * KC_PACK_ALIGN);
        p->before[r] = aligned_alloc(KC_PACK_ALIGN, (plan.bytes / KC_PACK_ALIGN + 1) * KC_PACK_ALIGN);
        kc_pack_free(&kc_storage_posix, &plan);
    }
}

void pack_rig_close(struct pack_rig *p)
{
    for (uint32_t r = 0; r < PACK_RANKS; r++) {
        kc_pack_free(&kc_storage_posix, &p->last[r]);
        kc_map_free(&p->map[r]);
        free(p->image[r]);
        free(p->before[r]);
    }
    kc_coder_free(p->coder);
    rig_free_plan(&p->rig);
    rig_remove(p->folder);
}

void pack_rig_path(const struct pack_rig *p, uint64_t version, char out[512])
{
    char path[4096];
    kc_catalog_path(p->folder, version, path);
    snprintf(out, 512, "%.511s", path);
}

static int source(void *arg, const struct kc_extent *x, const float **values, struct kc_error *e)
{
    (void)e;
    *values = (const float *)(const void *)((const unsigned char *)arg + x->offset);
    return 0;
}

static void save_rank(struct pack_rig *p, uint32_t r, const char *tmp, struct pack_how how)
{
    const struct kc_pack_head head = {r, PACK_RANKS, p->version, 1};
    struct kc_increment before = {.version = p->version - 1, .extent = p->last[r].extent, .count = p->last[r].count,
        .image = how.no_image ? NULL : p->before[r], .rebase = how.rebase};
    struct kc_error e = {""};
    struct kc_pack pack;
    char path[4096 + 32];
    unsigned char *spare = p->before[r];
    p->before[r] = p->image[r];
    p->image[r] = spare;
    before.image = how.no_image ? NULL : p->before[r];
    ck_assert_int_eq(kc_pack_plan(&p->map[r], &pack), 0);
    fill(&pack, p->image[r], p->version);
    kc_catalog_pack_path(tmp, r, path, sizeof path);
    ck_assert_msg(kc_pack_write(&kc_storage_posix, path, &head, &pack, source, p->image[r],
                                how.full || p->version == 1 ? NULL : &before, p->coder, &e) == 0, "%s", e.text);
    kc_pack_free(&kc_storage_posix, &p->last[r]);
    p->last[r] = pack;
}

void pack_rig_save(struct pack_rig *p, struct pack_how how)
{
    char tmp[4096];
    struct kc_error e = {""};
    struct kc_whole *w = kc_whole_new();
    struct kc_manifest *m = &w->manifest;
    p->version++;
    kc_catalog_tmp_path(p->folder, p->version, tmp);
    ck_assert_int_eq(kc_storage_posix.make_folder(NULL, tmp), 0);
    for (uint32_t r = 0; r < PACK_RANKS; r++)
        save_rank(p, r, tmp, how);
    m->version = p->version;
    m->progress.step = 1;
    m->ranks = m->packs = m->axis[KC_DATA] = PACK_RANKS;
    for (int a = 0; a < KC_AXES; a++)
        m->axis[a] = a == KC_DATA ? PACK_RANKS : 1;
    m->history.stride = 1;
    ck_assert_int_eq(kc_manifest_tensors(m, &p->map[0]), 0);
    ck_assert_msg(kc_commit_version(&kc_storage_posix, p->folder, w, false, &e) == 0, "%s", e.text);
    kc_whole_free(&kc_storage_posix, w);
}

static int check_pack(struct kc_unpack *u, const struct kc_whole *w, uint32_t pack, float *buffer, struct kc_error *e)
{
    for (uint32_t i = 0; i < w->pack[pack].count; i++) {
        const struct kc_extent *x = &w->pack[pack].extent[i];
        int r = kc_unpack_values(u, pack, i, buffer, e);
        if (r < 0)
            return r;
        for (uint64_t k = x->lo; k < x->hi; k++) {
            const uint32_t want = pack_bits(x->tensor, x->kind, k, w->manifest.version);
            if (memcmp(&buffer[k - x->lo], &want, sizeof want) != 0)
                ck_abort_msg("v%llu tensor %u kind %u element %llu", (unsigned long long)w->manifest.version, x->tensor, x->kind,
                             (unsigned long long)k);
        }
    }
    return 0;
}

int pack_rig_check(const struct pack_rig *p, uint64_t version, bool ahead, struct kc_error *e)
{
    struct kc_whole *w;
    struct kc_unpack *u;
    char path[512];
    pack_rig_path(p, version, path);
    int r = kc_whole_open(&kc_storage_posix, path, &w, e);
    if (r < 0)
        return r;
    float *buffer = malloc(KC_PACK_GRID * sizeof *buffer);
    ck_assert_int_eq(kc_unpack_new(&kc_storage_posix, w, &u), 0);
    for (uint32_t k = 0; k < w->packs && r == 0; k++) {
        bool *wanted = malloc(w->pack[k].count + 1u);
        memset(wanted, 1, w->pack[k].count);
        if (ahead)
            ck_assert_int_eq(kc_unpack_want(u, k, wanted), 0);
        free(wanted);
        r = check_pack(u, w, k, buffer, e);
    }
    kc_unpack_free(u);
    kc_whole_free(&kc_storage_posix, w);
    free(buffer);
    return r;
}

/* The footer of a pack whose index was changed. */
static struct kc_digest excuse_pack(const char *path)
{
    struct kc_pack_footer f;
    FILE *file = fopen(path, "r+be");
    ck_assert(file && fseek(file, -(long)sizeof f, SEEK_END) == 0 && fread(&f, sizeof f, 1, file) == 1);
    const size_t bytes = f.count * sizeof(struct kc_extent);
    void *index = malloc(bytes);
    ck_assert(fseek(file, (long)f.index_offset, SEEK_SET) == 0 && fread(index, bytes, 1, file) == 1);
    f.index = kc_digest(index, bytes);
    ck_assert(fseek(file, -(long)sizeof f, SEEK_END) == 0 && fwrite(&f, sizeof f, 1, file) == 1);
    fclose(file);
    free(index);
    return f.index;
}

void pack_rig_excuse(const struct pack_rig *p, uint64_t version)
{
    for (uint64_t v = version; v <= p->version; v++) {
        char folder[512], path[600];
        struct kc_error e = {""};
        struct kc_manifest *m = calloc(1, sizeof *m);
        pack_rig_path(p, v, folder);
        ck_assert_msg(kc_manifest_read(&kc_storage_posix, folder, m, &e) == 0, "%s", e.text);
        for (uint32_t r = 0; r < m->packs; r++) {
            snprintf(path, sizeof path, "%s/rank-%u.pack", folder, r);
            m->pack[r].index = excuse_pack(path);
        }
        for (uint32_t k = 0; k < m->parents; k++) {
            struct kc_manifest *other = calloc(1, sizeof *other);
            pack_rig_path(p, m->parent[k].version, path);
            ck_assert_int_eq(kc_manifest_read(&kc_storage_posix, path, other, &e), 0);
            m->parent[k].manifest = other->digest;
            kc_manifest_free(other);
            free(other);
        }
        snprintf(path, sizeof path, "%s/MANIFEST.json", folder);
        ck_assert_int_eq(unlink(path), 0);
        ck_assert_msg(kc_manifest_write(&kc_storage_posix, folder, m, &e) == 0, "%s", e.text);
        kc_manifest_free(m);
        free(m);
    }
}
