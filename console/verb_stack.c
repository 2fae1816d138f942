/* verb_stack.c - kc stack: where the threads of a job's ranks stand, all in one tree. */
#include "follow.h"
#include "console/hang/take.h"
#include "console/hang/tree.h"
#include "report.h"
#include "session.h"
#include "verbs.h"

#include "base/clock.h"
#include "shm/reader.h"
#include "supervisor/protocol.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LIMIT_DEFAULT (10 * KC_SECOND)

/* ---- JSON --------------------------------------------------------------------------------------------------------- */

static json_t *name_or_null(const char *const *name, int i)
{
    return name[i] ? json_string(name[i]) : json_null();
}

static json_t *ranks_json(const struct kc_tree_set *s)
{
    json_t *a = json_array();
    for (uint32_t r = 0; r < KC_RANKS_MAX; r++)
        if (kc_tree_has(s, r))
            json_array_append_new(a, json_integer(r));
    return a;
}

static json_t *function_json(const struct kc_symbol *s)
{
    char room[16], offset[32];
    kc_tree_room(s->ours ? s->file : "", room);
    snprintf(offset, sizeof offset, "0x%llx", (unsigned long long)s->offset);
    return json_pack("{s:o, s:o, s:s, s:o, s:o, s:b}", "function", session_text(s->function), "module",
                     session_text(s->module), "offset", offset, "file", session_text(s->file), "room", session_text(room),
                     "inlined", s->inlined);
}

static json_t *node_json(const struct kc_tree *t, uint32_t i)
{
    const struct kc_tree_node *n = &t->node[i];
    json_t *o = n->symbol == KC_TREE_NONE ? json_pack("{s:o}", "thread", session_text(n->name))
                                          : function_json(&t->stacks->symbol[n->symbol]);
    json_t *children = json_array(), *lines = json_array();
    json_t *states = json_array();
    for (uint32_t k = 0; k < n->states; k++) {
        char state[2] = {n->end[k].state, 0};
        json_array_append_new(states, json_pack("{s:o, s:o}", "state", session_text(state), "ranks", ranks_json(&n->end[k].ranks)));
    }
    for (uint32_t k = 0; k < n->lines && k < KC_TREE_LINES; k++)
        json_array_append_new(lines, json_integer(n->line[k]));
    for (uint32_t c = n->child; c != KC_TREE_NONE; c = t->node[c].next)
        json_array_append_new(children, node_json(t, c));
    json_object_set_new(o, "lines", lines);
    json_object_set_new(o, "ranks", ranks_json(&n->ranks));
    json_object_set_new(o, "threads", json_integer(n->threads));
    json_object_set_new(o, "ends", json_integer(n->ends));
    json_object_set_new(o, "looks", json_integer(n->looks));
    json_object_set_new(o, "states", states);
    json_object_set_new(o, "children", children);
    return o;
}

static json_t *rank_json(const struct kc_tree *t, uint32_t i)
{
    static const char *const words[] = {[KC_TREE_UNKNOWN] = NULL, [KC_TREE_STUCK] = "stuck", [KC_TREE_MOVES] = "moves"};
    const struct kc_stack_rank *r = &t->stacks->rank[i];
    uint32_t at = t->rank[i].at;
    return json_pack("{s:i, s:i, s:i, s:b, s:o, s:o, s:o}", "rank", (int)r->rank, "pid", (int)r->pid, "threads",
                     (int)r->threads, "moved", r->moved, "word", name_or_null(words, t->rank[i].word), "at",
                     at < t->stacks->symbols ? function_json(&t->stacks->symbol[at]) : json_null(), "text",
                     session_text(r->text));
}

/* Every thread of the last look, also those without a stack. */
static json_t *threads_json(const struct kc_stacks *s)
{
    static const char *const ways[] = {[KC_STACK_HELD] = "held",   [KC_STACK_ASKED] = "asked", [KC_STACK_WORDS] = "words",
                                       [KC_STACK_SKIPPED] = "skipped", [KC_STACK_LATE] = "late",   [KC_STACK_GONE] = "gone",   [KC_STACK_REFUSED] = "refused"};
    json_t *a = json_array();
    for (size_t i = 0; i < s->stacks; i++) {
        const struct kc_stack *x = &s->stack[i];
        char state[2] = {x->state, 0};
        if (x->look + 1 == s->looks)
            json_array_append_new(a, json_pack("{s:i, s:i, s:o, s:o, s:s, s:f, s:i, s:b, s:o}", "rank", (int)x->rank, "tid", (int)x->tid,
                                               "name", session_text(x->name), "state", session_text(state), "way", ways[x->way],
                                               "held_seconds", (double)x->held / 1e9, "frames", (int)x->count, "cut", x->cut,
                                               "where", session_text(x->where)));
    }
    return a;
}

static int emit_json(struct session *s, const char *id, const struct kc_tree *t)
{
    json_t *o = session_envelope(s), *ranks = json_array(), *tree = json_array();
    for (uint32_t i = 0; i < t->stacks->ranks; i++)
        json_array_append_new(ranks, rank_json(t, i));
    for (uint32_t i = t->first; i != KC_TREE_NONE; i = t->node[i].next)
        json_array_append_new(tree, node_json(t, i));
    json_object_set_new(o, "id", json_string(id));
    json_object_set_new(o, "looks", json_integer(t->stacks->looks));
    json_object_set_new(o, "seconds", json_real((double)t->stacks->seconds_ns / 1e9));
    json_object_set_new(o, "ranks", ranks);
    json_object_set_new(o, "threads", threads_json(t->stacks));
    json_object_set_new(o, "tree", tree);
    return session_emit(s, o);
}

/* ---- the verb ----------------------------------------------------------------------------------------------------- */

static int print_text(struct session *s, const char *title, const struct kc_tree *t)
{
    struct draft d;
    FILE *out = draft_open(&d);
    if (!out)
        return session_fail(s, KC_EXIT_SYSTEM, "no memory for the stacks");
    kc_tree_print(t, title, out);
    return draft_close(s, &d);
}

/* Which ranks gave nothing; 6 if some, 5 if none did. */
static int judge(struct session *s, const struct kc_stacks *k)
{
    uint32_t without = 0;
    const struct kc_stack_rank *first = NULL;
    for (uint32_t i = 0; i < k->ranks; i++) {
        size_t n = 0;
        while (n < k->stacks && (k->stack[n].rank != k->rank[i].rank || k->stack[n].count == 0))
            n++;
        without += n == k->stacks;
        first = !first && n == k->stacks ? &k->rank[i] : first;
    }
    if (!without)
        return KC_EXIT_OK;
    return session_fail(s, without == k->ranks ? KC_EXIT_REFUSED : KC_EXIT_INCOMPLETE, "%u of %u ranks showed no stack; rank %u: %s",
                        without, k->ranks, first->rank, *first->text ? first->text : "nothing was to be seen");
}

/* Takes the stacks. */
static int show(struct session *s, const char *id, const char *title, struct kc_stacks *stacks)
{
    struct kc_tree *tree = NULL;
    int code = kc_tree_make(stacks, &tree) ? session_fail(s, KC_EXIT_SYSTEM, "no memory for the stacks")
               : s->json                   ? emit_json(s, id, tree)
                                           : print_text(s, title, tree);
    if (!code)
        code = judge(s, stacks);
    kc_tree_free(tree);
    kc_stacks_free(stacks);
    return code;
}

/* Where ranks were when they died of a signal; 5 where none did. `why`: what there is instead of more. */
static int show_words(struct session *s, struct kc_reader *board, const char *id, int rank, const char *why)
{
    struct kc_stacks *stacks = NULL;
    struct kc_error e = {""};
    char title[600];
    int rc = kc_take_words(board, rank, NULL, &stacks, &e);
    if (rc)
        return session_fail(s, session_code(rc), "%s: %s", id, e.text);
    if (stacks->ranks == 0) {
        kc_stacks_free(stacks);
        return session_fail(s, KC_EXIT_REFUSED, "%s: %s, and no rank left a stack by dying of a signal", id, why);
    }
    snprintf(title, sizeof title, "%s, last words of ranks", id);
    return show(s, id, title, stacks);
}

static int look(struct session *s, const struct job *j, int rank, uint64_t limit)
{
    struct kc_reader *board = NULL;
    struct kc_stacks *stacks = NULL;
    struct kc_error e = {""};
    char title[JOB_ID_ROOM + 32];
    int rc = kc_reader_attach(*j->instance ? j->instance : s->home.instance, j->id, &board, &e);
    if (rc)
        return session_fail(s, session_code(rc), "%s", e.text);
    rc = kc_take(board, rank, limit, &stacks, &e);
    int code = KC_EXIT_OK;
    snprintf(title, sizeof title, "%s%s", j->id, j->state == KC_JOB_PAUSED ? " (paused)" : "");
    if (rc == -ESRCH) {
        code = show_words(s, board, j->id, rank, e.text);
    } else if (rc) {
        code = session_fail(s, session_code(rc), "%s: %s", j->id, e.text);
    } else if (interrupt_seen()) {
        kc_stacks_free(stacks);
        code = interrupt_told(s, j->id);
    } else {
        code = show(s, j->id, title, stacks);
    }
    kc_reader_free(board);
    return code;
}

/* A saved board, or the folder of a postmortem, which has one. */
static int look_into(struct session *s, const char *file)
{
    struct kc_reader *board = NULL;
    struct kc_job_facts facts = {.id = ""};
    struct kc_error e = {""};
    struct stat st;
    char path[PATH_MAX];
    bool folder = stat(file, &st) == 0 && S_ISDIR(st.st_mode);
    snprintf(path, sizeof path, "%s%s", file, folder ? "/board" : "");
    int rc = kc_reader_open(path, &board, &e);
    if (rc)
        return session_fail(s, session_code(rc), "%s", e.text);
    kc_reader_facts(board, &facts);
    int code = show_words(s, board, *facts.id ? facts.id : file, -1, "a saved board has no processes to look at");
    kc_reader_free(board);
    return code;
}

int verb_stack(struct session *s, const struct arguments *a)
{
    struct kc_error e = {""};
    struct job j;
    char id[JOB_ID_ROOM];
    uint64_t limit = LIMIT_DEFAULT;
    int rank, code = KC_EXIT_OK;
    if (strchr(a->word[0], '/') && access(a->word[0], F_OK) == 0)
        return look_into(s, a->word[0]);
    if (argument_target(a->word[0], "stack", id, sizeof id, &rank, &e) ||
        (a->option[OPTION_TIMEOUT] && duration_parse(a->option[OPTION_TIMEOUT], &limit, &e)))
        return session_fail(s, KC_EXIT_USAGE, "%s", e.text);
    int rc = job_read(&s->home, id, &j, &e);
    if (rc)
        return session_fail(s, session_code(rc), "%s", e.text);
    interrupt_catch();
    if (j.board_error)
        code = session_fail(s, j.board_error == -EPROTO ? KC_EXIT_VERSION : KC_EXIT_INCOMPLETE, "%s", j.board_text);
    else if (!j.board && *j.host && strcmp(j.host, s->home.host) != 0)
        code = session_fail(s, KC_EXIT_REFUSED, "%s is %s on %s, and its ranks are there: run kc stack there", j.id,
                            job_state_text(&j), j.host);
    else if (!j.board)
        code = session_fail(s, KC_EXIT_REFUSED, "%s is %s: no rank of it runs now", j.id, job_state_text(&j));
    else
        code = look(s, &j, rank, limit);
    job_free(&j);
    return code;
}
