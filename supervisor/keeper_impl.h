/* keeper_impl.h - the keeper's state, for its own files: keeper_begin.c, keeper.c (life, loop), keeper_fault.c (after a
 * failure), keeper_restart.c (until ranks start again), keeper_end.c (the end), keeper_ranks.c (processes), keeper_board.c
 * (what ranks publish becomes files), keeper_copy.c (the state in memory), keeper_oom.c (whom the kernel killed),
 * keeper_control.c (requests), keeper_watch.c (does it get on), keeper_mortem.c (what is kept of a fault). */
#ifndef KC_SUPERVISOR_KEEPER_IMPL_H
#define KC_SUPERVISOR_KEEPER_IMPL_H

#include "devices.h"
#include "keeper.h"
#include "life.h"
#include "limits.h"
#include "link.h"
#include "log_times.h"
#include "loop.h"
#include "metrics_file.h"
#include "outcome.h"
#include "rank_log.h"
#include "record.h"
#include "skew.h"

#include "base/arena.h"
#include "contracts/job_spec.h"
#include "shm/keeper.h"
#include "shm/reader.h"
#include "shm/recording.h"

#include <signal.h>

/* A rank as its parent has it. */
struct kc_kept_rank {
    bool alive;                   /* forked and not reaped yet */
    struct kc_rank_end end;       /* of this incarnation */
    struct kc_rank_process shown; /* on the board */
    struct kc_rank_log log;
    int window;                   /* memfd, of this incarnation; -1 */
    int copy;                     /* memfd, of the job: copies of the state outlive the ranks; -1 */
    uint64_t event_cursor;
};

/* A connection: kcd's, usually one. */
struct kc_keeper_peer {
    struct kc_keeper_peer *next;
    struct kc_link link;
};

/* A request that is answered later. */
struct kc_keeper_waiter {
    struct kc_keeper_waiter *next;
    struct kc_keeper_peer *peer; /* NULL: it hung up */
    json_int_t tag;
    enum kc_life_event verb;
    uint32_t checkpoint;         /* count to wait for */
    uint64_t step;               /* of the job when it was asked */
};

/* The child that writes the copy in memory to disk when the ranks are gone. */
struct kc_keeper_saver {
    pid_t pid;                    /* 0: there is none */
    bool gone;                    /* it has ended and is reaped; pid is 0 */
    int code;                     /* then: its exit code, or -signal */
    struct kc_source said;        /* its standard output; fd -1 */
    char line[2048];              /* what of it is no whole line yet */
    size_t have;
    bool told;                    /* the journal has how it ended */
    uint64_t deadline, seconds;   /* kc_now() when it is given up, which is so long after it began */
};

/* Who is late (skew.h), and what of it was seen already. */
struct kc_keeper_skew {
    struct kc_skew skew;
    uint64_t looked;              /* kc_now() of the last look */
    uint64_t since[KC_RANKS_MAX]; /* of an alarm; 0 */
    uint64_t compared[KC_GROUPS]; /* by group: sequence number behind the last that was compared */
    uint8_t members[KC_GROUPS];   /* by group; 0: not known yet */
};

/* The recording of the board. */
struct kc_keeper_tape {
    struct kc_recorder *recorder;  /* of k->reader; NULL: not yet */
    uint64_t looked, peeked;       /* kc_now() of the last look, and of the last peek at who moves */
    uint64_t wrong;                /* when something was wrong last; 0 */
    uint64_t still[KC_RANKS_MAX];  /* since when the rank has not moved; 0: it moves */
    uint64_t again, room_until;    /* not tried before; the disk need not be looked at before */
    bool told;                     /* the journal has that it fails */
};

/* The child that looks into a fault and keeps what it finds, and what it is given. */
#define KC_MORTEM_FOLDER "postmortem"
struct kc_keeper_mortem {
    bool copied;                  /* this incarnation: the board was copied, or need not be */
    int board;                    /* the copy, until the child has it; -1 */
    pid_t pid;                    /* 0: there is none */
    bool gone;                    /* it has ended and is reaped; pid is 0 */
    int code;                     /* then: its exit code, or -signal */
    bool hang;                    /* it looks into a hang, not a crash */
    uint32_t incarnation;         /* of this one */
    uint64_t deadline;            /* kc_now() */
    char folder[PATH_MAX + 64];   /* that it makes */
    struct kc_source said;        /* its standard output; fd -1 */
    char *answer;                 /* what it has said so far; its first line is the verdict */
    size_t have;
    bool told;                    /* that line was taken */
};

/* Does the job get on? */
struct kc_keeper_watch {
    struct kc_limits limits;
    struct kc_pulse pulse[KC_RANKS_MAX];
    uint64_t last;                /* kc_now() of the last look */
    struct kc_watch_seen seen, shown; /* what is known; what the board has of it */
    struct kc_still first;        /* of a hang: as it was found */
    bool dump, restart;           /* of a hang: a child is to be started; the group is to be ended once that has looked */
    int accused;                  /* of a hang: by the child; -1 */
    char said[320];               /* what that says; "" not yet */
    struct kc_verdict ended;      /* the hang that the group is ended for; no text: none */
};

/* How far the end of the group has come. */
enum kc_ending { KC_ENDING_NOT, KC_ENDING_ASKED, KC_ENDING_KILLED };

struct kc_keeper {
    struct kc_loop loop;
    const struct kc_home *home;
    struct kc_record record;
    struct kc_arena arena;
    const struct kc_job_spec *spec;
    struct kc_board *board;
    struct kc_reader *reader;      /* of the board */
    struct kc_job_leases *leases;
    char leases_text[4096];        /* KC_LEASES */
    char rank_binary[PATH_MAX], console_binary[PATH_MAX];
    struct kc_source signals, listener;
    char socket[PATH_MAX];
    struct kc_keeper_peer *peers;
    struct kc_keeper_waiter *waiters;
    int alive_pipe[2];             /* ranks hold [0]; its end of file says that we are gone */
    struct kc_kept_rank rank[KC_RANKS_MAX];
    struct kc_log_times log_times;

    struct kc_metrics_file metrics;
    uint64_t steps_cursor, evaluations_cursor, lost;
    struct kc_step_record last_step;
    struct kc_evaluation last_evaluation; /* step 0: none yet */
    uint64_t restored;             /* step that this incarnation began from */
    bool began, trained;           /* it said so; it has finished a step */
    uint64_t committed;            /* step of the last snapshot that was seen to reach the disk; UINT64_MAX: none */

    struct kc_keeper_saver saver;
    struct kc_keeper_skew skew;
    struct kc_keeper_tape tape;
    struct kc_keeper_mortem mortem;
    struct kc_keeper_watch watch;
    uint64_t control;              /* the control word */
    bool releasing;                /* the pause level was lowered and the ranks have not said that they go on */
    enum kc_ending ending;
    struct kc_grace grace;
    uint64_t sound;                /* kc_now() when no device of the leases was found faulty; 0: one was, or nobody looked */
    uint64_t restart_at;           /* kc_now() when ranks are started again: until then there are none; 0: it doesn't wait */
    uint64_t last_tick, last_slow; /* kc_now() */
    bool stop_before_end;          /* a stop was asked for after the group had begun to end */
    bool fatal;                    /* the group ends after a failure that policy, as far as is known, does not restart */
    bool shut;                     /* the gate: requests that are here already come first, and the record */
    char unsaved[KC_UNSAVED_ROOM];   /* why state.json does not say what we know, "" it does */
    bool ended;                    /* nothing of the job is left but its record, which has yet to be written */
    bool closing;                  /* the same, and a child still keeps what it finds of the fault: it is waited for */
    bool noted;                    /* the journal has its end */
    enum kc_job_state end;         /* if so: how */
    uint64_t alone;                /* if so: kc_now() since when no kcd is there */
    struct kc_oom_watch *oom;      /* NULL: none could be made */
};

/* keeper.c */
void kc_keeper_event(struct kc_keeper *k, enum kc_life_event event);
/* Both return what came of writing state.json: 0 or -errno, which the journal has by then. */
int kc_keeper_state(struct kc_keeper *k, enum kc_job_state state);  /* everywhere: file, board, kcd */
int kc_keeper_save(struct kc_keeper *k);                            /* state.json as it stands */
void kc_keeper_hurry(struct kc_keeper *k);                          /* tick soon */
void kc_keeper_publish(struct kc_keeper *k);                        /* the record as it stands, on the board */
void kc_keeper_note_state(const struct kc_record *r);               /* in the journal */
int kc_keeper_loop_open(struct kc_keeper *k, struct kc_error *e);   /* signals and the tick; -errno with one line */

/* keeper_fault.c */
void kc_keeper_lost(struct kc_keeper *k);                           /* a rank is lost: what that means */
struct kc_verdict kc_keeper_verdict(struct kc_keeper *k);           /* the first failure, as far as is known */
void kc_keeper_end_failed(struct kc_keeper *k);                     /* tell the peers, by the abort word, then end all of them */
/* Nothing of the incarnation is left: ask the policy, and start again or fail. */
void kc_keeper_decide(struct kc_keeper *k, const struct kc_verdict *verdict, enum kc_fault fault);
void kc_keeper_decide_from_group(struct kc_keeper *k);
void kc_keeper_begin(struct kc_keeper *k);                          /* the next incarnation; the job fails if it can't be */

/* keeper_restart.c */
void kc_keeper_restart(struct kc_keeper *k, enum kc_fault fault);   /* policy says so: now, or when it has waited */
void kc_keeper_restart_now(struct kc_keeper *k);                    /* it has waited long enough */
void kc_keeper_restart_tick(struct kc_keeper *k);

/* keeper_end.c */
void kc_keeper_conclude(struct kc_keeper *k, enum kc_job_state state); /* nothing is left: the job has ended so */
void kc_keeper_conclude_well(struct kc_keeper *k);                  /* a stop or a last step has come to its end */
void kc_keeper_fail(struct kc_keeper *k, const char *text);         /* what failed was no rank */
void kc_keeper_write_end(struct kc_keeper *k);                      /* again, when it could not be written */
bool kc_keeper_nothing_newer(const struct kc_keeper *k);            /* what all ranks left with is on disk */
/* Everybody ended well, or was told to: how does that make the job end? */
enum kc_job_state kc_keeper_end_state(struct kc_keeper *k, const struct kc_verdict *v);

/* keeper_ranks.c */
int kc_keeper_launch(struct kc_keeper *k, struct kc_error *e); /* the next incarnation: all ranks, or none */
bool kc_keeper_reap(struct kc_keeper *k);                      /* every child that ended; true: a rank did */
void kc_keeper_end_group(struct kc_keeper *k);                 /* TERM and CONT, the grace begins */
void kc_keeper_end_tick(struct kc_keeper *k, uint64_t passed); /* KILL when the grace is over */
uint32_t kc_keeper_alive(const struct kc_keeper *k);
void kc_keeper_sweep(struct kc_keeper *k);                     /* nothing with our token, and no child, survives */

/* keeper_copy.c */
int kc_keeper_copies_make(struct kc_keeper *k, struct kc_error *e); /* once a job, if its spec has copies */
/* Start the child that writes the copy to disk: the event KEPT follows. False: there is nothing to write, or no child. */
bool kc_keeper_saver_start(struct kc_keeper *k);
bool kc_keeper_saver_take(struct kc_keeper *k, const siginfo_t *info); /* it is our child that ended there */
void kc_keeper_saver_settle(struct kc_keeper *k); /* it is gone, or its time is over: KEPT */
void kc_keeper_copies_close(struct kc_keeper *k);

/* keeper_oom.c */
#define KC_OOM_PATIENCE (50 * KC_MILLISECOND) /* for the kernel's line about a kill that it has counted */
void kc_keeper_oom_begin(struct kc_keeper *k);                 /* the ranks of an incarnation were forked */
void kc_keeper_oom_tick(struct kc_keeper *k);
/* Judge all ranks of this incarnation that somebody else killed: into their ends and onto the board. */
void kc_keeper_oom_judge(struct kc_keeper *k, uint64_t patience);
void kc_keeper_oom_end(struct kc_keeper *k);

/* keeper_tape.c: the job's recording; what fails there is told in the journal and disturbs nothing */
void kc_keeper_tape_tick(struct kc_keeper *k, uint64_t now);
void kc_keeper_tape_now(struct kc_keeper *k, bool wrong); /* wrong: everything, of all ranks; else what changed */
void kc_keeper_tape_close(struct kc_keeper *k);           /* before its board goes */
/* Nanoseconds from one look to the next. wrong: when something was last; still[rank]: since when it has not moved; 0. Pure. */
uint64_t kc_keeper_tape_period(uint64_t now, uint64_t wrong, const uint64_t *still, uint32_t ranks);

/* keeper_mortem.c */
void kc_keeper_mortem_begin(struct kc_keeper *k);              /* an incarnation */
void kc_keeper_mortem_copy(struct kc_keeper *k);               /* the board as it is, before anybody is told; once an incarnation */
void kc_keeper_mortem_crash(struct kc_keeper *k);              /* start the child on that copy, if there is one */
bool kc_keeper_mortem_hang(struct kc_keeper *k);               /* start the child on the job; false: it can't be, now */
bool kc_keeper_mortem_take(struct kc_keeper *k, const siginfo_t *info); /* it is our child that ended there */
void kc_keeper_mortem_settle(struct kc_keeper *k);             /* it is gone, or its time is over */
bool kc_keeper_mortem_busy(const struct kc_keeper *k);         /* there is one */
bool kc_keeper_mortem_looks(const struct kc_keeper *k);        /* there is one, and it has no verdict yet */

/* keeper_watch.c */
void kc_keeper_watch_begin(struct kc_keeper *k);               /* an incarnation */
void kc_keeper_watch_look(struct kc_keeper *k, uint64_t now);
/* What the child says of a hang, in one line (NULL: nothing), and the one rank that it accuses (-1). */
void kc_keeper_watch_told(struct kc_keeper *k, const char *text, int rank);

/* keeper_board.c */
void kc_keeper_drain(struct kc_keeper *k);                     /* steps, evaluations and events to files */
void kc_keeper_drain_steps(struct kc_keeper *k);               /* the first two only */
void kc_keeper_watch_abort(struct kc_keeper *k); /* whom the group's abort word names is lost, though it is still there */
void kc_keeper_notice(struct kc_keeper *k); /* ready, held, checkpoints, aborts become events and answers */
void kc_keeper_read_rank(const struct kc_reader *reader, uint32_t rank, struct kc_rank_end *end);
int kc_keeper_inherit_board(struct kc_keeper *k); /* what a lost keeper's board still holds; -ENOENT: nothing */
void kc_keeper_outcome(struct kc_keeper *k, struct kc_outcome *out);

/* keeper_skew.c */
void kc_keeper_skew_begin(struct kc_keeper *k);                /* an incarnation begins */
void kc_keeper_skew_look(struct kc_keeper *k);                 /* some times a second: who is late, to board and journal */

/* keeper_control.c */
int kc_keeper_listen(struct kc_keeper *k, int link, struct kc_error *e);
void kc_keeper_unlisten(struct kc_keeper *k);
void kc_keeper_tell(struct kc_keeper *k);                      /* kcd, of the state */
void kc_keeper_answer_unwritten(struct kc_keeper *k);          /* everybody who waits: why the end isn't recorded */
void kc_keeper_set_control(struct kc_keeper *k, uint64_t word);
void kc_keeper_answer(struct kc_keeper *k, enum kc_life_event verb, uint32_t upto, json_t *reply); /* takes reply */
void kc_keeper_do_request(struct kc_keeper *k, enum kc_life_action action, const char *note,
                          struct kc_keeper_peer *peer, json_int_t tag, enum kc_life_event verb);

#endif
