#!/usr/bin/env python3
"""kc bench on real programs, with tiny sizes; and that a measured table of costs never changes a plan under a job. Figures are
looked at for being there and for adding up, never for being good."""
import glob, json, os, pty, re, select, shutil, signal, subprocess, sys, tempfile

from kc_flow import BIN, alive, kill, main, processes_with, until
from kc_train import Kc

TINY = ("--layers", "1", "--hidden", "32", "--heads", "2", "--vocab", "64", "--context", "16", "--micro", "2",
        "--ranks", "2", "--oversubscribe")


def nothing_left(node):
    """Of a bench: no process, no folder, no segment."""
    assert not glob.glob(os.path.join(node.home, "bench.*"))
    assert not processes_with(os.path.join(node.home, "bench."))
    assert not [n for n in os.listdir("/dev/shm") if ".bench-" in n and str(node.bench) in n]


class Bench(Kc):
    """A node without kcd of its own: kc bench needs none."""

    bench = -1

    def __init__(self, **how):
        super().__init__(start=False, **how)

    def begin_bench(self, *arguments):
        """As from a shell, also where the suite itself runs under nohup or in the background and ignores signals."""
        def heed():
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                signal.signal(number, signal.SIG_DFL)
        p = subprocess.Popen([os.path.join(BIN, "kc"), "bench", *arguments], env=self.environment, stdout=subprocess.PIPE,
                             stderr=subprocess.PIPE, text=True, stdin=subprocess.DEVNULL, start_new_session=True, preexec_fn=heed)
        self.bench = p.pid
        return p

    def trained(self):
        """A step of the bench's own job is done."""
        return any(os.path.getsize(f) for f in glob.glob(os.path.join(self.home, "bench.*", "jobs", "*", "metrics.jsonl")))


_measured = None


def measured(node):
    """What `kc bench comm --store --json` said and wrote, measured once for all tests here: (answer, table)."""
    global _measured
    if not _measured:
        answer = node.json("bench", "comm", "--largest", "1M", "--store")
        with open(answer["stored"]) as f:
            _measured = answer, f.read()
    return _measured[0], json.loads(_measured[1])


def table(node, ring, direct, **processor):
    """A table as `kc bench comm --store` writes it for this machine, with made-up costs for up to 4 ranks."""
    _, stored = measured(node)
    path = os.path.join(node.home, "comm_costs.json")
    os.makedirs(node.home, exist_ok=True)
    stored["processor"].update(processor)
    stored["rows"] = [{"primitive": p, "algorithm": a, "distance": "same-machine", "ranks": 4, "latency_ns": ns,
                       "bytes_per_second": 1e9}
                      for p in ("all-reduce", "all-gather", "reduce-scatter") for a, ns in (("ring", ring), ("direct", direct))]
    with open(path, "w") as f:
        json.dump(stored, f)


def algorithms(node, spec):
    done = node.kc("check", spec, "--json")
    return {c["algorithm"] for c in json.loads(done.stdout)["comm_plan"]["collectives"]}, done.stderr


def two_cores():
    return len(os.sched_getaffinity(0)) >= 2


def test_step_tells_what_a_step_takes():
    with Bench() as node:
        done = node.kc("bench", "step", *TINY, "--steps", "6", "--json")
        o = json.loads(done.stdout)
        assert o["schema"] == "kc.bench.step/1", o["schema"]
        assert o["model"] == {"name": "own", "layers": 1, "hidden": 32, "heads": 2, "context": 16, "vocab": 64}, o["model"]
        assert len(o["steps_seconds"]) >= 6 and all(s > 0 for s in o["steps_seconds"])
        timed = sorted(o["steps_seconds"][2:])
        assert timed[0] <= o["step_seconds"] <= timed[-1]
        assert abs(o["tokens_per_second"] * o["step_seconds"] - 2 * 2 * 16) < 1e-3, "tokens of a step"
        assert o["table_of_costs"] == "built-in"
        assert abs(o["peak_share"] * o["step_seconds"] * o["peak_flops_per_second"] / o["step_flops"] - 1) < 1e-6
        peaks = sorted((o["peak_before_flops_per_second"], o["peak_after_flops_per_second"]))
        assert o["peak_flops_per_second"] == peaks[1] and ("machine is busy" in done.stderr) == (peaks[0] < 0.85 * peaks[1]), done.stderr
        assert o["rank_pss_bytes"] > 1 << 20 and o["first_step_seconds"] > max(o["steps_seconds"][:1])
        assert "rank" not in done.stderr, done.stderr
        nothing_left(node)
        done = node.kc("bench", "step", *TINY, "--steps", "3")
        page = done.stdout
        counted = int(re.search(r"\(median of (\d+)\)", page)[1])  # steps of a tiny job: a look may find several
        assert bool(re.search(rf"^kc: only {counted} steps? (is|are) counted", done.stderr, re.M)) == (counted < 5), done.stderr
        for word in ("step", "limit", "split", "memory", "first step", "kernels", "costs"):
            assert f"\n{word}" in page, page
        nothing_left(node)


def test_snapshot_tells_what_is_lost():
    with Bench() as node:
        o = json.loads(node.kc("bench", "snapshot", *TINY, "--zero", "1", "--every", "4", "--rounds", "1", "--json").stdout)
        assert o["snapshots"] == 3 and o["every"] == 4 and o["rounds"] == 1
        assert [w["way"] for w in o["ways"]] == ["synchronous", "background", "increments"]
        parameters = 64 * 32 + 16 * 32 + 12 * 32 * 32 + 13 * 32 + 2 * 32  # GPT-2, tied head
        for w in o["ways"]:
            assert w["verified"] is True and w["copies"] == (0 if w["way"] == "synchronous" else 2), w
            assert w["lost_least"] <= w["lost_seconds"] <= w["lost_most"], w
        for w in o["ways"][:2]:
            assert w["bytes"] > 12 * parameters / 2, "values and both moments, coded"
        assert o["step_seconds"] > 0 and o["disk_seconds"] > 0 and o["ways"][0]["lost_seconds"] > 0
        nothing_left(node)


def interrupt(node, p, number):
    """One signal to kc alone: it ends what it began, says so once, and nothing is left."""
    kill(p.pid, number)
    out, err = p.communicate(timeout=60)
    assert p.returncode == 128 + number, (p.returncode, err)
    assert out == "" and err.endswith("kc: interrupted\n") and err.count("interrupted") == 1, err
    nothing_left(node)


def test_a_signal_leaves_nothing():
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        with Bench() as node:
            p = node.begin_bench("step", *TINY, "--steps", "4000")
            until("the job trains", node.trained)
            interrupt(node, p, number)
    with Bench() as node:
        p = node.begin_bench("snapshot", "--model", "0.84m", "--oversubscribe") # long enough to be caught
        until("the job trains", node.trained)
        interrupt(node, p, signal.SIGTERM)


def test_an_early_signal_leaves_nothing():
    """While a helper measures, which the signal does not reach."""
    for words, task in ((("step", *TINY), "peak"), (("comm", "--oversubscribe"), "bench-comm")):
        for number in (signal.SIGINT, signal.SIGTERM):
            with Bench() as node:
                p = node.begin_bench(*words)
                mine = lambda: [q for q in processes_with(node.home) if task in command(q)]
                until("it measures", mine)
                interrupt(node, p, number)
                assert not mine()


def command(pid):
    try:
        with open(f"/proc/{pid}/cmdline") as f:
            return f.read().split("\0")
    except OSError:
        return []


def test_ctrl_c_on_the_screen_ends_the_bench_alone():
    with Bench() as node:
        pid, terminal = pty.fork()
        if pid == 0:
            os.execve(os.path.join(BIN, "kc"), ["kc"], dict(node.environment, TERM="xterm"))
        node.bench = pid
        seen = bytearray()

        def drain():  # what is not read would stop the screen
            while select.select([terminal], [], [], 0)[0]:
                seen.extend(os.read(terminal, 65536))
            return True
        try:
            until("the screen is drawn", lambda: drain() and b"jobs" in seen.lower())
            os.write(terminal, f":bench step {' '.join(TINY)} --steps 4000\r".encode())
            until("the job trains", lambda: drain() and node.trained())
            os.write(terminal, b"\x03")
            until("the bench has ended", lambda: drain() and b"exit code 130" in seen)
            assert b"goes on" not in seen
            assert not glob.glob(os.path.join(node.home, "bench.*"))
            assert not processes_with(os.path.join(node.home, "bench."))
            assert alive(pid), "the screen stays"
            os.write(terminal, f"q:bench step {' '.join(TINY)} --steps 4000\r".encode())
            until("the job trains", lambda: drain() and node.trained())
            kill(pid, signal.SIGHUP)  # the screen ends, and its bench with it
            until("the screen has ended", lambda: not alive(pid))
            nothing_left(node)
        finally:
            os.close(terminal)
            os.waitpid(pid, 0)


def test_it_plans_by_the_users_table():
    if not two_cores():
        print("skipped it_plans_by_the_users_table: one core")
        return
    with Bench() as node:
        bench = lambda: node.kc("bench", "step", *TINY, "--steps", "3", "--json")
        table(node, ring=1e3, direct=9e6)
        p = node.begin_bench("step", *TINY, "--steps", "4000")
        until("the job trains", node.trained)
        [spec] = glob.glob(os.path.join(node.home, "bench.*", "jobs", "*", "spec.json"))
        plan = lambda path: {r["primitive"]: r["algorithm"] for r in json.loads(node.kc("check", path, "--json").stdout)["comm_plan"]["collectives"]}
        with open(os.path.join(os.path.dirname(spec), "comm_costs.json")) as f:
            kept = json.load(f)["rows"]
        assert any(r["latency_ns"] == 9e6 for r in kept), kept
        assert set(plan(spec).values()) == {"ring"}
        interrupt(node, p, signal.SIGTERM)
        assert "\ncosts       the stored table\n" in node.kc("bench", "step", *TINY, "--steps", "3").stdout
        table(node, ring=1e3, direct=9e6, model="Another 1000")
        done = bench()
        assert json.loads(done.stdout)["table_of_costs"] == "built-in"
        assert os.path.join(node.home, "comm_costs.json: measured on another machine") in done.stderr, done.stderr


# ---- a file system of our own: this runs again inside a private mount namespace ----

def test_a_full_disk_is_named():
    space = ["unshare", "-m"] if os.getuid() == 0 else ["unshare", "-Urm"]
    probe = subprocess.run([*space, "mount", "-t", "tmpfs", "none", "/mnt"], capture_output=True, text=True)
    if probe.returncode:
        print(f"skipped a_full_disk_is_named: no private mounts here ({probe.stderr.strip()})")
        return
    done = subprocess.run([*space, sys.executable, os.path.abspath(__file__), "--inside"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def inside_a_full_disk():
    with Bench() as node:
        os.makedirs(node.home)
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3M", "tmpfs", node.home], check=True)
        try:  # tokens take half a megabyte, a snapshot six
            done = node.kc("bench", "snapshot", *TINY[:2], "--hidden", "192", *TINY[4:], "--every", "4", "--rounds", "1", ok=(1,))
            last = done.stderr.splitlines()[-1]
            assert last.startswith("kc: a snapshot failed: ") and "No space left on device" in last and f". Make room in {node.home}, " in last, done.stderr
            nothing_left(node)
        finally:
            subprocess.run(["umount", node.home], check=True)


def test_a_killed_bench_leaves_no_process():
    with Bench() as node:
        p = node.begin_bench("step", *TINY, "--steps", "4000")
        until("the job trains", node.trained)
        kill(p.pid)
        p.communicate(timeout=60)
        until("kcd and ranks have ended", lambda: not processes_with(os.path.join(node.home, "bench.")))


def test_a_job_of_the_user_is_not_touched():
    with Kc() as node:
        job = node.begin("mine", steps=100000)
        node.wait(job, "running")
        done = node.kc("bench", "step", *TINY, "--steps", "3")
        assert node.state(job) == "running"
        assert f"held by jobs ({job})" in done.stderr, done.stderr
        assert [n for n in os.listdir(os.path.join(node.home, "jobs")) if n[0] != "."] == [job]
        node.kc("stop", job)


def test_refusals_are_one_line_each():
    with Bench() as node:
        cores = len(os.sched_getaffinity(0))
        def refused(code, says, *arguments, **how):
            done = node.kc("bench", *arguments, ok=(code,), **how)
            assert done.stderr.startswith("kc: ") and done.stderr.count("\n") == 1 and says in done.stderr, done.stderr
            assert done.stdout == ""
        if cores < 60:
            refused(2, "60 cores are wanted", "comm", "--ranks", "60")
            refused(2, "let ranks share cores: --oversubscribe", "step", "--ranks", "60")
            refused(2, "Leave out --store", "comm", "--ranks", "60", "--oversubscribe", "--store", "--largest", "1M")
        refused(10, "of memory, ", "comm", "--ranks", "64", "--oversubscribe", "--largest", "1G")
        node.environment["KC_HOME"] = "/dev/null/home"
        refused(10, "/dev/null/home can't be written: Not a directory. Set KC_HOME", "step")
        if two_cores():
            refused(10, "/dev/null/home can't be written: Not a directory", "comm", "--store", "--largest", "1M")
        node.environment["KC_HOME"] = node.home
        folder = tempfile.mkdtemp(prefix="kc-alone-")
        try:
            kc = shutil.copy(os.path.join(BIN, "kc"), folder)
            for verb in ("step", "comm", "snapshot"):
                done = subprocess.run([kc, "bench", verb], env=node.environment, capture_output=True, text=True)
                assert done.returncode == 4 and done.stderr.count("\n") == 1, done
                assert "No such file or directory. `make` builds it beside kc" in done.stderr, done.stderr
        finally:
            shutil.rmtree(folder)
        # what the spec would refuse, in the words of the options
        refused(2, "--heads 3 does not divide --hidden 32", "step", *TINY[:4], "--heads", "3")
        refused(2, "--precision wants fp32 or bf16", "snapshot", "--precision", "fp64")


def test_comm_times_and_stores():
    with Bench() as node:
        share = () if two_cores() else ("--oversubscribe",)
        o = json.loads(node.kc("bench", "comm", "--largest", "4K", "--json", *share).stdout)
        seen = {(r["operation"], r["algorithm"], r["window"], r["bytes"]) for r in o["results"]}
        for operation in ("all-reduce", "all-gather", "reduce-scatter"):
            for algorithm in ("direct", "ring"):
                for window in (True, False):
                    for size in (1024, 4096):
                        assert (operation, algorithm, window, size) in seen, (operation, algorithm, window, size)
        assert ("barrier", "direct", True, 0) in seen and ("memcpy", None, False, 4096) in seen
        assert all(r["seconds"] > 0 for r in o["results"]) and o["stored"] is None
        assert not os.path.exists(os.path.join(node.home, "comm_costs.json")), "nobody asked to store"
        if not two_cores():
            return
        o, stored = measured(node)
        rows = {(r["primitive"], r["algorithm"]): r for r in stored["rows"]}
        for cost in o["costs"]:
            row = rows[cost["primitive"], cost["algorithm"]]
            assert row["ranks"] == cost["ranks"] == 2 and abs(row["latency_ns"] - cost["latency_ns"]) < 1e-3 * cost["latency_ns"] + 1e-6


def test_the_plan_follows_the_stored_table_and_the_spec():
    if not two_cores():
        print("skipped the_plan_follows_the_stored_table: one core")
        return
    with Kc(start=False) as node:
        table(node, ring=1e3, direct=9e6)
        assert algorithms(node, node.write_spec("a", 2, 1)) == ({"ring"}, "")
        table(node, ring=9e6, direct=1e3)
        assert algorithms(node, node.write_spec("b", 2, 1)) == ({"direct"}, "")
        # the spec has the last word, primitive by primitive
        plan = node.json("check", node.write_spec("c", 2, 1, parallel={"algorithms": {"all-reduce": "ring"}}))["comm_plan"]
        for c in plan["collectives"]:
            assert c["algorithm"] == ("ring" if c["primitive"] == "all-reduce" else "direct"), c
        # another machine's, a damaged one: one line, and the built-in table
        os.unlink(os.path.join(node.home, "comm_costs.json"))
        built_in = algorithms(node, node.write_spec("d", 2, 1))
        assert built_in[1] == ""
        table(node, ring=1e3, direct=9e6, model="Another 1000")
        found, warning = algorithms(node, node.write_spec("e", 2, 1))
        assert found == built_in[0] and "measured on another machine (Another 1000" in warning and warning.count("\n") == 1, warning
        with open(os.path.join(node.home, "comm_costs.json"), "w") as f:
            f.write('{"schema":"kc.comm')
        found, warning = algorithms(node, node.write_spec("f", 2, 1))
        assert found == built_in[0] and "comm_costs.json: damaged" in warning and warning.count("\n") == 1, warning


def test_a_table_that_changes_under_a_job_changes_no_bit_of_it():
    """Three ranks: direct and ring add in another order, so the bits tell which was used."""
    if not two_cores():
        print("skipped a_table_that_changes_under_a_job: one core")
        return
    how = dict(steps=40, batch={"sequences": 12, "micro": 4}, snapshot={"every": 5})
    with Kc() as node:
        table(node, ring=9e6, direct=1e3)
        whole = node.train("whole", 3, 1, **how)
        job = node.begin("cut", 3, 1, **how)
        node.kc("wait", job, "--for", "step>=2")
        node.kc("stop", job)
        stopped = node.read(job, "state.json")["step"]
        assert 2 <= stopped < 40, stopped
        table(node, ring=1e3, direct=9e6)
        kept = open(node.path(job, "comm_costs.json")).read()
        node.kc("resume", job)
        node.kc("wait", job)
        assert open(node.path(job, "comm_costs.json")).read() == kept
        assert node.root(job) == node.root(whole)
        assert algorithms(node, node.path(job, "spec.json")) == ({"direct"}, ""), "a job's own spec is checked with its own table"
        assert algorithms(node, node.write_spec("new", 3, 1, **how))[0] == {"ring"}
        other = node.train("other", 3, 1, **how)
        for which, algorithm in ((job, "direct"), (other, "ring")):
            shown = node.json("show", which)["job"]["algorithms"]
            assert all("algorithms" not in j for j in node.json("ps")["jobs"]), "only show looks for them"
            assert shown == {p: [algorithm] for p in ("all-reduce", "all-gather", "reduce-scatter")}, shown
            page = node.kc("show", which).stdout
            assert "\nlayout      3 ranks: data 3, zero 1\n" in page, page
            assert f"\ncollectives all-reduce {algorithm}, all-gather {algorithm}, reduce-scatter {algorithm}\n" in page, page
        assert node.root(other) != node.root(whole), "the table decided nothing: this test shows nothing"
        # its own table is gone: the built-in one, which is direct here, and both the rank and the restore say so
        lost = node.begin("lost", 3, 1, **how)
        node.kc("wait", lost, "--for", "step>=8")
        node.kc("stop", lost)
        os.unlink(node.path(lost, "comm_costs.json"))
        node.kc("resume", lost)
        node.kc("wait", lost)
        log = node.kc("log", lost).stdout
        assert "comm_costs.json is missing: the built-in table" in log and "bits will change" in log, log
        # its own table lost its form: no other one instead
        again = node.begin("again", 3, 1, **how)
        node.kc("stop", again)
        with open(node.path(again, "comm_costs.json"), "w") as f:
            f.write("{")
        node.kc("resume", again, ok=(0, 1))
        node.wait(again, "failed")
        text = node.read(again, "state.json")["first_failure"]
        assert "comm_costs.json: damaged" in json.dumps(text), text


if __name__ == "__main__":
    if sys.argv[1:] == ["--inside"]:
        sys.exit(inside_a_full_disk())
    sys.exit(main(globals()))
