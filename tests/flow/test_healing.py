#!/usr/bin/env python3
"""Faults of processes that heal, with kcd, keepers and fake ranks: whom the kernel killed is told with its evidence, restarts wait
longer each time, jobs go on without a device that is faulty, and what dead instances left is removed."""
import contextlib, json, os, subprocess, sys, time, uuid

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from kc_flow import *


# ---- out of memory ----

def own_group():
    """The folder of our memory control group, and the name of its limit; None where there is none."""
    groups = [line.rstrip("\n").split(":", 2) for line in open("/proc/self/cgroup")]
    for mount in (line.split() for line in open("/proc/self/mountinfo")):
        dash = mount.index("-")
        for number, names, path in groups:
            v1 = "memory" in names.split(",") and mount[dash + 1] == "cgroup" and "memory" in mount[dash + 3].split(",")
            v2 = names == "" and mount[dash + 1] == "cgroup2"
            inside = path[len(mount[3]):] if path.startswith(mount[3]) and mount[3] != "/" else path
            folder = mount[4] + inside.rstrip("/")
            if v1 and os.path.isdir(folder):
                return folder, "memory.limit_in_bytes"
            if v2 and os.path.exists(f"{folder}/cgroup.subtree_control") and "memory" in open(f"{folder}/cgroup.subtree_control").read():
                return folder, "memory.max"
    return None


@contextlib.contextmanager
def group_of(bytes):
    """A control group with a limit, as the path of its cgroup.procs; None where we may make none."""
    found = own_group()
    if not found:
        yield None
        return
    folder = f"{found[0]}/kc-test-{uuid.uuid4().hex[:10]}"
    try:
        os.mkdir(folder)
    except OSError:
        yield None
        return
    try:
        with open(f"{folder}/{found[1]}", "w") as f:
            f.write(str(bytes))
        yield f"{folder}/cgroup.procs"
    finally:
        until(f"{folder} is empty", lambda: not open(f"{folder}/cgroup.procs").read())
        os.rmdir(folder)


def test_F08_out_of_memory_is_told_with_its_evidence():
    """A real kill by the kernel, in a group with a limit; the rank beside it is not accused, and the job goes on."""
    with group_of(96 << 20) as procs:
        if not procs:
            print("skipped test_F08_out_of_memory_is_told_with_its_evidence: no control group of memory can be made here")
            return
        with Node(start=False) as node:
            done = node.kcd("--daemon", preexec_fn=lambda: open(procs, "w").write("0"))
            assert done.returncode == 0, done.stderr
            node.kcd_pid = node.request("hello")["pid"]
            job = node.start(steps=40, env={"FAKE_EAT_AT": 5, "FAKE_ONLY_RANK": 1})
            node.wait(job, "finished")
            victim, = [e for e in node.events(job, "rank-exit") if e["rank"] == 1 and e.get("signal") == 9]
            assert victim["oom"] in ("likely", "certain"), victim
            fault = node.read(job, "state.json")["last_fault"]
            assert fault["rank"] == 1 and fault["oom"] in ("likely", "certain"), fault
            assert "killed by the kernel, out of memory (" in fault["text"], fault
            if fault["oom"] == "certain":
                assert f"the kernel's log names pid {victim['pid']}" in fault["text"], fault
            print(f"        {fault['text']}")
            assert all("oom" not in e for e in node.events(job, "rank-exit") if e["rank"] == 0)


def test_F08_a_signal_of_somebody_is_no_lack_of_memory():
    with Node() as node:
        job = node.start(steps=40)
        node.wait_step(job, 3)
        kill(node.ranks(job)[0])
        node.wait(job, "finished")
        fault = node.read(job, "state.json")["last_fault"]
        assert fault["oom"] == "unknown" and "killed by someone (signal 9, SIGKILL)" in fault["text"], fault
        assert [e["oom"] for e in node.events(job, "rank-exit") if e.get("signal") == 9 and e["rank"] == 0] == ["unknown"]


# ---- restarts that wait ----

def kc(node, *arguments, code=0):
    done = subprocess.run([os.path.join(BIN, "kc"), *arguments], env=node.environment, capture_output=True, text=True,
                          timeout=DEADLINE, stdin=subprocess.DEVNULL)
    assert done.returncode == code, f"kc {' '.join(arguments)} → {done.returncode}: {done.stdout}{done.stderr}"
    return done.stdout


def test_restarts_wait_longer_each_time():
    with Node() as node:
        job = node.start(steps=50, env={"FAKE_KILL_AT": 3, "FAKE_ONLY_RANK": 0, "FAKE_UNTIL": 99},
                         policy={"max_restarts": 3, "backoff_seconds": 0.3, "backoff_max_seconds": 0.4})
        record = node.wait(job, "failed")
        assert record["restarts"] == 3 and record["restart_ns"] is None, record
        waits = node.events(job, "waits")
        assert [(w["seconds"], w["text"]) for w in waits] == [(0.3, "second crash without progress"),
                                                              (0.4, "third crash without progress")], waits
        begun = [e["monotonic_ns"] for e in node.events(job, "launched")]
        for w, launched in zip(waits, begun[2:]):
            assert launched - w["monotonic_ns"] >= w["seconds"] * 1e9, (w, launched)
        fault = node.events(job, "fault")[0]["monotonic_ns"]
        print(f"        the first restart after {(begun[1] - fault) / 1e6:.1f} ms")


def test_progress_pays_for_restarts():
    """With a newer snapshot before each death none waits."""
    with Node() as node:
        job = node.start(steps=60, env={"FAKE_SNAPSHOT_EVERY": 5}, policy={"max_restarts": 1, "backoff_seconds": 30})
        for step in (8, 18, 28):
            node.wait_step(job, step)
            kill(node.ranks(job)[1])
            until("it goes on", lambda: node.read(job, "state.json")["restarts"] >= step // 10 + 1)
        assert node.wait(job, "finished")["restarts"] == 3
        assert not node.events(job, "waits")


def test_while_it_waits():
    """It is told, also by files when its keeper is gone; pause, resume and stop are answered at once."""
    with Node() as node:
        job = node.start(steps=50, env={"FAKE_KILL_AT": 3, "FAKE_ONLY_RANK": 0, "FAKE_UNTIL": 99},
                         policy={"max_restarts": 9, "backoff_seconds": 25})
        waiting = lambda n: until(f"wait {n}", lambda: len(node.events(job, "waits")) == n and node.read(job, "state.json")["restart_ns"])
        waiting(1)
        until("its ranks are gone", lambda: not any(map(alive, node.ranks(job))))
        shown = json.loads(kc(node, "show", job, "--json"))["job"]
        assert shown["state"] == "restarting" and 20 < shown["restart_in_seconds"] <= 25, shown
        assert shown["restart_why"] == "second crash without progress", shown
        page = kc(node, "show", job)
        assert " s: second crash without progress; kc resume " in page and "restarts in 2" in page, page
        assert "restart 2" in kc(node, "ps"), kc(node, "ps")
        begin = time.monotonic()
        assert "before its first step" in node.request("pause", job=job)["note"]
        old = node.keeper(job)
        kill(old)
        until("another keeper", lambda: node.keeper(job) not in (0, old))
        waiting(2)  # its own loss is the first of its cause, and would not wait; what was left of the wait does
        assert 15 < node.events(job, "waits")[1]["seconds"] <= 25, node.events(job, "waits")
        assert not any(map(alive, node.ranks(job))) and node.read(job, "state.json")["hold"]
        reply = node.request("resume", job=job)
        assert "started again now" in reply["note"], reply
        waiting(3)
        reply = node.request("stop", job=job)
        assert reply["ok"] and reply["state"] == "stopped", reply
        assert time.monotonic() - begin < 12, "nothing waited for the time to pass"
        assert node.read(job, "state.json")["restart_ns"] is None and node.read(job, "result.json")["state"] == "stopped"


def test_the_same_error_of_another_rank_is_the_same():
    """Rank 0 and rank 1 fail in turn, at the same step, of the same: that is no reason to try for ever."""
    with Node() as node:
        job = node.start(steps=50, env={"FAKE_ERROR_AT": 3, "FAKE_IN_TURN": 1, "FAKE_UNTIL": 99}, policy={"max_restarts": 9})
        record = node.wait(job, "failed")
        ranks = [e["rank"] for e in node.events(job, "fault")]
        assert sorted(ranks) == [0, 1] and record["restarts"] == 1, ranks
        assert record["first_failure"]["text"].endswith("; the same fault at the same step again"), record


if __name__ == "__main__":
    main(globals())
