/* verb_export.c - kc snap export: a model as others load it. */
#include "bench.h"
#include "session.h"
#include "snapshots.h"
#include "text.h"
#include "verbs.h"

#include "state/state.h"
#include "supervisor/protocol.h"

#include <errno.h>
#include <string.h>

#define MIB (UINT64_C(1) << 20)

static int name_of(const char *const *names, int count, const char *text)
{
    for (int i = 0; i < count; i++)
        if (strcmp(names[i], text) == 0)
            return i;
    return -1;
}

/* What was asked for; the folder as it was typed. */
static int request(struct session *s, const struct arguments *a, struct kc_export *c)
{
    const char *type = a->option[OPTION_DTYPE] ? a->option[OPTION_DTYPE] : "f32";
    const char *name = a->option[OPTION_FORMAT] ? a->option[OPTION_FORMAT] : kc_export_name[KC_EXPORT_SAFETENSORS];
    const int format = name_of(kc_export_name, KC_EXPORTS, name);
    *c = (struct kc_export){.out = a->option[OPTION_OUT], .bf16 = strcmp(type, "bf16") == 0,
        .adapters = a->option[OPTION_ADAPTERS] != NULL, .tokenizer = a->option[OPTION_TOKENIZER]};
    if (format < 0)
        return session_fail(s, KC_EXIT_USAGE, "--format wants safetensors or llm.c, not \"%.40s\"", name);
    c->format = (enum kc_export_format)format;
    if (!c->out || !*c->out)
        return session_fail(s, KC_EXIT_USAGE, "where to? `kc snap export %s --out DIR` writes config.json and "
                            "model.safetensors into a new folder DIR, with --format llm.c a new file", a->word[0]);
    if (!c->bf16 && strcmp(type, "f32") != 0)
        return session_fail(s, KC_EXIT_USAGE, "--dtype wants f32 or bf16, not \"%.40s\"", type);
    if (format == KC_EXPORT_LLMC && (c->tokenizer || a->option[OPTION_FILE_SIZE]))
        return session_fail(s, KC_EXIT_USAGE, "a model of llm.c is one file without a tokenizer: --file-size and --tokenizer are "
                            "of --format safetensors");
    if (c->adapters && (format == KC_EXPORT_LLMC || a->option[OPTION_FILE_SIZE]))
        return session_fail(s, KC_EXIT_USAGE, "adapters are one file, as PEFT has them: --file-size and --format llm.c are of whole "
                            "models");
    return bench_size(s, a, OPTION_FILE_SIZE, 1024, 1024 * 1024 * MIB, 4096 * MIB, &c->file_bytes);
}

/* What the job of a snapshot began from: its tokenizer is the model's. "" unknown. */
static void origin_of(const char *snapshot, char *out, size_t room)
{
    char path[JOB_PATH_ROOM + 32];
    snprintf(path, sizeof path, "%s/../../spec.json", snapshot);
    json_t *spec = json_load_file(path, 0, NULL);
    const json_t *init = json_object_get(json_object_get(spec, "model"), "init");
    snprintf(out, room, "%s", kc_json_text(init, "from", ""));
    json_decref(spec);
}

int verb_snap_export(struct session *s, const struct arguments *a)
{
    char path[JOB_PATH_ROOM], origin[JOB_PATH_ROOM], size[32];
    struct kc_export c;
    struct kc_export_info info;
    struct kc_error e = {""};
    int code = request(s, a, &c);
    if (code)
        return code;
    int rc = snapshots_pick(&s->home, a->word[0], path, sizeof path, &e);
    if (rc == 0) {
        origin_of(path, origin, sizeof origin);
        c.origin = origin;
        rc = kc_snapshot_export(path, &c, &info, &e);
    }
    if (rc)
        return session_fail(s, rc == -ENOTEMPTY || rc == -EEXIST ? KC_EXIT_REFUSED : session_code(rc), "%s", e.text);
    if (s->json) {
        json_t *o = session_envelope(s);
        json_object_set_new(o, "snapshot", session_text(path));
        json_object_set_new(o, "out", session_text(c.out));
        json_object_set_new(o, "version", json_integer((json_int_t)info.version));
        json_object_set_new(o, "step", json_integer((json_int_t)info.step));
        json_object_set_new(o, "format", json_string(kc_export_name[c.format]));
        json_object_set_new(o, "adapters", json_boolean(c.adapters));
        json_object_set_new(o, "dtype", json_string(c.bf16 ? "bf16" : "f32"));
        json_object_set_new(o, "files", json_integer(info.files));
        json_object_set_new(o, "tensors", json_integer(info.tensors));
        json_object_set_new(o, "bytes", json_integer((json_int_t)info.bytes));
        json_object_set_new(o, "tokenizer_files", json_integer(info.copied));
        return session_emit(s, o);
    }
    struct draft d;
    FILE *out = draft_open(&d);
    fprintf(out, "%s: step %llu, %u tensors in %u file%s, %s", c.out, (unsigned long long)info.step, info.tensors, info.files,
            info.files == 1 ? "" : "s", text_bytes((double)info.bytes, size, sizeof size));
    if (info.copied)
        fprintf(out, ", and %u file%s of its tokenizer and settings", info.copied, info.copied == 1 ? "" : "s");
    fputc('\n', out);
    return draft_close(s, &d);
}
