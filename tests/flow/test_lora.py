#!/usr/bin/env python3
"""Adapters in real jobs: nothing else changes, whoever is killed nothing is lost, a job of adapters is sampled from, and goes on
with its own adapters alone."""
import json, os, sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from kc_flow import kill, main
from kc_train import GOLDEN, Kc, safetensors, snapshot

LORA = {"rank": 4, "alpha": 8, "targets": ["*.attn.*", "*.mlp.c_fc.*"]}


def begin(node, name, parallel, micro, **more):
    return node.begin(name, 4, 0, **(dict(steps=60, lora=LORA, optimizer={"lr": 1e-2}, batch={"micro": micro}, snapshot={"every": 5},
                                          parallel=dict({"data": 1, "zero": 0}, **parallel)) | more))


def test_a_killed_rank_costs_nothing_and_only_adapters_move():
    with Kc() as node:
        calm, torn = (begin(node, name, {"tensor": 2, "data": 2, "zero": 1}, 4) for name in ("calm", "torn"))
        node.wait_step(torn, 12)
        kill(node.ranks(torn)[2])
        for job in (calm, torn):
            node.kc("wait", job)
        assert node.read(torn, "state.json")["restarts"] == 1 and node.root(torn) == node.root(calm)
        values = snapshot(node.snapshots(torn)[-1]["path"])[1]
        base = safetensors(os.path.join(GOLDEN, "model", "model.safetensors"))
        adapters = [name for name in values[0] if ".lora_" in name]
        assert len(adapters) == 12 and sorted(values[0]) == sorted([*base, *adapters])
        for name, value in values[0].items():
            assert (value == base.get(name)) == (name in base), name
            assert any(values[1][name]) == any(values[2][name]) == (name in adapters), name
        losses = node.metrics(torn)
        assert losses[-1] < losses[0] - 0.5, losses
        assert node.kc("sample", torn, "--prompt", "a", "--tokens", "20").stdout
        shown = node.json("show", torn)["job"]
        assert shown["trained"] == sum(len(values[0][name]) for name in adapters)
        assert shown["parameters"] - shown["trained"] == sum(len(v) for v in base.values())


def test_other_adapters_are_refused_in_a_line():
    with Kc() as node:
        job = begin(node, "job", {"data": 4}, 2, steps=5)
        node.kc("wait", job)
        path, newest = node.path(job, "spec.json"), node.snapshots(job)[-1]["path"]
        spec = json.load(open(path))
        for lora, says in (({"rank": 8, "alpha": 8}, "adapters have rank 4 and alpha 8, the spec's lora has rank 8 and alpha 8"),
                           ({"targets": ["*.attn.*"]}, "adapters of 6 weights are in the snapshot, by the spec's lora.targets it is 4")):
            changed = dict(spec, lora=dict(spec["lora"], **lora), name="changed")
            changed["model"]["init"]["from"] = newest
            other = os.path.join(node.folder, "changed.json")
            with open(other, "w") as f:
                json.dump(changed, f)
            done = node.kc("check", other, ok=(9,))
            assert says in done.stderr and len(done.stderr.strip().splitlines()) == 1, done.stderr


if __name__ == "__main__":
    main(globals())
