/* state_rig.c - see state_rig.h. */
#include "state_rig.h"

#include "base/bf16.h"
#include "state/state_impl.h"
#include "strategy/bucket.h"

#include <check.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

const struct rig_tensor rig_small[] = {{"transformer.wte.weight", 2, {31, 8}, KC_INIT_NORMAL, 0.02f},
                                       {"transformer.h.0.ln_1.weight", 1, {8}, KC_INIT_ONE, 0},
                                       {"transformer.h.0.attn.c_attn.weight", 2, {8, 24}, KC_INIT_NORMAL, 0.02f},
                                       {"transformer.h.0.attn.c_attn.bias", 1, {24}, KC_INIT_ZERO, 0},
                                       {"transformer.ln_f.weight", 1, {8}, KC_INIT_ONE, 0},
                                       {"transformer.odd", 1, {1009}, KC_INIT_NORMAL, 1}};
const uint32_t rig_small_count = sizeof rig_small / sizeof rig_small[0];
const struct rig_tensor rig_large[] = {{"big", 2, {1025, 1031}, KC_INIT_NORMAL, 0.02f}, {"a", 1, {5}, KC_INIT_ONE, 0},
    {"wide", 2, {3, 70000}, KC_INIT_NORMAL, 0.02f}};
const uint32_t rig_large_count = sizeof rig_large / sizeof rig_large[0];

static uint64_t elements(const struct rig_tensor *t)
{
    uint64_t n = 1;
    for (uint32_t d = 0; d < t->rank; d++)
        n *= t->size[d];
    return n;
}

static void plan_tensor(struct rig *r, struct kc_plan_tensor *out, const struct rig_tensor *t, enum kc_type type,
                        int32_t bucket, uint64_t offset)
{
    *out = (struct kc_plan_tensor){.role = KC_PARAMETER,
                                   .type = (uint8_t)type,
                                   .rank = (uint8_t)t->rank,
                                   .init = (uint8_t)t->init,
                                   .layer = -1,
                                   .of = -1,
                                   .init_scale = t->scale,
                                   .bucket = bucket,
                                   .offset = offset};
    out->name = kc_contract_text(&r->plan_arena, t->name);
    for (uint32_t d = 0; d < t->rank; d++)
        out->global[d] = out->local[d] = t->size[d];
}

uint64_t rig_elements(const struct rig_tensor *tensors, uint32_t count)
{
    uint64_t sum = 0;
    for (uint32_t t = 0; t < count; t++) {
        uint64_t n = 1;
        for (uint32_t d = 0; d < tensors[t].rank; d++)
            n *= tensors[t].size[d];
        sum += n;
    }
    return sum;
}

void rig_plan(struct rig *r, const struct rig_tensor *tensors, uint32_t count, struct rig_layout l)
{
    uint32_t buckets = (count + l.per_bucket - 1) / l.per_bucket;
    ck_assert_int_eq(kc_arena_new(&r->plan_arena, 1 << 20), 0);
    struct kc_shard_plan *p =
        kc_contract_begin(&r->plan_arena, KC_CONTRACT_SHARD_PLAN, KC_SHARD_PLAN_VERSION, sizeof *p);
    struct kc_plan_tensor *t = kc_contract_array(&r->plan_arena, &p->tensors, count, sizeof *t);
    struct kc_plan_bucket *b = kc_contract_array(&r->plan_arena, &p->buckets, buckets, sizeof *b);
    struct kc_plan_segment *s = kc_contract_array(&r->plan_arena, &p->segments, count, sizeof *s);
    kc_contract_array(&r->plan_arena, &p->stages, 1, sizeof(struct kc_plan_stage));
    p->ranks = l.ranks;
    p->zero = l.zero;
    for (int a = 0; a < KC_AXES; a++)
        p->axis[a] = a == KC_DATA ? l.ranks : 1;
    enum kc_type type = l.bf16 ? KC_BF16 : KC_F32;
    uint64_t offset = 0;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t which = l.reversed ? count - 1 - i : i, bucket = i / l.per_bucket;
        uint64_t unit = 64 * l.ranks;
        offset = i % l.per_bucket ? (offset + 15) / 16 * 16 : 0; /* padding between tensors */
        plan_tensor(r, &t[which], &tensors[which], type, (int32_t)bucket, offset);
        s[i] =
            (struct kc_plan_segment){.tensor = (int32_t)which, .offset = offset, .count = elements(&tensors[which])};
        offset += elements(&tensors[which]);
        if (i % l.per_bucket == 0)
            b[bucket].segments_first = i;
        b[bucket].segments_count++;
        b[bucket].shards = l.ranks;
        b[bucket].axes = 1u << KC_DATA;
        b[bucket].tied = -1;
        b[bucket].layer = -1;
        b[bucket].parts = kc_bucket_parts(l.zero);
        b[bucket].type = type;
        b[bucket].count = (offset + unit - 1) / unit * unit;
        b[bucket].shard = b[bucket].count / l.ranks;
    }
    ck_assert_int_eq(kc_contract_seal(&r->plan_arena), 0);
    r->plan = p;
    r->ranks = l.ranks;
}

uint32_t rig_keep = 2, rig_keep_every, rig_full_every = 1, rig_keep_nonfinite, rig_copies, rig_still;
const int *rig_copy_fds;
enum kc_guard rig_guard = KC_GUARD_PHASE;
struct kc_background_if rig_background;
const struct kc_storage *const *rig_storages;
const char *rig_plan_text = "all-reduce direct, 00000000000000d1";

void rig_start(struct rig *r, const char *directory, const struct kc_storage *storage, const char *init_from)
{
    struct kc_error e = {""};
    const bool bf16 = KC_AT(r->plan, struct kc_plan_bucket, r->plan->buckets)->type == KC_BF16;
    ck_assert_int_eq(kc_arena_new(&r->spec_arena, 1 << 16), 0);
    r->spec = kc_contract_begin(&r->spec_arena, KC_CONTRACT_JOB_SPEC, KC_JOB_SPEC_VERSION, sizeof *r->spec);
    r->spec->name = kc_contract_text(&r->spec_arena, "rig");
    r->spec->init_from = kc_contract_text(&r->spec_arena, init_from);
    r->spec->ranks = r->ranks;
    r->spec->precision = bf16 ? KC_PRECISION_BF16 : KC_PRECISION_FP32;
    r->spec->seed = 7;
    r->spec->snapshot_keep = rig_keep;
    r->spec->snapshot_keep_every = rig_keep_every;
    r->spec->keep_nonfinite = rig_keep_nonfinite;
    r->spec->snapshot_full_every = rig_full_every;
    r->spec->snapshot_coding = KC_CODING_ALWAYS; /* what this folder takes says nothing about a disk */
    r->spec->layers = 2, r->spec->hidden = 32, r->spec->heads = 4, r->spec->context = 32, r->spec->vocab = 256;
    ck_assert_int_eq(kc_contract_seal(&r->spec_arena), 0);
    r->in_turn = storage && !rig_storages;
    r->copies = rig_copies ? rig_copies : rig_copy_fds ? 2 : 0;
    for (uint32_t i = 0; i < r->ranks && r->copies; i++) {
        r->copy_fd[i] = rig_copy_fds ? dup(rig_copy_fds[i]) : memfd_create("kc-copy.rig", MFD_CLOEXEC | MFD_ALLOW_SEALING);
        ck_assert_int_ge(r->copy_fd[i], 0);
    }
    for (uint32_t i = 0; i < r->ranks; i++) {
        struct kc_state_config c = {.spec = r->spec, .shard = r->plan, .rank = i, .directory = directory,
            .variant = "portable", .plan = rig_plan_text, .guard = rig_guard, .storage = storage,
            .copy_fds = r->copies ? r->copy_fd : NULL, .copies = r->copies, .background = rig_background};
        if (rig_storages)
            c.storage = rig_storages[i];
        ck_assert_msg(kc_state_new(&c, &r->state[i], &e) == 0, "%s", e.text);
        ck_assert_int_eq(kc_state_offer(r->state[i], "schedule", &r->io[i]), 0);
    }
}

void rig_open(struct rig *r, const struct rig_tensor *tensors, uint32_t count, struct rig_layout layout,
              const char *directory, const struct kc_storage *storage, const char *init_from)
{
    memset(r, 0, sizeof *r);
    rig_plan(r, tensors, count, layout);
    rig_start(r, directory, storage, init_from);
}

void rig_free_plan(struct rig *r)
{
    kc_arena_free(&r->plan_arena);
    kc_arena_free(&r->spec_arena);
}

void rig_close(struct rig *r)
{
    for (uint32_t i = 0; i < r->ranks; i++)
        kc_state_free(r->state[i]);
    for (uint32_t i = 0; i < r->ranks && r->copies; i++)
        close(r->copy_fd[i]);
    rig_free_plan(r);
}

float rig_value(uint32_t tensor, int kind, uint64_t element, uint64_t step)
{
    step = tensor < 32 && rig_still >> tensor & 1 ? 0 : step;
    uint64_t x = (element + 1) * 2654435761u + tensor * 40503u + (uint64_t)kind * 69069u + step * 7919u;
    x ^= x >> 13;
    return (float)(int32_t)(uint32_t)(x * 2246822519u) * 1e-7f;
}

enum kc_state_class rig_class(const struct rig *r, int kind)
{
    static const enum kc_state_class klass[3] = {KC_STATE_MASTER, KC_STATE_MOMENT1, KC_STATE_MOMENT2};
    bool own = KC_AT(r->plan, struct kc_plan_bucket, r->plan->buckets)->type == KC_F32;
    return kind == 0 && own ? KC_STATE_PARAMETER : klass[kind];
}

struct rig_part rig_part(const struct rig *r, uint32_t tensor, uint32_t rank)
{
    struct rig_part p = {.tensor = &KC_AT(r->plan, struct kc_plan_tensor, r->plan->tensors)[tensor]};
    p.bucket = &KC_AT(r->plan, struct kc_plan_bucket, r->plan->buckets)[p.tensor->bucket];
    kc_plan_box(r->plan, p.tensor, rank, &p.box);
    p.count = kc_plan_holds(r->plan, p.bucket, rank) ? kc_box_elements(&p.box, p.tensor->rank) : 0;
    p.owner = kc_plan_owner(r->plan, p.bucket, rank);
    p.zero = r->plan->zero;
    return p;
}

uint64_t rig_global(const struct rig_part *p, uint64_t local)
{
    uint64_t at = 0, stride = 1;
    for (int d = p->tensor->rank; d-- > 0;) {
        at += (p->box.first[d] + local % p->box.size[d]) * stride;
        local /= p->box.size[d];
        stride *= p->tensor->global[d];
    }
    return at;
}

bool rig_keeps(const struct rig_part *p, enum kc_state_class what, uint64_t local)
{
    const bool whole = p->zero < (what == KC_STATE_PARAMETER ? 3u : 1u);
    return whole || (p->tensor->offset + local) / p->bucket->shard == p->owner;
}

/* What the optimizer and the gather behind it leave in a bf16 bucket, on all ranks. */
static void train_rounded(struct rig *r, uint32_t rank, uint32_t bucket, uint64_t step)
{
    const struct kc_plan_tensor *p = KC_AT(r->plan, struct kc_plan_tensor, r->plan->tensors);
    void *data;
    ck_assert_int_eq(r->io[rank].open(r->io[rank].self, KC_STATE_PARAMETER, bucket, &data), 0);
    for (uint32_t t = 0; t < r->plan->tensors.count; t++) {
        const struct rig_part part = rig_part(r, t, rank);
        for (uint64_t i = 0; (uint32_t)p[t].bucket == bucket && i < part.count; i++)
            if (rig_keeps(&part, KC_STATE_PARAMETER, i))
                ((uint16_t *)data)[p[t].offset + i] = kc_bf16_from_float(rig_value(t, 0, rig_global(&part, i), step));
    }
    r->io[rank].close(r->io[rank].self, KC_STATE_PARAMETER, bucket);
}

static void train_bucket(struct rig *r, uint32_t rank, uint32_t bucket, int kind, uint64_t step)
{
    const struct kc_plan_tensor *p = KC_AT(r->plan, struct kc_plan_tensor, r->plan->tensors);
    const enum kc_state_class what = rig_class(r, kind);
    void *data;
    ck_assert_int_eq(r->io[rank].open(r->io[rank].self, what, bucket, &data), 0);
    for (uint32_t t = 0; t < r->plan->tensors.count; t++) {
        const struct rig_part part = rig_part(r, t, rank);
        for (uint64_t i = 0; (uint32_t)p[t].bucket == bucket && i < part.count; i++)
            if (rig_keeps(&part, what, i))
                ((float *)data)[p[t].offset + i] = rig_value(t, kind, rig_global(&part, i), step);
    }
    r->io[rank].close(r->io[rank].self, what, bucket);
}

void rig_train(struct rig *r)
{
    const struct kc_plan_bucket *b = KC_AT(r->plan, struct kc_plan_bucket, r->plan->buckets);
    for (uint32_t rank = 0; rank < r->ranks; rank++) {
        struct kc_progress now;
        kc_state_progress(r->state[rank], &now);
        for (uint32_t i = 0; i < r->plan->buckets.count; i++) {
            if (!kc_plan_holds(r->plan, &b[i], rank))
                continue;
            for (int k = 0; k < 3; k++)
                train_bucket(r, rank, i, k, now.step);
            if (rig_class(r, 0) == KC_STATE_MASTER)
                train_rounded(r, rank, i, now.step);
        }
        kc_state_advance(r->state[rank], 100, 8, 5.0 / (double)(now.step + 1), 1.5);
    }
}

int rig_verb(struct rig *r, enum kc_state_verb verb, struct kc_error *e)
{
    int first = 0;
    for (uint32_t i = 0; i < r->ranks; i++) {
        int code = r->io[i].verb(r->io[i].self, verb, e);
        first = first ? first : code;
        if (r->in_turn)
            kc_snapshot_settle(r->state[i]);
    }
    return first;
}

void rig_sum(struct rig *r, size_t first, size_t end)
{
    uint64_t *v[RIG_RANKS];
    size_t count = 0;
    for (uint32_t i = 0; i < r->ranks; i++)
        v[i] = r->io[i].store(r->io[i].self, &count);
    for (size_t k = first; k < end && k < count; k++) {
        uint64_t sum = 0;
        for (uint32_t i = 0; i < r->ranks; i++)
            sum += v[i][k];
        for (uint32_t i = 0; i < r->ranks; i++)
            v[i][k] = sum;
    }
}

/* What the four programs are made of: a verb, a sum, and what reads it. */
int rig_stage(struct rig *r, enum rig_stage stage, struct kc_error *e)
{
    static const struct {
        enum kc_state_verb first, then;
        bool root;
        int last;
    } stages[RIG_STAGES] = {
        [RIG_BEGIN] = {KC_VERB_SNAPSHOT_BEGIN, KC_VERB_STORE_AGREE, false, KC_VERB_SNAPSHOT_MARK},
        [RIG_COPIED] = {KC_VERB_SNAPSHOT_COPIED, KC_VERB_ROOT_CLOSE, true, KC_VERB_SNAPSHOT_WRITE},
        [RIG_WRITTEN] = {KC_VERB_SNAPSHOT_WRITTEN, KC_VERB_SNAPSHOT_COMMIT, false, -1},
        [RIG_COMMITTED] = {KC_VERB_SNAPSHOT_COMMITTED, KC_VERB_STORE_AGREE, false, -1},
    };
    int code = rig_verb(r, stages[stage].first, e);
    if (code < 0)
        return code;
    rig_sum(r, 0, stages[stage].root ? SIZE_MAX : 2);
    code = rig_verb(r, stages[stage].then, e);
    return code < 0 || stages[stage].last < 0 ? code : rig_verb(r, (enum kc_state_verb)stages[stage].last, e);
}

int rig_snapshot(struct rig *r)
{
    struct kc_snapshot_info info, other;
    struct kc_error e = {""};
    for (int stage = 0; stage < RIG_STAGES; stage++)
        ck_assert_int_eq(rig_stage(r, (enum rig_stage)stage, &e), 0);
    kc_state_last_snapshot(r->state[0], &info);
    for (uint32_t i = 1; i < r->ranks; i++) { /* all ranks know the same */
        kc_state_last_snapshot(r->state[i], &other);
        ck_assert_int_eq(!other.error, !info.error);
        ck_assert_str_eq(other.state_root, info.state_root);
    }
    return info.error;
}

int rig_restore(struct rig *r, uint64_t version, struct kc_error *e)
{
    struct kc_snapshot_info info;
    for (uint32_t i = 0; i < r->ranks; i++) {
        int code = kc_state_choose(r->state[i], version, &info, e);
        if (code < 0)
            return code;
    }
    return rig_read(r, e);
}

int rig_read(struct rig *r, struct kc_error *e)
{
    int first = 0;
    ck_assert_int_eq(rig_verb(r, KC_VERB_RESTORE_READ, e), 0);
    rig_sum(r, 0, 2);
    for (uint32_t i = 0; i < r->ranks; i++) {
        int code = r->io[i].verb(r->io[i].self, KC_VERB_STORE_AGREE, e);
        ck_assert_int_eq(!code, i ? !first : !code); /* on all ranks or on none */
        first = code;
    }
    if (first)
        return first;
    ck_assert_int_eq(rig_verb(r, KC_VERB_ROOT_PART, e), 0);
    rig_sum(r, 0, SIZE_MAX);
    return rig_verb(r, KC_VERB_RESTORE_CLOSE, e);
}

void rig_root(struct rig *r, char out[33])
{
    struct kc_error e;
    ck_assert_int_eq(rig_verb(r, KC_VERB_ROOT_PART, &e), 0);
    rig_sum(r, 0, SIZE_MAX);
    ck_assert_int_eq(rig_verb(r, KC_VERB_ROOT_CLOSE, &e), 0);
    for (uint32_t i = 0; i < r->ranks; i++) {
        char text[33];
        kc_state_root_text(r->state[i], text);
        if (i)
            ck_assert_str_eq(text, out);
        memcpy(out, text, 33);
    }
}

uint64_t rig_step(const struct rig *r, uint32_t rank)
{
    struct kc_progress p;
    kc_state_progress(r->state[rank], &p);
    return p.step;
}

void rig_check_parameter(const struct rig *r, uint32_t rank, uint32_t tensor, uint64_t element, float master)
{
    const struct kc_plan_tensor *t = KC_AT(r->plan, struct kc_plan_tensor, r->plan->tensors) + tensor;
    const struct kc_state_if *io = &r->io[rank];
    const void *base = io->read(io->self, KC_STATE_PARAMETER, (uint32_t)t->bucket, NULL);
    uint16_t rounded = kc_bf16_from_float(master);
    bool same = t->type == KC_F32 ? memcmp((const float *)base + t->offset + element, &master, 4) == 0
                                  : ((const uint16_t *)base)[t->offset + element] == rounded;
    if (!same)
        ck_abort_msg("rank %u tensor %u parameter %llu", rank, tensor, (unsigned long long)element);
}

void rig_check(const struct rig *r, uint64_t step)
{
    const struct kc_plan_tensor *t = KC_AT(r->plan, struct kc_plan_tensor, r->plan->tensors);
    const struct kc_plan_bucket *b = KC_AT(r->plan, struct kc_plan_bucket, r->plan->buckets);
    for (uint32_t rank = 0; rank < r->ranks; rank++)
        for (uint32_t i = 0; i < r->plan->tensors.count; i++)
            for (int k = 0; k < 3; k++) {
                const struct kc_state_if *io = &r->io[rank];
                uintptr_t base = (uintptr_t)io->read(io->self, rig_class(r, k), (uint32_t)t[i].bucket, NULL);
                uint64_t n = 1;
                for (int d = 0; d < t[i].rank; d++)
                    n *= t[i].global[d];
                for (uint64_t e = 0; e < n; e++) {
                    uint64_t at = t[i].offset + e;
                    bool held = rig_class(r, k) == KC_STATE_PARAMETER || r->plan->zero == 0 ||
                                at / b[t[i].bucket].shard == rank;
                    float want = rig_value(i, k, e, step - 1);
                    if (k == 0)
                        rig_check_parameter(r, rank, i, e, want);
                    if (held && memcmp((float *)(base + at * 4), &want, 4) != 0)
                        ck_abort_msg("rank %u tensor %u kind %d element %llu", rank, i, k, (unsigned long long)e);
                }
            }
}

/* ---- files ---- */

void rig_folder(char out[256], bool fast)
{
    const char *tmp = getenv("TMPDIR");
    tmp = fast && access("/dev/shm", W_OK) == 0 ? "/dev/shm" : tmp && *tmp ? tmp : "/tmp";
    snprintf(out, 256, "%s/kc-state-XXXXXX", tmp);
    ck_assert_ptr_nonnull(mkdtemp(out));
}

void rig_remove(const char *folder)
{
    DIR *d = opendir(folder);
    struct dirent *entry;
    while (d && (entry = readdir(d))) {
        char path[1024];
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        if (unlink(path) != 0)
            rig_remove(path);
    }
    if (d)
        closedir(d);
    rmdir(folder);
}

long rig_file_bytes(const char *path)
{
    struct stat st;
    ck_assert_msg(stat(path, &st) == 0, "%s: %s", path, strerror(errno));
    return (long)st.st_size;
}

void rig_flip(const char *path, long offset)
{
    unsigned char byte;
    int fd = open(path, O_RDWR | O_CLOEXEC);
    long at = offset < 0 ? rig_file_bytes(path) + offset : offset;
    ck_assert(fd >= 0);
    ck_assert_int_eq(pread(fd, &byte, 1, at), 1);
    byte ^= 0x10;
    ck_assert_int_eq(pwrite(fd, &byte, 1, at), 1);
    close(fd);
}

void rig_truncate(const char *path, long change)
{
    ck_assert_int_eq(truncate(path, rig_file_bytes(path) + change), 0);
}
