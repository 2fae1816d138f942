#!/usr/bin/env python3
"""Does a job get on? The keeper says of a hang that it is one, within the limit that it learned, and does what the spec wants; a
child of its own, `kc hang`, finds out who is to blame, and keeps what it finds. Pauses, slow snapshots and long starts hang not.
F12, F19, F24."""
import os, re, signal, sys, time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from kc_flow import Node, alive, kill, main, until
from kc_train import Kc

# A `kc hang WHAT --dump DIR …` without a diagnosis: keeps how it was called and the board that it was given, and waits for
# the file that WAIT_FOR names before its verdict, for that of LINGER after it.
STAND_IN = """#!/bin/sh
mkdir -p "$4" && echo "$*" >"$4/called" && case $2 in */*) cat "$2" >"$4/board" ;; esac
while [ -n "$WAIT_FOR" ] && [ ! -e "$WAIT_FOR" ]; do sleep 0.02; done
[ -n "$SAY" ] && { echo "$SAY"; exit 3; }
echo '{"schema":"kc.hang/1","hung":true,"text":"rank 1 is made up","verdicts":[{"word":"spinning","text":"made up for a test","ranks":[1],"layer":"engine","owner":"foundations"}]}'
while [ -n "$LINGER" ] && [ ! -e "$LINGER" ]; do sleep 0.02; done
"""


def watched():
    """A node whose keepers start the stand-in."""
    node = Node(start=False)
    node.environment["KC_CONSOLE_BINARY"] = os.path.join(node.folder, "stand-in")
    with open(node.environment["KC_CONSOLE_BINARY"], "w") as f:
        f.write(STAND_IN)
    os.chmod(node.environment["KC_CONSOLE_BINARY"], 0o755)
    node.go = os.path.join(node.folder, "go")
    node.start_kcd()
    return node


def begin(node, policy=None, **more):
    policy = dict({"hang_floor_seconds": 0.5, "hang_ceiling_seconds": 20}, **(policy or {}))
    return node.start(policy=policy, **more)


def hung(node, job):
    return until("a hang is told", lambda: node.events(job, "hang"))[0]


def told(node, job):
    return until("what came of it is told", lambda: node.events(job, "postmortem"))[0]


def test_a_hung_rank_is_named_and_the_job_comes_back():
    with watched() as node:
        job = begin(node, {"on_hang": "restart"}, steps=90, env={"FAKE_ONLY_RANK": 1, "FAKE_HANG_AT": 70, "FAKE_SNAPSHOT_EVERY": 50,
                                                                   "LINGER": node.go})
        record = until("it comes back while the child is still there", lambda: (r := node.read(job, "state.json"))["step"] > 70 and r)
        open(node.go, "w").close()
        node.wait(job, "finished")
        event = hung(node, job)
        assert event["rank"] == 1 and event["step"] == 70 and event["phase"] == "forward", event
        assert event["limit_seconds"] <= event["seconds"] <= event["limit_seconds"] + 1, event
        kept = told(node, job)
        assert kept["text"] == "rank 1 is made up" and kept["word"] == "spinning" and kept["ranks"] == [1], kept
        called = open(node.path(job, kept["path"], "called")).read().split()
        assert called[:3] == ["hang", job, "--dump"] and called[-1] == "--json", called
        fault = node.events(job, "fault")
        assert [(e["fault"], e["action"], e["rank"], e["step"]) for e in fault] == [("hang", "restart", 1, 70)], fault
        assert fault[0]["text"].startswith("rank 1 at step 70 in phase forward: hang: made up for a test"), fault
        assert record["restarts"] == 1 and record["last_fault"]["reason"] == "hang" and record["first_failure"] is None, record
        assert node.steps(job) == list(range(1, 91))
        # it did not move for longer than ever: its grace is one second
        ended = {e["rank"]: e for e in node.events(job, "rank-exit") if e["monotonic_ns"] < node.events(job, "fault")[0]["monotonic_ns"]}
        assert ended[1]["signal"] in (9, 15) and ended[0]["reason"] == "peer-left", ended


def test_the_same_hang_twice_is_not_restarted_again():
    with watched() as node:
        job = begin(node, {"on_hang": "restart", "max_restarts": 5}, steps=90,
                    env={"FAKE_ONLY_RANK": 1, "FAKE_HANG_AT": 70, "FAKE_UNTIL": 9, "FAKE_IGNORE_TERM": 1})
        record = node.wait(job, "failed")
        assert record["restarts"] == 1 and record["first_failure"]["rank"] == 1, record
        assert "hang" in record["first_failure"]["text"] and "same" in record["first_failure"]["text"], record["first_failure"]


def test_a_report_changes_nothing_and_is_over_when_it_moves():
    with watched() as node:
        job = begin(node, steps=3000)
        node.wait_step(job, 60)
        victim = node.ranks(job)[1]
        kill(victim, signal.SIGSTOP)
        try:
            hung(node, job)
            kept = told(node, job)
            assert open(node.path(job, kept["path"], "called")).read().split()[-1] == "--no-stacks" # never traced
            assert node.state(job) == "running" and not node.events(job, "fault")
        finally:
            kill(victim, signal.SIGCONT)
        over = until("it is over", lambda: node.events(job, "hang-over"))[0]
        assert over["seconds"] >= hung(node, job)["seconds"], over
        step = node.steps(job)[-1]
        node.wait_step(job, step + 5)
        assert node.read(job, "state.json")["restarts"] == 0
        node.request("stop", job=job)


def test_what_the_child_does_holds_up_nothing():
    """It says nonsense, or an error: a hang is ended all the same, by what the keeper saw. One that is not there: below."""
    with watched() as node:
        jobs = {say: begin(node, {"on_hang": "restart"}, steps=90, env={"FAKE_ONLY_RANK": 1, "FAKE_HANG_AT": 70, "SAY": say})
                for say in ("no json", '{"schema":"kc.error/1","error":"an error"}')}
        for say, job in jobs.items():
            assert node.wait(job, "finished")["restarts"] == 1
            failed = node.events(job, "postmortem-failed")
            assert failed and not node.events(job, "postmortem"), node.events(job)
            assert failed[0]["text"].endswith("exit code 3: an error" if "error" in say else "exit code 3"), failed


def test_no_kc_beside_kcd():
    with watched() as node:
        os.unlink(node.environment["KC_CONSOLE_BINARY"])
        job = begin(node, {"on_crash": "stop"}, steps=3000)
        node.wait_step(job, 5)
        kill(node.ranks(job)[1])
        node.wait(job, "failed")
        assert "exit code 127" in node.events(job, "postmortem-failed")[0]["text"]


def test_F12_F24_a_pause_a_slow_snapshot_and_a_long_start_are_no_hangs():
    with watched() as node:
        # a pause, a snapshot and a start, each longer than the limit of a step
        job = begin(node, {"hang_floor_seconds": 0.8}, steps=3000, env={"FAKE_START_MS": 1000, "FAKE_SNAPSHOT_MS": 1000})
        node.wait_step(job, 10)
        node.request("pause", job=job)
        begin_of_pause = time.monotonic()
        until("the pause is long", lambda: time.monotonic() - begin_of_pause > 1)
        node.request("resume", job=job)
        step = node.steps(job)[-1]
        node.wait_step(job, step + 5)
        node.request("checkpoint", job=job)
        node.wait_step(job, node.steps(job)[-1] + 5)
        assert not node.events(job, "hang"), node.events(job, "hang")
        node.request("stop", job=job)
        assert not node.events(job, "hang"), node.events(job, "hang")


def test_a_crash_keeps_the_board_and_no_restart_waits():
    with watched() as node:
        job = begin(node, steps=3000, env={"FAKE_SNAPSHOT_EVERY": 10, "WAIT_FOR": node.go})
        node.wait_step(job, 12)
        kill(node.ranks(job)[1])
        until("the second incarnation trains", lambda: node.read(job, "state.json")["incarnation"] == 2 and node.state(job) == "running")
        node.wait_step(job, node.steps(job)[-1] + 5)
        assert not node.events(job, "postmortem") # its child has waited all the time
        open(node.go, "w").close()
        kept = told(node, job)
        assert os.path.getsize(node.path(job, kept["path"], "board")) > 500000
        called = open(node.path(job, kept["path"], "called")).read().split()
        assert called[1].startswith("/proc/self/fd/") and called[-1] == "--no-stacks", called
        node.request("stop", job=job)
        assert len(os.listdir(node.path(job, "postmortem"))) == 1 # a stop is no fault


def test_the_end_of_a_failed_job_has_its_post_mortem():
    with watched() as node:
        job = begin(node, {"on_crash": "stop"}, steps=3000, env={"WAIT_FOR": node.go})
        node.wait_step(job, 5)
        keeper = node.keeper(job)
        kill(node.ranks(job)[1])
        until("the child is there", lambda: os.path.isdir(node.path(job, "postmortem")))
        until("its ranks are gone", lambda: len(node.events(job, "rank-exit")) == 2)
        assert node.state(job) not in ("failed",) and not node.read(job, "result.json")
        open(node.go, "w").close()
        node.wait(job, "failed")
        told(node, job)
        until("the keeper is gone", lambda: not alive(keeper))


def test_the_child_goes_with_its_keeper():
    with watched() as node:
        job = begin(node, steps=3000, env={"FAKE_SNAPSHOT_EVERY": 10, "WAIT_FOR": node.go})
        node.wait_step(job, 12)
        kill(node.ranks(job)[1])
        until("the child is there", lambda: os.path.isdir(node.path(job, "postmortem")))
        until("the second incarnation", lambda: node.read(job, "state.json")["incarnation"] == 2 and node.state(job) == "running")
        kill(node.keeper(job))
        until("the next keeper has it", lambda: node.read(job, "state.json")["incarnation"] == 3 and node.state(job) == "running")
        node.request("stop", job=job)


# ---- real ranks, and the real kc hang ----

POLICY = {"hang_floor_seconds": 1, "hang_ceiling_seconds": 20, "on_hang": "restart"}


def test_F19_a_stopped_rank_is_named_the_job_heals_with_the_same_bits_and_the_story_is_told():
    with Kc() as node:
        calm = node.train("calm", 2, steps=400, snapshot={"every": 50})
        job = node.begin("sick", 2, steps=400, snapshot={"every": 50}, policy=POLICY)
        node.wait_step(job, 120)
        kill(node.ranks(job)[1], signal.SIGSTOP)
        event = hung(node, job)
        assert event["limit_seconds"] <= event["seconds"] <= event["limit_seconds"] + 1, event
        kept = told(node, job)
        assert kept["of"] == "hang" and kept["word"] == "stopped" and kept["ranks"] == [1], kept
        record = node.wait(job, "finished")
        assert node.root(job) == node.root(calm)
        fault = node.events(job, "fault")
        assert [(e["fault"], e["rank"]) for e in fault] == [("hang", 1)] and record["restarts"] == 1, fault
        assert "stopped" in fault[0]["text"] and not node.events(job, "postmortem-failed"), node.events(job)
        folder = node.path(job, kept["path"])
        there = set(until("the folder is whole", lambda: "state.json" in os.listdir(folder) and os.listdir(folder)))
        assert {"verdict.json", "verdict.txt", "board", "looks.json", "stacks.txt", "recording", "log-0.txt", "log-1.txt", "spec.json",
                "plan.json", "events.jsonl"} <= there, there
        # the folder alone gives the same verdict again
        again = node.json("hang", folder, ok=(1,))["verdicts"]
        assert [(v["word"], v["ranks"]) for v in again] == [("stopped", [1])], again
        story = node.kc("why", job).stdout
        assert len(story.splitlines()) <= 10 and "hang: " in story and "from step" in story and kept["path"] in story, story
        why = node.json("why", job)
        assert why["fault"] == "hang" and why["first"]["rank"] == 1 and why["owner"] and why["evidence"], why


def test_a_hang_that_is_only_reported_is_shown_and_can_be_stopped():
    with Kc() as node:
        job = node.begin("sick", 2, steps=100000, policy=dict(POLICY, on_hang="report", hang_floor_seconds=0.8))
        node.wait_step(job, 100)
        node.kc("pause", job)
        paused = time.monotonic()
        until("the pause is long", lambda: time.monotonic() - paused > 1)
        node.kc("resume", job)
        node.wait_step(job, node.steps(job)[-1] + 20)
        assert not node.events(job, "hang"), node.events(job, "hang")
        victim = node.ranks(job)[0]
        kill(victim, signal.SIGSTOP)
        told(node, job)
        job_shown = until("the board has the verdict", lambda: (j := node.json("show", job)["job"])["hang"] and j["hang"]["text"] and j)
        assert "rank 0" in job_shown["hang"]["text"] and job_shown["state"] == "running", job_shown["hang"]
        assert not re.search(r" for [0-9]", job_shown["hang"]["text"]), job_shown["hang"] # which would be of when it was found
        assert [r["hung"] for r in job_shown["ranks"]] == [True, False], job_shown["ranks"]
        assert "stacks.txt" not in os.listdir(node.path(job, node.events(job, "postmortem")[0]["path"]))
        assert "hangs" in node.kc("why", job).stdout.splitlines()[0]
        node.kc("stop", job)  # its grace: TERM and CONT
        assert not alive(victim)


if __name__ == "__main__":
    main(globals())
