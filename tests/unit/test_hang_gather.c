/* test_hang_gather.c - from a board to evidence to what is printed: real boards in memory, ranks as probes of this process. */
#include "console/hang/dump.h"
#include "console/hang/gather.h"
#include "console/hang/looks.h"
#include "console/hang/report.h"

#include "base/clock.h"
#include "base/file.h"
#include "console_home.h"
#include "shm/board.h"
#include "shm/probe.h"
#include "suite.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define RANKS 4
#define GROUP 7

static struct console_home home;
static struct kc_probe *probe[RANKS];
static struct kc_reader *board;
static struct kc_evidence *first, *second;
static struct kc_diagnosis *diagnosis;

static void setup(void)
{
    struct kc_error e;
    const uint32_t members[RANKS] = {0, 1, 2, 3};
    console_home_make(&home);
    ck_assert_int_eq(kc_probe_private(RANKS, probe, &e), 0);
    ck_assert_int_eq(kc_reader_of_probe(probe[0], &board, &e), 0);
    ck_assert_int_eq(kc_probe_group(probe[0], GROUP, 1, "data.0", members, RANKS), 0);
    for (uint32_t r = 0; r < RANKS; r++) {
        kc_probe_state(probe[r], KC_RANK_RUNNING);
        kc_probe_step(probe[r], 5);
    }
}

static void teardown(void)
{
    free(diagnosis);
    kc_evidence_free(first);
    kc_evidence_free(second);
    kc_reader_free(board);
    for (uint32_t r = 0; r < RANKS; r++)
        kc_probe_free(probe[r]);
    console_home_remove(&home);
    diagnosis = NULL;
    first = second = NULL;
}

static uint64_t begin(uint32_t rank, uint64_t sequence, uint64_t count)
{
    struct kc_op_seen op = {.group = GROUP, .generation = 1, .sequence = sequence, .count = count, .peer = -1, .collective = -1,
                            .started = 1, .primitive = KC_ALL_REDUCE};
    return kc_probe_op_begin(probe[rank], &op);
}

static void gather(struct kc_evidence **out)
{
    struct kc_error e = {""};
    kc_evidence_free(*out);
    *out = NULL;
    ck_assert_msg(kc_gather_board(board, out, &e) == 0, "%s", e.text);
}

static void diagnose(const struct kc_evidence *e)
{
    free(diagnosis);
    diagnosis = NULL;
    ck_assert_int_eq(kc_diagnose(e, &diagnosis), 0);
}

/* Three of four stand; everything that a verdict needs comes from the board. */
START_TEST(what_the_board_says_becomes_evidence)
{
    for (uint32_t r = 0; r < 3; r++) {
        kc_probe_op_done(probe[r], begin(r, 1, 64), 0);
        begin(r, 2, 64);
        kc_probe_wait_begin(probe[r], KC_WAIT_ALL_REDUCE, GROUP, 2);
    }
    kc_probe_op_done(probe[3], begin(3, 1, 64), 0);
    kc_probe_phase(probe[3], KC_PHASE_FORWARD);
    gather(&first);
    ck_assert_uint_eq(first->ranks, RANKS);
    ck_assert_uint_eq(first->groups, 1);
    ck_assert_str_eq(kc_evidence_group(first, GROUP)->name, "data.0");
    ck_assert_uint_eq(first->rank[0].ops, 2);
    ck_assert(!first->rank[0].wrapped);
    gather(&second);
    second->now += 60 * KC_SECOND; /* a minute later, nothing has moved */
    kc_gather_compare(first, second);
    for (uint32_t r = 0; r < RANKS; r++)
        ck_assert(!second->rank[r].moved);
    diagnose(second);
    ck_assert_uint_eq(diagnosis->count, 1);
    ck_assert_int_eq(diagnosis->verdict[0].word, KC_HANG_MISSING);
    ck_assert_uint_eq(diagnosis->verdict[0].ranks, KC_BIT(3));
    ck_assert(diagnosis->hung);
    ck_assert_str_eq(diagnosis->verdict[0].group_name, "data.0");
}
END_TEST

/* Each thing that a rank does is seen as movement, of that rank alone. */
START_TEST(whatever_a_rank_does_moves_it)
{
    uint64_t op = begin(1, 1, 64);
    int wait = kc_probe_wait_begin(probe[1], KC_WAIT_ALL_REDUCE, GROUP, 1);
    for (int what = 0; what < 7; what++) {
        gather(&first);
        switch (what) {
        case 0: kc_probe_step(probe[1], 6); break;
        case 1: kc_probe_phase(probe[1], KC_PHASE_BACKWARD); break;
        case 2: kc_probe_wait_end(probe[1], wait); break;
        case 3: kc_probe_op_done(probe[1], op, 0); break;
        case 4: op = begin(1, 2, 64); break;
        case 5: kc_probe_trace(probe[1], 0, &(struct kc_trace_seen){.begin = 5, .end = 9, .step = 6}); break;
        case 6: kc_probe_trace(probe[1], 1, &(struct kc_trace_seen){.begin = 5, .end = 9, .step = 6}); break;
        default: break;
        }
        gather(&second);
        kc_gather_compare(first, second);
        for (uint32_t r = 0; r < RANKS; r++)
            ck_assert_msg(second->rank[r].moved == (r == 1), "%d: rank %u", what, r);
    }
    ck_assert_uint_eq(second->rank[1].trace_slowest, 4);
}
END_TEST

/* The ring keeps the newest KC_OPS: what wrapped is known to have wrapped. */
START_TEST(a_ring_that_wrapped_says_so)
{
    for (uint64_t i = 0; i < KC_OPS; i++)
        kc_probe_op_done(probe[2], begin(2, i, 64), 0);
    gather(&first);
    ck_assert(!first->rank[2].wrapped);
    kc_probe_op_done(probe[2], begin(2, KC_OPS, 64), 0);
    gather(&first);
    ck_assert(first->rank[2].wrapped);
    ck_assert_uint_eq(first->rank[2].ops, KC_OPS);
}
END_TEST

/* A writer that died in an entry of its ring, as a file shows it. */
START_TEST(a_saved_board_with_a_torn_entry_is_read)
{
    char path[4200], *bytes = NULL;
    size_t size = 0;
    struct kc_error e = {""};
    struct kc_reader *saved = NULL;
    for (uint32_t r = 0; r < RANKS; r++)
        begin(r, 1, 64);
    snprintf(path, sizeof path, "%s/board", home.path);
    ck_assert_int_eq(kc_reader_save(board, path, &e), 0);
    ck_assert_int_eq(kc_file_read(path, 64u << 20, &bytes, &size), 0);
    struct kc_job_segment *b = (void *)bytes;
    b->rank[1].ops[0].seq = 1;
    ck_assert_int_eq(kc_file_replace(path, bytes, size), 0);
    free(bytes);
    ck_assert_int_eq(kc_reader_open(path, &saved, &e), 0);
    ck_assert_int_eq(kc_gather_board(saved, &first, &e), 0);
    kc_reader_free(saved);
    ck_assert(first->saved);
    ck_assert_uint_eq(first->rank[1].ops_torn, 1);
    ck_assert_uint_eq(first->rank[1].ops, 0);
    ck_assert(!first->rank[1].wrapped);
}
END_TEST

/* Our own process as that of every rank: it can be looked at, and is not gone. */
START_TEST(a_board_that_lives_is_looked_at_twice)
{
    struct kc_error e = {""};
    ck_assert_int_eq(kc_gather_live(board, 20 * KC_MILLISECOND, &second, &e), 0);
    ck_assert_uint_ge(second->between, 20 * KC_MILLISECOND);
    for (uint32_t r = 0; r < RANKS; r++) {
        ck_assert(second->rank[r].first.known && second->rank[r].second.known && !second->rank[r].gone);
        ck_assert_uint_eq(second->rank[r].second.pid, (uint32_t)getpid());
    }
}
END_TEST

/* ---- what is printed and kept ------------------------------------------------------------------------------------------ */

static void fill_second(void)
{
    struct kc_error e = {""};
    for (uint32_t r = 0; r < RANKS; r++)
        begin(r, 2, r == 1 ? 65 : 64);
    ck_assert_int_eq(kc_gather_live(board, KC_MILLISECOND, &second, &e), 0);
    second->rank[3].second.thread[0] = (struct kc_look_thread){.tid = 9, .state = 'S', .name = "kc-comm", .cpu = 12345678901234,
                                                               .wait = "pipe_read", .kind = KC_CALL_FILE, .call = 0, .fd = 5,
                                                               .argument = {5, UINT64_MAX, 3}, .stack = 0x7ffe12345678u, .pc = 1,
                                                               .target = "fifo /tmp/\xff x"};
    diagnose(second);
}

/* F19. Every key of the answer, with its unit in its name. */
START_TEST(f19_the_answer_has_every_key)
{
    static const char *const top[] = {"id", "hung", "text", "ranks", "incarnation", "saved", "between_seconds", "verdicts"};
    static const char *const keys[] = {"word", "hung", "ranks", "layer", "owner", "operation", "group", "sequence", "since_seconds",
                                       "victims", "text", "fact", "evidence", "next"};
    json_t *o = json_object();
    fill_second();
    kc_report_json(second, diagnosis, o);
    for (size_t i = 0; i < sizeof top / sizeof *top; i++)
        ck_assert_msg(json_object_get(o, top[i]) != NULL, "%s", top[i]);
    ck_assert_uint_eq(json_object_size(o), sizeof top / sizeof *top);
    json_t *v = json_array_get(json_object_get(o, "verdicts"), 0);
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        ck_assert_msg(json_object_get(v, keys[i]) != NULL, "%s", keys[i]);
    ck_assert_uint_eq(json_object_size(v), sizeof keys / sizeof *keys);
    ck_assert_str_eq(kc_json_text(v, "word", ""), "mismatched-count");
    ck_assert_str_eq(kc_json_text(v, "layer", ""), "schedule");
    ck_assert_str_eq(kc_json_text(v, "owner", ""), "execution");
    ck_assert_str_eq(kc_json_text(v, "group", ""), "data.0");
    ck_assert_int_eq(kc_json_integer(v, "victims", -1), 3);
    ck_assert_int_eq(json_integer_value(json_array_get(json_object_get(v, "ranks"), 0)), 1);
    ck_assert_uint_gt(json_array_size(json_object_get(v, "evidence")), 0);
    json_decref(o);
}
END_TEST

/* Looks come back as they were written, whatever bytes a target has; what is of another form does no harm. */
START_TEST(looks_come_back_from_json)
{
    struct kc_error e = {""};
    fill_second();
    second->rank[2].gone = second->rank[1].moved = true;
    json_t *o = kc_looks_json(second);
    char *text = json_dumps(o, JSON_COMPACT);
    json_decref(o);
    o = json_loads(text, 0, NULL);
    free(text);
    gather(&first);
    ck_assert_int_eq(kc_looks_put(o, first, &e), 0);
    const struct kc_look_thread *a = &second->rank[3].second.thread[0], *b = &first->rank[3].second.thread[0];
    ck_assert(a->tid == b->tid && a->state == b->state && a->cpu == b->cpu && a->kind == b->kind && a->call == b->call &&
              a->fd == b->fd && a->stack == b->stack && a->pc == b->pc);
    ck_assert_mem_eq(a->argument, b->argument, sizeof a->argument);
    ck_assert_str_eq(b->name, "kc-comm");
    ck_assert_str_eq(b->wait, "pipe_read");
    ck_assert_str_eq(b->target, "fifo /tmp/\\xff x");
    ck_assert(first->rank[2].gone && first->rank[1].moved && !first->rank[0].moved);
    ck_assert_uint_eq(first->between, second->between);
    json_array_append_new(json_object_get(o, "ranks"), json_pack("{s:i}", "rank", 99));
    json_array_append_new(json_object_get(o, "ranks"), json_string("x"));
    json_object_set_new(json_array_get(json_object_get(o, "ranks"), 0), "first", json_integer(3));
    ck_assert_int_eq(kc_looks_put(o, first, &e), 0);
    ck_assert_uint_eq(first->rank[0].first.known, 0);
    json_object_set_new(o, "schema", json_string("kc.looks/9"));
    ck_assert_int_eq(kc_looks_put(o, first, &e), -EINVAL);
    json_decref(o);
}
END_TEST

/* Nothing that a rank could name reaches a terminal as it is, also from the file that is printed there. */
static void expect_clean(const char *folder)
{
    char file[4300], *text = NULL;
    size_t bytes = 0;
    snprintf(file, sizeof file, "%s/verdict.txt", folder);
    ck_assert_int_eq(kc_file_read(file, 1u << 20, &text, &bytes), 0);
    ck_assert_ptr_null(memchr(text, 27, bytes));
    ck_assert_msg(strstr(text, "\\x1b[31m") != NULL, "%s", text);
    free(text);
}

/* A folder that was kept gives the same verdicts again; it is whole or not there. */
START_TEST(a_folder_that_was_kept_tells_the_same)
{
    char path[4200], again[512];
    struct kc_error e = {""};
    struct stat st;
    fill_second();
    diagnosis->verdict[0].rows = 1;
    snprintf(diagnosis->verdict[0].row[0], sizeof diagnosis->verdict[0].row[0], "thread 9, \x1b[31mred");
    json_t *answer = json_pack("{s:s}", "schema", "kc.hang/1");
    const struct kc_dump d = {.evidence = second, .diagnosis = diagnosis, .answer = answer, .board = board};
    snprintf(path, sizeof path, "%s/a/b/post", home.path);
    ck_assert_msg(kc_dump_write(path, &d, &e) == 0, "%s", e.text);
    ck_assert(stat(path, &st) == 0 && (st.st_mode & 0777) == 0700);
    ck_assert_int_eq(kc_dump_write(path, &d, &e), -EEXIST);
    expect_clean(path);
    json_decref(answer);
    snprintf(again, sizeof again, "%s", diagnosis->text);
    ck_assert_msg(kc_dump_read(path, &first, &e) == 0, "%s", e.text);
    diagnose(first);
    ck_assert_uint_eq(diagnosis->count, 1);
    ck_assert_str_eq(diagnosis->text, again);
    snprintf(path, sizeof path, "%s/a/b/nothing", home.path);
    kc_evidence_free(first);
    first = NULL;
    ck_assert_int_eq(kc_dump_read(path, &first, &e), -ENOENT);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("hang_gather");
    TCase *t = tcase_create("hang_gather");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, what_the_board_says_becomes_evidence);
    tcase_add_test(t, whatever_a_rank_does_moves_it);
    tcase_add_test(t, a_ring_that_wrapped_says_so);
    tcase_add_test(t, a_saved_board_with_a_torn_entry_is_read);
    tcase_add_test(t, a_board_that_lives_is_looked_at_twice);
    tcase_add_test(t, f19_the_answer_has_every_key);
    tcase_add_test(t, looks_come_back_from_json);
    tcase_add_test(t, a_folder_that_was_kept_tells_the_same);
    suite_add_tcase(s, t);
    return suite_run(s);
}
