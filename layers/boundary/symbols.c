/* symbols.c - checks that read what was built: the symbols of the rooms' archives and of the programs (libelf). An archive
 * is read anew for each rule: a check takes a fraction of a second, and nothing has to be kept in step. */
#include "check.h"

#include "base/digest.h"
#include "base/file.h"
#include "base/json.h"

#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <gelf.h>
#include <libelf.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct symbol {
    const char *name;
    const char *member; /* object file in the archive */
    bool defined;       /* here; else it is wanted from outside */
    bool global;
    bool writable;      /* lies in memory that can be written */
    bool function;
    unsigned long size;
};
typedef int visit_symbol(struct check_context *x, const char *room, const struct symbol *s, void *arg);

static bool writable_section(Elf *elf, size_t names, size_t index)
{
    GElf_Shdr h;
    Elf_Scn *section = index == SHN_COMMON ? NULL : elf_getscn(elf, index);
    if (index == SHN_COMMON)
        return true;
    if (!section || !gelf_getshdr(section, &h) || !(h.sh_flags & SHF_WRITE))
        return false;
    const char *name = elf_strptr(elf, names, h.sh_name);
    return !name || strncmp(name, ".data.rel.ro", 12) != 0; /* constant once loaded */
}

static int visit_object(struct check_context *x, Elf *elf, const char *room, const char *member, visit_symbol *visit,
                        void *arg)
{
    size_t names;
    int code = 0;
    if (elf_getshdrstrndx(elf, &names) != 0)
        return 0;
    for (Elf_Scn *section = NULL; code == 0 && (section = elf_nextscn(elf, section));) {
        GElf_Shdr h;
        if (!gelf_getshdr(section, &h) || h.sh_type != SHT_SYMTAB || h.sh_entsize == 0)
            continue;
        Elf_Data *data = elf_getdata(section, NULL);
        for (size_t i = 1; data && code == 0 && i < h.sh_size / h.sh_entsize; i++) {
            GElf_Sym s;
            if (!gelf_getsym(data, (int)i, &s))
                continue;
            int type = GELF_ST_TYPE(s.st_info), bind = GELF_ST_BIND(s.st_info);
            const char *name = elf_strptr(elf, h.sh_link, s.st_name);
            if (!name || !*name || type == STT_SECTION || type == STT_FILE)
                continue;
            code = visit(x, room,
                         &(struct symbol){.name = name,
                                          .member = member,
                                          .defined = s.st_shndx != SHN_UNDEF,
                                          .global = bind == STB_GLOBAL || bind == STB_WEAK,
                                          .writable = s.st_shndx != SHN_UNDEF && s.st_shndx != SHN_ABS &&
                                                      writable_section(elf, names, s.st_shndx),
                                          .function = type == STT_FUNC,
                                          .size = s.st_size},
                         arg);
        }
    }
    return code;
}

/* Walk all symbols of an archive or a program. */
static int visit_file(struct check_context *x, const char *path, const char *room, visit_symbol *visit, void *arg)
{
    int code = 0, fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return kc_fail(x->e, -errno, "%s: %s; build first (make)", path, strerror(errno));
    elf_version(EV_CURRENT);
    Elf *file = elf_begin(fd, ELF_C_READ, NULL), *object;
    if (!file) {
        close(fd);
        return kc_fail(x->e, -EINVAL, "%s: %s", path, elf_errmsg(-1));
    }
    if (elf_kind(file) != ELF_K_AR) {
        code = visit_object(x, file, room, path, visit, arg);
    } else {
        Elf_Cmd command = ELF_C_READ;
        while (code == 0 && (object = elf_begin(fd, command, file))) {
            Elf_Arhdr *head = elf_getarhdr(object);
            if (head && head->ar_name[0] != '/' && elf_kind(object) == ELF_K_ELF)
                code = visit_object(x, object, room, head->ar_name, visit, arg);
            command = elf_next(object);
            elf_end(object);
        }
    }
    elf_end(file);
    close(fd);
    return code;
}

static int visit_room(struct check_context *x, const char *room, visit_symbol *visit, void *arg)
{
    char path[PATH_MAX];
    if (!rules_room_path(x->document, room))
        return kc_fail(x->e, -EINVAL, "no room \"%s\" among rooms", room);
    snprintf(path, sizeof path, "%.1500s/%.1000s/lib%s.a", x->config->root, x->config->build, room);
    return visit_file(x, path, room, visit, arg);
}

static int visit_all_rooms(struct check_context *x, visit_symbol *visit, void *arg)
{
    const char *room;
    json_t *value;
    int code = 0;
    json_object_foreach(json_object_get(x->document, "rooms"), room, value)
        if (code == 0 && !json_is_false(json_object_get(value, "archive")))
            code = visit_room(x, room, visit, arg);
    return code;
}

/* symbol → the room that defines it, as a JSON object: a hash table that the library has already. */
static int note_definition(struct check_context *x, const char *room, const struct symbol *s, void *arg)
{
    (void)x;
    if (s->defined && s->global)
        json_object_set_new(arg, s->name, json_string(room));
    return 0;
}

static int definitions(struct check_context *x, json_t **out)
{
    json_t *map = json_object();
    int code = visit_all_rooms(x, note_definition, map);
    if (code < 0)
        json_decref(map);
    else
        *out = map;
    return code;
}

static const char *rule_room(const struct check_context *x)
{
    return kc_json_text(x->rule.check, "room", "");
}

static int see_call(struct check_context *x, const char *room, const struct symbol *s, void *arg)
{
    const char *owner = s->defined ? NULL : kc_json_text(arg, s->name, NULL);
    if (owner && strcmp(owner, room) != 0 && !check_matches(json_object_get(x->rule.check, "allow"), owner))
        check_found(x, s->member, "calls %s of %s; %s may call %s", s->name, owner, room,
                    json_array_size(json_object_get(x->rule.check, "allow")) ? "only what the rule lists" : "nobody");
    return 0;
}

int check_calls(struct check_context *x)
{
    json_t *map;
    int code = definitions(x, &map);
    if (code == 0) {
        code = visit_room(x, rule_room(x), see_call, map);
        json_decref(map);
    }
    return code;
}

static int see_import(struct check_context *x, const char *room, const struct symbol *s, void *arg)
{
    if (!s->defined && !json_object_get(arg, s->name) && !check_matches(json_object_get(x->rule.check, "allow"), s->name))
        check_found(x, s->member, "%s uses %s, which is not on its short list", room, s->name);
    return 0;
}

int check_imports(struct check_context *x)
{
    json_t *map;
    int code = definitions(x, &map);
    if (code == 0) {
        code = visit_room(x, rule_room(x), see_import, map);
        json_decref(map);
    }
    return code;
}

static int see_writable(struct check_context *x, const char *room, const struct symbol *s, void *arg)
{
    (void)arg;
    if (s->defined && s->writable && s->size > 0)
        check_found(x, s->member, "%s has data that can change: %s, %lu bytes", room, s->name, s->size);
    return 0;
}

int check_writable(struct check_context *x)
{
    return visit_room(x, rule_room(x), see_writable, NULL);
}

static int see_caller(struct check_context *x, const char *room, const struct symbol *s, void *arg)
{
    size_t i;
    json_t *pattern;
    bool named = false;
    json_array_foreach(json_object_get(x->rule.check, "symbols"), i, pattern)
        if (fnmatch(json_string_value(pattern), s->name, 0) == 0) {
            json_object_set_new(arg, json_string_value(pattern), json_true());
            named = true;
        }
    if (named && !s->defined && !check_matches(json_object_get(x->rule.check, "allow"), room))
        check_found(x, s->member, "%s calls %s, which it was not given", room, s->name);
    return 0;
}

int check_callers(struct check_context *x)
{
    size_t i;
    json_t *pattern, *there = json_object();
    int code = visit_all_rooms(x, see_caller, there);
    /* a function that was renamed is guarded no more */
    json_array_foreach(json_object_get(x->rule.check, "symbols"), i, pattern)
        if (code == 0 && !json_object_get(there, json_string_value(pattern)))
            check_found(x, json_string_value(pattern), "no room defines or calls it: the rule guards nothing");
    json_decref(there);
    return code;
}

static int see_required(struct check_context *x, const char *room, const struct symbol *s, void *arg)
{
    (void)x;
    (void)room;
    if (!s->defined)
        json_object_set_new(arg, s->name, json_true());
    return 0;
}

int check_required(struct check_context *x)
{
    size_t i;
    json_t *want, *have = json_object();
    int code = visit_room(x, rule_room(x), see_required, have);
    json_array_foreach(json_object_get(x->rule.check, "symbols"), i, want)
        if (code == 0 && !json_object_get(have, json_string_value(want)))
            check_found(x, rule_room(x), "does not call %s: a net is down", json_string_value(want));
    json_decref(have);
    return code;
}

static int see_definition(struct check_context *x, const char *room, const struct symbol *s, void *arg)
{
    if (!s->defined || !s->global)
        return 0;
    const char *first = kc_json_text(arg, s->name, NULL);
    if (first && strcmp(first, room) != 0)
        check_found(x, s->member, "%s defines %s, which %s defines too", room, s->name, first);
    else if (!first)
        json_object_set_new(arg, s->name, json_string(room));
    return 0;
}

int check_unique(struct check_context *x)
{
    json_t *seen = json_object();
    int code = visit_all_rooms(x, see_definition, seen);
    json_decref(seen);
    return code;
}

static int see_program(struct check_context *x, const char *room, const struct symbol *s, void *arg)
{
    (void)room;
    const char *owner = s->defined && s->global && s->function ? kc_json_text(arg, s->name, NULL) : NULL;
    if (owner && check_matches(json_object_get(x->rule.check, "never"), owner))
        check_found(x, kc_json_text(x->rule.check, "program", ""), "contains %s of %s", s->name, owner);
    return 0;
}

static void program_path(const struct check_context *x, char path[PATH_MAX])
{
    snprintf(path, PATH_MAX, "%.1500s/%.1000s/%s", x->config->root, x->config->programs,
             kc_json_text(x->rule.check, "program", ""));
}

int check_program(struct check_context *x)
{
    char path[PATH_MAX];
    json_t *map;
    int code = definitions(x, &map);
    program_path(x, path);
    if (code == 0) {
        code = visit_file(x, path, "", see_program, map);
        json_decref(map);
    }
    return code;
}

int check_stamp(struct check_context *x)
{
    char path[PATH_MAX], digest[33], stamp[64], *text, *program;
    size_t bytes, size;
    snprintf(path, sizeof path, "%s/" RULES_PATH, x->config->root);
    int code = kc_file_read(path, 4u << 20, &text, &bytes);
    if (code < 0)
        return kc_fail(x->e, code, "%s: %s", path, strerror(-code));
    kc_digest_text(kc_digest(text, bytes), digest);
    free(text);
    snprintf(stamp, sizeof stamp, "kc-boundary:%s", digest);
    program_path(x, path);
    code = kc_file_read(path, 512u << 20, &program, &size);
    if (code < 0)
        return kc_fail(x->e, code, "%s: %s; build first (make)", path, strerror(-code));
    if (!memmem(program, size, stamp, strlen(stamp)))
        check_found(x, kc_json_text(x->rule.check, "program", ""), "was not built under this checklist (%s)", stamp);
    free(program);
    return 0;
}
