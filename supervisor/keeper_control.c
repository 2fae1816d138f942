/* keeper_control.c - requests to a keeper, and their answers when what was asked for is done. A request may carry a
 * "tag", which its reply repeats, so that one connection can have several under way. */
#include "keeper_impl.h"

#include "journal.h"
#include "protocol.h"

#include "base/clock.h"
#include "base/socket.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

/* What is answered to all from when the job has ended until its record is written. */
static json_t *unwritten(const struct kc_keeper *k)
{
    return json_pack("{s:b, s:s, s:i}", "ok", 0, "error", k->unsaved, "code", KC_EXIT_SYSTEM);
}

static void send_reply(struct kc_keeper_peer *peer, json_int_t tag, json_t *reply)
{
    if (!peer) {
        json_decref(reply);
        return;
    }
    const struct kc_keeper *k = peer->link.owner;
    if (k->unsaved[0] && !k->ended && json_is_true(json_object_get(reply, "ok"))) {
        const char *note = kc_json_text(reply, "note", "");
        json_object_set_new(reply, "note", json_sprintf("%s%sthe job's record can't be written: %s", note,
                                                        *note ? "; " : "", k->unsaved));
    }
    json_object_set_new(reply, "tag", json_integer(tag));
    kc_link_send(&peer->link, reply);
}

/* To each its own: a snapshot of an earlier step than the one that the job had when it was asked is told to be that. */
static json_t *reply_to(const struct kc_keeper_waiter *w, const json_t *reply)
{
    json_t *own = json_copy((json_t *)reply);
    const json_int_t step = kc_json_integer(reply, "step", -1);
    if (w->verb == KC_LIFE_CHECKPOINT && json_is_true(json_object_get(reply, "ok")) && step >= 0 && (uint64_t)step < w->step)
        json_object_set_new(own, "note", json_sprintf("the job was at step %llu when this was asked, and went back to step %lld "
                                                      "meanwhile: that is what is saved", (unsigned long long)w->step,
                                                      (long long)step));
    return own;
}

void kc_keeper_answer(struct kc_keeper *k, enum kc_life_event verb, uint32_t upto, json_t *reply)
{
    struct kc_keeper_waiter **at = &k->waiters, *w;
    while ((w = *at)) {
        if (w->verb != verb || (verb == KC_LIFE_CHECKPOINT && (int32_t)(upto - w->checkpoint) < 0)) {
            at = &w->next;
            continue;
        }
        *at = w->next;
        send_reply(w->peer, w->tag, reply_to(w, reply));
        free(w);
    }
    json_decref(reply);
}

static void wait_for(struct kc_keeper *k, struct kc_keeper_peer *peer, json_int_t tag, enum kc_life_event verb)
{
    struct kc_keeper_waiter *w = calloc(1, sizeof *w);
    if (!w) {
        send_reply(peer, tag, json_pack("{s:b, s:s, s:i}", "ok", 0, "error", "no memory in the keeper", "code",
                                        KC_EXIT_SYSTEM));
        return;
    }
    *w = (struct kc_keeper_waiter){.next = k->waiters, .peer = peer, .tag = tag, .verb = verb,
                                   .checkpoint = KC_CONTROL_CHECKPOINTS(k->control), .step = k->record.step};
    k->waiters = w;
    kc_keeper_hurry(k);
}

void kc_keeper_set_control(struct kc_keeper *k, uint64_t word)
{
    k->control = word;
    kc_board_control(k->board, word);
}

void kc_keeper_answer_unwritten(struct kc_keeper *k)
{
    for (struct kc_keeper_waiter *w = k->waiters, *next; w; w = next) {
        next = w->next;
        send_reply(w->peer, w->tag, unwritten(k));
        free(w);
    }
    k->waiters = NULL;
}

static json_t *ok_note(struct kc_keeper *k, const char *note)
{
    json_t *reply = json_pack("{s:b, s:I, s:s}", "ok", 1, "step", (json_int_t)k->record.step, "state",
                              kc_job_state_name[k->record.state]);
    if (note) {
        char text[200];
        snprintf(text, sizeof text, "job '%s' %s", k->record.id, note);
        json_object_set_new(reply, "note", json_string(text));
    }
    return reply;
}

static json_t *refusal(struct kc_keeper *k, const char *note)
{
    char text[200];
    snprintf(text, sizeof text, "job '%s' %s", k->record.id, note ? note : "can't do that now");
    return json_pack("{s:b, s:s, s:i}", "ok", 0, "error", text, "code", KC_EXIT_REFUSED);
}

static void hold(struct kc_keeper *k)
{
    k->record.hold = true;
    kc_keeper_save(k);
    if (!k->releasing) /* else when the ranks have said that they went on */
        kc_keeper_set_control(k, k->control | KC_CONTROL_PAUSE);
}

/* Answers itself where nobody has to wait. */
static void release(struct kc_keeper *k, const char *note, struct kc_keeper_peer *peer, json_int_t tag)
{
    bool held = k->record.state == KC_JOB_PAUSED, wanted = k->record.hold;
    k->record.hold = false;
    if (k->restart_at) {
        kc_keeper_restart_now(k);
        kc_keeper_save(k);
        send_reply(peer, tag, ok_note(k, "had still to wait; it is started again now"));
        return;
    }
    kc_keeper_set_control(k, k->control & ~KC_CONTROL_PAUSE);
    if (wanted && !held)
        kc_keeper_answer(k, KC_LIFE_PAUSE, 0, refusal(k, "was resumed before it was held"));
    if (!held) {
        kc_keeper_save(k);
        send_reply(peer, tag, ok_note(k, wanted ? "had not been held yet; it goes on" : note));
        return;
    }
    k->releasing = true;
    wait_for(k, peer, tag, KC_LIFE_RESUME);
}

void kc_keeper_do_request(struct kc_keeper *k, enum kc_life_action action, const char *note,
                          struct kc_keeper_peer *peer, json_int_t tag, enum kc_life_event verb)
{
    switch (action) {
    case KC_DO_ALREADY:
        send_reply(peer, tag, ok_note(k, note));
        break;
    case KC_DO_REFUSE:
        send_reply(peer, tag, refusal(k, note));
        break;
    case KC_DO_HOLD:
        hold(k);
        if (k->restart_at)
            send_reply(peer, tag, ok_note(k, note));
        else
            wait_for(k, peer, tag, verb);
        break;
    case KC_DO_RELEASE:
        release(k, note, peer, tag);
        break;
    case KC_DO_SAVE:
        kc_keeper_set_control(k, (k->control & ~(uint64_t)UINT32_MAX) | (uint32_t)(k->control + 1));
        wait_for(k, peer, tag, verb);
        break;
    case KC_DO_AGREE_STOP:
        k->record.stop = true;
        k->record.hold = false;
        kc_keeper_set_control(k, k->control | KC_CONTROL_STOP);
        kc_keeper_end_group(k);
        wait_for(k, peer, tag, verb);
        break;
    case KC_DO_JOIN_STOP:
        if (!k->record.stop)
            k->stop_before_end = true; /* asked while the group was being ended after a failure */
        k->record.stop = true;
        kc_keeper_save(k);
        wait_for(k, peer, tag, verb);
        break;
    default: /* not an action of a request */
        send_reply(peer, tag, refusal(k, NULL));
    }
}

static json_t *status_reply(struct kc_keeper *k)
{
    return json_pack("{s:b, s:s, s:s, s:I, s:i}", "ok", 1, "id", k->record.id, "state",
                     kc_job_state_name[k->record.state], "step", (json_int_t)k->record.step, "pid", (int)getpid());
}

static void peer_line(struct kc_link *link, json_t *object)
{
    struct kc_keeper_peer *peer = (struct kc_keeper_peer *)((char *)link - offsetof(struct kc_keeper_peer, link));
    struct kc_keeper *k = link->owner;
    json_int_t tag = kc_json_integer(object, "tag", 0);
    const char *verb = kc_json_text(object, "verb", "");
    if (strcmp(verb, "status") == 0) {
        send_reply(peer, tag, status_reply(k));
        return;
    }
    for (unsigned e = KC_LIFE_PAUSE; e <= KC_LIFE_STOP; e++) {
        if (strcmp(verb, kc_life_event_name[e]) != 0)
            continue;
        if (k->ended) {
            send_reply(peer, tag, unwritten(k));
            return;
        }
        const struct kc_life_cell *cell = kc_life_cell(k->record.state, e);
        kc_journal(k->record.directory, kc_told_name[KC_TOLD_REQUEST], json_pack("{s:s, s:s}", "verb", verb, "action",
                                                             kc_life_action_name[cell->action]));
        enum kc_job_state before = k->record.state;
        kc_keeper_do_request(k, cell->action, cell->note, peer, tag, (enum kc_life_event)e);
        if (cell->next != before && cell->next != KC_JOB_STATES)
            kc_keeper_state(k, cell->next);
        return;
    }
    send_reply(peer, tag, json_pack("{s:b, s:s, s:i}", "ok", 0, "error", "a keeper does not know this verb", "code",
                                    KC_EXIT_USAGE));
}

static void peer_close(struct kc_link *link)
{
    struct kc_keeper_peer *peer = (struct kc_keeper_peer *)((char *)link - offsetof(struct kc_keeper_peer, link));
    struct kc_keeper *k = link->owner;
    for (struct kc_keeper_waiter *w = k->waiters; w; w = w->next)
        if (w->peer == peer)
            w->peer = NULL; /* what was asked for is done all the same */
    for (struct kc_keeper_peer **at = &k->peers; *at; at = &(*at)->next) {
        if (*at == peer) {
            *at = peer->next;
            break;
        }
    }
    kc_link_free(link);
    free(peer);
}

/* unsaved: why state.json does not say so. over: it has ended, and only its record is to be written. */
static void tell(struct kc_keeper *k, struct kc_keeper_peer *peer)
{
    kc_link_send(&peer->link,
                 json_pack("{s:s, s:s, s:I, s:s, s:b}", "event", "state", "state", kc_job_state_name[k->record.state],
                           "step", (json_int_t)k->record.step, "unsaved", k->unsaved, "over", k->ended));
}

static void add_peer(struct kc_keeper *k, int fd)
{
    struct kc_keeper_peer *peer = calloc(1, sizeof *peer);
    if (!peer) {
        close(fd);
        return;
    }
    peer->link.owner = k;
    peer->link.on_line = peer_line;
    peer->link.on_close = peer_close;
    if (kc_link_open(&peer->link, &k->loop, fd) < 0) {
        free(peer);
        return;
    }
    peer->next = k->peers;
    k->peers = peer;
    tell(k, peer);
}

static void listener_ready(struct kc_source *source, uint32_t events)
{
    (void)events;
    int fd = accept4(source->fd, NULL, NULL, SOCK_CLOEXEC);
    if (fd < 0)
        return;
    if (kc_link_peer_allowed(fd))
        add_peer(source->owner, fd);
    else
        close(fd);
}

int kc_keeper_listen(struct kc_keeper *k, int link, struct kc_error *e)
{
    int n = snprintf(k->socket, sizeof k->socket, "%s/%s.sock", k->home->run, k->record.id);
    if (n < 0 || (size_t)n >= sizeof k->socket)
        return kc_fail(e, -ENAMETOOLONG, "the run directory's path is too long: %s", k->home->run);
    unlink(k->socket); /* of a keeper that was lost: the job's lock is ours */
    int fd = kc_socket_listen(k->socket);
    if (fd < 0)
        return kc_fail(e, fd, "%s can't be made: %s", k->socket, strerror(-fd));
    k->listener = (struct kc_source){.fd = fd, .ready = listener_ready, .owner = k};
    kc_loop_add(&k->loop, &k->listener, EPOLLIN);
    if (link >= 0)
        add_peer(k, link);
    return 0;
}

void kc_keeper_unlisten(struct kc_keeper *k)
{
    if (k->listener.fd >= 0) {
        unlink(k->socket);
        close(k->listener.fd);
        k->listener.fd = -1;
    }
    for (struct kc_keeper_peer *p = k->peers, *next; p; p = next) {
        next = p->next;
        kc_link_flush(&p->link, KC_SECOND);
        kc_link_free(&p->link);
        free(p);
    }
    k->peers = NULL;
    for (struct kc_keeper_waiter *w = k->waiters, *next; w; w = next) {
        next = w->next;
        free(w);
    }
    k->waiters = NULL;
}

void kc_keeper_tell(struct kc_keeper *k)
{
    for (struct kc_keeper_peer *p = k->peers; p; p = p->next)
        tell(k, p);
}
