/* The screen held, as text, and pressed on with the mouse. */
#include "screen_rig.h"
#include "suite.h"

#include "console/screen/plain.h"

#include "base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static struct job many[300];

static void crowd(void)
{
    for (int i = 0; i < 300; i++) {
        many[i] = rig_job[1];
        snprintf(many[i].id, sizeof many[i].id, "job-%d", 300 - i);
    }
    rig_model = (struct model){many, 300};
    rig_view.selected[0] = 0;
}

static char *plain(void)
{
    struct canvas c;
    ck_assert_int_eq(canvas_new(&c, 24, 80, false), 0);
    char *text = plain_view(&rig_view, &c);
    canvas_free(&c);
    ck_assert_ptr_nonnull(text);
    return text;
}

/* Copy mode has all rows, not only those that the screen has room for, and nothing that is no row; and it moves nothing. */
START_TEST(copy_mode_has_all_rows_and_nothing_around_them)
{
    crowd();
    free(rig_shot(24, 80, false));
    const size_t top = rig_view.list[VIEW_JOBS].top;
    char *text = plain();
    ck_assert_ptr_null(strstr(text, "node7"));
    ck_assert_ptr_null(strstr(text, "? help"));
    for (int i = 1; i <= 300; i++) {
        char id[32];
        snprintf(id, sizeof id, " job-%d ", i);
        ck_assert_msg(strstr(text, id) != NULL, "%s", id);
    }
    ck_assert_uint_eq(rig_view.list[VIEW_JOBS].top, top);
    free(text);
}
END_TEST

/* A key of each view asks for it, and none changes where one is. */
START_TEST(every_view_can_be_copied_and_written)
{
    for (int at = 0; at < VIEWS; at++) {
        rig_view.at = (enum view_id)at;
        free(rig_shot(24, 80, false));
        char *before = rig_shot(24, 80, false), *text = plain(), *after = rig_shot(24, 80, false);
        ck_assert_str_eq(before, after);
        ck_assert_uint_gt(strlen(text), 0);
        ck_assert(text[strlen(text) - 1] == '\n' && (strlen(text) == 1 || text[strlen(text) - 2] != '\n'));
        ck_assert_int_eq(view_key(&rig_view, 'c', true), REQUEST_COPY);
        ck_assert_int_eq(view_key(&rig_view, 'W', true), REQUEST_WRITE);
        ck_assert_int_eq(rig_view.at, at);
        free(before);
        free(after);
        free(text);
    }
}
END_TEST

START_TEST(a_screen_is_written_to_a_new_file_that_is_the_users)
{
    char folder[] = "/tmp/kc-plain-XXXXXX", name[256], here[4096], read_back[32] = "";
    struct stat st;
    ck_assert_ptr_nonnull(mkdtemp(folder));
    ck_assert_ptr_nonnull(getcwd(here, sizeof here));
    ck_assert_int_eq(chdir(folder), 0);
    ck_assert_int_eq(plain_save("jobs", "a screen\n", name, sizeof name), 0);
    ck_assert_int_eq(strncmp(name, "kc-jobs-2", 9), 0);
    ck_assert_int_eq(stat(name, &st), 0);
    ck_assert_int_eq(st.st_mode & 0777, 0600);
    int fd = open(name, O_RDONLY);
    ck_assert_int_eq(read(fd, read_back, sizeof read_back - 1), 9);
    close(fd);
    ck_assert_str_eq(read_back, "a screen\n");
    unlink(name);
    ck_assert_int_eq(plain_save("no/such/folder", "x", name, sizeof name), -ENOENT);
    ck_assert_int_eq(chdir(here), 0);
    rmdir(folder);
}
END_TEST

/* z: the title says so and for how long, at every width; again z, and it goes on. */
START_TEST(a_frozen_screen_says_for_how_long)
{
    static const int widths[] = {40, 80, 200};
    rig_view.now = 100 * KC_SECOND;
    rig_view.clock = 112 * KC_SECOND + KC_SECOND / 2;
    rig_press("z");
    for (size_t i = 0; i < 3; i++) {
        char *shot = rig_shot(24, widths[i], false);
        ck_assert_msg(memmem(shot, strcspn(shot, "\n"), "FROZEN 12 s", 11) != NULL, "%s", shot);
        free(shot);
    }
    rig_view.clock = 400 * KC_SECOND;
    char *shot = rig_shot(24, 80, false);
    ck_assert_ptr_nonnull(strstr(shot, "FROZEN 5 min"));
    free(shot);
    rig_press("z");
    shot = rig_shot(24, 80, false);
    ck_assert_ptr_null(strstr(shot, "FROZEN"));
    free(shot);
}
END_TEST

/* A press chooses the row that is drawn there, wherever the list is scrolled to; beside rows it chooses nothing. */
START_TEST(a_press_chooses_the_row_under_it)
{
    crowd();
    free(rig_shot(24, 80, false));
    view_click(&rig_view, 3 + 4, 10); /* title, trouble, heads; then the fifth */
    ck_assert_str_eq(rig_view.selected, "job-296");
    rig_press("G");
    char *shot = rig_shot(24, 80, false);
    char row[96] = "";
    const char *line = shot;
    for (int i = 0; i < 8; i++)
        line = strchr(line, '\n') + 1;
    snprintf(row, sizeof row, "%.*s", (int)strcspn(line + 2, " "), line + 2);
    free(shot);
    view_click(&rig_view, 8, 10);
    ck_assert_str_eq(rig_view.selected, row);
    view_click(&rig_view, 0, 10);
    view_click(&rig_view, 23, 10);
    view_click(&rig_view, 2, 10); /* the heads */
    view_click(&rig_view, -1, 500);
    ck_assert_str_eq(rig_view.selected, row);
    rig_view.model = NULL;
    view_click(&rig_view, 5, 5);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("plain");
    TCase *c = tcase_create("plain");
    tcase_add_checked_fixture(c, rig_screen_setup, rig_screen_teardown);
    tcase_add_test(c, copy_mode_has_all_rows_and_nothing_around_them);
    tcase_add_test(c, every_view_can_be_copied_and_written);
    tcase_add_test(c, a_screen_is_written_to_a_new_file_that_is_the_users);
    tcase_add_test(c, a_frozen_screen_says_for_how_long);
    tcase_add_test(c, a_press_chooses_the_row_under_it);
    suite_add_tcase(s, c);
    return suite_run(s);
}
