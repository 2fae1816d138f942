/* keeper_tape.c - the job's recording: jobs/<id>/recording/, what its board showed all the time (shm/recording.h). It is
 * there for people afterwards: where it can't be written that is told once, and changes nothing else. */
#include "keeper_impl.h"

#include "journal.h"

#include "base/clock.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/statvfs.h>

#define FOLDER "recording"
#define ORDINARY KC_SECOND
#define OFTEN (100 * KC_MILLISECOND)
#define AROUND (10 * KC_SECOND)  /* so long it is looked at often after something went wrong */
#define STILL (5 * KC_SECOND)    /* a rank that has not moved for so long stands still */
#define LEISURE (30 * KC_SECOND) /* then a recording that failed is tried again */
#define LOOK_FOR_ROOM (10 * KC_SECOND)
#define SPARE (KC_RECORDING_MOST) /* bytes of a disk that it leaves to others */

uint64_t kc_keeper_tape_period(uint64_t now, uint64_t wrong, const uint64_t *still, uint32_t ranks)
{
    if (wrong && now - wrong < AROUND)
        return OFTEN;
    for (uint32_t i = 0; i < ranks; i++)
        if (still[i] && now - still[i] >= STILL && now - still[i] < STILL + AROUND)
            return OFTEN;
    return ORDINARY;
}

static void failed(struct kc_keeper *k, uint64_t now, const struct kc_error *e)
{
    if (!k->tape.told)
        kc_journal(k->record.directory, kc_told_name[KC_TOLD_RECORDING_FAILED], json_pack("{s:s}", "text", e->text));
    k->tape.told = true;
    k->tape.again = now + LEISURE;
}

/* A small disk is for the job. */
static int need_room(struct kc_keeper *k, uint64_t now, struct kc_error *e)
{
    struct statvfs st;
    if (now < k->tape.room_until)
        return 0;
    if (statvfs(k->record.directory, &st) == 0 && (uint64_t)st.f_bavail * st.f_frsize < SPARE)
        return kc_fail(e, -ENOSPC, "what the job does is not recorded: the disk of %s has less than %llu MiB left",
                       k->record.directory, (unsigned long long)(SPARE >> 20));
    k->tape.room_until = now + LOOK_FOR_ROOM;
    return 0;
}

static int need_recorder(struct kc_keeper *k, struct kc_error *e)
{
    char folder[PATH_MAX + sizeof FOLDER + 1];
    if (k->tape.recorder)
        return 0;
    snprintf(folder, sizeof folder, "%s/" FOLDER, k->record.directory);
    return kc_recorder_new(folder, k->record.id, k->reader, &k->tape.recorder, e);
}

static void look(struct kc_keeper *k, uint64_t now, bool wrong)
{
    struct kc_error e = {""};
    k->tape.looked = now;
    if (!k->reader || now < k->tape.again)
        return;
    if (need_room(k, now, &e) < 0 || need_recorder(k, &e) < 0 ||
        kc_recorder_look(k->tape.recorder, now, kc_wall(), wrong, &e) < 0)
        failed(k, now, &e);
    else
        k->tape.told = false;
}

/* Who stands still, and since when. */
static void peek(struct kc_keeper *k, uint64_t now)
{
    uint64_t still[KC_BOARD_RANKS / 64] = {0};
    if (k->tape.recorder)
        kc_recorder_peek(k->tape.recorder, still);
    k->tape.peeked = now;
    for (uint32_t i = 0; i < k->record.ranks; i++)
        k->tape.still[i] = !(still[i / 64] >> i % 64 & 1) ? 0 : k->tape.still[i] ? k->tape.still[i] : now;
}

void kc_keeper_tape_tick(struct kc_keeper *k, uint64_t now)
{
    if (now - k->tape.peeked < OFTEN)
        return;
    peek(k, now);
    if (now - k->tape.looked >= kc_keeper_tape_period(now, k->tape.wrong, k->tape.still, k->record.ranks))
        look(k, now, false);
}

void kc_keeper_tape_now(struct kc_keeper *k, bool wrong)
{
    const uint64_t now = kc_now();
    if (wrong)
        k->tape.wrong = now;
    look(k, now, wrong);
}

void kc_keeper_tape_close(struct kc_keeper *k)
{
    kc_recorder_free(k->tape.recorder);
    k->tape.recorder = NULL;
}
