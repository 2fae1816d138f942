/* console.c - the top of kc: words or screen. */
#include "console.h"

#include "command.h"
#include "screen/screen.h"
#include "session.h"

#include "supervisor/protocol.h"

#include <errno.h>
#include <locale.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

int kc_console_main(int argc, char **argv)
{
    struct session s = {.out = stdout, .err = stderr, .terminal = isatty(STDOUT_FILENO) == 1, .verb = "kc"};
    struct kc_error e = {""};
    setlocale(LC_CTYPE, ""); /* letters of the screen; numbers keep their point */
    /* A reader that hangs up (kc ps | head) ends us quietly, as it ends cat. */
    signal(SIGPIPE, SIG_DFL);
    int rc = kc_home_find(NULL, NULL, &s.home, &e), code;
    for (int i = 1; i < argc; i++)
        s.json |= !strcmp(argv[i], "--json") && rc;
    if (rc)
        return session_fail(&s, KC_EXIT_INVALID, "%s", e.text);
    if (argc < 2 && s.terminal && isatty(STDIN_FILENO))
        return screen_run(&s, NULL);
    code = statement_run(&s, argc - 1, (const char *const *)argv + 1);
    if (fflush(stdout) && !code)
        code = session_fail(&s, KC_EXIT_SYSTEM, "the answer can't be written: %s", strerror(errno));
    return code;
}
