#!/usr/bin/env python3
"""A snapshot belongs to no layout: a job whose layout, or number of ranks, is changed in its directory goes on from what another
one wrote, and its losses are those of a run on one rank; what it then writes, that rank's job begins from. F39, F44."""
import glob, json, os, sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from kc_flow import kill, main
from kc_train import Kc, far, snapshot

MODELS = {
    "gpt2": {"family": "gpt2", "layers": 4, "hidden": 32, "heads": 4, "context": 32, "vocab": 257},
    "llama": {"family": "llama", "layers": 3, "hidden": 48, "heads": 6, "kv_heads": 2, "ffn": 44, "context": 32, "vocab": 257},
    "moe": {"family": "moe", "layers": 2, "hidden": 32, "heads": 4, "kv_heads": 2, "ffn": 20, "context": 32, "vocab": 257,
            "experts": 5, "top_k": 2}}
LAYOUTS = ({"tensor": 2, "pipeline": 2}, {"data": 2, "context": 2, "zero": 1}, {"data": 4}, {"tensor": 4, "sequence": True},
           {"data": 4, "zero": 3}, {"tensor": 2, "data": 2, "zero": 1}, {"data": 2, "pipeline": 2, "zero": 2})
EXPERTS = ({"expert": 2, "tensor": 2}, {"expert": 4}, {"expert": 2, "data": 2, "zero": 3})


def change(node, job, parallel, micro, **more):
    path = node.path(job, "spec.json")
    spec = dict(json.load(open(path)), **more)
    spec["parallel"] = parallel
    spec["batch"]["micro"] = micro
    with open(path, "w") as f:
        json.dump(spec, f)


def begin(node, name, model, ranks, parallel, micro, **more):
    how = dict(steps=100000, model=dict(model, init={"from": None}), optimizer={"lr": 1e-4},
               lr_schedule={"kind": "constant", "warmup": 0}, batch={"sequences": 8, "micro": micro})
    return node.begin(name, ranks, 0, **dict(how, parallel=dict({"data": 1, "zero": 0}, **parallel), **more))


def losses(node, job, upto):
    return {m["step"]: m["loss"] for m in node.lines(job, "metrics.jsonl") if "loss" in m and m["step"] <= upto}


def test_a_job_goes_on_in_another_layout():
    for name, model in MODELS.items():
        layouts = [l for l in LAYOUTS + (EXPERTS if name == "moe" else ()) if l.get("tensor", 1) <= 2 or name != "llama"]
        with Kc() as node:
            job, last = begin(node, name, model, 4, layouts[0], 8), 0
            for turn in range(len(layouts)):
                node.kc("wait", job, "--for", f"step>={last + 4}")
                node.kc("stop", job)
                last = node.snapshots(job)[-1]["step"]
                if turn + 1 < len(layouts):
                    after = layouts[turn + 1]
                    change(node, job, after, 8 // after.get("data", 1) // after.get("expert", 1))
                    node.kc("resume", job)
            node.kc("snap", "verify", job)
            mine = node.snapshots(job)[-1]
            one = begin(node, f"{name}-one", model, 1, {}, 8, steps=last)
            node.kc("wait", one)
            got, wanted = losses(node, job, last), losses(node, one, last)
            assert sorted(got) == sorted(wanted) == list(range(1, last + 1)), (len(got), len(wanted), last)
            worst = max(abs(got[s] / wanted[s] - 1) for s in wanted)
            assert worst <= 1e-4, (name, worst)
            # a run on one rank begins from what the last layout wrote, with the same values
            still = node.train(f"{name}-still", 1, 0, steps=1, model=dict(model, init={"from": mine["path"]}), optimizer={"lr": 0},
                               batch={"sequences": 8, "micro": 8}, snapshot={"every": 1})
            assert snapshot(node.snapshots(still)[-1]["path"])[1][0] == snapshot(mine["path"])[1][0]


def leased(node, job):
    """Ranks of its record, ranks that have a process, leases that its keeper was given, copies that it holds."""
    keeper, copies = node.keeper(job), 0
    for fd in glob.glob(f"/proc/{keeper}/fd/*"):
        try:
            copies += f"kc-copy.{job}." in os.readlink(fd)
        except OSError:
            pass
    with open(f"/proc/{keeper}/cmdline") as f:
        words = f.read().split("\0")
    leases = words[words.index("--leases") + 1].count(";") + 1
    return node.read(job, "state.json")["ranks"], len(node.ranks(job)), leases, copies


def test_a_job_goes_on_on_another_number_of_ranks():
    turns = ((2, {"data": 2, "zero": 1}), (4, {"tensor": 2, "pipeline": 2}), (1, {}), (3, {"pipeline": 3}), (4, {"data": 4, "zero": 3}))
    with Kc() as node:
        job, last = begin(node, "ranks", MODELS["gpt2"], 2, turns[0][1], 4), 0
        for turn, (ranks, layout) in enumerate(turns):
            if turn:
                change(node, job, layout, 8 // layout.get("data", 1), ranks=ranks)
                node.kc("resume", job)
            node.kc("wait", job, "--for", f"step>={last + 4}")
            assert leased(node, job) == (ranks,) * 4, (ranks, leased(node, job))
            node.kc("stop", job)
            last = node.snapshots(job)[-1]["step"]
        one = begin(node, "ranks-one", MODELS["gpt2"], 1, {}, 8, steps=last)
        node.kc("wait", one)
        got, wanted = losses(node, job, last), losses(node, one, last)
        assert sorted(got) == sorted(wanted) == list(range(1, last + 1)), (len(got), len(wanted), last)
        assert max(abs(got[s] / wanted[s] - 1) for s in wanted) <= 1e-4
        # more than there are devices for is refused, and nothing has changed
        change(node, job, {"data": 4}, 2, ranks=4, oversubscribe=False, threads=os.cpu_count())
        assert f'asked for 4 ranks × {os.cpu_count()} cores' in node.kc("resume", job, ok=(9,)).stderr
        assert node.state(job) == "stopped"


def test_ranks_changed_under_a_running_job_are_not_taken_by_who_follows_its_keeper():
    with Kc() as node:
        job = begin(node, "under", MODELS["gpt2"], 2, {"data": 2}, 4, snapshot={"every": 2})
        node.kc("wait", job, "--for", "step>=6")
        change(node, job, {}, 8, ranks=1)
        kill(node.keeper(job))
        node.wait(job, "failed")
        text = node.kc("show", job).stdout
        assert "spec.json was changed from 2 ranks to 1 while they ran; kc resume goes on with 1" in text, text
        last = node.snapshots(job)[-1]["step"]
        node.kc("resume", job)
        node.wait(job, "running")
        assert leased(node, job) == (1,) * 4
        node.kc("wait", job, "--for", f"step>={last + 4}")
        node.kc("stop", job)


def test_what_is_frozen_keeps_its_bits_and_has_no_moments():
    frozen = ["*.wte.*", "*.wpe.*", "*.h.[01].*"]
    with Kc() as node:
        job = begin(node, "frozen", MODELS["gpt2"], 2, {"data": 2, "zero": 1}, 4, freeze=frozen, optimizer={"lr": 1e-2})
        node.kc("wait", job, "--for", "step>=4")
        node.kc("stop", job)
        before = snapshot(node.snapshots(job)[-1]["path"])[1]
        for layout in ({"tensor": 2}, {"pipeline": 2}, {"data": 2, "zero": 3}):
            change(node, job, layout, 8 // layout.get("data", 1))
            node.kc("resume", job)
            node.kc("wait", job, "--for", f"step>={node.snapshots(job)[-1]['step'] + 3}")
            node.kc("stop", job)
        node.kc("snap", "verify", job)
        after = snapshot(node.snapshots(job)[-1]["path"])[1]
        for name in before[0]:
            keeps = any(part in name for part in (".wte.", ".wpe.", ".h.0.", ".h.1."))
            assert (before[0][name] == after[0][name]) == keeps, name
            assert (any(after[1][name]), any(after[2][name])) == (not keeps, not keeps), name
        path = node.path(job, "spec.json")
        spec = json.load(open(path))
        spec["freeze"] = frozen[:2]
        with open(path, "w") as f:
            json.dump(spec, f)
        node.kc("resume", job, ok=(0, 1))
        node.wait(job, "failed")
        with open(node.path(job, "rank-0.log")) as f:
            assert "was frozen, and by the spec's freeze it is trained now" in f.read()


if __name__ == "__main__":
    main(globals())
