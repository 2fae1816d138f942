#!/usr/bin/env python3
"""Faults of processes that heal, with kcd, keepers and fake ranks: whom the kernel killed is told with its evidence, restarts wait
longer each time, jobs go on without a device that is faulty, and what dead instances left is removed."""
import contextlib, json, os, subprocess, sys, time, uuid

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from kc_flow import *
from kc_train import Kc


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
        shown = until("kc tells it", lambda: (j := json.loads(kc(node, "show", job, "--json"))["job"])["restart_in_seconds"] and j)
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


def test_the_same_hang_twice_is_not_tried_for_ever():
    """Whichever rank is found to stand still: it is the same step again."""
    with Node() as node:
        job = node.start(steps=50, env={"FAKE_HANG_AT": 3, "FAKE_IN_TURN": 1, "FAKE_UNTIL": 99},
                         policy={"max_restarts": 9, "on_hang": "restart", "hang_floor_seconds": 0.3, "hang_ceiling_seconds": 0.6})
        record = node.wait(job, "failed")
        assert record["restarts"] == 1 and record["first_failure"]["reason"] == "hang", record["first_failure"]
        assert record["first_failure"]["text"].endswith("; the same fault at the same step again"), record["first_failure"]


# ---- devices ----

@contextlib.contextmanager
def two_cores(node=Node):
    """A node that has two cores, so that a job can have all; None, and said so, where there are no two."""
    all = os.sched_getaffinity(0)
    if len(all) < 2:
        print("skipped: it needs two cores")
        yield None
        return
    os.sched_setaffinity(0, sorted(all)[:2])  # what is started from here inherits it
    try:
        with node() as n:
            yield n
    finally:
        os.sched_setaffinity(0, all)


def devices_of(node, job):
    """The device of each rank, as kc node tells it."""
    shown = json.loads(kc(node, "node", "--json"))["devices"]
    return {d["rank"]: d["name"] for d in shown if d["job"] == job}


def test_a_job_moves_off_a_faulty_device():
    with two_cores() as node:
        if not node:
            return
        job = node.start(ranks=1, steps=300, oversubscribe=False, env={"FAKE_SNAPSHOT_EVERY": 5})
        node.wait_step(job, 7)
        device = until("its device", lambda: devices_of(node, job))[0]
        assert f"{device} is drained; {job}/0 has it until its ranks end or fail" in kc(node, "node", "drain", device, "--reason", "fan")
        assert f"{device} " in kc(node, "node") and "faulty" in kc(node, "node")
        old = node.keeper(job), node.ranks(job)[0]
        kill(old[1])
        until("another keeper", lambda: node.keeper(job) not in (0, old[0]) and node.state(job) == "running")
        assert until("another device", lambda: devices_of(node, job))[0] != device
        fault = node.read(job, "state.json")["last_fault"]
        assert f"; its device is faulty: {device}: marked by hand: fan" in fault["text"], fault
        assert node.events(job, "fault")[0]["fault"] == "device" and node.events(job, "requeued"), node.events(job)
        node.request("stop", job=job)
        steps = node.steps(job)
        assert steps == list(range(1, len(steps) + 1)) and len(steps) > 7, steps


def test_without_another_device_it_waits_and_says_so():
    with two_cores() as node:
        if not node:
            return
        job = node.start(ranks=2, steps=300, oversubscribe=False)
        node.wait_step(job, 2)
        device = until("its devices", lambda: devices_of(node, job))[0]
        kc(node, "node", "drain", device)
        kill(node.ranks(job)[0])
        why = until("it is queued, and says why", lambda: (node.read(job, "state.json") or {}).get("waits"))
        assert "1 faulty" in why and device in why and node.state(job) == "queued", why
        assert why in kc(node, "show", job)
        assert "is back" in kc(node, "node", "return", device)
        node.wait(job, "running")
        assert node.read(job, "state.json")["waits"] is None
        node.request("stop", job=job)


def test_shrink():
    """Without another device it goes on with fewer ranks and the same batch, where its spec says so; a resume goes back to all."""
    with two_cores() as node:
        if not node:
            return
        job = node.start(ranks=2, steps=3000, oversubscribe=False, batch={"sequences": 16}, policy={"shrink": True},
                         env={"FAKE_SNAPSHOT_EVERY": 5})
        node.wait_step(job, 7)
        device = until("its devices", lambda: devices_of(node, job))[1]
        kc(node, "node", "drain", device, "--reason", "fan")
        kill(node.ranks(job)[1])
        event = until("it shrinks", lambda: node.events(job, "shrunk"))[0]
        assert (event["ranks"], event["from"]) == (1, 2), event
        assert "goes on with 1 rank instead of 2" in event["text"] and f"{device}: marked by hand: fan, and the same batch" in event["text"], event
        record = node.wait(job, "running")
        assert record["ranks"] == 1 and record["asked_ranks"] == 2 and device in record["device"], record
        spec = node.read(job, "spec.json")
        assert spec["ranks"] == spec["parallel"]["data"] == 1 and spec["batch"]["sequences"] == 16, spec
        assert "shrunk      1 of 2 ranks" in kc(node, "show", job), kc(node, "show", job)
        shown = json.loads(kc(node, "show", job, "--json"))["job"]
        assert (shown["ranks_asked"], shown["lost_device"]) == (2, f"{device}: marked by hand: fan"), shown
        why = kc(node, "why", job)
        assert f"1 rank of 2, with other leases (a device is faulty: {device}: marked by hand: fan)" in why, why
        at = node.steps(job)[-1]
        node.wait_step(job, at + 3)
        node.request("stop", job=job)
        kc(node, "node", "return", device)
        node.request("resume", job=job)
        record = node.wait(job, "running")
        assert record["ranks"] == 2 and record["asked_ranks"] is None and node.read(job, "spec.json")["ranks"] == 2, record
        node.request("stop", job=job)


def test_shrink_trains_the_same():
    """Real ranks: the same batches in the same order, so the same losses to rounding, from the newest state that there was."""
    with two_cores(Kc) as node:
        if not node:
            return
        how = dict(steps=200, oversubscribe=False, snapshot={"every": 10, "busy": "wait"}, policy={"shrink": True}, optimizer={"lr": 1e-3},
                   batch={"sequences": 8, "micro": 2})
        calm = node.metrics(node.train("calm", 2, 1, **how))
        job = node.begin("less", 2, 1, **how)
        node.kc("wait", job, "--for", "step>=15")
        node.kc("pause", job)
        at = node.read(job, "state.json")["step"]
        node.kc("node", "drain", devices_of(node, job)[1])
        kill(node.ranks(job)[1])
        node.kc("resume", job)
        node.kc("wait", job)
        event, = node.events(job, "shrunk")
        assert (event["ranks"], event["from"], node.read(job, "state.json")["ranks"]) == (1, 2, 1), event
        losses = node.metrics(job)
        assert node.steps(job) == list(range(1, 201))
        worst = max(abs(a - b) / a for a, b in zip(calm, losses))
        print(f"        held at step {at}, then on one rank of two: losses differ by {worst:.1e} at most")
        restored = node.events(job, "restored")[-1]["step"]
        assert at - 20 <= restored <= at, (at, restored)
        assert worst < 1e-3 and calm[:restored] == losses[:restored], (worst, at, restored)


def test_a_spec_that_is_changed_under_running_ranks():
    """When a rank dies, the next ones are as many as the spec says then; one that can't be run is one line."""
    with Node() as node:
        job = node.start(ranks=2, steps=300, env={"FAKE_SNAPSHOT_EVERY": 5})
        node.wait_step(job, 7)
        spec = node.read(job, "spec.json")

        def change(**fields):
            with open(node.path(job, "spec.json"), "w") as f:
                json.dump(dict(spec, **fields), f)
        change(ranks=1, parallel=dict(spec["parallel"], data=1))
        kill(node.ranks(job)[0])
        until("one rank", lambda: len(node.ranks(job)) == 1 and node.state(job) == "running")
        assert "spec.json was changed from 2 ranks of 1 to 1 of 1 while they ran" in node.events(job, "requeued")[0]["text"]
        change(ranks=3)
        kill(node.ranks(job)[0])
        record = node.wait(job, "failed")
        text = record["first_failure"]["text"]
        assert "ranks = 3" in text and "\n" not in text, text
        change(ranks=2)
        node.request("resume", job=job)
        assert node.wait(job, "running")["ranks"] == 2
        node.request("stop", job=job)


# ---- what the dead left ----

def test_F14_F16_F17_what_dead_instances_left_is_removed():
    """Of an instance that was killed whole, of one whose kcd alone was, and of one that lives: sockets, locks and segments."""
    with Node() as dead, Node(home=dead.home) as orphan, Node(home=dead.home) as living:
        job = {n: n.start(f"job-{n.instance}", steps=200, env={"FAKE_SNAPSHOT_EVERY": 5}) for n in (dead, orphan, living)}
        for n in job:
            n.wait_step(job[n], 7)
            n.request("pause", job=job[n])  # none ends meanwhile
        pids = [dead.kcd_pid, dead.keeper(job[dead]), *dead.ranks(job[dead])]
        kill_all(pids)
        orphan.kill_kcd()
        until("they are gone", lambda: not any(map(alive, pids)))
        there = {n: set(os.listdir(n.run)) for n in job}
        assert all({"kcd.lock", "kcd.sock", f"{job[n]}.lock", f"{job[n]}.sock"} <= there[n] for n in job), there
        old = os.path.join(dead.run, "gone-7.sock")  # of a keeper that was killed long ago, and whose lock is gone
        open(old, "w").close()
        with Node(home=dead.home) as other:
            assert set(os.listdir(dead.run)) == {"kcd.log"}, os.listdir(dead.run)
            assert set(os.listdir(orphan.run)) == there[orphan] - {"kcd.lock", "kcd.sock"}, os.listdir(orphan.run)
            assert set(os.listdir(living.run)) == there[living], os.listdir(living.run)
            names = dead.segments() + orphan.segments() + living.segments()
            assert sorted(n.split(".")[-1] for n in names) == sorted([job[dead], job[orphan], living.instance, job[living]]), names
            assert "removed 7 sockets and locks" in other.log(), other.log()
        for n in (dead, orphan):  # the board of a job that has not ended was kept for its next keeper
            n.start_kcd()
        until("the job that was killed waits as it did", lambda: dead.state(job[dead]) == "paused")
        for n in job:
            assert n.request("resume", job=job[n])["ok"]
        assert "is found again" in orphan.log() and orphan.read(job[orphan], "state.json")["restarts"] == 0
        for n in job:
            n.wait(job[n], "finished")
            assert n.steps(job[n]) == list(range(1, 201))
        for n in job:  # whose home they share goes with the first
            n.shutdown()


def test_F17_a_start_beside_one_that_tidies_up():
    """Many kcds begin at once beside the files of one that was killed: each gets its place, and that one can come back."""
    with Node() as node, contextlib.ExitStack() as stack:
        node.kill_kcd()
        others = [stack.enter_context(Node(home=node.home, start=False)) for _ in range(6)]
        begun = [subprocess.Popen([os.path.join(BIN, "kcd"), "--daemon"], env=n.environment, stdin=subprocess.DEVNULL,
                                  stderr=subprocess.PIPE, text=True) for n in others + [node]]
        for p, n in zip(begun, others + [node]):
            assert p.wait(DEADLINE) == 0, p.stderr.read()
            p.stderr.close()
            n.kcd_pid = n.request("hello")["pid"]


if __name__ == "__main__":
    main(globals())
