#!/usr/bin/env python3
"""Steps once more, apart from the job: kc snap prove compares every bit with the job's, kc trace keeps a digest of each operand
(read here by kc-trace(5) alone), kc compare says where two runs or two layouts differ first. F39, F42."""
import json, os, re, signal, struct, subprocess, sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from kc_flow import BIN, main, processes_with, until
from kc_train import Kc, snapshot
from test_rollback import begin as begin_poisoned

LAYOUTS = ({"data": 2, "zero": 3}, {"tensor": 2}, {"pipeline": 2}, {"context": 2})
MASK = (1 << 64) - 1


def train(node, name, parallel, **changes):
    """A finished job of 12 steps whose snapshots are of steps 4, 8 and 12."""
    ranks = 1
    for axis in ("data", "tensor", "pipeline", "context"):
        ranks *= parallel.get(axis, 1)
    how = dict(steps=12, snapshot={"every": 4, "keep": 3, "busy": "wait"}, batch={"sequences": 8, "micro": 2},
               parallel=dict({"data": 1, "zero": 0}, **parallel))
    return node.train(name, ranks, 0, **dict(how, **changes))


def left_behind(node):
    return [n for n in os.listdir(node.home) if n.startswith(("scratch.", "compare."))]


def traces(path):
    """The blocks of a file: [(facts, rows)], a dict a row."""
    with open(path, "rb") as f:
        data = f.read()
    out, at = [], 0
    while at < len(data):
        magic, kind, version, size = struct.unpack_from("<IHHQ", data, at)
        assert (magic, kind, version) == (0x6b635f63, 8, 1)
        block = data[at:at + size]
        text = lambda o: block[o:block.index(b"\0", o)].decode() if o else ""
        step, begun, rank, ranks = struct.unpack_from("<QQII", block, 32)
        first, count = struct.unpack_from("<II", block, 144)
        rows = []
        for i in range(count):
            r = struct.unpack_from("<IIBBBBBBHiIII5Q5Q5QQQQdddQ", block, first + 208 * i)
            rows.append({"instruction": r[0], "when": r[2], "type": r[4], "rank": r[5], "partial": r[6], "batched": r[7], "micro": r[8],
                         "layer": r[9], "op": text(r[10]), "what": text(r[11]), "tensor": text(r[12]), "whole": r[13:18],
                         "size": r[23:28], "lo": r[28], "count": r[29], "digest": r[30], "sum": r[31], "squares": r[32]})
        out.append(({"step": step, "begun": begun, "rank": rank, "ranks": ranks}, rows))
        at += size
    assert at == len(data)
    return out


def digest_of(values):
    """Of a whole tensor of f32, by the formula of kc-trace(5)."""
    total = 0
    for place, bits in enumerate(struct.unpack(f"<{len(values)}I", values.tobytes())):
        z = (place + 1) * 0x9E3779B97F4A7C15 & MASK
        z = ((z ^ z >> 32) ^ bits) * 0xBF58476D1CE4E5B9 & MASK
        z = (z ^ z >> 27) * 0x94D049BB133111EB & MASK
        total += z ^ z >> 31
    return total & MASK


def test_a_run_is_proved_in_every_layout():
    with Kc() as node:
        for number, layout in enumerate(({},) + LAYOUTS):
            job = train(node, f"layout{number}", layout)
            done = node.kc("snap", "prove", job).stdout
            assert re.match(rf"PROVED  {job} from v00000002, steps 9 to 12: 4 losses and the state_root of v00000003", done), done
        assert not left_behind(node)


def test_what_is_not_the_same_is_found():
    with Kc() as node:
        job = train(node, "wrong", {"data": 2})
        path = node.path(job, "metrics.jsonl")
        lines = open(path).read().splitlines()
        changed = json.loads(lines[10])  # step 11: the last bit of its loss
        bits = struct.unpack("<Q", struct.pack("<d", changed["loss"]))[0] ^ 1
        changed["loss"] = struct.unpack("<d", struct.pack("<Q", bits))[0]
        with open(path, "w") as f:
            f.write("\n".join(lines[:10] + [json.dumps(changed)] + lines[11:]) + "\n")
        found = node.json("snap", "prove", job, ok=(1,))
        assert found["proved"] is False and found["losses_same"] == 2
        assert found["difference"]["what"] == "loss" and found["difference"]["step"] == 11, found
        assert float(found["difference"]["job"]) == changed["loss"] and float(found["difference"]["replay"]) == json.loads(lines[10])["loss"]
        assert node.json("snap", "prove", job, "--from", "1")["proved"]  # steps 5 to 8 are as they were
        assert node.json("snap", "prove", job, "--from", "0")["to"]["version"] == 1
        assert "version 9" in node.kc("snap", "prove", job, "--from", "9", ok=(4,)).stderr
        path = os.path.join(node.folder, "t")
        told = node.kc("trace", job, "--step", "11", "--out", path, "--json", ok=(6,))
        assert json.loads(told.stdout)["same_loss"] is False and "step 11" in told.stderr
        assert node.json("compare", path, f"{job}@11", ok=(6,))["same"]
        assert json.loads(node.kc("trace", job, "--step", "10", "--out", path, "--json").stdout)["same_loss"] is True
        assert not left_behind(node)


def test_a_state_that_is_another_is_found():
    with Kc() as node:
        job = train(node, "other", {"data": 2})
        root = node.snapshots(job)[2]["state_root"]
        path = node.path(job, "spec.json")
        spec = json.load(open(path))
        spec["optimizer"]["weight_decay"] += 1e-6  # no loss of step 9 shows it; the state after it does, and the next loss
        with open(path, "w") as f:
            json.dump(spec, f)
        found = node.json("snap", "prove", job, ok=(1,))
        assert found["losses_same"] >= 1 and found["difference"], found
        assert found["difference"]["what"] == "loss" or found["difference"]["job"] == root


def test_a_job_that_runs_is_proved_beside_it_and_without_kcd():
    with Kc() as node:
        job = node.begin("runs", 2, 0, steps=100000, snapshot={"every": 30, "keep": 2, "busy": "wait"}, batch={"sequences": 8, "micro": 4})
        node.kc("wait", job, "--for", "step>=61")
        assert node.json("snap", "prove", job)["proved"]
        node.kill_kcd()
        before = node.steps(job)[-1]
        assert node.json("snap", "prove", job)["proved"]
        until("the job goes on", lambda: node.steps(job)[-1] > before)
        node.start_kcd()
        node.kc("stop", job)
        assert node.read(job, "state.json")["incarnation"] == 1


def test_what_a_rollback_left_out_is_left_out_again():
    with Kc() as node:
        job = begin_poisoned(node, "poison", [12, 17])
        node.kc("wait", job)
        assert len([e for e in node.events(job, "rollback") if e["rank"] == 0]) == 2
        for version in range(6):
            assert node.json("snap", "prove", job, "--from", str(version))["proved"], version
        said = node.kc("trace", job, "--step", "13", "--out", os.path.join(node.folder, "t")).stderr
        assert "had the loss" not in said, said


def test_a_rollback_that_no_snapshot_tells_is_no_difference():
    with Kc() as node:
        job = begin_poisoned(node, "untold", [900], steps=100000, snapshot={"every": 0, "keep": 100, "busy": "wait"})
        node.kc("wait", job, "--for", "step>=1")
        node.kc("checkpoint", job)
        step = node.snapshots(job)[-1]["step"]
        until("it went back", lambda: node.events(job, "rollback"))
        node.kc("wait", job, "--for", f"step>={step + 2}")
        node.kc("pause", job)
        found = node.kc("snap", "prove", job, ok=(6,))
        assert not found.stdout and f"{job} went back to step {step}" in found.stderr, found
        trace = ("trace", job, "--step", str(step + 1), "--out", os.path.join(node.folder, "t"))
        found = node.kc(*trace, ok=(6,))
        assert f"{job} went back to step {step}" in found.stderr and f"step {step + 1} can't be done again" in found.stderr, found
        node.kc("checkpoint", job)
        assert "had the loss" not in node.kc(*trace).stderr
        assert node.json("snap", "prove", job, "--from", "1")["proved"], "the next snapshot tells what was left out"
        node.kc("stop", job)


def test_one_snapshot_alone_is_proved_by_the_step_after_it():
    with Kc() as node:
        job = node.begin("held", 2, 0, steps=100000, snapshot={"every": 0}, batch={"sequences": 8, "micro": 4})
        node.kc("wait", job, "--for", "step>=3")
        node.kc("pause", job)
        node.kc("checkpoint", job)
        step = node.snapshots(job)[-1]["step"]
        said = node.kc("snap", "prove", job, ok=(6,)).stderr
        assert f"{job} has trained no step after its newest snapshot, v00000001" in said, said
        node.kc("resume", job)
        node.kc("wait", job, "--for", f"step>={step + 2}")
        found = node.json("snap", "prove", job)
        assert found["proved"] and found["to"] is None and (found["first_step"], found["last_step"]) == (step + 1, step + 1), found


def test_a_trace_has_the_digests_of_the_manual():
    with Kc() as node:
        job = train(node, "digests", {"data": 2, "zero": 1})
        path = os.path.join(node.folder, "t")
        node.kc("trace", job, "--step", "9", "--out", path)
        blocks, values = traces(path), snapshot(node.snapshots(job)[1]["path"])[1]
        assert [(b[0]["rank"], b[0]["ranks"], b[0]["step"], b[0]["begun"]) for b in blocks] == [(0, 2, 9, 8), (1, 2, 9, 8)]
        found = {r["tensor"]: r for r in blocks[1][1] if r["what"] == "parameter" and r["when"] == 1}
        assert sorted(found) == sorted(values[0])
        for name in ("transformer.h.0.ln_1.bias", "transformer.h.1.attn.c_attn.bias", "transformer.h.1.mlp.c_proj.weight"):
            assert found[name]["digest"] == digest_of(values[0][name]), name
            assert abs(found[name]["sum"] - sum(values[0][name])) < 1e-9
        # what the update leaves is what the next trace finds: parts of two ranks add up to the whole
        after = os.path.join(node.folder, "after")
        node.kc("trace", job, "--step", "10", "--out", after)
        next_found = {r["tensor"]: r["digest"] for r in traces(after)[0][1] if r["what"] == "parameter" and r["when"] == 1}
        left = {}
        for _, rows in blocks:
            for r in rows:
                if r["op"] == "adamw" and r["what"] == "parameter":
                    left[r["tensor"]] = left.get(r["tensor"], 0) + r["digest"] & MASK
        assert left == next_found


def test_traces_are_made_again_to_the_bit_from_any_snapshot():
    with Kc() as node:
        job = train(node, "again", {"tensor": 2})
        path = os.path.join(node.folder, "t")
        node.kc("trace", job, "--step", "9", "--out", path)
        same = node.json("compare", path, f"{job}@9")
        assert same["same"] and same["by"] == "bits" and same["compared"] > 200, same
        node.kc("snap", "prune", job, "--keep", "1")  # now it begins from the beginning
        again = node.json("compare", path, job + "@9")
        assert again["same"] and again["by"] == "bits"
        assert not left_behind(node)


def test_layouts_are_compared_and_the_first_difference_is_named():
    with Kc() as node:
        # seeded values: what has no gradient but rounding, the biases of keys, stays where it is
        own = {"model": {"init": {"from": None}}, "optimizer": {"lr": 1e-3}}
        one = train(node, "one", {}, **own)
        for number, layout in enumerate(LAYOUTS):
            other = train(node, f"cut{number}", layout, **own)
            assert node.json("compare", one, other)["same"]
            found = node.json("compare", f"{one}@6", f"{other}@6")
            assert found["same"] and found["by"] == "figures" and found["compared"] > 100 and found["left_out"] < 30, found
        faster = train(node, "faster", {"tensor": 2}, model=own["model"], optimizer={"lr": 1.1e-3})
        found = node.json("compare", one, faster, ok=(1,))
        assert found["step"] == 2 and found["by"] == "losses", found  # the first update made it another model
        found = node.json("compare", f"{one}@1", f"{faster}@1", ok=(1,))
        assert (found["first"]["step"], found["first"]["op"], found["first"]["what"]) == (1, "adamw", "parameter"), found
        said = node.kc("compare", f"{one}@2", f"{faster}@2", ok=(1,)).stdout
        assert re.search(r"first difference: step 2, rank 0, \S+ \(instruction \d+\), \S+ \S+", said), said


def test_rows_that_went_to_their_experts_are_no_difference():
    with Kc() as node:
        model = {"family": "moe", "layers": 2, "hidden": 32, "heads": 4, "kv_heads": 2, "ffn": 20, "context": 32, "vocab": 257,
                 "experts": 5, "top_k": 2, "init": {"from": None}}
        how = dict(steps=12, model=model, optimizer={"lr": 1e-3}, batch={"sequences": 8, "micro": 2},
                   snapshot={"every": 4, "keep": 3, "busy": "wait"})
        one = node.train("moe", 1, 0, **how)
        two = node.train("moe2", 2, 0, parallel={"data": 1, "expert": 2, "zero": 0}, **how)
        path = os.path.join(node.folder, "t")
        node.kc("trace", two, "--step", "9", "--out", path)
        node.kc("snap", "prune", two, "--keep", "1")
        assert node.json("compare", path, f"{two}@9")["same"]  # what other steps left behind the rows is not in it
        found = node.json("compare", f"{one}@9", path)
        assert found["same"] and found["by"] == "figures" and found["compared"] > 100, found


def test_a_bit_of_one_layout_is_found():
    with Kc() as node:
        a, b = train(node, "a", {"data": 2}), train(node, "b", {"data": 2}, optimizer={"lr": 1e-2 * (1 + 1e-7)})
        found = node.json("compare", f"{a}@1", f"{b}@1", ok=(1,))
        assert found["by"] == "bits" and found["first"]["op"] == "adamw" and found["first"]["rank"] == 0, found
        assert node.json("compare", f"{a}@1", f"{b}@1", "--tolerance", "1e-4")["same"]


def test_a_file_that_is_no_trace_is_refused():
    with Kc() as node:
        job = train(node, "files", {})
        path, cut = os.path.join(node.folder, "t"), os.path.join(node.folder, "cut")
        node.kc("trace", job, "--step", "2", "--out", path)
        data = open(path, "rb").read()
        for wrong, code in ((data[:-1], 9), (data + b"x", 9), (data[:40000] + b"?" + data[40001:], 9), (b"", 9), (b"hello, this is a text and no trace at all", 8)):
            with open(cut, "wb") as f:
                f.write(wrong)
            node.kc("compare", path, cut, ok=(code,))
        node.kc("compare", path, "nowhere", ok=(4,))
        node.kc("trace", job, "--step", "13", ok=(2,))
        node.kc("trace", job, ok=(2,))
        node.kc("compare", path, path, "--tolerance", "much", ok=(2,))


def test_nothing_is_left_of_one_that_is_interrupted():
    with Kc() as node:
        job = node.train("long", 2, 0, steps=400, snapshot={"every": 200, "keep": 2, "busy": "wait"}, batch={"sequences": 8, "micro": 4})
        kc = subprocess.Popen([os.path.join(BIN, "kc"), "snap", "prove", job, "--from", "0"], env=node.environment,
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        until("it has a folder", lambda: left_behind(node))
        kc.send_signal(signal.SIGTERM)
        assert kc.wait(30) == 128 + signal.SIGTERM
        assert not left_behind(node)
        killed = subprocess.Popen([os.path.join(BIN, "kc"), "snap", "prove", job, "--from", "0"], env=node.environment,
                                  stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        until("it trains", lambda: processes_with("replay") and left_behind(node))
        killed.kill()
        killed.wait()
        until("its ranks are gone", lambda: not [p for p in processes_with(left_behind(node)[0])])
        assert node.json("snap", "prove", job)["proved"]  # and what was left goes
        assert not left_behind(node)


def test_a_rank_that_died_takes_only_those_that_live_with_it():
    """The number of a process that was reaped may be another's: nobody signals it."""
    with Kc() as node:
        job = node.train("long", 3, 0, steps=2, snapshot={"every": 0}, batch={"sequences": 6, "micro": 2}, parallel={"data": 3})
        library, log = os.path.join(node.folder, "log_kill.so"), os.path.join(node.folder, "kills")
        subprocess.run(["gcc", "-shared", "-fPIC", "-D_GNU_SOURCE", os.path.join(os.path.dirname(os.path.abspath(__file__)), "log_kill.c"),
                        "-o", library], check=True)
        replay = subprocess.Popen([os.path.join(BIN, "kc-rank"), "--task", "replay", "--directory", node.path(job), "--until", "1000000"],
                                  env=dict(node.environment, LD_PRELOAD=library, LOG_KILL=log), stdout=subprocess.DEVNULL,
                                  stderr=subprocess.PIPE, text=True)
        ranks = until("its ranks", lambda: len(found := children(replay.pid)) == 3 and found)
        os.kill(ranks[1], signal.SIGKILL)
        assert "killed by signal 9" in replay.communicate(timeout=30)[1] and replay.returncode == 10
        with open(log) as f:
            killed = [line.split() for line in f]
        assert killed and all(result == "0" for _, result in killed), killed


def children(pid):
    with open(f"/proc/{pid}/task/{pid}/children") as f:
        return [int(child) for child in f.read().split()]


if __name__ == "__main__":
    main(globals())
