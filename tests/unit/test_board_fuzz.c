/* test_board_fuzz.c - saved boards that are damaged in any way: whoever opens one says what it can, or why not, and nothing
 * crashes or hangs; run under the address checker. `test_board_fuzz long` (make fuzz) takes longer. */
#include "any.h"
#include "board_make.h"
#include "board_rig.h"
#include "console_home.h"
#include "suite.h"

#include "console/replay.h"
#include "console/screen/screen_impl.h"
#include "shm/board.h"
#include "shm/segment.h"
#include "supervisor/protocol.h"

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static bool longer;
static struct console_home home;
static char *fresh, *board; /* as made; as damaged */
static size_t bytes;
static char path[64];
static int fd;

static void set_up(void)
{
    console_home_make(&home);
    fd = memfd_create("board", MFD_CLOEXEC);
    ck_assert_int_ge(fd, 0);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
}

static void tear_down(void)
{
    close(fd);
    free(fresh);
    free(board);
    fresh = board = NULL;
    console_home_remove(&home);
}

static void any_set(struct board_set *s, uint32_t ranks)
{
    for (uint64_t n = any(3) ? 0 : any(4); n; n--) {
        const uint64_t r = any(ranks);
        s->bit[r / 64] |= UINT64_C(1) << r % 64;
    }
}

static void any_board(void)
{
    static const uint32_t sizes[] = {1, 2, 8, 16, 65};
    struct board_wish w = board_wish(sizes[any(sizeof sizes / sizeof *sizes)]);
    struct kc_error e = {""};
    w.seed = any(1000);
    w.step = any(300);
    w.state = (enum kc_job_state)any(KC_JOB_STATES);
    w.experts = any(2) ? 8 : 0;
    w.ops = (uint32_t)any(40);
    any_set(&w.hung, w.ranks);
    any_set(&w.failed, w.ranks);
    any_set(&w.absent, w.ranks);
    any_set(&w.torn_rank, w.ranks);
    w.torn = any(4) ? 0 : (uint32_t)any(1u << BOARD_TORNS);
    free(fresh);
    free(board);
    ck_assert_msg(board_make_memory(&w, (void **)&fresh, &bytes, &e) == 0, "%s", e.text);
    board = malloc(bytes);
    ck_assert_ptr_nonnull(board);
}

/* Where something lies, rather than in the empty rings. */
static size_t any_place(void)
{
    for (int i = 0; i < 200; i++) {
        const size_t at = any(bytes);
        if (fresh[at])
            return at;
    }
    return any(bytes);
}

/* Counts, indices, states, texts without end: what a reader could stumble over. */
static void damage(void)
{
    static const uint64_t odd[] = {0, 1, UINT64_MAX, INT64_MAX, UINT32_MAX, 64, 1024, 1025, UINT64_C(1) << 40};
    memcpy(board, fresh, bytes);
    for (uint64_t n = 1 + any(60); n; n--) {
        const size_t at = any_place();
        switch (any(5)) {
        case 0: board[at] ^= (char)(1 << any(8)); break;
        case 1: board[at] = (char)any(256); break;
        case 2: memcpy(&board[at & ~(size_t)7], &odd[any(sizeof odd / sizeof *odd)], 8); break;
        case 3: memset(&board[at], (int)any(256), any(bytes - at < 600 ? bytes - at : 600)); break;
        case 4: memcpy(&board[at & ~(size_t)7], &board[any_place() & ~(size_t)7], 8); break;
        }
    }
    struct kc_segment_head *h = (void *)board;
    if (any(10)) /* mostly a head that opens */
        memcpy(h, fresh, sizeof *h);
}

static void write_it(size_t size)
{
    ck_assert_int_eq(ftruncate(fd, 0), 0);
    ck_assert_int_eq(pwrite(fd, board, size, 0), (ssize_t)size);
}

/* Each verb answers with a line or an object, with a code that is one of ours, and not for long. */
static void ask(const char *const *words)
{
    struct console_answer a;
    console_run(&a, words);
    ck_assert_msg(a.code >= 0 && a.code < 128, "kc %s: %d", words[0], a.code);
    ck_assert_msg(a.out_bytes || a.err_bytes, "kc %s says nothing", words[0]);
    console_answer_free(&a);
}
#define ASK(...) ask((const char *const[]){__VA_ARGS__, NULL})

static void ask_all(void)
{
    switch (any(6)) {
    case 0: ASK("show", path, "--json"); break;
    case 1: ASK("show", path); break;
    case 2: ASK("ranks", path, "--json"); break;
    case 3: ASK("replay", path, "--json"); break;
    case 4: ASK("hang", path, "--json"); break;
    case 5: ASK("comm", path, "--json"); break;
    }
}

static void draw_all(void)
{
    static struct screen x;
    static const int sizes[][2] = {{1, 1}, {10, 40}, {24, 80}, {50, 200}};
    struct session s = {.verb = "kc", .out = stdout, .err = stderr};
    struct replay r;
    struct kc_error e = {""};
    ck_assert_int_eq(kc_home_find(NULL, NULL, &s.home, &e), 0);
    if (replay_open(&s.home, path, &r, &e)) {
        ck_assert_int_ne(e.text[0], 0);
        return;
    }
    look_begin(&x, &s, r.info.id, &r);
    for (int at = 0; at < VIEWS; at++) {
        const uint64_t n = any(4);
        struct canvas c;
        x.view.at = (enum view_id)at;
        look(&x);
        ck_assert_int_eq(canvas_new(&c, sizes[n][0], sizes[n][1], any(2) == 0), 0);
        view_draw(&x.view, &c);
        ck_assert_msg(c.overlaps == 0, "%d cells were written twice in view %s at %dx%d", c.overlaps, view_kinds[at].name, sizes[n][1],
                      sizes[n][0]);
        canvas_free(&c);
    }
    look_free(&x);
    replay_close(&r);
}

static void read_all(void)
{
    struct kc_reader *r = NULL;
    struct kc_error e = {""};
    if (kc_reader_open(path, &r, &e) == 0) {
        board_rig_read_all(r);
        kc_reader_free(r);
    } else {
        ck_assert_int_ne(e.text[0], 0);
    }
}

/* Several ways to damage one board are tried before the next is made. */
START_TEST(damaged_boards_break_nothing)
{
    any_seed = (uint64_t)_i + 1;
    for (int round = 0; round < (longer ? 20 : 2); round++) {
        any_board();
        for (int i = 0; i < (longer ? 30 : 4); i++) {
            damage();
            write_it(any(20) ? bytes : any(bytes));
            read_all();
            draw_all();
            ask_all();
        }
    }
}
END_TEST

int main(int argc, char **argv)
{
    longer = argc > 1 && strcmp(argv[1], "long") == 0;
    Suite *s = suite_create("board fuzz");
    TCase *t = tcase_create("boards");
    tcase_add_checked_fixture(t, set_up, tear_down);
    tcase_set_timeout(t, longer ? 3600 : 60);
    tcase_add_loop_test(t, damaged_boards_break_nothing, 0, longer ? 20 : 6);
    suite_add_tcase(s, t);
    return suite_run(s);
}
