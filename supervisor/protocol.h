/* protocol.h - what kc says to kcd, and kcd to a keeper: one JSON object a line over a UNIX stream socket, one reply a
 * request, in order. Requests: {"verb":"…", "job":"id", …}. Replies: {"ok":true, …} or {"ok":false,"error":"one line",
 * "code":N} with N from exit_codes below. A reply may be late (pause, checkpoint, stop answer when done); the peer may
 * hang up any time, which cancels nothing. A connection has one request under way: the next line waits for its reply.
 *
 * verb        to       fields                         reply                        answers
 * hello       kcd      -                              pid, instance, home, version at once
 * start       kcd      spec (object, complete), dir   job (id)                     when the job is recorded
 * list        kcd      -                              jobs [{id,state}]            at once
 * devices     kcd      -                              -                            when it has looked at the devices again
 * pause       kcd,kp   job                            step                         when held at the step
 * resume      kcd,kp   job                            step                         when running (or queued) again
 * checkpoint  kcd,kp   job                            step, version, path          when committed
 * stop        kcd,kp   job                            step, state                  when ended and nothing is left
 * remove      kcd      job                            -                            when its directory is gone
 * shutdown    kcd      detach (bool)                  -                            when every job has ended (or was left)
 * status      kp       -                              id, state, step, pid         at once
 *
 * A request that finds its work done, or that can't be done before the job has devices, is ok with a "note" for a
 * person. The reply to stop is not ok, with code 1, if the job failed instead of stopping, and with code 10 if its last
 * snapshot failed; it has a "failure" (one line) whenever one happened. The paths are those of base/home.h.
 *
 * Between kcd and a keeper several requests are under way at once: a request has a "tag" (number), which its reply
 * repeats, and a keeper also sends {"event":"state","state":"…","step":N} whenever its job's state has changed. */
#ifndef KC_SUPERVISOR_PROTOCOL_H
#define KC_SUPERVISOR_PROTOCOL_H

/* Exit codes of kc, kcd and kc-rank, and "code" of replies: one table (kc(1) prints it). */
#define KC_EXIT_TABLE(X)                                                                                               \
    X(EXIT_OK, 0, "done; also when it was done already, with a note")                                                  \
    X(EXIT_FALSE, 1, "the condition is false, or the job that was waited for failed, or it hangs")                     \
    X(EXIT_USAGE, 2, "wrong use: unknown verb, flag or argument")                                                      \
    X(EXIT_ABSENT, 3, "no supervisor answers")                                                                         \
    X(EXIT_NO_OBJECT, 4, "no such job, snapshot, file or device")                                                      \
    X(EXIT_REFUSED, 5, "refused: state, policy or permission forbids it")                                              \
    X(EXIT_INCOMPLETE, 6, "answered, but incomplete")                                                                  \
    X(EXIT_TIMEOUT, 7, "the time-out passed first")                                                                    \
    X(EXIT_VERSION, 8, "a board, snapshot or socket of another version")                                               \
    X(EXIT_INVALID, 9, "bad input: spec, data, snapshot")                                                              \
    X(EXIT_SYSTEM, 10, "the system refused: memory, disk, permission of a file")                                       \
    X(EXIT_INTERRUPTED, 130, "ended by Ctrl-C; jobs go on")
#define KC_EXIT_ROW(id, code, help) KC_##id = code,
enum kc_exit { KC_EXIT_TABLE(KC_EXIT_ROW) };

/* What the keeper names its memory object for the copies of a rank: the job's id, the rank. Who may read the keeper's files
 * finds it there as "/memfd:" and this name. */
#define KC_COPY_NAME "kc-copy.%s.%u"

/* What kcd has kc write into a folder for others (kc metrics --textfile), and in a job's folder the file of the times of its logs
 * (log_times.h), which a keeper writes and kc reads. */
#define KC_FIGURES_FILE "kuangchao.prom"
#define KC_LOG_TIMES_FILE "log-times"
#define KC_LOG_TIMES_OLD ".1" /* behind it: the one before */

/* A message's longest line; a spec fits. */
#define KC_MESSAGE_MAX (2u << 20)

#endif
