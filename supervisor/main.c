/* main.c - kcd: the supervisor (`kcd`), and with --keep the keeper of one job. */
#include "drills.h"
#include "kcd.h"
#include "keeper.h"
#include "protocol.h"

#include "base/file.h"
#include "base/suggest.h"
#include "base/version.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define LOG_MAX (4 << 20) /* of kcd.log; begun anew by the start that finds it larger */

struct options {
    bool daemon, recover, drills;
    const char *home, *instance, *keep, *leases;
    struct kc_kcd_wishes wishes;
    int link, lock;
};

static const char usage[] =
    "usage: kcd [--daemon] [--home DIR] [--instance NAME] [--textfile DIR] [--on-event PROGRAM] [--allow-drills]\n"
    "       kcd --version\n"
    "  --daemon         go to the background once the control socket answers\n"
    "  --home DIR       where jobs live ($KC_HOME, else $XDG_STATE_HOME/kuangchao, else ~/.local/state/kuangchao)\n"
    "  --instance NAME  which supervisor of this user ($KC_INSTANCE, else default)\n"
    "  --textfile DIR   keep DIR/kuangchao.prom fresh, for node_exporter's textfile collector\n"
    "  --on-event PROGRAM  run it for jobs that finish, fail or hang, and snapshots that fail, with a JSON object on its input\n"
    "  --allow-drills   run jobs whose spec puts faults into their ranks (kc drill)\n"
    "  --version        print the version and end; kc and kcd talk only when theirs are equal\n"
    "See kcd(8).\n";

/* What getopt did not take. */
static int refuse(const struct option *list, char *const *argv, int c)
{
    const char *names[32], *word = argv[optind - 1];
    char name[64];
    size_t n = 0;
    if (c == ':') {
        fprintf(stderr, "kcd: %s wants a value; kcd --help has all options\n", word);
        return -EINVAL;
    }
    for (; list[n].name && n < sizeof names / sizeof *names; n++)
        names[n] = list[n].name;
    snprintf(name, sizeof name, "%.*s", (int)strcspn(word, "="), word);
    const char *near = kc_suggest(name + strspn(name, "-"), names, n);
    if (near)
        fprintf(stderr, "kcd: unknown option %s. Did you mean --%s? kcd --help has all\n", word, near);
    else
        fprintf(stderr, "kcd: unknown option %s; kcd --help has all\n", word);
    return -EINVAL;
}

static int parse(int argc, char **argv, struct options *o)
{
    enum { DAEMON = 256, HOME, INSTANCE, KEEP, LEASES, LINK, LOCK, RECOVER, DRILLS, TEXTFILE, ON_EVENT, HELP, VERSION };
    static const struct option list[] = {
        {"daemon", no_argument, NULL, DAEMON},     {"home", required_argument, NULL, HOME},
        {"instance", required_argument, NULL, INSTANCE}, {"keep", required_argument, NULL, KEEP},
        {"leases", required_argument, NULL, LEASES}, {"link", required_argument, NULL, LINK},
        {"lock", required_argument, NULL, LOCK},   {"recover", no_argument, NULL, RECOVER},
        {"textfile", required_argument, NULL, TEXTFILE}, {"on-event", required_argument, NULL, ON_EVENT},
        {"allow-drills", no_argument, NULL, DRILLS}, {"help", no_argument, NULL, HELP},         {"version", no_argument, NULL, VERSION},
        {0}};
    *o = (struct options){.link = -1, .lock = -1};
    opterr = 0;
    for (int c; (c = getopt_long(argc, argv, ":", list, NULL)) != -1;) {
        switch (c) {
        case DAEMON: o->daemon = true; break;
        case HOME: o->home = optarg; break;
        case INSTANCE: o->instance = optarg; break;
        case KEEP: o->keep = optarg; break;
        case LEASES: o->leases = optarg; break;
        case LINK: o->link = (int)strtol(optarg, NULL, 10); break;
        case LOCK: o->lock = (int)strtol(optarg, NULL, 10); break;
        case RECOVER: o->recover = true; break;
        case DRILLS: o->drills = true; break;
        case TEXTFILE: o->wishes.textfile = optarg; break;
        case ON_EVENT: o->wishes.on_event = optarg; break;
        case HELP:
            fputs(usage, stdout);
            exit(KC_EXIT_OK);
        case VERSION:
            puts("kcd " KC_VERSION);
            exit(KC_EXIT_OK);
        default:
            return refuse(list, argv, c);
        }
    }
    if (optind < argc) {
        fprintf(stderr, "kcd: unexpected argument '%s'\n%s", argv[optind], usage);
        return -EINVAL;
    }
    return 0;
}

/* The three standard descriptors must be open: what is opened later would become one of them. */
static void open_standard(void)
{
    for (int fd = 0; fd < 3; fd++)
        if (fcntl(fd, F_GETFD) < 0)
            (void)!open("/dev/null", fd ? O_WRONLY : O_RDONLY);
}

/* Standard output and error of a supervisor without a terminal: <run>/kcd.log. */
static void log_to_file(const struct kc_home *home)
{
    char path[PATH_MAX];
    struct stat st;
    snprintf(path, sizeof path, "%s/kcd.log", home->run);
    int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    int log = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (log >= 0 && fstat(log, &st) == 0 && st.st_size > LOG_MAX)
        (void)!ftruncate(log, 0);
    if (log < 0)
        log = open("/dev/null", O_WRONLY | O_CLOEXEC);
    dup2(null, 0);
    dup2(log, 1);
    dup2(log, 2);
}

/* The parent: wait for the word of the child, say it, and go. Of a child that could not start nothing is left behind. */
static int await_ready(int fd, pid_t child)
{
    char text[1100];
    size_t have = 0;
    ssize_t n;
    while (have < sizeof text - 1 &&
           ((n = read(fd, text + have, sizeof text - 1 - have)) > 0 || (n < 0 && errno == EINTR)))
        have += n > 0 ? (size_t)n : 0;
    text[have] = 0;
    if (strcmp(text, "ok") == 0)
        return KC_EXIT_OK;
    while (waitpid(child, NULL, 0) < 0 && errno == EINTR) {
    }
    fprintf(stderr, "kcd: %s\n", have ? text : "ended before its socket answered; see kcd.log");
    return strncmp(text, "already running", 15) == 0 ? KC_EXIT_REFUSED : KC_EXIT_SYSTEM;
}

static int run_daemon(const struct kc_home *home, const struct kc_kcd_wishes *wishes)
{
    int word[2];
    if (pipe2(word, O_CLOEXEC) != 0) {
        fprintf(stderr, "kcd: no pipe: %s\n", strerror(errno));
        return KC_EXIT_SYSTEM;
    }
    pid_t pid = fork();
    if (pid < 0) {
        fprintf(stderr, "kcd: no process: %s\n", strerror(errno));
        return KC_EXIT_SYSTEM;
    }
    if (pid > 0) {
        close(word[1]);
        return await_ready(word[0], pid);
    }
    close(word[0]);
    setsid();
    kc_make_dirs(home->run); /* for the log; if it fails kcd says so itself */
    log_to_file(home);
    (void)!chdir("/");
    return kc_kcd_main(home, wishes, word[1]);
}

int main(int argc, char **argv)
{
    struct options o;
    struct kc_home home;
    struct kc_error e;
    open_standard();
    umask(077);
    if (parse(argc, argv, &o) < 0)
        return KC_EXIT_USAGE;
    if (kc_home_find(o.home, o.instance, &home, &e) < 0) {
        fprintf(stderr, "kcd: %s\n", e.text);
        return KC_EXIT_USAGE;
    }
    if (!o.keep) {
        char textfile[PATH_MAX], on_event[PATH_MAX]; /* whole: a daemon works in / */
        if (o.wishes.textfile && realpath(o.wishes.textfile, textfile))
            o.wishes.textfile = textfile;
        if (o.wishes.on_event && realpath(o.wishes.on_event, on_event))
            o.wishes.on_event = on_event;
        kc_drills_allow(o.drills);
        return o.daemon ? run_daemon(&home, &o.wishes) : kc_kcd_main(&home, &o.wishes, -1);
    }
    if (o.link >= 0)
        fcntl(o.link, F_SETFD, FD_CLOEXEC);
    if (o.lock >= 0)
        fcntl(o.lock, F_SETFD, FD_CLOEXEC);
    struct kc_keeper_arguments arguments = {.home = &home, .directory = o.keep, .leases = o.leases, .link = o.link,
                                            .lock = o.lock, .recover = o.recover};
    return kc_keeper_main(&arguments);
}
