/* report.c */
#include "report.h"

#include "costs.h"
#include "saving.h"
#include "session.h"
#include "text.h"

#include "base/print.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* ---- JSON ------------------------------------------------------------------------------------------------------ */

json_t *report_whole(int64_t n)
{
    return n < 0 ? json_null() : json_integer(n);
}

static json_t *name_of(const char *const *names, int value)
{
    return value < 0 ? json_null() : json_string(names[value]);
}

static json_t *wait_json(const struct job_wait *w)
{
    if (w->what <= KC_WAIT_NONE)
        return json_null();
    return json_pack("{s:s,s:o,s:o,s:o}", "what", kc_wait_name[w->what], "group", session_text(w->group), "sequence",
                     report_whole(w->sequence), "seconds", kc_json_number(w->seconds));
}

bool report_straggles(const struct job_rank *r)
{
    return r->metric[KC_METRIC_STRAGGLER] > 0;
}

char report_letter(const struct job *j, const struct job_rank *r)
{
    return r->torn && r->state < 0 ? '?' : job_rank_hangs(j, r) ? 'H' : report_straggles(r) ? '~' : r->letter;
}

static json_t *rank_json(const struct job *j, const struct job_rank *r)
{
    json_t *o = json_object();
    json_object_set_new(o, "rank", json_integer(r->rank));
    json_object_set_new(o, "node", report_whole(r->node));
    json_object_set_new(o, "torn", json_boolean(r->torn));
    json_object_set_new(o, "pid", report_whole(r->pid));
    json_object_set_new(o, "state", name_of(kc_rank_state_name, r->state));
    json_object_set_new(o, "phase", name_of(kc_phase_name, r->phase));
    json_object_set_new(o, "step", report_whole(r->step));
    json_object_set_new(o, "incarnation", report_whole(r->incarnation));
    json_object_set_new(o, "restarts", report_whole(job_rank_restarts(r)));
    json_object_set_new(o, "memory_bytes", kc_json_number(r->metric[KC_METRIC_MEMORY_BYTES]));
    json_object_set_new(o, "wait", wait_json(&r->wait));
    json_object_set_new(o, "unchanged_seconds", kc_json_number(r->age));
    json_object_set_new(o, "busy_seconds", kc_json_number(r->busy));
    json_object_set_new(o, "late_seconds", kc_json_number(r->metric[KC_METRIC_LATE_SECONDS]));
    json_object_set_new(o, "pace_score", kc_json_number(r->metric[KC_METRIC_PACE_SCORE]));
    json_object_set_new(o, "straggler", isnan(r->metric[KC_METRIC_STRAGGLER]) ? json_null()
                                                                             : json_boolean(report_straggles(r)));
    json_object_set_new(o, "hung", json_boolean(job_rank_hangs(j, r)));
    json_object_set_new(o, "cores", session_text(r->cores));
    json_object_set_new(o, "last_words", session_text(r->words));
    return o;
}

static json_t *failure_json(const struct job_failure *f)
{
    if (f->rank < 0 && !*f->reason)
        return json_null();
    return json_pack("{s:o,s:o,s:o,s:o,s:o}", "rank", report_whole(f->rank), "step", report_whole(f->step), "phase",
                     session_text(f->phase), "reason", session_text(f->reason), "followers",
                     report_whole(f->followers));
}

static json_t *snapshot_json(const struct job_snapshot *s)
{
    if (s->step < 0)
        return json_null();
    return json_pack("{s:I,s:I,s:o,s:b,s:o,s:o}", "version", (json_int_t)s->version, "step", (json_int_t)s->step, "bytes",
                     kc_json_number(s->bytes), "verified", s->verified, "state_root", session_text(s->root), "cost",
                     cost_json(&s->cost));
}

json_t *report_split(const double split[SPLITS])
{
    json_t *o = json_object();
    for (int i = 0; i < SPLITS; i++) {
        char key[48];
        snprintf(key, sizeof key, "%s_seconds", i == SPLIT_COMM_EXPOSED ? "communication_exposed" : split_name[i]);
        json_object_set_new(o, key, kc_json_number(split[i]));
    }
    return o;
}

void report_split_text(const double split[SPLITS], FILE *out)
{
    char a[24];
    for (int i = 0; i < SPLITS; i++)
        fprintf(out, "%s%s%s %s", i ? ", " : "", i == SPLIT_COMM_EXPOSED ? "exposed " : "", split_name[i],
                text_seconds(split[i], a, sizeof a));
}

json_t *report_algorithms(const struct job *j)
{
    if (!j->planned)
        return json_null();
    json_t *o = json_object();
    for (int p = 0; p < KC_PRIMITIVES; p++) {
        json_t *list = j->algorithms[p] ? json_array() : NULL;
        for (int a = 0; list && a < KC_ALGORITHMS; a++)
            if (j->algorithms[p] >> a & 1)
                json_array_append_new(list, json_string(kc_algorithm_name[a]));
        if (list)
            json_object_set_new(o, kc_primitive_name[p], list);
    }
    return o;
}

json_t *report_job(const struct job *j)
{
    json_t *o = json_object(), *ranks = json_array();
    json_object_set_new(o, "id", json_string(j->id));
    json_object_set_new(o, "name", session_text(j->name));
    json_object_set_new(o, "state", name_of(kc_job_state_name, j->state));
    json_object_set_new(o, "queue", report_whole(j->queue));
    json_object_set_new(o, "step", report_whole(j->step));
    json_object_set_new(o, "steps", report_whole(j->steps));
    json_object_set_new(o, "loss", kc_json_number(j->loss));
    json_object_set_new(o, "validation_loss", kc_json_number(j->validation_loss));
    json_object_set_new(o, "grad_norm", kc_json_number(j->grad_norm));
    json_object_set_new(o, "lr", kc_json_number(j->lr));
    json_object_set_new(o, "tokens_per_second", kc_json_number(j->tokens_per_second));
    json_object_set_new(o, "left_seconds", kc_json_number(job_eta(j)));
    json_object_set_new(o, "unchanged_seconds", kc_json_number(job_unchanged(j)));
    json_object_set_new(o, "step_seconds", kc_json_number(j->step_seconds));
    json_object_set_new(o, "state_root", session_text(j->state_root));
    json_object_set_new(o, "exit_code", report_whole(j->exit_code));
    json_object_set_new(o, "seconds", kc_json_number(j->seconds));
    json_object_set_new(o, "restarts", report_whole(j->restarts));
    json_object_set_new(o, "incarnation", report_whole(j->incarnation));
    json_object_set_new(o, "ranks_asked", report_whole(j->asked_ranks));
    json_object_set_new(o, "lost_device", session_text(j->device));
    json_object_set_new(o, "waits_for", session_text(j->waits));
    json_object_set_new(o, "hang", isnan(j->hangs) ? json_null() : json_pack("{s:o,s:o}", "seconds", kc_json_number(j->hangs), "text",
                                                                             session_text(j->hang_text)));
    json_object_set_new(o, "restart_in_seconds", kc_json_number(j->restart_in));
    json_object_set_new(o, "restart_why", session_text(isnan(j->restart_in) ? "" : j->restart_why));
    json_object_set_new(o, "host", session_text(j->host));
    json_object_set_new(o, "created", session_text(j->created));
    json_object_set_new(o, "directory", session_text(j->directory));
    json_object_set_new(o, "text", session_text(j->text));
    json_object_set_new(o, "last_snapshot_error", session_text(j->unsaved));
    json_object_set_new(o, "failed_snapshots", json_integer(j->failed_saves));
    json_object_set_new(o, "first_failure", failure_json(&j->failure));
    json_object_set_new(o, "snapshot", snapshot_json(&j->snapshot));
    struct saving saving;
    saving_of(j, &saving);
    json_object_set_new(o, "saving", saving_json(&saving));
    json_t *split = report_split(j->split);
    json_object_set_new(split, "rank", isnan(j->split[SPLIT_FORWARD]) ? json_null() : json_integer(0));
    json_object_set_new(o, "split", split);
    json_object_set_new(o, "keeper", report_whole(j->keeper));
    json_object_set_new(o, "keeper_alive", j->board ? json_boolean(j->keeper_alive) : json_null());
    char torn[256];
    json_object_set_new(o, "torn", session_text(job_torn_text(j, torn, sizeof torn)));
    for (size_t i = 0; i < j->ranks_known; i++)
        json_array_append_new(ranks, rank_json(j, &j->rank[i]));
    json_object_set_new(o, "ranks", ranks);
    return o;
}

/* ---- text ------------------------------------------------------------------------------------------------------ */

static const char *whole(int64_t n, char *out, size_t room)
{
    if (n < 0)
        snprintf(out, room, "-");
    else
        snprintf(out, room, "%" PRId64, n);
    return out;
}

void report_list(const struct model *m, FILE *out)
{
    char state[32], step[48], a[24], b[24], loss[24], rate[24], left[32];
    fprintf(out, "%-20s %-12s %13s %9s %9s %11s %5s\n", "JOB", "STATE", "STEP", "LOSS", "TOK/S", "LEFT", "RANKS");
    for (size_t i = 0; i < m->count; i++) {
        const struct job *j = &m->job[i];
        snprintf(step, sizeof step, "%s/%s", whole(j->step, a, sizeof a), whole(j->steps, b, sizeof b));
        report_state(j, state, sizeof state);
        fprintf(out, "%-20s %-12s %13s %9s %9s %11s %5s", j->id, state, step,
                text_number(j->loss, "%.4f", loss, sizeof loss), text_rate(j->tokens_per_second, rate, sizeof rate),
                text_seconds(job_eta(j), left, sizeof left), whole(j->ranks, a, sizeof a));
        if (j->failed_saves > 0) /* since the last that did not */
            fprintf(out, "  %" PRId64 " snapshot%s failed", j->failed_saves, kc_plural((uint64_t)j->failed_saves));
        fputc('\n', out);
    }
}

void report_wait(const struct job_wait *w, char *out, size_t room)
{
    char sequence[32] = "";
    if (w->what <= KC_WAIT_NONE) {
        snprintf(out, room, "%s", w->what < 0 ? "?" : "-");
        return;
    }
    if (w->sequence >= 0)
        snprintf(sequence, sizeof sequence, "#%" PRId64, w->sequence);
    snprintf(out, room, "%s%s%s%s", kc_wait_name[w->what], *w->group ? " " : "", w->group, sequence);
}

void report_pace(const struct job_rank *r, char *out, size_t room)
{
    char busy[24], late[24], score[24];
    snprintf(out, room, "straggler: score %s, needs %s ms of its own for a step, comes %s ms late",
             text_number(r->metric[KC_METRIC_PACE_SCORE], "%.2f", score, sizeof score),
             text_number(r->busy * 1e3, "%.4g", busy, sizeof busy),
             text_number(r->metric[KC_METRIC_LATE_SECONDS] * 1e3, "%.4g", late, sizeof late));
}

void report_wait_long(const struct job_wait *w, char *out, size_t room)
{
    char seconds[32], what[128];
    report_wait(w, what, sizeof what);
    if (w->what <= KC_WAIT_NONE)
        snprintf(out, room, "%s", what);
    else
        snprintf(out, room, "%s %s", text_seconds(w->seconds, seconds, sizeof seconds), what);
}

void report_state(const struct job *j, char *out, size_t room)
{
    if (j->state == KC_JOB_QUEUED && j->queue > 0)
        snprintf(out, room, "%s %" PRId64, job_state_text(j), j->queue);
    else if (!isnan(j->hangs))
        snprintf(out, room, "hangs");
    else if (!isnan(j->restart_in))
        snprintf(out, room, "restart %.0f s", ceil(j->restart_in));
    else
        snprintf(out, room, "%s", job_state_text(j));
}

void report_progress(const struct job *j, char *out, size_t room)
{
    char step[24], steps[24], loss[24], rate[24];
    size_t n = (size_t)snprintf(out, room, "step %s/%s  loss %s", whole(j->step, step, sizeof step),
                                whole(j->steps, steps, sizeof steps), text_number(j->loss, "%.4f", loss, sizeof loss));
    if (!isnan(j->tokens_per_second) && n < room)
        snprintf(out + n, room - n, "  %s tok/s", text_rate(j->tokens_per_second, rate, sizeof rate));
}

void report_outcome(const struct job *j, char *out, size_t room)
{
    char step[24], steps[24], loss[24], validation[24], seconds[32];
    size_t n = (size_t)snprintf(out, room, "%s %s at step %s/%s: loss %s, validation loss %s", j->id,
                                job_state_text(j), whole(j->step, step, sizeof step),
                                whole(j->steps, steps, sizeof steps), text_number(j->loss, "%.4f", loss, sizeof loss),
                                text_number(j->validation_loss, "%.4f", validation, sizeof validation));
    if (!isnan(j->seconds) && n < room)
        n += (size_t)snprintf(out + n, room - n, ", %s", text_seconds(j->seconds, seconds, sizeof seconds));
    if (job_unsaved(j) && n < room)
        n += (size_t)snprintf(out + n, room - n, ". The last snapshot failed: %s",
                              *j->unsaved ? j->unsaved : "nobody recorded why");
    if (job_unsaved(j) && j->snapshot.step >= 0 && j->step > j->snapshot.step && n < room)
        n += (size_t)snprintf(out + n, room - n, "; the newest is of step %" PRId64 ", and %" PRId64 " step%s since lost. "
                              "kc resume %s goes on from there", j->snapshot.step, j->step - j->snapshot.step,
                              j->step - j->snapshot.step == 1 ? " is" : "s are", j->id);
    const char *told = job_failed(j) && !job_unsaved(j) ? "First failure" : "Survived";
    bool in = *j->failure.phase && strcmp(j->failure.phase, kc_phase_name[KC_PHASE_NONE]) != 0;
    const bool said = *j->text && strcmp(j->failure.reason, kc_reason_name[KC_REASON_ERROR]) == 0; /* what it said has all */
    if (j->failure.rank >= 0 && !said && n < room)
        n += (size_t)snprintf(out + n, room - n, ". %s: rank %" PRId64 " at step %s%s%s: %s", told, j->failure.rank,
                              whole(j->failure.step, step, sizeof step), in ? " in " : "", in ? j->failure.phase : "",
                              j->failure.reason);
    else if (*j->failure.reason && n < room) /* no rank is to blame, or it said why it left */
        n += (size_t)snprintf(out + n, room - n, ". %s: %s", told, *j->text ? j->text : j->failure.reason);
    if (j->failure.followers > 0 && !said && n < room)
        snprintf(out + n, room - n, ", and %" PRId64 " other%s followed", j->failure.followers,
                 j->failure.followers == 1 ? "" : "s");
}

static void page_ranks(const struct job *j, FILE *out)
{
    char pid[24], step[24], age[32], wait[128];
    if (!j->ranks_known || job_ended(j)) /* they have left: there is nothing to tell of them */
        return;
    fprintf(out, "\n%4s %8s %-10s %-13s %8s %10s  %s\n", "RANK", "PID", "STATE", "PHASE", "STEP", "UNCHANGED",
            "WAITS");
    for (size_t i = 0; i < j->ranks_known; i++) {
        const struct job_rank *r = &j->rank[i];
        report_wait_long(&r->wait, wait, sizeof wait);
        fprintf(out, "%4d %8s %-10s %-13s %8s %10s  %s\n", r->rank, whole(r->pid, pid, sizeof pid),
                r->state < 0 ? "?" : kc_rank_state_name[r->state], r->phase < 0 ? "-" : kc_phase_name[r->phase],
                whole(r->step, step, sizeof step), text_seconds(r->age, age, sizeof age), wait);
        if (report_straggles(r)) {
            report_pace(r, wait, sizeof wait);
            fprintf(out, "     %s\n", wait);
        }
        if (*r->words)
            fprintf(out, "     last words: %s\n", r->words);
    }
}

/* What to do about an outcome that nobody wanted. */
static void page_next(const struct job *j, FILE *out)
{
    if (j->state != KC_JOB_FINISHED && job_failed(j))
        fprintf(out, "next        kc resume %s %s\n", j->id,
                job_unsaved(j) ? "goes on from the snapshot before, once what it says is mended" : "tries again");
    if (j->state == KC_JOB_FAILED && j->failure.rank >= 0)
        fprintf(out, "            kc log %s/%" PRId64 " prints what rank %" PRId64 " wrote\n", j->id, j->failure.rank,
                j->failure.rank);
    else if (j->state == KC_JOB_FAILED)
        fprintf(out, "            kc log %s prints what its ranks wrote\n", j->id);
}

static void page_algorithms(const struct job *j, FILE *out)
{
    bool any = false;
    for (int p = 0; p < KC_PRIMITIVES; p++) {
        if (!j->algorithms[p])
            continue;
        fprintf(out, "%s%s", any ? ", " : "collectives ", kc_primitive_name[p]);
        for (int a = 0; a < KC_ALGORITHMS; a++)
            if (j->algorithms[p] >> a & 1)
                fprintf(out, " %s", kc_algorithm_name[a]);
        any = true;
    }
    if (any)
        fputc('\n', out);
}

static void page_saving(const struct job *j, FILE *out)
{
    struct saving s;
    char line[240];
    saving_of(j, &s);
    cost_text(&j->snapshot.cost, line, sizeof line);
    if (!*line) /* its line is still to be written */
        saving_text(&s, line, sizeof line);
    if (!isnan(s.left_out) && s.left_out > 0 && j->snapshot.cost.version)
        snprintf(line + strlen(line), sizeof line - strlen(line), "; %.0f left out", s.left_out);
    if (job_ended(j)) {
        if (*line)
            fprintf(out, "saving      %s\n", line);
        return;
    }
    if (saving_stage(&s))
        fprintf(out, "under way   a snapshot: %s\n", saving_stage(&s));
    if (*line)
        fprintf(out, "saving      %s\n", line);
    if (j->failed_saves == 1)
        fprintf(out, "%s  the last snapshot failed, of step %" PRId64 ": %s\n", *line ? "          " : "saving    ", j->failed_step,
                *j->unsaved ? j->unsaved : "nobody recorded why");
    else if (j->failed_saves > 1)
        fprintf(out, "%s  the last %" PRId64 " snapshots failed, the newest of step %" PRId64 ": %s\n",
                *line ? "          " : "saving    ", j->failed_saves, j->failed_step,
                *j->unsaved ? j->unsaved : "nobody recorded why");
    if (s.rollbacks > 0)
        fprintf(out, "rollbacks   %.0f, by which %.0f sample%s left out\n", s.rollbacks, s.samples, s.samples == 1 ? " is" : "s are");
}

void report_page(const struct job *j, FILE *out)
{
    char line[1600], a[32], b[32], c[32];
    report_state(j, line, sizeof line);
    fprintf(out, "job         %s\nstate       %s\n", j->id, line);
    if (j->board && !j->keeper_alive)
        fprintf(out, "            its keeper is gone: what follows is what the board last showed\n");
    if (*job_torn_text(j, line, sizeof line))
        fprintf(out, "board       %s: their writers died in them, nothing is known of these\n", line);
    if (!isnan(j->hangs))
        fprintf(out, "            %s\n            kc hang %s, kc stack %s; kc why %s tells the story\n",
                job_hang_text(j, line, sizeof line), j->id, j->id, j->id);
    if (!isnan(j->restart_in))
        fprintf(out, "            %s; kc resume %s: now, kc stop %s: not at all\n", job_restart_text(j, line, sizeof line), j->id,
                j->id);
    if (*j->waits && !job_ended(j))
        fprintf(out, "            %s\n", j->waits);
    if (j->asked_ranks > j->ranks)
        fprintf(out, "shrunk      %s of %s ranks, the same batch%s%s; kc resume after an end goes back to all\n",
                whole(j->ranks, a, sizeof a), whole(j->asked_ranks, b, sizeof b), *j->device ? ": " : "", j->device);
    if (*j->text)
        fprintf(out, "last fault  %s\n", j->text);
    report_progress(j, line, sizeof line);
    fprintf(out, "progress    %s%s\n", line, isnan(j->tokens_per_second) ? "  - tok/s" : "");
    fprintf(out, "model       %s\n", *j->model ? j->model : "-");
    if (j->planned)
        fprintf(out, "            %s\n", text_parameters(j->parameters, j->trained, line, sizeof line));
    if (j->planned)
        fprintf(out, "layout      %s\n", j->layout);
    page_algorithms(j, out);
    fprintf(out, "figures     validation loss %s, gradient norm %s, learning rate %s\n",
            text_number(j->validation_loss, "%.4f", a, sizeof a), text_number(j->grad_norm, "%.4g", b, sizeof b),
            text_number(j->lr, "%.4g", c, sizeof c));
    if (j->loads) {
        loads_text(j->loads, line, sizeof line);
        fprintf(out, "experts     %s\n", line);
    } else if (!isnan(j->imbalance)) {
        fprintf(out, "experts     of the worst layer the busiest had %.2f x mean in the last step\n", j->imbalance);
    }
    if (!isnan(j->step_seconds) && !job_ended(j)) {
        fprintf(out, "step time   %s", text_seconds(j->step_seconds, a, sizeof a));
        if (!isnan(j->split[SPLIT_FORWARD])) {
            fputs("; of rank 0: ", out);
            report_split_text(j->split, out);
        }
        fputc('\n', out);
    }
    if (j->snapshot.step >= 0)
        fprintf(out, "snapshot    version %" PRId64 ", step %" PRId64 ", %s, %s\n", j->snapshot.version,
                j->snapshot.step, text_bytes(j->snapshot.bytes, a, sizeof a),
                j->snapshot.verified ? "verified" : "not verified");
    page_saving(j, out);
    if (*j->state_root)
        fprintf(out, "state_root  %s\n", j->state_root);
    fprintf(out, "restarts    %s\nfiles       %s\n", whole(j->restarts, a, sizeof a), j->directory);
    if (job_ended(j)) {
        report_outcome(j, line, sizeof line);
        fprintf(out, "outcome     %s\n", line);
        page_next(j, out);
    }
    page_ranks(j, out);
}
