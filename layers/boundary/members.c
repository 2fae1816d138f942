/* members.c - checks that read types from DWARF (libdw): what a struct is made of, as the compiler saw it. */
#include "check.h"

#include "base/json.h"

#include <dwarf.h>
#include <elfutils/libdw.h>
#include <elfutils/libdwfl.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

static bool type_of(Dwarf_Die *die, Dwarf_Die *type)
{
    Dwarf_Attribute a;
    return dwarf_attr_integrate(die, DW_AT_type, &a) && dwarf_formref_die(&a, type);
}

/* A type below its names and arrays; *constant: `const` was on the way. */
static Dwarf_Die bare_type(Dwarf_Die type, bool *constant)
{
    for (;;) {
        int tag = dwarf_tag(&type);
        Dwarf_Die inner;
        *constant = *constant || tag == DW_TAG_const_type;
        bool wraps = tag == DW_TAG_typedef || tag == DW_TAG_array_type || tag == DW_TAG_const_type ||
                     tag == DW_TAG_volatile_type || tag == DW_TAG_atomic_type || tag == DW_TAG_restrict_type;
        if (!wraps || !type_of(&type, &inner))
            return type;
        type = inner;
    }
}

/* What a walk through the structs of an archive remembers. A struct is looked at in every unit that has it, since two
 * files may each have their own of that name; what is the same in all is said once. */
struct walk {
    struct check_context *x;
    json_t *seen; /* names of structs, and "struct.member" of what was said */
    enum { CONST, NO_POINTERS, EXACT } mode;
};

static bool first_time(const struct walk *w, const char *name, const char *member)
{
    char key[256];
    snprintf(key, sizeof key, "%.120s.%.120s", name, member);
    if (json_object_get(w->seen, key))
        return false;
    json_object_set_new(w->seen, key, json_true());
    return true;
}

static bool is_aggregate(Dwarf_Die *type)
{
    return dwarf_tag(type) == DW_TAG_structure_type || dwarf_tag(type) == DW_TAG_union_type;
}

/* Every member must be const, or none a pointer: so too inside structs, unions and arrays of them. A const struct is
 * const all through. */
static void see_members(const struct walk *w, Dwarf_Die *die, const char *name, const char *prefix)
{
    Dwarf_Die member, type;
    if (dwarf_child(die, &member) != 0)
        return;
    do {
        char path[160];
        bool constant = false;
        const char *field = dwarf_diename(&member);
        if (dwarf_tag(&member) != DW_TAG_member || !type_of(&member, &type))
            continue;
        type = bare_type(type, &constant);
        snprintf(path, sizeof path, "%.80s%s%.70s", prefix, *prefix && field ? "." : "", field ? field : "");
        if (is_aggregate(&type)) {
            if (w->mode == NO_POINTERS || !constant)
                see_members(w, &type, name, path);
        } else if (w->mode == CONST && !constant) {
            if (first_time(w, name, path))
                check_found(w->x, name, "member %s can change", path);
        } else if (w->mode == NO_POINTERS && dwarf_tag(&type) == DW_TAG_pointer_type && first_time(w, name, path)) {
            check_found(w->x, name, "member %s is a pointer", path);
        }
    } while (dwarf_siblingof(&member, &member) == 0);
}

/* Names of the members; those of a struct or union without a name count as its owner's, as in C. */
static void member_names(Dwarf_Die *die, json_t *names)
{
    Dwarf_Die member, type;
    if (dwarf_child(die, &member) != 0)
        return;
    do {
        bool constant = false;
        const char *field = dwarf_diename(&member);
        if (dwarf_tag(&member) != DW_TAG_member || !type_of(&member, &type))
            continue;
        type = bare_type(type, &constant);
        if (field)
            json_object_set_new(names, field, json_true());
        else if (is_aggregate(&type))
            member_names(&type, names);
    } while (dwarf_siblingof(&member, &member) == 0);
}

/* The struct has the members that the rule lists, no more, no fewer. */
static void see_exact(const struct walk *w, Dwarf_Die *die, const char *name, const json_t *list)
{
    const char *field;
    size_t i;
    json_t *value, *want, *names = json_object();
    member_names(die, names);
    json_array_foreach((json_t *)list, i, want)
        if (json_object_del(names, json_string_value(want)) != 0 && first_time(w, name, json_string_value(want)))
            check_found(w->x, name, "has no member %s, which the rule lists", json_string_value(want));
    json_object_foreach(names, field, value)
        if (first_time(w, name, field))
            check_found(w->x, name, "has a member %s, which the rule does not list", field);
    json_decref(names);
}

/* The structs of one unit that the rule names. */
static void see_unit(const struct walk *w, Dwarf_Die *unit)
{
    Dwarf_Die die;
    if (dwarf_child(unit, &die) != 0)
        return;
    do {
        const char *name = dwarf_tag(&die) == DW_TAG_structure_type ? dwarf_diename(&die) : NULL;
        const json_t *list = name ? json_object_get(json_object_get(w->x->rule.check, "exact"), name) : NULL;
        if (!name || dwarf_hasattr(&die, DW_AT_declaration) ||
            (!list && !check_matches(json_object_get(w->x->rule.check, "structs"), name)))
            continue;
        json_object_set_new(w->seen, name, json_true());
        if (list)
            see_exact(w, &die, name, list);
        else
            see_members(w, &die, name, "");
    } while (dwarf_siblingof(&die, &die) == 0);
}

/* Every compilation unit of an archive. libdwfl reads its members one after another and applies their relocations. */
static int see_archive(const struct walk *w, const char *path)
{
    static const Dwfl_Callbacks callbacks = {.section_address = dwfl_offline_section_address,
                                             .find_elf = dwfl_build_id_find_elf,
                                             .find_debuginfo = dwfl_standard_find_debuginfo};
    struct check_context *x = w->x;
    Dwfl *dwfl = dwfl_begin(&callbacks);
    if (!dwfl)
        return kc_fail(x->e, -ENOMEM, "%s: %s", path, dwfl_errmsg(-1));
    if (!dwfl_report_offline(dwfl, "", path, -1)) {
        int code = kc_fail(x->e, -ENOENT, "%s: %s; build first (make)", path, dwfl_errmsg(-1));
        dwfl_end(dwfl);
        return code;
    }
    dwfl_report_end(dwfl, NULL, NULL);
    Dwarf_Addr bias;
    for (Dwarf_Die *unit = NULL; (unit = dwfl_nextcu(dwfl, unit, &bias));)
        see_unit(w, unit);
    dwfl_end(dwfl);
    return 0;
}

/* A rule about a struct that is not there guards nothing. */
static void want_struct(const struct walk *w, const char *room, const char *name)
{
    if (!strpbrk(name, "*?[") && !json_object_get(w->seen, name))
        check_found(w->x, room, "has no struct %s (or no debug information)", name);
}

int check_members(struct check_context *x)
{
    char path[PATH_MAX];
    const char *room = kc_json_text(x->rule.check, "room", ""), *mode = kc_json_text(x->rule.check, "members", "");
    const char *name;
    json_t *value, *exact = json_object_get(x->rule.check, "exact");
    size_t i;
    struct walk w = {.x = x, .mode = exact ? EXACT : strcmp(mode, "const") == 0 ? CONST : NO_POINTERS};
    if (!exact && strcmp(mode, "const") != 0 && strcmp(mode, "no-pointers") != 0)
        return kc_fail(x->e, -EINVAL, "members is \"%s\": const or no-pointers, or \"exact\" lists them", mode);
    w.seen = json_object();
    snprintf(path, sizeof path, "%.1500s/%.1000s/lib%s.a", x->config->root, x->config->build, room);
    int code = see_archive(&w, path);
    if (code == 0) {
        json_array_foreach(json_object_get(x->rule.check, "structs"), i, value)
            want_struct(&w, room, json_string_value(value));
        json_object_foreach(exact, name, value)
            want_struct(&w, room, name);
    }
    json_decref(w.seen);
    return code;
}
