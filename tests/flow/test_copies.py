#!/usr/bin/env python3
"""The state in memory that the keeper holds outlives the ranks: a restart begins from it, and a child of the keeper writes it to
disk when the ranks are gone. Whatever becomes of that child, the job goes on. F39."""
import fcntl, os, subprocess, sys, tempfile, threading

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from kc_flow import Node, alive, kill, kill_all, main, until
from kc_train import Kc


def copies(pid):
    """Memory objects for copies that a process has: {name: descriptor}."""
    found = {}
    try:
        fds = os.listdir(f"/proc/{pid}/fd")
    except OSError:
        return found
    for fd in fds:
        try:
            link = os.readlink(f"/proc/{pid}/fd/{fd}")
        except OSError:
            continue
        if "kc-copy." in link:
            found[link.split(":")[1].split(" ")[0]] = f"/proc/{pid}/fd/{fd}"
    return found


def keeper(node, job):
    return node.read(job, "state.json")["keeper"]["pid"]


def told(node, job):
    return [(e["event"], e.get("step")) for e in node.lines(job, "events.jsonl") if e["event"].startswith("copy-")]


# ---- the keeper's part, with made-up ranks ----

def test_objects_are_made_once_and_handed_to_every_incarnation():
    with Node() as node:
        job = node.start(steps=2000, env={"FAKE_COPY": 1, "FAKE_SNAPSHOT_EVERY": 10})
        node.wait_step(job, 12)
        first = {n: os.stat(p).st_ino for n, p in copies(keeper(node, job)).items()}
        assert sorted(first) == [f"kc-copy.{job}.{r}" for r in (0, 1)], first
        kill(node.ranks(job)[1])
        until("the second incarnation", lambda: node.read(job, "state.json")["incarnation"] == 2)
        node.wait(job, "running")
        for pid in [keeper(node, job), *node.ranks(job)]:
            assert {n: os.stat(p).st_ino for n, p in copies(pid).items()} == first
        node.request("stop", job=job)


def test_no_copies_no_objects():
    with Node() as node:
        job = node.start(steps=2000, env={"FAKE_COPY": 1}, snapshot={"copies": 0})
        node.wait(job, "running")
        assert not copies(keeper(node, job)) and not copies(node.ranks(job)[0])
        kill(node.ranks(job)[1])
        until("the second incarnation", lambda: node.read(job, "state.json")["incarnation"] == 2)
        assert not told(node, job)
        node.request("stop", job=job)


def killed_once(node, keep, **more):
    """A job one of whose ranks is killed at step 9; its record in the second incarnation."""
    job = node.start(steps=2000, env=dict({"FAKE_COPY": 1, "FAKE_KEEP": keep, "FAKE_KILL_AT": 9, "FAKE_ONLY_RANK": 1}, **more),
                     stop={"grace_seconds": 1})
    return job, until("the second incarnation", lambda: (r := node.read(job, "state.json"))["incarnation"] == 2 and r)


def test_the_copy_is_written_before_the_restart():
    for keep in ("saved", "noise"):
        with Node() as node:
            job, record = killed_once(node, keep)
            assert told(node, job) == [("copy-saving", 7), ("copy-saved", 7)], told(node, job)
            assert record["snapshot_step"] == 7
            node.wait_step(job, 12)
            names = [e["event"] for e in node.lines(job, "events.jsonl")]
            assert names.index("copy-saved") < names.index("fault") < len(names) - 1 - names[::-1].index("launched")
            begun = [e["step"] for e in node.events(job, "started") if e["rank"] == 0]
            assert begun == [0, 7], begun
            node.request("stop", job=job)


def test_whatever_becomes_of_the_child_the_job_is_started_again():
    says = {"failed": "No space left on device", "crash": "ended with signal 9", "hang": "not on disk within 2 s", "nothing": None}
    for keep, text in says.items():
        with Node() as node:
            job, record = killed_once(node, keep)
            lines = node.events(job, "copy-not-saved")
            assert [text in e["text"] for e in lines] == ([True] if text else []), (keep, lines)
            node.wait(job, "running")
            assert len(copies(node.ranks(job)[0])) == 2, keep
            node.request("stop", job=job)


def test_who_asks_meanwhile_is_answered():
    """The keeper waits for nothing: requests are taken while its child writes, and a stop needs no restart any more."""
    with Node() as node:
        job = node.start(steps=2000, env={"FAKE_COPY": 1, "FAKE_KEEP": "hang", "FAKE_KILL_AT": 9, "FAKE_ONLY_RANK": 1},
                         stop={"grace_seconds": 3})
        until("the child writes", lambda: told(node, job) == [("copy-saving", 7)])
        assert node.read(job, "state.json")["state"] == "restarting"
        assert not node.ask("checkpoint", job="nobody")["ok"]
        assert node.request("stop", job=job)["ok"]
        record = node.wait(job, "stopped")
        assert record["incarnation"] == 1 and record["restarts"] == 0, record
        assert "not on disk" in node.events(job, "copy-not-saved")[0]["text"]


def test_a_failed_end_is_written_too():
    with Node() as node:
        job = node.start(steps=2000, env={"FAKE_COPY": 1, "FAKE_KEEP": "saved", "FAKE_KILL_AT": 9, "FAKE_ONLY_RANK": 1},
                         policy={"max_restarts": 0})
        record = node.wait(job, "failed")
        assert told(node, job) == [("copy-saving", 7), ("copy-saved", 7)] and record["snapshot_step"] == 7
        until("the keeper is gone", lambda: not alive(record["keeper"]["pid"]) if record["keeper"]["pid"] else True)


def test_a_last_snapshot_that_failed_is_written_when_all_left_well():
    for keep, code in (("saved", 0), ("failed", 1), ("nothing", 1)):
        with Node() as node:
            job = node.start(steps=20, env={"FAKE_COPY": 1, "FAKE_KEEP": keep, "FAKE_KEEP_STEP": 20, "FAKE_LOSE_LAST": 1})
            record = node.wait(job, "finished")
            ends = {"saved": [("copy-saving", 20), ("copy-saved", 20)], "failed": [("copy-saving", 20), ("copy-not-saved", None)]}
            assert told(node, job) == ends.get(keep, []), (keep, told(node, job))
            assert record["exit_code"] == code and record["incarnation"] == 1, (keep, record)
        with Node() as node:
            job = node.start(steps=2000, env={"FAKE_COPY": 1, "FAKE_KEEP": keep, "FAKE_LOSE_LAST": 1})
            node.wait_step(job, 9)
            node.ask("stop", job=job)
            record = node.wait(job, "stopped") # what was written is of an earlier step
            assert record["exit_code"] == 1 and bool(told(node, job)) == (keep != "nothing"), (keep, record)


def test_an_end_that_is_on_disk_needs_no_child():
    with Node() as node:
        job = node.start(steps=20, env={"FAKE_COPY": 1, "FAKE_KEEP": "saved"})
        assert node.wait(job, "finished")["exit_code"] == 0 and not told(node, job)


def test_the_child_goes_with_its_keeper():
    with Node() as node:
        job = node.start(steps=2000, env={"FAKE_COPY": 1, "FAKE_KEEP": "hang", "FAKE_KILL_AT": 9, "FAKE_ONLY_RANK": 1},
                         stop={"grace_seconds": 20})
        until("the child writes", lambda: told(node, job) == [("copy-saving", 7)])
        pid = keeper(node, job)
        [child] = [int(p) for p in filter(str.isdigit, os.listdir("/proc")) if saves_for(p, pid)]
        kill(pid)
        until("a new keeper has started the ranks", lambda: node.read(job, "state.json")["incarnation"] == 2)
        assert not alive(child)
        node.request("stop", job=job)


def saves_for(pid, parent):
    """A keeper has another child, which looks at what happened."""
    try:
        with open(f"/proc/{pid}/stat") as f, open(f"/proc/{pid}/cmdline") as words:
            return int(f.read().rsplit(")", 1)[1].split()[1]) == parent and "\0keep\0" in words.read()
    except (FileNotFoundError, ProcessLookupError):
        return False


# ---- with real ranks ----

# 10 MB of state, steps of ten milliseconds and more; the disk takes seconds for a snapshot where it is made slow
MODEL = dict(model={"init": {"from": None}, "layers": 4, "hidden": 128, "context": 32}, data={"order": "shuffled"},
             batch={"sequences": 8, "micro": 4}, policy={"max_restarts": 50})
SLOW_DISK = {"every": 5, "mib_per_second": 2}
_roots = {}


def undisturbed(steps):
    """state_root of a run that nothing happened to and that saved nothing."""
    if steps not in _roots:
        with Kc() as node:
            _roots[steps] = node.root(node.train("undisturbed", 2, **dict(MODEL, steps=steps, snapshot={"copies": 0})))
    return _roots[steps]


def restored(node, job):
    return [(e["step"], e.get("text", "")) for e in node.events(job, "restored") if e["rank"] == 0]


def saving(node, job):
    """A first copy is whole, and the disk has begun with it: its version is listed as in memory alone."""
    until("a copy is whole", lambda: node.json("snap", "ls", job)["copies"], 60)
    assert node.snapshots(job) == []


def finish(node, job, steps):
    """It ends as if nothing had happened."""
    node.kc("wait", job)
    assert node.steps(job) == list(range(1, steps + 1))
    assert node.root(job) == undisturbed(steps)
    node.kc("snap", "verify", job)


def test_a_killed_rank_restarts_from_memory():
    with Kc() as node:
        job = node.begin("killed", 2, **dict(MODEL, steps=100, snapshot={"every": 10, "busy": "wait"}))
        node.kc("wait", job, "--for", "step>=35")
        kill(node.ranks(job)[1])
        finish(node, job, 100)
        [(step, text)] = restored(node, job)
        assert step >= 20 and step % 10 == 0 and text == "from the copy in memory", (step, text)


def test_killed_while_the_disk_is_written():
    """All ranks die while the first snapshot is on its way to the disk: the copy is written by the keeper's child, at full speed."""
    with Kc() as node:
        job = node.begin("slow", 2, **dict(MODEL, steps=60, snapshot=SLOW_DISK))
        saving(node, job)
        assert "memory:/v00000001" in node.kc("snap", "ls", job).stdout
        kill_all(node.ranks(job))
        until("the restart", lambda: restored(node, job))
        assert told(node, job) == [("copy-saving", 5), ("copy-saved", 5)], told(node, job)
        assert restored(node, job) == [(5, "from the copy in memory")]
        assert node.snapshots(job)[0]["step"] == 5 and node.snapshots(job)[0]["verified"]
        finish(node, job, 60)


def test_a_full_disk_is_told_and_memory_is_enough():
    name = "a_full_disk_is_told_and_memory_is_enough"
    space = ["unshare", "-m"] if os.getuid() == 0 else ["unshare", "-Urm"]
    probe = subprocess.run([*space, "mount", "-t", "tmpfs", "none", "/mnt"], capture_output=True, text=True)
    if probe.returncode:
        print(f"skipped {name}: no private mounts here ({probe.stderr.strip()})")
        return
    undisturbed(60)
    done = subprocess.run([*space, sys.executable, os.path.abspath(__file__), "--inside", _roots[60]], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def inside_a_full_disk():
    home = tempfile.mkdtemp(prefix="kc-disk-")
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m,mode=1777", "tmpfs", home], check=True)
    ballast = os.path.join(home, "ballast")
    with open(ballast, "wb") as f:
        os.posix_fallocate(f.fileno(), 0, 60 << 20)
    with Kc(home=home) as node: # not even the first snapshot finds room
        job = node.begin("full", 2, **dict(MODEL, steps=60, snapshot={"every": 5}))
        until("a snapshot fails", lambda: node.events(job, "snapshot-failed"))
        node.kc("wait", job, "--for", "step>=12")
        kill(node.ranks(job)[0])
        until("the restart", lambda: restored(node, job))
        [said] = node.events(job, "copy-not-saved")
        for word in ("rank-0.pack", "needs ", " free", "No space left on device"):
            assert word in said["text"], said
        [(step, text)] = restored(node, job)
        assert step >= 5 and step % 5 == 0 and text == "from the copy in memory", (step, text)
        node.kc("wait", job, ok=(0, 1))
        assert node.steps(job) == list(range(1, 61)) and node.root(job) == _roots[60]
        assert len(node.events(job, "copy-not-saved")) == 2 and node.read(job, "state.json")["exit_code"] == 1 # at its end, too
        # It has finished, yet what it finished with is nowhere: it may be resumed, from what there is.
        os.unlink(ballast)
        assert "it has no snapshot and begins anew" in node.kc("resume", job).stdout
        node.kc("wait", job)
        assert node.root(job) == _roots[60] and node.snapshots(job)[-1]["step"] == 60
        assert node.kc("resume", job, ok=(5,)).returncode == 5, "now it is saved"
    subprocess.run(["umount", home], check=True)
    os.rmdir(home)


def test_the_last_step_in_memory_alone_is_saved_after_all():
    """A rank dies while the last snapshot is written, and the child finds the folder taken: the restart, with nothing left to
    train, saves it."""
    with Kc() as node:
        job = node.begin("last", 2, **dict(MODEL, steps=20, snapshot={"every": 20, "mib_per_second": 2}))
        saving(node, job)
        taken = os.open(node.path(job, "snapshots", "LOCK"), os.O_RDWR)
        taker = threading.Thread(target=fcntl.flock, args=(taken, fcntl.LOCK_EX)) # behind rank 0
        taker.start()
        kill(node.ranks(job)[1])
        until("the child has failed", lambda: node.events(job, "copy-not-saved"))
        taker.join()
        os.close(taken)
        node.kc("wait", job)
        assert "somebody else" in node.events(job, "copy-not-saved")[0]["text"]
        assert restored(node, job) == [(20, "from the copy in memory")]
        assert [s["step"] for s in node.snapshots(job)] == [20] and node.read(job, "state.json")["exit_code"] == 0
        finish(node, job, 20)


def test_a_job_that_fails_leaves_its_copy_on_disk():
    with Kc() as node:
        job = node.begin("failed", 2, **dict(MODEL, steps=60, snapshot=SLOW_DISK, policy={"max_restarts": 0}))
        saving(node, job)
        pid = keeper(node, job)
        inodes = {os.stat(p).st_ino for p in copies(pid).values()}
        kill(node.ranks(job)[1])
        node.kc("wait", job, ok=(1,))
        assert told(node, job) == [("copy-saving", 5), ("copy-saved", 5)]
        assert [s["step"] for s in node.snapshots(job)] == [5]
        until("the keeper is gone, and the memory with it", lambda: not alive(pid))
        assert not inodes & {os.stat(p).st_ino for q in everybody() for p in copies(q).values()}
        node.kc("resume", job)
        finish(node, job, 60)
        assert restored(node, job)[0] == (5, "")


def everybody():
    return [int(pid) for pid in os.listdir("/proc") if pid.isdigit()]


def test_kills_at_any_moment():
    """Ranks are killed again and again, also while a copy is made; what is restored is always of a snapshot's step."""
    with Kc() as node:
        job = node.begin("often", 2, **dict(MODEL, steps=90, snapshot={"every": 3}))
        for turn in range(1, 5):
            node.kc("wait", job, "--for", f"step>={15 * turn}")
            until("its ranks train", lambda: node.read(job, "state.json")["state"] == "running")
            kill(node.ranks(job)[turn % 2])
            until("the next incarnation", lambda: node.read(job, "state.json")["incarnation"] == turn + 1)
        finish(node, job, 90)
        assert len(restored(node, job)) == 4 and all(s % 3 == 0 for s, _ in restored(node, job)), restored(node, job)
        assert not node.events(job, "snapshot-broken")


def test_in_any_layout():
    """What a rank keeps alone is in its own copy: shards, parts of tensors, stages, masters of another precision."""
    layouts = ({"data": 2, "zero": 3}, {"tensor": 2, "pipeline": 2}, {"data": 2, "zero": 1, "precision": "bf16"})
    for layout in layouts:
        ranks = 4 if "pipeline" in layout else 2
        parallel = dict({"data": 1, "zero": 0}, **{k: v for k, v in layout.items() if k != "precision"})
        how = dict(MODEL, steps=45, snapshot={"every": 4}, precision=layout.get("precision", "fp32"), parallel=parallel)
        with Kc() as node:
            whole = node.root(node.train("whole", ranks, **how))
            job = node.begin("killed", ranks, **how)
            node.kc("wait", job, "--for", "step>=13")
            kill(node.ranks(job)[-1])
            node.kc("wait", job)
            [(step, text)] = restored(node, job)
            assert step >= 4 and step % 4 == 0 and text == "from the copy in memory", (layout, step, text)
            assert node.root(job) == whole, layout


def test_a_killed_keeper_takes_its_copies_with_it():
    """Its ranks save to disk and leave; the next keeper has empty objects, and the job goes on from the disk."""
    with Kc() as node:
        job = node.begin("bereft", 2, **dict(MODEL, steps=100, snapshot={"every": 10}))
        node.kc("wait", job, "--for", "step>=25")
        kill(keeper(node, job))
        finish(node, job, 100)
        [(step, text)] = restored(node, job)
        assert step >= 25 and text == "", (step, text)


def test_a_killed_kcd_changes_nothing():
    with Kc() as node:
        job = node.begin("alone", 2, **dict(MODEL, steps=60, snapshot=SLOW_DISK))
        saving(node, job)
        node.kill_kcd()
        kill(node.ranks(job)[0])
        until("the restart", lambda: restored(node, job))
        assert restored(node, job) == [(5, "from the copy in memory")]
        assert told(node, job)[-1] == ("copy-saved", 5)
        node.start_kcd()
        finish(node, job, 60)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--inside"]:
        _roots[60] = sys.argv[2]
        sys.exit(inside_a_full_disk())
    main(globals())
