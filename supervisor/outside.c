/* outside.c - a child is a session leader, so that it ends with all that it started, and has an alarm clock of its own, which
 * rings also when we are gone. */
#include "outside.h"

#include "process.h"
#include "protocol.h"

#include "base/clock.h"
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define LATE (2 * KC_SECOND)               /* beyond its alarm: then it does not heed that */

/* ---- open and close ---- */

static int open_folder(struct kc_outside *o, const char *folder, struct kc_error *e)
{
    o->lock = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (o->lock < 0 || !realpath(folder, o->folder) || access(o->folder, W_OK | X_OK) != 0) {
        const int r = -errno;
        if (o->lock >= 0)
            close(o->lock);
        o->lock = -1;
        return kc_fail(e, r, "--textfile %s: %s; it wants a folder that this user may write to", folder, strerror(-r));
    }
    if (flock(o->lock, LOCK_EX | LOCK_NB) != 0) {
        close(o->lock);
        o->lock = -1;
        return kc_fail(e, -EBUSY, "--textfile %s: another kcd writes there already; one of a machine does for all instances of this home, "
                       "another home wants a folder of its own", folder);
    }
    kc_program_find("KC_CONSOLE_BINARY", "kc", o->console, sizeof o->console);
    o->write = kc_now();
    return 0;
}

static int open_command(struct kc_outside *o, const char *command, struct kc_error *e)
{
    struct stat st;
    if (!realpath(command, o->command) || stat(o->command, &st) != 0 || access(o->command, X_OK) != 0)
        return kc_fail(e, -errno, "--on-event %s: %s; it wants the path of one program, without arguments", command, strerror(errno));
    if (!S_ISREG(st.st_mode))
        return kc_fail(e, -EINVAL, "--on-event %s is no program", command);
    o->waiting = json_array();
    return 0;
}

int kc_outside_open(struct kc_outside *o, const struct kc_home *home, const char *folder, const char *command, struct kc_error *e)
{
    int r = 0;
    o->home = home;
    if (folder)
        r = open_folder(o, folder, e);
    if (r == 0 && command)
        r = open_command(o, command, e);
    return r;
}

/* It is not reaped yet, so the number is its own; before it leads its session there is no group. */
static void end(const struct kc_outside_child *c)
{
    if (kc_process_signal_group(c->pid, SIGKILL) < 0)
        kc_process_signal(c->pid, SIGKILL);
}

void kc_outside_close(struct kc_outside *o)
{
    char path[PATH_MAX + 64];
    if (o->writer.pid) { /* or it would bring them back */
        end(&o->writer);
        waitpid(o->writer.pid, NULL, 0);
        snprintf(path, sizeof path, "%s/" KC_FIGURES_FILE ".next.tmp.%d", o->folder, (int)o->writer.pid);
        unlink(path);
    }
    if (o->lock >= 0) {
        snprintf(path, sizeof path, "%s/" KC_FIGURES_FILE ".next", o->folder);
        unlink(path);
        path[strlen(path) - strlen(".next")] = 0;
        unlink(path);
        close(o->lock);
    }
    o->lock = -1;
    json_decref(o->waiting);
    o->waiting = NULL;
}

/* ---- children ---- */

/* What is on its standard input is a file in memory: who does not read it keeps nobody. -1: none. */
static int input_of(const json_t *what)
{
    char *text = what ? json_dumps(what, KC_JSON_FLAGS) : NULL;
    int fd = text ? memfd_create("kc-event", MFD_CLOEXEC) : -1;
    if (fd >= 0 && (kc_write_all(fd, text, strlen(text)) < 0 || kc_write_all(fd, "\n", 1) < 0 || lseek(fd, 0, SEEK_SET) < 0)) {
        close(fd);
        fd = -1;
    }
    free(text);
    return fd;
}

/* The child, up to exec. */
static void become(const struct kc_outside *o, const char *program, char *const *argv, int in)
{
    const int null = open("/dev/null", O_RDWR);
    setsid();
    kc_signals_restore();
    setenv("KC_HOME", o->home->home, 1);
    setenv("KC_INSTANCE", o->home->instance, 1);
    if (null < 0 || dup2(in >= 0 ? in : null, 0) < 0 || dup2(null, 1) < 0 || dup2(null, 2) < 0)
        _exit(127);
    syscall(SYS_close_range, 3, ~0u, CLOSE_RANGE_CLOEXEC);
    alarm(KC_OUTSIDE_SECONDS);
    execv(program, argv);
    _exit(127);
}

static void run(struct kc_outside *o, struct kc_outside_child *c, const char *program, const char *const *argv, int in)
{
    const pid_t pid = fork();
    if (pid == 0)
        become(o, program, (char *const *)argv, in);
    if (pid < 0)
        o->log("%s could not be started: %s", program, strerror(errno));
    *c = (struct kc_outside_child){.pid = pid > 0 ? pid : 0, .deadline = kc_now() + KC_OUTSIDE_SECONDS * KC_SECOND + LATE};
}

static void run_program(struct kc_outside *o, struct kc_outside_child *c)
{
    const char *const argv[] = {o->command, NULL};
    const int in = input_of(json_array_get(o->waiting, 0));
    if (in < 0) {
        o->log("--on-event: no memory to tell an event");
    } else {
        run(o, c, o->command, argv, in);
        close(in);
    }
    json_array_remove(o->waiting, 0);
}

static void run_writer(struct kc_outside *o)
{
    const char *const argv[] = {"kc", "metrics", "--textfile", o->folder, NULL};
    run(o, &o->writer, o->console, argv, -1);
    o->write = kc_now() + KC_TEXTFILE_SECONDS * KC_SECOND;
}

/* ---- from outside ---- */

void kc_outside_changed(struct kc_outside *o)
{
    const uint64_t soon = kc_now() + KC_SECOND;
    if (o->lock >= 0 && soon < o->write)
        o->write = soon;
}

void kc_outside_tell(struct kc_outside *o, json_t *what)
{
    if (json_array_size(o->waiting) < KC_OUTSIDE_WAITING) {
        json_array_append_new(o->waiting, what);
        return;
    }
    if (o->dropped++ == 0)
        o->log("--on-event: %d events wait for %s; what happens meanwhile is not told (kc events has all)", KC_OUTSIDE_WAITING,
               o->command);
    json_decref(what);
}

bool kc_outside_take(struct kc_outside *o, pid_t pid, int status)
{
    struct kc_outside_child *c = o->writer.pid == pid ? &o->writer : NULL;
    for (int i = 0; i < KC_OUTSIDE_AT_ONCE; i++)
        c = o->program[i].pid == pid ? &o->program[i] : c;
    if (!c)
        return false;
    const char *program = c == &o->writer ? "--textfile: kc metrics" : o->command;
    const bool again = c == &o->writer && o->failed;
    if (c == &o->writer)
        o->failed = status != 0;
    c->pid = 0;
    if (WIFSIGNALED(status)) /* an alarm rings for its process alone: what that had started goes with it */
        kc_process_signal_group(pid, SIGKILL);
    if (again) /* it is tried every few seconds, and said once */
        return true;
    if (WIFSIGNALED(status))
        o->log("%s was ended by signal %d%s", program, WTERMSIG(status),
               c->late || WTERMSIG(status) == SIGALRM ? ": it had its time" : "");
    else if (WEXITSTATUS(status))
        o->log("%s ended with exit code %d", program, WEXITSTATUS(status));
    return true;
}

/* The earlier of two; 0 is never. */
static uint64_t earlier(uint64_t a, uint64_t b)
{
    return a == 0 || (b && b < a) ? b : a;
}

uint64_t kc_outside_tick(struct kc_outside *o)
{
    const uint64_t now = kc_now();
    uint64_t next = 0;
    if (o->lock >= 0 && !o->writer.pid && now >= o->write)
        run_writer(o);
    if (o->lock >= 0)
        next = earlier(next, o->writer.pid ? o->writer.deadline : o->write);
    for (int i = 0; i < KC_OUTSIDE_AT_ONCE; i++)
        if (!o->program[i].pid && json_array_size(o->waiting))
            run_program(o, &o->program[i]);
    struct kc_outside_child *all[KC_OUTSIDE_AT_ONCE + 1] = {&o->writer};
    for (int i = 0; i < KC_OUTSIDE_AT_ONCE; i++)
        all[i + 1] = &o->program[i];
    for (int i = 0; i <= KC_OUTSIDE_AT_ONCE; i++) {
        if (all[i]->pid && now >= all[i]->deadline) {
            end(all[i]);
            all[i]->deadline = now + LATE;
            all[i]->late = true;
        }
        next = earlier(next, all[i]->pid ? all[i]->deadline : 0);
    }
    if (json_array_size(o->waiting) == 0)
        o->dropped = 0;
    return next;
}

size_t kc_outside_children(const struct kc_outside *o, pid_t *out, size_t room)
{
    size_t n = 0;
    if (o->writer.pid && n < room)
        out[n++] = o->writer.pid;
    for (int i = 0; i < KC_OUTSIDE_AT_ONCE; i++)
        if (o->program[i].pid && n < room)
            out[n++] = o->program[i].pid;
    return n;
}
