#!/usr/bin/env python3
"""bf16 and fp32, side by side: a small model on real text learns as much in either, and a bf16 run has the same bits run
after run, also when a rank is killed in between."""
import json, os, struct, sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from kc_flow import ROOT, kill, main
from kc_train import GOLDEN, Kc, snapshot

STEPS = 150


def text(node):
    """Real text, of this repository: its pages. The folder of token files."""
    out = os.path.join(node.folder, "text")
    pages = [os.path.join(ROOT, name) for name in ("README.md", "ARCHITECTURE.md")]
    pages += sorted(os.path.join(ROOT, "man", name) for name in os.listdir(os.path.join(ROOT, "man"))
                    if name[-2:-1] == ".")
    node.kc("data", "prepare", "--out", out, "--validation=0.1", *pages)
    return out


def spec(folder, precision, **changes):
    """The quickstart, four times narrower."""
    out = dict(precision=precision, steps=STEPS, model={"layers": 4, "hidden": 64, "context": 64, "init": {"from": None}},
               data={"train": os.path.join(folder, "train.bin"), "validation": os.path.join(folder, "val.bin"),
                     "order": "shuffled"},
               batch={"sequences": 16, "micro": 4}, optimizer={"lr": 1e-3}, lr_schedule={"kind": "cosine", "warmup": 20},
               evaluate={"every": STEPS, "batches": 4}, snapshot={"every": 50})
    out.update(changes)
    return out


def is_bf16(x):
    return struct.unpack("<I", struct.pack("<f", x))[0] & 0xffff == 0


def test_bf16_learns_what_fp32_learns():
    with Kc() as node:
        folder = text(node)
        full = node.train("full", 2, 1, **spec(folder, "fp32"))
        half = node.train("half", 2, 1, **spec(folder, "bf16"))
        for key in ("loss", "validation_loss"):
            a, b = node.result(half)[key], node.result(full)[key]
            assert abs(a / b - 1) <= 0.02, (key, a, b)
        losses = node.metrics(half)
        assert len(losses) == STEPS and losses[-1] < 0.8 * losses[0], "something was learned"
        assert losses != node.metrics(full), "it was another arithmetic"
        assert "context 64, bf16\n" in node.kc("show", half).stdout

        # masters are saved as fp32: not all of them are bf16 numbers, and either precision may begin from them
        saved = node.snapshots(half)[-1]["path"]
        manifest, values = snapshot(saved)
        assert manifest["precision"] == "bf16" and all(t["type"] == "f32" for t in manifest["tensors"])
        weights = values[0]["transformer.h.0.mlp.c_fc.weight"]
        assert sum(not is_bf16(x) for x in weights) > len(weights) / 2
        node.kc("snap", "verify", half)
        for precision in ("fp32", "bf16"):
            again = node.train("again", 1, 0, **spec(folder, precision, steps=1, optimizer={"lr": 0}, snapshot={"every": 1},
                                                     model={"layers": 4, "hidden": 64, "context": 64, "init": {"from": saved}}))
            assert snapshot(node.snapshots(again)[-1]["path"])[1][0] == values[0], precision
        assert len(node.json("sample", half, "--prompt", "The ", "--tokens", "40", "--seed", "1")["text"]) >= 40


def test_bf16_follows_pytorchs_losses():
    """The golden run is PyTorch's in fp32. bf16 has 8 bits: losses and norms stay near, step by step, in every layout."""
    reference = json.load(open(os.path.join(GOLDEN, "reference.json")))["steps"]
    with Kc() as node:
        for ranks, zero in ((1, 0), (2, 1), (4, 1)):
            job = node.train(f"golden{ranks}", ranks, zero, precision="bf16")
            for key, limit in (("loss", 0.005), ("grad_norm", 0.05)):
                far = [abs(a / step[key] - 1) for a, step in zip(node.metrics(job, key), reference)]
                assert len(far) == 20 and max(far) <= limit, (ranks, key, far)


def test_bf16_has_the_same_bits_whatever_happens():
    with Kc() as node:
        folder = text(node)
        calm = node.train("calm", 2, 1, **spec(folder, "bf16"))
        want = node.root(calm)
        for ranks, zero, threads in ((2, 1, 2), (2, 0, 1)):
            job = node.train("again", ranks, zero, **spec(folder, "bf16", threads=threads))
            assert node.root(job) == want, (ranks, zero, threads)
        job = node.begin("killed", 2, 1, **spec(folder, "bf16"))
        node.kc("wait", job, "--for", "step>=70")
        kill(node.ranks(job)[1])
        node.kc("wait", job)
        assert node.read(job, "state.json")["restarts"] == 1
        assert node.root(job) == want, "a rank was killed"
        assert node.metrics(job) == node.metrics(calm)


def test_a_job_goes_on_in_another_precision():
    """There and back again: masters are in every snapshot, so nothing is lost. That bits will change is told once."""
    with Kc() as node:
        folder = text(node)
        job = node.begin("changed", 2, 1, **spec(folder, "bf16", steps=100000))
        path, last, step = node.path(job, "spec.json"), "bf16", 20
        for precision in ("fp32", "bf16"):
            node.kc("wait", job, "--for", f"step>={step}")
            node.kc("stop", job)
            saved = node.snapshots(job)[-1]
            stored = open(path).read()
            assert stored.count(f'"{last}"') == 1
            with open(path, "w") as f:
                f.write(stored.replace(f'"{last}"', f'"{precision}"'))
            node.kc("resume", job)
            step = saved["step"] + 20
            node.kc("wait", job, "--for", f"step>={step}")
            told = [e["text"] for e in node.events(job, "bits")]
            assert told[-1] == f"written in {last}, this run is in {precision}: bits will change", told
            assert f"context 64, {precision}\n" in node.kc("show", job).stdout
            last = precision
        assert len(told) == 2, told
        node.kc("stop", job)
        assert snapshot(node.snapshots(job)[-1]["path"])[0]["precision"] == "bf16"
        losses = node.metrics(job)
        assert len(losses) >= 60 and max(losses[20:]) < losses[0], "it went on from what it had learned"


if __name__ == "__main__":
    main(globals())
