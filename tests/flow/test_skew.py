#!/usr/bin/env python3
"""Stragglers (F25) in real jobs: a rank that is stopped half of the time by somebody is named, and not who waits for it;
when it is left in peace, that is told as well."""
import os, signal, sys, threading, time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from kc_flow import main, until
from kc_train import Kc


class Slowed:
    """Stops a process for most of the time, as a machine that has other things to do would."""

    def __init__(self, pid):
        self.pid, self.over = pid, threading.Event()
        self.thread = threading.Thread(target=self.bursts)

    def bursts(self):
        while not self.over.is_set():
            os.kill(self.pid, signal.SIGSTOP)
            time.sleep(0.03)
            os.kill(self.pid, signal.SIGCONT)
            time.sleep(0.01)

    def __enter__(self):
        self.thread.start()

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()


def ranks(node, job):
    return node.json("show", job)["job"]["ranks"]


def stragglers(node, job):
    return {r["rank"] for r in ranks(node, job) if r["straggler"]}


def slow_one_down(node, job, slow):
    """Until it is named. That no other is, made series show (tests/unit/test_skew.c): here others want the cores as well, and may
    make a second one slow in earnest."""
    until("all have a score", lambda: [r["pace_score"] for r in ranks(node, job)].count(None) == 0 < len(ranks(node, job)))
    with Slowed(ranks(node, job)[slow]["pid"]):
        until(f"rank {slow} is named", lambda: slow in stragglers(node, job))
        shown = ranks(node, job)[slow]
        assert shown["busy_seconds"] > 0 and shown["late_seconds"] > 0, shown
        until("it is in the metrics", lambda: f'kc_straggler{{job="{job}",rank="{slow}"}} 1\n' in node.kc("metrics", job).stdout)
        until("it is shown", lambda: "straggler: score 0." in node.kc("show", job).stdout)
    told = [e for e in node.events(job, "straggler") if e["rank"] == slow]
    assert told and f"rank {slow} needs " in told[0]["text"] and told[0]["score"] < 0.75, told


def test_f25_the_slow_rank_is_named_and_when_it_keeps_up_again():
    with Kc() as node:
        job = node.begin("skew", 2, 1, steps=1000000, batch={"sequences": 64, "micro": 8}, policy={"straggler_score": 0.6})
        slow_one_down(node, job, 1)
        until("it keeps up again", lambda: [e for e in node.events(job, "straggler-over") if e["rank"] == 1])
        assert 1 not in stragglers(node, job)
        node.kc("stop", job)


def test_f25_who_waits_for_the_slow_one_is_not_named():
    """Two data parallel pairs that share their tensors: the mate of the slow rank is as late as that one for the other pair."""
    with Kc() as node:
        job = node.begin("mates", 4, 1, steps=1000000, batch={"sequences": 32, "micro": 8},
                         parallel={"tensor": 2, "data": 2}, policy={"straggler_score": 0.5})
        slow_one_down(node, job, 3)
        assert 2 not in {e["rank"] for e in node.events(job, "straggler")}, node.events(job, "straggler")
        node.kc("stop", job)


if __name__ == "__main__":
    main(globals())
