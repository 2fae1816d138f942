#!/usr/bin/env python3
"""The state in memory that the keeper holds outlives the ranks: a restart begins from it, and a child of the keeper writes it to
disk when the ranks are gone. Whatever becomes of that child, the job goes on. F38, F39."""
import json, os, signal, sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from kc_flow import Node, alive, kill, main, until


def copies(pid):
    """Memory objects for copies that a process has: {name: descriptor}."""
    found = {}
    for fd in os.listdir(f"/proc/{pid}/fd"):
        try:
            link = os.readlink(f"/proc/{pid}/fd/{fd}")
        except FileNotFoundError:
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


def test_the_child_goes_with_its_keeper():
    with Node() as node:
        job = node.start(steps=2000, env={"FAKE_COPY": 1, "FAKE_KEEP": "hang", "FAKE_KILL_AT": 9, "FAKE_ONLY_RANK": 1},
                         stop={"grace_seconds": 20})
        until("the child writes", lambda: told(node, job) == [("copy-saving", 7)])
        pid = keeper(node, job)
        [child] = [int(p) for p in filter(str.isdigit, os.listdir("/proc")) if is_child(p, pid)]
        kill(pid)
        until("a new keeper has started the ranks", lambda: node.read(job, "state.json")["incarnation"] == 2)
        assert not alive(child)
        node.request("stop", job=job)


def is_child(pid, parent):
    try:
        with open(f"/proc/{pid}/stat") as f:
            return int(f.read().rsplit(")", 1)[1].split()[1]) == parent
    except (FileNotFoundError, ProcessLookupError):
        return False


if __name__ == "__main__":
    main(globals())
