#!/usr/bin/env python3
"""The screen in tmux, as one has it over SSH: terminals of five kinds, sizes that change under it, every way out, and what is done
from it. The terminal is sane afterwards: F51, F56. What is seen is what tmux holds, never what we wrote."""
import json, os, pty, re, shutil, signal, subprocess, sys, tempfile, termios, time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from kc_flow import BIN, Node, alive, kill, main, until

KC = os.path.join(BIN, "kc")
SANE = {"alternate_on": "0", "cursor_flag": "1", "keypad_cursor_flag": "0", "mouse_any_flag": "0"}


class Terminal:
    """A shell in a window of tmux of its own."""

    def __init__(self, term="xterm-256color", environment=None, rows=24, cols=80):
        self.folder = tempfile.mkdtemp(prefix="kc-tmux-")
        self.environment = {k: v for k, v in os.environ.items() if k not in ("TMUX", "NO_COLOR", "COLUMNS", "LINES")}
        self.environment.update({"LC_ALL": "C.UTF-8", "KC_HOME": os.path.join(self.folder, "home"), "KC_INSTANCE": "terminal",
                                 "XDG_CONFIG_HOME": os.path.join(self.folder, "config"), "HISTFILE": "", "SHELL": "/bin/sh"})
        self.environment.update(environment or {})
        os.makedirs(self.environment["KC_HOME"], exist_ok=True)
        self.tmux("-f", "/dev/null", "new-session", "-d", "-x", str(cols), "-y", str(rows), "-c", self.folder,
                  "env", "PS1=$ ", f"TERM={term}", "bash", "--norc", "--noprofile")
        self.until("a prompt", lambda: "$" in self.seen())

    def tmux(self, *words, raw=False):
        done = subprocess.run(["tmux", "-u", "-S", os.path.join(self.folder, "socket"), *words], env=self.environment, capture_output=True,
                              text=True, errors="replace", timeout=30)
        assert done.returncode == 0, (words, done.stderr)
        return done.stdout if raw else done.stdout.rstrip("\n")

    def seen(self, colour=False):
        return self.tmux("capture-pane", "-p", *(["-e"] if colour else []), raw=True)

    def until(self, what, condition):
        def told():
            return f"{what}; seen:\n{self.seen()}"
        try:
            return until(what, condition)
        except AssertionError as e:
            raise AssertionError(f"{e}\n{told()}") from None

    def sees(self, text):
        self.until(f"{text!r} on the screen", lambda: text in self.seen())

    def keys(self, *keys):
        self.tmux("send-keys", *keys)

    def type(self, text):
        self.tmux("send-keys", "-l", text)

    def run(self, command):
        self.type(f"clear; {command}")
        self.keys("Enter")

    def settings(self):
        """Of the terminal, as the shell finds them behind what it ran."""
        self.type("stty -g >now && mv now settings")
        self.keys("Enter")
        path = os.path.join(self.folder, "settings")
        self.until("settings", lambda: os.path.exists(path))
        with open(path) as f:
            text = f.read()
        os.unlink(path)
        return text

    def modes(self):
        """Local modes of the terminal as they are now, whoever runs in it."""
        fd = os.open(self.tmux("display-message", "-p", "#{pane_tty}").strip(), os.O_RDONLY | os.O_NOCTTY)
        try:
            return termios.tcgetattr(fd)[3]
        finally:
            os.close(fd)

    def flags(self):
        return dict(zip(SANE, self.tmux("display-message", "-p", ",".join("#{%s}" % name for name in SANE)).split(",")))

    def kc(self):
        """The pid of the kc that runs in the window."""
        def find():
            shell = self.tmux("display-message", "-p", "#{pane_pid}")
            with open(f"/proc/{shell}/task/{shell}/children") as f:
                found = f.read().split()
            return int(found[0]) if found and os.readlink(f"/proc/{found[0]}/exe").endswith("/kc") else None
        return self.until("kc runs", find)

    def leaves(self, code, settings, what):
        """kc has ended with this code, and nothing of it is left on the terminal."""
        self.until(f"code {code}: {what}", lambda: re.search(rf"code {code}\b", self.seen()))
        self.until(f"a sane terminal: {what}", lambda: self.flags() == SANE)
        assert self.settings() == settings, what

    def resize(self, rows, cols):
        self.tmux("resize-window", "-x", str(cols), "-y", str(rows))

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        if kind is not None:
            print(self.seen(), file=sys.stderr)
        self.tmux("kill-server")
        shutil.rmtree(self.folder, ignore_errors=True)


def make_job(home, name, state="finished", steps=120):
    """A job's files, as ended."""
    folder = os.path.join(home, "jobs", name)
    os.makedirs(folder)
    with open(os.path.join(folder, "spec.json"), "w") as f:
        json.dump({"name": name.rsplit("-", 1)[0], "ranks": 2, "steps": 300, "model": {"family": "gpt2", "layers": 2, "hidden": 32,
                   "heads": 2, "context": 32, "vocab": 256}}, f)
    with open(os.path.join(folder, "state.json"), "w") as f:
        json.dump({"schema": 1, "id": name, "state": state, "created": "2026-11-29T18:00:00.000Z", "host": os.uname().nodename,
                   "instance": "terminal", "restarts": 0, "incarnation": 1, "ranks": 2, "processes": []}, f)
    with open(os.path.join(folder, "metrics.jsonl"), "w") as f:
        for step in range(1, steps + 1):
            f.write(json.dumps({"step": step, "loss": 5 - step / 100, "grad_norm": 0.5, "lr": 0.001, "tokens": 4096, "seconds": 0.25,
                                "tokens_per_second": 16384}) + "\n")


def world(t):
    home = t.environment["KC_HOME"]
    make_job(home, "demo-1")
    make_job(home, "other-1", "stopped", 20)


SIZES = [(10, 40), (50, 200), (1, 1), (3, 120), (60, 7), (24, 80), (2, 2), (40, 100), (5, 30), (24, 80)]


def test_f51_terminals_of_every_kind_while_sizes_change():
    for term in ("xterm-256color", "screen", "linux", "vt100"):
        with Terminal(term) as t:
            world(t)
            before = t.settings()
            t.run(f"{KC}; echo code $?")
            t.sees("demo-1")
            t.keys("Enter")
            t.sees("step 120/300")
            for rows, cols in SIZES:  # faster than it draws
                t.resize(rows, cols)
            t.sees("step 120/300")
            t.keys("?")
            t.sees("one line up")
            for key in "q123456789q":
                t.keys(key)
            for rows, cols in SIZES:
                t.resize(rows, cols)
                t.keys("j")
            t.keys("1")
            t.until("a whole screen", lambda: (s := t.seen().rstrip("\n").split("\n")) and len(s) == 24 and s[0].startswith(" kc ") and
                    "? help" in s[-1])
            t.keys("Q")
            t.leaves(0, before, term)


def test_a_terminal_without_a_cursor_is_told_what_works():
    with Terminal("dumb") as t:
        before = t.settings()
        t.run(f"{KC}; echo code $?")
        t.sees("kc batch FILE")
        t.leaves(2, before, "dumb")


def test_f56_every_way_out_gives_the_terminal_back():
    """Signals, a crash, and a crash with the mouse taken; while the size changes and an overlay is open."""
    for name, options, code in (("TERM", "", 143), ("INT", "", 130), ("HUP", "", 129), ("SEGV", "", 139), ("ABRT", "--mouse", 134)):
        with Terminal() as t:
            world(t)
            before = t.settings()
            t.run(f"{KC} {options}; echo code $?")
            t.sees("demo-1")
            assert t.flags()["alternate_on"] == "1"
            if options:
                t.until("the mouse is taken", lambda: t.flags()["mouse_any_flag"] == "1")
            t.type(":show demo")
            t.sees(":show demo")
            for rows, cols in SIZES[:4]:
                t.resize(rows, cols)
            kill(t.kc(), getattr(signal, "SIG" + name))
            t.resize(24, 80)
            t.leaves(code, before, name)
            if name in ("SEGV", "ABRT"):
                t.sees("the screen crashed; jobs go on")


def test_suspended_and_continued():
    """^Z, and TSTP and CONT from outside; from the screen and from copy mode."""
    with Terminal() as t:
        world(t)
        before = t.settings()
        t.run(f"{KC}; echo code $?")
        t.sees("demo-1")
        pid = t.kc()
        for stop in (lambda: t.keys("C-z"), lambda: kill(pid, signal.SIGTSTP)):
            stop()
            t.sees("Stopped")
            t.until("a sane terminal", lambda: t.flags() == SANE)
            assert t.settings() == before
            t.resize(30, 90)  # while it sleeps
            t.run("fg")
            t.sees("? help")
            t.until("the whole window", lambda: len(t.seen().rstrip("\n").split("\n")) == 30)
            t.resize(24, 80)
            t.until("the whole window", lambda: len(t.seen().rstrip("\n").split("\n")) == 24)
        t.keys("c")
        t.sees("-- kc stands still")
        assert "demo-1" in t.seen() and "? help" not in t.seen() and t.flags()["alternate_on"] == "0", t.seen()
        t.keys("C-z")
        t.sees("Stopped")
        t.type("fg")
        t.keys("Enter", "Enter")
        t.sees("? help")
        for leave in ("Enter", "q", "Escape"):
            t.keys("c")
            t.sees("-- kc stands still")
            assert not t.modes() & (termios.ECHO | termios.ICANON)
            t.keys("Up", "x")  # no key of this mode, and nothing of the screen behind it
            t.keys(leave)
            t.sees("? help")
        t.keys("c")
        t.sees("-- kc stands still")
        t.keys("C-c")
        t.until("kc has left", lambda: t.seen().rstrip("\n").endswith("\n$"))
        t.type("echo code $?")
        t.keys("Enter")
        t.leaves(130, before, "out of copy mode")


def test_a_terminal_that_is_gone_ends_it():
    """Without a signal, as under nohup: no busy loop behind a line that died."""
    pid, master = pty.fork()
    if pid == 0:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        os.environ.update(TERM="xterm", KC_HOME=tempfile.gettempdir() + "/kc-nowhere", KC_INSTANCE="nowhere")
        os.execv(KC, [KC])
    seen = b""
    while b"No jobs yet" not in seen:
        seen += os.read(master, 4096)
    os.close(master)
    ended = until("it has ended", lambda: (r := os.waitpid(pid, os.WNOHANG))[0] == pid and r)
    assert os.waitstatus_to_exitcode(ended[1]) == 129, ended


def test_colours_are_those_that_were_chosen():
    """By role, from the config, the terminal's kind, NO_COLOR, an option; in that order of strength from the last."""
    cases = (("xterm-256color", {}, "", r"\x1b\[[0-9;]*38;5;114m"), ("screen", {}, "", r"\x1b\[[0-9;]*32m"),
             ("xterm-256color", {"NO_COLOR": "1"}, "", None), ("xterm-256color", {"NO_COLOR": "1"}, "--theme light", r"38;5;28m"),
             ("vt100", {}, "--theme light", None))
    for term, environment, options, colour in cases:
        with Terminal(term, environment) as t:
            make_job(t.environment["KC_HOME"], "demo-1", "running")
            t.run(f"{KC} {options}; echo code $?")
            t.sees("demo-1")
            line = [row for row in t.seen(colour=True).split("\n") if "demo-1" in row][0]
            if colour is None:
                assert not re.search(r"\x1b\[[0-9;]*(3[0-7]|38;5;\d+)m", t.seen(colour=True)), (term, line)
            else:
                t.keys("j")  # there is one row, under the cursor: colours of the curve
                t.keys("Enter")
                t.sees("step 120/300")
                t.until(f"{colour} of {term}", lambda: re.search(colour, t.seen(colour=True)) or
                        re.search(r"\x1b\[[0-9;]*(38;5;80|38;5;26|32|34)m", t.seen(colour=True)))
            t.keys("Q")


def test_what_is_done_from_the_screen():
    """A menu and a typed statement on a real job; what was done is a batch file afterwards. --readonly does nothing."""
    with Node() as node:
        job = node.start(steps=100000, env={"FAKE_STEP_MS": 5})
        node.wait_step(job, 3)
        with Terminal(environment={"KC_HOME": node.home, "KC_INSTANCE": node.instance}) as t:
            before = t.settings()
            t.run(f"{KC} --readonly; echo code $?")
            t.sees(job)
            t.keys("a")
            t.sees("--readonly")
            t.type(f":pause {job}")
            t.keys("Enter")
            t.sees("this screen only looks")
            t.keys("Q")
            t.leaves(0, before, "--readonly")
            assert node.state(job) == "running" and not os.path.exists(os.path.join(node.home, "history"))

            t.run(f"{KC}; echo code $?")
            t.sees(job)
            t.keys("a")
            t.sees(f"{job}: what?")
            t.keys("j", "Enter")
            node.wait(job, "paused")
            t.sees("exit code 0")
            t.type(":resu\t")  # over the output: the next statement begins
            t.sees(":resume")
            t.keys("Tab")
            t.sees(f":resume {job}")
            t.keys("Enter")
            node.wait(job, "running")
            t.sees("exit code 0")
            t.type(f":stop {job}")
            t.keys("Enter")
            t.sees("Type y and Enter")
            t.type("y")
            t.keys("Enter")
            node.wait(job, "stopped")
            t.sees("exit code 0")
            t.type("q:")
            t.keys("Up")
            t.sees(f":stop {job}")
            t.keys("Escape")
            t.keys("Q")
            t.leaves(0, before, "after actions")
        script = subprocess.run([KC, "history", "--script"], env=node.environment, capture_output=True, text=True)
        lines = [line for line in script.stdout.split("\n") if line and not line.startswith("#")]
        assert lines == [f"pause {job}", f"resume {job}", f"stop {job}"], script.stdout
        again = subprocess.run([KC, "batch", "--dry-run", "-"], env=node.environment, input=script.stdout, capture_output=True, text=True)
        assert again.returncode == 0, again.stderr


def test_held_and_written():
    with Terminal() as t:
        world(t)
        t.run(f"{KC} --interval 0.2; echo code $?")
        t.sees("demo-1")
        t.keys("z")
        t.sees("FROZEN")
        make_job(t.environment["KC_HOME"], "late-1")
        t.sees("FROZEN 2 s")
        assert "late-1" not in t.seen()
        t.keys("z")
        t.sees("late-1")
        t.keys("W")
        t.sees("written: kc-jobs-")
        name = re.search(r"kc-jobs-\d{8}T\d{6}\.txt", t.seen()).group()
        with open(os.path.join(t.folder, name)) as f:
            assert "late-1" in f.read()
        t.keys("Q")
        t.sees("code 0")


if __name__ == "__main__":
    if not shutil.which("tmux"):
        print("SKIPPED: tmux is not installed")
        sys.exit(0)
    main(globals())
