/* kcd_verbs.c - what clients ask for. Each connection has one request at a time under way; replies come in order. */
#include "kcd_impl.h"

#include "ids.h"
#include "protocol.h"

#include "base/clock.h"
#include "base/socket.h"
#include "base/version.h"

#include <dirent.h>
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

void kc_kcd_reply(struct kc_kcd_client *client, json_t *reply)
{
    if (!client) {
        json_decref(reply);
        return;
    }
    kc_link_send(&client->link, reply);
    kc_link_hold(&client->link, false);
}

json_t *kc_kcd_no(int code, const char *text)
{
    return json_pack("{s:b, s:s, s:i}", "ok", 0, "error", text, "code", code);
}

/* A job whose record can't be written is served all the same, and that is said. */
json_t *kc_kcd_with_trouble(const struct kc_kcd_job *job, json_t *reply)
{
    const char *note = kc_json_text(reply, "note", "");
    if (job->unsaved[0])
        json_object_set_new(reply, "note", json_sprintf("%s%sits record can't be written: %s", note, *note ? "; " : "",
                                                        job->unsaved));
    return reply;
}

json_t *kc_kcd_about(const struct kc_record *r, bool ok, const char *note)
{
    char text[200];
    snprintf(text, sizeof text, "job '%s' %s", r->id, note ? note : "can't do that now");
    if (!ok)
        return kc_kcd_no(KC_EXIT_REFUSED, text);
    json_t *reply =
        json_pack("{s:b, s:I, s:s}", "ok", 1, "step", (json_int_t)r->step, "state", kc_job_state_name[r->state]);
    if (note)
        json_object_set_new(reply, "note", json_string(text));
    return reply;
}

int kc_kcd_code(int error)
{
    switch (error) {
    case -EINVAL:
    case -ERANGE: /* more devices than this machine has: a spec that never fits */
        return KC_EXIT_INVALID;
    case -EBUSY:
        return KC_EXIT_REFUSED;
    case -ENOENT:
        return KC_EXIT_NO_OBJECT;
    default:
        return KC_EXIT_SYSTEM;
    }
}

/* ---- jobs ---- */

static json_t *list(struct kc_kcd *d)
{
    char path[PATH_MAX];
    json_t *jobs = json_array();
    snprintf(path, sizeof path, "%s/jobs", d->home->home);
    DIR *dir = opendir(path);
    for (struct dirent *entry; dir && (entry = readdir(dir));) {
        struct kc_record r;
        char one[PATH_MAX];
        if (!kc_id_valid(entry->d_name) ||
            (size_t)snprintf(one, sizeof one, "%s/jobs/%s", d->home->home, entry->d_name) >= sizeof one ||
            kc_record_read(one, &r, NULL) < 0)
            continue;
        json_array_append_new(jobs, json_pack("{s:s, s:s}", "id", r.id, "state", kc_job_state_name[r.state]));
    }
    if (dir)
        closedir(dir);
    return json_pack("{s:b, s:o}", "ok", 1, "jobs", jobs);
}

/* A job that has ended, or is not ours. */
static json_t *ask_ended(struct kc_kcd *d, const char *id, enum kc_life_event event)
{
    char path[PATH_MAX], text[320];
    struct kc_record r;
    struct kc_error e = {""};
    if (!kc_id_valid(id) || (size_t)snprintf(path, sizeof path, "%s/jobs/%s", d->home->home, id) >= sizeof path ||
        kc_record_read(path, &r, &e) < 0) {
        snprintf(text, sizeof text, "there is no job '%.60s'; kc ps lists them", id);
        return kc_kcd_no(KC_EXIT_NO_OBJECT, text);
    }
    const struct kc_life_cell *cell = kc_life_cell(r.state, event);
    if (!kc_record_ended(&r)) {
        snprintf(text, sizeof text, "job '%s' belongs to instance '%s' on host '%s'; ask there", r.id, r.instance,
                 r.host);
        return kc_kcd_no(KC_EXIT_REFUSED, text);
    }
    /* What a job finished with is not on disk if its last snapshot failed: then the steps since the one before are to be done. */
    const bool lacks = event == KC_LIFE_RESUME && r.state == KC_JOB_FINISHED && r.exit_code != 0;
    if (cell->action == KC_DO_REQUEUE || lacks)
        return kc_kcd_requeue(d, &r);
    if (cell->action == KC_DO_DELETE) {
        int code = kc_id_remove(d->home->home, r.id, &e);
        return code < 0 ? kc_kcd_no(kc_kcd_code(code), e.text) : json_pack("{s:b}", "ok", 1);
    }
    return kc_kcd_about(&r, cell->action == KC_DO_ALREADY, cell->note);
}

static void wait_for(struct kc_kcd_job *job, struct kc_kcd_client *client, enum kc_life_event event)
{
    struct kc_kcd_waiter *w = calloc(1, sizeof *w), **at = &job->waiters;
    if (!w) {
        kc_kcd_reply(client, kc_kcd_no(KC_EXIT_SYSTEM, "no memory in kcd"));
        return;
    }
    *w = (struct kc_kcd_waiter){.client = client, .verb = event};
    while (*at)
        at = &(*at)->next; /* in order, should they have to be said again */
    *at = w;
    kc_kcd_forward(job, w);
}

/* A job that no keeper keeps now: it is queued, or its keeper was lost. */
static void ask_unkept(struct kc_kcd_job *job, struct kc_kcd_client *client, enum kc_life_event event)
{
    const struct kc_life_cell *cell = kc_life_cell(job->record.state, event);
    struct kc_record *r = &job->record;
    switch (cell->action) {
    case KC_DO_ALREADY:
    case KC_DO_REFUSE:
        kc_kcd_reply(client, kc_kcd_about(r, cell->action == KC_DO_ALREADY, cell->note));
        return;
    case KC_DO_MARK_HOLD:
    case KC_DO_CLEAR_HOLD:
        r->hold = cell->action == KC_DO_MARK_HOLD;
        kc_kcd_record(job);
        kc_kcd_reply(client, kc_kcd_with_trouble(job, kc_kcd_about(r, true, cell->note)));
        return;
    case KC_DO_END_QUEUED:
        wait_for(job, client, event);
        kc_kcd_end(job, cell->next, NULL);
        return;
    case KC_DO_HOLD:
        r->hold = true;
        break;
    case KC_DO_AGREE_STOP:
    case KC_DO_JOIN_STOP:
        r->stop = true;
        break;
    default: /* the next keeper does it */
        break;
    }
    /* else the record is its keeper's */
    if (job->hold != KC_HOLD_FIND && kc_kcd_record(job) < 0) { /* what is wanted stays wanted, but may take long */
        char text[KC_UNSAVED_ROOM + 100];
        snprintf(text, sizeof text, "job '%s' has no keeper, and gets none before its record can be written: %s", r->id,
                 job->unsaved);
        kc_kcd_reply(client, kc_kcd_no(KC_EXIT_SYSTEM, text));
        return;
    }
    wait_for(job, client, event);
}

static void ask_job(struct kc_kcd *d, struct kc_kcd_client *client, const char *id, enum kc_life_event event)
{
    struct kc_kcd_job *job = kc_kcd_find(d, id);
    if (!job) {
        kc_kcd_reply(client, ask_ended(d, id, event));
        return;
    }
    kc_kcd_reread(job);
    if (job->over) {
        kc_kcd_reply(client, kc_kcd_no(KC_EXIT_SYSTEM, job->unsaved));
        return;
    }
    const struct kc_life_cell *cell = kc_life_cell(job->record.state, event);
    if (kc_record_ended(&job->record))
        wait_for(job, client, event); /* for its keeper to be gone; then it is a job that has ended */
    else if (event == KC_LIFE_REMOVE)
        kc_kcd_reply(client, kc_kcd_about(&job->record, false, cell->note));
    else if (job->hold == KC_HOLD_LINKED)
        wait_for(job, client, event);
    else
        ask_unkept(job, client, event);
}

/* The answer to a stop: "done" only if the job stopped, or finished, and what was trained is saved (F35). */
static json_t *stopped(const struct kc_record *r)
{
    char text[700];
    if (r->state == KC_JOB_FAILED) {
        snprintf(text, sizeof text, "job '%s' was asked to stop, but failed: %s", r->id, r->failure.text);
        return kc_kcd_no(KC_EXIT_FALSE, text);
    }
    if (r->exit_code == 0 || (r->state != KC_JOB_STOPPED && r->state != KC_JOB_FINISHED))
        return kc_kcd_about(r, true, NULL);
    const uint64_t lost = r->step > r->snapshot_step ? r->step - r->snapshot_step : 0;
    snprintf(text, sizeof text, "job '%s' has ended at step %llu, but its last snapshot failed: the newest is of step %llu, %llu "
             "steps are lost; see events.jsonl, make room, then kc resume", r->id, (unsigned long long)r->step,
             (unsigned long long)r->snapshot_step, (unsigned long long)lost);
    return kc_kcd_no(KC_EXIT_SYSTEM, text);
}

void kc_kcd_ask_again(struct kc_kcd *d, struct kc_kcd_job *job)
{
    char id[KC_ID_ROOM];
    struct kc_kcd_waiter *list = job->waiters;
    job->waiters = NULL;
    snprintf(id, sizeof id, "%s", job->record.id);
    for (struct kc_kcd_waiter *w = list, *next; w; w = next) {
        next = w->next;
        ask_job(d, w->client, id, w->verb);
        free(w);
    }
}

void kc_kcd_answer_over(struct kc_kcd_job *job)
{
    for (struct kc_kcd_waiter *w = job->waiters, *next; w; w = next) {
        next = w->next;
        kc_kcd_reply(w->client, kc_kcd_no(KC_EXIT_SYSTEM, job->unsaved));
        free(w);
    }
    job->waiters = NULL;
}

void kc_kcd_answer_ended(struct kc_kcd *d, const struct kc_record *record, struct kc_kcd_waiter *waiters)
{
    for (struct kc_kcd_waiter *w = waiters, *next; w; w = next) {
        next = w->next;
        json_t *reply = w->verb == KC_LIFE_STOP ? stopped(record) : ask_ended(d, record->id, w->verb);
        if (w->verb == KC_LIFE_STOP && kc_verdict_failed(&record->failure))
            json_object_set_new(reply, "failure", json_string(record->failure.text));
        kc_kcd_reply(w->client, reply);
        free(w);
    }
}

void kc_kcd_stop_all(struct kc_kcd *d)
{
    d->draining = true;
    for (struct kc_kcd_job *job = d->jobs, *next; job; job = next) {
        next = job->next;
        if (job->over)
            continue;
        if (job->hold == KC_HOLD_LINKED)
            wait_for(job, NULL, KC_LIFE_STOP);
        else
            ask_unkept(job, NULL, KC_LIFE_STOP);
    }
    kc_kcd_show_facts(d);
    kc_kcd_wake(d, kc_now());
}

/* ---- connections ---- */

static void shut_down(struct kc_kcd *d, struct kc_kcd_client *client, const json_t *request)
{
    kc_kcd_log("asked to shut down%s", json_is_true(json_object_get(request, "detach")) ? ", leaving the jobs" : "");
    d->shutdown_client = client; /* answered last of all */
    if (json_is_true(json_object_get(request, "detach"))) {
        d->detached = true;
        kc_kcd_wake(d, kc_now());
    } else {
        kc_kcd_stop_all(d);
    }
}

static json_t *hello(const struct kc_kcd *d)
{
    return json_pack("{s:b, s:i, s:s, s:s, s:s, s:i, s:b}", "ok", 1, "pid", (int)getpid(), "instance", d->home->instance,
                     "home", d->home->home, "version", KC_VERSION, "spec", KC_JOB_SPEC_VERSION, "draining", d->draining);
}

static void client_line(struct kc_link *link, json_t *request)
{
    struct kc_kcd_client *client = link->owner;
    struct kc_kcd *d = client->kcd;
    const char *verb = kc_json_text(request, "verb", "");
    char text[160];
    kc_link_hold(link, true);
    if (strcmp(verb, "hello") == 0) {
        kc_kcd_reply(client, hello(d));
    } else if (strcmp(verb, "list") == 0) {
        kc_kcd_reply(client, list(d));
    } else if (strcmp(verb, "devices") == 0) {
        kc_kcd_publish(d);
        d->next_schedule = kc_now();
        kc_kcd_wake(d, d->next_schedule);
        kc_kcd_reply(client, json_pack("{s:b}", "ok", 1));
    } else if (strcmp(verb, "start") == 0) {
        kc_kcd_reply(client, d->draining ? kc_kcd_no(KC_EXIT_REFUSED, "kcd is shutting down") : kc_kcd_start(d, request));
    } else if (strcmp(verb, "shutdown") == 0) {
        shut_down(d, client, request);
    } else {
        for (unsigned e = KC_LIFE_PAUSE; e <= KC_LIFE_REMOVE; e++) {
            if (strcmp(verb, kc_life_event_name[e]) == 0) {
                ask_job(d, client, kc_json_text(request, "job", ""), (enum kc_life_event)e);
                return;
            }
        }
        snprintf(text, sizeof text, "kcd does not know the verb '%.60s'; is kc of another version?", verb);
        kc_kcd_reply(client, kc_kcd_no(KC_EXIT_VERSION, text));
    }
}

static void client_close(struct kc_link *link)
{
    struct kc_kcd_client *client = link->owner;
    struct kc_kcd *d = client->kcd;
    for (struct kc_kcd_job *j = d->jobs; j; j = j->next)
        for (struct kc_kcd_waiter *w = j->waiters; w; w = w->next)
            if (w->client == client)
                w->client = NULL; /* cancels nothing */
    if (d->shutdown_client == client)
        d->shutdown_client = NULL;
    for (struct kc_kcd_client **at = &d->clients; *at; at = &(*at)->next) {
        if (*at == client) {
            *at = client->next;
            break;
        }
    }
    kc_link_free(link);
    free(client);
}

static void listener_ready(struct kc_source *source, uint32_t events)
{
    struct kc_kcd *d = source->owner;
    (void)events;
    int fd = accept4(source->fd, NULL, NULL, SOCK_CLOEXEC);
    if (fd < 0)
        return;
    struct kc_kcd_client *client = kc_link_peer_allowed(fd) ? calloc(1, sizeof *client) : NULL;
    if (!client) {
        close(fd);
        return;
    }
    *client = (struct kc_kcd_client){.kcd = d};
    client->link.owner = client;
    client->link.on_line = client_line;
    client->link.on_close = client_close;
    if (kc_link_open(&client->link, &d->loop, fd) < 0) {
        free(client);
        return;
    }
    client->next = d->clients;
    d->clients = client;
}

int kc_kcd_listen(struct kc_kcd *d, struct kc_error *e)
{
    if ((size_t)snprintf(d->socket, sizeof d->socket, "%s/kcd.sock", d->home->run) >= sizeof d->socket)
        return kc_fail(e, -ENAMETOOLONG, "KC_HOME is too long; choose a shorter path");
    unlink(d->socket); /* of a kcd that was killed: the lock is ours */
    int fd = kc_socket_listen(d->socket);
    if (fd < 0)
        return kc_fail(e, fd, "%s can't be made: %s", d->socket, strerror(-fd));
    d->listener = (struct kc_source){.fd = fd, .ready = listener_ready, .owner = d};
    return kc_loop_add(&d->loop, &d->listener, EPOLLIN);
}

void kc_kcd_unlisten(struct kc_kcd *d)
{
    if (d->listener.fd >= 0) {
        unlink(d->socket);
        close(d->listener.fd);
        d->listener.fd = -1;
    }
}
