#!/usr/bin/env python3
"""How a job is governed, seen from outside while it runs: what was done is told with who and why, the ledger is that of its ranks,
and the policy says what is used up. The screen shows the same."""
import os, sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from kc_flow import kill, main, until
from kc_screen import Screen
from kc_train import Kc


def test_what_was_done_by_whom_and_what_is_used_up():
    with Kc() as node:
        job = node.begin("governed", 2, 1, steps=1000000, snapshot={"every": 10, "keep": 2}, policy={"max_restarts": 5})
        node.kc("wait", job, "--for", "step>=20")
        kill(node.ranks(job)[1])
        until("it is restarted", lambda: node.read(job, "state.json")["restarts"] == 1)
        # not by its step: that may still be the one it fell from
        until("it is restored", lambda: node.events(job, "restored"))
        node.kc("pause", job)
        told = node.json("govern", job)
        deeds = [(d["who"], d["action"]) for d in told["actions"] if d["event"] in ("queued", "fault", "restored", "request")]
        assert deeds == [("user", "start"), ("keeper", "restart"), ("govern", "restore"), ("user", "pause")], told["actions"]
        fault = next(d for d in told["actions"] if d["event"] == "fault")
        assert fault["rank"] == 1 and "killed by someone" in fault["why"], fault
        crash = next(r for r in told["policy"] if r["fault"] == "crash")
        assert crash["action"] == "restart" and crash["most"] == 5 and crash["used"] in (0, 1), crash  # 0: a newer snapshot paid for it
        both = [r for r in told["ledger"] if (r["caller"], r["of"]) == ("schedule", "state")]
        assert [r["rank"] for r in both] == [None, 0, 1], told["ledger"]
        for row in both:
            assert row["opened"] == sum(row["opened_by_class"].values()) > 0 and row["viewed"] > 0, row
        assert both[0]["opened"] == both[1]["opened"] + both[2]["opened"]
        assert next(r for r in told["ledger"] if r["caller"] == "others")["refused"] == 0
        assert len(told["rules"]) > 50 and told["exemptions"] == [] and {r["state"] for r in told["rules"]} <= {"kept", "unknown"}
        rows = node.kc("govern", job, "--where", "who=user", "--cols", "action,event", "--plain").stdout.split("\n")
        assert rows[:2] == ["start\tqueued", "pause\trequest"], rows

        screen = Screen(node)
        try:
            until("the jobs are shown", lambda: screen.shows(job.encode()))
            screen.press(b"\r5")
            until("its snapshots are shown", lambda: screen.shows(b"in memory") and screen.shows(b"a rank dies or is killed"))
            screen.press(b"6")
            until("what was done is shown", lambda: screen.shows(b"killed by someone") or screen.shows(b"fault: rank 1"))
            screen.press(b"\t")
            until("the ledger is shown", lambda: screen.shows(b"schedule"))
        finally:
            screen.close()
        node.kc("stop", job)


if __name__ == "__main__":
    main(globals())
