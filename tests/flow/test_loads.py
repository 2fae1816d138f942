#!/usr/bin/env python3
"""How the tokens of a step are spread over experts, as people see it: kc show, kc metrics and metrics.jsonl of real jobs on one,
two and four ranks say the same. Every step has the same tokens and changes next to nothing, so that any step will do."""
import json, os, random, re, struct, sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from kc_flow import main
from kc_train import Kc

ROWS, CONTEXT, LAYERS, EXPERTS, TOP_K = 8, 24, 3, 5, 2
MODEL = dict(family="moe", layers=LAYERS, hidden=24, heads=2, kv_heads=2, ffn=20, context=CONTEXT, vocab=61, experts=EXPERTS,
             top_k=TOP_K)
LAYOUTS = {1: {}, 2: {"expert": 2}, 4: {"expert": 2, "tensor": 2}}


def spec(node, ranks, model=MODEL, **changes):
    tokens = os.path.join(node.folder, "tokens.bin")
    draw = random.Random(5)
    with open(tokens, "wb") as f:  # as many as a step takes, and the target of the last
        f.write(struct.pack("<256i", 20240520, 1, CONTEXT * ROWS + 1, *([0] * 253)))
        f.write(struct.pack(f"<{CONTEXT * ROWS + 1}H", *(int(61 * draw.random() ** 3) for _ in range(CONTEXT * ROWS + 1))))
    parallel = LAYOUTS[ranks] if model is MODEL else {"data": ranks}
    path = os.path.join(node.folder, f"loads-{ranks}.json")
    with open(path, "w") as f:
        json.dump({"name": f"loads-{ranks}", "ranks": ranks, "steps": 1000000, "threads": 1, "oversubscribe": True, "seed": 3,
                   "model": model, "data": {"train": tokens, "order": "sequential"}, "batch": {"sequences": ROWS, "micro": 2},
                   "optimizer": {"lr": 1e-12}, "lr_schedule": {"kind": "constant"}, "parallel": parallel, **changes}, f)
    return path


def test_rows_that_do_not_fit_are_told_by_name():
    """Of 5 experts a rank has 3: 1228 of 2048 rows, of which a MiB holds 1024."""
    model = dict(MODEL, hidden=256, context=64, layers=1)
    with Kc() as node:
        path = spec(node, 2, model, parallel={"expert": 2, "expert_memory": 1}, batch={"sequences": 16, "micro": 8})
        job = node.kc("start", path).stdout.strip()
        said = node.kc("wait", job, ok=(1,)).stderr
        assert re.search(r"rank \d sends \d+ and receives \d+ rows of layers\.0\.\S+, there is memory for 1024: "
                         r"parallel\.expert_memory = 1 MiB; raise it", said), said
        assert node.read(job, "result.json")["state"] == "failed"


def held(node, path):
    """A job that has trained some steps and stands still."""
    job = node.kc("start", path).stdout.strip()
    node.kc("wait", job, "--for", "step>=2")
    node.kc("pause", job)
    return job


def test_every_layout_shows_the_same():
    seen = []
    with Kc() as node:
        for ranks in LAYOUTS:
            job = held(node, spec(node, ranks))
            shown = node.json("show", job)["job"]
            experts, line = shown["experts"], node.kc("show", job).stdout
            choices = experts["choices"]
            assert [len(row) for row in choices] == [EXPERTS] * LAYERS, choices
            assert all(sum(row) == ROWS * CONTEXT * TOP_K for row in choices), choices
            assert experts["step"] == shown["step"]
            uneven = [max(row) * EXPERTS / sum(row) for row in choices]
            assert abs(experts["imbalance"] - max(uneven)) < 1e-6 and experts["layer"] == uneven.index(max(uneven))
            assert f"\nexperts     worst layer {experts['layer']}: expert " in line, line
            for rank in node.json("metrics", job)["jobs"][0]["ranks"]:
                assert abs(rank["expert_imbalance"] - max(uneven)) < 1e-6, rank
            assert "kc_expert_imbalance" in node.kc("metrics", job).stdout
            figures = node.metrics(job, "expert_imbalance")
            assert figures and all(abs(f - max(uneven)) < 1e-6 for f in figures), (figures, uneven)
            seen.append(choices)
            node.kc("stop", job)
            node.kc("wait", job, ok=(0, 1))
        # layers that backward does not come to are counted as well
        job = held(node, spec(node, 2, freeze=["model.embed_tokens.*", "model.layers.[01].*"]))
        seen.append(node.json("show", job)["job"]["experts"]["choices"])
    assert all(one == seen[0] for one in seen), seen


def test_a_model_without_experts_says_nothing():
    with Kc() as node:
        model = {k: v for k, v in MODEL.items() if k not in ("experts", "top_k")} | {"family": "llama"}
        job = held(node, spec(node, 2, model))
        assert node.json("show", job)["job"]["experts"] is None
        assert "experts" not in node.kc("show", job).stdout
        assert all(rank["expert_imbalance"] is None for rank in node.json("metrics", job)["jobs"][0]["ranks"])
        assert not node.metrics(job, "expert_imbalance")


if __name__ == "__main__":
    main(globals())
