"""What flow tests share: a node of its own for each test (KC_HOME, instance, kcd), requests over the control socket, waits with
deadlines, and at the end the proof that nothing is left: no process, no segment in /dev/shm.

    with Node() as node:
        job = node.start(steps=20)
        node.wait(job, "finished")

Nothing here sleeps to be safe: every wait polls a condition and fails at its deadline, saying what it saw."""
import json, os, shutil, signal, socket, subprocess, sys, tempfile, time, uuid

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BIN = os.environ.get("KC_BIN", os.path.join(ROOT, "bin"))
DEADLINE = float(os.environ.get("KC_DEADLINE", "30"))
ENDED = ("finished", "stopped", "failed", "interrupted")


def until(what, condition, deadline=None):
    """The first true value of condition(); AssertionError with `what` at the deadline."""
    end = time.monotonic() + (deadline or DEADLINE)
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError(f"not within {deadline or DEADLINE} s: {what}")
        time.sleep(0.01)


_fake = None


def fake_rank():
    """Builds the fake rank once a run; its path."""
    global _fake
    if not _fake:
        folder = tempfile.mkdtemp(prefix="kc-fake-")
        _fake = os.path.join(folder, "kc-rank")
        lib = os.path.join(ROOT, "build/release")
        subprocess.run(["gcc", "-std=gnu11", "-O1", "-g", "-D_GNU_SOURCE", "-include", "layers/base/banned.h", "-Ilayers", "-I.",
                        "tests/flow/fake_rank.c", f"{lib}/libshm.a", f"{lib}/libcontracts.a", f"{lib}/libbase.a",
                        "-ljansson", "-lxxhash", "-lm", "-o", _fake], cwd=ROOT, check=True)
    return _fake


def forget_fake():
    if _fake:
        shutil.rmtree(os.path.dirname(_fake), ignore_errors=True)


def alive(pid):
    """Runs, and is no zombie."""
    try:
        with open(f"/proc/{pid}/stat") as f:
            return f.read().rsplit(")", 1)[1].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def command_of(pid):
    try:
        with open(f"/proc/{pid}/cmdline") as f:
            return f.read().replace("\0", " ")
    except OSError:
        return "gone"


def kill(pid, sig=signal.SIGKILL):
    """To one process that is known: never to a group by mistake."""
    assert pid > 1, pid
    os.kill(pid, sig)


def kill_all(pids):
    """Some of them may be gone because of those before them."""
    for pid in pids:
        try:
            kill(pid)
        except ProcessLookupError:
            pass


def processes_with(text):
    """pids of processes whose command line or environment has the text."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        if int(pid) == os.getpid():
            continue
        for name in ("cmdline", "environ"):
            try:
                with open(f"/proc/{pid}/{name}", "rb") as f:
                    if text.encode() in f.read() and alive(pid):
                        found.append(int(pid))
                        break
            except OSError:
                pass
    return found


class Refused(Exception):
    def __init__(self, reply):
        super().__init__(reply.get("error"))
        self.reply = reply


class Connection:
    def __init__(self, path, timeout=DEADLINE):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(timeout)
        # a path of any length: through the directory's descriptor
        folder = os.open(os.path.dirname(path), os.O_PATH)
        try:
            self.socket.connect(f"/proc/self/fd/{folder}/{os.path.basename(path)}")
        except OSError:
            self.socket.close()
            raise
        finally:
            os.close(folder)
        self.file = self.socket.makefile("rb")

    def send(self, verb, **fields):
        self.socket.sendall(json.dumps(dict(fields, verb=verb)).encode() + b"\n")

    def receive(self):
        line = self.file.readline()
        if not line:
            raise ConnectionError("hung up without a reply")
        return json.loads(line)

    def close(self):
        self.file.close()
        self.socket.close()


class Node:
    def __init__(self, fake=True, home=None, instance=None, environment=None, start=True):
        self.folder = tempfile.mkdtemp(prefix="kc-flow-")
        self.home = home or os.path.join(self.folder, "home")
        self.instance = instance or "t" + uuid.uuid4().hex[:10]
        self.environment = dict(os.environ, KC_HOME=self.home, KC_INSTANCE=self.instance, **(environment or {}))
        if fake:
            self.environment["KC_RANK_BINARY"] = fake_rank()
        self.host = socket.gethostname()
        self.run = os.path.join(self.home, "run", self.host, self.instance)
        self.kcd_pid = None
        if start:
            self.start_kcd()

    # ---- kcd ----
    def kcd(self, *arguments, **how):
        program, folder = os.path.join(BIN, "kcd"), None
        if "user" in how:  # who may not look into this tree: a copy where everybody may
            folder = tempfile.mkdtemp(prefix="kc-public-")
            os.chmod(folder, 0o755)
            program = shutil.copy(program, folder)
        try:
            return subprocess.run([program, *arguments], env=self.environment, capture_output=True, text=True,
                                  timeout=DEADLINE, stdin=subprocess.DEVNULL, **how)
        finally:
            if folder:
                shutil.rmtree(folder)

    def start_kcd(self):
        done = self.kcd("--daemon")
        assert done.returncode == 0, (done.returncode, done.stderr, self.log())
        self.kcd_pid = self.request("hello")["pid"]

    def log(self):
        try:
            with open(os.path.join(self.run, "kcd.log")) as f:
                return f.read()
        except OSError:
            return ""

    def kill_kcd(self):
        kill(self.kcd_pid)
        until("kcd is gone", lambda: not alive(self.kcd_pid))

    def connect(self):
        return Connection(os.path.join(self.run, "kcd.sock"))

    def ask(self, verb, **fields):
        """One request; its reply, whatever it says."""
        c = self.connect()
        try:
            c.send(verb, **fields)
            return c.receive()
        finally:
            c.close()

    def request(self, verb, **fields):
        reply = self.ask(verb, **fields)
        if not reply["ok"]:
            raise Refused(reply)
        return reply

    # ---- jobs ----
    def spec(self, name="job", ranks=2, steps=30, env=None, **fields):
        spec = {"name": name, "ranks": ranks, "steps": steps, "threads": 1, "oversubscribe": True,
                "model": {"family": "gpt2", "layers": 2, "hidden": 32, "heads": 2, "context": 32, "vocab": 256},
                "data": {"train": "/nowhere/train.bin"}, "batch": {"sequences": 4 * ranks, "micro": 4},
                "optimizer": {"lr": 1e-3}, "parallel": {"data": ranks}, "stop": {"grace_seconds": 5},
                "env": dict({"FAKE_STEPS": str(steps)}, **{k: str(v) for k, v in (env or {}).items()})}
        for key, value in fields.items():
            spec[key] = dict(spec[key], **value) if isinstance(spec.get(key), dict) else value
        return spec

    def start(self, *arguments, **fields):
        return self.request("start", spec=self.spec(*arguments, **fields), dir="/")["job"]

    def path(self, job, *names):
        return os.path.join(self.home, "jobs", job, *names)

    def read(self, job, name):
        try:
            with open(self.path(job, name)) as f:
                return json.load(f)
        except FileNotFoundError:
            return None

    def state(self, job):
        return (self.read(job, "state.json") or {}).get("state")

    def lines(self, job, name):
        try:
            with open(self.path(job, name)) as f:
                return [json.loads(line) for line in f if line.endswith("\n")]
        except FileNotFoundError:
            return []

    def events(self, job, event=None):
        return [e for e in self.lines(job, "events.jsonl") if event in (None, e["event"])]

    def steps(self, job):
        return [m["step"] for m in self.lines(job, "metrics.jsonl") if "loss" in m]

    def wait(self, job, *states, deadline=None):
        """The record once the job is in one of the states (no states: once it has ended)."""
        def there():
            record = self.read(job, "state.json")
            if record and record["state"] in (states or ENDED):
                return record
            assert not record or record["state"] not in ENDED, f"{job} ended {record['state']}: {record['first_failure']}"
        return until(f"{job} is {states or 'ended'}; is {self.state(job)}\n{self.log()}", there, deadline)

    def wait_step(self, job, step):
        until(f"{job} at step {step}, is at {self.steps(job)[-1:]}", lambda: (self.steps(job) or [0])[-1] >= step)

    def keeper(self, job):
        return self.read(job, "state.json")["keeper"]["pid"]

    def ranks(self, job):
        return [p["pid"] for p in self.read(job, "state.json")["processes"]]

    # ---- the end ----
    def segments(self):
        return [n for n in os.listdir("/dev/shm") if f".{self.instance}" in n]

    def shutdown(self, **fields):
        reply = self.request("shutdown", **fields)
        until("kcd has ended", lambda: not alive(self.kcd_pid))
        return reply

    def assert_nothing_left(self):
        """What the kernel ends with its parent, as ranks of a task, goes a moment after it."""
        left = []

        def gone():
            left[:] = [(p, command_of(p)) for p in processes_with(self.instance) if alive(p)]
            return not left

        try:
            until("no process is left", gone, 2)
        except AssertionError:
            raise AssertionError(f"processes are left: {left}") from None
        assert not self.segments(), f"segments are left: {self.segments()}"

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        try:
            if kind is None:
                if self.kcd_pid and alive(self.kcd_pid):
                    self.shutdown()
                self.assert_nothing_left()
        finally:
            for pid in processes_with(self.instance):
                try:
                    kill(pid)
                except ProcessLookupError:
                    pass
            for name in self.segments():
                os.unlink(os.path.join("/dev/shm", name))
            if kind is not None:
                print(self.log(), file=sys.stderr)
            shutil.rmtree(self.folder, ignore_errors=True)


def main(names):
    """Runs every test_* of a module's globals(), or those named on the command line; exit code 1 if one failed."""
    wanted, failed = sys.argv[1:], []
    tests = [(n, f) for n, f in names.items() if n.startswith("test_") and (not wanted or n in wanted)]
    for name, test in tests:
        begin = time.monotonic()
        try:
            test()
            print(f"ok      {name} ({time.monotonic() - begin:.1f} s)", flush=True)
        except Exception:
            import traceback
            failed.append(name)
            print(f"FAILED  {name}\n{traceback.format_exc()}", flush=True)
    forget_fake()
    print(f"{len(tests) - len(failed)} passed, {len(failed)} failed")
    sys.exit(1 if failed else 0)
