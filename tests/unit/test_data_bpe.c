/* test_data_bpe.c - GPT-2's tokenizer, and text prepared with it. The ids are those of Hugging Face transformers
 * (tests/golden/gpt2-bpe, made by tests/golden/generate_bpe.py). */
#include "base/file.h"
#include "base/json.h"
#include "data_files.h"
#include "jobs/data/prepare.h"
#include "jobs/data/split.h"
#include "jobs/data/tokenizer.h"
#include "suite.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define VOCAB  "tests/golden/gpt2-bpe/vocab.json"
#define MERGES "tests/golden/gpt2-bpe/merges.txt"

static struct kc_error e;
static struct kc_tokenizer *gpt2;
static struct kc_encoder *encoder;
static json_t *cases;

static void set_up(void)
{
    data_files_begin();
    ck_assert_msg(kc_tokenizer_open("gpt2", VOCAB, MERGES, &gpt2, &e) == 0, "%s", e.text);
    ck_assert_ptr_nonnull(encoder = kc_encoder_new(gpt2));
    ck_assert_ptr_nonnull(cases = json_load_file("tests/golden/gpt2-bpe/cases.json", JSON_ALLOW_NUL, NULL));
}

static void tear_down(void)
{
    json_decref(cases);
    kc_encoder_free(encoder);
    kc_tokenizer_close(gpt2);
    data_files_end();
}

static struct kc_token_list encoded(const void *text, size_t bytes)
{
    struct kc_token_list list = {0};
    ck_assert_int_eq(kc_encode(encoder, text, bytes, &list), 0);
    return list;
}

static const char *text_of(size_t i, size_t *bytes)
{
    const json_t *text = json_object_get(json_array_get(cases, i), "text");
    *bytes = json_string_length(text);
    return json_string_value(text);
}

START_TEST(every_text_has_the_ids_that_transformers_gives_it)
{
    ck_assert_uint_eq(kc_tokenizer_vocab(gpt2), 600);
    ck_assert_int_eq(kc_tokenizer_end_of_text(gpt2), 0);
    ck_assert_uint_ge(json_array_size(cases), 120);
    for (int again = 0; again < 2; again++) /* the second time from what it remembers */
        for (size_t i = 0; i < json_array_size(cases); i++) {
            const json_t *ids = json_object_get(json_array_get(cases, i), "ids");
            size_t bytes, back_bytes;
            const char *text = text_of(i, &bytes);
            struct kc_token_list list = encoded(text, bytes);
            char back[4096];
            ck_assert_msg(list.count == json_array_size(ids), "case %zu: \"%s\"", i, text);
            for (size_t k = 0; k < list.count; k++)
                ck_assert_msg(list.token[k] == json_integer_value(json_array_get(ids, k)),
                              "case %zu, token %zu: \"%s\"", i, k, text);
            ck_assert_int_eq(kc_tokenizer_decode(gpt2, list.token, list.count, back, sizeof back, &back_bytes), 0);
            ck_assert_uint_eq(back_bytes, bytes);
            ck_assert_mem_eq(back, text, bytes);
            free(list.token);
        }
}
END_TEST

START_TEST(every_text_is_cut_into_the_pieces_of_gpt2s_pattern)
{
    for (size_t i = 0; i < json_array_size(cases); i++) {
        const json_t *pieces = json_object_get(json_array_get(cases, i), "pieces");
        size_t bytes, at = 0, k = 0;
        const unsigned char *text = (const unsigned char *)text_of(i, &bytes);
        for (; at < bytes && k < json_array_size(pieces); k++) {
            size_t n = split_piece(text + at, bytes - at);
            ck_assert_msg(n == (size_t)json_integer_value(json_array_get(pieces, k)), "case %zu, piece %zu: \"%s\"",
                          i, k, text);
            at += n;
        }
        ck_assert(at == bytes && k == json_array_size(pieces));
    }
}
END_TEST

START_TEST(a_text_may_be_cut_where_it_says_so)
{
    size_t cuts = 0;
    for (size_t i = 0; i < json_array_size(cases); i++) {
        size_t bytes;
        const char *text = text_of(i, &bytes);
        struct kc_token_list whole = encoded(text, bytes);
        for (size_t at = 1; at < bytes; at++) {
            if (!kc_tokenizer_may_cut(gpt2, text, at))
                continue;
            cuts++;
            struct kc_token_list parts = encoded(text, at);
            ck_assert_int_eq(kc_encode(encoder, text + at, bytes - at, &parts), 0);
            ck_assert_msg(parts.count == whole.count && memcmp(parts.token, whole.token, whole.count * 4) == 0,
                          "case %zu at %zu: \"%s\"", i, at, text);
            free(parts.token);
        }
        free(whole.token);
    }
    ck_assert_uint_gt(cuts, 300);
    ck_assert(split_may_cut((const unsigned char *)"\xff z", 1)); /* behind a byte that is no character */
    ck_assert(!split_may_cut((const unsigned char *)"a\xe3\x80\x80 z", 4)); /* inside of white space */
}
END_TEST

START_TEST(bytes_that_are_no_characters_are_kept)
{
    /* a piece of others, as any character that is neither letter, number nor space */
    static const unsigned char text[] = "the\xff\xfe sea\xc3 \xed\xa0\x80tide\xf0\x9f";
    char back[64];
    size_t bytes;
    struct kc_token_list list = encoded(text, sizeof text - 1), plain = encoded("the", 3);
    ck_assert_int_eq(kc_tokenizer_decode(gpt2, list.token, list.count, back, sizeof back, &bytes), 0);
    ck_assert_uint_eq(bytes, sizeof text - 1);
    ck_assert_mem_eq(back, text, bytes);
    ck_assert_int_eq(list.token[0], plain.token[0]);
    free(list.token);
    free(plain.token);
}
END_TEST

START_TEST(a_long_word_takes_no_square_of_time)
{
    /* A million letters without a space; comparing every pair at every merge would be 10^12. The ids of a run of n
     * are those of transformers for 300, and more of the longest ones: here only that all comes back. */
    const size_t n = 1000000;
    char *text = malloc(n), *back = malloc(n);
    size_t bytes;
    for (size_t i = 0; i < n; i++)
        text[i] = "thetide"[i % 7];
    struct kc_token_list list = encoded(text, n);
    ck_assert_int_eq(kc_tokenizer_decode(gpt2, list.token, list.count, back, n, &bytes), 0);
    ck_assert_uint_eq(bytes, n);
    ck_assert(memcmp(text, back, n) == 0);
    ck_assert_uint_lt(list.count, n);
    free(list.token);
    free(back);
    free(text);
}
END_TEST

/* ---- files that are no tokenizer ---- */

static void refused(const char *vocab, const char *merges, int code, const char *says)
{
    struct kc_tokenizer *t = NULL;
    ck_assert_int_eq(kc_tokenizer_open("gpt2", vocab, merges, &t, &e), code);
    ck_assert_ptr_null(t);
    ck_assert_msg(strstr(e.text, says) != NULL, "%s", e.text);
    ck_assert_msg(strncmp(e.text, "/tmp/", 5) == 0 && !strchr(e.text, '\n'), "%s", e.text);
}

/* The golden vocabulary, changed. */
static const char *vocab_with(const char *drop, const char *add, json_int_t id)
{
    json_t *v = json_load_file(VOCAB, 0, NULL);
    if (drop)
        json_object_del(v, drop);
    if (add)
        json_object_set_new(v, add, json_integer(id));
    ck_assert_int_eq(json_dump_file(v, data_path("v.json"), JSON_COMPACT), 0);
    json_decref(v);
    return data_path("v.json");
}

static const char *merges_of(const char *text)
{
    data_put(data_path("m.txt"), text, strlen(text));
    return data_path("m.txt");
}

START_TEST(files_that_are_no_tokenizer_are_refused_by_name)
{
    refused(data_path("none.json"), MERGES, -ENOENT, "none.json: No such file");
    refused(vocab_with(NULL, NULL, 0), data_path("none.txt"), -ENOENT, "none.txt: No such file");
    data_put(data_path("v.json"), "{\"a\":1,", 7);
    refused(data_path("v.json"), MERGES, -EINVAL, "v.json: line 1, column");
    data_put(data_path("v.json"), "[1]", 3);
    refused(data_path("v.json"), MERGES, -EINVAL, "is no object of tokens and ids");
    data_put(data_path("v.json"), "{}", 2);
    refused(data_path("v.json"), MERGES, -EINVAL, "has no tokens");
    refused(vocab_with(NULL, "zzz", -1), MERGES, -EINVAL,
            "the id of token \"zzz\" is no whole number from 0 to 16777215");
    refused(vocab_with(NULL, "zzz", 7), MERGES, -EINVAL, "two tokens have the id 7, one of them is \"zzz\"");
    refused(vocab_with("a", NULL, 0), MERGES, -EINVAL, "has no token for the byte 0x61");
    refused(vocab_with("\u0120", NULL, 0), MERGES, -EINVAL, "has no token for the byte 0x20");
    refused(vocab_with("<|endoftext|>", NULL, 0), MERGES, -EINVAL, "has no token <|endoftext|>");
    const char *v = vocab_with(NULL, NULL, 0);
    refused(v, merges_of("#version: 0.2\nt h\nth zz\n"), -EINVAL,
            "m.txt: line 2: the vocabulary has no token \"th\"");
    refused(v, merges_of("h e\nzz he\n"), -EINVAL, "m.txt: line 2: the vocabulary has no token \"zz\"");
    refused(v, merges_of("h e\r\nhe\r\n"), -EINVAL,
            "m.txt: line 2: \"he\" is no pair of tokens with one space between");
    refused(v, merges_of("h e x\n"), -EINVAL, "m.txt: line 1: \"h e x\" is no pair");
    refused(v, merges_of("h e\nh e\n"), -EINVAL, "m.txt: line 2: \"h\" and \"e\" were merged before");
}
END_TEST

START_TEST(a_token_that_was_added_by_hand_stands_for_itself)
{
    struct kc_tokenizer *t = NULL;
    int32_t id = 700, hole = 650;
    char back[32];
    size_t bytes;
    ck_assert_msg(kc_tokenizer_open("gpt2", vocab_with(NULL, "[a b]", 700), MERGES, &t, &e) == 0, "%s", e.text);
    ck_assert_uint_eq(kc_tokenizer_vocab(t), 701);
    ck_assert_int_eq(kc_tokenizer_decode(t, &id, 1, back, sizeof back, &bytes), 0);
    ck_assert(bytes == 5 && memcmp(back, "[a b]", 5) == 0);
    ck_assert_int_eq(kc_tokenizer_decode(t, &hole, 1, back, sizeof back, &bytes), -EINVAL);
    kc_tokenizer_close(t);
}
END_TEST

/* ---- preparing ---- */

static int prepare(const char *const *files, size_t count, double share, unsigned threads, struct kc_prepared *p)
{
    struct kc_prepare_request q = {.files = files,
                                   .count = count,
                                   .tokenizer = "gpt2",
                                   .vocab = VOCAB,
                                   .merges = MERGES,
                                   .validation = share,
                                   .threads = threads,
                                   .out = data_path("out")};
    return kc_data_prepare(&q, p, &e);
}

/* Several megabytes of the golden texts, in an order that does not repeat soon. */
static size_t long_text(char *text, size_t room)
{
    size_t at = 0, bytes;
    for (uint64_t n = 1; at + 700 < room; n = n * 6364136223846793005u + 1442695040888963407u) {
        const char *one = text_of((size_t)(n >> 33) % json_array_size(cases), &bytes);
        if (memmem(one, bytes, "<|endoftext|>", 13))
            continue;
        memcpy(text + at, one, bytes);
        at += bytes;
        text[at++] = ' ';
    }
    return at;
}

START_TEST(the_same_files_for_any_number_of_threads_and_the_same_as_of_the_whole_text)
{
    const size_t room = 3u << 20;
    char *text = malloc(room);
    size_t bytes = long_text(text, room), have[2], count;
    const char *files[2] = {data_path("a.txt"), data_path("b.txt")};
    data_put(files[0], text, bytes - 1000);
    data_put(files[1], text + bytes - 1000, 1000);
    struct kc_prepared p;
    struct kc_token_list want = {0};
    const int32_t end = 0;
    kc_token_list_add(&want, &end, 1);
    ck_assert_int_eq(kc_encode(encoder, text, bytes - 1000, &want), 0);
    kc_token_list_add(&want, &end, 1);
    ck_assert_int_eq(kc_encode(encoder, text + bytes - 1000, 1000, &want), 0);
    for (unsigned threads = 1; threads <= 4; threads += threads == 1 ? 1 : 2) {
        ck_assert_msg(prepare(files, 2, 0.1, threads, &p) == 0, "%s", e.text);
        int32_t *train = data_get_elements(p.train, 2, &have[0]),
                *validation = data_get_elements(p.validation, 2, &have[1]);
        count = have[0] + have[1];
        ck_assert_uint_eq(count, want.count);
        ck_assert_uint_eq(p.train_tokens, have[0]);
        ck_assert_uint_eq(p.validation_tokens, have[1]);
        ck_assert(memcmp(train, want.token, have[0] * 4) == 0);
        ck_assert(memcmp(validation, want.token + have[0], have[1] * 4) == 0);
        ck_assert(have[1] > count / 20 && have[1] < count / 5);
        ck_assert_int_eq(p.end_of_text, 0);
        ck_assert_str_eq(p.train_mask, "");
        free(train);
        free(validation);
    }
    ck_assert_int_eq(access(data_path("out/train.mask"), F_OK), -1);
    free(want.token);
    free(text);
}
END_TEST

START_TEST(a_word_longer_than_all_that_is_read_at_once_is_one_word)
{
    const size_t n = (1u << 20) + 4321;
    char *text = malloc(n);
    memset(text, 'a', n);
    const char *file = data_path("a.txt");
    struct kc_prepared p;
    size_t have;
    data_put(file, text, n);
    struct kc_token_list want = encoded(text, n);
    ck_assert_msg(prepare(&file, 1, 0, 1, &p) == 0, "%s", e.text);
    int32_t *got = data_get_elements(p.train, 2, &have);
    ck_assert_uint_eq(have, want.count + 1);
    ck_assert(memcmp(got + 1, want.token, want.count * 4) == 0);
    free(got);
    /* and cannot be split */
    ck_assert_int_eq(prepare(&file, 1, 0.1, 1, &p), -EINVAL);
    ck_assert_msg(strstr(e.text, "the text cannot be cut behind byte"), "%s", e.text);
    free(want.token);
    free(text);
}
END_TEST

START_TEST(a_vocabulary_beyond_16_bits_is_written_in_32)
{
    const char *file = data_path("a.txt");
    struct kc_prepared p;
    size_t have;
    data_put(file, "<|endoftext|>the sea", 20);
    struct kc_prepare_request q = {.files = &file,
                                   .count = 1,
                                   .tokenizer = "gpt2",
                                   .vocab = vocab_with("<|endoftext|>", NULL, 0),
                                   .merges = MERGES,
                                   .threads = 1,
                                   .out = data_path("out")};
    json_t *v = json_load_file(data_path("v.json"), 0, NULL);
    json_object_set_new(v, "<|endoftext|>", json_integer(65536));
    json_dump_file(v, data_path("v.json"), 0);
    json_decref(v);
    ck_assert_msg(kc_data_prepare(&q, &p, &e) == 0, "%s", e.text);
    int32_t *got = data_get_elements(p.train, 4, &have), header[3];
    struct kc_token_list want = encoded("the sea", 7);
    ck_assert_uint_eq(have, 1 + want.count); /* the text has its own first token */
    ck_assert_int_eq(got[0], 65536);
    ck_assert(memcmp(got + 1, want.token, want.count * 4) == 0);
    char *raw;
    size_t raw_bytes;
    ck_assert_int_eq(kc_file_read(p.train, 1 << 20, &raw, &raw_bytes), 0);
    memcpy(header, raw, sizeof header);
    ck_assert(header[0] == 20240801 && header[1] == 7 && header[2] == (int32_t)have);
    free(raw);
    free(want.token);
    free(got);
}
END_TEST

START_TEST(prompts_of_json_lines_are_masked)
{
    static const char lines[] = "{\"text\":\"the tide\"}\n"
                                "\n"
                                "{\"id\":7,\"prompt\":\"the sea? \",\"completion\":\"it\\u0027s \\u6f6e\\n\"}\n"
                                "{\"prompt\":\"\",\"completion\":\"gives\"}";
    const char *files[2] = {data_path("a.jsonl"), data_path("b.txt")};
    struct kc_token_list want = {0}, mask = {0};
    const int32_t end = 0, yes = 1, no = 0;
    static const struct {
        const char *text;
        bool begins, counts;
    } part[] = {{"the tide", true, true}, {"the sea? ", true, false}, {"it's \u6f6e\n", false, true},
                {"", true, false},        {"gives", false, true},     {"plain text", true, true}};
    for (size_t i = 0; i < sizeof part / sizeof *part; i++) {
        if (part[i].begins)
            kc_token_list_add(&want, &end, 1),
                kc_token_list_add(&mask, &yes, 1); /* the end of the one before is learned */
        ck_assert_int_eq(kc_encode(encoder, part[i].text, strlen(part[i].text), &want), 0);
        while (mask.count < want.count)
            kc_token_list_add(&mask, part[i].counts ? &yes : &no, 1);
    }
    data_put(files[0], lines, sizeof lines - 1);
    data_put(files[1], "plain text", 10);
    struct kc_prepared p;
    for (unsigned threads = 1; threads < 3; threads++) {
        size_t have, masked;
        ck_assert_msg(prepare(files, 2, 0, threads, &p) == 0, "%s", e.text);
        int32_t *got = data_get_elements(p.train, 2, &have), *bits = data_get_elements(p.train_mask, 1, &masked);
        ck_assert_uint_eq(have, want.count);
        ck_assert_uint_eq(masked, want.count);
        ck_assert(memcmp(got, want.token, have * 4) == 0);
        ck_assert(memcmp(bits, mask.token, have * 4) == 0);
        struct kc_token_list prompt = encoded("the sea? ", 9);
        ck_assert_uint_eq(p.prompt_tokens, prompt.count);
        ck_assert_str_eq(p.validation, "");
        free(prompt.token);
        free(got);
        free(bits);
    }
    /* text alone needs no mask, and the one that stood there goes with the tokens it was of */
    ck_assert_int_eq(prepare(files + 1, 1, 0, 1, &p), 0);
    ck_assert_int_eq(access(data_path("out/train.mask"), F_OK), -1);
    free(want.token);
    free(mask.token);
}
END_TEST

START_TEST(json_lines_are_split_between_lines)
{
    static char lines[400000];
    const char *file = data_path("a.jsonl");
    size_t n = 0, have, line = 0;
    for (; n < sizeof lines - 200; line++)
        n += (size_t)snprintf(lines + n, sizeof lines - n, "{\"prompt\":\"%zu\",\"completion\":\" sea\"}\n", line);
    data_put(file, lines, n);
    struct kc_prepared p;
    ck_assert_msg(prepare(&file, 1, 0.25, 2, &p) == 0, "%s", e.text);
    int32_t *got = data_get_elements(p.validation, 2, &have);
    ck_assert_int_eq(got[0], 0); /* a document begins */
    size_t documents = 0;
    for (size_t i = 0; i < have; i++)
        documents += got[i] == 0;
    ck_assert(documents > line / 5 && documents < line / 3);
    free(got);
    got = data_get_elements(p.train, 2, &have);
    for (size_t i = 0; i < have; i++)
        documents += got[i] == 0;
    ck_assert_uint_eq(documents, line);
    free(got);
    ck_assert_int_eq(access(p.validation_mask, F_OK), 0);
}
END_TEST

START_TEST(a_line_that_is_no_document_is_named)
{
    static const struct {
        const char *lines, *says;
    } bad[] = {
        {"{\"text\":\"a\"}\n{\"text\":\n", "a.jsonl: line 2: column"},
        {"{\"text\":\"a\"}\n\n{\"txt\":\"b\"}\n",
         "a.jsonl: line 3: a document is {\"text\":…} or {\"prompt\":…,\"completion\":…}"},
        {"{\"text\":1}\n", "a.jsonl: line 1: a document is"},
        {"{\"text\":\"a\",\"prompt\":\"b\",\"completion\":\"c\"}\n", "line 1: a document is"},
        {"{\"prompt\":\"b\"}\n", "line 1: a document is"},
        {"[1]\n", "line 1: a document is"},
        {"{\"text\":\"\xff\"}\n", "line 1: column"},
    };
    const char *file = data_path("a.jsonl");
    struct kc_prepared p;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        data_put(file, bad[i].lines, strlen(bad[i].lines));
        ck_assert_int_eq(prepare(&file, 1, 0, 2, &p), -EINVAL);
        ck_assert_msg(strstr(e.text, bad[i].says), "%zu: %s", i, e.text);
        ck_assert_int_eq(access(data_path("out/train.bin"), F_OK), -1);
    }
    /* far behind the first stretch that a thread takes, the line is counted all the same */
    static char lines[1200000];
    size_t n = 0, line = 0;
    for (; n < sizeof lines - 100; line++)
        n += (size_t)snprintf(lines + n, sizeof lines - n, "{\"text\":\"line\"}\n");
    n += (size_t)snprintf(lines + n, sizeof lines - n, "{}\n");
    data_put(file, lines, n);
    char says[64];
    snprintf(says, sizeof says, "a.jsonl: line %zu: ", line + 1);
    ck_assert_int_eq(prepare(&file, 1, 0, 2, &p), -EINVAL);
    ck_assert_msg(strstr(e.text, says), "%s, not %s", e.text, says);
}
END_TEST

static int stop_at_half(void *self, uint64_t done, uint64_t bytes)
{
    uint64_t *last = self;
    ck_assert_uint_gt(done, *last);
    ck_assert_uint_le(done, bytes);
    *last = done;
    return done > bytes / 2;
}

START_TEST(who_is_told_of_progress_may_stop_it)
{
    const size_t room = 3u << 20;
    char *text = malloc(room);
    const char *file = data_path("a.txt");
    uint64_t last = 0;
    data_put(file, text, long_text(text, room));
    struct kc_prepared p;
    struct kc_prepare_request q = {.files = &file,
                                   .count = 1,
                                   .tokenizer = "gpt2",
                                   .vocab = VOCAB,
                                   .merges = MERGES,
                                   .threads = 1,
                                   .out = data_path("out"),
                                   .progress = stop_at_half,
                                   .self = &last};
    ck_assert_int_eq(kc_data_prepare(&q, &p, &e), -EINTR);
    ck_assert_uint_gt(last, 0);
    ck_assert_int_eq(rmdir(data_path("out")), 0); /* nothing is left in it */
    free(text);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("data bpe");
    TCase *t = tcase_create("data bpe");
    tcase_add_checked_fixture(t, set_up, tear_down);
    tcase_set_timeout(t, 60);
    tcase_add_test(t, every_text_has_the_ids_that_transformers_gives_it);
    tcase_add_test(t, every_text_is_cut_into_the_pieces_of_gpt2s_pattern);
    tcase_add_test(t, a_text_may_be_cut_where_it_says_so);
    tcase_add_test(t, bytes_that_are_no_characters_are_kept);
    tcase_add_test(t, a_long_word_takes_no_square_of_time);
    tcase_add_test(t, files_that_are_no_tokenizer_are_refused_by_name);
    tcase_add_test(t, a_token_that_was_added_by_hand_stands_for_itself);
    tcase_add_test(t, the_same_files_for_any_number_of_threads_and_the_same_as_of_the_whole_text);
    tcase_add_test(t, a_word_longer_than_all_that_is_read_at_once_is_one_word);
    tcase_add_test(t, a_vocabulary_beyond_16_bits_is_written_in_32);
    tcase_add_test(t, prompts_of_json_lines_are_masked);
    tcase_add_test(t, json_lines_are_split_between_lines);
    tcase_add_test(t, a_line_that_is_no_document_is_named);
    tcase_add_test(t, who_is_told_of_progress_may_stop_it);
    suite_add_tcase(s, t);
    return suite_run(s);
}
