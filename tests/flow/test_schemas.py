#!/usr/bin/env python3
"""What every verb prints with --json is what `kc schema` says (F53, F55): kc_train.py holds it for each verb that a flow test
calls; here all of them are called once, those that take long in the tests of their own."""
import json, os, sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import kc_schema
from kc_flow import BIN, ROOT, main, until
from kc_train import GOLDEN, Kc

# who calls the verbs that are not called here, through Kc.kc()
ELSEWHERE = {"on-event": "test_outside.py", "bench step": "test_bench.py", "bench comm": "test_bench.py", "bench snapshot": "test_bench.py",
             "snap prove": "test_replay.py"}


def test_the_validator_is_there_and_refuses():
    assert kc_schema.jsonschema, "python3-jsonschema is not installed: tools/deps"
    good = {"schema": "kc.version/1", "generated_at": "2026-11-29T18:42:43.120Z", "version": "1"}
    assert kc_schema.check(json.dumps(good)) == {"kc.version/1"}
    for wrong in ({"version": 1}, {"other": 1}, {"version": None}, {"schema": "kc.ps/1"}):
        try:
            kc_schema.check(json.dumps(dict(good, **wrong)))
        except AssertionError:
            continue
        raise AssertionError(f"{wrong} passed")


def test_schemas_are_schemas_and_are_installed_as_files():
    with Kc(start=False) as node:
        folder = os.path.join(node.folder, "schema")
        rows = node.json("schema")["schemas"]
        assert node.json("schema", "--out", folder)["files"] == len(rows) == len(os.listdir(folder))
        for row in rows:
            schema = kc_schema.published(row["verb"])
            kc_schema.jsonschema.Draft202012Validator.check_schema(schema)
            assert schema["$id"].endswith(row["schema"])
            with open(os.path.join(folder, row["schema"][3:-2] + ".json")) as f:
                assert json.load(f) == schema
        assert node.json("schema", "snap", "ls")["json_schema"] == kc_schema.published("snap ls")


def look_at_what_runs(node):
    job = node.begin("runs", 2, steps=1000000, snapshot={"busy": "wait"}, env={})
    node.kc("wait", job, "--for", "step>=3")
    for words in (("ps",), ("show", job), ("ranks", job), ("comm", job), ("stack", job), ("metrics", job), ("profile", job, "--steps", "2"), ("checkpoint", job),
                  ("snap", "ls", job), ("wait", job, "--for", "step>=3"), ("tensor", job, "--stats"), ("node",), ("why", job), ("govern", job), ("pause", job),
                  ("show", job), ("resume", job)):
        node.json(*words)
    node.json("hang", job, ok=(0, 1))
    device = node.json("node")["devices"][0]["name"]
    node.json("node", "drain", device, "--reason", "a test")
    node.json("node", "return", device)
    node.json("stop", job)
    for words in (("events", job, "-f"), ("log", job, "-f"), ("rm", job)):
        node.kc(*words, "--json")


def look_at_what_ended(node, spec):
    job = node.json("start", spec, "--wait")["job"]["id"]
    file = os.path.join(node.folder, "lines")
    trace = os.path.join(node.folder, "a.trace")
    model = os.path.join(node.folder, "out")
    with open(file, "w") as f:
        f.write("ps\nstart x # a comment\n")
    for words in (("show", job), ("events", job), ("log", job), ("replay", job), ("replay", job, "--at", "0"), ("show", job, "--at", "0"),
                  ("ranks", job, "--at", "0"), ("hang", job, "--at", "0"), ("metrics",), ("metrics", job), ("metrics", "--textfile", node.folder), ("why", job), ("wait", job), ("stop", job), ("snap", "ls", job), ("snap", "show", job),
                  ("snap", "verify", job, "--deep"), ("snap", "diff", job, job), ("snap", "prune", job, "--dry-run"),
                  ("snap", "restore", job, "--dry-run"), ("snap", "export", job, "--out", model), ("snap", "import", model, "--name", "again"),
                  ("snap", "ls", "again"), ("tensor", job), ("sample", job, "--prompt", "a", "--tokens", "2"), ("trace", job, "--step", "11", "--digest", "--out", trace),
                  ("compare", trace, trace), ("compare", job, job), ("check", spec), ("plan", spec), ("drill", "--dry-run"), ("boundary", "doc", "--root", ROOT),
                  ("data", "info", os.path.join(GOLDEN, "train.bin")),
                  ("data", "prepare", "--out", os.path.join(node.folder, "tokens"), file), ("completion", "bash"), ("history",), ("config",), ("config", "--default"), ("version",), ("help",), ("help", "ps")):
        node.kc(*words, "--json")
    node.kc("batch", file, "--dry-run", "--json")
    node.json("boundary", "check", "--root", ROOT, ok=(0, 1))  # what it says of this tree is told by tests/run


def test_every_verb_answers_as_its_schema_says():
    with Kc() as node:
        look_at_what_ended(node, node.write_spec("ended", 2, snapshot={"every": 5, "busy": "wait"}))
        look_at_what_runs(node)
        node.json("schema")
        node.json("show", "nothing-1", ok=(4,))
        node.json("shutdown")
        until("kcd has ended", lambda: not os.path.exists(f"/proc/{node.kcd_pid}"))
        verbs = {row["verb"]: row["schema"] for row in node.json("schema")["schemas"]}
        missed = {verb for verb, name in verbs.items() if name not in node.schemas and verb not in ELSEWHERE}
        assert not missed, f"no test calls these with --json: {missed}"
    for verb, test in ELSEWHERE.items():
        with open(os.path.join(ROOT, "tests/flow", test)) as f:
            assert verb.split()[-1] in f.read(), (verb, test)


if __name__ == "__main__":
    main(globals())
