#!/usr/bin/env python3
"""Steps that are not finite: the run goes back to a snapshot, leaves the batch out and goes on, with the same bits every time.

The values of the model make one token poison: it alone has a number in the last dimension of its embedding, and what queries
and keys make of that dimension is too large for their product. What is so made is frozen, so no training mends it."""
import json, os, random, struct, sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from kc_flow import kill, main, until
from kc_train import Kc

HIDDEN, HEADS, FFN, CONTEXT, VOCAB, POISON = 32, 4, 44, 16, 64, 63
SEQUENCES = 8


def write_model(path, poison=1.0):
    draw = random.Random(1)
    shapes = {"model.embed_tokens.weight": (VOCAB, HIDDEN), "lm_head.weight": (VOCAB, HIDDEN), "model.norm.weight": (HIDDEN,)}
    for name, shape in {"self_attn.q_proj": (HIDDEN, HIDDEN), "self_attn.k_proj": (HIDDEN, HIDDEN),
                        "self_attn.v_proj": (HIDDEN, HIDDEN), "self_attn.o_proj": (HIDDEN, HIDDEN), "mlp.gate_proj": (FFN, HIDDEN),
                        "mlp.up_proj": (FFN, HIDDEN), "mlp.down_proj": (HIDDEN, FFN), "input_layernorm": (HIDDEN,),
                        "post_attention_layernorm": (HIDDEN,)}.items():
        shapes[f"model.layers.0.{name}.weight"] = shape
    header, body = {}, b""
    for name, shape in shapes.items():
        rows, last = (shape[0], shape[-1]) if len(shape) == 2 else (1, shape[0])
        values = [[1.0] * last if len(shape) == 1 else [draw.gauss(0, 0.02) for _ in range(last)] for _ in range(rows)]
        for r, row in enumerate(values):
            if "embed" in name:
                row[-1] = poison if r == POISON else 0.0
            elif "q_proj" in name or "k_proj" in name:
                row[-1] = 1e30
        data = struct.pack(f"<{rows * last}f", *(v for row in values for v in row))
        header[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": [len(body), len(body) + len(data)]}
        body += data
    text = json.dumps(header).encode()
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + body)


def write_tokens(path, steps, poisoned):
    """`poisoned`: steps whose batch has the token, in file order."""
    draw = random.Random(2)
    tokens = [draw.randrange(POISON) for _ in range(steps * SEQUENCES * CONTEXT + 1)]
    for step in poisoned:
        tokens[((step - 1) * SEQUENCES + 3) * CONTEXT + 5] = POISON
    with open(path, "wb") as f:
        f.write(struct.pack("<3i", 20240520, 1, len(tokens)) + bytes(1012) + struct.pack(f"<{len(tokens)}H", *tokens))


def begin(node, name, poisoned, **changes):
    model, data = os.path.join(node.folder, "model.safetensors"), os.path.join(node.folder, f"{name}.bin")
    if not os.path.exists(model):
        write_model(model)
    write_tokens(data, 1000, poisoned)
    spec = {"model": {"family": "llama", "layers": 1, "hidden": HIDDEN, "heads": HEADS, "ffn": FFN, "context": CONTEXT,
                      "vocab": VOCAB, "init": {"from": model}},
            "data": {"train": data}, "batch": {"sequences": SEQUENCES, "micro": 4}, "steps": 30,
            "freeze": ["*embed_tokens*", "*q_proj*", "*k_proj*", "*input_layernorm*"],
            "snapshot": {"every": 5, "busy": "wait", "keep": 100}, "policy": {"on_nonfinite": "rollback"}}
    spec.update(changes)
    return node.begin(name, 2, 1, **spec)


def newest(node, job):
    with open(os.path.join(node.snapshots(job)[-1]["path"], "MANIFEST.json")) as f:
        return json.load(f)["manifest"]


def test_a_batch_that_is_not_finite_is_left_out():
    with Kc() as node:
        job = begin(node, "back", [12])
        node.kc("wait", job)
        rolled = [e for e in node.events(job, "rollback") if e["rank"] == 0]
        assert len(rolled) == 1 and rolled[0]["step"] == 10 and rolled[0]["version"] == 2, rolled
        assert "step 12 was not finite" in rolled[0]["text"], rolled
        assert {e["step"] for e in node.events(job, "nonfinite")} == {12}
        assert node.steps(job) == list(range(1, 31)) and all(0 < loss < 10 for loss in node.metrics(job)), "each step once"
        m = newest(node, job)
        assert (m["step"], m["rollbacks"], m["skipped"], m["position"]) == (30, 1, 16, 30 * SEQUENCES + 16), m
        root = node.root(job)

        again = begin(node, "again", [12])
        node.kc("wait", again)
        assert node.root(again) == root and node.metrics(again) == node.metrics(job), "the same bits"

        killed = begin(node, "killed", [12], steps=30)
        until("it went back", lambda: node.events(killed, "rollback"))
        kill(node.ranks(killed)[1])
        node.kc("wait", killed)
        assert node.read(killed, "state.json")["restarts"] == 1
        assert node.root(killed) == root, "killed after it went back"
        assert node.steps(killed) == list(range(1, 31))

        assert "rollbacks" not in node.kc("show", job).stdout, "what it was while it ran stands in events.jsonl"
        held = begin(node, "held", [12], steps=1000)
        node.kc("wait", held, "--for", "step>=20")
        shown = node.json("show", held)["job"]["saving"]
        assert (shown["rollbacks"], shown["skipped_samples"], shown["left_out"]) == (1, 16, 0), shown
        assert "rollbacks   1, by which 16 samples are left out" in node.kc("show", held).stdout
        node.kc("stop", held)

        stopped = begin(node, "stopped", [12], steps=30)
        until("it went back", lambda: node.events(stopped, "rollback"))
        node.kc("stop", stopped, ok=(0, 3))
        if node.state(stopped) == "stopped":
            assert node.steps(stopped)[-1] == node.result(stopped)["step"] == newest(node, stopped)["step"]
            assert newest(node, stopped)["rollbacks"] == 1
            node.kc("resume", stopped)
        node.kc("wait", stopped)
        assert node.root(stopped) == root, "stopped after it went back"


def test_before_the_first_snapshot_it_begins_anew():
    with Kc() as node:
        job = begin(node, "early", [3])
        node.kc("wait", job)
        assert [e["step"] for e in node.events(job, "rollback") if e["rank"] == 0] == [0]
        m = newest(node, job)
        assert (m["step"], m["rollbacks"], m["skipped"]) == (30, 1, 3 * SEQUENCES), m
        assert node.steps(job) == list(range(1, 31))


def test_after_so_many_times_the_job_fails():
    with Kc() as node:
        job = begin(node, "enough", range(12, 100), policy={"on_nonfinite": "rollback", "max_rollbacks": 2})
        node.kc("wait", job, ok=(1,))
        failure = node.result(job)["first_failure"]
        assert node.state(job) == "failed" and failure["reason"] == "nonfinite", failure
        words = ("step 11: rank 0: grouped-attention of layer 0 made NaN of finite values in micro-batch 0, in layers.0.attention at [",
                 "went back 2 times", "policy.max_rollbacks", "samples 104 to 111")
        assert all(w in failure["text"] for w in words) and "\n" not in failure["text"], failure
        assert len([e for e in node.events(job, "rollback") if e["rank"] == 0]) == 2
        assert node.read(job, "state.json")["restarts"] == 0
        assert newest(node, job)["step"] == 10, "nothing was saved over the good ones"


def test_a_state_that_is_not_finite_is_kept_aside():
    """F46: no snapshot of it, and the end says so; what is kept is listed, whole, and restored by nobody."""
    with Kc() as node:
        write_model(os.path.join(node.folder, "model.safetensors"), poison=float("inf"))
        job = begin(node, "aside", [], steps=10, snapshot={"every": 5, "busy": "wait", "keep_nonfinite": True})
        node.kc("wait", job, ok=(1,))
        assert node.state(job) == "finished" and node.result(job)["exit_code"] == 1
        failed = [e for e in node.events(job, "snapshot-failed") if e["rank"] == 0]
        assert [e["step"] for e in failed] == [5, 10] and "kept as nonfinite.v00000002" in failed[1]["text"], failed
        listed = node.json("snap", "ls", job)
        assert listed["snapshots"] == [] and listed["nonfinite"]["step"] == 10 and listed["nonfinite"]["version"] == 2, listed
        path = listed["nonfinite"]["path"]
        assert os.listdir(os.path.dirname(path)).count("nonfinite.v00000002") == 1, os.listdir(os.path.dirname(path))
        assert "aside" in node.kc("snap", "ls", job).stdout
        node.kc("snap", "verify", path, "--deep")
        assert "embed_tokens" in node.kc("snap", "show", path).stdout


if __name__ == "__main__":
    main(globals())
