/* terminal.c - the only file that talks to a terminal, and the only state of the console that is global: there is one
 * terminal, and signal handlers must find it. */
#define _XOPEN_SOURCE_EXTENDED 1
#include "terminal.h"

#include <errno.h>
#include <langinfo.h>
#include <ncurses.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <term.h>
#include <termios.h>
#include <unistd.h>

static volatile sig_atomic_t ended;
static volatile sig_atomic_t taken;
static struct termios before;
static char farewell[256]; /* what puts the terminal back, prepared: a crash handler may not ask terminfo */
static size_t farewell_bytes;
static attr_t look[ROLES];
static short pair[ROLES];

/* ---- every way out --------------------------------------------------------------------------------------------- */

static void on_end(int number)
{
    ended = number;
}

/* Async-signal-safe: write, tcsetattr, signal, raise. */
static void on_crash(int number)
{
    if (taken) {
        ssize_t ignored = write(STDOUT_FILENO, farewell, farewell_bytes);
        (void)ignored;
        tcsetattr(STDIN_FILENO, TCSANOW, &before);
    }
    signal(number, SIG_DFL);
    raise(number);
}

static void say_later(const char *capability)
{
    const char *text = tigetstr(capability);
    if (!text || text == (char *)-1)
        return;
    for (; *text && farewell_bytes < sizeof farewell - 3; text++) {
        if (text[0] == '$' && text[1] == '<') { /* padding is for terminals of old */
            const char *end = strchr(text, '>');
            if (end) {
                text = end;
                continue;
            }
        }
        farewell[farewell_bytes++] = *text;
    }
}

static void catch_signals(void)
{
    static const int ends[] = {SIGTERM, SIGINT, SIGHUP}, crashes[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
    /* The second one ends us on the spot: the first is only seen between two writes, and a terminal that nobody reads
     * (^S, a dead line) takes none. */
    struct sigaction a = {.sa_handler = on_end, .sa_flags = (int)SA_RESETHAND};
    sigemptyset(&a.sa_mask);
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++)
        sigaction(ends[i], &a, NULL);
    a = (struct sigaction){.sa_handler = on_crash};
    sigemptyset(&a.sa_mask);
    for (size_t i = 0; i < sizeof crashes / sizeof crashes[0]; i++)
        sigaction(crashes[i], &a, NULL);
}

int terminal_ended(void)
{
    return ended;
}

void terminal_go_on(void)
{
    ended = 0;
    catch_signals();
}

/* ---- taking and giving back ------------------------------------------------------------------------------------ */

void terminal_colours(bool colour)
{
    static const attr_t plain[ROLES] = {
        [ROLE_NORMAL] = A_NORMAL, [ROLE_DIM] = A_NORMAL, [ROLE_STRONG] = A_BOLD, [ROLE_TITLE] = A_REVERSE,
        [ROLE_CURSOR] = A_REVERSE, [ROLE_GOOD] = A_NORMAL, [ROLE_WARN] = A_BOLD, [ROLE_BAD] = A_BOLD,
        [ROLE_CURVE] = A_NORMAL,
    };
    static const short ink[ROLES] = {
        [ROLE_NORMAL] = -1, [ROLE_DIM] = COLOR_CYAN, [ROLE_STRONG] = -1, [ROLE_TITLE] = -1, [ROLE_CURSOR] = -1,
        [ROLE_GOOD] = COLOR_GREEN, [ROLE_WARN] = COLOR_YELLOW, [ROLE_BAD] = COLOR_RED, [ROLE_CURVE] = COLOR_GREEN,
    };
    memcpy(look, plain, sizeof look);
    memset(pair, 0, sizeof pair);
    if (!colour || !has_colors() || start_color() == ERR)
        return;
    bool transparent = use_default_colors() == OK;
    for (short role = 0; role < ROLES; role++)
        if (ink[role] >= 0 && role + 1 < COLOR_PAIRS &&
            init_pair((short)(role + 1), ink[role], transparent ? -1 : COLOR_BLACK) == OK)
            pair[role] = (short)(role + 1);
}

static bool has(const char *capability)
{
    const char *text = tigetstr(capability);
    return text && text != (char *)-1;
}

int terminal_open(void)
{
    const char *no_colour = getenv("NO_COLOR");
    int error = 0;
    if (!isatty(STDIN_FILENO) || !isatty(STDOUT_FILENO) || tcgetattr(STDIN_FILENO, &before))
        return -ENOTTY;
    if (setupterm(NULL, STDOUT_FILENO, &error) == ERR) /* initscr() would end the process */
        return -EINVAL;
    if (!has("cup") && !(has("hpa") && has("vpa")))
        return -ENOTSUP;
    say_later("sgr0");
    say_later("rmcup");
    say_later("cnorm");
    set_escdelay(25);
    if (!initscr())
        return -EINVAL;
    taken = 1;
    catch_signals();
    cbreak(); /* ^C stays a signal, ^Z stays a stop */
    noecho();
    nonl();
    intrflush(stdscr, FALSE);
    keypad(stdscr, TRUE);
    nodelay(stdscr, TRUE);
    curs_set(0);
    terminal_colours(!(no_colour && *no_colour));
    return 0;
}

void terminal_close(void)
{
    if (!taken)
        return;
    endwin();
    taken = 0;
}

bool terminal_ascii(void)
{
    const char *set = nl_langinfo(CODESET);
    return strcasecmp(set, "UTF-8") != 0 && strcasecmp(set, "utf8") != 0;
}

/* ---- showing --------------------------------------------------------------------------------------------------- */

void terminal_size(int *rows, int *cols)
{
    getmaxyx(stdscr, *rows, *cols);
    *rows = *rows < 1 ? 1 : *rows;
    *cols = *cols < 1 ? 1 : *cols;
}

void terminal_paint(const struct canvas *c)
{
    erase();
    for (int r = 0; r < c->rows; r++)
        for (int k = 0; k < c->cols; k++) {
            const struct cell *cell = &c->cell[(size_t)r * (size_t)c->stride + (size_t)k];
            if (!cell->code || (cell->code == ' ' && cell->role == ROLE_NORMAL))
                continue;
            wchar_t text[2] = {(wchar_t)cell->code, 0};
            cchar_t out;
            if (setcchar(&out, text, look[cell->role], pair[cell->role], NULL) == OK)
                mvadd_wch(r, k, &out); /* ERR in the last cell of the screen: it is drawn all the same */
        }
}

void terminal_show(const struct canvas *c)
{
    bool typing = c->cursor_row >= 0;
    terminal_paint(c);
    curs_set(typing ? 1 : 0);
    if (typing)
        move(c->cursor_row, c->cursor_col);
    refresh();
}

void terminal_redraw(void)
{
    clearok(curscr, TRUE);
}

bool terminal_key(int *code, bool *character)
{
    wint_t w = 0;
    int rc = get_wch(&w);
    if (rc == ERR)
        return false;
    *code = (int)w;
    *character = rc == OK;
    return true;
}
