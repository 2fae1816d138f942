#!/usr/bin/env python3
"""The night before: what a job's board showed can be looked at afterwards, over killed ranks, a killed keeper and a resume; and a
recording that can't be written disturbs nothing."""
import os, shutil, sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from kc_flow import kill, main, until
from kc_train import Kc

LONG = dict(steps=1000000, model={"init": {"from": None}}, snapshot={"every": 20})


def moments(node, job):
    return node.json("replay", job)["moments"]


def wrong(node, job):
    return [m for m in moments(node, job) if m["wrong"]]


def segments(node, job):
    return sorted(os.listdir(node.path(job, "recording")))


def at(node, job, time):
    return node.json("show", job, "--at", time)["job"]


def test_the_night_before():
    with Kc() as node:
        job = node.begin("tape", 2, 1, **LONG)
        node.kc("wait", job, "--for", "step>=30")
        until("it was recorded while it ran", lambda: moments(node, job) and moments(node, job)[-1]["time"])
        assert not wrong(node, job)

        kill(node.ranks(job)[1])
        node.wait(job, "running")
        seen = until("it was recorded, before its peer was told and when all were gone",
                     lambda: (lambda w: len(w) >= 2 and w)(wrong(node, job)))
        first, last = at(node, job, seen[0]["time"]), at(node, job, seen[-1]["time"])
        assert first["state"] == "running" and first["step"] >= 30 and first["ranks"][0]["state"] == "running", first
        assert [r["state"] for r in last["ranks"]] == ["failed"] * 2 and last["state"] == "restarting", last
        blamed = node.json("hang", job, "--at", seen[-1]["time"], ok=(0, 1))
        assert [(v["word"], v["ranks"]) for v in blamed["verdicts"]] == [("dead-peer", [1])], blamed
        assert blamed["at"] == seen[-1]["time"] and blamed["saved"], blamed
        until("it goes on", lambda: node.read(job, "state.json")["incarnation"] == 2 and node.steps(job)[-1] > first["step"])

        before = segments(node, job)
        kill(node.keeper(job))
        until("another keeper records", lambda: len(segments(node, job)) > len(before))
        node.wait(job, "running")
        list_of = moments(node, job)
        clocks = [m["monotonic_ns"] for m in list_of]
        assert clocks == sorted(clocks) and list_of[0]["whole"], "one night, whoever recorded it"
        node.kc("stop", job)
        assert at(node, job, "end")["state"] == "stopped"

        whole = os.path.join(node.folder, "night")
        with open(whole, "wb") as out:
            for name in segments(node, job):
                with open(node.path(job, "recording", name), "rb") as part:
                    out.write(part.read())
        assert len(node.json("replay", whole)["moments"]) == len(moments(node, job)), "cat of segments is a recording"
        with open(whole, "r+b") as torn:
            torn.truncate(os.path.getsize(whole) - 7)
        cut = node.json("replay", whole)
        assert cut["torn_bytes"] > 0 and cut["damaged_bytes"] == 0, cut

        # a resume that can't record trains on, and says so once
        shutil.rmtree(node.path(job, "recording"))
        with open(node.path(job, "recording"), "w") as f:
            f.write("in the way")
        node.kc("resume", job)
        told = until("it is told", lambda: node.events(job, "recording-failed"))
        step = node.steps(job)[-1]
        until("it trains", lambda: node.steps(job)[-1] > step + 50)
        assert len(node.events(job, "recording-failed")) == 1 and "recording" in told[0]["text"], told
        node.kc("replay", job, "--json", ok=(9,))
        node.kc("stop", job)
        node.kc("rm", job)
        assert not os.path.exists(node.path(job))


if __name__ == "__main__":
    main(globals())
