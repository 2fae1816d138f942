/* look_keep.c - what is read for the views of snapshots and of governance. Manifests on a slow disk, and the checker, are for another
 * kc (answer.h): nobody waits for them here. */
#include "screen_impl.h"

#include "console/words.h"

#include "shm/reader.h"

#include <stdio.h>
#include <string.h>

#define STALE (30 * KC_SECOND) /* so old a list is asked for again … */
#define SOON (2 * KC_SECOND)   /* … or, where it was about to change, after this */

/* ---- snapshots ---- */

static void take_chain(struct look_keep *k)
{
    struct chain fresh;
    if (!answer_read(&k->snapshots) || *k->snapshots.error || !k->snapshots.json || chain_of_json(k->snapshots.json, &fresh) < 0)
        return;
    chain_free(&k->chain);
    k->chain = fresh;
}

/* Copies in memory go with it. */
static int64_t keeper_of(const struct job *j)
{
    return j->keeper_alive ? j->keeper : -1;
}

/* The board tells of a version that the list lacks, one is being written, or it is long ago. */
static bool is_due(const struct screen *x, const struct look_keep *k, const struct job *j)
{
    const uint64_t age = kc_now() - k->snapshots.asked;
    const double stage = j->ranks_known ? j->rank[0].metric[KC_METRIC_SNAPSHOT_STAGE] : 0;
    if (x->again || strcmp(k->asked_of, j->id) != 0 || k->version != j->snapshot.version || k->keeper != keeper_of(j))
        return true;
    return age > STALE || (stage > KC_SAVING_NONE && age > SOON);
}

static void ask_snapshots(struct screen *x, const struct job *j)
{
    struct look_keep *k = &x->keep;
    char statement[JOB_ID_ROOM + 16];
    take_chain(k);
    if (k->snapshots.pid || !is_due(x, k, j))
        return;
    snprintf(statement, sizeof statement, "snap ls %s", j->id);
    if (answer_ask(&k->snapshots, statement) < 0)
        return;
    snprintf(k->asked_of, sizeof k->asked_of, "%s", j->id);
    k->version = j->snapshot.version;
    k->keeper = keeper_of(j);
}

void look_snapshots(struct screen *x, const struct job *j)
{
    struct look_keep *k = &x->keep;
    struct view *v = &x->view;
    struct kc_reader *board = x->replay ? look_board(x) : NULL;
    struct chain then;
    if (!x->replay) {
        ask_snapshots(x, j);
    } else if (board && chain_of_board(board, j->id, &then) == 0) {
        chain_free(&k->chain);
        k->chain = then;
    }
    v->kept.chain = k->chain.row ? &k->chain : NULL;
    v->kept.came = k->snapshots.came;
    v->kept.wall = (double)(x->replay ? v->replay.wall : kc_wall()) * 1e-9;
    v->kept.trouble = k->snapshots.error;
}

/* ---- governance ---- */

static void look_at_rules(struct screen *x)
{
    struct look_keep *k = &x->keep;
    char root[JOB_PATH_ROOM], word[2 * JOB_PATH_ROOM], statement[2 * JOB_PATH_ROOM + 32];
    if (!k->borders.rules && borders_new(kc_wall(), &k->borders) < 0)
        return;
    if (answer_read(&k->rules)) {
        if (k->rules.json && !*k->rules.error)
            borders_take(&k->borders, k->rules.json);
        else
            snprintf(k->borders.why, sizeof k->borders.why, "%s", k->rules.error);
    }
    if (!k->rules.pid && (x->again || !k->rules.asked) && borders_root(root, sizeof root)) {
        words_quote(root, word, sizeof word);
        snprintf(statement, sizeof statement, "boundary check --root %s", word);
        answer_ask(&k->rules, statement);
    }
}

/* A long journal takes more looks than one. */
static void look_at_deeds(struct screen *x, const struct job *j)
{
    struct look_keep *k = &x->keep;
    if (strcmp(k->governed, j->id) != 0) {
        governance_free(&k->governance);
        snprintf(k->governed, sizeof k->governed, "%s", j->id);
    }
    x->more |= governance_read(j, &k->governance);
}

void look_govern(struct screen *x, const struct job *j)
{
    struct look_keep *k = &x->keep;
    struct view *v = &x->view;
    look_at_rules(x);
    if (x->replay)
        governance_count(j, &k->governance);
    else
        look_at_deeds(x, j);
    v->borders = k->borders.rules ? &k->borders : NULL;
    v->checking = k->rules.pid != 0;
    v->governance = &k->governance;
}

void look_keep_free(struct look_keep *k)
{
    answer_free(&k->snapshots);
    answer_free(&k->rules);
    chain_free(&k->chain);
    borders_free(&k->borders);
    governance_free(&k->governance);
}
