#!/usr/bin/env python3
"""What is proved of a run while it runs and afterwards: replicas that silently differ are caught, and the rank and the parameter
are named."""
import array, os, re, sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from kc_flow import main
from kc_train import Kc, snapshot

NAME = "transformer.h.1.mlp.c_fc.weight"


def windows(pid):
    """The memory that a rank shares with others, by the rank whose it is."""
    out = {}
    for fd in os.listdir(f"/proc/{pid}/fd"):
        path = f"/proc/{pid}/fd/{fd}"
        found = re.match(r"/memfd:kc-window\..*\.(\d+) \(deleted\)$", os.readlink(path))
        if found:
            out[int(found.group(1))] = path
    return out


def flip(path, values):
    """One bit of the first value of a tensor, which lies somewhere in the window."""
    with open(path, "r+b") as f:
        data = f.read()
        at = data.find(values.tobytes())
        assert at > 0 and data.find(values.tobytes(), at + 1) < 0
        f.seek(at)
        f.write(bytes([data[at] ^ 1]))


def corrupted(node, ranks, victim, **changes):
    """A job one of whose ranks holds another bit of NAME from some step on; its record once it has ended."""
    job = node.begin(f"bits{ranks}", ranks, 0, steps=100000, batch={"sequences": 2 * ranks, "micro": 2},
                     policy={"replica_every": 5, "on_crash": "stop"}, **changes)
    node.kc("wait", job, "--for", "step>=3")
    node.kc("pause", job)
    node.kc("checkpoint", job)
    values = snapshot(node.snapshots(job)[-1]["path"])[1][0][NAME]
    flip(windows(node.ranks(job)[0])[victim], values)
    node.kc("resume", job, ok=(0, 5))  # it may have ended before the answer
    return job, node.wait(job, "failed")


def test_a_rank_whose_bits_differ_is_outvoted_and_named():
    with Kc() as node:
        job, record = corrupted(node, 3, 1)
        said = record["first_failure"]["text"]
        assert f"rank 1 holds other bits of {NAME} than ranks 0 and 2" in said and record["first_failure"]["rank"] == 1, said
        seen = node.events(job, "replica")
        assert seen and seen[0]["text"].startswith(f"rank 1 holds other bits of {NAME}"), seen
        # one that may hold them is never restored: then they would be the same everywhere
        alike = int(re.search(r"They were alike after step (\d+): no snapshot of a later one", seen[0]["text"]).group(1))
        listed = node.json("snap", "ls", job)["snapshots"]
        assert listed and all(not v["verified"] and "it may hold wrong bits" in v["reason"] for v in listed), listed
        assert not node.json("snap", "ls", job)["copies"] and alike % 5 == 0
        node.kc("resume", job)
        record = node.wait(job, "failed")
        assert "is whole" in record["first_failure"]["text"] and "may hold wrong bits" in record["first_failure"]["text"], record


def test_of_two_ranks_nobody_can_say_whose_bits_are_right():
    with Kc() as node:
        job, record = corrupted(node, 2, 1)
        said = record["first_failure"]["text"]
        assert f"ranks 0 and 1 hold different bits of {NAME}" in said and "nobody can say whose are right" in said, said


def test_replicas_are_not_compared_where_nobody_wants_it():
    with Kc() as node:
        job = node.begin("never", 2, 0, steps=100000, policy={"replica_every": 0, "on_crash": "stop"})
        node.kc("wait", job, "--for", "step>=3")
        node.kc("pause", job)
        node.kc("checkpoint", job)
        flip(windows(node.ranks(job)[0])[1], snapshot(node.snapshots(job)[-1]["path"])[1][0][NAME])
        node.kc("resume", job)
        step = node.json("show", job)["job"]["step"]
        node.kc("wait", job, "--for", f"step>={step + 60}")
        node.kc("stop", job)
        assert not node.events(job, "replica")


if __name__ == "__main__":
    main(globals())
