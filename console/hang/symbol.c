/* symbol.c - every place is looked up once: ranks of a job run the same program and mostly stand at the same places. */
#include "symbol.h"

#include <dwarf.h>
#include <elfutils/libdw.h>
#include <elfutils/libdwfl.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define INLINED_MOST 12
#define BUCKETS 1024

struct module {
    char name[40];
    uint8_t id[20];
    uint32_t id_bytes;
    char *path;
    bool program;      /* what runs, not a library of it */
    Dwfl_Module *dwfl; /* NULL: not there, or another build */
    GElf_Addr bias;
};
struct place {
    struct place *next;
    int module;
    uint64_t offset;
    uint32_t count, symbol[INLINED_MOST];
};
struct symbol_book {
    Dwfl *dwfl;
    struct module *module;
    int modules;
    struct place *bucket[BUCKETS];
};

int symbol_book_new(struct symbol_book **out)
{
    static char *no_path;
    static const Dwfl_Callbacks callbacks = {.find_elf = dwfl_build_id_find_elf,
                                             .find_debuginfo = dwfl_standard_find_debuginfo,
                                             .section_address = dwfl_offline_section_address,
                                             .debuginfo_path = &no_path};
    struct symbol_book *b = calloc(1, sizeof *b);
    unsetenv("DEBUGINFOD_URLS"); /* a stack must not wait for a server */
    if (b)
        b->dwfl = dwfl_begin(&callbacks);
    if (!b || !b->dwfl) {
        free(b);
        return -ENOMEM;
    }
    *out = b;
    return 0;
}

void symbol_book_free(struct symbol_book *b)
{
    if (!b)
        return;
    for (int i = 0; i < BUCKETS; i++)
        for (struct place *p = b->bucket[i], *next; p; p = next) {
            next = p->next;
            free(p);
        }
    for (int i = 0; i < b->modules; i++)
        free(b->module[i].path);
    free(b->module);
    dwfl_end(b->dwfl);
    free(b);
}

/* The file behind a module, if it is the build that runs. */
static void open_module(struct symbol_book *b, struct module *m)
{
    const unsigned char *id;
    GElf_Addr at;
    if (*m->path != '/') /* vdso and the like have no file */
        return;
    dwfl_report_begin_add(b->dwfl);
    Dwfl_Module *d = dwfl_report_offline(b->dwfl, m->name, m->path, -1);
    dwfl_report_end(b->dwfl, NULL, NULL);
    if (!d || !dwfl_module_getelf(d, &m->bias))
        return;
    int bytes = dwfl_module_build_id(d, &id, &at);
    if (m->id_bytes && (bytes != (int)m->id_bytes || memcmp(id, m->id, m->id_bytes) != 0))
        return;
    m->dwfl = d;
}

int symbol_book_module(struct symbol_book *b, const char *name, const char *path, const uint8_t *id, uint32_t id_bytes)
{
    struct module n = {.id_bytes = id_bytes <= sizeof n.id ? id_bytes : 0};
    memcpy(n.id, id, n.id_bytes);
    snprintf(n.name, sizeof n.name, "%.39s", name);
    for (int i = 0; i < b->modules; i++) {
        const struct module *m = &b->module[i];
        if (strcmp(m->name, n.name) == 0 && m->id_bytes == n.id_bytes && memcmp(m->id, n.id, n.id_bytes) == 0 &&
            (n.id_bytes || strcmp(m->path, path) == 0))
            return i;
    }
    struct module *more = realloc(b->module, ((size_t)b->modules + 1) * sizeof *more);
    if (!more)
        return -ENOMEM;
    b->module = more;
    n.program = strncmp(path, "/proc/", 6) == 0 || strcmp(n.name, "kc-rank") == 0;
    n.path = strdup(path);
    if (!n.path)
        return -ENOMEM;
    open_module(b, &n);
    b->module[b->modules] = n;
    return b->modules++;
}

bool symbol_book_holds(const struct symbol_book *b, int module, uint64_t offset)
{
    Dwarf_Addr low = 0, high = 0;
    if (module < 0 || module >= b->modules || !b->module[module].dwfl)
        return false;
    dwfl_module_info(b->module[module].dwfl, NULL, &low, &high, NULL, NULL, NULL, NULL);
    return offset + b->module[module].bias >= low && offset + b->module[module].bias < high;
}

/* ---- names -------------------------------------------------------------------------------------------------------- */

static void set_function(struct kc_symbol *s, const char *name)
{
    snprintf(s->function, sizeof s->function, "%.79s", name ? name : "");
}

/* Paths as they stand in the source tree. */
static void set_file(struct kc_symbol *s, Dwarf_Die *unit, const char *file, int line)
{
    Dwarf_Attribute a;
    const char *root = dwarf_formstring(dwarf_attr(unit, DW_AT_comp_dir, &a));
    size_t n = root ? strlen(root) : 0;
    if (!file || line <= 0)
        return;
    if (n && strncmp(file, root, n) == 0 && file[n] == '/')
        file += n + 1;
    if (strncmp(file, "./", 2) == 0)
        file += 2;
    s->ours = s->ours && *file != '/';
    n = strlen(file);
    snprintf(s->file, sizeof s->file, "%s", n < sizeof s->file ? file : file + (n - sizeof s->file + 1));
    s->line = (uint32_t)line;
}

static const char *die_name(Dwarf_Die *die)
{
    Dwarf_Attribute a;
    return dwarf_formstring(dwarf_attr_integrate(die, DW_AT_name, &a));
}

static int die_number(Dwarf_Die *die, unsigned what)
{
    Dwarf_Attribute a;
    Dwarf_Word n;
    return dwarf_formudata(dwarf_attr(die, what, &a), &n) == 0 && n < INT32_MAX ? (int)n : 0;
}

/* dwarf_getscopes() goes from an inlined function on to where that was written; what it was put into is wanted. */
static int scopes_of(Dwarf_Die *unit, Dwarf_Addr address, Dwarf_Die **out)
{
    Dwarf_Die *innermost = NULL;
    int n = dwarf_getscopes(unit, address, &innermost);
    if (n > 0)
        n = dwarf_getscopes_die(&innermost[0], out);
    free(innermost);
    return n;
}

/* By DWARF: the line of the innermost function is the address's, of the others where the call stood that is gone. */
static uint32_t find_scopes(Dwfl_Module *m, GElf_Addr address, const struct kc_symbol *base, struct kc_symbol *out)
{
    Dwarf_Addr bias;
    Dwarf_Die *unit = dwfl_module_addrdie(m, address, &bias), *scope = NULL;
    Dwarf_Files *files;
    size_t count;
    int line = 0;
    uint32_t found = 0;
    if (!unit)
        return 0;
    Dwfl_Line *at = dwfl_module_getsrc(m, address);
    const char *file = at ? dwfl_lineinfo(at, NULL, &line, NULL, NULL, NULL) : NULL;
    int scopes = scopes_of(unit, address - bias, &scope);
    for (int i = 0; i < scopes && found < INLINED_MOST; i++) {
        int tag = dwarf_tag(&scope[i]);
        if (tag != DW_TAG_inlined_subroutine && tag != DW_TAG_subprogram)
            continue;
        struct kc_symbol *s = &out[found++];
        *s = *base;
        s->inlined = tag == DW_TAG_inlined_subroutine;
        set_function(s, die_name(&scope[i]));
        set_file(s, unit, file, line);
        if (!s->inlined)
            break;
        line = die_number(&scope[i], DW_AT_call_line);
        file = dwarf_getsrcfiles(unit, &files, &count) == 0
                   ? dwarf_filesrc(files, (size_t)die_number(&scope[i], DW_AT_call_file), NULL, NULL)
                   : NULL;
    }
    free(scope);
    return found;
}

static uint32_t look_up(struct symbol_book *b, int module, uint64_t offset, struct kc_symbol out[INLINED_MOST])
{
    struct kc_symbol base = {.offset = offset};
    struct module *m = module >= 0 && module < b->modules ? &b->module[module] : NULL;
    GElf_Off into;
    GElf_Sym symbol;
    if (m) {
        snprintf(base.module, sizeof base.module, "%s", m->name);
        set_function(&base, *m->name == '[' ? m->name : NULL); /* [vdso] */
        base.ours = m->program;
    }
    if (m && m->dwfl) {
        uint32_t n = find_scopes(m->dwfl, offset + m->bias, &base, out);
        if (n && *out[n - 1].function)
            return n;
        set_function(&base, dwfl_module_addrinfo(m->dwfl, offset + m->bias, &into, &symbol, NULL, NULL, NULL));
    }
    base.ours = false;
    out[0] = base;
    return 1;
}

int symbol_book_find(struct symbol_book *b, struct kc_stacks *s, int module, uint64_t offset, uint32_t *out, uint32_t room)
{
    struct kc_symbol found[INLINED_MOST];
    struct place **bucket = &b->bucket[(offset ^ offset >> 12 ^ (uint64_t)(unsigned)module * 7919) % BUCKETS], *p = *bucket;
    while (p && (p->module != module || p->offset != offset))
        p = p->next;
    if (!p) {
        p = calloc(1, sizeof *p);
        if (!p)
            return -ENOMEM;
        *p = (struct place){.next = *bucket, .module = module, .offset = offset};
        uint32_t n = look_up(b, module, offset, found);
        for (uint32_t i = 0; i < n; i++) {
            int64_t index = kc_stacks_symbol(s, &found[i]);
            if (index >= 0)
                p->symbol[p->count++] = (uint32_t)index;
        }
        *bucket = p;
    }
    uint32_t n = p->count < room ? p->count : room;
    memcpy(out, p->symbol, n * sizeof *out);
    return (int)n;
}
