/* look_logs.c - what the screen reads of logs, events and the node. */
#include "screen_impl.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define NODE_EVERY (2 * KC_SECOND)

void look_log(struct screen *x, const struct job *j, unsigned needs)
{
    const struct view *v = &x->view;
    if (needs & (NEED_EVENTS | NEED_LOG)) /* a log's first error is of the ranks that run */
        events_read(&x->events, j->id, j->directory);
    if (needs & NEED_LOG)
        x->more |= log_tail_read(&x->log, j, v->log_rank, v->replay.on ? v->replay.wall : 0, &x->events);
}

void look_newest(struct screen *x)
{
    events_newest_look(&x->newest);
    for (size_t i = 0; i < x->model.count; i++)
        events_newest_of(&x->newest, x->model.job[i].id, x->model.job[i].directory);
}

static void take_node(struct screen *x)
{
    struct view *v = &x->view;
    struct node n;
    const int rc = x->asked_node.error[0] ? -EIO : node_of_json(x->asked_node.json, &n);
    if (rc) {
        snprintf(v->node_trouble, sizeof v->node_trouble, "%.255s", *x->asked_node.error ? x->asked_node.error : strerror(-rc));
        return;
    }
    node_free(&x->node);
    x->node = n;
    v->node = &x->node;
    v->node_trouble[0] = 0;
}

void look_node(struct screen *x)
{
    struct answer *a = &x->asked_node;
    if (answer_read(a))
        take_node(x);
    if (!a->pid && (!a->asked || kc_now() - a->asked >= NODE_EVERY))
        answer_ask(a, "node");
    x->view.node_age = a->came ? (double)(kc_now() - a->came) * 1e-9 : 0;
}

void look_logs_free(struct screen *x)
{
    log_tail_free(&x->log);
    events_newest_free(&x->newest);
    answer_free(&x->asked_node);
    node_free(&x->node);
}
