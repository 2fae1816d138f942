/* console.c - the top of kc: words or screen. */
#include "console.h"

#include "command.h"
#include "screen/screen.h"
#include "session.h"

#include "supervisor/protocol.h"

#include <locale.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

/* No verb, on a terminal: the screen, whatever options of its own come with that. */
static bool wants_screen(const struct session *s, int count, const char *const *words, struct statement *st)
{
    if (!s->terminal || !isatty(STDIN_FILENO) || statement_parse(count, words, st, NULL))
        return false;
    return !st->command && !st->help && !st->version && !st->json;
}

/* One that is no option of the screen is told. */
static int open_screen(struct session *s, const struct arguments *a)
{
    for (int i = 0; i < OPTIONS; i++)
        if (a->option[i] && !(OF_SCREEN & OPT_BIT(i)))
            return session_fail(s, KC_EXIT_USAGE, "the screen has no option --%s. `kc help` lists the verbs", option_rows[i].name);
    return screen_run(s, NULL, a);
}

/* A reader that hangs up (kc ps | head) makes a write fail, which session_gone() tells from others; programs that we run begin with
 * what is usual. */
static void reader_left(int number)
{
    (void)number;
}

int kc_console_main(int argc, char **argv)
{
    static struct statement st;
    struct session s = {.out = stdout, .err = stderr, .terminal = isatty(STDOUT_FILENO) == 1, .verb = "kc"};
    struct kc_error e = {""};
    setlocale(LC_CTYPE, ""); /* letters of the screen; numbers keep their point */
    sigaction(SIGPIPE, &(struct sigaction){.sa_handler = reader_left, .sa_flags = SA_RESTART}, NULL);
    int rc = kc_home_find(NULL, NULL, &s.home, &e), code;
    for (int i = 1; i < argc; i++)
        s.json |= !strcmp(argv[i], "--json") && rc;
    if (rc)
        return session_fail(&s, KC_EXIT_INVALID, "%s", e.text);
    if (wants_screen(&s, argc - 1, (const char *const *)argv + 1, &st))
        return open_screen(&s, &st.arguments);
    code = statement_run(&s, argc - 1, (const char *const *)argv + 1);
    if (!code && session_written(&s))
        code = KC_EXIT_SYSTEM;
    return code;
}
