/* test_state.c - state in memory: map, tickets, ledger, guard, seeded values, learning rate, history, state_root. */
#include "state_rig.h"

#include "base/bf16.h"
#include "base/clock.h"
#include "base/json.h"
#include "state/number.h"
#include "state/root.h"
#include "tests/unit/suite.h"

#include <check.h>
#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- numbers ---- */

/* The published vectors of Random123 (kat_vectors, philox4x32 10). */
START_TEST(philox_gives_the_published_vectors)
{
    static const uint32_t row[3][10] = {
        {0, 0, 0, 0, 0, 0, 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8},
        {0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff, 0x408f276d, 0x41c83b0e, 0xa20bc7c6,
            0x6d5451fd},
        {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344, 0xa4093822, 0x299f31d0, 0xd16cfe09, 0x94fdcceb, 0x5001e420,
            0x24126ea1}};
    for (int i = 0; i < 3; i++) {
        uint32_t out[4];
        kc_philox(row[i], row[i] + 4, out);
        ck_assert_mem_eq(out, row[i] + 6, sizeof out);
    }
}
END_TEST

START_TEST(functions_of_a_number_agree_with_libm)
{
    for (int i = 1; i <= 200000; i++) {
        double u = (double)i / 200000, s, c, v = u * u * u;
        ck_assert_double_le(fabs(kc_number_log(v) - log(v)), 4e-16 * fmax(fabs(log(v)), 1e-3));
        kc_number_turn(u, &s, &c);
        ck_assert_double_le(fabs(s - sin(2 * M_PI * u)), 1e-15);
        ck_assert_double_le(fabs(c - cos(2 * M_PI * u)), 1e-15);
    }
    ck_assert_double_le(fabs(kc_number_log(0x1p-53) - log(0x1p-53)), 1e-14);
    ck_assert(kc_number_log(1) == 0);
}
END_TEST

/* Any range of the stream is the same as that part of the whole; other names, purposes and seeds are other streams.
 */
START_TEST(normal_values_depend_on_position_alone)
{
    enum { N = 100000 };
    static float whole[N], part[N], other[N];
    kc_number_normal(1, "init", "w", 0, N, 0.02, whole);
    for (uint64_t at = 0; at < N; at += 997)
        kc_number_normal(1, "init", "w", at, at + 997 < N ? 997 : N - at, 0.02, part + at);
    ck_assert_mem_eq(whole, part, sizeof whole);
    kc_number_normal(2, "init", "w", 0, N, 0.02, other);
    ck_assert_mem_ne(whole, other, 64);
    kc_number_normal(1, "init", "v", 0, N, 0.02, other);
    ck_assert_mem_ne(whole, other, 64);
    kc_number_normal(1, "dropout", "w", 0, N, 0.02, other);
    ck_assert_mem_ne(whole, other, 64);
    double mean = 0, square = 0, cross = 0, fourth = 0;
    int beyond = 0;
    for (int i = 0; i < N; i++) {
        double z = (double)whole[i] / 0.02;
        mean += z / N;
        square += z * z / N;
        fourth += z * z * z * z / N;
        cross += i ? z * (double)whole[i - 1] / 0.02 / N : 0;
        beyond += fabs(z) > 1.959964;
    }
    ck_assert_double_lt(fabs(mean), 5 / sqrt(N)); /* five standard errors each */
    ck_assert_double_lt(fabs(square - 1), 5 * sqrt(2.0 / N));
    ck_assert_double_lt(fabs(fourth - 3), 5 * sqrt(96.0 / N));
    ck_assert_double_lt(fabs(cross), 5 / sqrt(N));
    ck_assert_double_lt(fabs(beyond - 0.05 * N), 5 * sqrt(N * 0.05 * 0.95));
}
END_TEST

/* ---- learning rate ---- */

/* F40. The formulas of golden/README, written out once more with libm. */
START_TEST(learning_rate_is_a_function_of_the_step)
{
    struct kc_job_spec s = {.steps = 300, .warmup = 20, .lr = 1e-3, .floor = 0.1};
    for (int kind = 0; kind < KC_LRS; kind++)
        for (uint64_t i = 0; i < s.steps; i++) {
            double low = 1e-4, r = ((double)i - 20) / 280, want = 1e-3;
            if (i < 20)
                want = 1e-3 * (double)(i + 1) / 20;
            else if (kind == KC_LR_LINEAR)
                want = low + (1 - r) * (1e-3 - low);
            else if (kind == KC_LR_COSINE)
                want = low + 0.5 * (1 + cos(M_PI * r)) * (1e-3 - low);
            else if (kind == KC_LR_WSD && i >= 240)
                want = low + (1 - sqrt(((double)i - 240) / 60)) * (1e-3 - low);
            s.lr_kind = (uint32_t)kind;
            ck_assert_double_le(fabs(kc_state_lr(&s, i) - want), 1e-17);
        }
    s.warmup = 1000; /* longer than the run */
    ck_assert_double_le(fabs(kc_state_lr(&s, 299) - 0.3e-3), 1e-17);
    s = (struct kc_job_spec){.steps = 1, .lr = 1, .floor = 0.5, .lr_kind = KC_LR_WSD};
    ck_assert(kc_state_lr(&s, 0) == 1);
    s.lr_kind = KC_LR_COSINE;
    ck_assert(kc_state_lr(&s, 0) == 1);
    s.lr = 0;
    ck_assert(kc_state_lr(&s, 0) == 0);
}
END_TEST

/* The learning rates that PyTorch's run had. */
START_TEST(learning_rate_is_the_golden_one)
{
    json_error_t je;
    json_t *json = json_load_file("tests/golden/gpt2/reference.json", 0, &je), *row;
    size_t i;
    ck_assert_msg(json != NULL, "run from the project's root: %s", je.text);
    json_t *a = json_object_get(json, "arguments");
    struct kc_job_spec s = {.steps = (uint64_t)kc_json_integer(a, "steps", 0),
        .warmup = (uint64_t)kc_json_integer(a, "warmup", 0), .lr = kc_json_real(a, "lr", 0),
        .floor = kc_json_real(a, "floor", 0), .lr_kind = KC_LR_COSINE};
    ck_assert_str_eq(kc_json_text(a, "kind", ""), "cosine");
    json_array_foreach(json_object_get(json, "steps"), i, row)
        ck_assert_double_le(fabs(kc_state_lr(&s, i) - kc_json_real(row, "lr", -1)), 1e-12);
    ck_assert_uint_eq(i, 20);
    json_decref(json);
}
END_TEST

/* ---- values, views, tickets ---- */

/* Its parameters as they are kept, as f32. */
static void read_tensor(struct rig *r, uint32_t rank, uint32_t t, float *out)
{
    const struct kc_plan_tensor *p = &KC_AT(r->plan, struct kc_plan_tensor, r->plan->tensors)[t];
    const void *b = r->io[rank].read(r->io[rank].self, KC_STATE_PARAMETER, (uint32_t)p->bucket, NULL);
    uint64_t n = 1;
    for (int d = 0; d < p->rank; d++)
        n *= p->global[d];
    for (uint64_t i = 0; i < n; i++)
        out[i] = p->type == KC_F32 ? ((const float *)b)[p->offset + i]
                                   : kc_bf16_to_float(((const uint16_t *)b)[p->offset + i]);
}

static const struct rig_layout layouts[] = {
    {1, 0, 100, false, false}, {1, 1, 1, true, false}, {2, 0, 2, false, false}, {2, 1, 3, true, false},
    {4, 0, 1, false, false},   {4, 1, 2, true, false}, {3, 1, 4, false, false}};
#define LAYOUTS (sizeof layouts / sizeof layouts[0])

/* DESIGN §7: initial values are keyed by name and global index, so no layout changes a bit. */
START_TEST(seeded_values_do_not_depend_on_the_layout)
{
    static float want[8][2048], have[2048];
    for (size_t l = 0; l < LAYOUTS; l++) {
        struct rig r;
        struct kc_error e = {""};
        rig_open(&r, rig_small, rig_small_count, layouts[l], NULL, NULL, "");
        for (uint32_t k = 0; k < r.ranks; k++) {
            ck_assert_msg(kc_state_init(r.state[k], &e) == 0, "%s", e.text);
            for (uint32_t t = 0; t < rig_small_count; t++) {
                uint64_t n = rig_small[t].size[0] * (rig_small[t].rank > 1 ? rig_small[t].size[1] : 1);
                read_tensor(&r, k, t, l == 0 ? want[t] : have);
                if (l > 0)
                    ck_assert_mem_eq(have, want[t], n * sizeof(float));
            }
        }
        rig_close(&r);
    }
    ck_assert(want[1][3] == 1 && want[3][3] == 0); /* norm weights, biases */
    float direct[8];
    kc_number_normal(7, "init", "transformer.odd", 1000, 8, 1, direct);
    ck_assert_mem_eq(direct, want[5] + 1000, sizeof direct);
}
END_TEST

/* In bf16 the masters are the values that fp32 has, on their owners, and every rank has the parameters, rounded. */
START_TEST(seeded_masters_are_those_of_fp32)
{
    static float want[2048], have[2048];
    for (size_t l = 0; l < LAYOUTS; l++) {
        struct rig r, one;
        struct kc_error e = {""};
        struct rig_layout layout = layouts[l];
        layout.bf16 = true;
        rig_open(&r, rig_small, rig_small_count, layout, NULL, NULL, "");
        rig_open(&one, rig_small, rig_small_count, layouts[0], NULL, NULL, "");
        ck_assert_int_eq(kc_state_init(one.state[0], &e), 0);
        const struct kc_plan_bucket *bucket = KC_AT(r.plan, struct kc_plan_bucket, r.plan->buckets);
        for (uint32_t k = 0; k < r.ranks; k++) {
            ck_assert_int_eq(kc_state_init(r.state[k], &e), 0);
            for (uint32_t t = 0; t < rig_small_count; t++) {
                const struct kc_plan_tensor *p = &KC_AT(r.plan, struct kc_plan_tensor, r.plan->tensors)[t];
                uint64_t n = rig_small[t].size[0] * (rig_small[t].rank > 1 ? rig_small[t].size[1] : 1);
                uintptr_t masters = (uintptr_t)r.io[k].read(r.io[k].self, KC_STATE_MASTER, (uint32_t)p->bucket, NULL);
                read_tensor(&one, 0, t, want);
                read_tensor(&r, k, t, have);
                for (uint64_t i = 0; i < n; i++) {
                    uint64_t at = p->offset + i;
                    ck_assert(have[i] == kc_bf16_to_float(kc_bf16_from_float(want[i])));
                    if (layout.zero == 0 || at / bucket[p->bucket].shard == k)
                        ck_assert(*(const float *)(masters + at * 4) == want[i]);
                }
            }
        }
        rig_close(&r);
        rig_close(&one);
    }
}
END_TEST

/* A parameter that is f32 is its own master: there is no class to read or to write. */
START_TEST(fp32_has_no_masters)
{
    struct rig r;
    void *data = NULL;
    rig_open(&r, rig_small, rig_small_count, (struct rig_layout){2, 1, 2, false, false}, NULL, NULL, "");
    ck_assert_ptr_null(r.io[0].read(r.io[0].self, KC_STATE_MASTER, 0, NULL));
    ck_assert_int_eq(r.io[0].open(r.io[0].self, KC_STATE_MASTER, 0, &data), -EINVAL);
    ck_assert_ptr_null(data);
    ck_assert_uint_eq(kc_state_class_bytes(r.plan, 0, KC_STATE_MASTER), 0);
    rig_close(&r);
    rig_plan(&r, rig_large, rig_large_count, (struct rig_layout){2, 0, 1, false, true});
    size_t moment = kc_state_class_bytes(r.plan, 0, KC_STATE_MOMENT1);
    ck_assert_uint_eq(kc_state_class_bytes(r.plan, 0, KC_STATE_MASTER), moment); /* held like moments */
    ck_assert_uint_le(kc_state_class_bytes(r.plan, 0, KC_STATE_PARAMETER), moment * 55 / 100);
    ck_assert_uint_eq(kc_state_class_bytes(r.plan, 0, KC_STATE_GRADIENT), moment);
    rig_free_plan(&r);
}
END_TEST

START_TEST(tickets_exclude_and_raise_the_version)
{
    struct rig r;
    void *data, *again;
    uint64_t v0, v1;
    rig_open(&r, rig_small, rig_small_count, (struct rig_layout){1, 0, 2, false, false}, NULL, NULL, "");
    struct kc_state_if *io = &r.io[0];
    const void *view = io->read(io->self, KC_STATE_PARAMETER, 1, &v0);
    ck_assert_int_eq(io->open(io->self, KC_STATE_PARAMETER, 1, &data), 0);
    ck_assert_ptr_eq(data, view);
    ck_assert_int_eq(io->open(io->self, KC_STATE_PARAMETER, 1, &again), -EBUSY);
    ck_assert_int_eq(io->open(io->self, KC_STATE_PARAMETER, 3, &again), -EINVAL);
    ck_assert_int_eq(io->open(io->self, KC_STATES, 0, &again), -EINVAL);
    ck_assert_int_eq(io->open(io->self, KC_STATE_GRADIENT, 1, &again), 0);
    io->read(io->self, KC_STATE_PARAMETER, 1, &v1);
    ck_assert_uint_eq(v1, v0); /* rises at close, not at open */
    io->close(io->self, KC_STATE_PARAMETER, 1);
    io->close(io->self, KC_STATE_PARAMETER, 1); /* a second close is nothing */
    io->read(io->self, KC_STATE_PARAMETER, 1, &v1);
    ck_assert_uint_eq(v1, v0 + 1);
    io->read(io->self, KC_STATE_PARAMETER, 0, &v1);
    ck_assert_uint_eq(v1, v0);
    ck_assert_int_eq(io->open(io->self, KC_STATE_PARAMETER, 1, &again), 0);
    io->close(io->self, KC_STATE_PARAMETER, 1);
    rig_close(&r);
}
END_TEST

static __attribute__((noinline)) int stranger_opens(struct kc_state_if *io)
{
    void *data = NULL;
    int code = io->open(io->self, KC_STATE_MOMENT1, 0, &data);
    ck_assert_ptr_null(data); /* outputs untouched */
    return code;
}

/* DESIGN §3.2: every ticket and view is counted by caller; an unexpected caller is refused and remembered with its
 * stack. */
START_TEST(ledger_counts_by_caller_and_refuses_strangers)
{
    struct rig r;
    struct kc_state_if stranger;
    struct kc_ledger_row row[4];
    struct kc_refusal refusal[20];
    struct kc_error e;
    rig_open(&r, rig_small, rig_small_count, (struct rig_layout){1, 0, 2, false, false}, NULL, NULL, "");
    ck_assert_int_eq(kc_state_offer(r.state[0], "", &stranger), -EINVAL);
    ck_assert_int_eq(kc_state_offer(r.state[0], "comm", &stranger), 0);
    ck_assert_ptr_nonnull(stranger.read(stranger.self, KC_STATE_PARAMETER, 0, NULL)); /* looking is allowed */
    uint64_t before = kc_now();
    for (int i = 0; i < 20; i++)
        ck_assert_int_eq(stranger_opens(&stranger), -EPERM);
    ck_assert_int_eq(stranger.verb(stranger.self, KC_VERB_RESTORE_READ, &e), -EPERM);
    stranger.close(stranger.self, KC_STATE_MOMENT1, 0);
    rig_train(&r);
    ck_assert_uint_eq(kc_state_ledger(r.state[0], row, 4), 2);
    ck_assert_str_eq(row[0].caller, "schedule");
    ck_assert_uint_eq(row[0].opened[KC_STATE_PARAMETER], 3);
    ck_assert_uint_eq(row[0].opened[KC_STATE_GRADIENT], 0);
    ck_assert_uint_eq(row[0].refused, 0);
    ck_assert_str_eq(row[1].caller, "comm");
    ck_assert_uint_eq(row[1].refused, 21);
    ck_assert_uint_eq(row[1].viewed[KC_STATE_PARAMETER], 1);
    ck_assert_uint_eq(row[1].opened[KC_STATE_MOMENT1], 0);
    ck_assert_uint_eq(kc_state_refusals(r.state[0], refusal, 20), 16);
    ck_assert_str_eq(refusal[0].caller, "comm");
    ck_assert_int_eq(refusal[0].what, KC_STATE_MOMENT1);
    ck_assert_uint_ge(refusal[0].when, before);
    bool seen = false; /* the stack names the function that asked */
    for (int i = 0; i < refusal[0].frames; i++)
        seen |= (uintptr_t)refusal[0].stack[i] > (uintptr_t)stranger_opens &&
                (uintptr_t)refusal[0].stack[i] < (uintptr_t)stranger_opens + 4096;
    ck_assert(seen);
    for (int i = 0; i < 6; i++)
        ck_assert_int_eq(kc_state_offer(r.state[0], "more", &stranger), 0);
    ck_assert_int_eq(kc_state_offer(r.state[0], "more", &stranger), -ENOSPC);
    rig_close(&r);
}
END_TEST

/* ---- guard ---- */

static struct kc_state *guarded_state(struct rig *r, enum kc_guard guard, struct kc_state_if *io)
{
    struct kc_state *s;
    struct kc_error e = {""};
    memset(r, 0, sizeof *r);
    rig_plan(r, rig_small, rig_small_count, (struct rig_layout){2, 1, 2, false, true});
    static struct kc_job_spec spec = {.seed = 7, .precision = KC_PRECISION_BF16};
    struct kc_state_config c = {.spec = &spec, .shard = r->plan, .rank = 1, .guard = guard};
    ck_assert_msg(kc_state_new(&c, &s, &e) == 0, "%s", e.text);
    ck_assert_int_eq(kc_state_offer(s, "schedule", io), 0);
    ck_assert_int_eq(kc_state_init(s, &e), 0);
    return s;
}

/* Does writing the first owned element of the bucket end the process? */
static bool write_is_fatal(const struct kc_state_if *io, const struct rig *r, enum kc_state_class c, uint32_t bucket)
{
    const struct kc_plan_bucket *b = &KC_AT(r->plan, struct kc_plan_bucket, r->plan->buckets)[bucket];
    uint64_t first = b->shard * kc_type_bytes[kc_bucket_type(b, c)];
    volatile uint16_t *at = (uint16_t *)((uintptr_t)io->read(io->self, c, bucket, NULL) + first);
    pid_t child = fork();
    int status;
    if (child == 0) {
        struct rlimit none = {0, 0};
        setrlimit(RLIMIT_CORE, &none);
        signal(SIGSEGV, SIG_DFL); /* not the sanitizer's report */
        *at = 1;
        _exit(0);
    }
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    return WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV;
}

START_TEST(guard_makes_a_write_without_a_ticket_fatal)
{
    static const enum kc_state_class klass[] = {KC_STATE_PARAMETER, KC_STATE_MOMENT1, KC_STATE_MOMENT2,
                                                KC_STATE_MASTER};
    for (int g = 0; g < KC_GUARDS; g++) {
        struct rig r;
        struct kc_state_if io;
        void *data;
        struct kc_state *s = guarded_state(&r, (enum kc_guard)g, &io);
        for (int k = 0; k < 4; k++) {
            ck_assert_int_eq(write_is_fatal(&io, &r, klass[k], 0), g != KC_GUARD_COUNT);
            ck_assert_int_eq(io.open(io.self, klass[k], 0, &data), 0);
            ck_assert(!write_is_fatal(&io, &r, klass[k], 0));
            /* always: this bucket alone; phase: its class */
            ck_assert_int_eq(write_is_fatal(&io, &r, klass[k], 1), g == KC_GUARD_ALWAYS);
            io.close(io.self, klass[k], 0);
            ck_assert_int_eq(write_is_fatal(&io, &r, klass[k], 0),
                             g == KC_GUARD_ALWAYS); /* phase: until the last close */
            for (uint32_t b = 1; b < 3; b++) {
                ck_assert_int_eq(io.open(io.self, klass[k], b, &data), 0);
                io.close(io.self, klass[k], b);
            }
            ck_assert_int_eq(write_is_fatal(&io, &r, klass[k], 2), g != KC_GUARD_COUNT);
        }
        ck_assert(!write_is_fatal(&io, &r, KC_STATE_GRADIENT, 0));
        ck_assert_int_eq(io.open(io.self, KC_STATE_PARAMETER, 1, &data), 0); /* a phase that is left half-way … */
        io.close(io.self, KC_STATE_PARAMETER, 1);
        kc_state_advance(s, 1, 1, 1, 1); /* … ends with the step */
        ck_assert_int_eq(write_is_fatal(&io, &r, KC_STATE_PARAMETER, 1), g != KC_GUARD_COUNT);
        kc_state_free(s);
        rig_free_plan(&r);
    }
}
END_TEST

/* Tickets come from the compute and the communication lane at once. */
static void *open_and_close(void *arg)
{
    struct kc_state_if *io = arg;
    static _Atomic uint32_t next;
    uint32_t bucket = next++ % 3;
    for (int i = 0; i < 2000; i++) {
        void *data;
        if (io->open(io->self, KC_STATE_PARAMETER, bucket, &data) == 0) {
            *(uint16_t *)data += 1;
            io->close(io->self, KC_STATE_PARAMETER, bucket);
        }
        io->read(io->self, KC_STATE_MOMENT1, bucket, NULL);
    }
    return NULL;
}

START_TEST(tickets_may_come_from_several_threads)
{
    struct rig r;
    struct kc_state_if io;
    pthread_t thread[3];
    struct kc_state *s = guarded_state(&r, KC_GUARD_ALWAYS, &io);
    for (int i = 0; i < 3; i++)
        ck_assert_int_eq(pthread_create(&thread[i], NULL, open_and_close, &io), 0);
    for (int i = 0; i < 3; i++)
        pthread_join(thread[i], NULL);
    uint64_t sum = 0, v;
    for (uint32_t b = 0; b < 3; b++) {
        io.read(io.self, KC_STATE_PARAMETER, b, &v);
        sum += v;
    }
    ck_assert_uint_eq(sum, 3 * 2000 + 3); /* every close counted once; init raised each once */
    kc_state_free(s);
    rig_free_plan(&r);
}
END_TEST

/* A peer's bucket lies where ours does; a window that is too small or off the page is refused. */
START_TEST(window_memory_is_the_callers)
{
    struct rig r = {0};
    struct kc_state *s;
    struct kc_state_if io;
    struct kc_error e = {""};
    struct kc_job_spec spec = {.seed = 1};
    size_t count;
    rig_plan(&r, rig_small, rig_small_count, (struct rig_layout){2, 1, 2, false, false});
    size_t bytes = kc_state_window_bytes(r.plan, 0);
    char *memory = mmap(NULL, bytes + 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    struct kc_state_config c = {.spec = &spec,
                                .shard = r.plan,
                                .rank = 0,
                                .memory = memory,
                                .memory_bytes = bytes - 1,
                                .guard = KC_GUARD_ALWAYS};
    ck_assert_int_eq(kc_state_new(&c, &s, &e), -EINVAL);
    c.memory_bytes = bytes;
    c.memory = memory + 64;
    ck_assert_int_eq(kc_state_new(&c, &s, &e), -EINVAL);
    c.memory = memory;
    ck_assert_int_eq(kc_state_new(&c, &s, &e), 0);
    ck_assert_int_eq(kc_state_offer(s, "schedule", &io), 0);
    for (int k = 0; k <= KC_STATE_GRADIENT; k++)
        for (uint32_t b = 0; b < 3; b++) {
            uintptr_t at = (uintptr_t)io.read(io.self, (enum kc_state_class)k, b, NULL) - (uintptr_t)memory;
            ck_assert_uint_lt(at, bytes);
            ck_assert_uint_eq(at % 4096, 0);
        }
    uintptr_t store = (uintptr_t)io.store(io.self, &count) - (uintptr_t)memory;
    ck_assert_uint_le(store + count * 8, bytes);
    ck_assert_uint_eq(count, 2 + 12 * rig_small_count);
    kc_state_free(s);
    memset(memory, 1, bytes); /* writable again */
    munmap(memory, bytes + 4096);
    /* zero ≥ 1 keeps half of the moments */
    struct rig whole = {0};
    rig_plan(&whole, rig_large, rig_large_count, (struct rig_layout){2, 0, 1, false, false});
    size_t all = kc_state_class_bytes(whole.plan, 0, KC_STATE_MOMENT1);
    rig_free_plan(&whole);
    rig_plan(&whole, rig_large, rig_large_count, (struct rig_layout){2, 1, 1, false, false});
    ck_assert_uint_lt(kc_state_class_bytes(whole.plan, 0, KC_STATE_MOMENT1), all * 55 / 100);
    rig_free_plan(&whole);
    rig_free_plan(&r);
}
END_TEST

START_TEST(a_plan_that_contradicts_itself_is_refused)
{
    for (int wrong = 0; wrong < 6; wrong++) {
        struct rig r = {0};
        struct kc_state *s = NULL;
        struct kc_error e = {""};
        struct kc_job_spec spec = {.seed = 1};
        rig_plan(&r, rig_small, rig_small_count, (struct rig_layout){2, 1, 2, false, false});
        size_t bytes = r.plan_arena.used;
        unsigned char *copy = malloc(bytes);
        memcpy(copy, r.plan, bytes);
        struct kc_shard_plan *p = (struct kc_shard_plan *)copy;
        struct kc_plan_tensor *t = (struct kc_plan_tensor *)(copy + p->tensors.offset);
        struct kc_plan_segment *seg = (struct kc_plan_segment *)(copy + p->segments.offset);
        struct kc_plan_bucket *b = (struct kc_plan_bucket *)(copy + p->buckets.offset);
        if (wrong == 0)
            t[1].offset = b[0].count;
        else if (wrong == 1)
            seg[1].offset = seg[0].offset;
        else if (wrong == 2)
            seg[5].count--;
        else if (wrong == 3)
            b[1].shards = 3;
        else if (wrong == 5)
            b[1].type = KC_BF16; /* and its parameters are f32 */
        else
            t[0].place[KC_DATA].kind = KC_PLACE_SHARDED; /* and its bucket is cut flat over that axis */
        struct kc_state_config c = {.spec = &spec, .shard = p, .rank = 0};
        ck_assert_int_eq(kc_state_new(&c, &s, &e), -EINVAL);
        ck_assert_ptr_null(s);
        ck_assert_int_gt(strlen(e.text), 20);
        free(copy);
        rig_free_plan(&r);
    }
}
END_TEST

/* ---- progress and history ---- */

/* STYLE §12: when full, the resolution halves; the whole run always fits, and every step counts in its point. */
START_TEST(loss_history_always_holds_the_whole_run)
{
    static uint64_t steps[KC_HISTORY_POINTS + 1];
    static float losses[KC_HISTORY_POINTS + 1];
    struct rig r;
    size_t count;
    rig_open(&r, rig_small, 2, (struct rig_layout){1, 0, 2, false, false}, NULL, NULL, "");
    for (uint64_t i = 1; i <= 30011; i++) {
        kc_state_advance(r.state[0], 10, 4, (double)i, 1);
        if (i != 3 && i != 4096 && i != 4097 && i != 30011)
            continue;
        count = KC_HISTORY_POINTS + 1;
        kc_state_history(r.state[0], steps, losses, &count);
        uint64_t stride = i <= 4096 ? 1 : i == 4097 ? 2 : 8;
        ck_assert_uint_eq(count, (i + stride - 1) / stride);
        ck_assert_uint_eq(steps[count - 1], i);
        for (size_t k = 0; k < count; k++) {
            uint64_t from = k ? steps[k - 1] + 1 : 1;
            ck_assert_uint_eq(steps[k], k + 1 < count ? (k + 1) * stride : i);
            ck_assert_float_eq_tol(losses[k], (float)(from + steps[k]) / 2, 0.01f); /* mean of from … steps[k] */
        }
    }
    count = 5;
    kc_state_history(r.state[0], steps, losses, &count); /* little room: the newest */
    ck_assert_uint_eq(count, 5);
    ck_assert_uint_eq(steps[4], 30011);
    struct kc_progress p;
    kc_state_progress(r.state[0], &p);
    ck_assert_uint_eq(p.step, 30011);
    ck_assert_uint_eq(p.tokens, 300110);
    ck_assert_uint_eq(p.position, 120044);
    rig_close(&r);
}
END_TEST

/* ---- state_root ---- */

/* kc-snapshot(5), written down once more with 128-bit integers. */
static unsigned __int128 mix(const char *name, uint64_t kind, uint64_t index, float value)
{
    uint64_t key = UINT64_C(0xcbf29ce484222325), c1 = UINT64_C(0x3C79AC492BA7B653), bits = 0;
    for (; *name; name++)
        key = (key ^ (uint8_t)*name) * UINT64_C(0x100000001b3);
    key += (kind + 1) * UINT64_C(0x9E3779B97F4A7C15);
    key = (key ^ key >> 27) * c1;
    key = (key ^ key >> 33) * UINT64_C(0x1C69B3F74AC4AE35);
    key = (key ^ key >> 27) + (index >> 32) * UINT64_C(0xD1B54A32D192ED03);
    memcpy(&bits, &value, 4);
    uint64_t z = (index << 32 | bits) ^ key, a = (z ^ z >> 27) * c1;
    a ^= a >> 33;
    uint64_t low = a * UINT64_C(0x1C69B3F74AC4AE35), high = a * UINT64_C(0x9FB21C651E98DF25);
    low ^= low >> 27;
    high ^= high >> 32;
    return (unsigned __int128)high << 64 | low;
}

static void reference_root(uint64_t step, uint64_t tokens, uint64_t position, uint64_t seed, char out[33])
{
    static const int sorted[] = {3, 2, 1, 4, 5, 0}; /* of rig_small, by name */
    static unsigned char data[4096];
    size_t n = 16;
    memset(data, 0, sizeof data);
    memcpy(data, "kc-state-root-1", 15);
    for (size_t i = 0; i < 6; i++) {
        const struct rig_tensor *t = &rig_small[sorted[i]];
        uint32_t length = (uint32_t)strlen(t->name);
        uint64_t count = t->size[0] * (t->rank > 1 ? t->size[1] : 1);
        memcpy(data + n, &length, 4);
        memcpy(data + n + 4, t->name, length);
        memcpy(data + n + 4 + length, &t->rank, 4);
        memcpy(data + n + 8 + length, t->size, 8 * t->rank);
        n += 8 + length + 8 * t->rank;
        for (int k = 0; k < 3; k++, n += 16) {
            unsigned __int128 sum = 0;
            for (uint64_t e = 0; e < count; e++)
                sum += mix(t->name, (uint64_t)k, e, rig_value((uint32_t)sorted[i], k, e, step - 1));
            memcpy(data + n, &sum, 16);
        }
    }
    const uint64_t tail[4] = {step, tokens, position, seed};
    memcpy(data + n, tail, sizeof tail);
    kc_digest_text(kc_digest(data, n + sizeof tail), out);
}

START_TEST(state_root_is_the_documented_one_on_every_layout)
{
    char want[33], have[33], before[33];
    reference_root(2, 200, 16, 7, want);
    for (size_t l = 0; l < LAYOUTS; l++) {
        struct rig r;
        rig_open(&r, rig_small, rig_small_count, layouts[l], NULL, NULL, "");
        kc_state_root_text(r.state[0], have);
        ck_assert_str_eq(have, ""); /* unknown is not zero */
        rig_train(&r);
        rig_root(&r, before);
        rig_train(&r);
        kc_state_root_text(r.state[0], have);
        ck_assert_str_eq(have, ""); /* the state moved on: the old root is not shown for it */
        rig_root(&r, have);
        ck_assert_str_eq(have, want);
        ck_assert_str_ne(have, before);
        rig_close(&r);
    }
}
END_TEST

/* Every single bit, an exchange of two elements and a move by one are seen. */
START_TEST(state_root_sees_every_change)
{
    enum { N = 300 };
    float v[N];
    uint64_t base[4] = {0}, key = kc_root_key("w", KC_MASTER);
    kc_number_normal(1, "init", "w", 0, N, 1, v);
    kc_root_add(key, 0, v, N, base);
    for (int i = 0; i < N * 32; i++) {
        uint64_t other[4] = {0};
        uint32_t bits;
        memcpy(&bits, &v[i / 32], 4);
        bits ^= 1u << i % 32;
        memcpy(&v[i / 32], &bits, 4);
        kc_root_add(key, 0, v, N, other);
        ck_assert_mem_ne(base, other, sizeof base);
        bits ^= 1u << i % 32;
        memcpy(&v[i / 32], &bits, 4);
    }
    uint64_t swapped[4] = {0}, moved[4] = {0}, kind[4] = {0}, name[4] = {0}, parts[4] = {0}, far[4] = {0};
    kc_root_add(key, 1, v, N, moved);
    kc_root_add(key, UINT64_C(1) << 32, v, N, far);
    kc_root_add(kc_root_key("w", KC_KIND_MOMENT1), 0, v, N, kind);
    kc_root_add(kc_root_key("v", KC_MASTER), 0, v, N, name);
    kc_root_add(key, 100, v + 100, N - 100, parts);
    kc_root_add(key, 0, v, 100, parts);
    ck_assert_mem_eq(base, parts, sizeof base); /* order and cut do not count */
    float t = v[3];
    v[3] = v[4], v[4] = t;
    kc_root_add(key, 0, v, N, swapped);
    ck_assert_mem_ne(base, swapped, sizeof base);
    ck_assert_mem_ne(base, moved, sizeof base);
    ck_assert_mem_ne(base, far, sizeof base);
    ck_assert_mem_ne(base, kind, sizeof base);
    ck_assert_mem_ne(base, name, sizeof base);
    uint64_t wrap[4] = {0}, a[4] = {0};
    kc_root_add(key, (UINT64_C(1) << 32) - 7, v, N, wrap); /* across the high half of the index */
    kc_root_add(key, (UINT64_C(1) << 32) - 7, v, 7, a);
    kc_root_add(key, UINT64_C(1) << 32, v + 7, N - 7, a);
    ck_assert_mem_eq(wrap, a, sizeof a);
    for (int i = 0; i < 4; i++)
        ck_assert_uint_le(base[i], UINT32_MAX);
}
END_TEST

START_TEST(replica_digests_cancel_unless_a_bit_differs)
{
    struct rig r;
    void *data;
    rig_open(&r, rig_small, rig_small_count, (struct rig_layout){4, 1, 2, false, false}, NULL, NULL, "");
    rig_train(&r);
    double sum = 0;
    for (int i = 0; i < 4; i++)
        sum += kc_state_replica_digest(r.state[i]);
    ck_assert(sum == 0 && kc_state_replica_digest(r.state[0]) > 0);
    for (int i = 0; i < 4; i++) {
        ck_assert_int_eq(r.io[i].open(r.io[i].self, KC_STATE_PARAMETER, 2, &data), 0);
        ((unsigned char *)data)[5] ^= 1;
        r.io[i].close(r.io[i].self, KC_STATE_PARAMETER, 2);
        sum = 0;
        for (int k = 0; k < 4; k++)
            sum += kc_state_replica_digest(r.state[k]);
        ck_assert((sum == 0) == (i == 3)); /* when all have changed, all are the same again */
    }
    rig_close(&r);
}
END_TEST

/* Microseconds to open, write and close every bucket of parameters and moments; the best of several. */
static double update_time(enum kc_guard guard)
{
    static const enum kc_state_class klass[] = {KC_STATE_PARAMETER, KC_STATE_MOMENT1, KC_STATE_MOMENT2};
    struct rig r = {0};
    struct kc_job_spec spec = {.seed = 1};
    struct kc_state *s;
    struct kc_state_if io;
    struct kc_error e = {""};
    double best = 1e9;
    rig_plan(&r, rig_large, rig_large_count, (struct rig_layout){1, 0, 1, false, false});
    struct kc_state_config c = {.spec = &spec, .shard = r.plan, .guard = guard};
    ck_assert_msg(kc_state_new(&c, &s, &e) == 0, "%s", e.text);
    ck_assert_int_eq(kc_state_offer(s, "schedule", &io), 0);
    ck_assert_int_eq(kc_state_init(s, &e), 0);
    const struct kc_plan_bucket *bucket = KC_AT(r.plan, struct kc_plan_bucket, r.plan->buckets);
    for (int i = 0; i < 30; i++) {
        uint64_t start = kc_now();
        for (int k = 0; k < 3; k++)
            for (uint32_t b = 0; b < r.plan->buckets.count; b++) {
                void *data;
                ck_assert_int_eq(io.open(io.self, klass[k], b, &data), 0);
                for (uint64_t x = 0; x < bucket[b].count; x += 16)
                    ((float *)data)[x] += 1;
                io.close(io.self, klass[k], b);
            }
        kc_state_advance(s, 1, 1, 1, 1);
        best = fmin(best, (double)(kc_now() - start) * 1e-3);
    }
    kc_state_free(s);
    rig_free_plan(&r);
    return best;
}

/* Not a test of time: printed, and only ten times too slow would fail. */
START_TEST(speeds_are_printed)
{
    enum { N = 8 << 20 };
    float *v = malloc(N * sizeof *v);
    uint64_t limb[4] = {0};
    uint64_t t0 = kc_now();
    kc_number_normal(1, "init", "w", 0, N / 8, 0.02, v);
    uint64_t t1 = kc_now();
    for (size_t i = N / 8; i < N; i++)
        v[i] = v[i % (N / 8)];
    uint64_t t2 = kc_now();
    kc_root_add(kc_root_key("w", KC_MASTER), 0, v, N, limb);
    uint64_t t3 = kc_now();
    struct kc_digest d = kc_digest(v, N * sizeof *v);
    uint64_t t4 = kc_now();
    printf("state: root mix %.2f GB/s (XXH3-128 over the same bytes %.2f GB/s), normal values %.1f M/s [%x]\n",
           N * 4.0 / (double)(t3 - t2), N * 4.0 / (double)(t4 - t3), N / 8 * 1e3 / (double)(t1 - t0),
           (unsigned)d.low & 1);
    for (int g = 0; g < KC_GUARDS; g++)
        printf("state: an update of 15 MiB of state under guard %s: %.0f us\n", kc_guard_name[g],
               update_time((enum kc_guard)g));
    free(v);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("state");
    TCase *c = tcase_create("memory");
    tcase_set_timeout(c, 120);
    tcase_add_test(c, philox_gives_the_published_vectors);
    tcase_add_test(c, functions_of_a_number_agree_with_libm);
    tcase_add_test(c, normal_values_depend_on_position_alone);
    tcase_add_test(c, learning_rate_is_a_function_of_the_step);
    tcase_add_test(c, learning_rate_is_the_golden_one);
    tcase_add_test(c, seeded_values_do_not_depend_on_the_layout);
    tcase_add_test(c, seeded_masters_are_those_of_fp32);
    tcase_add_test(c, fp32_has_no_masters);
    tcase_add_test(c, tickets_exclude_and_raise_the_version);
    tcase_add_test(c, ledger_counts_by_caller_and_refuses_strangers);
    tcase_add_test(c, guard_makes_a_write_without_a_ticket_fatal);
    tcase_add_test(c, tickets_may_come_from_several_threads);
    tcase_add_test(c, window_memory_is_the_callers);
    tcase_add_test(c, a_plan_that_contradicts_itself_is_refused);
    tcase_add_test(c, loss_history_always_holds_the_whole_run);
    tcase_add_test(c, state_root_is_the_documented_one_on_every_layout);
    tcase_add_test(c, state_root_sees_every_change);
    tcase_add_test(c, replica_digests_cancel_unless_a_bit_differs);
    tcase_add_test(c, speeds_are_printed);
    suite_add_tcase(suite, c);
    return suite_run(suite);
}
