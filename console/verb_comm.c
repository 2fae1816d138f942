/* verb_comm.c - kc comm: what the ranks of a job do together, from their flight recorders. */
#include "comms.h"
#include "replay.h"
#include "session.h"
#include "text.h"
#include "verbs.h"

#include "base/clock.h"
#include "shm/reader.h"
#include "supervisor/protocol.h"

#include <errno.h>
#include <math.h>
#include <string.h>
#include <sys/stat.h>

#define OPERATIONS 50 /* the newest, in JSON */
#define SHOWN 12      /* of them, for people */
#define STANDS 1.0    /* seconds, from which on an operation that is not done is told */

/* ---- JSON ------------------------------------------------------------------------------------------------------ */

static json_t *whole(int64_t n)
{
    return n < 0 ? json_null() : json_integer((json_int_t)n);
}

/* What an operation is, and how far its members are. Added to `o`. */
static void put_op(json_t *o, const struct comm_op *op)
{
    const bool barrier = op->primitive == KC_BARRIER;
    const bool reduces = op->primitive == KC_ALL_REDUCE || op->primitive == KC_REDUCE_SCATTER;
    const char *name = op->primitive == KC_RECV ? kc_primitive_name[KC_SEND] : kc_primitive_name[op->primitive];
    json_object_set_new(o, "operation", json_string(name));
    json_object_set_new(o, "type", barrier ? json_null() : json_string(kc_type_name[op->type]));
    json_object_set_new(o, "reduce", reduces ? json_string(kc_reduce_name[op->reduce]) : json_null());
    json_object_set_new(o, "algorithm", json_string(kc_algorithm_name[op->algorithm]));
    json_object_set_new(o, "root", whole(op->peer));
    json_object_set_new(o, "bytes", json_integer((json_int_t)op->bytes));
    json_object_set_new(o, "sequence", json_integer((json_int_t)op->sequence));
    json_object_set_new(o, "step", json_integer((json_int_t)op->step));
    json_object_set_new(o, "members", json_integer(op->members));
    json_object_set_new(o, "enqueued", json_integer(op->enqueued));
    json_object_set_new(o, "started", json_integer(op->started));
    json_object_set_new(o, "done", json_integer(op->done));
    json_object_set_new(o, "unknown", json_integer(op->unknown));
}

static json_t *members_json(const struct comm_channel *c)
{
    json_t *list = json_array();
    for (int i = 0; i < c->members; i++) {
        const struct comm_member *m = &c->member[i];
        json_array_append_new(list, json_pack("{s:i, s:o, s:s, s:b, s:b}", "rank", m->rank, "sequence", whole(m->sequence), "place",
                                              comm_place_name[m->place], "gone", m->gone, "unread", m->unread));
    }
    return list;
}

static json_t *channel_json(const struct comms *c, const struct comm_channel *x)
{
    char text[COMM_TEXT];
    const struct comm_op *newest = comm_newest(x);
    json_t *o = json_pack("{s:o, s:o, s:I, s:o, s:o}", "channel", session_text(comm_channel_text(x, text, sizeof text)), "group",
                          session_text(x->name), "group_id", (json_int_t)x->group, "from", whole(x->from), "to", whole(x->to));
    put_op(o, newest);
    json_object_set_new(o, "done_sequence", whole(x->done));
    json_object_set_new(o, "stands_seconds", x->since ? kc_json_number((double)(c->now - x->since) * 1e-9) : json_null());
    json_object_set_new(o, "waits_for", whole(comm_waits_for(newest)));
    json_object_set_new(o, "measured", json_integer(x->whole));
    json_object_set_new(o, "wait_seconds", kc_json_number(x->waits));
    json_object_set_new(o, "seconds", kc_json_number(x->seconds));
    json_object_set_new(o, "bytes_per_second", kc_json_number(x->rate));
    json_object_set_new(o, "slowest", whole(x->slowest));
    json_object_set_new(o, "late_seconds", kc_json_number(x->late));
    json_object_set_new(o, "slowest_times", x->slowest < 0 ? json_null() : json_integer(x->lasts));
    json_object_set_new(o, "ranks", members_json(x));
    return o;
}

static json_t *op_json(const struct comms *c, const struct comm_channel *x, const struct comm_op *op)
{
    char text[COMM_TEXT];
    json_t *o = json_pack("{s:o}", "channel", session_text(comm_channel_text(x, text, sizeof text)));
    put_op(o, op);
    json_object_set_new(o, "failed", json_integer(op->failed));
    json_object_set_new(o, "ago_seconds", op->first ? kc_json_number((double)(c->now - op->first) * 1e-9) : json_null());
    json_object_set_new(o, "wait_seconds", kc_json_number(comm_op_waits(op, c->now)));
    json_object_set_new(o, "seconds", kc_json_number(comm_op_seconds(op, c->now)));
    json_object_set_new(o, "last", whole(op->last));
    json_object_set_new(o, "late_seconds", kc_json_number(op->late));
    return o;
}

/* ---- text ------------------------------------------------------------------------------------------------------ */

static void print_channels(const struct comms *c, FILE *out)
{
    fprintf(out, "%-18s %-22s %9s %8s  %-10s %8s %8s %10s  %s\n", "CHANNEL", "OPERATION", "SIZE", "SEQUENCE", "NEWEST", "WAITS", "TAKES",
            "RATE", "SLOWEST");
    for (size_t i = 0; i < c->channels; i++) {
        const struct comm_channel *x = &c->channel[i];
        const struct comm_op *o = comm_newest(x);
        char name[COMM_TEXT], op[COMM_TEXT], size[32], place[48], waits[32], takes[32], rate[32], slow[64] = "-", late[32];
        if (x->slowest >= 0)
            snprintf(slow, sizeof slow, "rank %d, +%s", x->slowest, text_seconds(x->late, late, sizeof late));
        snprintf(rate, sizeof rate, "%s%s", text_bytes(x->rate, late, sizeof late), isnan(x->rate) ? "" : "/s");
        fprintf(out, "%-18s %-22s %9s %8llu  %-10s %8s %8s %10s  %s\n", comm_channel_text(x, name, sizeof name),
                comm_op_text(o, op, sizeof op), text_bytes((double)o->bytes, size, sizeof size), (unsigned long long)o->sequence,
                comm_place_text(o, place, sizeof place),
                text_seconds(x->waits, waits, sizeof waits), text_seconds(x->seconds, takes, sizeof takes), rate, slow);
    }
}

/* What has not ended for a while, with whom it waits for. */
static void print_standing(const struct comms *c, FILE *out)
{
    for (size_t i = 0; i < c->channels; i++) {
        char line[200];
        if (comm_stands_text(c, &c->channel[i], STANDS, line, sizeof line))
            fprintf(out, "%s\n", line);
    }
}

static void print_operations(const struct comms *c, FILE *out)
{
    struct comm_at at[SHOWN];
    const int n = comms_last(c, at, SHOWN);
    fprintf(out, "\n%-18s %8s %-22s %9s %9s %8s %8s  %s\n", "LAST OPERATIONS", "SEQUENCE", "OPERATION", "SIZE", "AGO", "WAITED", "TOOK",
            "LAST TO COME");
    for (int i = 0; i < n; i++) {
        const struct comm_op *o = at[i].op;
        char name[COMM_TEXT], op[COMM_TEXT], size[32], ago[32], waited[32], took[32], last[48] = "-";
        if (o->last >= 0)
            snprintf(last, sizeof last, "rank %d%s", o->last, o->came_last ? "" : ", not yet");
        fprintf(out, "%-18s %8llu %-22s %9s %9s %8s %8s  %s\n", comm_channel_text(at[i].channel, name, sizeof name),
                (unsigned long long)o->sequence, comm_op_text(o, op, sizeof op), text_bytes((double)o->bytes, size, sizeof size),
                text_seconds(o->first ? (double)(c->now - o->first) * 1e-9 : NAN, ago, sizeof ago),
                text_seconds(comm_op_waits(o, c->now), waited, sizeof waited),
                text_seconds(comm_op_seconds(o, c->now) - comm_op_waits(o, c->now), took, sizeof took), last);
    }
}

/* ---- where it is read ------------------------------------------------------------------------------------------ */

/* What was asked for. `board` NULL: it left none, and `note` says why. */
struct subject {
    struct kc_reader *board;
    struct kc_job_facts facts;
    uint64_t wall;            /* of a recording's moment; 0 */
    char note[JOB_ID_ROOM + 400];
};

static int open_job(struct session *s, const char *id, struct subject *u, struct kc_error *e)
{
    struct job j;
    int rc = job_read(&s->home, id, &j, e);
    if (rc)
        return rc;
    snprintf(u->facts.id, sizeof u->facts.id, "%s", j.id);
    if (j.board_error)
        rc = kc_fail(e, j.board_error, "%s", j.board_text);
    else if (j.board)
        rc = kc_reader_attach(*j.instance ? j.instance : s->home.instance, j.id, &u->board, e);
    else
        snprintf(u->note, sizeof u->note, "%s is %s and has no board. As it was: kc comm %s --at 0", j.id, job_state_text(&j), j.id);
    job_free(&j);
    return rc;
}

static int open_recording(struct session *s, const char *what, const char *when, struct subject *u, struct kc_error *e)
{
    struct replay r;
    int rc = replay_open(&s->home, what, &r, e);
    if (rc)
        return rc;
    if (when)
        rc = replay_seek(&r, when, e);
    if (!rc)
        rc = replay_board(&r, &u->board, e);
    u->wall = r.wall;
    replay_close(&r);
    return rc;
}

static int open_file(const char *path, struct subject *u, struct kc_error *e)
{
    char board[JOB_PATH_ROOM];
    struct stat st;
    const bool folder = stat(path, &st) == 0 && S_ISDIR(st.st_mode);
    snprintf(board, sizeof board, folder ? "%.*s/board" : "%.*s", JOB_PATH_ROOM - 16, path);
    return kc_reader_open(board, &u->board, e);
}

static int open_any(struct session *s, const struct arguments *a, struct subject *u, struct kc_error *e)
{
    const char *what = a->word[0], *when = a->option[OPTION_AT];
    struct kc_error other;
    int rc = when                 ? open_recording(s, what, when, u, e)
             : !strchr(what, '/') ? open_job(s, what, u, e)
                                  : open_file(what, u, e);
    if (rc && !when && strchr(what, '/'))
        rc = open_recording(s, what, NULL, u, &other) == 0 ? 0 : rc;
    if (!rc && u->board)
        kc_reader_facts(u->board, &u->facts);
    return rc;
}

/* ---- the verb -------------------------------------------------------------------------------------------------- */

static int answer_json(struct session *s, const struct subject *u, const struct comms *c)
{
    struct comm_at at[OPERATIONS];
    const int n = comms_last(c, at, OPERATIONS);
    char wall[32];
    json_t *o = session_envelope(s), *groups = json_array(), *operations = json_array();
    kc_wall_text(u->wall, wall);
    for (size_t i = 0; i < c->channels; i++)
        json_array_append_new(groups, channel_json(c, &c->channel[i]));
    for (int i = 0; i < n; i++)
        json_array_append_new(operations, op_json(c, at[i].channel, at[i].op));
    json_object_set_new(o, "id", session_text(u->facts.id));
    json_object_set_new(o, "at", u->wall ? json_string(wall) : json_null());
    json_object_set_new(o, "ranks", json_integer(c->ranks));
    json_object_set_new(o, "unread", json_integer(c->unread));
    json_object_set_new(o, "missing", json_integer(c->missing));
    json_object_set_new(o, "groups", groups);
    json_object_set_new(o, "operations", operations);
    return session_emit(s, o);
}

static int answer_text(struct session *s, const struct subject *u, const struct comms *c)
{
    struct draft d;
    FILE *out = draft_open(&d);
    char wall[32];
    kc_wall_text(u->wall, wall);
    if (!out)
        return session_fail(s, KC_EXIT_SYSTEM, "no memory for the page");
    if (u->wall)
        fprintf(out, "as it was at %s\n", wall);
    print_channels(c, out);
    print_standing(c, out);
    print_operations(c, out);
    return draft_close(s, &d);
}

int verb_comm(struct session *s, const struct arguments *a)
{
    struct subject u = {0};
    struct comms c = {0};
    struct kc_error e = {""};
    int code = KC_EXIT_OK;
    int rc = open_any(s, a, &u, &e);
    if (!rc && u.board)
        rc = comms_read(u.board, &c, &e);
    if (rc)
        code = session_fail(s, session_code(rc), "%s", e.text);
    else if (*u.note)
        session_note(s, "%s", u.note);
    else if (!c.channels)
        session_note(s, "%s: no rank has begun an operation with others%s", *u.facts.id ? u.facts.id : a->word[0],
                     c.ranks == 1 ? ": it has one rank alone" : "");
    if (!rc && (s->json || s->listing))
        code = answer_json(s, &u, &c);
    else if (!rc && c.channels)
        code = answer_text(s, &u, &c);
    if (!rc && code == KC_EXIT_OK && c.unread) {
        session_note(s, "%d of %d ranks could not be read", c.unread, c.ranks);
        code = KC_EXIT_INCOMPLETE;
    }
    comms_free(&c);
    kc_reader_free(u.board);
    return code;
}
