#!/usr/bin/env python3
"""Snapshots beside training. The disk is made slow by the spec, so that many steps fit into one snapshot: what is due meanwhile,
asked for meanwhile, or ended meanwhile has a rule, and no bit depends on any of it."""
import json, os, signal, subprocess, sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from kc_flow import BIN, kill, main, until
from kc_train import Kc

SLOW = {"every": 20, "keep": 100, "mib_per_second": 5, "full_every": 1}
QUICK = dict(steps=400, model={"init": {"from": None}}, lr_schedule={"warmup": 0, "kind": "constant"}, optimizer={"lr": 1e-3})
LARGE = dict(QUICK, model={"hidden": 128, "init": {"from": None}}, steps=1000000)  # 5 MB: nobody looks too late at its snapshot


def steps_of(node, job):
    return [s["step"] for s in node.snapshots(job)]


def left_out(node, job):
    return [e for e in node.events(job, "snapshot-skipped") if e["rank"] == 0]


def saved_as(answer):
    """The manifest of what a checkpoint answered with."""
    with open(os.path.join(answer["path"], "MANIFEST.json")) as f:
        return json.load(f)["manifest"]


def under_way(node, job):
    """The stage, while a snapshot is not done."""
    saving = node.json("show", job)["job"]["saving"]
    return saving and saving["stage"] != "none" and saving["stage"]


def test_what_is_due_meanwhile_is_left_out_or_waited_for():
    with Kc() as node:
        job = node.train("skip", 2, 1, snapshot=dict(SLOW, mib_per_second=1), **QUICK)
        saved, skipped = steps_of(node, job), left_out(node, job)
        assert len(saved) >= 2 and saved[0] == 20 and saved[-1] == 400, saved
        assert skipped, "the disk was no slower than training"
        assert sorted(saved + [e["step"] for e in skipped]) == list(range(20, 401, 20)), "none is left out in silence"
        assert all(e["under_way"] < e["step"] and e["under_way"] in saved for e in skipped), skipped
        print(f"        {len(saved)} saved, {len(skipped)} left out")
        root = node.root(job)

        job = node.train("wait", 2, 1, **dict(QUICK, snapshot=dict(SLOW, busy="wait"), steps=80))
        assert steps_of(node, job) == [20, 40, 60, 80] and not left_out(node, job)
        job = node.train("alone", 2, 1, **dict(QUICK, snapshot=dict(SLOW, copies=0), steps=80))
        assert steps_of(node, job) == [20, 40, 60, 80] and not left_out(node, job)
        costs = [v["cost"] for v in node.json("snap", "ls", job)["snapshots"]]
        assert all(c["copy_seconds"] is None and c["stall_seconds"] >= c["write_seconds"] > 0 for c in costs), costs
        assert node.root(node.train("none", 2, 1, **QUICK)) == root, "a snapshot changes no bit"


def test_what_is_asked_for_is_never_left_out():
    with Kc() as node:
        job = node.begin("asked", 2, 1, **dict(LARGE, snapshot=dict(SLOW, every=0)))
        node.kc("wait", job, "--for", "step>=5")
        asks = subprocess.Popen([os.path.join(BIN, "kc"), "checkpoint", job, "--json"], env=node.environment,
                                stdout=subprocess.PIPE, text=True)
        until("it is under way", lambda: under_way(node, job))
        way = until("it says how far it is", lambda: (w := node.json("snap", "ls", job)["under_way"]) and w["seconds_left"] and w)
        assert way["stage"] in ("copying", "writing") and 0 < way["through"] <= 1 and way["bytes_per_second"] > 0, way
        before = node.json("show", job)["job"]["step"]
        second = saved_as(node.json("checkpoint", job))
        first = saved_as(json.loads(asks.communicate()[0]))
        assert first["step"] <= before <= second["step"], "one that began after it was asked for"
        assert second["version"] == first["version"] + 1 and first["step"] == way["step"]
        plan = {r["after"]: r for r in node.json("snap", "ls", job)["restore"]}
        assert [plan[a]["tier"] for a in ("crash", "machine")] == ["memory", "disk"], plan
        assert plan["crash"]["version"] == plan["machine"]["version"] == second["version"] == plan["damage"]["version"] + 1, plan
        shown = node.kc("show", job).stdout
        assert "saving      training stood" in shown and "written in" in shown, shown
        figures = node.kc("metrics", job).stdout
        for name in ("snapshot_stall_seconds", "snapshot_copy_seconds", "snapshot_write_seconds", "snapshot_raw_bytes",
                     "snapshots_skipped_total", "snapshot_stage"):
            assert f"kc_{name}" in figures, name
        node.kc("stop", job)
        listed = {v["version"]: v["cost"] for v in node.json("snap", "ls", job)["snapshots"]}
        assert second["version"] in listed and all(listed.values()), listed
        for cost in listed.values():
            assert cost["write_seconds"] > 0 and cost["stall_seconds"] > 0 and cost["copy_seconds"] > 0, cost
            assert cost["bytes"] > 0 and cost["raw_bytes"] > 0 and 0 < cost["mib_per_second"] and cost["disk_mib_per_second"] > 0, cost
        version = node.json("show", job)["job"]["snapshot"]
        assert version["cost"] == node.json("snap", "show", f"{job}/{version['version']}")["cost"] == listed[version["version"]]
        assert "MiB/s" in node.kc("snap", "show", job).stdout


def test_a_checkpoint_is_never_answered_by_an_older_one():
    """A rank dies while the second that was asked for is written. The answer is the copy of it, or, where none was whole, says that
    the job went back; and what was restored is not saved again."""
    for second in ("whole", "none"):
        with Kc() as node:
            job = node.begin("older", 2, 1, **dict(LARGE, snapshot=dict(SLOW, every=0), policy={"max_restarts": 9}))
            node.kc("wait", job, "--for", "step>=5")
            first = saved_as(node.json("checkpoint", job))
            at = node.json("show", job)["job"]["step"] + 3
            node.kc("wait", job, "--for", f"step>={at}")
            if second == "none":
                for pid in node.ranks(job):
                    os.kill(pid, signal.SIGSTOP) # nothing is answered, nothing is copied
            asks = subprocess.Popen([os.path.join(BIN, "kc"), "checkpoint", job, "--json"], env=node.environment,
                                    stdout=subprocess.PIPE, text=True)
            until("it was asked", lambda: len(node.events(job, "request")) == 2)
            if second == "whole":
                until("it is being written", lambda: under_way(node, job) == "writing")
            kill(node.ranks(job)[1])
            answer = json.loads(asks.communicate()[0])
            saved = saved_as(answer)
            if second == "whole":
                assert saved["step"] >= at and not answer["note"], answer
            else:
                assert saved["version"] == first["version"] and f"went back to step {first['step']} meanwhile" in answer["note"]
            assert len(node.snapshots(job)) == (2 if second == "whole" else 1), node.snapshots(job)
            node.kc("stop", job)


def test_an_end_finishes_what_is_under_way_and_saves():
    with Kc() as node:
        job = node.begin("ended", 2, 1, **dict(LARGE, snapshot=SLOW, stop={"grace_seconds": 0.1}))
        until("it is under way", lambda: under_way(node, job))
        node.kc("stop", job)
        assert not node.events(job, "killed"), "time in which a snapshot is written does not count"
        end = node.result(job)["step"]
        saved = steps_of(node, job)
        assert node.state(job) == "stopped" and saved[-1] == end and saved[0] == 20, (saved, end)
        node.kc("snap", "verify", job, "--deep")
        node.kc("resume", job)
        node.kc("wait", job, "--for", f"step>={end + 5}")
        node.kc("stop", job)
        assert node.steps(job) == list(range(1, node.result(job)["step"] + 1))


def test_held_the_snapshot_goes_on():
    with Kc() as node:
        job = node.begin("held", 2, 1, **dict(LARGE, snapshot=SLOW))
        until("it is under way", lambda: under_way(node, job))
        node.kc("pause", job)
        until("it is done", lambda: steps_of(node, job) == [20] or len(steps_of(node, job)) > 1)
        until("nothing is under way", lambda: not under_way(node, job))
        count = len(steps_of(node, job))
        assert node.state(job) == "paused"
        step = saved_as(node.json("checkpoint", job))["step"]
        assert step == node.json("show", job)["job"]["step"] and len(steps_of(node, job)) == count + 1
        node.kc("stop", job)
        assert steps_of(node, job)[-1] == step and len(steps_of(node, job)) == count + 1, "saved already"


if __name__ == "__main__":
    main(globals())
