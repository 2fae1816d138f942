/* crash_log.h - what a power cut may leave. A storage in front of another keeps a log of all that changes; the replay goes
 * through it call by call and makes the folders that a crash behind that call could leave: without anything that no fsync
 * made durable (bytes, lengths, entries of folders), with all of it, and with seeded mixtures, byte ranges by sectors. */
#ifndef KC_TESTS_CRASH_LOG_H
#define KC_TESTS_CRASH_LOG_H

#include "state/storage.h"

#include <stdbool.h>

enum crash_kind { CRASH_OPEN, CRASH_WRITE, CRASH_LENGTH, CRASH_CUT, CRASH_SYNC, CRASH_SYNC_FOLDER, CRASH_RENAME, CRASH_FOLDER,
    CRASH_REMOVE, CRASH_MARK };
struct crash_call {
    enum crash_kind kind;
    char path[96], to[96];      /* below the root; of open, rename and what is removed, of synced folders */
    uint32_t handle;            /* of an open; of what it is written to */
    bool create;
    unsigned char *data;
    uint64_t bytes, at, mark;
};

struct crash_log {
    struct kc_storage storage;
    const struct kc_storage *below;
    char root[256];
    struct crash_call *call;
    uint32_t calls, room, handles, handle[1024]; /* handle: of a descriptor; 0 none */
    uint32_t die_at;            /* the call that is not done any more, nor is any after it; 0: none */
    bool dead;
};
/* Only what lies below `root` may be touched. */
void crash_log_open(struct crash_log *l, const char *root, const struct kc_storage *below);
void crash_log_close(struct crash_log *l);
/* From here on a crash must leave what the caller calls `mark` (or more). */
void crash_log_mark(struct crash_log *l, uint64_t mark);
/* "sync v00000003/rank-0.pack" of a call. */
void crash_call_text(const struct crash_log *l, uint32_t i, char out[256]);

struct crash_replay {
    const struct crash_log *log;
    const char *image;          /* folder that is made anew for every crash */
    uint32_t first;             /* the first call behind which it crashes */
    uint32_t without;           /* this call was never made; UINT32_MAX: all were */
    uint32_t mixtures;          /* a crash */
    uint64_t seed;
    /* Is the image as it must be? false with a reason. */
    bool (*check)(void *arg, const char *image, uint64_t mark, char why[512]);
    void *arg;
    uint32_t images;            /* different ones that were looked at */
    char found[2048];           /* the first that was wrong: after which call, how it was made, why, what was not durable */
};
/* true: every image was right. */
bool crash_replay(struct crash_replay *r);

#endif
