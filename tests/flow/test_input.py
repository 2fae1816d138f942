#!/usr/bin/env python3
"""Bad input, through the programs that a person types: one line on stderr with the full path of the fields, the numbers and
the next step; the documented exit code; and nothing was started: no job, no process, no segment.

The fields of a spec and their limits are read from jobs/job.schema.json, so a new field is tested once it is described."""
import copy, json, os, shutil, socket, struct, sys, threading

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from kc_flow import ROOT, alive, main, processes_with
from kc_train import GOLDEN, Kc

SCHEMA = json.load(open(os.path.join(ROOT, "jobs", "job.schema.json")))
ABSENT, NO_OBJECT, REFUSED, USAGE, VERSION, INVALID, SYSTEM = 3, 4, 5, 2, 8, 9, 10
MODEL = os.path.join(GOLDEN, "model")
TRAIN = os.path.join(GOLDEN, "train.bin")


# The fields that GPT-2 does not have.
LLAMA = {"kv_heads": 2, "ffn": 64, "tied": False, "rope_theta": 10000, "rms_eps": 1e-5}
MOE = dict(LLAMA, experts=4, top_k=2, balance=0.01)


def whole_spec(path=""):
    """Every field of the schema stands in it, so that one of them can be made wrong: those of a family where path is one."""
    spec = {"name": "input", "ranks": 2, "device": "cpu", "threads": 1, "oversubscribe": True, "seed": 1, "steps": 3,
            "precision": "fp32", "freeze": ["*.wpe.weight"],
            "model": {"family": "gpt2", "layers": 2, "hidden": 32, "heads": 4, "context": 32, "vocab": 256,
                      "init": {"from": MODEL}},
            "data": {"train": TRAIN, "validation": TRAIN, "order": "sequential", "documents": "masked", "end_of_text": 0},
            "batch": {"sequences": 8, "micro": 4},
            "optimizer": {"kind": "adamw", "lr": 0.01, "beta1": 0.9, "beta2": 0.95, "eps": 1e-8, "weight_decay": 0.1, "clip": 1},
            "lr_schedule": {"kind": "cosine", "warmup": 1, "floor": 0.1}, "parallel": {"tensor": 1, "sequence": False, "context": 1, "expert": 1, "expert_memory": 0, "data": 2, "zero": 0,
                         "pipeline": 1, "pipeline_order": "1f1b", "chunks": 1, "recompute": "none", "recompute_layers": 0, "recompute_memory": 0, "algorithms": {p: "auto" for p in ("all-reduce", "all-gather", "reduce-scatter", "broadcast")}},
            "snapshot": {"every": 0, "keep": 2, "keep_every": 10, "copies": 2, "busy": "skip", "mib_per_second": 0, "full_every": 50, "coding": "auto",
                         "keep_nonfinite": False}, "evaluate": {"every": 0, "batches": 1},
            "policy": {"on_nonfinite": "stop", "max_rollbacks": 3, "replica_every": 50, "on_crash": "restart", "max_restarts": 3, "backoff_seconds": 1,
                       "backoff_max_seconds": 300,
                       "on_hang": "report", "hang_floor_seconds": 30, "hang_ceiling_seconds": 1800, "straggler_score": 0.75, "shrink": False},
            "stop": {"grace_seconds": 10}, "log": {"max_mib": 1, "keep": 1}, "env": {"A": "b"}, "inject": []}
    for family, fields_of in (("llama", LLAMA), ("moe", MOE)):
        if path.removeprefix("model.") in fields_of and spec["model"]["family"] == "gpt2":
            spec["model"] = dict(spec["model"], family=family, init={"from": None}, **fields_of)
    if path.startswith("lora"):
        del spec["freeze"]
        spec["lora"] = {"rank": 4, "alpha": 8, "targets": ["*attn*"]}
    return spec


def put(spec, path, value):
    *folders, last = path.split(".")
    for f in folders:
        spec = spec[f]
    spec[last] = value


def changed(**paths):
    """The whole spec with fields replaced; "__" in a name is the dot of the path."""
    spec = whole_spec()
    for path, value in paths.items():
        put(spec, path.replace("__", "."), value)
    return spec


def without(path):
    spec = whole_spec(path)
    *folders, last = path.split(".")
    at = spec
    for f in folders:
        at = at[f]
    del at[last]
    return spec


def fields(schema=SCHEMA, prefix=""):
    """(path, its schema, required), objects after what is in them."""
    for name, field in schema["properties"].items():
        path = prefix + name
        if "properties" in field:
            yield from fields(field, path + ".")
        yield path, field, name in schema.get("required", [])


def wrong_values(field):
    """(value, words that the message must have) for one field's schema."""
    kind = field.get("type")
    if "enum" in field:
        allowed = [", ".join(field["enum"])]
        near = field["enum"][-1]
        return [("nonsense", allowed), (near + near[-1], allowed + [f'did you mean "{near}"']), (1, allowed), (None, allowed),
                ([], allowed)]
    null = isinstance(kind, list) and "null" in kind
    kind = kind[0] if null else kind
    if kind in ("integer", "number"):
        low, high = "%.15g" % field["minimum"], "%.15g" % field["maximum"]
        above = int(field["maximum"]) + max(1, int(field["maximum"]) // 1000) if kind == "integer" else field["maximum"] * 1.5
        below = field["minimum"] - 1
        return [(v, [f"from {low} to {high}"]) for v in ["text", "1", True, [], {}, below, above] + ([] if null else [None])
                + ([1.5] if kind == "integer" else [])]
    if kind == "array":
        return [(v, ["list", "faults" if field["items"]["type"] == "object" else "patterns"]) for v in (3, "text", True, None, {})]
    if kind == "boolean":
        return [(v, ["true or false"]) for v in (0, 1, "true", None, [])]
    if field.get("pattern"):
        return [(v, ["1 to 40 characters", "a-z, 0-9"]) for v in ("", "UPPER", "with space", "a/b", "ä", "x" * 41, 3, None, [])]
    if kind == "object" and "properties" in field:
        return [(v, ["object"]) for v in (3, "text", None, [])]
    if kind == "object":  # env
        return [(v, ["object"]) for v in (3, "A=b", None, [])]
    words = ["path of a file"]
    if "anyOf" in field:  # what is in a list or an object is tested in tests/unit/test_govern.c
        return [(v, words) for v in ("", 3, True)] + ([] if {"type": "null"} in field["anyOf"] else [(None, words)])
    return [(v, words) for v in ("", 3, True, [], {})] + ([] if null else [(None, words)])


class Refusals(Kc):
    """A node on which everything is refused. At its end: kcd alone lives, nothing was started."""

    def __init__(self, **how):
        super().__init__(**how)
        self.count = 0

    def write(self, content, name=None):
        path = os.path.join(self.folder, name or "spec.json")
        with open(path, "wb") as f:
            f.write(content if isinstance(content, bytes) else
                    content.encode() if isinstance(content, str) else json.dumps(content).encode())
        return path

    def line(self, *arguments, code=INVALID, words=()):
        """Run kc; it must say one line with the words and exit with the code."""
        done = self.kc(*arguments, ok=range(-64, 256))
        told = f"kc {' '.join(arguments)} → {done.returncode}: {done.stdout}{done.stderr}"
        assert done.returncode == code, f"expected exit code {code}\n{told}"
        assert done.stdout == "" and done.stderr.startswith("kc: ") and done.stderr.count("\n") == 1, told
        assert len(done.stderr) < 1400, told
        for word in words:
            assert word in done.stderr, f"{word!r} is missing\n{told}"
        self.count += 1
        return done.stderr

    def refused(self, spec, *words, code=INVALID, both=True):
        path = self.write(spec)
        said = self.line("check", path, code=code, words=words)
        if both:
            assert self.line("start", path, code=code, words=words) == said, "start says what check says"
        return said

    def __exit__(self, kind, value, trace):
        if kind is None:
            jobs = os.path.join(self.home, "jobs")
            assert not os.path.isdir(jobs) or os.listdir(jobs) == [], os.listdir(jobs)
            living = [p for p in processes_with(self.instance) if alive(p)]
            assert living == ([self.kcd_pid] if self.kcd_pid else []), living
            assert len(self.segments()) <= 1, self.segments()  # the directory of the node
            print(f"        {self.count} refusals")
        super().__exit__(kind, value, trace)


# ---- every field ----

def test_the_whole_spec_is_fine():
    with Refusals() as node:
        spec = whole_spec()
        for path, field, _ in fields():
            at = whole_spec(path)
            for part in path.split("."):
                assert part in at, f"{path} is in the schema but not in this test's spec"
                at = at[part]
        assert "deadlock" in node.kc("check", node.write(spec)).stdout
        answer = node.json("check", node.write(spec))
        assert answer["spec"]["name"] == "input" and answer["deadlock_free"] and answer["memory"]["rank_bytes"] > 0


def test_every_field_of_the_wrong_type_or_range():
    with Refusals() as node:
        for path, field, _ in fields():
            for value, words in wrong_values(field):
                spec = whole_spec(path)
                put(spec, path, value)
                shown = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
                said = node.refused(spec, f" {path} is ", *words, both=value is None)
                if not isinstance(value, float) and len(shown) < 50:
                    assert f"{path} is {shown}:" in said, (said, shown)


def test_every_required_field_missing():
    with Refusals() as node:
        seen = 0
        for path, field, required in fields():
            if required:
                node.refused(without(path), path, "is missing", "kc-job(5)")
                seen += 1
        assert seen >= 14


def test_every_field_misspelled():
    """An unknown field is an error with the nearest known one."""
    with Refusals() as node:
        for path, field, _ in fields():
            *folders, last = path.split(".")
            wrong = last + last[-1]
            spec = whole_spec(path)
            at = spec
            for f in folders:
                at = at[f]
            at[wrong] = at[last]
            told = ".".join(folders + [wrong])
            node.refused(spec, f"{told} is no field of a spec; the nearest is {path} ", both=False)
        node.refused(dict(whole_spec(), lr=1), "lr is no field of a spec", "optimizer.lr")
        node.refused(dict(whole_spec(), zzzzzzzzzzzz=1), "zzzzzzzzzzzz is no field of a spec", "kc-job(5)")


def test_kcd_refuses_by_itself():
    """What does not come from kc is checked as well."""
    with Refusals() as node:
        for path, field, required in fields():
            for value, words in wrong_values(field)[:3]:
                spec = whole_spec(path)
                put(spec, path, value)
                reply = node.ask("start", spec=spec, dir="/")
                assert not reply["ok"] and reply["code"] == INVALID and path in reply["error"], (path, value, reply)
                assert "\n" not in reply["error"]
        for spec in (3, [], None, "x"):
            assert node.ask("start", spec=spec, dir="/")["code"] == USAGE


# ---- the file itself ----

def test_what_is_no_spec():
    with Refusals() as node:
        node.refused("", "spec.json: line 1, column 0")
        node.refused("{", "spec.json: line 1")
        node.refused('{"name": "a",}', "spec.json: line 1, column 14")
        node.refused("[]", "spec.json: a spec is a JSON object")
        node.refused("3", "spec.json: ")
        node.refused(json.dumps(whole_spec()) + "x", "spec.json: line 1", "end of file expected")
        node.refused(b'{"name": "\xff\xfe"}', "spec.json: line 1", "unable to decode byte 0xff")
        node.refused(b'{"name": "a\x00b"}', "spec.json: ", "zero byte")
        node.refused(json.dumps(whole_spec())[:-1] + ', "ranks": 3}', "spec.json: ", "duplicate", "ranks")
        node.refused('{"steps": 99999999999999999999}', "spec.json: line 1", "too big integer")
        node.refused('{"steps": 1e999}', "spec.json: line 1", "overflow")
        node.refused(b" " * (1 << 20) + b"{}", "spec.json: larger than 1 MiB")
        node.refused("[" * 100000, "spec.json: line 1")
        missing = os.path.join(node.folder, "no-such-file.json")
        node.line("check", missing, code=NO_OBJECT, words=[missing, "No such file"])
        node.line("start", missing, code=NO_OBJECT, words=[missing, "No such file"])
        node.line("check", node.folder, words=[node.folder, "folder"])
        if os.getuid():
            path = node.write(whole_spec(), "secret.json")
            os.chmod(path, 0)
            node.line("check", path, code=SYSTEM, words=[path, "Permission denied"])
        else:
            print("skipped test_what_is_no_spec, an unreadable spec: root reads everything")


# ---- combinations ----

def test_combinations_name_every_field_and_number():
    """F48: all numbers and the equation, and a value that would do."""
    with Refusals() as node:
        product = "but tensor·context·expert·data·pipeline = "
        node.refused(changed(ranks=12, parallel__tensor=2, parallel__pipeline=2), "ranks = 12, " + product + "2·1·1·2·2 = 8",
                     "set ranks to 8, or parallel.data to 3")
        node.refused(changed(parallel__data=4), "ranks = 2, " + product + "1·1·1·4·1 = 4")
        node.refused(without("parallel"), "ranks = 2, " + product + "1·1·1·1·1 = 1", "parallel.data to 2")
        unit = "batch.micro × parallel.expert × parallel.data = "
        node.refused(changed(batch__sequences=9), "batch.sequences is 9", unit + "4 × 1 × 2 = 8", "batch.sequences 16 would do")
        node.refused(changed(batch__micro=8), "batch.sequences is 8", unit + "8 × 1 × 2 = 16")
        node.refused(changed(ranks=4, parallel__expert=2), "batch.sequences is 8", unit + "4 × 2 × 2 = 16")
        node.refused(changed(model__heads=5), "model.heads is 5", "model.hidden = 32", "model.heads 4 would do")
        for name, value in MOE.items():  # a family has its own fields only
            node.refused(changed(**{"model__" + name: value}), f"model.{name} is a field", 'model.family "gpt2" does not have',
                         both=False)
        llama = whole_spec("model.ffn")
        del llama["model"]["ffn"]
        node.refused(llama, "model.ffn is missing")
        node.refused(changed(model=dict(llama["model"], ffn=64, kv_heads=3)), "model.kv_heads is 3", "model.heads = 4",
                     "model.kv_heads 2 would do")
        node.refused(changed(model=dict(llama["model"], ffn=64, experts=4)), "model.experts is a field", '"llama" does not have')
        moe = whole_spec("model.top_k")["model"]
        node.refused(changed(model=dict(moe, top_k=5)), "model.top_k is 5, but model.experts is 4")
        node.refused(changed(model=dict(llama["model"], ffn=64, hidden=36)), "a head is 9 wide", "must be even")
        node.refused(changed(model__heads=64), "model.heads is 64", "model.hidden = 32", "model.heads 32 would do")
        spec = changed(evaluate__every=2, data__validation=None)
        node.refused(spec, "evaluate.every is 2", "data.validation is missing")
        node.refused(changed(model__vocab=255), "model.vocab is 255", "data.train has token 255", "position", TRAIN,
                     "model.vocab 256 would do")
        small = token_file(node, "small.bin", [1, 2, 3] * 40)
        node.refused(changed(model__vocab=200, data__train=small), "model.vocab is 200", "data.validation has token 255", TRAIN)
        node.refused(changed(model__context=100000), "data.train has", "model.context = 100000", "100001", TRAIN)
        node.refused(changed(data__train=token_file(node, "one.bin", [7])), "data.train has 1 token", "model.context = 32")
        if len(os.sched_getaffinity(0)) < 128:
            spec = changed(threads=64, oversubscribe=False)
            said = node.refused(spec, "2 ranks × 64 cores", '"ranks"', '"threads"', '"oversubscribe": true')
            reply = node.ask("start", spec=spec, dir="/")
            assert reply["code"] == INVALID and reply["error"] in said, (reply, said)


# ---- token files ----

def token_file(node, name, tokens, magic=20240520, version=1, count=None, extra=b"", width="H"):
    header = struct.pack("<3i", magic, version, len(tokens) if count is None else count).ljust(1024, b"\0")
    return node.write(header + struct.pack(f"<{len(tokens)}{width}", *tokens) + extra, name)


def bad_token_files(node):
    """(path, words): what is wrong, with both lengths."""
    golden = open(TRAIN, "rb").read()
    tokens = [i % 200 for i in range(500)]
    yield os.path.join(node.folder, "missing.bin"), ["No such file"]
    yield node.write(b"", "empty.bin"), ["has 0 bytes", "1024"]
    yield node.write(golden[:1000], "short-header.bin"), ["has 1000 bytes", "1024"]
    yield node.write(golden[:1024], "header-only.bin"), ["1024 bytes", str(len(golden)), "truncated"]
    yield node.write(golden[:-2], "truncated.bin"), [str(len(golden) - 2), str(len(golden)), "truncated"]
    yield node.write(golden[:-1], "odd.bin"), [str(len(golden) - 1), str(len(golden)), "truncated"]
    yield node.write(golden + b"\0", "trailing.bin"), [str(len(golden) + 1), str(len(golden)), "behind the last token"]
    yield node.write(b"Once upon a time. " * 100, "text.bin"), ["no token file", "20240520", "kc data prepare"]
    yield token_file(node, "version.bin", tokens, version=7), ["version 7", "version 1"]
    yield token_file(node, "llama-version.bin", tokens, magic=20240801, version=1, width="I"), ["version 1", "20240801"]
    yield token_file(node, "negative.bin", tokens, count=-5), ["-5 tokens"]
    yield token_file(node, "none.bin", [], count=0), ["0 tokens"]
    yield token_file(node, "huge-count.bin", tokens, count=2**31 - 1), ["2147483647 tokens", str(1024 + 2 * (2**31 - 1)), "truncated"]
    yield node.folder, ["not a regular file"]
    fifo = os.path.join(node.folder, "fifo.bin")
    if not os.path.exists(fifo):
        os.mkfifo(fifo)
    yield fifo, ["not a regular file"]
    yield "/dev/zero", ["not a regular file"]


def test_bad_token_files():
    with Refusals() as node:
        for path, words in bad_token_files(node):
            node.refused(changed(data__train=path), "data.train: " + path, *words)
            node.refused(changed(data__validation=path), "data.validation: " + path, *words, both=False)
            node.line("data", "info", path, code=NO_OBJECT if "missing" in path else INVALID, words=[path, *words])
        relative = node.refused(changed(data__train="beside.bin"), f"data.train: {os.path.realpath(node.folder)}/beside.bin: ")
        assert "No such file" in relative
        if os.getuid():
            path = token_file(node, "secret.bin", [1] * 100)
            os.chmod(path, 0)
            node.refused(changed(data__train=path), "data.train: " + path, "Permission denied", code=SYSTEM)


def test_data_prepare():
    with Refusals() as node:
        text = node.write("a text that is long enough\n" * 20, "text.txt")
        out = os.path.join(node.folder, "out")
        def bad(*arguments, code=INVALID, words=()):
            node.line("data", "prepare", *arguments, code=code, words=words)
            assert not os.path.exists(out) or os.listdir(out) == [], "nothing is left half written"
        bad(text, code=USAGE, words=["--out"])
        bad("--out", out, code=USAGE, words=["FILE"])
        bad("--out", out, "--tokenizer", "bytes", text, code=USAGE, words=["bytes", "byte"])
        for share in ("-0.1", "0.6", "1", "x", "", "nan", "0.1x"):
            bad("--out", out, f"--validation={share}", text, code=USAGE, words=["--validation", "0 to 0.5"])
        bad("--out", out, text, text + "2", code=NO_OBJECT, words=[text + "2", "No such file"])
        bad("--out", out, node.folder, words=[node.folder, "folder"])
        bad("--out", out, node.write("", "nothing.txt"), words=["nothing.txt", "empty"])
        bad("--out", out, "--validation=0.1", node.write("short", "short.txt"), words=["--validation", "5 bytes"])
        bad("--out", text, text, code=SYSTEM, words=["--out", text])
        bad("--out", os.path.join(text, "below"), text, code=SYSTEM, words=["--out", text])
        node.kc("data", "prepare", "--out", out, text)
        assert sorted(os.listdir(out)) == ["train.bin", "val.bin"]
        assert node.json("data", "info", os.path.join(out, "train.bin"))["tokens"] == 486


# ---- weights to begin from ----

def tensors():
    """The golden model's header (dict, in file order) and data."""
    with open(os.path.join(MODEL, "model.safetensors"), "rb") as f:
        header = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
        return {k: v for k, v in header.items() if k != "__metadata__"}, f.read()


def packed(header, data):
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def laid_out(parts):
    """{name: (dtype, shape, bytes)} as a safetensors file."""
    header, data = {}, b""
    for name, (dtype, shape, content) in parts.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    return packed(header, data)


def parts_of():
    header, data = tensors()
    return {n: (t["dtype"], t["shape"], data[slice(*t["data_offsets"])]) for n, t in header.items()}


def refused_from(node, path, *words, code=INVALID, **changes):
    return node.refused(changed(model__init={"from": path}, **changes), "model.init.from: ", path, *words, code=code)


def test_F36_broken_safetensors():
    with Refusals() as node:
        whole = open(os.path.join(MODEL, "model.safetensors"), "rb").read()
        header, data = tensors()
        last = max(header, key=lambda n: header[n]["data_offsets"][1])
        length = struct.unpack("<Q", whole[:8])[0]
        size = str(len(whole))
        f = lambda content, name="model.safetensors": node.write(content, name)
        refused_from(node, os.path.join(node.folder, "missing.safetensors"), "No such file")
        refused_from(node, f(b""), "has 0 bytes")
        refused_from(node, f(whole[:7]), "has 7 bytes")
        refused_from(node, f(whole[:8]), str(length), "8")
        refused_from(node, f(whole[:8 + length]), str(8 + length), size, "cut short in tensor")
        refused_from(node, f(whole[:-1]), str(len(whole) - 1), size, f"cut short in tensor {last}")
        refused_from(node, f(whole + b"x"), str(len(whole) + 1), size, "1 bytes lie behind the last tensor", last)
        refused_from(node, f(b"not a model at all, but a text" * 9), "no safetensors file")
        refused_from(node, f(b"\xff" * 4096), "no safetensors file")
        refused_from(node, f(struct.pack("<Q", 4) + b"nope"), "no JSON object")
        refused_from(node, f(struct.pack("<Q", 2) + b"[]"), "no JSON object")
        name = "transformer.wte.weight"
        for change, words in (({"shape": [256, 33]}, [name, "data_offsets"]), ({"dtype": "F99"}, [name, "F99"]),
                              ({"shape": [-1, 32]}, [name, "shape"]), ({"shape": [2**62, 2**62]}, [name, "shape"]),
                              ({"data_offsets": [0, 2**63 - 1]}, [name]), ({"data_offsets": [8, 4]}, [name])):
            wrong = copy.deepcopy(header)
            wrong[name].update(change)
            refused_from(node, f(packed(wrong, data)), *words)
        fifo = os.path.join(node.folder, "fifo.safetensors")
        os.mkfifo(fifo)
        refused_from(node, fifo, "not a regular file")
        refused_from(node, TRAIN, "a token file of llm.c")
        if os.getuid():
            path = f(whole, "secret.safetensors")
            os.chmod(path, 0)
            refused_from(node, path, "Permission denied", code=SYSTEM)
        node.kc("check", node.write(changed(model__init={"from": f(whole)})))


def test_F37_F38_tensors_that_do_not_fit():
    with Refusals() as node:
        f = lambda parts: node.write(laid_out(parts), "model.safetensors")
        name, bias = "transformer.h.1.mlp.c_fc.weight", "transformer.h.0.ln_1.bias"
        parts = parts_of()
        del parts[name], parts[bias]
        refused_from(node, f(parts), "missing ", name, bias)
        parts = parts_of()
        parts["transformer.h.2.ln_1.bias"] = parts[bias]
        refused_from(node, f(parts), "unexpected transformer.h.2.ln_1.bias")
        parts = parts_of()
        dtype, shape, content = parts[name]
        parts[name] = (dtype, shape[::-1], content)
        refused_from(node, f(parts), f"shape of {name}: [{shape[1]}, {shape[0]}], the model has [{shape[0]}, {shape[1]}]")
        parts[name] = ("I32", shape, content)
        refused_from(node, f(parts), f"type of {name}: I32")
        parts = parts_of()
        parts["h.0.ln_1.bias"] = parts[bias]
        refused_from(node, f(parts), "twice")
        parts = parts_of()
        head = parts["transformer.wte.weight"]
        parts["lm_head.weight"] = head
        node.kc("check", node.write(changed(model__init={"from": f(parts)})))
        parts["lm_head.weight"] = (head[0], head[1], head[2][:-4] + b"\0\0\0\x40")
        refused_from(node, f(parts), "lm_head.weight", "transformer.wte.weight", "ties")
        refused_from(node, f(parts_of()), "missing transformer.h.2", "missing", model__layers=3)
        refused_from(node, f(parts_of()), "shape of transformer.wte.weight: [256, 32], the model has [300, 32]", model__vocab=300)


def test_folders_with_config():
    with Refusals() as node:
        folder = os.path.join(node.folder, "model")
        shutil.copytree(MODEL, folder)
        os.chmod(folder, 0o700)
        config = json.load(open(os.path.join(folder, "config.json")))
        write = lambda c: node.write(c, "model/config.json")
        def again():
            for n in os.listdir(MODEL):
                shutil.copyfile(os.path.join(MODEL, n), os.path.join(folder, n))
        for key, value, field in (("n_layer", 3, "model.layers is 2"), ("n_embd", 64, "model.hidden is 32"),
                                  ("n_head", 8, "model.heads is 4"), ("n_positions", 64, "model.context is 32"),
                                  ("vocab_size", 50257, "model.vocab is 256")):
            write(dict(config, **{key: value}))
            refused_from(node, folder, f"{key} is {value}", field, "config.json")
        write(dict(config, n_layer=3, n_embd=64))
        refused_from(node, folder, "n_layer is 3", "n_embd is 64")
        write(dict(config, model_type="llama"))
        refused_from(node, folder, 'model_type is "llama"', 'model.family "gpt2"')
        write("{")
        refused_from(node, folder, "config.json", "line 1")
        write("[]")
        refused_from(node, folder, "config.json")
        os.unlink(os.path.join(folder, "config.json"))
        refused_from(node, folder, "config.json")
        again()
        os.unlink(os.path.join(folder, "model.safetensors"))
        refused_from(node, folder, "model.safetensors")
        node.write({"weight_map": {"transformer.wte.weight": "part-1.safetensors"}}, "model/model.safetensors.index.json")
        refused_from(node, folder, "part-1.safetensors", "No such file")
        node.write({"weight_map": {"transformer.wte.weight": "../../../etc/passwd"}}, "model/model.safetensors.index.json")
        refused_from(node, folder, "index")
        node.write({}, "model/model.safetensors.index.json")
        refused_from(node, folder, "weight_map")


def test_snapshots_of_other_models():
    with Kc() as maker, Refusals() as node:
        job = maker.train("small", steps=1, model={"init": {"from": None}, "hidden": 16, "heads": 2}, snapshot={"every": 1})
        other = maker.snapshots(job)[-1]["path"]
        refused_from(node, other, "16", "32", "transformer")
        job = maker.train("right", steps=1, snapshot={"every": 1})
        right = maker.snapshots(job)[-1]["path"]
        node.kc("check", node.write(changed(model__init={"from": right})))
        node.kc("check", node.write(changed(model__init={"from": os.path.dirname(right)})))
        pack = os.path.join(right, "rank-0.pack")
        whole = open(pack, "rb").read()
        with open(pack, "wb") as f:
            f.write(whole[:5000] + bytes([whole[5000] ^ 1]) + whole[5001:])
        refused_from(node, right, "rank-0.pack")
        with open(pack, "wb") as f:
            f.write(whole[:-10])
        refused_from(node, right, "rank-0.pack", f"{len(whole) - 10} bytes", "cut short")
        os.unlink(pack)
        refused_from(node, right, "rank-0.pack")
        with open(os.path.join(right, "MANIFEST.json"), "w") as f:
            f.write("{}")
        refused_from(node, right, "MANIFEST.json")


# ---- no supervisor, or another one ----

ASKING = [("pause", "a-1"), ("resume", "a-1"), ("checkpoint", "a-1"), ("stop", "a-1"), ("rm", "a-1"), ("shutdown",)]


def test_without_kcd():
    with Refusals(start=False) as node:
        spec = node.write(whole_spec(), "good.json")
        for words in ASKING + [("start", spec)]:
            node.line(*words, code=ABSENT, words=["no supervisor", node.home, node.instance, "kcd --daemon"])
        assert not os.path.exists(node.home), "asking made nothing"
        for words in (("show", "a-1"), ("wait", "a-1"), ("log", "a-1"), ("snap", "ls", "a-1")):
            node.line(*words, code=NO_OBJECT, words=["a-1"])
        node.kc("ps"), node.kc("node"), node.kc("metrics")


def test_with_a_stale_socket():
    with Refusals() as node:
        node.kill_kcd()
        spec = node.write(whole_spec(), "good.json")
        for words in ASKING + [("start", spec)]:
            node.line(*words, code=ABSENT, words=["kcd.sock", "stale", "kcd --daemon"])
        node.start_kcd()  # over the stale socket and the stale directory of the node (F14)


class Impostor:
    """Answers at kcd's socket with the lines it was given."""

    def __init__(self, node, answer):
        os.makedirs(node.run, exist_ok=True)
        self.path = os.path.join(node.run, "kcd.sock")
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(self.path)
        self.listener.listen()
        self.answer = answer
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            try:
                peer, _ = self.listener.accept()
            except OSError:
                return
            peer.recv(65536)
            peer.sendall(self.answer)
            peer.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        os.unlink(self.path)


def test_with_a_kcd_of_another_version():
    with Refusals(start=False) as node:
        spec = node.write(whole_spec(), "good.json")
        other = json.dumps({"ok": True, "pid": 1, "instance": "x", "home": "/", "version": "0.0.0-other"}).encode() + b"\n"
        for answer, words in ((other, ["0.0.0-other", "kcd --daemon"]), (b"HTTP/1.1 400 Bad Request\r\n\r\n", ["another version"]),
                              (b"", ["another version"]), (b'{"ok":false}\n', ["another version"]), (b"\n", ["another version"])):
            with Impostor(node, answer):
                for ask in (("pause", "a-1"), ("start", spec), ("shutdown",)):
                    node.line(*ask, code=VERSION, words=["kcd.sock", *words])


def test_with_a_board_of_another_version():
    """Told by whoever reads the board; what the files say is shown all the same."""
    with Kc() as node:
        job = node.begin("versioned", steps=100000)
        node.kc("wait", job, "--for", "step>=3")
        board = f"/dev/shm/{[s for s in node.segments() if s.endswith(job)][0]}"
        with open(board, "r+b") as f:
            head = f.read(64)
            at = 8  # the version stands behind the magic (shm/board.h)
            version = struct.unpack_from("<I", head, at)[0]
            f.seek(at)
            f.write(struct.pack("<I", version + 1))
            f.flush()
            try:
                for words in (("show", job), ("ps",), ("metrics", job)):
                    done = node.kc(*words, ok=(VERSION,))
                    assert done.stderr.count("\n") == 1 and f"version {version + 1}" in done.stderr, done
                    assert f"version {version}" in done.stderr and board[8:] in done.stderr.replace("/dev/shm", ""), done
                    if words[0] != "metrics":
                        assert job in done.stdout
                waited = node.kc("wait", job, "--for", "step>=1000000", ok=(VERSION,))
                assert waited.stderr.count("\n") == 1 and waited.stdout == "", waited
                shown = json.loads(node.kc("show", job, "--json", ok=(VERSION,)).stdout)
                assert shown["job"]["id"] == job
            finally:
                f.seek(at)
                f.write(struct.pack("<I", version))
        node.kc("show", job)
        node.kc("stop", job)


# ---- usage, and errors as JSON ----

def test_wrong_use():
    """F52: the documented code of each kind, told in one line."""
    with Refusals() as node:
        node.line("strat", code=USAGE, words=["strat", "start"])
        node.line("start", code=USAGE, words=["SPEC"])
        node.line("ps", "x", code=USAGE)
        node.line("ps", "--jsno", code=USAGE, words=["--jsno", "--json"])
        node.line("wait", "a-1", "--timeout", "soon", code=USAGE, words=["soon"])
        node.line("wait", "a-1", "--timeout", code=USAGE, words=["--timeout"])
        node.line("wait", "a-1", "--for", "setp>3", code=USAGE, words=["setp", "step"])
        node.line("wait", "a-1", "--for", "step>", code=USAGE)
        node.line("snap", code=USAGE, words=["snap"])
        for words in (("show", "a-1"), ("pause", "a-1"), ("stop", "../a"), ("rm", "a-1"), ("log", "a-1/0"), ("metrics", "a-1"),
                      ("show", "/nowhere"), ("snap", "verify", "/nowhere")):
            node.line(*words, code=NO_OBJECT, words=[words[-1].split("/0")[0]])
        node.line("show", "/etc/passwd", code=INVALID, words=["/etc/passwd"]) # a saved board may be shown; this is none
        node.line("batch", os.path.join(node.folder, "none"), code=NO_OBJECT)
        done = node.kc("batch", node.write("node --json\npause a-1\nps\n", "script"), ok=(NO_OBJECT,))
        said = done.stderr.splitlines()  # the statement's own line, then where it stands
        assert len(said) == 2 and "no job a-1" in said[0] and "script:2: " in said[1] and "exit code 4" in said[1], done
        assert json.loads(done.stdout)["schema"] == "kc.node/1"


def test_F53_errors_as_json():
    with Refusals() as node, Refusals(start=False) as nobody:
        bad = node.write(changed(ranks=0), "bad.json")
        cases = [(node, ("check", bad), INVALID), (node, ("start", bad), INVALID), (node, ("show", "a-1"), NO_OBJECT),
                 (node, ("pause", "a-1"), NO_OBJECT), (node, ("data", "info", bad), INVALID), (node, ("wait", "a-1"), NO_OBJECT),
                 (node, ("snap", "ls", "a-1"), NO_OBJECT), (node, ("snap", "verify", "/nowhere"), NO_OBJECT),
                 (node, ("log", "a-1"), NO_OBJECT), (node, ("metrics", "a-1"), NO_OBJECT), (node, ("strat",), USAGE),
                 (node, ("data", "prepare", bad), USAGE), (node, ("rm", "a-1"), NO_OBJECT), (node, ("batch", "/nowhere"), NO_OBJECT),
                 (node, ("sample", "a-1", "--prompt", "x", "--tokens", "3"), NO_OBJECT), (nobody, ("shutdown",), ABSENT)]
        for where, words, code in cases:
            done = where.kc(*words, "--json", ok=(code,))
            assert done.stdout.count("\n") == 1, (words, done)
            answer = json.loads(done.stdout)
            assert answer["schema"] == "kc.error/1" and answer["code"] == code and answer["error"], (words, answer)
            assert done.stderr == f"kc: {answer['error']}\n", (words, done)


if __name__ == "__main__":
    main(globals())
