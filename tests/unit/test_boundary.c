/* test_boundary.c - every kind of check bites: a small tree of rooms is written, compiled and checked, clean first and
 * then with one violation seeded. */
#include "boundary/boundary.h"
#include "boundary/rules.h"
#include "tests/unit/suite.h"

#include <check.h>
#include <errno.h>
#include <ftw.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char tree[] = "/tmp/kc-boundary.XXXXXX", clean[] = "/tmp/kc-boundary.XXXXXX"; /* clean: archives of put_tree()'s */
static const char *const rooms[] = {"base", "comm", "schedule"};
enum { ROOMS = 3 };
static bool changed[ROOMS]; /* something was put there since put_tree() */
static struct kc_error error;
static char found[4096]; /* "rule|place|text\n" of each finding that no exemption covers */

static void put(const char *path, const char *text)
{
    char full[512];
    for (int i = 0; i < ROOMS; i++)
        changed[i] |= strstr(path, rooms[i]) || strstr(path, "contracts");
    snprintf(full, sizeof full, "%s/%s", tree, path);
    for (char *p = full + strlen(tree) + 1; (p = strchr(p, '/')); p++) {
        *p = 0;
        mkdir(full, 0700);
        *p = '/';
    }
    FILE *f = fopen(full, "w");
    ck_assert_ptr_nonnull(f);
    fputs(text, f);
    fclose(f);
}

static void run(const char *first, ...)
{
    const char *argv[16] = {first};
    va_list list;
    va_start(list, first);
    for (int i = 1; i < 15 && (argv[i] = va_arg(list, const char *)); i++) {
    }
    va_end(list);
    pid_t pid = fork();
    if (pid == 0) {
        if (chdir(tree) == 0)
            execvp(first, (char **)argv);
        _exit(127);
    }
    int status;
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert_msg(status == 0, "%s failed", first);
}

/* Three rooms: comm, schedule (calls comm only through an interface) and base. */
static void put_tree(void)
{
    put("layers/base/base.h", "int kc_base(void);\n");
    put("layers/base/base.c", "#include \"base/base.h\"\nint kc_base(void) { return 1; }\n");
    put("layers/contracts/plan.h", "/* plan.h\n * Writer: strategy. Readers: schedule, state. */\n"
                                   "struct kc_plan { int head; unsigned offset; };\n");
    put("layers/comm/comm.h", "struct kc_group;\nint kc_comm_sum(const struct kc_group *g);\n");
    put("layers/comm/comm.c",
        "#include \"comm/comm.h\"\n#include \"base/base.h\"\n#include <string.h>\n"
        "struct kc_group { const int count; };\n"
        "int kc_comm_sum(const struct kc_group *g) { return g->count + kc_base() + (int)strlen(\"x\"); }\n");
    put("layers/schedule/schedule.c",
        "#include \"contracts/plan.h\"\nint kc_check(const struct kc_plan *p);\nint kc_base(void);\n"
        "int kc_check(const struct kc_plan *p) { return p->head + kc_base(); }\n");
    put("bin/program.c", "const char kc_stamp[] = \"kc-boundary:none\"; int main(void) { return kc_stamp[0] == 0; }\n");
    memset(changed, 0, sizeof changed);
}

/* Archives of all rooms, those of unchanged ones made once. */
static void compile(void)
{
    for (int i = 0; i < ROOMS; i++) {
        char source[64], object[64], archive[64], here[128], there[128];
        snprintf(source, sizeof source, "layers/%s/%s.c", rooms[i], rooms[i]);
        snprintf(object, sizeof object, "%s.o", rooms[i]);
        snprintf(archive, sizeof archive, "build/lib%s.a", rooms[i]);
        snprintf(here, sizeof here, "%s/%s", tree, archive);
        snprintf(there, sizeof there, "%s/%s", clean, archive);
        unlink(here);
        if (!changed[i] && link(there, here) == 0)
            continue;
        run("cc", "-w", "-g", "-O0", "-fno-builtin", "-Ilayers", "-c", source, "-o", object, NULL);
        run("ar", "rcs", archive, object, NULL);
    }
}

/* A rule with this check (taken over); its history digest is made right. */
static json_t *make_rule(const char *id, json_t *check, const char *strength)
{
    json_t *rule = json_pack("{s:s,s:s,s:s,s:s,s:s,s:i,s:o}", "id", id, "says", "a rule", "owner", "team", "strength",
                             strength, "since", "0.1", "version", 1, "check", check);
    char digest[33];
    struct rule r = {.says = "a rule", .owner = "team", .strength = strength, .check = json_object_get(rule, "check")};
    rule_digest(&r, digest);
    json_object_set_new(rule, "history",
                        json_pack("[{s:s,s:s,s:s,s:s,s:s}]", "date", "2026-01-01", "reason", "r", "effect", "e", "told", "t",
                                  "digest", digest));
    return rule;
}

/* One check, which becomes rule r, or a list of them: r, r2, … */
static void put_rules(const char *check, const char *strength, const char *exemptions)
{
    json_t *checks = json_loads(check, 0, NULL), *rules = json_array(), *one;
    size_t i;
    ck_assert_ptr_nonnull(checks);
    if (!json_is_array(checks)) {
        json_array_append_new(rules, make_rule("r", json_incref(checks), strength));
    } else {
        json_array_foreach(checks, i, one) {
            char id[8] = "r";
            if (i > 0)
                snprintf(id, sizeof id, "r%u", (unsigned)(i + 1) % 100);
            json_array_append_new(rules, make_rule(id, json_incref(one), strength));
        }
    }
    json_decref(checks);
    json_t *document = json_pack(
        "{s:{s:{s:s},s:{s:s},s:{s:s}},s:[{s:s,s:s,s:s,s:[s,s]}],s:o,s:o}", "rooms", "base", "path", "layers/base", "comm",
        "path", "layers/comm", "schedule", "path", "layers/schedule", "contracts", "name", "plan", "header",
        "contracts/plan.h", "writer", "strategy", "readers", "schedule", "state", "rules", rules, "exemptions",
        json_loads(exemptions ? exemptions : "[]", 0, NULL));
    char *text = json_dumps(document, JSON_INDENT(1));
    put("layers/boundary.json", text);
    free(text);
    json_decref(document);
}

static void note(void *arg, const struct kc_finding *f)
{
    (void)arg;
    size_t n = strlen(found);
    if (!f->exempt)
        snprintf(found + n, sizeof found - n, "%s|%s|%s\n", f->rule, f->place, f->text);
}

static struct kc_boundary_result result;
static int check_tree(void)
{
    struct kc_boundary_config c = {
        .root = tree, .build = "build", .programs = "bin", .today = "2026-06-01", .report = note};
    found[0] = 0;
    error.text[0] = 0;
    return kc_boundary_check(&c, &result, &error);
}

/* kind of check, the file that the violation replaces, its text, and what the finding says */
static const struct {
    const char *check, *path, *text, *says;
} seeded[] = {
    {"{\"kind\":\"includes\",\"room\":\"comm\",\"allow\":[\"base/*\",\"comm/*\"]}", "layers/comm/comm.c",
     "#include \"comm/comm.h\"\n#include \"contracts/plan.h\"\nint kc_comm_sum(const struct kc_group *g) { return g != 0; }\n",
     "includes \"contracts/plan.h\", which comm may not"},
    {"{\"kind\":\"includes\",\"room\":\"comm\",\"allow\":[\"base/*\",\"comm/*\"]}", "layers/comm/comm.c",
     "#include \"comm/comm.h\"\n#include \"../contracts/plan.h\"\nint kc_comm_sum(const struct kc_group *g) { return g != 0; }\n",
     "includes \"../contracts/plan.h\""},
    /* the compiler finds a header of ours in angle brackets too */
    {"{\"kind\":\"includes\",\"room\":\"comm\",\"allow\":[\"base/*\",\"comm/*\"]}", "layers/comm/comm.c",
     "#include \"comm/comm.h\"\n#include <contracts/plan.h>\n"
     "int kc_comm_sum(const struct kc_group *g) { return g != 0; }\n",
     "includes <contracts/plan.h>, which comm may not"},
    {"{\"kind\":\"includes\",\"room\":\"comm\",\"allow\":[\"base/*\",\"comm/*\"]}", "layers/comm/comm.c",
     "#include \"comm/comm.h\"\n#include <../layers/contracts/plan.h>\n"
     "int kc_comm_sum(const struct kc_group *g) { return g != 0; }\n",
     "includes <../layers/contracts/plan.h>"},
    {"{\"kind\":\"includes\",\"room\":\"comm\",\"allow\":[\"base/*\",\"comm/*\"]}", "layers/comm/comm.c",
     "#include \"comm/comm.h\"\n#define PLAN \"contracts/plan.h\"\n#  include PLAN\n"
     "int kc_comm_sum(const struct kc_group *g) { return g != 0; }\n",
     "\"include PLAN\" includes what cannot be read here"},
    {"{\"kind\":\"includes\",\"room\":\"comm\",\"allow\":[\"base/*\",\"comm/*\"]}", "layers/comm/comm.c",
     "#include \"comm/comm.h\"\n#include_next <contracts/plan.h>\n"
     "int kc_comm_sum(const struct kc_group *g) { return g != 0; }\n",
     "includes what cannot be read here"},
    {"{\"kind\":\"includes\",\"room\":\"comm\",\"allow\":[\"base/*\",\"comm/*\"]}", "layers/comm/table.def",
     "#include \"contracts/plan.h\"\n", "includes \"contracts/plan.h\""},
    {"{\"kind\":\"includes\",\"room\":\"comm\",\"allow\":[\"base/*\",\"comm/*\"]}", "layers/comm/below/table.inc",
     "#include \"contracts/plan.h\"\n", "includes \"contracts/plan.h\""},
    {"{\"kind\":\"system\",\"room\":\"comm\",\"allow\":[\"string.h\"]}", "layers/comm/comm.c",
     "#include <time.h>\n#include \"comm/comm.h\"\nint kc_comm_sum(const struct kc_group *g) { return g != 0; }\n",
     "includes <time.h>"},
    {"{\"kind\":\"calls\",\"room\":\"schedule\",\"allow\":[\"base\"]}", "layers/schedule/schedule.c",
     "struct kc_group;\nint kc_comm_sum(const struct kc_group *g);\nint kc_check(void);\n"
     "int kc_check(void) { return kc_comm_sum(0); }\n",
     "calls kc_comm_sum of comm"},
    {"{\"kind\":\"imports\",\"room\":\"comm\",\"allow\":[\"strlen\",\"_GLOBAL_OFFSET_TABLE_\",\"__stack_chk_fail\"]}", "layers/comm/comm.c",
     "#include \"comm/comm.h\"\n#include <stdlib.h>\nint kc_comm_sum(const struct kc_group *g) { free((void *)g); return 0; }\n",
     "comm uses free"},
    /* the first classic: comm caches a gradient */
    {"{\"kind\":\"writable\",\"room\":\"comm\"}", "layers/comm/comm.c",
     "#include \"comm/comm.h\"\nstatic float cached_gradient[256];\n"
     "int kc_comm_sum(const struct kc_group *g) { cached_gradient[0] += g != 0; return (int)cached_gradient[0]; }\n",
     "comm has data that can change: cached_gradient, 1024 bytes"},
    {"{\"kind\":\"members\",\"room\":\"comm\",\"structs\":[\"kc_group\"],\"members\":\"const\"}", "layers/comm/comm.c",
     "#include \"comm/comm.h\"\nstruct kc_group { const int count; float *last_gradient; };\n"
     "int kc_comm_sum(const struct kc_group *g) { return g->count + (g->last_gradient != 0); }\n",
     "member last_gradient can change"},
    {"{\"kind\":\"members\",\"room\":\"comm\",\"structs\":[\"kc_group\"],\"members\":\"const\"}", "layers/comm/comm.c",
     "#include \"comm/comm.h\"\n"
     "struct kc_group { const int count; const struct { int fixed; } a; struct { int last; } cache[2]; };\n"
     "int kc_comm_sum(const struct kc_group *g) { return g->count + g->cache[0].last; }\n",
     "member cache.last can change"},
    /* a const pointer to what can change: `const` does not see it, the list of members does */
    {"{\"kind\":\"members\",\"room\":\"comm\",\"exact\":{\"kc_group\":[\"count\"]}}", "layers/comm/comm.c",
     "#include \"comm/comm.h\"\nstruct kc_group { const int count; float *const last_gradient; };\n"
     "int kc_comm_sum(const struct kc_group *g) { return g->count + (g->last_gradient != 0); }\n",
     "has a member last_gradient, which the rule does not list"},
    {"{\"kind\":\"members\",\"room\":\"comm\",\"exact\":{\"kc_group\":[\"count\"]}}", "layers/comm/comm.c",
     "#include \"comm/comm.h\"\nstruct kc_group { const int count; union { float *cached; long bits; }; };\n"
     "int kc_comm_sum(const struct kc_group *g) { return g->count + (g->cached != 0); }\n",
     "has a member cached, which the rule does not list"},
    {"{\"kind\":\"members\",\"room\":\"comm\",\"exact\":{\"kc_group\":[\"count\"]}}", "layers/comm/comm.c",
     "#include \"comm/comm.h\"\nstruct kc_group { const int size; };\n"
     "int kc_comm_sum(const struct kc_group *g) { return g->size; }\n",
     "has no member count, which the rule lists"},
    {"{\"kind\":\"members\",\"room\":\"comm\",\"exact\":{\"kc_group\":[\"count\"]}}", "layers/comm/comm.c",
     "#include \"comm/comm.h\"\nint kc_comm_sum(const struct kc_group *g) { return g != 0; }\n",
     "has no struct kc_group (or"},
    {"{\"kind\":\"members\",\"room\":\"schedule\",\"structs\":[\"kc_plan\"],\"members\":\"no-pointers\"}",
     "layers/contracts/plan.h",
     "/* plan.h\n * Writer: strategy. Readers: schedule, state. */\nstruct kc_plan { int head; const char *name; };\n",
     "member name is a pointer"},
    {"{\"kind\":\"members\",\"room\":\"schedule\",\"structs\":[\"kc_plan\"],\"members\":\"no-pointers\"}",
     "layers/contracts/plan.h",
     "/* plan.h\n * Writer: strategy. Readers: schedule, state. */\n"
     "struct kc_plan { int head; const struct { const char *hint; } cached; };\n",
     "member cached.hint is a pointer"},
    {"{\"kind\":\"members\",\"room\":\"schedule\",\"structs\":[\"kc_plan\"],\"members\":\"no-pointers\"}",
     "layers/contracts/plan.h",
     "/* plan.h\n * Writer: strategy. Readers: schedule, state. */\n"
     "typedef union { long bits; void *at; } kc_any;\nstruct kc_plan { int head; kc_any any[3]; };\n",
     "member any.at is a pointer"},
    {"{\"kind\":\"members\",\"room\":\"comm\",\"structs\":[\"kc_group\"],\"members\":\"const\"}", "layers/comm/comm.c",
     "#include \"comm/comm.h\"\nint kc_comm_sum(const struct kc_group *g) { return g != 0; }\n",
     "has no struct kc_group"},
    {"{\"kind\":\"header\"}", "layers/contracts/plan.h",
     "/* plan.h\n * Writer: strategy. Readers: schedule. */\nstruct kc_plan { int head; unsigned offset; };\n",
     "does not name state among its readers"},
    {"{\"kind\":\"header\"}", "layers/contracts/plan.h",
     "/* plan.h\n * Writer: schedule. Readers: schedule, state. */\nstruct kc_plan { int head; unsigned offset; };\n",
     "does not name strategy as its writer"},
    {"{\"kind\":\"header\"}", "layers/contracts/plan.h",
     "/* plan.h\n * Writer: strategy. Readers: schedule, comm, state. */\n"
     "struct kc_plan { int head; unsigned offset; };\n",
     "names comm among its readers, the checklist does not"},
    {"{\"kind\":\"callers\",\"symbols\":[\"kc_comm_*\"],\"allow\":[\"comm\"]}", "layers/schedule/schedule.c",
     "int kc_comm_sum(const void *g);\nint kc_check(void);\nint kc_check(void) { return kc_comm_sum(0); }\n",
     "schedule calls kc_comm_sum, which it was not given"},
    {"{\"kind\":\"callers\",\"symbols\":[\"strlen\"],\"allow\":[\"comm\"]}", "layers/schedule/schedule.c",
     "#include <string.h>\nint kc_check(const char *t);\nint kc_check(const char *t) { return (int)strlen(t); }\n",
     "schedule calls strlen, which it was not given"},
    {"{\"kind\":\"callers\",\"symbols\":[\"kc_check\"],\"allow\":[\"comm\"]}", "layers/schedule/schedule.c",
     "int kc_verify(void);\nint kc_verify(void) { return 0; }\n",
     "no room defines or calls it: the rule guards nothing"},
    {"{\"kind\":\"required\",\"room\":\"schedule\",\"symbols\":[\"kc_base\"]}", "layers/schedule/schedule.c",
     "int kc_check(void);\nint kc_check(void) { return 0; }\n", "does not call kc_base: a net is down"},
    {"{\"kind\":\"unique\"}", "layers/schedule/schedule.c", "int kc_base(void);\nint kc_base(void) { return 2; }\n",
     "schedule defines kc_base, which base defines too"},
    {"{\"kind\":\"words\",\"room\":\"schedule\",\"words\":[\"attention\"]}", "layers/schedule/schedule.c",
     "int kc_check(void);\nint kc_check(void) { int attention = 3; return attention; }\n", "says \"attention\""},
    {"{\"kind\":\"words\",\"room\":\"schedule\",\"words\":[\"attention\"]}", "layers/schedule/names.def",
     "ROW(attention)\n", "says \"attention\""},
    /* schedule writes a plan that is strategy's */
    {"{\"kind\":\"words\",\"room\":\"schedule\",\"words\":[\"KC_CONTRACT_COMM_PLAN\"]}", "layers/schedule/schedule.c",
     "enum { KC_CONTRACT_COMM_PLAN };\nint kc_check(void);\nint kc_check(void) { return KC_CONTRACT_COMM_PLAN; }\n",
     "says \"KC_CONTRACT_COMM_PLAN\""},
};

START_TEST(a_seeded_violation_is_found)
{
    put_tree();
    compile();
    put_rules(seeded[_i].check, "core", NULL);
    ck_assert_msg(check_tree() == 0, "%s", error.text);
    ck_assert_msg(found[0] == 0, "the clean tree is refused: %s", found);
    put(seeded[_i].path, seeded[_i].text);
    compile();
    ck_assert_msg(check_tree() == 0, "%s", error.text);
    ck_assert_msg(strstr(found, seeded[_i].says), "wanted: %s\nfound: %s", seeded[_i].says, found);
    ck_assert_uint_ge(result.core, 1);
}
END_TEST

/* The farm and the list of contracts say the same. */
START_TEST(a_contract_may_be_included_by_its_writer_and_readers_alone)
{
    put_tree();
    compile();
    put_rules("[{\"kind\":\"header\"},{\"kind\":\"includes\",\"room\":\"comm\",\"allow\":[\"base/*\",\"comm/*\"]},"
              "{\"kind\":\"includes\",\"room\":\"schedule\",\"allow\":[\"contracts/plan.h\"]}]",
              "core", NULL);
    ck_assert_msg(check_tree() == 0 && !found[0], "%s%s", error.text, found);
    put_rules("[{\"kind\":\"header\"},"
              "{\"kind\":\"includes\",\"room\":\"comm\",\"allow\":[\"base/*\",\"comm/*\",\"contracts/*\"]}]",
              "core", NULL);
    ck_assert_int_eq(check_tree(), 0);
    ck_assert_msg(strstr(found, "comm may include it (rule r2), but is neither its writer nor a reader"), "%s", found);
    put_rules("[{\"kind\":\"header\"},"
              "{\"kind\":\"includes\",\"room\":\"schedule\",\"allow\":[\"base/*\",\"schedule/*\"]}]",
              "core", NULL);
    put("layers/schedule/schedule.c", "int kc_check(void);\nint kc_check(void) { return 0; }\n");
    ck_assert_int_eq(check_tree(), 0);
    ck_assert_msg(strstr(found, "schedule writes or reads it, but rule r2 does not let it in"), "%s", found);
}
END_TEST

/* What an entry of a folder is does not follow from its d_type: here it is a link, elsewhere it is not told. */
START_TEST(a_folder_that_does_not_look_like_one_is_read)
{
    put_tree();
    put("elsewhere/extra.c", "#include \"contracts/plan.h\"\n");
    run("ln", "-s", "../../elsewhere", "layers/comm/more", NULL);
    put_rules("{\"kind\":\"includes\",\"room\":\"comm\",\"allow\":[\"base/*\",\"comm/*\"]}", "core", NULL);
    ck_assert_int_eq(check_tree(), 0);
    ck_assert_msg(strstr(found, "r|layers/comm/more/extra.c:1|includes \"contracts/plan.h\""), "%s", found);
}
END_TEST

START_TEST(an_edge_rule_warns_and_is_counted)
{
    put_tree();
    put("layers/schedule/schedule.c", "int kc_check(void);\nint kc_check(void) { int attention = 3; return attention; }\n");
    compile();
    put_rules("{\"kind\":\"words\",\"room\":\"schedule\",\"words\":[\"attention\"]}", "edge", NULL);
    ck_assert_int_eq(check_tree(), 0);
    ck_assert_uint_eq(result.findings, 1);
    ck_assert_uint_eq(result.core, 0);
}
END_TEST

START_TEST(a_program_holds_only_its_rooms_and_the_stamp)
{
    put_tree();
    compile();
    run("cc", "bin/program.c", "-o", "bin/program", NULL);
    put_rules("{\"kind\":\"program\",\"program\":\"program\",\"never\":[\"comm\"]}", "core", NULL);
    ck_assert_msg(check_tree() == 0 && !found[0], "%s%s", error.text, found);
    run("cc", "bin/program.c", "-Wl,--whole-archive", "build/libcomm.a", "-Wl,--no-whole-archive", "build/libbase.a", "-o",
        "bin/program", NULL);
    ck_assert_int_eq(check_tree(), 0);
    ck_assert_msg(strstr(found, "contains kc_comm_sum of comm"), "%s", found);
    put_rules("{\"kind\":\"stamp\",\"program\":\"program\"}", "core", NULL);
    ck_assert_int_eq(check_tree(), 0);
    ck_assert_msg(strstr(found, "was not built under this checklist"), "%s", found);
}
END_TEST

START_TEST(an_exemption_covers_its_place_until_it_expires)
{
    const char *check = "{\"kind\":\"words\",\"room\":\"schedule\",\"words\":[\"attention\"]}";
    put_tree();
    put("layers/schedule/schedule.c", "int kc_check(void);\nint kc_check(void) { int attention = 3; return attention; }\n");
    compile();
    put_rules(check, "core",
              "[{\"rule\":\"r\",\"place\":\"layers/schedule/*\",\"reason\":\"x\",\"reach\":\"x\",\"back\":\"x\","
              "\"expires\":\"2026-06-01\"}]");
    ck_assert_int_eq(check_tree(), 0);
    ck_assert_uint_eq(result.exempt, 1);
    ck_assert_uint_eq(result.core, 0);
    put_rules(check, "core",
              "[{\"rule\":\"r\",\"place\":\"layers/schedule/*\",\"reason\":\"x\",\"reach\":\"x\",\"back\":\"x\","
              "\"expires\":\"2026-05-31\"}]");
    ck_assert_int_eq(check_tree(), 0);
    ck_assert_uint_eq(result.core, 1);
    ck_assert_ptr_nonnull(strstr(found, "its exemption has expired"));
    put_rules(check, "core", "[{\"rule\":\"nobody\",\"place\":\"*\",\"reason\":\"x\",\"reach\":\"x\",\"back\":\"x\","
                             "\"expires\":\"2026-06-01\"}]");
    ck_assert_int_eq(check_tree(), -EINVAL);
}
END_TEST

START_TEST(a_rule_changed_without_saying_so_is_refused)
{
    put_tree();
    compile();
    put_rules("{\"kind\":\"writable\",\"room\":\"comm\"}", "core", NULL);
    char path[512];
    snprintf(path, sizeof path, "%s/layers/boundary.json", tree);
    json_t *document = json_load_file(path, 0, NULL);
    json_t *rule = json_array_get(json_object_get(document, "rules"), 0);
    json_object_set_new(json_object_get(rule, "check"), "room", json_string("base"));
    char *text = json_dumps(document, 0);
    put("layers/boundary.json", text);
    ck_assert_int_eq(check_tree(), -EINVAL);
    ck_assert_msg(strstr(error.text, "rule r was changed without saying so: raise its version to 2"), "%s", error.text);
    free(text);
    json_decref(document);
}
END_TEST

/* Add a version, and its line of history with the rule's digest; `digest`: all lines before it have that one. */
static int check_with_line_more(const char *digest)
{
    char path[512];
    snprintf(path, sizeof path, "%s/layers/boundary.json", tree);
    json_t *document = json_load_file(path, 0, NULL);
    json_t *rule = json_array_get(json_object_get(document, "rules"), 0), *history = json_object_get(rule, "history");
    json_t *line = json_copy(json_array_get(history, json_array_size(history) - 1));
    for (size_t i = 0; digest && i < json_array_size(history); i++)
        json_object_set_new(json_array_get(history, i), "digest", json_string(digest));
    json_array_append_new(history, line);
    json_object_set_new(rule, "version", json_integer((json_int_t)json_array_size(history)));
    char *text = json_dumps(document, 0);
    put("layers/boundary.json", text);
    free(text);
    json_decref(document);
    return check_tree();
}

START_TEST(a_version_that_changes_nothing_is_refused_while_it_is_the_last)
{
    put_tree();
    compile();
    put_rules("{\"kind\":\"writable\",\"room\":\"comm\"}", "core", NULL);
    ck_assert_int_eq(check_with_line_more(NULL), -EINVAL);
    ck_assert_msg(strstr(error.text, "rule r: history line 2 is of the digest of line 1, so version 2 changes nothing"), "%s",
                  error.text);
    ck_assert_int_eq(check_with_line_more("0123456789abcdef0123456789abcdef"), 0);
}
END_TEST

START_TEST(a_retired_rule_has_a_reason_and_stays_retired)
{
    static const struct {
        const char *retired, *says;
    } wrong[] = {{"[{\"rule\":\"r\",\"date\":\"2026-02-01\",\"reason\":\"x\"}]",
                  "rule r is retired, but stands among the rules"},
                 {"[{\"rule\":\"old\",\"date\":\"2026-02-01\",\"reason\":\"\"}]", "retired 1 has no \"reason\""}};
    char path[512];
    put_tree();
    compile();
    put_rules("{\"kind\":\"writable\",\"room\":\"comm\"}", "core", NULL);
    snprintf(path, sizeof path, "%s/layers/boundary.json", tree);
    for (int i = 0; i < 2; i++) {
        json_t *document = json_load_file(path, 0, NULL);
        json_object_set_new(document, "retired", json_loads(wrong[i].retired, 0, NULL));
        char *text = json_dumps(document, 0);
        put("layers/boundary.json", text);
        ck_assert_int_eq(check_tree(), -EINVAL);
        ck_assert_msg(strstr(error.text, wrong[i].says), "%s", error.text);
        free(text);
        json_decref(document);
    }
}
END_TEST

START_TEST(the_readme_must_hold_the_table)
{
    char *table;
    put_tree();
    compile();
    put_rules("{\"kind\":\"readme\",\"file\":\"layers/README.md\"}", "core", NULL);
    put("layers/README.md", "# layers\n");
    ck_assert_int_eq(check_tree(), 0);
    ck_assert_uint_eq(result.core, 1);
    ck_assert_int_eq(kc_boundary_doc(tree, &table, &error), 0);
    put("layers/README.md", table);
    free(table);
    ck_assert_int_eq(check_tree(), 0);
    ck_assert_uint_eq(result.core, 0);
}
END_TEST

START_TEST(the_farm_links_what_a_room_may_include)
{
    char path[512];
    static const char *const outside[] = {"shm", "jobs", "supervisor", "console"};
    put_tree();
    for (int i = 0; i < 4; i++) {
        snprintf(path, sizeof path, "%s/x.h", outside[i]);
        put(path, "");
    }
    put_rules("{\"kind\":\"includes\",\"room\":\"comm\",\"allow\":[\"base/*\",\"comm/*\"]}", "core", NULL);
    snprintf(path, sizeof path, "%s/farm", tree);
    ck_assert_msg(kc_boundary_farm(tree, path, &error) == 0, "%s", error.text);
    snprintf(path, sizeof path, "%s/farm/comm/base/base.h", tree);
    ck_assert_int_eq(access(path, R_OK), 0);
    snprintf(path, sizeof path, "%s/farm/comm/contracts/plan.h", tree);
    ck_assert_int_ne(access(path, R_OK), 0);
}
END_TEST

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *at)
{
    (void)st;
    (void)type;
    (void)at;
    return remove(path);
}

static void setup(void)
{
    memcpy(tree, "/tmp/kc-boundary.XXXXXX", sizeof tree);
    ck_assert_ptr_nonnull(mkdtemp(tree));
    run("mkdir", "build", NULL);
}

static void teardown(void)
{
    nftw(tree, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static void make_clean(void)
{
    setup();
    put_tree();
    compile();
    memcpy(clean, tree, sizeof clean);
}

static void remove_clean(void)
{
    nftw(clean, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

int main(void)
{
    Suite *s = suite_create("boundary");
    TCase *t = tcase_create("boundary");
    tcase_set_timeout(t, 60);
    tcase_add_unchecked_fixture(t, make_clean, remove_clean);
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_loop_test(t, a_seeded_violation_is_found, 0, sizeof seeded / sizeof seeded[0]);
    tcase_add_test(t, a_contract_may_be_included_by_its_writer_and_readers_alone);
    tcase_add_test(t, a_folder_that_does_not_look_like_one_is_read);
    tcase_add_test(t, a_retired_rule_has_a_reason_and_stays_retired);
    tcase_add_test(t, an_edge_rule_warns_and_is_counted);
    tcase_add_test(t, a_program_holds_only_its_rooms_and_the_stamp);
    tcase_add_test(t, an_exemption_covers_its_place_until_it_expires);
    tcase_add_test(t, a_rule_changed_without_saying_so_is_refused);
    tcase_add_test(t, a_version_that_changes_nothing_is_refused_while_it_is_the_last);
    tcase_add_test(t, the_readme_must_hold_the_table);
    tcase_add_test(t, the_farm_links_what_a_room_may_include);
    suite_add_tcase(s, t);
    return suite_run(s);
}
