/* verb_import.c - kc snap import: a model from elsewhere becomes a snapshot. */
#include "check.h"
#include "helper.h"
#include "model.h"
#include "session.h"
#include "snapshots.h"
#include "text.h"
#include "verbs.h"

#include "base/json.h"
#include "shm/names.h"
#include "state/state.h"
#include "supervisor/protocol.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Where to, by --name or --out. */
static int target(struct session *s, const struct arguments *a, char *path, size_t room)
{
    const char *name = a->option[OPTION_NAME], *out = a->option[OPTION_OUT];
    struct job j;
    char up[PATH_MAX];
    if (!name == !out || (out && !*out))
        return session_fail(s, KC_EXIT_USAGE, "where to? `kc snap import %s --name NAME` keeps it under a name, --out DIR in a "
                            "folder", a->word[0]);
    if (out) {
        size_t n = strlen(out);
        while (n > 1 && out[n - 1] == '/')
            n--;
        snprintf(path, room, "%.*s", (int)n, out);
        return 0;
    }
    if (!kc_id_valid(name))
        return session_fail(s, KC_EXIT_USAGE, "--name wants small letters, digits and -, not \"%.40s\"", name);
    if (!job_read(&s->home, name, &j, NULL)) {
        job_free(&j);
        return session_fail(s, KC_EXIT_REFUSED, "%s is a job: name the model otherwise", name);
    }
    snapshots_of_model(&s->home, name, path, room);
    snapshots_of_model(&s->home, "", up, sizeof up);
    if (mkdir(s->home.home, 0700) && errno != EEXIST)
        return session_fail(s, KC_EXIT_SYSTEM, "%s: %s", s->home.home, strerror(errno));
    if (mkdir(up, 0700) && errno != EEXIST)
        return session_fail(s, KC_EXIT_SYSTEM, "%s: %s", up, strerror(errno));
    return 0;
}

/* The smallest job of one rank that has this model. */
static char *spec_text(json_t *model, const char *from)
{
    json_t *with = json_deep_copy(model);
    json_object_set_new(with, "init", json_pack("{s:s}", "from", from));
    json_t *o = json_pack("{s:s,s:i,s:b,s:i,s:{s:s},s:{s:i,s:i},s:{s:f},s:o}", "name", "import", "ranks", 1, "oversubscribe", 1,
                          "steps", 1, "data", "train", "/", "batch", "sequences", 1, "micro", 1, "optimizer", "lr", 0.0, "model",
                          with);
    char *text = o ? json_dumps(o, JSON_REAL_PRECISION(17)) : NULL;
    json_decref(o);
    return text;
}

/* The block that a spec needs, with where it begins from. */
static json_t *block_of(json_t *model, const char *path)
{
    char full[PATH_MAX];
    json_t *block = json_deep_copy(model);
    json_object_set_new(block, "init", json_pack("{s:s}", "from", realpath(path, full) ? full : path));
    return block;
}

static int tell(struct session *s, const char *path, json_t *model, const struct check *c, const struct kc_snapshot_info *info,
                uint32_t copied)
{
    char size[32];
    json_t *block = block_of(model, path);
    if (s->json) {
        json_t *o = session_envelope(s);
        json_object_set_new(o, "path", session_text(path));
        json_object_set_new(o, "snapshot", session_text(info->path));
        json_object_set_new(o, "version", json_integer((json_int_t)info->version));
        json_object_set_new(o, "state_root", json_string(info->state_root));
        json_object_set_new(o, "parameters", json_integer((json_int_t)c->graph->parameters));
        json_object_set_new(o, "bytes", json_integer((json_int_t)info->bytes));
        json_object_set_new(o, "tokenizer_files", json_integer(copied));
        json_object_set_new(o, "model", block);
        return session_emit(s, o);
    }
    struct draft d;
    FILE *out = draft_open(&d);
    char *text = json_dumps(block, JSON_INDENT(2) | JSON_REAL_PRECISION(10));
    fprintf(out, "%s: version %llu of step 0, %llu parameters, %s", path, (unsigned long long)info->version,
            (unsigned long long)c->graph->parameters, text_bytes((double)info->bytes, size, sizeof size));
    if (copied)
        fprintf(out, "; %u file%s of its tokenizer and settings stay%s beside it", copied, copied == 1 ? "" : "s", copied == 1 ? "s" : "");
    fprintf(out, "\nA spec begins from it with\n\"model\": %s\n", text ? text : "");
    free(text);
    json_decref(block);
    return draft_close(s, &d);
}

/* By a kc-rank, which makes state; an exit code. */
static int make(struct session *s, const char *spec, const char *out, uint32_t *copied)
{
    const char *const words[] = {"kc-rank", "--task", "import", "--spec", spec, "--out", out, NULL};
    struct helper helper;
    struct helper_line line = {.used = 0};
    int rc = helper_start(words, NULL, &helper);
    if (rc)
        return session_fail(s, KC_EXIT_SYSTEM, "kc-rank can't be started: %s", strerror(-rc));
    const char *text = helper_read_line(&helper, &line);
    json_t *said = text ? json_loads(text, 0, NULL) : NULL;
    const char *failed = kc_json_text(said, "failed", NULL);
    int code;
    if (failed) {
        rc = -(int)kc_json_integer(said, "error", EIO);
        helper_drop(&helper);
        code = session_fail(s, rc == -ENOTEMPTY || rc == -EEXIST ? KC_EXIT_REFUSED : session_code(rc), "%s", failed);
    } else {
        code = helper_end(s, &helper);
        *copied = (uint32_t)kc_json_integer(said, "copied", 0);
    }
    json_decref(said);
    return code;
}

static int import(struct session *s, json_t *model, const char *from, const char *path)
{
    struct kc_error e = {""};
    struct check c;
    struct kc_snapshot_info info;
    uint32_t copied = 0;
    size_t count;
    char *text = spec_text(model, from);
    int rc = text ? check_text(&s->home, text, &c, &e) : kc_fail(&e, -ENOMEM, "no memory for a spec");
    if (rc) {
        free(text);
        return session_fail(s, session_code(rc), "%s: %s", from, e.text);
    }
    int code = make(s, text, path, &copied);
    free(text);
    if (!code && (rc = kc_snapshot_list(path, &info, 1, &count, &e)) < 0)
        code = session_fail(s, session_code(rc), "%s", e.text);
    if (!code)
        code = tell(s, path, model, &c, &info, copied);
    check_free(&c);
    return code;
}

int verb_snap_import(struct session *s, const struct arguments *a)
{
    char path[JOB_PATH_ROOM], from[PATH_MAX];
    struct kc_error e = {""};
    json_t *model = NULL;
    if (!realpath(a->word[0], from))
        return session_fail(s, session_code(-errno), "%s: %s", a->word[0], strerror(errno));
    int rc = kc_weights_model(from, &model, &e);
    if (rc)
        return session_fail(s, session_code(rc), "%s", e.text);
    int code = target(s, a, path, sizeof path);
    if (code == 0)
        code = import(s, model, from, path);
    json_decref(model);
    return code;
}
