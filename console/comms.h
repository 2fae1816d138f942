/* comms.h - what the ranks of a job do together: the operations in their flight recorders, put together. For `kc comm` and
 * the screen; who is to blame for what stands is hang/'s business.
 *
 * A channel is what has sequence numbers of its own: the collectives of a group, or its messages from one rank to another.
 * An operation is known by (channel, sequence). Bytes a second are the bytes of its larger side over the time from when the
 * last rank came until the last was done; late is who comes behind the middle of those that take part.
 * Unknown is NaN, -1, COMM_UNKNOWN: what a ring no longer has, or could not be read, is not guessed. */
#ifndef KC_CONSOLE_COMMS_H
#define KC_CONSOLE_COMMS_H

#include "base/error.h"
#include "shm/records.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct kc_reader;

#define COMM_OPS 64        /* of a channel that are put together, the newest */
#define COMM_RECORDS 8192  /* that are read of all ranks: of many ranks fewer each, so that a look stays cheap */
#define COMM_TEXT 96

/* Where a member is in an operation. */
enum comm_place { COMM_UNKNOWN, COMM_ABSENT, COMM_ENQUEUED, COMM_STARTED, COMM_DONE, COMM_PLACES };
extern const char *const comm_place_name[COMM_PLACES];

/* A member of a channel. */
struct comm_member {
    int rank;
    int64_t sequence;       /* the newest that it has enqueued; -1: none that is known */
    enum comm_place place;  /* in the newest operation of the channel */
    uint64_t number;        /* of that, among all that its rank did */
    bool gone;              /* its process has ended */
    bool unread;            /* nothing of what it did could be read */
};

/* One operation, all its members together. Times are kc_now(); 0: none yet. */
struct comm_op {
    uint64_t sequence, step, count, bytes;
    uint8_t primitive, type, reduce, algorithm; /* as its first record says */
    int peer;                       /* rank of the root; -1 */
    int members, enqueued, started, done, unknown; /* of members; who is done is counted as started and enqueued too */
    int seen;                       /* of members whose record of it is there: figures are of operations that all have */
    int failed;                     /* of those that are done */
    uint64_t first, enqueued_last;  /* enqueued */
    uint64_t came_first, came_last; /* started; came_last 0 while not all have come */
    uint64_t ended;                 /* the last is done; 0 while not all are */
    int last;                       /* the rank that came last, or that has not come (the first of them); -1 */
    double late;                    /* seconds of `last` behind the middle of the others; NaN while it has not come */
};

struct comm_channel {
    uint32_t group, generation;
    int from, to;                   /* a channel of messages; -1: of collectives */
    char name[33];                  /* of the group; "" the board does not say it */
    struct comm_member *member;     /* (members), by rank */
    int members;
    struct comm_op *op;             /* (ops), the newest last */
    int ops;
    int64_t enqueued, done;         /* sequence: the newest that somebody enqueued; the newest that all have done, -1 */
    uint64_t since;                 /* kc_now() since when the oldest operation that is not done stands; 0: none */
    /* of those operations that all have done */
    int whole;
    double seconds, waits, rate;    /* medians: from the last's coming to the end; from the first's coming to the last's; bytes/s */
    int slowest;                    /* the rank that was late most, in sum; -1 */
    double late;                    /* seconds, of it, an operation */
    int lasts;                      /* how often it came last */
};

struct comms {
    uint64_t now;                   /* the clock that ages are counted by */
    bool left;                      /* nobody keeps the board any more: it is as its ranks left it */
    int ranks, unread;              /* unread: whose operations could not be read, or are a former incarnation's */
    int missing;                    /* records that could not be read whole, or are left out of a recording */
    struct comm_channel *channel;   /* (channels), by group and ends */
    size_t channels;
};

/* What one rank's recorder says, for comms_make(). */
struct comm_source {
    int rank;
    bool known, gone;
    uint64_t first, next;           /* numbers: of its first operation, and of the one that it begins next */
    int missing;
    const struct kc_op_seen *op;    /* by number, with holes */
    int ops;
};
/* A group, as the board has it; count 0: it does not. Members by rank. */
struct comm_group {
    uint32_t id;
    char name[33];
    const uint16_t *rank;
    int count;
};

/* Pure. -ENOMEM. */
int comms_make(const struct comm_source *source, int sources, const struct comm_group *group, int groups, uint64_t now,
               struct comms *out);
/* Of a board, live, saved or recorded. -ENOMEM, -EBADMSG: it is no job's. */
int comms_read(const struct kc_reader *r, struct comms *out, struct kc_error *e);
void comms_free(struct comms *c);

/* "data.0", "pipeline.1 0>1", "group 7". Returns out. */
const char *comm_channel_text(const struct comm_channel *c, char *out, size_t room);
/* "all-reduce f32 sum", "send f32". Returns out. */
const char *comm_op_text(const struct comm_op *o, char *out, size_t room);
/* "done", "3/4 came", "2/4 done" (all have come), "3/4 known". Returns out. */
const char *comm_place_text(const struct comm_op *o, char *out, size_t room);
/* Seconds that it took, from the first's coming; of one that stands, until now; NaN: nobody has come, or it is not known. */
double comm_op_seconds(const struct comm_op *o, uint64_t now);
/* Of these the part in which it was waited for the last. */
double comm_op_waits(const struct comm_op *o, uint64_t now);
/* "data.0 #66 all-reduce f32 sum stands 41 s: 3/4 came, 0 done, not rank 3"; false, and "": nothing of
 * it stands for so many seconds. */
bool comm_stands_text(const struct comms *all, const struct comm_channel *c, double least, char *out, size_t room);
/* The newest operations of all channels, by when the first rank enqueued them, the newest last. Returns how many. */
struct comm_at {
    const struct comm_channel *channel;
    const struct comm_op *op;
};
int comms_last(const struct comms *c, struct comm_at *out, int room);
/* The first rank that has not come; -1: all have, or nobody knows. */
int comm_waits_for(const struct comm_op *o);
/* The newest operation; NULL: none is known. */
const struct comm_op *comm_newest(const struct comm_channel *c);

#endif
