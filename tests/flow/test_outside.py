#!/usr/bin/env python3
"""What kcd does for programs that are not ours: --textfile (the rules of node_exporter's textfile collector), and --on-event."""
import json, os, re, shutil, signal, subprocess, sys, time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import kc_schema
from kc_flow import BIN, Node, alive, kill, main, until

SAMPLE = re.compile(r'([a-z_:][a-z0-9_:]*)(?:\{((?:[a-z]+="[^"\\]*",?)*)\})? (\S+)$')


def start(node, *options):
    done = node.kcd("--daemon", *options)
    assert done.returncode == 0, (done.stderr, node.log())
    node.kcd_pid = node.request("hello")["pid"]


def samples(text):
    """{(name, labels): value} of a file that keeps the format: HELP and TYPE once, before the samples of a family, which stand
    together, have no time and end in _total if and only if they count."""
    found, families, family = {}, {}, None
    assert text.endswith("\n")
    for line in text.splitlines():
        if line.startswith("# "):
            _, what, name, rest = line.split(" ", 3)
            if what == "HELP":
                assert name not in families, f"{name} twice"
                families[name], family = rest, name
            else:
                assert what == "TYPE" and name == family and rest in ("gauge", "counter"), line
                assert name.endswith("_total") == (rest == "counter"), line
            continue
        match = SAMPLE.match(line)
        assert match and match[1] == family, line
        labels = dict(re.findall(r'([a-z]+)="([^"]*)"', match[2] or ""))
        assert set(labels) <= {"job", "rank", "state", "version"}, line
        key = match[1], tuple(sorted(labels.items()))
        assert key not in found, f"{key} twice"
        found[key] = float(match[3])
    return found


def of_rank(found, name, rank):
    return [v for (n, labels), v in found.items() if n == name and ("rank", str(rank)) in labels]


def test_textfile_has_this_node_and_forgets_the_dead():
    node = Node(start=False)
    with node:
        folder = os.path.join(node.folder, "metrics")
        os.mkdir(folder)
        path = os.path.join(folder, "kuangchao.prom")
        start(node, "--textfile", folder)

        def read():
            with open(path) as f:
                return samples(f.read())

        until("there is a file", lambda: os.path.exists(path))
        assert os.stat(path).st_mode & 0o777 == 0o644, "others read it"
        first = read()
        assert ("kc_build_info" in {n for n, _ in first}) and abs(first["kc_heartbeat_timestamp_seconds", ()] - time.time()) < 60
        job = node.start(steps=100000)
        until("figures of both ranks", lambda: of_rank(read(), "kc_step", 1) and of_rank(read(), "kc_step", 0))
        text = open(path).read()
        if shutil.which("promtool"):
            done = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, text=True)
            assert done.returncode == 0, done.stdout + done.stderr
        else:
            print("skipped promtool: it is not installed")
        # one writer: a second kcd is refused, and changes nothing
        other = Node(home=node.home, start=False)
        done = other.kcd("--daemon", "--textfile", folder)
        assert done.returncode == 10 and "another kcd writes there already" in done.stderr, (done.returncode, done.stderr)
        assert os.path.exists(path)
        shutil.rmtree(other.folder)
        # the keeper dies, and its ranks with it: what they were is not told as what they are
        heartbeat = read()["kc_heartbeat_timestamp_seconds", ()]
        node.request("stop", job=job)
        until("the ended job's samples are gone", lambda: not [k for k in read() if ("job", job) in k[1]])
        assert read()["kc_heartbeat_timestamp_seconds", ()] > heartbeat
        node.shutdown()
        assert os.listdir(folder) == [], "nobody keeps it fresh any more"


def test_textfile_that_cannot_be_written_is_told_at_once():
    with Node(start=False) as node:
        done = node.kcd("--daemon", "--textfile", "/nowhere")
        assert done.returncode == 10 and "--textfile /nowhere: No such file" in done.stderr, (done.returncode, done.stderr)
        done = node.kcd("--daemon", "--on-event", "/nowhere/x")
        assert done.returncode == 10 and "--on-event /nowhere/x" in done.stderr, (done.returncode, done.stderr)


PROGRAM = """#!/bin/sh
# one file for each event; what is on its arguments would be a shell's doing
cat >"%(folder)s/$$.part" && mv "%(folder)s/$$.part" "%(folder)s/$$-$#.event"
"""


def program(node, text):
    path = os.path.join(node.folder, "program")
    with open(path, "w") as f:
        f.write(text)
    os.chmod(path, 0o755)
    return path


def test_events_are_told_to_a_program():
    node = Node(start=False)
    with node:
        folder = os.path.join(node.folder, "told")
        os.mkdir(folder)
        start(node, "--on-event", program(node, PROGRAM % {"folder": folder}))

        def told(event):
            found = []
            for name in os.listdir(folder):
                if name.endswith(".event"):
                    text = open(os.path.join(folder, name)).read()
                    assert name.endswith("-0.event"), "no arguments"
                    if kc_schema.jsonschema:
                        kc_schema.check(text)
                    found.append(json.loads(text))
            return [o for o in found if o["event"] == event]

        good = node.start("good", steps=3)
        finished = until("it has finished", lambda: told("finished"))
        assert [(o["job"], o["state"], o["step"], o["home"]) for o in finished] == [(good, "finished", 3, node.home)]
        events = node.lines(good, "events.jsonl")
        with open(node.path(good, "events.jsonl"), "rb") as f:
            assert json.loads(f.read()[:finished[0]["id"]].splitlines()[-1]) == events[[e["event"] for e in events].index("state") and
                [i for i, e in enumerate(events) if e["event"] == "state" and e["state"] == "finished"][0]], "its id is that of kc events"
        bad = node.start("bad", steps=50, env={"FAKE_DATA_AT": 3})
        failed = until("it has failed", lambda: told("failed"))
        assert [(o["job"], o["state"]) for o in failed] == [(bad, "failed")] and failed[0]["text"], failed
        # what a keeper journals of a hang and of snapshots, which each rank says of its own
        still = node.start("still", steps=100000)
        node.wait_step(still, 1)
        line = {"time": finished[0]["time"], "monotonic_ns": 1, "event": "snapshot-failed", "rank": 0, "step": 7, "text": "no space"}
        with open(node.path(still, "events.jsonl"), "a") as f:
            for change in ({}, {"rank": 1}, {"event": "nothing"}, {"event": "hang", "rank": 1, "step": 9, "text": "no movement"}):
                f.write(json.dumps(dict(line, **change)) + "\n")
        hung = until("it hangs", lambda: told("hung"))
        unsaved = until("a snapshot failed", lambda: told("snapshot-failed"))
        assert [(o["rank"], o["step"], o["text"], o["state"]) for o in hung] == [(1, 9, "no movement", "running")]
        assert [(o["rank"], o["step"], o["text"]) for o in unsaved] == [(0, 7, "no space")], "once a step"
        node.request("stop", job=still)
        assert len(told("finished")) == len(told("failed")) == 1


def test_a_program_that_hangs_holds_nobody_up():
    node = Node(start=False)
    with node:
        pids = os.path.join(node.folder, "pids")
        start(node, "--on-event", program(node, f"#!/bin/sh\ntrap '' ALRM TERM\necho $$ >>{pids}\nexec sleep 1000\n"))
        for i in range(6):
            node.start(f"j{i}", ranks=1, steps=1)
        running = until("four run", lambda: os.path.exists(pids) and len(p := open(pids).read().split()) == 4 and [int(x) for x in p])
        until("all have finished", lambda: all(node.state(f"j{i}-1") == "finished" for i in range(6)))
        assert node.request("hello")["ok"] and len(open(pids).read().split()) == 4, "no more than four at once"
        node.shutdown()
        for pid in running:
            kill(pid)
            until("it is gone", lambda: not alive(pid))


if __name__ == "__main__":
    main(globals())
