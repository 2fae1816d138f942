/* test_data_order.c - several files with weights, loss masks, documents, and the tokens of a step. Expected values
 * come from the definitions in jobs/data/loader.h and mixture.h, worked out here by counting. */
#include "base/arena.h"
#include "data_files.h"
#include "govern/spec.h"
#include "jobs/data/check.h"
#include "jobs/data/info.h"
#include "jobs/data/loader.h"
#include "jobs/data/mask.h"
#include "jobs/data/mixture.h"
#include "jobs/data/permute.h"
#include "jobs/jobs.h"
#include "suite.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct kc_error e;
static const struct kc_load_part all_of_4 = {4, 1, {{0, 4}}}, all_of_8 = {8, 1, {{0, 8}}};

/* ---- the mixture ---- */

START_TEST(every_file_has_its_share_of_every_beginning)
{
    static const struct {
        uint32_t files;
        uint64_t weight[6];
    } c[] = {{1, {7}},          {2, {7, 3}},           {2, {1, 999999}},        {3, {1, 1, 1}},
             {3, {5, 0, 2}},    {5, {0, 4, 0, 1, 0}},  {6, {13, 1, 8, 3, 2, 5}}, {4, {1000000, 1, 1000000, 1}}};
    for (size_t k = 0; k < sizeof c / sizeof *c; k++) {
        uint64_t sums[7] = {0}, count[6] = {0};
        for (uint32_t f = 0; f < c[k].files; f++)
            sums[f + 1] = sums[f] + c[k].weight[f];
        double all = (double)sums[c[k].files], most = 0.5 * ceil(log2(c[k].files)) + 1e-9;
        for (uint64_t q = 0; q < 5000; q++) {
            uint32_t file;
            uint64_t index;
            for (uint32_t f = 0; f < c[k].files; f++)
                ck_assert_msg(fabs((double)count[f] - (double)q * (double)c[k].weight[f] / all) <= most,
                              "case %zu: file %u has %llu of %llu", k, f, (unsigned long long)count[f],
                              (unsigned long long)q);
            kc_mixture_at(sums, c[k].files, q, &file, &index);
            ck_assert_uint_lt(file, c[k].files);
            ck_assert_uint_gt(c[k].weight[file], 0);
            ck_assert_uint_eq(index, count[file]); /* every index once and in turn */
            count[file]++;
        }
    }
}
END_TEST

START_TEST(after_a_whole_sum_of_positions_the_shares_are_exact)
{
    uint64_t sums[5] = {0, 93, 93 + 1000003, 93 + 1000003 + 1, 93 + 1000003 + 1 + 77}, n = sums[4];
    for (uint64_t epoch = 1; epoch < UINT64_C(1) << 40; epoch *= 1000) {
        uint64_t index, at[4] = {0};
        uint32_t file;
        /* what each file is asked for next, at the first position of the epoch and after: epoch times its weight */
        for (uint64_t q = n * epoch; q < n * epoch + 200000; q++) {
            kc_mixture_at(sums, 4, q, &file, &index);
            ck_assert_uint_eq(index, (sums[file + 1] - sums[file]) * epoch + at[file]++);
        }
    }
}
END_TEST

/* ---- files with weights ---- */

static struct kc_loader *open_three(const double *weight, bool shuffled)
{
    const char *path[3] = {data_path("a.bin"), data_path("b.bin"), data_path("c.bin")};
    struct kc_loader_file file[3];
    for (int i = 0; i < 3; i++)
        file[i] = (struct kc_loader_file){.path = path[i], .weight = weight ? weight[i] : -1};
    struct kc_loader_config c = {.train = file,
                                 .train_count = 3,
                                 .context = 4,
                                 .vocab = 65536,
                                 .end_of_text = KC_NO_TOKEN,
                                 .seed = 9,
                                 .shuffled = shuffled,
                                 .step_rows = 5};
    struct kc_loader *l = NULL;
    data_put_counting(path[0], 0, 4 * 10 + 1);    /* sample i begins with 4·i */
    data_put_counting(path[1], 1000, 4 * 3 + 3);  /* three samples, and a rest */
    data_put_counting(path[2], 2000, 4 * 5 + 1);
    ck_assert_msg(kc_loader_open(&c, &l, &e) == 0, "%s", e.text);
    return l;
}

START_TEST(without_weights_an_epoch_has_every_sample_of_every_file_once)
{
    for (int shuffled = 0; shuffled < 2; shuffled++) {
        struct kc_loader *l = open_three(NULL, shuffled);
        int seen[3][10] = {{0}};
        int32_t x[4], y[4];
        ck_assert_uint_eq(kc_loader_samples(l, false), 18);
        for (uint64_t q = 0; q < 2 * 18; q++) {
            ck_assert_int_eq(kc_loader_load(l, 0, q, 1, &all_of_4, x, y, NULL, &e), 0);
            ck_assert_int_eq(y[3], x[0] + 4);
            seen[x[0] / 1000][x[0] % 1000 / 4]++;
            for (int f = 0; q % 18 == 17 && f < 3; f++)
                for (int i = 0; i < (f == 0 ? 10 : f == 1 ? 3 : 5); i++)
                    ck_assert_int_eq(seen[f][i], q / 18 + 1);
        }
        kc_loader_close(l);
    }
}
END_TEST

START_TEST(each_file_is_permuted_by_itself_and_begins_again_by_itself)
{
    const double weight[3] = {0.7, 0.3, 0};
    struct kc_loader *l = open_three(weight, true);
    uint64_t count[3] = {0};
    ck_assert_uint_eq(kc_loader_samples(l, false), 13); /* what has no weight is no part of it */
    for (uint64_t q = 0; q < 1000; q++) {
        uint32_t file;
        uint64_t sample;
        ck_assert_int_eq(kc_loader_sample_at(l, false, q, &file, &sample), 0);
        uint64_t n = file == 0 ? 10 : 3, k = count[file]++;
        if (file == 0) /* the order of the first file is that of a job with it alone */
            ck_assert_uint_eq(sample, kc_permute(9, k / n, n, k % n));
        ck_assert_uint_lt(sample, n);
    }
    ck_assert_uint_eq(count[0], 700);
    ck_assert_uint_eq(count[1], 300);
    kc_loader_close(l);
    /* two files of the same length have different orders */
    data_put_counting(data_path("d.bin"), 0, 401);
    data_put_counting(data_path("e.bin"), 0, 401);
    struct kc_loader_file two[2] = {{data_path("d.bin"), NULL, 1}, {data_path("e.bin"), NULL, 1}};
    struct kc_loader_config c = {.train = two,
                                 .train_count = 2,
                                 .context = 4,
                                 .vocab = 65536,
                                 .end_of_text = KC_NO_TOKEN,
                                 .seed = 9,
                                 .shuffled = true};
    ck_assert_int_eq(kc_loader_open(&c, &l, &e), 0);
    int same = 0;
    uint64_t at[2][100];
    size_t have[2] = {0};
    for (uint64_t q = 0; q < 200; q++) {
        uint32_t file;
        uint64_t sample;
        kc_loader_sample_at(l, false, q, &file, &sample);
        at[file][have[file]++] = sample;
    }
    for (int i = 0; i < 100; i++)
        same += at[0][i] == at[1][i];
    ck_assert_int_lt(same, 10);
    kc_loader_close(l);
}
END_TEST

START_TEST(any_cut_of_the_positions_reads_the_same)
{
    /* F41: rows of a step by one rank, by four, or after a resume in its middle */
    const double weight[3] = {3, 2, 1};
    struct kc_loader *l = open_three(weight, true), *again = open_three(weight, true);
    int32_t x[30 * 4], y[30 * 4], one[4], next[4];
    ck_assert_int_eq(kc_loader_load(l, 0, 100, 30, &all_of_4, x, y, NULL, &e), 0);
    for (uint64_t q = 129; q >= 100; q--) {
        ck_assert_int_eq(kc_loader_load(again, 0, q, 1, &all_of_4, one, next, NULL, &e), 0);
        ck_assert_mem_eq(one, x + (q - 100) * 4, sizeof one);
        ck_assert_mem_eq(next, y + (q - 100) * 4, sizeof next);
    }
    kc_loader_close(again);
    kc_loader_close(l);
}
END_TEST

START_TEST(a_list_with_a_fault_names_the_file)
{
    const double nothing[3] = {0, 0, 0};
    struct kc_loader *l = open_three(NULL, false);
    kc_loader_close(l);
    struct kc_loader_file file[3] = {
        {data_path("a.bin"), NULL, -1}, {data_path("b.bin"), NULL, -1}, {data_path("none"), NULL, -1}};
    struct kc_loader_config c = {.train = file, .train_count = 3, .context = 4, .vocab = 65536};
    ck_assert_int_eq(kc_loader_open(&c, &l, &e), -ENOENT);
    ck_assert_msg(strstr(e.text, "data.train[2]: ") == e.text, "%s", e.text);
    file[2].path = data_path("c.bin");
    for (int i = 0; i < 3; i++)
        file[i].weight = nothing[i];
    ck_assert_int_eq(kc_loader_open(&c, &l, &e), -EINVAL);
    ck_assert_msg(strstr(e.text, "the weights of its 3 files sum to nothing"), "%s", e.text);
    for (int i = 0; i < 3; i++)
        file[i].weight = -1;
    c.context = 14; /* b has 15 tokens, one sample; at 15 none */
    ck_assert_int_eq(kc_loader_open(&c, &l, &e), 0);
    l = kc_loader_close(l);
    c.context = 15;
    ck_assert_int_eq(kc_loader_open(&c, &l, &e), -EINVAL);
    ck_assert_msg(strstr(e.text, "data.train[1]: ") == e.text && strstr(e.text, "has 15 tokens"), "%s", e.text);
}
END_TEST

/* ---- masks ---- */

/* a.bin has a mask, b.bin none; 10 samples of 4 each. */
static struct kc_loader *open_masked(const char *bits, struct kc_loader_config *c)
{
    static struct kc_loader_file file[2];
    file[0] = (struct kc_loader_file){data_path("a.bin"), data_path("a.mask"), -1};
    file[1] = (struct kc_loader_file){data_path("b.bin"), NULL, -1};
    *c = (struct kc_loader_config){.train = file, .train_count = 2, .validation = file, .context = 4, .vocab = 65536,
                                   .end_of_text = KC_NO_TOKEN, .seed = 9, .shuffled = true};
    struct kc_loader *l = NULL;
    data_put_counting(file[0].path, 0, 41);
    data_put_counting(file[1].path, 100, 41);
    data_put_mask(file[0].mask, bits, 41);
    ck_assert_msg(kc_loader_open(c, &l, &e) == 0, "%s", e.text);
    return l;
}

START_TEST(a_target_counts_where_the_mask_of_its_token_says_so)
{
    static const char bits[] = "0110100"; /* of token i: bits[i % 7] */
    struct kc_loader_config c;
    struct kc_loader *l = open_masked(bits, &c);
    int32_t x[4], y[4];
    uint64_t all = 0, counted;
    for (uint64_t q = 0; q < 20; q++) {
        uint64_t here = 0;
        ck_assert_int_eq(kc_loader_load(l, 0, q, 1, &all_of_4, x, y, NULL, &e), 0);
        for (int t = 0; t < 4; t++) {
            int32_t token = x[0] + t;
            ck_assert_int_eq(x[t], token); /* what does not count is read all the same */
            bool counts = token >= 100 || bits[(token + 1) % 7] == '1';
            ck_assert_int_eq(y[t], counts ? token + 1 : -1);
            here += counts;
        }
        ck_assert_int_eq(kc_loader_count(l, q, 1, &counted, &e), 0);
        ck_assert_uint_eq(counted, here);
        all += here;
    }
    ck_assert_int_eq(kc_loader_count(l, 0, 20, &counted, &e), 0);
    ck_assert_uint_eq(counted, all);
    ck_assert_int_eq(kc_loader_load(l, 1, 2, 1, &all_of_4, x, y, NULL, &e), 0); /* validation is masked, too */
    for (int t = 0; t < 4; t++)
        ck_assert_int_eq(y[t], bits[(9 + t) % 7] == '1' ? 9 + t : -1);
    kc_loader_close(l);
}
END_TEST

START_TEST(without_masks_every_token_counts_and_nothing_is_read)
{
    struct kc_loader *l = open_three(NULL, true);
    uint64_t counted;
    ck_assert_int_eq(truncate(data_path("a.bin"), 0), 0); /* it would be an error to look */
    ck_assert_int_eq(kc_loader_count(l, 123, 1000, &counted, &e), 0);
    ck_assert_uint_eq(counted, 4000);
    kc_loader_close(l);
}
END_TEST

START_TEST(a_mask_that_does_not_fit_is_named)
{
    struct kc_loader_config c;
    struct kc_loader *l = kc_loader_close(open_masked("1", &c));
    int32_t x[4], y[4], three[41] = {[7] = 3};
    uint64_t counted = 77;
    data_put_mask(data_path("a.mask"), "1", 40);
    ck_assert_int_eq(kc_loader_open(&c, &l, &e), -EINVAL);
    ck_assert_msg(strstr(e.text, "data.train[0].mask: ") == e.text && strstr(e.text, "masks 40 tokens, ") &&
                      strstr(e.text, "a.bin has 41"), "%s", e.text);
    data_put_counting(data_path("a.mask"), 0, 41);
    ck_assert_int_eq(kc_loader_open(&c, &l, &e), -EINVAL);
    ck_assert_msg(strstr(e.text, "is no loss mask (its first number is 20240520, expected 20261130)"), "%s", e.text);
    data_put_elements(data_path("a.mask"), 20261130, 2, 1, three, 41);
    ck_assert_int_eq(kc_loader_open(&c, &l, &e), -EINVAL);
    ck_assert_msg(strstr(e.text, "loss mask of version 2, this program reads version 1"), "%s", e.text);
    data_put_mask(data_path("a.mask"), "1", 41);
    ck_assert_int_eq(truncate(data_path("a.mask"), 1024 + 40), 0);
    ck_assert_int_eq(kc_loader_open(&c, &l, &e), -EINVAL);
    ck_assert_msg(strstr(e.text, "has 41 tokens by its header (1065 bytes), the file is 1064 bytes: truncated"), "%s",
                  e.text);
    data_put_elements(data_path("a.mask"), 20261130, 1, 1, three, 41);
    c.shuffled = false;
    c.train_count = 1;
    ck_assert_int_eq(kc_loader_open(&c, &l, &e), 0);
    ck_assert_int_eq(kc_loader_load(l, 0, 1, 1, &all_of_4, x, y, NULL, &e), -EINVAL);
    ck_assert_msg(strstr(e.text, "the byte of token 7 is neither 0 nor 1"), "%s", e.text);
    ck_assert_int_eq(kc_loader_count(l, 0, 3, &counted, &e), -EINVAL);
    ck_assert_uint_eq(counted, 77);
    l = kc_loader_close(l);
    data_put_elements(data_path("t.bin"), 20261130, 1, 1, three, 41);
    c.train = &(struct kc_loader_file){data_path("t.bin"), NULL, -1};
    ck_assert_int_eq(kc_loader_open(&c, &l, &e), -EINVAL);
    ck_assert_msg(strstr(e.text, "t.bin: is a loss mask and no token file"), "%s", e.text);
}
END_TEST

START_TEST(a_mask_that_shrinks_is_an_error_and_no_crash)
{
    static struct kc_loader_file file;
    file = (struct kc_loader_file){data_path("l.bin"), data_path("l.mask"), -1};
    struct kc_loader_config c = {
        .train = &file, .train_count = 1, .context = 4, .vocab = 65536, .end_of_text = KC_NO_TOKEN};
    struct kc_loader *l = NULL;
    int32_t x[4], y[4];
    uint64_t counted;
    data_put_counting(file.path, 0, 100001);
    data_put_mask(file.mask, "10", 100001);
    ck_assert_int_eq(kc_loader_open(&c, &l, &e), 0);
    ck_assert_int_eq(kc_loader_count(l, 0, 25000, &counted, &e), 0);
    ck_assert_uint_eq(counted, 50000);
    ck_assert_int_eq(truncate(file.mask, 2000), 0);
    ck_assert_int_eq(kc_loader_load(l, 0, 20000, 1, &all_of_4, x, y, NULL, &e), -EIO);
    ck_assert_msg(strstr(e.text, "data.train.mask: ") == e.text && strstr(e.text, "shrank from 101025 to 2000 bytes"),
                  "%s", e.text);
    ck_assert_int_eq(kc_loader_count(l, 0, 25000, &counted, &e), -EIO);
    ck_assert_int_eq(kc_loader_count(l, 0, 1, &counted, &e), -EIO); /* inside the last page: zeros, no fault */
    kc_loader_close(l);
}
END_TEST

START_TEST(a_masks_figures_are_told)
{
    struct kc_data_info i;
    data_put_mask(data_path("m"), "110", 9001);
    ck_assert_msg(kc_data_info(data_path("m"), &i, &e) == 0, "%s", e.text);
    ck_assert(i.mask);
    ck_assert_int_eq(i.magic, 20261130);
    ck_assert_uint_eq(i.tokens, 9001);
    ck_assert_uint_eq(i.bytes, 1024 + 9001);
    ck_assert_uint_eq(i.counted, 6001);
    int32_t wide[3] = {70000, 5, 128255};
    data_put_elements(data_path("w"), 20240801, 7, 4, wide, 3);
    ck_assert_msg(kc_data_info(data_path("w"), &i, &e) == 0, "%s", e.text);
    ck_assert(!i.mask);
    ck_assert_uint_eq(i.bytes_each, 4);
    ck_assert_uint_eq(i.largest, 128255);
    ck_assert_uint_eq(i.largest_at, 2);
    ck_assert_uint_eq(i.distinct, 3);
    ck_assert_double_eq_tol(i.entropy, log(3), 1e-12);
}
END_TEST

/* ---- documents ---- */

START_TEST(a_document_begins_with_its_end_of_text_token_and_with_the_row)
{
    static const int32_t tokens[] = {5, 9, 1, 2, 9, 9, 3, 4, 5, 6, 7, 8, 1, 2, 3, 9, 4};
    static const int32_t starts[] = {0, 1, 1, 1, 4, 5, 5, 5, 0, 0, 0, 0, 0, 0, 0, 7};
    struct kc_loader_file file = {data_path("d.bin"), NULL, -1};
    struct kc_loader_config c = {.train = &file, .train_count = 1, .validation = &file, .context = 8, .vocab = 10,
                                 .end_of_text = 9};
    struct kc_loader *l = NULL;
    int32_t x[16], y[16], s[16];
    data_put_elements(file.path, 20240520, 1, 2, tokens, 17);
    for (int evaluate = 0; evaluate < 2; evaluate++) {
        ck_assert_int_eq(kc_loader_open(&c, &l, &e), 0);
        ck_assert_int_eq(kc_loader_load(l, evaluate, 0, 2, &all_of_8, x, y, s, &e), 0);
        ck_assert_mem_eq(x, tokens, sizeof x);
        ck_assert_mem_eq(y, tokens + 1, sizeof y); /* the end of a document is learned, and so is how one begins */
        ck_assert_mem_eq(s, starts, sizeof s);
        l = kc_loader_close(l);
    }
    /* Of a part, too, although it has begun before: two chunks of two, the first and the last but one. */
    const struct kc_load_part part = {8, 2, {{1, 2}, {5, 2}}};
    ck_assert_int_eq(kc_loader_open(&c, &l, &e), 0);
    ck_assert_int_eq(kc_loader_load(l, 0, 0, 2, &part, x, y, s, &e), 0);
    for (int i = 0; i < 8; i++) {
        const int at = i / 4 * 8 + (i % 4 < 2 ? 1 : 5) + i % 2;
        ck_assert(x[i] == tokens[at] && y[i] == tokens[at + 1] && s[i] == starts[at]);
    }
    ck_assert_int_eq(kc_loader_load(l, 0, 0, 1, &(struct kc_load_part){8, 1, {{6, 3}}}, x, y, s, &e), -EINVAL);
    ck_assert_str_eq(e.text, "model.context: 3 tokens from 6 on were asked for, a sample has 8");
    l = kc_loader_close(l);
    c.end_of_text = KC_NO_TOKEN;
    ck_assert_int_eq(kc_loader_open(&c, &l, &e), 0);
    ck_assert_int_eq(kc_loader_load(l, 0, 0, 2, &all_of_8, x, y, s, &e), 0);
    for (int i = 0; i < 16; i++)
        ck_assert_int_eq(s[i], 0);
    kc_loader_close(l);
}
END_TEST

/* ---- what a spec says ---- */

static struct kc_arena arena;
static const struct kc_job_spec *spec_of(const char *data)
{
    char text[2048];
    const struct kc_job_spec *spec = NULL;
    snprintf(
        text, sizeof text,
        "{\"name\":\"x\",\"ranks\":1,\"steps\":1,\"model\":{\"family\":\"gpt2\",\"layers\":1,\"hidden\":4,\"heads\":1,"
        "\"context\":4,\"vocab\":100},\"data\":{%s},\"batch\":{\"sequences\":2,\"micro\":1},\"optimizer\":{\"lr\":1}}",
        data);
    ck_assert_int_eq(kc_arena_new(&arena, 1 << 16), 0);
    char here[300];
    snprintf(here, sizeof here, "%s", data_path(""));
    here[strlen(here) - 1] = 0;
    ck_assert_msg(kc_spec_parse(text, here, &arena, &spec, &e) == 0, "%s", e.text);
    return spec;
}

START_TEST(the_files_of_a_spec_are_checked_and_opened)
{
    struct kc_loader *l = NULL;
    uint64_t counted;
    data_put_counting(data_path("a.bin"), 0, 41);
    data_put_counting(data_path("b.bin"), 0, 41);
    data_put_mask(data_path("a.mask"), "01", 41);
    const struct kc_job_spec *s = spec_of("\"train\":[{\"path\":\"a.bin\",\"weight\":1,\"mask\":\"a.mask\"},"
                                          "{\"path\":\"b.bin\",\"weight\":3}],\"validation\":{\"path\":\"b.bin\"},"
                                          "\"documents\":\"masked\",\"end_of_text\":7");
    ck_assert_msg(kc_data_check(s, &e) == 0, "%s", e.text);
    ck_assert_msg(kc_loader_open_spec(s, &l, &e) == 0, "%s", e.text);
    ck_assert_uint_eq(kc_loader_samples(l, false), 20);
    ck_assert_uint_eq(kc_loader_samples(l, true), 10);
    ck_assert_int_eq(kc_loader_count(l, 0, 40, &counted, &e), 0);
    ck_assert_uint_eq(counted, 10 * 2 + 30 * 4);
    kc_loader_close(l);
    data_put_mask(data_path("a.mask"), "0", 41);
    ck_assert_int_eq(kc_data_check(s, &e), -EINVAL);
    ck_assert_msg(strstr(e.text, "data.train[0].mask: ") == e.text && strstr(e.text, "none of its 41 tokens counts"),
                  "%s", e.text);
    data_put_counting(data_path("b.bin"), 90, 41);
    data_put_mask(data_path("a.mask"), "1", 41);
    ck_assert_int_eq(kc_data_check(s, &e), -EINVAL);
    ck_assert_msg(strstr(e.text, "model.vocab is 100, but data.train[1] has token 130 at position 40") == e.text,
                  "%s", e.text);
    kc_arena_free(&arena);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("data order");
    TCase *t = tcase_create("data order");
    tcase_add_checked_fixture(t, data_files_begin, data_files_end);
    tcase_set_timeout(t, 60);
    tcase_add_test(t, every_file_has_its_share_of_every_beginning);
    tcase_add_test(t, after_a_whole_sum_of_positions_the_shares_are_exact);
    tcase_add_test(t, without_weights_an_epoch_has_every_sample_of_every_file_once);
    tcase_add_test(t, each_file_is_permuted_by_itself_and_begins_again_by_itself);
    tcase_add_test(t, any_cut_of_the_positions_reads_the_same);
    tcase_add_test(t, a_list_with_a_fault_names_the_file);
    tcase_add_test(t, a_target_counts_where_the_mask_of_its_token_says_so);
    tcase_add_test(t, without_masks_every_token_counts_and_nothing_is_read);
    tcase_add_test(t, a_mask_that_does_not_fit_is_named);
    tcase_add_test(t, a_mask_that_shrinks_is_an_error_and_no_crash);
    tcase_add_test(t, a_masks_figures_are_told);
    tcase_add_test(t, a_document_begins_with_its_end_of_text_token_and_with_the_row);
    tcase_add_test(t, the_files_of_a_spec_are_checked_and_opened);
    suite_add_tcase(s, t);
    return suite_run(s);
}
