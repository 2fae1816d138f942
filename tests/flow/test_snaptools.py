#!/usr/bin/python3
"""What a person does with snapshots, by kc alone: look at tensors of a job that runs, hangs or has ended; ask what a resume would
do, and resume; bring models in and take them out. Files of others are written and read here by their formats alone."""
import array, json, os, signal, struct, sys

from kc_flow import main, until
from kc_train import GOLDEN, Kc, far, safetensors, snapshot


def tensors(answer):
    return {(t["tensor"], t["kind"]): t for t in answer["tensors"]}


def figures(values):
    """mean, std, largest magnitude, Euclidean norm."""
    n = len(values)
    mean = sum(values) / n
    return mean, (sum((v - mean) ** 2 for v in values) / n) ** 0.5, max(abs(v) for v in values), sum(v * v for v in values) ** 0.5


def same(a, b):
    return abs(a - b) <= 1e-6 * max(abs(a), abs(b), 1e-12)


def test_tensor_figures_of_a_snapshot():
    """The figures are those of the values on disk, read here by the format; and those of the change."""
    with Kc() as node:
        job = node.train("t", 2, 1, steps=4, snapshot={"every": 2})
        paths = [s["path"] for s in node.snapshots(job)]
        (_, before), (_, now) = snapshot(paths[0]), snapshot(paths[1])
        told = node.json("tensor", job, "h.1.*", "--stats")
        assert told["of"]["step"] == 4 and told["before"]["step"] == 2 and not told["of"]["memory"], told["of"]
        rows = tensors(told)
        assert len(rows) == 12 * 3 and all(".h.1." in name for name, _ in rows), sorted(rows)
        for (name, kind), row in rows.items():
            k = ["master", "moment1", "moment2"].index(kind)
            mean, std, largest, norm = figures(now[k][name])
            assert same(row["mean"], mean) and same(row["std"], std) and same(row["largest"], largest) and same(row["norm"], norm), row
            change = sum((a - b) ** 2 for a, b in zip(now[k][name], before[k][name])) ** 0.5
            assert same(row["change"], change) and row["nonfinite"] == 0, (row, change)
        text = node.kc("tensor", job, "*.ln_f.weight", "--stats").stdout
        assert "version 2 on disk, of step 4" in text and "since version 1 on disk, of step 2" in text, text
        assert "is called \"h.9.*\"" in node.kc("tensor", job, "h.9.*", "--stats", ok=(4,)).stderr


def test_tensor_of_a_job_that_runs_and_that_hangs():
    """The copy in memory is read while ranks stand still, and while new ones are made as fast as can be; the figures are those of
    a state that was: the version of the same step on disk has the same."""
    with Kc() as node:
        job = node.begin("t", 2, 1, steps=100000, snapshot={"every": 100, "keep": 100}, optimizer={"lr": 1e-4})
        ask = lambda *more: node.json("tensor", job, "ln_f.*", "--stats", *more, ok=(0, 4))
        in_memory = lambda: ask().get("of", {}).get("memory") and (ask()["before"] or {}).get("memory")
        until("two copies are in memory", in_memory)
        ranks = node.ranks(job)
        for pid in ranks:
            os.kill(pid, signal.SIGSTOP)
        first, again = ask(), ask()
        assert first["of"]["memory"] and first["tensors"] == again["tensors"] and first["of"] == again["of"], (first, again)
        told = node.json("snap", "restore", job, "--dry-run")
        assert told["memory_step"] == first["of"]["step"], told
        for pid in ranks:
            os.kill(pid, signal.SIGCONT)
        seen = {}
        for _ in range(20):
            told = node.json("tensor", job, "*", "--stats")
            assert told["of"]["step"] % 100 == 0 and told["of"]["step"] > told["before"]["step"], told["of"]
            seen[told["of"]["state_root"]] = tensors(told)
        node.kc("stop", job)
        saved = {s["state_root"]: s["path"] for s in node.snapshots(job)}
        both = sorted(set(seen) & set(saved))
        assert both, (sorted(seen), sorted(saved))
        values = snapshot(saved[both[0]])[1]
        for (name, kind), row in seen[both[0]].items():
            mean, std, largest, norm = figures(values[["master", "moment1", "moment2"].index(kind)][name])
            assert same(row["mean"], mean) and same(row["std"], std) and same(row["largest"], largest) and same(row["norm"], norm), row


def test_restore_dry_run_is_what_a_resume_does():
    """Version, reasons and state_root that were told are those of the resume; nothing is changed by asking."""
    with Kc() as node:
        job = node.begin("t", 2, 1, steps=100000, snapshot={"every": 5, "keep": 3}, optimizer={"lr": 1e-4}, batch={"micro": 1})
        until("three versions", lambda: len(node.snapshots(job)) >= 3)
        node.kc("stop", job)
        newest, older = node.snapshots(job)[-1], node.snapshots(job)[-2]
        told = node.json("snap", "restore", job, "--dry-run", "--deep")
        assert told["version"] == newest["version"] and told["state_root"] == newest["state_root"] and told["verified"], told
        assert told["fits"] and told["bits"] == "same" and told["passed_over"] == [] and len(told["ranks"]) == 2, told
        pack = os.path.join(newest["path"], "rank-1.pack")
        data = bytearray(open(pack, "rb").read())
        data[-1] ^= 1
        open(pack, "wb").write(data)
        there = sorted(os.listdir(newest["path"]))
        told = node.json("snap", "restore", job, "--dry-run")
        assert told["version"] == older["version"] and told["passed_over"][0]["version"] == newest["version"], told
        assert "rank-1.pack" in told["passed_over"][0]["reason"] and sorted(os.listdir(newest["path"])) == there, told
        # any layout reads it; each rank says what
        for layout in ("data=4,zero=3", "tensor=2,pipeline=2", "tensor=4"):
            other = node.json("snap", "restore", job, "--dry-run", "--parallel", layout)
            assert other["fits"] and other["bits"] == "other layout" and other["version"] == older["version"], other
            assert len(other["ranks"]) == 4 and sum(r["bytes"] for r in other["ranks"]) >= other["bytes"], other
        node.kc("resume", job)
        restored = until("it has begun", lambda: [e for e in node.lines(job, "events.jsonl") if e["event"] == "restored"])
        assert {(e["version"], e["step"]) for e in restored} == {(told["version"], told["step"])}, restored
        node.kc("stop", job)


def test_restore_dry_run_refuses_as_a_resume_would():
    with Kc() as node:
        job = node.train("t", 1, 0, steps=2, snapshot={"every": 2})
        for changes, says in (({"seed": 9}, "the spec says 9"), ({"model": {"layers": 3, "init": {"from": None}}}, "missing transformer.h.2"),
                              ({"freeze": ["*wpe*"]}, "it is frozen now")):
            spec = node.write_spec("o", 1, 0, **changes)
            told = node.json("snap", "restore", job, "--dry-run", "--spec", spec, ok=(9,))
            assert not told["fits"] and says in told["why"], told
        assert "kc resume" in node.kc("snap", "restore", job, ok=(2,)).stderr
        assert "NAME=VALUE" in node.kc("snap", "restore", job, "--dry-run", "--parallel", "tensor", ok=(2,)).stderr


def write_llmc(path, values, context, vocab, layers, heads, hidden, padded):
    """As llm.c has it: kind by kind, all layers of one, linear weights turned."""
    def turned(v, rows, columns):
        return array.array("f", [v[r * columns + c] for c in range(columns) for r in range(rows)])
    with open(path, "wb") as f:
        f.write(struct.pack("<8i", 20240326, 3, context, vocab, layers, heads, hidden, padded).ljust(1024, b"\0"))
        f.write(values["transformer.wte.weight"].tobytes() + bytes(4 * (padded - vocab) * hidden))
        f.write(values["transformer.wpe.weight"].tobytes())
        for part, wide in (("ln_1", None), ("attn.c_attn", (hidden, 3 * hidden)), ("attn.c_proj", (hidden, hidden)), ("ln_2", None),
                           ("mlp.c_fc", (hidden, 4 * hidden)), ("mlp.c_proj", (4 * hidden, hidden))):
            for kind in ("weight", "bias"):
                for l in range(layers):
                    v = values[f"transformer.h.{l}.{part}.{kind}"]
                    f.write((turned(v, *wide) if wide and kind == "weight" else v).tobytes())
        for kind in ("weight", "bias"):
            f.write(values[f"transformer.ln_f.{kind}"].tobytes())


def test_llmc_files_in_and_out():
    """A file that was written here begins a job with transformers' losses, and comes out again byte for byte, from four ranks."""
    with Kc() as node:
        values = safetensors(os.path.join(GOLDEN, "model", "model.safetensors"))
        file, out = os.path.join(node.folder, "model.bin"), os.path.join(node.folder, "out.bin")
        write_llmc(file, values, 32, 256, 2, 4, 32, 256)
        reference = json.load(open(os.path.join(GOLDEN, "reference.json")))
        job = node.train("t", 1, 0, steps=3, model={"init": {"from": file}})
        wanted = [s["loss"] for s in reference["steps"][:3]]
        assert far(node.metrics(job)[:3], wanted) < 1e-4, (node.metrics(job), wanted)
        still = node.train("s", 4, 3, steps=1, model={"init": {"from": file}}, optimizer={"lr": 0}, snapshot={"every": 1}, batch={"micro": 2},
                           parallel={"tensor": 2, "data": 2})
        node.kc("snap", "export", still, "--format", "llm.c", "--out", out)
        assert open(out, "rb").read() == open(file, "rb").read()
        told = node.json("snap", "import", out, "--name", "again")
        assert told["model"]["layers"] == 2 and told["model"]["init"]["from"] == told["path"], told
        rows = node.json("snap", "diff", "again", still, ok=(1,))["rows"]
        assert all(r["largest"] == 0 for r in rows if r["kind"] == "master"), rows
        assert [v["version"] for v in node.json("snap", "ls", "again")["snapshots"]] == [1]
        node.kc("snap", "verify", "again", "--deep")
        rows = tensors(node.json("tensor", "again", "h.0.ln_1.*", "--stats"))
        assert sorted(k for _, k in rows) == ["master"] * 2 + ["moment1"] * 2 + ["moment2"] * 2, rows
        assert all(r["norm"] == 0 for (_, k), r in rows.items() if k != "master"), rows
        node.kc("snap", "export", "again/1", "--out", os.path.join(node.folder, "hf"))
        assert safetensors(os.path.join(node.folder, "hf", "model.safetensors")) == values
        assert len(node.kc("sample", "again", "--prompt", "The ", "--tokens", "5").stdout.encode("utf-8", "replace")) >= 5


def test_F36_llmc_files_that_are_not_whole():
    """One line with both lengths, from the check of a spec, from import, and before anything starts."""
    with Kc() as node:
        values = safetensors(os.path.join(GOLDEN, "model", "model.safetensors"))
        file = os.path.join(node.folder, "model.bin")
        write_llmc(file, values, 32, 256, 2, 4, 32, 256)
        whole = open(file, "rb").read()
        spec = node.write_spec("t", 1, 0, model={"init": {"from": file}})
        n = len(whole)
        for data, says in ((whole[:-1], f"is {n - 1} bytes long, its header describes {n}: cut short in tensor transformer.ln_f.bias"),
                           (whole + b"xyz", f"is {n + 3} bytes long, its header describes {n}: 3 bytes lie behind the last tensor"),
                           (whole[:100], "has 100 bytes; the header of an llm.c model has 1024"),
                           (b"\1" + whole[1:], "a model file of llm.c with 20240326"),
                           (whole[:4] + b"\1" + whole[5:], "is of version 1; 3 (f32) and 5 (bf16) are read"),
                           (whole[:8] + struct.pack("<i", 64) + whole[12:], "its header describes")):
            open(file, "wb").write(data)
            for call in (("check", spec), ("snap", "import", file, "--name", "x")):
                error = node.kc(*call, ok=(9,)).stderr
                assert says in error and error.count("\n") == 1, (call, error)
            assert not os.path.exists(os.path.join(node.home, "models", "x")), "nothing is left"


def test_errors_name_the_next_step():
    with Kc() as node:
        job = node.train("t", 1, 0, steps=2, snapshot={"every": 2})
        out = os.path.join(node.folder, "hf")
        node.kc("snap", "export", job, "--out", out)
        assert "kc snap import" in node.kc("sample", out, "--prompt", "x", "--tokens", "3", ok=(9,)).stderr
        assert "--name NAME" in node.kc("snap", "import", out, ok=(2,)).stderr
        assert "is a job" in node.kc("snap", "import", out, "--name", job, ok=(5,)).stderr
        assert "safetensors or llm.c" in node.kc("snap", "export", job, "--format", "gguf", "--out", "x", ok=(2,)).stderr
        llama = os.path.join(GOLDEN, "..", "llama", "model")
        node.kc("snap", "import", llama, "--name", "l")
        assert "--format safetensors" in node.kc("snap", "export", "l", "--format", "llm.c", "--out", os.path.join(node.folder, "x"), ok=(9,)).stderr
        assert "is not empty" in node.kc("snap", "import", llama, "--name", "l", ok=(5,)).stderr
        # a spec names folders: of a word that other verbs take it is told which
        for word, path in ((job, f"jobs/{job}/snapshots/v00000001"), (f"{job}/1", f"jobs/{job}/snapshots/v00000001"), ("l", "models/l/v00000001")):
            told = node.kc("check", node.write_spec("o", 1, 0, model={"init": {"from": word}}), ok=(9,)).stderr
            assert told.endswith(f"{word} means is {os.path.join(node.home, path)}\n"), told
        folder = os.path.join(node.home, "jobs", job)
        told = node.kc("check", node.write_spec("o", 1, 0, model={"init": {"from": folder}}), ok=(9,)).stderr
        assert f"is a job's folder: name {folder}/snapshots" in told, told
        node.kc("check", node.write_spec("o", 1, 0, model={"init": {"from": folder + "/snapshots"}}))
        assert "means" not in node.kc("check", node.write_spec("o", 1, 0, model={"init": {"from": "nothing"}}), ok=(9,)).stderr


if __name__ == "__main__":
    main(globals())
