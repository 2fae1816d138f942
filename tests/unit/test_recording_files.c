/* test_recording_files.c - a recording stays within its room, survives any kill and any damage, and nothing in it leads a
 * reader out of bounds (run under the address checker). */
#include "base/file.h"
#include "shm/board.h"
#include "shm/segment.h"
#include "shm/tape.h"
#include "tests/unit/board_rig.h"
#include "tests/unit/recording_rig.h"
#include "tests/unit/suite.h"

#include <check.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/* ---- room ---- */

static void scramble_ops(uint32_t rank)
{
    for (int n = 0; n < KC_OPS; n++)
        kc_probe_op_begin(rig.probe[rank], &(struct kc_op_seen){.group = (uint32_t)recording_rig_random(), .sequence = recording_rig_random(),
                                                            .count = recording_rig_random(), .bytes = recording_rig_random(),
                                                            .generation = (uint32_t)recording_rig_random()});
}

START_TEST(the_room_is_kept_and_the_oldest_goes_first)
{
    struct kc_recording_info info;
    uint64_t most = 0;
    recording_rig_begin(8);
    for (int i = 0; i < 330; i++) {
        for (uint32_t rank = 0; rank < 8; rank++)
            scramble_ops(rank);
        ck_assert_msg(recording_rig_look(1, 1) == 0, "%s", rig.error.text);
        const uint64_t bytes = recording_rig_bytes(rig.folder, "s");
        most = bytes > most ? bytes : most;
        ck_assert_uint_le(bytes, KC_RECORDING_MOST);
    }
    ck_assert_uint_gt(most, KC_RECORDING_MOST / 10 * 8); /* and it is used */
    struct kc_recording *r = recording_rig_open(rig.folder);
    kc_recording_info(r, &info);
    ck_assert_uint_gt(info.first_wall, WALL + SECOND);
    ck_assert_uint_eq(info.last_wall, WALL + 330 * SECOND);
    ck_assert_uint_eq(info.damaged + info.torn, 0);
    kc_reader_free(recording_rig_board_at(r, 0));
    kc_reader_free(recording_rig_board_at(r, info.moments - 1));
    kc_recording_free(r);
    recording_rig_end();
}
END_TEST

/* A text that does not press. */
static const char *noise(void)
{
    static char text[200];
    for (size_t i = 0; i + 1 < sizeof text; i++)
        text[i] = (char)(' ' + recording_rig_random() % 90);
    return text;
}

/* Ten minutes of much, then seconds are gone and minutes are there. */
START_TEST(minutes_reach_back_farther_than_seconds)
{
    struct kc_recording_info info;
    struct kc_moment m;
    recording_rig_begin(8);
    for (int i = 0; i < 400; i++) {
        for (uint32_t rank = 0; rank < 8; rank++)
            for (uint32_t n = 0; n < KC_RANK_EVENTS; n++)
                kc_probe_event(rig.probe[rank], KC_EVENT_STARTED, recording_rig_random(), recording_rig_random(), noise());
        ck_assert_msg(recording_rig_look(2, 0) == 0, "%s", rig.error.text);
    }
    struct kc_recording *r = recording_rig_open(rig.folder);
    kc_recording_info(r, &info);
    ck_assert_uint_eq(info.first_wall, WALL + 2 * SECOND);
    ck_assert_uint_gt(info.seconds_wall, WALL + 60 * SECOND);
    for (uint32_t i = 0; i < info.moments; i++) {
        kc_recording_moment(r, i, &m);
        ck_assert_int_eq(m.minutes, m.wall < info.seconds_wall);
        if (i % 97 == 0)
            kc_reader_free(recording_rig_board_at(r, i));
    }
    kc_recording_free(r);
    recording_rig_end();
}
END_TEST

/* ---- ends of all kinds ---- */

START_TEST(a_recorder_that_begins_again_goes_on)
{
    struct kc_recording_info info;
    recording_rig_begin(2);
    recording_rig_look(1, 0);
    recording_rig_train(7000);
    recording_rig_look(1, 0);
    kc_recorder_free(rig.recorder);
    ck_assert_int_eq(kc_recorder_new(rig.folder, "demo-1", kc_board_reader(rig.board), &rig.recorder, &rig.error), 0);
    recording_rig_train(7001);
    recording_rig_look(1, 0);
    struct kc_reader *then = recording_rig_keep();
    struct kc_recording *r = recording_rig_open(rig.folder);
    kc_recording_info(r, &info);
    ck_assert_uint_eq(info.moments, 3);
    ck_assert_uint_eq(info.segments, 4);
    struct kc_reader *reader = recording_rig_board_at(r, 2);
    recording_rig_compare(2, then, reader, 4, 0);
    kc_reader_free(reader);
    kc_reader_free(then);
    kc_recording_free(r);
    recording_rig_end();
}
END_TEST

static char *read_whole(const char *name, size_t *bytes)
{
    char *data = NULL;
    ck_assert_int_eq(kc_file_read(name, 64 << 20, &data, bytes), 0);
    return data;
}

/* Segments one behind another, as cat makes them. */
static void join_segments(const char *to)
{
    char file[512];
    struct dirent **entry = NULL;
    const int n = scandir(rig.folder, &entry, NULL, alphasort);
    FILE *out = fopen(to, "we");
    for (int i = 0; i < n; i++) {
        size_t bytes;
        snprintf(file, sizeof file, "%s/%s", rig.folder, entry[i]->d_name);
        if (entry[i]->d_name[0] != '.') {
            char *data = read_whole(file, &bytes);
            fwrite(data, 1, bytes, out);
            free(data);
        }
        free(entry[i]);
    }
    free(entry);
    fclose(out);
}

START_TEST(segments_behind_one_another_are_a_recording)
{
    struct kc_recording_info a, b;
    recording_rig_begin(2);
    for (uint64_t n = 0; n < 5; n++) {
        recording_rig_train(7000 + n);
        recording_rig_look(1, 0);
    }
    join_segments(rig.path);
    struct kc_recording *r = recording_rig_open(rig.folder), *one = recording_rig_open(rig.path);
    kc_recording_info(r, &a);
    kc_recording_info(one, &b);
    ck_assert_int_eq(memcmp(&a, &b, sizeof a), 0);
    for (uint32_t i = 0; i < a.moments; i++) {
        struct kc_reader *x = recording_rig_board_at(r, i), *y = recording_rig_board_at(one, i);
        recording_rig_compare(i, x, y, KC_OPS, 1);
        kc_reader_free(x);
        kc_reader_free(y);
    }
    kc_recording_free(r);
    kc_recording_free(one);
    /* the last 2 s are in the newest segments, which are all there are */
    ck_assert_msg(kc_recording_copy(rig.folder, rig.path, 2, &rig.error) == 0, "%s", rig.error.text);
    one = recording_rig_open(rig.path);
    kc_recording_info(one, &b);
    ck_assert_uint_eq(b.last_wall, a.last_wall);
    kc_recording_free(one);
    ck_assert_int_eq(kc_recording_copy(rig.directory, rig.path, 2, &rig.error), -ENOENT);
    recording_rig_end();
}
END_TEST

START_TEST(a_copy_of_the_end_leaves_out_what_is_older)
{
    struct kc_recording_info info;
    recording_rig_begin(2);
    recording_rig_look(1, 0);
    kc_recorder_free(rig.recorder);
    rig.now += 600 * SECOND;
    rig.wall += 600 * SECOND;
    ck_assert_int_eq(kc_recorder_new(rig.folder, "demo-1", kc_board_reader(rig.board), &rig.recorder, &rig.error), 0);
    recording_rig_look(1, 0);
    ck_assert_int_eq(kc_recording_copy(rig.folder, rig.path, 300, &rig.error), 0);
    struct kc_recording *r = recording_rig_open(rig.path);
    kc_recording_info(r, &info);
    ck_assert_uint_eq(info.moments, 1);
    ck_assert_uint_eq(info.first_wall, WALL + 602 * SECOND);
    kc_recording_free(r);
    recording_rig_end();
}
END_TEST

/* Cut at any byte, as a kill does: what is whole before the cut is there, and no more. */
START_TEST(a_cut_loses_what_was_cut_and_nothing_else)
{
    size_t bytes, at[8] = {0};
    struct kc_recording_info info;
    char file[128];
    recording_rig_begin(2);
    for (int n = 0; n < 6; n++) {
        recording_rig_train(7000 + (uint64_t)n);
        recording_rig_look(1, n == 3);
        at[n] = recording_rig_bytes(rig.folder, "00000001.");
    }
    snprintf(file, sizeof file, "%s/00000001.seconds", rig.folder);
    char *data = read_whole(file, &bytes);
    ck_assert_uint_eq(bytes, at[5]);
    for (size_t cut = 0; cut < bytes; cut += cut < 400 || cut + 400 > bytes ? 1 : 17) {
        struct kc_recording *r = NULL;
        uint32_t whole = 0;
        while (whole < 6 && at[whole] <= cut)
            whole++;
        const int fd = open(rig.path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
        ck_assert_int_eq(kc_write_all(fd, data, cut), 0);
        close(fd);
        const int code = kc_recording_open(rig.path, &r, &rig.error);
        if (whole == 0) {
            ck_assert_int_eq(code, -EBADMSG);
            continue;
        }
        ck_assert_msg(code == 0, "%s", rig.error.text);
        kc_recording_info(r, &info);
        ck_assert_uint_eq(info.moments, whole);
        ck_assert_uint_eq(info.torn, cut - at[whole - 1]);
        ck_assert_uint_eq(info.damaged, 0);
        kc_recording_free(r);
    }
    free(data);
    recording_rig_end();
}
END_TEST

START_TEST(a_disk_that_is_full_is_an_error_and_the_file_stays_whole)
{
    struct rlimit before, limit;
    struct kc_recording_info info;
    recording_rig_begin(2);
    recording_rig_look(1, 0);
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &before);
    limit = before;
    limit.rlim_cur = recording_rig_bytes(rig.folder, "00000001.") + 100;
    setrlimit(RLIMIT_FSIZE, &limit);
    recording_rig_train(7000);
    ck_assert_int_eq(recording_rig_look(1, 1), -EFBIG);
    ck_assert_ptr_nonnull(strstr(rig.error.text, "not recorded"));
    limit.rlim_cur = 50; /* not even a head */
    setrlimit(RLIMIT_FSIZE, &limit);
    ck_assert_int_eq(recording_rig_look(1, 1), -EFBIG);
    setrlimit(RLIMIT_FSIZE, &before);
    ck_assert_int_eq(recording_rig_look(1, 0), 0);
    struct kc_reader *then = recording_rig_keep();
    struct kc_recording *r = recording_rig_open(rig.folder);
    kc_recording_info(r, &info);
    ck_assert_uint_eq(info.moments, 2);
    ck_assert_uint_eq(info.torn + info.damaged, 0);
    struct kc_reader *reader = recording_rig_board_at(r, 1);
    recording_rig_compare(1, then, reader, 4, 0);
    kc_reader_free(reader);
    kc_reader_free(then);
    kc_recording_free(r);
    recording_rig_end();
}
END_TEST

START_TEST(what_is_no_recording_is_refused)
{
    struct kc_recording *r = NULL;
    size_t bytes;
    char file[128];
    ck_assert_int_eq(kc_recording_open("/nonexistent", &r, &rig.error), -ENOENT);
    ck_assert_int_eq(kc_recording_open("/dev/null", &r, &rig.error), -EINVAL);
    ck_assert_ptr_nonnull(strstr(rig.error.text, "/dev/null is neither a file nor a folder: name a job"));
    ck_assert_int_eq(kc_recording_open(rig.directory, &r, &rig.error), -ENOENT);
    ck_assert_int_eq(kc_file_replace(rig.path, "hello", 5), 0);
    ck_assert_int_eq(kc_recording_open(rig.path, &r, &rig.error), -EBADMSG);
    recording_rig_begin(1);
    recording_rig_look(1, 0);
    snprintf(file, sizeof file, "%s/00000001.seconds", rig.folder);
    char *data = read_whole(file, &bytes);
    struct kc_tape_head *h = (void *)data;
    h->board_version++;
    h->digest = kc_digest(h, offsetof(struct kc_tape_head, digest));
    ck_assert_int_eq(kc_file_replace(rig.path, data, bytes), 0);
    ck_assert_int_eq(kc_recording_open(rig.path, &r, &rig.error), -EPROTO);
    ck_assert_ptr_nonnull(strstr(rig.error.text, "use the kc that the job ran with"));
    h->board_version--;
    h->ranks = 3; /* not what the bytes of the board say */
    h->digest = kc_digest(h, offsetof(struct kc_tape_head, digest));
    ck_assert_int_eq(kc_file_replace(rig.path, data, bytes), 0);
    ck_assert_int_eq(kc_recording_open(rig.path, &r, &rig.error), -EBADMSG);
    ck_assert_ptr_null(r);
    free(data);
    recording_rig_end();
}
END_TEST

START_TEST(boots_of_the_machine_are_told_apart)
{
    size_t bytes;
    char file[128];
    struct kc_moment m;
    recording_rig_begin(1);
    recording_rig_look(1, 0);
    kc_recorder_free(rig.recorder);
    const uint64_t first = rig.now;
    rig.now = 5 * SECOND; /* counts anew */
    rig.wall += 3600 * SECOND;
    ck_assert_int_eq(kc_recorder_new(rig.folder, "demo-1", kc_board_reader(rig.board), &rig.recorder, &rig.error), 0);
    recording_rig_look(1, 0);
    for (int i = 3; i < 5; i++) {
        snprintf(file, sizeof file, "%s/0000000%d.%s", rig.folder, i, i == 3 ? "seconds" : "minutes");
        char *data = read_whole(file, &bytes);
        struct kc_tape_head *h = (void *)data;
        snprintf(h->boot, sizeof h->boot, "another");
        h->digest = kc_digest(h, offsetof(struct kc_tape_head, digest));
        ck_assert_int_eq(kc_file_replace(file, data, bytes), 0);
        free(data);
    }
    struct kc_recording *r = recording_rig_open(rig.folder);
    ck_assert_int_eq(kc_recording_moment(r, 0, &m), 0);
    ck_assert_uint_eq(m.time, first);
    ck_assert_int_eq(kc_recording_moment(r, 1, &m), 0);
    ck_assert_uint_eq(m.time, rig.now);
    kc_recording_free(r);
    recording_rig_end();
}
END_TEST

/* ---- damage ---- */

static void use_all(void)
{
    struct kc_recording *r = NULL;
    struct kc_recording_info info;
    if (kc_recording_open(rig.path, &r, &rig.error) < 0)
        return;
    kc_recording_info(r, &info);
    for (uint32_t i = 0; i < info.moments; i++) {
        struct kc_reader *reader = NULL;
        if (kc_recording_board(r, i, i % 2 ? UINT64_MAX : 0, &reader, &rig.error) == 0)
            board_rig_read_all(reader);
        kc_reader_free(reader);
    }
    kc_recording_free(r);
}

/* Digests that are right again make the reader look at everything: heads, what zstd unpacks, entries, the board. */
static void mend_digests(char *data, size_t bytes)
{
    for (size_t p = 0; p + sizeof(struct kc_tape_frame) <= bytes; p++) {
        struct kc_tape_head h;
        struct kc_tape_frame f;
        if (memcmp(data + p, KC_TAPE_MAGIC, 8) == 0 && p + sizeof h <= bytes) {
            memcpy(&h, data + p, sizeof h);
            h.digest = kc_digest(&h, offsetof(struct kc_tape_head, digest));
            memcpy(data + p, &h, sizeof h);
        }
        memcpy(&f, data + p, sizeof f);
        if (f.magic != KC_FRAME_MAGIC || f.stored > bytes - p - sizeof f)
            continue;
        f.digest = kc_tape_digest(&f, data + p + sizeof f);
        memcpy(data + p, &f, sizeof f);
    }
}

START_TEST(no_damage_leads_out_of_bounds)
{
    size_t bytes;
    recording_rig_begin(2);
    for (uint64_t n = 0; n < 4; n++) {
        recording_rig_train(7000 + n);
        recording_rig_look(1, n == 2);
    }
    join_segments(rig.path);
    char *data = read_whole(rig.path, &bytes), *copy = malloc(bytes);
    for (int round = 0; round < 120; round++) {
        memcpy(copy, data, bytes);
        for (int k = 0; k < 1 + round / 8; k++) {
            const uint64_t word = recording_rig_random();
            const size_t at = k % 3 ? word % bytes : word % 600; /* heads too */
            copy[at] = word >> 60 & 1 ? (char)(word >> 50) : (char)(copy[at] ^ 1 << (word >> 40) % 8);
        }
        if (round % 4)
            mend_digests(copy, bytes);
        ck_assert_int_eq(kc_file_replace(rig.path, copy, bytes), 0);
        use_all();
    }
    free(copy);
    free(data);
    recording_rig_end();
}
END_TEST

/* Entries themselves, past zstd: a board is never written outside. */
START_TEST(entries_of_nonsense_stay_on_the_board)
{
    static uint64_t image[128];
    unsigned char raw[512];
    for (int round = 0; round < 20000; round++) {
        const size_t n = recording_rig_random() % sizeof raw;
        for (size_t i = 0; i < n; i++)
            raw[i] = (unsigned char)(recording_rig_random() >> (round % 3 ? 40 : 61)); /* small numbers reach farther */
        kc_tape_apply(raw, n, image, sizeof image);
    }
}
END_TEST

START_TEST(entries_come_back_as_they_were)
{
    enum { WORDS = 4096 };
    static uint64_t from[WORDS], to[WORDS];
    static unsigned char raw[WORDS * 40], stored[WORDS * 48], again[WORDS * 40];
    struct kc_tape_walk w = {0};
    unsigned char *p = raw;
    for (size_t i = 0; i < WORDS; i++)
        from[i] = i % 5 == 0 ? UINT64_MAX - i : i % 5 == 1 ? UINT64_C(1) << 63 : recording_rig_random() >> recording_rig_random() % 64;
    for (int i = 0; i < 300; i++) {
        const size_t n = 1 + recording_rig_random() % (i % 10 ? KC_TAPE_SHORT : 100), at = recording_rig_random() % (WORDS - n);
        p = kc_tape_put(&w, p, at * 8, from + at, n);
        memcpy(to + at, from + at, n * 8);
    }
    static uint64_t image[WORDS];
    ck_assert_int_eq(kc_tape_apply(raw, (size_t)(p - raw), image, sizeof image), 0);
    ck_assert_int_eq(memcmp(image, to, sizeof to), 0);
    void *memory = malloc(kc_tape_press_memory());
    const size_t n = kc_tape_press(memory, raw, (size_t)(p - raw), stored, sizeof stored);
    ck_assert_uint_gt(n, 0);
    ck_assert_int_eq(kc_tape_unpress(stored, n, again, (size_t)(p - raw)), 0);
    ck_assert_int_eq(memcmp(raw, again, (size_t)(p - raw)), 0);
    ck_assert_int_eq(kc_tape_unpress(stored, n, again, (size_t)(p - raw) - 1), -EBADMSG);
    ck_assert_int_eq(kc_tape_unpress(stored, n - 1, again, (size_t)(p - raw)), -EBADMSG);
    free(memory);
}
END_TEST

/* ---- the largest ---- */

#define PAIRS 1024 /* of seconds and of minutes, even and odd: as many segments as there may be */
#define MINUTES 640

/* A segment of frames that say nothing, `apart` from one to the next. */
static unsigned char *put_segment(unsigned char *to, uint64_t number, enum kc_tape_level level, uint32_t frames, uint64_t time,
                                  uint64_t apart)
{
    struct kc_tape_head h = {.version = KC_TAPE_VERSION, .board_version = KC_BOARD_VERSION, .ranks = 1, .number = number,
                             .board_bytes = kc_segment_bytes(1), .level = level, .id = "j", .boot = "b"};
    memcpy(h.magic, KC_TAPE_MAGIC, sizeof h.magic);
    h.digest = kc_digest(&h, offsetof(struct kc_tape_head, digest));
    memcpy(to, &h, sizeof h);
    to += sizeof h;
    for (uint32_t i = 0; i < frames; i++, to += sizeof(struct kc_tape_frame)) {
        struct kc_tape_frame f = {.magic = KC_FRAME_MAGIC, .flags = KC_FRAME_KEY, .time = time + i * apart, .wall = WALL};
        f.digest = kc_tape_digest(&f, to);
        memcpy(to, &f, sizeof f);
    }
    return to;
}

/* Seconds tell 1600 from every even thousand on, where what the odd one tells (400) lies within. */
START_TEST(a_recording_of_a_million_frames_is_read_while_one_waits)
{
    const size_t room = UINT64_C(64) << 20;
    struct kc_recording_info info;
    unsigned char *data = malloc(room), *end = data;
    char path[512];
    ck_assert_ptr_nonnull(data);
    for (uint64_t k = 0; k < 2 * PAIRS; k++) {
        end = put_segment(end, 2 * k + 1, KC_TAPE_SECONDS, 2, 1000 * (k + 1), k % 2 ? 400 : 1600);
        end = put_segment(end, 2 * k + 2, KC_TAPE_MINUTES, MINUTES, 1000 * (k + 1), 1);
    }
    ck_assert_uint_le((size_t)(end - data), room);
    snprintf(path, sizeof path, "%s.large", rig.folder);
    FILE *file = fopen(path, "w");
    ck_assert_uint_eq(fwrite(data, 1, (size_t)(end - data), file), (size_t)(end - data));
    ck_assert_int_eq(fclose(file), 0);
    free(data);
    struct kc_recording *r = recording_rig_open(path);
    kc_recording_info(r, &info);
    ck_assert_uint_eq(info.damaged + info.torn, 0);
    ck_assert_uint_eq(info.moments, PAIRS * 4 + PAIRS * (MINUTES - 601));
    kc_recording_free(r);
    unlink(path);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("recording files");
    TCase *t = tcase_create("recording files");
    tcase_add_checked_fixture(t, recording_rig_set_up, recording_rig_tear_down);
    tcase_set_timeout(t, 60);
    tcase_add_test(t, the_room_is_kept_and_the_oldest_goes_first);
    tcase_add_test(t, minutes_reach_back_farther_than_seconds);
    tcase_add_test(t, a_recorder_that_begins_again_goes_on);
    tcase_add_test(t, segments_behind_one_another_are_a_recording);
    tcase_add_test(t, a_copy_of_the_end_leaves_out_what_is_older);
    tcase_add_test(t, a_cut_loses_what_was_cut_and_nothing_else);
    tcase_add_test(t, a_disk_that_is_full_is_an_error_and_the_file_stays_whole);
    tcase_add_test(t, what_is_no_recording_is_refused);
    tcase_add_test(t, boots_of_the_machine_are_told_apart);
    tcase_add_test(t, no_damage_leads_out_of_bounds);
    tcase_add_test(t, entries_of_nonsense_stay_on_the_board);
    tcase_add_test(t, entries_come_back_as_they_were);
    tcase_add_test(t, a_recording_of_a_million_frames_is_read_while_one_waits);
    suite_add_tcase(s, t);
    return suite_run(s);
}
