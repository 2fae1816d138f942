#!/usr/bin/env python3
"""Real training, through every layer: the numbers that PyTorch gave, the same losses in every layout, and the same bits
run after run, whatever happens in between."""
import json, os, signal, sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from kc_flow import alive, kill, main, until
from kc_train import GOLDEN, Kc, far, safetensors, snapshot

GPT2 = json.load(open(os.path.join(GOLDEN, "reference.json")))
KEY_BIAS = slice(32, 64)  # the key third of c_attn.bias: its true gradient is zero (golden README)


def compare(names, got, wanted, limit, special):
    for name in names:
        a, b = got[name], wanted[name]
        if name.endswith("c_attn.bias"):
            assert max(abs(x) if special == "gradient" else abs(x - y) for x, y in zip(a[KEY_BIAS], b[KEY_BIAS])) <= \
                (1e-7 if special == "gradient" else 2e-2), name
            a, b = list(a[:32]) + list(a[64:]), list(b[:32]) + list(b[64:])
        assert far(a, b) <= limit, (name, far(a, b))


def golden(node, ranks, zero, micro, folder=GOLDEN, reference=GPT2, **changes):
    job = node.train(f"g{ranks}{zero}{micro}", ranks, zero, batch={"micro": micro}, snapshot={"every": 20}, **changes)
    for line, step in zip((m for m in node.lines(job, "metrics.jsonl") if "loss" in m), reference["steps"]):
        assert line["step"] == step["step"]
        assert abs(line["loss"] / step["loss"] - 1) <= 1e-5, (line, step)
        assert abs(line["grad_norm"] / step["grad_norm"] - 1) <= 1e-4, (line, step)
        assert abs(line["lr"] / step["lr"] - 1) <= 1e-8, (line, step)
    assert len(node.metrics(job)) == 20
    manifest, (masters, first, second) = snapshot(node.snapshots(job)[-1]["path"])
    final = safetensors(os.path.join(folder, "final.safetensors"))
    compare(masters, masters, final, 1e-3, "final")
    assert len(masters) == len(final) and manifest["step"] == 20


def test_golden_run_in_every_layout():
    with Kc() as node:
        for ranks in (1, 2, 4):
            for zero in (0, 1):
                for accumulation in (1, 2):
                    golden(node, ranks, zero, 8 // ranks // accumulation)


def family(name):
    """The golden run of that name as changes of GPT-2's, and its numbers."""
    folder = os.path.join(os.path.dirname(GOLDEN), name)
    reference = json.load(open(os.path.join(folder, "reference.json")))
    a = reference["arguments"]
    model = {key: a[key] for key in ("family", "layers", "hidden", "heads", "kv_heads", "ffn", "context", "vocab", "tied")}
    model |= {"rope_theta": a["theta"], "init": {"from": os.path.join(folder, "model", "model.safetensors")}}
    if a["family"] == "moe":
        model |= {key: a[key] for key in ("experts", "top_k", "balance")}
    return dict(folder=folder, reference=reference, model=model, data={"train": os.path.join(folder, "train.bin")},
                optimizer={"lr": a["lr"], "clip": a["clip"]},
                lr_schedule={"kind": a["kind"], "warmup": a["warmup"], "floor": a["floor"]})


def test_golden_runs_of_the_other_families():
    for name, layouts in (("llama", ((1, 0, 8), (2, 0, 2), (2, 1, 4))), ("llama-tied", ((1, 0, 4), (2, 1, 4))),
                          ("moe", ((1, 0, 8), (2, 1, 4))), ("moe-balance", ((1, 0, 8), (2, 0, 4)))):
        with Kc() as node:
            for ranks, zero, micro in layouts:
                golden(node, ranks, zero, micro, **family(name))


def test_golden_runs_of_a_mixture_of_experts():
    for name, layouts in (("moe", ((1, 0, 8), (2, 1, 4))), ("moe-balance", ((1, 0, 4), (2, 0, 2)))):
        with Kc() as node:
            for ranks, zero, micro in layouts:
                golden(node, ranks, zero, micro, **family(name))


def test_llama_in_bf16_on_two_ranks():
    with Kc() as node:
        changes = family("llama")
        steps = changes.pop("reference")["steps"]
        del changes["folder"]
        losses = node.metrics(node.train("half", 2, 1, precision="bf16", **changes))
        assert all(abs(got / want["loss"] - 1) <= 0.02 for got, want in zip(losses, steps)) and len(losses) == 20, losses


def test_golden_first_gradients_in_every_layout():
    """Without clipping, the first moment after one step is (1 − β1) times the gradient."""
    wanted = safetensors(os.path.join(GOLDEN, "gradients.safetensors"))
    with Kc() as node:
        for ranks, zero in ((1, 0), (2, 0), (2, 1), (4, 1)):
            job = node.train(f"d{ranks}{zero}", ranks, zero, steps=1, optimizer={"clip": 0}, snapshot={"every": 1})
            moments = snapshot(node.snapshots(job)[-1]["path"])[1][1]
            compare(moments, {n: [x / 0.1 for x in v] for n, v in moments.items()}, wanted, 1e-4, "gradient")


def test_values_come_from_either_naming_and_from_a_snapshot():
    with Kc() as node:
        hub = node.train("hub", steps=2, model={"init": {"from": os.path.join(GOLDEN, "model-hub-names")}}, snapshot={"every": 2})
        prefixed = node.train("prefixed", steps=2, model={"init": {"from": os.path.join(GOLDEN, "model", "model.safetensors")}})
        assert node.root(hub) == node.root(prefixed)
        again = node.train("again", steps=1, optimizer={"lr": 0}, snapshot={"every": 1},
                           model={"init": {"from": node.snapshots(hub)[-1]["path"]}})
        assert snapshot(node.snapshots(again)[-1]["path"])[1][0] == snapshot(node.snapshots(hub)[-1]["path"])[1][0]


# the seeded model that the tests below train
SMALL = dict(steps=50, model={"init": {"from": None}}, data={"order": "shuffled"}, batch={"sequences": 16, "micro": 4})


def test_layouts_agree_over_50_steps():
    """F43, F44"""
    with Kc() as node:
        losses = {}
        for ranks, zero, micro in ((1, 0, 16), (1, 0, 4), (2, 0, 8), (2, 1, 2), (4, 0, 1), (4, 1, 4), (4, 1, 1)):
            job = node.train(f"l{ranks}{zero}{micro}", ranks, zero, **dict(SMALL, batch={"sequences": 16, "micro": micro}))
            losses[ranks, zero, micro] = node.metrics(job)
        reference = losses[1, 0, 16]
        assert reference[-1] < reference[0] - 0.2, "nothing was learned"
        for layout, values in losses.items():
            assert len(values) == 50
            worst = max(abs(a / b - 1) for a, b in zip(values, reference))
            assert worst <= 1e-4, (layout, worst)


def test_same_spec_same_bits():
    with Kc() as node:
        first = node.train("a", 2, 1, **SMALL)
        assert len(node.root(first)) == 32
        assert node.root(node.train("b", 2, 1, **SMALL)) == node.root(first)
        assert node.root(node.train("c", 2, 1, threads=2, **SMALL)) == node.root(first)
        assert node.metrics(first) == node.metrics("c-1")


def test_interruptions_change_no_bit():
    """F39, F40, F41: weights, schedule and data order are those of the run that was never stopped."""
    slow = dict(SMALL, steps=400)
    with Kc() as node:
        want = node.root(node.train("calm", 2, 1, **slow))

        job = node.begin("paused", 2, 1, **slow)
        node.kc("wait", job, "--for", "step>=40")
        node.kc("pause", job)
        held = node.steps(job)[-1]
        before = [open(f"/proc/{p}/stat").read().rsplit(")", 1)[1].split()[11:13] for p in node.ranks(job)]
        shown = node.json("show", job)["job"]
        assert shown["state"] == "paused" and {r["step"] for r in shown["ranks"]} == {held}, shown
        node.kc("checkpoint", job)
        assert node.snapshots(job)[-1]["step"] == held
        node.kc("resume", job)
        node.kc("wait", job)
        assert node.root(job) == want, "pause and resume"
        assert before

        job = node.begin("stopped", 2, 1, **slow)
        node.kc("wait", job, "--for", "step>=40")
        node.kc("stop", job)
        assert node.state(job) == "stopped" and node.snapshots(job)[-1]["step"] == node.result(job)["step"]
        node.kc("resume", job)
        node.kc("wait", job)
        assert node.root(job) == want, "stop and resume"
        assert node.steps(job) == list(range(1, 401)), "each step stands once"

        job = node.begin("killed", 2, 1, **dict(slow, snapshot={"every": 50}))
        node.kc("wait", job, "--for", "step>=70")
        kill(node.ranks(job)[1])
        node.kc("wait", job)
        assert node.read(job, "state.json")["restarts"] == 1
        assert node.root(job) == want, "a rank was killed"
        assert node.steps(job) == list(range(1, 401)), "each step stands once"

        job = node.begin("headless", 2, 1, **slow)
        node.kc("wait", job, "--for", "step>=40")
        node.kill_kcd()
        until("it trains on", lambda: node.steps(job)[-1] > 60)
        node.start_kcd()
        node.kc("wait", job)
        assert node.root(job) == want, "kcd was killed"

        job = node.begin("keeperless", 2, 1, **slow)
        node.kc("wait", job, "--for", "step>=40")
        kill(node.keeper(job))
        node.kc("wait", job)
        assert node.root(job) == want, "the keeper was killed"
        assert node.steps(job) == list(range(1, 401)), "each step stands once"


def test_a_signal_to_one_rank_stops_all_at_the_same_step():
    """F13"""
    with Kc() as node:
        job = node.begin("one", 2, 0, **dict(SMALL, steps=100000))
        node.kc("wait", job, "--for", "step>=10")
        os.kill(node.ranks(job)[1], signal.SIGTERM)
        record = node.wait(job)
        assert record["state"] == "stopped", record
        logs = [open(node.path(job, f"rank-{r}.log")).read() for r in (0, 1)]
        assert logs[0].splitlines()[-1] == logs[1].splitlines()[-1], logs


def test_a_stop_in_the_middle_of_a_product_harms_nothing():
    """A signal frame must not land in what a matrix product keeps behind its stack pointer."""
    with Kc() as node:
        for n in range(12):
            job = node.begin(f"s{n}", 2, 0, **dict(SMALL, steps=100000, model={"hidden": 128, "init": {"from": None}}))
            node.kc("wait", job, "--for", f"step>={3 + n}")
            node.kc("stop", job)
            assert node.state(job) == "stopped", node.result(job)


def test_a_damaged_snapshot_is_passed_over():
    """F32: the newest is broken, the one before is whole."""
    with Kc() as node:
        job = node.begin("d", 2, 1, **dict(SMALL, steps=100000, snapshot={"every": 20, "keep": 3}))
        node.kc("wait", job, "--for", "step>=45")
        node.kc("stop", job)
        newest, before = node.snapshots(job)[-1], node.snapshots(job)[-2]
        pack = os.path.join(newest["path"], "rank-1.pack")
        with open(pack, "r+b") as f:
            f.seek(5000)
            byte = f.read(1)
            f.seek(5000)
            f.write(bytes([byte[0] ^ 1]))
        verify = node.kc("snap", "verify", newest["path"], ok=(1, 9))
        assert "rank-1.pack" in verify.stdout + verify.stderr, verify
        node.kc("resume", job)
        node.kc("wait", job, "--for", f"step>={newest['step'] + 5}")
        assert node.read(job, "state.json")["incarnation"] >= 2
        node.kc("stop", job)
        assert node.steps(job) == list(range(1, node.steps(job)[-1] + 1)), "trained again from the one before"
        assert before["step"] < newest["step"]


def test_nonfinite_stops_or_skips_by_policy():
    """F46, F47: found, named, and never saved over a good snapshot."""
    with Kc() as node:
        bad = dict(SMALL, steps=60, optimizer={"lr": 1e5, "clip": 0}, lr_schedule={"warmup": 0, "kind": "constant"},
                   policy={"on_nonfinite": "stop"})
        job = node.begin("boom", 2, 0, **bad)
        node.kc("wait", job, ok=(1,))
        failure = node.result(job)["first_failure"]
        assert node.state(job) == "failed" and failure["reason"] == "nonfinite", failure
        assert node.read(job, "state.json")["restarts"] == 0


def test_a_rank_takes_what_check_said():
    """By Linux' own count of it (PSS: what is shared counts once), never more, nor less than its tensors."""
    with Kc() as node:
        for precision, threads in (("fp32", 1), ("bf16", 2)):
            wanted = dict(SMALL, steps=100000, precision=precision, threads=threads, model={"hidden": 128, "init": {"from": None}})
            told = node.json("check", node.write_spec("told", 2, 0, **wanted))["memory"]
            job = node.begin("memory", 2, 0, **wanted)
            node.kc("wait", job, "--for", "step>=5")
            for pid in node.ranks(job):
                with open(f"/proc/{pid}/smaps_rollup") as f:
                    pss = next(int(line.split()[1]) * 1024 for line in f if line.startswith("Pss:"))
                tensors = sum(told[part + "_bytes"] for part in ("parameters", "gradients", "moments", "masters", "work"))
                assert tensors <= pss <= told["rank_bytes"], (precision, threads, tensors, pss, told)
            node.kc("stop", job)


def test_lost_data_is_an_error_with_its_name():
    with Kc() as node:
        path = os.path.join(node.folder, "shrinks.bin")
        data = open(os.path.join(GOLDEN, "train.bin"), "rb").read()
        with open(path, "wb") as f:
            f.write(data)
        job = node.begin("shrinks", 2, 0, **dict(SMALL, steps=100000, data={"train": path}, policy={"on_crash": "stop"}))
        node.kc("wait", job, "--for", "step>=10")
        os.truncate(path, 2000)
        node.kc("wait", job, ok=(1,))
        failure = node.result(job)["first_failure"]
        assert failure["reason"] == "data" and "shrinks.bin" in failure["text"], failure


if __name__ == "__main__":
    main(globals())
