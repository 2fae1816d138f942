/* console_home.c */
#include "console_home.h"

#include "base/clock.h"
#include "base/file.h"
#include "console/command.h"

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

void console_home_make(struct console_home *h)
{
    snprintf(h->path, sizeof h->path, "/tmp/kc-console-XXXXXX");
    if (!mkdtemp(h->path))
        abort();
    snprintf(h->instance, sizeof h->instance, "t%d", (int)getpid());
    setenv("KC_HOME", h->path, 1);
    setenv("KC_INSTANCE", h->instance, 1);
    setenv("XDG_CONFIG_HOME", h->path, 1); /* no file of the person who runs the tests */
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *where)
{
    (void)st;
    (void)type;
    (void)where;
    return remove(path);
}

void console_home_remove(struct console_home *h)
{
    nftw(h->path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

void console_home_write(const struct console_home *h, const char *name, const char *text)
{
    char path[1024], folder[1024];
    snprintf(path, sizeof path, "%s/%s", h->path, name);
    snprintf(folder, sizeof folder, "%s", path);
    *strrchr(folder, '/') = 0;
    kc_make_dirs(folder);
    FILE *f = fopen(path, "w");
    if (!f || fputs(text, f) < 0 || fclose(f))
        abort();
}

void console_home_job(const struct console_home *h, const char *id, const char *state, int steps_done, int steps)
{
    char name[256], text[2048], host[65] = "";
    static char lines[1 << 20];
    size_t n = 0;
    gethostname(host, sizeof host - 1);
    snprintf(name, sizeof name, "jobs/%s/spec.json", id);
    snprintf(text, sizeof text,
             "{\"name\":\"%.*s\",\"ranks\":2,\"steps\":%d,\"model\":{\"family\":\"gpt2\",\"layers\":4,"
             "\"hidden\":128,\"heads\":4,\"context\":128,\"vocab\":256},\"precision\":\"bf16\",\"parallel\":{\"data\":2,\"zero\":1}}",
             (int)(strrchr(id, '-') - id), id, steps);
    console_home_write(h, name, text);
    snprintf(name, sizeof name, "jobs/%s/state.json", id);
    snprintf(text, sizeof text,
             "{\"schema\":1,\"id\":\"%s\",\"state\":\"%s\",\"created\":\"2026-11-29T18:00:00.000Z\","
             "\"host\":\"%s\",\"instance\":\"%s\",\"restarts\":0,\"incarnation\":1,\"ranks\":2,\"processes\":[]}",
             id, state, host, h->instance);
    console_home_write(h, name, text);
    for (int s = 1; s <= steps_done; s++)
        n += (size_t)snprintf(lines + n, sizeof lines - n,
                              "{\"step\":%d,\"loss\":%.9g,\"grad_norm\":0.5,\"lr\":0.001,"
                              "\"tokens\":4096,\"seconds\":0.25,\"tokens_per_second\":16384}\n",
                              s, 5 - s / 100.0);
    lines[n] = 0;
    snprintf(name, sizeof name, "jobs/%s/metrics.jsonl", id);
    console_home_write(h, name, lines);
}

void console_run(struct console_answer *a, const char *const *words)
{
    struct session s = {.verb = "kc"};
    struct kc_error e = {""};
    int count = 0;
    memset(a, 0, sizeof *a);
    while (words[count])
        count++;
    s.out = open_memstream(&a->out, &a->out_bytes);
    s.err = open_memstream(&a->err, &a->err_bytes);
    if (!s.out || !s.err || kc_home_find(NULL, NULL, &s.home, &e))
        abort();
    a->code = statement_run(&s, count, words);
    fclose(s.out);
    fclose(s.err);
}

void console_answer_free(struct console_answer *a)
{
    free(a->out);
    free(a->err);
    memset(a, 0, sizeof *a);
}
