/* doc.c - the checklist as a table for people, and as links for the compiler. */
#include "boundary.h"

#include "base/file.h"
#include "base/json.h"
#include "base/print.h"
#include "check.h"

#include <dirent.h>
#include <errno.h>
#include <fnmatch.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int kc_boundary_doc(const char *root, char **out, struct kc_error *e)
{
    json_t *document;
    size_t bytes;
    char *text = NULL;
    int code = rules_load(root, &document, e);
    if (code < 0)
        return code;
    FILE *f = open_memstream(&text, &bytes);
    if (!f) {
        json_decref(document);
        return -ENOMEM;
    }
    fprintf(f, "| rule | says | net | strength | owner | version |\n|---|---|---|---|---|---|\n");
    for (size_t i = 0; i < rules_count(document); i++) {
        struct rule r = rules_at(document, i);
        fprintf(f, "| %s | %s | %s | %s | %s | %lld |\n", r.id, r.says,
                kc_json_text(r.check, "net", r.kind), r.strength, r.owner, r.version);
    }
    json_decref(document);
    if (fclose(f) != 0) {
        free(text);
        return -ENOMEM;
    }
    *out = text;
    return 0;
}

struct farm {
    const char *root, *to;
    const json_t *document;
    struct kc_error *e;
};

static int link_header(const struct farm *f, const char *room, const char *name, const char *target)
{
    char path[PATH_MAX], have[PATH_MAX];
    snprintf(path, sizeof path, "%.1500s/%s/%s", f->to, room, name);
    ssize_t n = readlink(path, have, sizeof have - 1);
    if (n > 0 && (have[n] = 0, strcmp(have, target) == 0))
        return 0;
    char *slash = strrchr(path, '/');
    *slash = 0;
    int code = kc_make_dirs(path);
    *slash = '/';
    unlink(path);
    if (code == 0 && symlink(target, path) != 0)
        code = -errno;
    return code == 0 ? 0 : kc_fail(f->e, code, "%s: %s", path, strerror(-code));
}

/* Link every header below `folder` (seen as `name`) that the room's list lets in. */
static int link_folder(const struct farm *f, const char *room, const json_t *allow, const char *folder, const char *name)
{
    char path[PATH_MAX];
    int code = 0;
    snprintf(path, sizeof path, "%.1500s/%s", f->root, folder);
    DIR *d = opendir(path);
    if (!d)
        return kc_fail(f->e, -errno, "%s: %s", path, strerror(errno));
    for (struct dirent *x; code == 0 && (x = readdir(d));) {
        char inner[512], seen[512], target[PATH_MAX];
        struct stat st;
        size_t n = strlen(x->d_name);
        if (x->d_name[0] == '.')
            continue;
        snprintf(inner, sizeof inner, "%.250s/%.255s", folder, x->d_name);
        snprintf(seen, sizeof seen, "%.250s%s%.255s", name, *name ? "/" : "", x->d_name);
        snprintf(target, sizeof target, "%.1500s/%.1000s", f->root, inner);
        if (stat(target, &st) == 0 && S_ISDIR(st.st_mode)) { /* d_type is not told by every file system */
            code = link_folder(f, room, allow, inner, seen);
            continue;
        }
        bool header = (n > 2 && strcmp(x->d_name + n - 2, ".h") == 0) || (n > 4 && strcmp(x->d_name + n - 4, ".def") == 0);
        if (!header || !check_matches(allow, seen))
            continue;
        code = link_header(f, room, seen, target);
    }
    closedir(d);
    return code;
}

/* A header that is made, not linked; one that is right already is not touched. */
static int write_header(const struct farm *f, const char *name, const char *text)
{
    char path[PATH_MAX], *old = NULL;
    size_t bytes;
    snprintf(path, sizeof path, "%.1500s/%s", f->to, name);
    bool same = kc_file_read(path, 1u << 20, &old, &bytes) == 0 && strcmp(old, text) == 0;
    free(old);
    if (same)
        return 0;
    char *slash = strrchr(path, '/');
    *slash = 0;
    int code = kc_make_dirs(path);
    *slash = '/';
    if (code == 0)
        code = kc_file_replace(path, text, strlen(text));
    return code == 0 ? 0 : kc_fail(f->e, code, "%s: %s", path, strerror(-code));
}

static int write_stamp(const struct farm *f)
{
    char path[PATH_MAX], digest[33], line[128], *text;
    size_t bytes;
    snprintf(path, sizeof path, "%s/" RULES_PATH, f->root);
    int code = kc_file_read(path, 4u << 20, &text, &bytes);
    if (code < 0)
        return kc_fail(f->e, code, "%s: %s", path, strerror(-code));
    kc_digest_text(kc_digest(text, bytes), digest);
    free(text);
    snprintf(line, sizeof line, "#define KC_BOUNDARY_STAMP \"kc-boundary:%s\"\n", digest);
    return write_header(f, "engine/boundary/stamp.h", line);
}

/* Which team answers for which room, for who tells of faults. */
static int write_owners(const struct farm *f)
{
    char text[4096];
    struct kc_print p = {.out = text, .room = sizeof text};
    const char *room;
    json_t *row;
    kc_print(&p, "#define KC_BOUNDARY_OWNERS(X)");
    json_object_foreach(json_object_get(f->document, "rooms"), room, row) {
        kc_print(&p, " \\\n    X(\"%s\", \"%s\")", room, kc_json_text(row, "owner", ""));
    }
    kc_print(&p, "\n");
    if (p.length >= sizeof text)
        return kc_fail(f->e, -EFBIG, RULES_PATH ": the rooms and their owners do not fit into %zu letters", sizeof text);
    return write_header(f, "console/boundary/owners.h", text);
}

/* A C string, quotes and all, of a text of the document. */
static void print_quoted(FILE *out, const char *before, const json_t *object, const char *key)
{
    char *text = json_dumps(json_object_get(object, key), JSON_ENCODE_ANY);
    fprintf(out, "%s%s", before, text ? text : "\"\"");
    free(text);
}

/* Rules and exemptions as they stand, for who shows them where no source tree is. */
static int write_borders(const struct farm *f)
{
    static const char *const of_exemption[] = {"rule", "place", "reason", "reach", "back", "expires"};
    char *text = NULL;
    size_t bytes, i;
    json_t *x;
    FILE *out = open_memstream(&text, &bytes);
    if (!out)
        return kc_fail(f->e, -ENOMEM, "no memory for the table of rules");
    fprintf(out, "#define KC_BORDERS(X)");
    json_array_foreach(json_object_get(f->document, "rules"), i, x) {
        const json_t *check = json_object_get(x, "check");
        print_quoted(out, " \\\n    X(", x, "id");
        print_quoted(out, ", ", x, "says");
        print_quoted(out, ", ", check, json_object_get(check, "net") ? "net" : "kind");
        print_quoted(out, ", ", x, "strength");
        print_quoted(out, ", ", x, "owner");
        fprintf(out, ", %lld)", kc_json_integer(x, "version", 0));
    }
    fprintf(out, "\n#define KC_EXEMPTIONS(X)");
    json_array_foreach(json_object_get(f->document, "exemptions"), i, x) {
        for (size_t k = 0; k < sizeof of_exemption / sizeof *of_exemption; k++)
            print_quoted(out, k ? ", " : " \\\n    X(", x, of_exemption[k]);
        fprintf(out, ")");
    }
    fprintf(out, "\n");
    int code = fclose(out) ? kc_fail(f->e, -ENOMEM, "no memory for the table of rules")
                           : write_header(f, "console/boundary/borders.h", text);
    free(text);
    return code;
}

int kc_boundary_farm(const char *root, const char *to, struct kc_error *e)
{
    char full[PATH_MAX];
    json_t *document;
    int code = rules_load(root, &document, e);
    if (code < 0)
        return code;
    struct farm f = {.root = realpath(root, full) ? full : root, .to = to, .document = document, .e = e};
    for (size_t i = 0; code == 0 && i < rules_count(document); i++) {
        struct rule r = rules_at(document, i);
        const json_t *allow = json_object_get(r.check, "allow");
        const char *room = kc_json_text(r.check, "room", "");
        if (strcmp(r.kind, "includes") != 0)
            continue;
        static const char *const roots[][2] = {{"layers", ""}, {"shm", "shm"}, {"jobs", "jobs"}, {"supervisor", "supervisor"},
                                               {"console", "console"}};
        for (size_t k = 0; code == 0 && k < sizeof roots / sizeof *roots; k++)
            code = link_folder(&f, room, allow, roots[k][0], roots[k][1]);
    }
    if (code == 0)
        code = write_stamp(&f);
    if (code == 0)
        code = write_owners(&f);
    if (code == 0)
        code = write_borders(&f);
    json_decref(document);
    return code;
}
