#!/usr/bin/env python3
"""kc profile on real jobs: what it names is what the plan has, times sum up to the step, the trace file is a whole one, and
whatever it cannot show is told in one line. Which figures are good is not tested here."""
import json, os, re, sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from kc_flow import ROOT, alive, kill, main, until
from kc_train import Kc

OPS = re.findall(r'^(?:OPCODE\(\w+,\s*"([^"]+)"|RETIRED\()', open(os.path.join(ROOT, "jobs/models/opcodes.def")).read(), re.M)
LONG = dict(steps=1000000, model={"init": {"from": None}}, batch={"sequences": 16, "micro": 4})


def begin(node, *arguments, **changes):
    job = node.begin(*arguments, **dict(LONG, **changes))
    node.kc("wait", job, "--for", "step>=2")
    return job


def graph_ops(node, job):
    """Names of the model's ops, from the plan that `kc check` prints; and all of it."""
    checked = node.json("check", node.path(job, "spec.json"))
    return {OPS[op["opcode"]] for op in checked["shard_plan"]["ops"]}, checked


def rows(profile, lane):
    return {r["name"]: r for r in profile["rows"] if r["lane"] == lane}


def near(a, b, share=1e-6):
    return abs(a - b) <= share * max(abs(a), abs(b))


def check_sums(profile):
    """Of every rank, and with one or two ranks (whose median is their mean) of all: rows and waiting make the step."""
    for rank in profile["ranks"]:
        compute, comm = rank["compute"], rank["comm"]
        assert near(compute["busy_seconds"] + compute["waiting_seconds"], rank["step_seconds"]), rank
        assert near(comm["busy_seconds"] + comm["waiting_seconds"], rank["step_seconds"]), rank
        c = rank["communication"]
        assert 0 <= c["overlapped_seconds"] <= min(c["total_seconds"], compute["busy_seconds"]) + 1e-9, rank
        assert c["exposed_seconds"] == compute["waiting_seconds"] and c["agree_seconds"] <= c["total_seconds"]
    mean = lambda key: sum(r["compute"][key] for r in profile["ranks"]) / len(profile["ranks"])
    assert near(sum(r["seconds"] for r in rows(profile, "compute").values()), mean("busy_seconds"))
    assert near(mean("busy_seconds") + mean("waiting_seconds"), profile["step_seconds"])
    assert near(sum(r["share"] for r in profile["rows"] if r["lane"] == "compute") +
                mean("waiting_seconds") / profile["step_seconds"], 1)


def check_trace(path, ranks, steps, instructions):
    """Every thread's events follow one another; each step has every instruction of each rank once. `instructions`: how
    many, by rank."""
    with open(path) as f:
        events = json.load(f)["traceEvents"]
    named = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["ph"] == "M" and e["name"] == "thread_name"}
    assert sorted(named.values()) == sorted(["compute", "comm", "steps"] * ranks), named
    assert sum(e["name"] == "process_name" for e in events) == ranks
    seen, end = {}, {}
    for e in events:
        assert e["ph"] in "MX" and 0 <= e["pid"] < ranks
        if e["ph"] == "M":
            continue
        key = (e["pid"], e["tid"])
        assert key in named and e["ts"] >= 0 and e["dur"] >= 0, e
        assert e["ts"] >= end.get(key, 0) - 2e-3, (e, end[key])  # nanoseconds, written as microseconds
        end[key] = e["ts"] + e["dur"]
        if e["cat"] in ("compute", "communication"):
            assert ("collective" in e["args"]) == (e["cat"] == "communication"), e
            seen.setdefault((e["pid"], e["args"]["step"]), []).append(e["args"]["instruction"])
    assert len(seen) == ranks * steps
    for key, found in seen.items():
        assert sorted(found) == list(range(instructions[key[0]])), key
    return events


def test_one_rank():
    with Kc() as node:
        job = begin(node)
        trace = os.path.join(node.folder, "trace.json")
        profile = node.json("profile", job, "--steps", "4", "--trace", trace)
        ops, checked = graph_ops(node, job)
        assert profile["schema"] == "kc.profile/1" and profile["complete"] and profile["job"] == job
        assert profile["steps"] == 4 and profile["last_step"] - profile["first_step"] >= 3
        compute = rows(profile, "compute")
        always = {n for n in ops if n.endswith((".i", ".w"))} | {"load", "embed", "layernorm", "attention", "adamw", "norm"}
        assert always <= set(compute), always - set(compute)
        assert {n for n in compute if n in OPS} <= ops | {"adamw", "norm"}
        check_sums(profile)
        plan = checked["shard_plan"]
        micro_batches = plan["micro_batches"]
        for name in ("linear", "attention.i"):
            calls = sum(OPS[op["opcode"]] == name for op in plan["ops"]) * micro_batches
            flops = sum(op["flops"] for op in plan["ops"] if OPS[op["opcode"]] == name) * micro_batches
            assert compute[name]["calls"] == calls
            assert near(compute[name]["flops_per_second"] * compute[name]["seconds"], flops), name
            assert (compute[name]["share_of_peak"] or 1) > 0
        adamw = compute["adamw"]  # 16 flops an element; gradient read, parameter and both moments read and written
        assert near(adamw["flops_per_second"] * adamw["seconds"] * 28, adamw["bytes_per_second"] * adamw["seconds"] * 16)
        assert adamw["flops_per_second"] * adamw["seconds"] / 16 >= checked["parameters"] * (1 - 1e-6)
        by_instruction = node.json("profile", job, "--steps", "1", "--by", "instruction")
        check_trace(trace, 1, 4, [len(by_instruction["rows"])])
        assert {r["calls"] for r in by_instruction["rows"]} == {1}
        layers = node.json("profile", job, "--steps", "1", "--by", "layer")
        assert {r["layer"] for r in layers["rows"]} == {None, 0, 1}
        check_sums(layers)


def test_ranks_and_their_collectives():
    with Kc() as node:
        job = begin(node, "pair", 2, 1, batch={"micro": 2})
        trace = os.path.join(node.folder, "trace.json")
        profile = node.json("profile", job, "--trace", trace)
        _, checked = graph_ops(node, job)
        assert [r["rank"] for r in profile["ranks"]] == [0, 1] and profile["slowest_rank"] in (0, 1)
        check_sums(profile)
        buckets = len(checked["shard_plan"]["buckets"])
        comm = rows(profile, "comm")
        assert {n: r["calls"] for n, r in comm.items()} == {"reduce-scatter gradient": buckets, "all-gather parameter": buckets,
                                                            "all-reduce agree": 1}
        for r in profile["rows"]:
            assert r["slowest_seconds"] >= r["seconds"] and r["slowest_rank"] in (0, 1)
        one = [node.json("profile", job, "--steps", "1", "--by", "instruction", "--rank", str(r)) for r in (0, 1)]
        assert [[r["rank"] for r in o["ranks"]] for o in one] == [[0], [1]]
        both = node.json("profile", job, "--steps", "1", "--by", "instruction")["rows"]
        assert {r["calls"] for r in both} == {1}  # programs differ in their tails, and no row is half a call
        assert all(r["ranks"] == 2 for r in both if r["lane"] == "comm" or r["micro"] is not None)
        events = check_trace(trace, 2, 5, [len(o["rows"]) for o in one])  # shards differ: so do the updates
        gradients = [e for e in events if e["name"] == "reduce-scatter gradient"]
        assert {e["args"]["bucket"] for e in gradients} == set(range(buckets))
        assert {("micro" in e["args"]) for e in events if e["name"] in ("load", "embed")} == {True}
        assert not [e for e in events if "micro" in e["args"] and e["name"] in ("adamw", "norm", "all-reduce agree")]
        assert all(re.fullmatch(r"[\w.]+#\d+", e["args"]["collective"]) for e in gradients)
        shown = node.kc("profile", job, "--steps", "2").stdout
        for text in ("COMPUTE", "PEAK is the share of ", "COMMUNICATION", "LANES", "reduce-scatter gradient", "waiting for communication", "AGREE"):
            assert text in shown, (text, shown)
        assert node.state(job) == "running"


def test_what_cannot_be_shown_is_told():
    with Kc() as node:
        def told(code, *words, text):
            done = node.kc("profile", *words, ok=(code,))
            assert re.fullmatch(r"kc: [^\n]*\n", done.stderr) and text in done.stderr, done.stderr
            assert done.stdout == ""
            error = json.loads(node.kc("profile", *words, "--json", ok=(code,)).stdout)
            assert error["schema"] == "kc.error/1" and error["code"] == code
        job = begin(node)
        told(4, "nobody-1", text="nobody-1")
        told(4, job, "--rank", "1", text="has no rank 1")
        for words, text in (((job, "--steps", "0"), "1 to 100"), ((job, "--steps", "x"), "1 to 100"),
                            ((job, "--rank", "-1"), "0 to 63"), ((job, "--by", "size"), "op, layer or instruction"),
                            ((job, "--timeout", "soon"), "not a time"), ((job, "--trace", node.folder), "none")):
            told(2, *words, text=text)
        told(4, job, "--trace", os.path.join(node.folder, "none", "x.json"), text="none")
        late = node.kc("profile", job, "--steps", "100", "--timeout", "1ms", ok=(7,))
        assert re.search("no whole step ended within 1ms|of 100 steps: the time is over", late.stderr), late.stderr
        node.kc("stop", job)
        told(5, job, text="is stopped: its trace went with its board")
        assert not [f for f in os.listdir(node.folder) if "tmp" in f]


def test_a_paused_job_shows_its_last_steps():
    with Kc() as node:
        job = begin(node)
        node.kc("pause", job)
        shown = node.kc("profile", job, "--steps", "3", "--json")
        profile = json.loads(shown.stdout)
        assert "is paused: these are the last steps" in shown.stderr and profile["state"] == "paused"
        assert profile["last_step"] == node.json("show", job)["job"]["step"]
        check_sums(profile)
        few = node.kc("profile", job, "--steps", "100", "--json", ok=(6,))
        profile = json.loads(few.stdout)
        assert not profile["complete"] and 3 <= profile["steps"] < 100 and "of 100 steps" in few.stderr
        node.kc("resume", job)
        assert node.json("profile", job, "--steps", "2")["first_step"] > profile["last_step"]


def test_a_job_that_ends_meanwhile_shows_what_was_seen():
    with Kc() as node:
        job = begin(node, steps=400)
        done = node.kc("profile", job, "--steps", "100", "--json", ok=(0, 6))
        while done.returncode == 0:  # until it ends within the 100
            done = node.kc("profile", job, "--steps", "100", "--json", ok=(0, 5, 6))
        assert done.returncode == 6 or "trace" in done.stderr
        if done.returncode == 6:
            profile = json.loads(done.stdout)
            assert 1 <= profile["steps"] < 100 and profile["last_step"] <= 400 and not profile["complete"]


def test_a_board_that_its_keeper_left_is_read():
    with Kc() as node:
        job = begin(node, ranks=1)
        ranks, keeper = node.ranks(job), node.keeper(job)
        node.kill_kcd()
        kill(keeper)
        until("the rank has left", lambda: not any(alive(p) for p in ranks))
        shown = node.kc("profile", job, "--steps", "2", "--json")
        assert "without its keeper: these are the last steps" in shown.stderr
        check_sums(json.loads(shown.stdout))
        node.start_kcd()  # which takes the board away and goes on with the job
        node.wait(job, "running")


def test_another_plan_is_refused():
    """A spec that was changed under a running job would give other names to its instructions."""
    with Kc() as node:
        job = begin(node)
        path = node.path(job, "spec.json")
        with open(path) as f:
            spec = json.load(f)
        spec["model"]["layers"] += 1
        os.rename(path, path + ".kept")
        with open(path, "w") as f:
            json.dump(spec, f)
        done = node.kc("profile", job, ok=(8,))
        assert "runs another shard_plan" in done.stderr and done.stdout == ""
        os.rename(path + ".kept", path)
        assert node.json("profile", job, "--steps", "1")["complete"]


if __name__ == "__main__":
    main(globals())
