#!/usr/bin/env python3
"""The same training in every layout: losses and gradient norms of ten steps and the final state agree with one rank to 1e-4,
each parameter counted once, and a layout that runs twice gives the same bits. Models are tiny and odd: heads, MLP, vocabulary
and layers divide by nothing, so parts are uneven.

  tests/flow/test_layouts.py test_short      every axis, order and kind of sharding once (under 3 minutes on 2 cores)
  tests/flow/test_layouts.py test_all        the whole table; `make layouts`. KC_LAYOUTS=PATTERN: those whose line matches
  tests/flow/test_layouts.py test_random     models and layouts as they come
"""
import fnmatch, json, math, os, random, re, struct, sys, time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from kc_flow import kill, main
from kc_train import Kc, snapshot

LIMIT = 1e-4
STEPS = 10
ROWS = 24  # of a step: a multiple of what the layouts share them among

MODELS = {  # heads of gpt2 and moe, experts, layers, MLP and vocabulary are cut unevenly
    "gpt2": dict(family="gpt2", layers=5, hidden=24, heads=3, context=24, vocab=61),
    "llama": dict(family="llama", layers=5, hidden=36, heads=6, kv_heads=2, ffn=44, context=24, vocab=61),
    "tied": dict(family="llama", layers=3, hidden=30, heads=5, kv_heads=5, ffn=44, context=24, vocab=61, tied=True),
    "moe": dict(family="moe", layers=5, hidden=24, heads=3, kv_heads=1, ffn=20, context=24, vocab=61, experts=5, top_k=2,
                balance=0.01),
}
AXES = {"t": "tensor", "c": "context", "e": "expert", "d": "data", "p": "pipeline"}
NUMBERS = dict(AXES, z="zero", v="chunks", a="accumulate")
WORDS = {"seq": {"sequence": True}, "gpipe": {"pipeline_order": "gpipe"}, "interleaved": {"pipeline_order": "interleaved"},
         "zero-bubble": {"pipeline_order": "zero-bubble"}, "selective": {"recompute": "selective"}, "full": {"recompute": "full"},
         "masked": {}, "lora": {}}  # documents are told apart; adapters alone are trained
TARGETS = {"gpt2": ["*.c_*.weight"], "llama": ["*_proj.weight"], "moe": ["*_proj.weight"]}

# A line is a model and a layout: axes t, c, e, d, p with their sizes, z ZeRO, v chunks, a micro-batches of a rank; a star: it is
# in the short form.
TABLE = """
* gpt2  a3
* gpt2  d2
  llama d3 a2
  moe   d8
* gpt2  d2 z1
* llama d3 z2 a2
* gpt2  d2 z3 a2
  moe   d4 z2 a3
  moe   d2 z3
  tied  d2 z3
* gpt2  t2
  gpt2  t3
* llama t2
  llama t4
* moe   t2
* gpt2  t2 seq
  llama t2 seq a2
  moe   t2 seq
* gpt2  c2
  gpt2  c3
* llama c2 a2
  llama c4
* moe   c2
* llama c2 masked
  gpt2  t2 masked
* moe   e2
  moe   e3 a2
  moe   e4
* gpt2  e2
* gpt2  p2 a4
  gpt2  p3 a3
  llama p5 a4
* tied  p2 a2
  moe   p4 a2
  gpt2  p2 a1
* gpt2  p2 a3 gpipe
  llama p2 v2 a3 gpipe
* llama p2 v2 a3 interleaved
  moe   p2 v2 a4 interleaved
* gpt2  p2 a4 zero-bubble
  moe   p3 a6 zero-bubble
* llama p2 v2 a4 zero-bubble
  tied  p3 a2 zero-bubble
* llama d2 selective
  gpt2  a2 selective
* gpt2  d2 full
  moe   a2 full
  llama p2 a3 full
* llama t2 c2
* gpt2  t2 d2 z1
  moe   t2 e2
* gpt2  t2 p2 a2
  moe   c2 e2
  gpt2  c2 d2 z3
* llama c2 p2 a2
* moe   e2 d2 z1
  moe   e2 p2 a2
* llama d2 p2 a2 z2
  gpt2  d2 p2 a2 z1
  gpt2  d2 p2 a2 z3
  llama t2 d2 z2 seq
  gpt2  t2 d2 z3
  moe   e2 d2 z2 a2
  moe   e2 d2 z3
  llama t2 selective
  moe   e2 full
  llama c2 full
  gpt2  t2 c2 d2 z1 seq
* llama t2 d2 p2 a2 z1
  gpt2  t2 d2 p2 a3 z2 zero-bubble
  llama c2 d2 p2 a2 z3
  moe   t2 e2 d2 z1
* moe   e2 d2 p2 a2 z2
  moe   e2 d2 p2 v2 a3 interleaved z1
  llama t2 c2 p2 a2 selective seq
  moe   c2 e2 p2 a2 gpipe
  moe   t2 c2 e2
  moe   t2 e2 p2 a2 zero-bubble full
  llama t4 d2 z1 seq
  gpt2  t2 p2 v2 a3 interleaved d2 full z3
* gpt2  t2 d2 z1 lora
  gpt2  t3 lora
  gpt2  t2 seq lora
* gpt2  p2 a2 lora
  gpt2  c2 lora masked
* llama t2 seq lora
  llama t4 lora
  llama d2 z3 a2 lora
* llama c2 d2 lora selective
  llama p2 v2 a4 zero-bubble lora
  tied  d2 p2 a2 z2 lora
* moe   e2 lora
  moe   t2 e2 p2 a2 full lora
"""


def layouts(starred):
    rows = [line for line in TABLE.splitlines() if line.strip()]
    wanted = os.environ.get("KC_LAYOUTS", "*")
    return [" ".join(row[1:].split()) for row in rows if (row[0] == "*" or not starred) and
            fnmatch.fnmatch(" ".join(row[1:].split()), wanted)]


def read_layout(line):
    """(model, words of the run, parallel of the spec, ranks, rows of a micro-batch)."""
    model, *parts = line.split()
    parallel, accumulate = {}, 1
    for part in parts:
        if part in WORDS:
            parallel.update(WORDS[part])
        elif part[0] == "a":
            accumulate = int(part[1:])
        else:
            parallel[NUMBERS[part[0]]] = int(part[1:])
    ranks = math.prod(parallel.get(axis, 1) for axis in AXES.values())
    batch = parallel.get("data", 1) * parallel.get("expert", 1) * accumulate
    assert ROWS % batch == 0, line
    return model, [w for w in ("masked", "lora") if w in parts], parallel, ranks, ROWS // batch


def write_tokens(path):
    """A language with something to learn: small numbers are frequent, and often the next one follows from the last."""
    draw, tokens = random.Random(20261130), [3]
    while len(tokens) < 24 * ROWS * STEPS + 1:
        tokens.append(int(61 * draw.random() ** 4) if draw.random() < 0.6 else (7 * tokens[-1] + 1) % 61)
    with open(path, "wb") as f:
        f.write(struct.pack("<256i", 20240520, 1, len(tokens), *([0] * 253)) + struct.pack(f"<{len(tokens)}H", *tokens))


class Runs:
    """Runs of one node, and the run on one rank that each is compared with."""

    def __init__(self, node, lr=5e-3, learns=0.3):
        self.node, self.alone, self.lr, self.learns = node, {}, lr, learns
        self.tokens = os.path.join(node.folder, "tokens.bin")
        write_tokens(self.tokens)

    def spec(self, line, **changes):
        model, words, parallel, ranks, micro = read_layout(line)
        data = {"train": self.tokens, "order": "sequential"}
        if "masked" in words:
            data |= {"documents": "masked", "end_of_text": 0}
        spec = {"name": "layout", "ranks": ranks, "steps": STEPS, "threads": 1, "oversubscribe": True, "seed": 8,
                "model": MODELS[model], "data": data, "batch": {"sequences": ROWS, "micro": micro},
                # eps: where a gradient is nothing but rounding, its size must stay nothing (the bias of a key has none)
                "optimizer": {"lr": self.lr, "eps": 1e-3, "clip": 0.5}, "lr_schedule": {"kind": "cosine", "warmup": 2},
                "parallel": parallel, "snapshot": {"every": STEPS, "keep": 1}, "policy": {"on_crash": "stop"}}
        if "lora" in words:
            spec |= {"lora": {"rank": 3, "alpha": 6, "targets": TARGETS[MODELS[model]["family"]]}}
        spec |= changes
        path = os.path.join(self.node.folder, "layout.json")
        with open(path, "w") as f:
            json.dump(spec, f)
        return path

    def refused(self, line):
        """Why there is no plan for it, or None."""
        done = self.node.kc("check", self.spec(line), ok=(0, 9))
        return None if done.returncode == 0 else done.stderr.strip().split("layout.json: ")[-1]

    def run(self, line):
        job = self.node.kc("start", self.spec(line)).stdout.strip()
        done = self.node.kc("wait", job, ok=(0, 1))
        failure = (self.node.read(job, "result.json") or {}).get("first_failure") or {"text": done.stdout + done.stderr}
        assert done.returncode == 0, failure["text"]
        manifest, values = snapshot(self.node.snapshots(job)[-1]["path"])
        figures = [(m["loss"], m["grad_norm"], m["tokens"]) for m in self.node.lines(job, "metrics.jsonl") if "loss" in m]
        assert len(figures) == STEPS, len(figures)
        root = self.node.root(job)
        self.node.kc("rm", job)
        return figures, manifest, values, root

    def reference(self, line):
        model, words = read_layout(line)[:2]
        alone = " ".join([model, "a1", *words])
        if alone not in self.alone:
            run = self.run(alone)
            learns = (self.learns / 10 or -1) if "lora" in words else self.learns  # beside random weights, which stay
            assert run[0][-1][0] < run[0][0][0] - learns, f"{alone} on one rank learns nothing: {run[0]}"
            self.alone[alone] = run
        return self.alone[alone]

    def compare(self, line):
        """How far it is from one rank: the largest relative difference of a figure, of a state; and its root."""
        figures, manifest, values, root = self.run(line)
        want, whole, state, _ = self.reference(line)
        assert [f[2] for f in figures] == [f[2] for f in want], "tokens of the steps differ"
        assert {t["name"]: t["shape"] for t in manifest["tensors"]} == {t["name"]: t["shape"] for t in whole["tensors"]}
        far = [max(abs(a / b - 1) for a, b in zip(got[:2], one[:2])) for got, one in zip(figures, want)]
        figure, first = max(far), next((i for i, f in enumerate(far) if f > LIMIT), 0)
        worst = max((distance(values[kind][name], one), f"{kind} of {name}") for kind in range(len(state))
                    for name, one in state[kind].items())
        assert figure <= LIMIT, (f"loss and norm of step {first + 1} are {figures[first][:2]}, on one rank {want[first][:2]}; "
                                 f"of the last step {figures[-1][:2]} and {want[-1][:2]}")
        assert worst[0] <= LIMIT, f"the {worst[1]} differs by {worst[0]:.2g} after {STEPS} steps"
        return figure, worst[0], root


def distance(a, b):
    """Of two tensors, relative: |a − b| / |b|, both as root of sums of squares; what is all zero must be so."""
    assert len(a) == len(b)
    norm = math.sqrt(sum(y * y for y in b))
    return math.sqrt(sum((x - y) ** 2 for x, y in zip(a, b))) / norm if norm else float(any(a))


def run_table(lines, twice):
    """Every line, and again those of `twice`; all are looked at before one of them is a failure."""
    failed, refused, begin = [], [], time.monotonic()
    with Kc() as node:
        runs = Runs(node)
        for line in lines:
            why = runs.refused(line)
            if why:
                refused.append(line)
                print(f"not run {line}: {why}", flush=True)
                continue
            try:
                figure, state, root = runs.compare(line)
                if line in twice:
                    assert runs.run(line)[3] == root, "run again, it ends with other bits"
                print(f"same    {line}  figures {figure:.1e}, state {state:.1e}{', twice' if line in twice else ''}", flush=True)
            except Exception as e:
                failed.append(line)
                print(f"DIFFERS {line}: {str(e)[:2000] or repr(e)}", flush=True)
    print(f"{len(lines) - len(refused)} of {len(lines)} layouts ran in {time.monotonic() - begin:.0f} s, {len(failed)} failed")
    assert not failed and not refused, failed + refused


def test_the_table_is_what_it_says():
    """At least 40 layouts on up to 8 ranks: every axis alone, every pair, triples, every order, ZeRO 0 to 3, recompute."""
    lines = layouts(False) if "KC_LAYOUTS" not in os.environ else []
    if not lines:
        return
    used = [frozenset(k for k in AXES if read_layout(line)[2].get(AXES[k], 1) > 1) for line in lines]
    assert len(lines) == len(set(lines)) >= 40 and all(read_layout(line)[3] <= 8 for line in lines)
    for a in AXES:
        assert {a} in used, a
        for b in AXES:
            assert a == b or {a, b} in used, (a, b)
    assert sum(len(u) == 3 for u in used) >= 7
    for word in WORDS:
        assert any(word in line.split() for line in lines), word
    for zero in range(1, 4):
        assert any(f"z{zero}" in line.split() for line in lines)


def test_ranks_take_what_was_planned():
    """State, executor and window of every rank are to the byte what kc plan says of it, stage by stage."""
    with Kc() as node:
        runs = Runs(node)
        path = runs.spec("gpt2 t2 d2 p2 a2 z1", steps=10**6, snapshot={"every": 0})
        rows = {rank: row for row in node.json("plan", path)["memory"] for rank in row["ranks"]}
        assert len(rows) == 8 and rows[0]["executor_bytes"] != rows[7]["executor_bytes"]  # the first stage and the last
        job = node.kc("start", path).stdout.strip()
        node.kc("wait", job, "--for", "step>=1")
        figures = {}
        for line in node.kc("metrics", job).stdout.splitlines():
            found = re.match(r'kc_(?:rank_)?(state|work|window)_bytes\{.*rank="(\d+)".*\} (\S+)', line)
            if found:
                figures[int(found[2]), found[1]] = float(found[3])
        for rank, row in rows.items():
            assert figures[rank, "state"] == row["state_bytes"], (rank, figures, row)
            assert figures[rank, "work"] == row["executor_bytes"], (rank, figures, row)
            assert figures[rank, "window"] == row["parameters_bytes"] + row["gradients_bytes"] + row["windows_bytes"], (rank, row)
        node.kc("stop", job)


def test_interruptions_change_no_bit():
    """Ranks of a layout are killed, the job is paused and saved: it ends with the bits of a run that nothing happened to."""
    with Kc() as node:
        runs = Runs(node)
        path = runs.spec("moe e2 d2 p2 a2 z3 zero-bubble", steps=80, snapshot={"every": 10}, policy={"on_crash": "restart"})
        calm, torn = (node.kc("start", path).stdout.strip() for _ in range(2))
        for step, rank in ((15, 3), (45, 6)):
            node.wait_step(torn, step)
            kill(node.ranks(torn)[rank])
            node.wait_step(torn, step + 12)
        for verb in ("pause", "checkpoint", "resume"):
            node.kc(verb, torn)
        for job in (calm, torn):
            node.kc("wait", job)
        assert node.read(torn, "state.json")["restarts"] == 2 and node.root(torn) == node.root(calm)


def random_layout(draw, model):
    """A line of any layout on up to 8 ranks; it may ask for what cannot be."""
    while True:
        axis = {a: 1 for a in AXES} | {a: draw.choice((2, 2, 2, 3, 4, 5)) for a in draw.sample(sorted(AXES), draw.choice((1, 2, 2, 3)))}
        rows = axis["d"] * axis["e"]
        if 1 < math.prod(axis.values()) <= 8 and ROWS % rows == 0:
            break
    parts = [model] + [a + str(n) for a, n in axis.items() if n > 1]
    parts += ["a%d" % draw.choice([n for n in range(1, ROWS + 1) if ROWS % (rows * n) == 0]), "z%d" % draw.randrange(4)]
    parts += draw.choice(([], [], ["selective"], ["full"])) + draw.choice(([], [], [], ["masked"])) + draw.choice(([], [], [], ["lora"]))
    if axis["t"] > 1:
        parts += draw.choice(([], ["seq"]))
    if axis["p"] > 1:
        parts += draw.choice(([], ["gpipe"], ["gpipe", "v2"], ["interleaved", "v2"], ["interleaved", "v3"], ["zero-bubble"],
                              ["zero-bubble", "v2"]))
    return " ".join(parts)


def random_model(draw):
    heads = draw.choice((1, 2, 3, 4, 5, 6, 8))
    model = dict(family=draw.choice(("gpt2", "llama", "moe")), layers=draw.choice((1, 2, 3, 4, 5, 7)), heads=heads,
                 hidden=heads * draw.choice((2, 4, 6, 8)), context=24, vocab=61)
    if model["family"] != "gpt2":
        model |= dict(kv_heads=draw.choice([n for n in range(1, heads + 1) if heads % n == 0]), ffn=draw.choice((8, 13, 20, 44)))
    if model["family"] == "llama":
        model["tied"] = draw.random() < 0.5
    if model["family"] == "moe":
        model |= dict(experts=draw.choice((2, 3, 5, 8)), top_k=draw.choice((1, 2)), balance=draw.choice((0.0, 0.01)))
    return model


def test_random():
    """Models and layouts as they come, for KC_SECONDS (60) from KC_SEED (1): what is not refused in a line agrees with one rank."""
    seed, end = int(os.environ.get("KC_SEED", "1")), time.monotonic() + float(os.environ.get("KC_SECONDS", "60"))
    draw, failed, ran, refused = random.Random(seed), [], 0, 0
    with Kc() as node:
        runs = Runs(node, lr=1e-3, learns=0)
        while time.monotonic() < end:
            name = f"model{len(MODELS)}"
            MODELS[name] = random_model(draw)
            for line in (random_layout(draw, name) for _ in range(3)):
                try:
                    if runs.refused(line):
                        refused += 1
                        continue
                    runs.compare(line)
                    ran += 1
                except Exception as e:
                    failed.append(line)
                    print(f"DIFFERS {line} of {MODELS[name]}: {str(e)[:1000] or repr(e)}", flush=True)
    print(f"seed {seed}: {ran} layouts agree, {refused} were refused, {len(failed)} failed")
    assert not failed, failed


def test_short():
    lines = layouts(True)
    run_table(lines, lines[1::4])


def test_all():
    lines = layouts(False)
    run_table(lines, lines)


if __name__ == "__main__":
    names = globals()
    if len(sys.argv) == 1:  # as part of the whole suite
        sys.argv += ["test_the_table_is_what_it_says", "test_ranks_take_what_was_planned",
                     "test_interruptions_change_no_bit", "test_short"]
    main(names)
