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

static bool is_const(Dwarf_Die type)
{
    for (;;) {
        int tag = dwarf_tag(&type);
        if (tag == DW_TAG_const_type)
            return true;
        if (tag != DW_TAG_typedef && tag != DW_TAG_array_type)
            return false;
        Dwarf_Die inner;
        if (!type_of(&type, &inner))
            return false;
        type = inner;
    }
}

static bool is_pointer(Dwarf_Die type)
{
    for (;;) {
        int tag = dwarf_tag(&type);
        if (tag == DW_TAG_pointer_type)
            return true;
        if (tag != DW_TAG_typedef && tag != DW_TAG_array_type && tag != DW_TAG_const_type && tag != DW_TAG_volatile_type)
            return false;
        Dwarf_Die inner;
        if (!type_of(&type, &inner))
            return false;
        type = inner;
    }
}

/* The rule's `members` is "const" (each must be const) or "no-pointers". */
static void see_struct(struct check_context *x, Dwarf_Die *die, const char *name)
{
    bool want_const = strcmp(kc_json_text(x->rule.check, "members", ""), "const") == 0;
    Dwarf_Die member, type;
    if (dwarf_child(die, &member) != 0)
        return;
    do {
        if (dwarf_tag(&member) != DW_TAG_member || !type_of(&member, &type))
            continue;
        const char *field = dwarf_diename(&member);
        if (want_const && !is_const(type))
            check_found(x, name, "member %s can change", field ? field : "?");
        if (!want_const && is_pointer(type))
            check_found(x, name, "member %s is a pointer", field ? field : "?");
    } while (dwarf_siblingof(&member, &member) == 0);
}

/* Structs that the rule names, each looked at once: `seen` remembers. */
static void see_unit(struct check_context *x, Dwarf_Die *unit, json_t *seen)
{
    Dwarf_Die die;
    if (dwarf_child(unit, &die) != 0)
        return;
    do {
        const char *name = dwarf_tag(&die) == DW_TAG_structure_type ? dwarf_diename(&die) : NULL;
        if (!name || dwarf_hasattr(&die, DW_AT_declaration) || json_object_get(seen, name) ||
            !check_matches(json_object_get(x->rule.check, "structs"), name))
            continue;
        json_object_set_new(seen, name, json_true());
        see_struct(x, &die, name);
    } while (dwarf_siblingof(&die, &die) == 0);
}

/* Every compilation unit of an archive. libdwfl reads its members one after another and applies their relocations. */
static int see_archive(struct check_context *x, const char *path, json_t *seen)
{
    static const Dwfl_Callbacks callbacks = {.section_address = dwfl_offline_section_address,
                                             .find_elf = dwfl_build_id_find_elf,
                                             .find_debuginfo = dwfl_standard_find_debuginfo};
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
        see_unit(x, unit, seen);
    dwfl_end(dwfl);
    return 0;
}

int check_members(struct check_context *x)
{
    char path[PATH_MAX];
    const char *room = kc_json_text(x->rule.check, "room", "");
    size_t i;
    json_t *want, *seen = json_object();
    snprintf(path, sizeof path, "%.1500s/%.1000s/lib%s.a", x->config->root, x->config->build, room);
    int code = see_archive(x, path, seen);
    /* a rule about a struct that is not there guards nothing */
    json_array_foreach(json_object_get(x->rule.check, "structs"), i, want)
        if (code == 0 && !strpbrk(json_string_value(want), "*?[") && !json_object_get(seen, json_string_value(want)))
            check_found(x, room, "has no struct %s (or no debug information)", json_string_value(want));
    json_decref(seen);
    return code;
}
