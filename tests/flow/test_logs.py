#!/usr/bin/env python3
"""What ranks print: one stream in the order of time, as the keeper noted when it came, also where a rank dies; and the first error."""
import json, os, subprocess, sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from kc_flow import BIN, kill, main, until
from kc_train import Kc


def lines(node, job, *more):
    return node.json("log", job, *more)


def test_lines_have_times_and_the_first_error_is_named():
    with Kc() as node:
        job = node.begin(ranks=2, steps=4000, policy={"max_restarts": 1})
        node.wait(job, "running")
        node.wait_step(job, 3)
        kill(node.ranks(job)[1])
        until("it was started again", lambda: len(node.events(job, "launched")) == 2)
        said = until("rank 0 told why it left", lambda: lines(node, job)["lines"])
        assert {line["rank"] for line in said} == {0} and "rank 1" in said[0]["text"], said
        error = until("its time is noted", lambda: (lambda e: e and e["time"] and e)(lines(node, job)["first_error"]))
        assert error["text"] == said[0]["text"], error
        exits = {e["rank"]: e["time"] for e in node.events(job, "rank-exit")}
        # it printed after the other had died, and before its own end was seen: the clock of both is one
        assert exits[1] <= error["time"] <= until("rank 0 is gone", lambda: {e["rank"]: e["time"] for e in node.events(job, "rank-exit")}.get(0)), (exits, error)
        with subprocess.Popen([os.path.join(BIN, "kc"), "log", job, "-f", "--json"], env=node.environment, text=True,
                              stdout=subprocess.PIPE, stdin=subprocess.DEVNULL) as follower:
            node.kc("stop", job)
            told = [json.loads(line) for line in follower.stdout]
        assert follower.returncode == 0, follower.returncode
        whole = lines(node, job)["lines"]
        assert sorted((t["rank"], t["text"]) for t in told) == sorted((line["rank"], line["text"]) for line in whole), (told, whole)
        times = [line["time"] for line in whole]
        assert all(times) and times == sorted(times) and len(times) == 3, whole # each rank says how it ended


if __name__ == "__main__":
    main(globals())
