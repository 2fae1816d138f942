/* terminal.c - the only file that talks to a terminal, and the only state of the console that is global: there is one
 * terminal, and signal handlers must find it. */
#define _XOPEN_SOURCE_EXTENDED 1
#include "terminal.h"

#include "theme.h"

#include "base/file.h"

#include <errno.h>
#include <ncurses.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
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

/* Async-signal-safe: poll, write, tcsetattr, signal, raise. A terminal that takes nothing (^S, a dead line) gets no farewell:
 * a write would wait for it. */
static void on_crash(int number)
{
    struct pollfd p = {.fd = STDOUT_FILENO, .events = POLLOUT};
    if (taken) {
        if (poll(&p, 1, 0) == 1 && p.revents & POLLOUT && write(STDOUT_FILENO, farewell, farewell_bytes) > 0 &&
            (number == SIGSEGV || number == SIGBUS || number == SIGFPE || number == SIGILL || number == SIGABRT)) {
            static const char told[] = "kc: the screen crashed; jobs go on\r\n";
            ssize_t ignored = write(STDERR_FILENO, told, sizeof told - 1);
            (void)ignored;
        }
        tcsetattr(STDIN_FILENO, TCSANOW, &before);
    }
    signal(number, SIG_DFL);
    raise(number);
}

/* The first one is seen between two looks. The second ends us on the spot. */
static void on_end(int number)
{
    if (ended)
        on_crash(number);
    ended = number;
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
    static char aside[16384]; /* a stack that overflowed has no room for a handler */
    const stack_t stack = {.ss_sp = aside, .ss_size = sizeof aside};
    /* The second one may come in a write to a terminal that nobody reads. */
    struct sigaction a = {.sa_handler = on_end, .sa_flags = SA_NODEFER};
    sigaltstack(&stack, NULL);
    sigemptyset(&a.sa_mask);
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++)
        sigaction(ends[i], &a, NULL);
    a = (struct sigaction){.sa_handler = on_crash, .sa_flags = SA_ONSTACK};
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
}

/* ---- taking and giving back ------------------------------------------------------------------------------------ */

void terminal_colours(const char *theme, int most)
{
    int have = has_colors() && start_color() != ERR ? COLORS : 0;
    const bool transparent = have && use_default_colors() == OK;
    have = most && most < have ? most : have;
    memset(pair, 0, sizeof pair);
    for (int role = 0; role < ROLES; role++) {
        const struct paint p = theme_paint(theme, have, (enum role)role);
        look[role] = (p.bold ? A_BOLD : A_NORMAL) | (p.reverse ? A_REVERSE : A_NORMAL);
        if (p.ink >= 0 && role + 1 < COLOR_PAIRS &&
            init_pair((short)(role + 1), p.ink, transparent ? -1 : COLOR_BLACK) == OK)
            pair[role] = (short)(role + 1);
    }
}

static bool has(const char *capability)
{
    const char *text = tigetstr(capability);
    return text && text != (char *)-1;
}

int terminal_open(const struct config *c)
{
    int error = 0;
    if (!isatty(STDIN_FILENO) || !isatty(STDOUT_FILENO) || tcgetattr(STDIN_FILENO, &before))
        return -ENOTTY;
    if (setupterm(NULL, STDOUT_FILENO, &error) == ERR) /* initscr() would end the process */
        return -EINVAL;
    if (!has("cup") && !(has("hpa") && has("vpa")))
        return -ENOTSUP;
    if (config_is(c, CONFIG_MOUSE, "yes")) {
        static const char off[] = "\033[?1000l\033[?1006l"; /* terminfo has it under a name that it makes a function of */
        memcpy(farewell, off, sizeof off - 1);
        farewell_bytes = sizeof off - 1;
    }
    say_later("sgr0");
    say_later(has("rmcup") ? "rmcup" : "clear");
    say_later("cnorm");
    say_later("rmkx"); /* else arrows stay those of a screen */
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
    terminal_colours(c->set[CONFIG_THEME].word, (int)strtol(c->set[CONFIG_COLOURS].word, NULL, 10)); /* auto: 0 */
    if (config_is(c, CONFIG_MOUSE, "yes"))
        mousemask(BUTTON1_PRESSED | BUTTON4_PRESSED | BUTTON5_PRESSED, NULL);
    mouseinterval(0); /* a press is a press: no waiting for a second one */
    return 0;
}

void terminal_close(void)
{
    if (!taken)
        return;
    if (!has("rmcup")) { /* no second screen: what is left of ours stays, but not in the way of what comes next */
        move(LINES - 1, 0);
        clrtoeol();
        refresh();
    }
    endwin();
    taken = 0;
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

bool terminal_takes(void)
{
    struct pollfd p = {.fd = STDOUT_FILENO, .events = POLLOUT};
    int queued = 0;
    return (ioctl(STDOUT_FILENO, TIOCOUTQ, &queued) != 0 || queued == 0) && poll(&p, 1, 0) != 0;
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

bool terminal_mouse(int *row, int *col, int *button)
{
    MEVENT e;
    if (getmouse(&e) != OK)
        return false;
    *row = e.y;
    *col = e.x;
    *button = e.bstate & BUTTON1_PRESSED ? 1 : e.bstate & BUTTON4_PRESSED ? 4 : e.bstate & BUTTON5_PRESSED ? 5 : 0;
    return *button != 0;
}

/* ---- plain text that stands still ---- */

static volatile sig_atomic_t asleep;

static void on_stop(int number)
{
    asleep = number;
}

/* Keys come one by one and unseen; ^C and ^Z are signals, as before. */
static void plain_keys(void)
{
    struct termios quiet = before;
    quiet.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
    quiet.c_cc[VMIN] = 1;
    quiet.c_cc[VTIME] = 0;
    tcsetattr(STDIN_FILENO, TCSANOW, &quiet);
}

static void plain_sleep(void)
{
    struct sigaction stops = {.sa_handler = SIG_DFL}, ours;
    asleep = 0;
    tcsetattr(STDIN_FILENO, TCSANOW, &before);
    sigaction(SIGTSTP, &stops, &ours);
    raise(SIGTSTP);
    sigaction(SIGTSTP, &ours, NULL);
    plain_keys();
}

/* The next byte within so many ms; 0: none came, -1: nothing can be read any more. */
static int plain_byte(int ms)
{
    struct pollfd p = {.fd = STDIN_FILENO, .events = POLLIN};
    unsigned char byte = 0;
    if (poll(&p, 1, ms) <= 0)
        return 0;
    const ssize_t n = read(STDIN_FILENO, &byte, 1);
    return n == 1 ? byte : n < 0 && errno == EINTR ? 0 : -1;
}

/* Enter, q or Esc; what an arrow sends begins as Esc does, and is passed over. */
static bool plain_left(void)
{
    int byte = plain_byte(1000);
    if (byte != 27)
        return byte < 0 || (byte && strchr("\n\rqQ", byte));
    byte = plain_byte(0);
    if (byte != '[' && byte != 'O')
        return true;
    do
        byte = plain_byte(0);
    while (byte > 0 && (byte < 64 || byte > 126)); /* parameters stand before the letter */
    return false;
}

void terminal_plain(const char *text)
{
    struct sigaction plain = {.sa_handler = on_stop}, of_ncurses;
    def_prog_mode();
    endwin();
    sigaction(SIGTSTP, &plain, &of_ncurses); /* which would leave the screen once more, and come back to it */
    plain_keys();
    ssize_t ignored = write(STDOUT_FILENO, "\n", 1);
    kc_write_all(STDOUT_FILENO, text, strlen(text));
    static const char back[] = "-- kc stands still: select with the terminal; Enter, q or Esc goes back --";
    ignored = write(STDOUT_FILENO, back, sizeof back - 1);
    (void)ignored;
    while (!ended && !plain_left())
        if (asleep)
            plain_sleep();
    if (ended) { /* the terminal is given back already, and stays so */
        taken = 0;
        tcsetattr(STDIN_FILENO, TCSANOW, &before);
        ignored = write(STDOUT_FILENO, "\n", 1);
        (void)ignored;
        return;
    }
    sigaction(SIGTSTP, &of_ncurses, NULL);
    reset_prog_mode();
    refresh();
    clearok(curscr, TRUE);
}

bool terminal_gone(void)
{
    struct pollfd p = {.fd = STDIN_FILENO, .events = POLLIN};
    return poll(&p, 1, 0) > 0 && (p.revents & (POLLHUP | POLLERR | POLLNVAL));
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
