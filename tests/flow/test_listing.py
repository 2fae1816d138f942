#!/usr/bin/env python3
"""Listings and events of a real job, as scripts read them: chosen rows in every form, and a stream that is resumed loses
nothing and tells nothing twice."""
import json, os, shutil, signal, subprocess, sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from kc_flow import BIN, main
from kc_train import Kc


def rows(text):
    return [line.split("\t") for line in text.splitlines()]


def test_rows_and_a_stream_that_is_resumed():
    with Kc() as node:
        job = node.train("rows", 2, snapshot={"every": 5, "busy": "wait"})

        def kc(*words, code=0):
            done = node.kc(*words, ok=(code,))
            return done.stdout, done.stderr

        whole = node.events(job)
        assert rows(kc("ps", "--plain", "--cols", "id,state")[0]) == [[job, "finished"]]
        assert kc("ps", "--plain", "--where", "state!=finished")[0] == ""
        assert json.loads(kc("ps", "--json", "--where", "step=20", "--cols", "id,step")[0])["jobs"] == [{"id": job, "step": 20}]
        _, told = kc("ps", "--where", "stat=finished", code=2)
        assert "Did you mean state?" in told, told

        # all events, in order; then the rest behind each of them
        first = json.loads(kc("events", job, "--json")[0])["events"]
        assert [e["event"] for e in first] == [e["event"] for e in whole]
        assert [e["monotonic_ns"] for e in first] == [e["monotonic_ns"] for e in whole]
        for i in (0, len(first) // 2, len(first) - 1):
            rest = json.loads(kc("events", job, "--json", "--since", str(first[i]["id"]))[0])["events"]
            assert rest == first[i + 1:], i
        _, told = kc("events", job, "--since", "999999999", code=2)
        assert "its events end at" in told, told

        # followed: whole lines of JSON, and it ends with the job, which has ended
        lines = kc("events", job, "-f", "--json", "--where", "event=snapshot rank=0")[0].splitlines()
        assert [e["step"] for line in lines for e in json.loads(line)["events"]] == \
            [e["step"] for e in whole if e["event"] == "snapshot" and e["rank"] == 0]

        # a watch ends with Ctrl-C; its reader may leave at any time
        watch = subprocess.Popen([os.path.join(BIN, "kc"), "ps", "--watch=0.1", "--json"], env=node.environment, stdout=subprocess.PIPE, text=True)
        seen = [json.loads(watch.stdout.readline()) for _ in range(3)]
        assert all(o["schema"] == "kc.ps/1" for o in seen)
        watch.send_signal(signal.SIGINT)
        watch.stdout.read()
        assert watch.wait(timeout=20) == 0


def left(node, *words, code=0):
    """The verb while nobody reads; what it says on standard error."""
    read, write = os.pipe()
    os.close(read)
    try:
        done = subprocess.run([os.path.join(BIN, "kc"), *words], env=node.environment, stdout=write, stderr=subprocess.PIPE, text=True,
                              stdin=subprocess.DEVNULL, timeout=30)
    finally:
        os.close(write)
    assert done.returncode == code, (words, done.returncode, done.stderr)
    return done.stderr


def test_a_reader_that_leaves_is_no_error():
    with Kc() as node:
        job = node.train("read", 2, snapshot={"every": 10, "busy": "wait"})
        for words in (("ps",), ("ps", "--json"), ("ps", "--plain"), ("show", job), ("log", job), ("events", job), ("events", job, "--json"),
                      ("snap", "verify", job), ("metrics",), ("help",), ("version",), ("completion", "bash"), ("schema", "ps"), ("hang", job, "--at", "0")):
            assert left(node, *words) == "", words
        # an exit code is what came of it, whoever reads
        assert left(node, "show", "nothing-1", code=4).startswith("kc: ")
        left(node, "wait", job, "--for", "step>=1000", code=1)
        # what is asked for is done to its end
        folder, script = os.path.join(node.folder, "schema"), os.path.join(node.folder, "script")
        with open(script, "w") as f:
            f.write(f"ps\nschema --out {folder}\n")
        assert left(node, "batch", script) == "" and os.path.exists(os.path.join(folder, "ps.json"))
        # a disk that is full is one
        with open("/dev/full", "w") as full:
            done = subprocess.run([os.path.join(BIN, "kc"), "ps"], env=node.environment, stdout=full, stderr=subprocess.PIPE, text=True)
        assert done.returncode == 10 and "can't be written" in done.stderr, (done.returncode, done.stderr)
        # who follows for its reader alone ends with it, also while nothing comes
        held = node.begin("held", steps=100000, snapshot={"busy": "wait"})
        node.kc("wait", held, "--for", "step>=1")
        node.kc("pause", held)
        assert left(node, "log", held, "-f") == ""
        for words in (("events", held, "-f"), ("events", held, "-f", "--json"), ("ps", "--watch=0.1"), ("ps", "--watch=0.1", "--json")):
            follows = subprocess.Popen([os.path.join(BIN, "kc"), *words], env=node.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            assert follows.stdout.readline(), words
            follows.stdout.close()
            assert follows.wait(timeout=20) == 0 and follows.stderr.read() == "", words
        assert node.state(held) == "paused"
        node.kc("stop", held)


BASH = """
source <(kc completion bash)
t() { COMP_WORDS=("$@"); COMP_CWORD=$(($#-1)); COMPREPLY=(); _kc; echo "${COMPREPLY[*]}"; }
t kc snap v; t kc show ''; t kc show x-1 --j; t kc events x-1 --si; t kc comple
"""


def test_shells_complete_what_kc_has():
    with Kc() as node:
        job = node.train("done", 1)
        path = {**node.environment, "PATH": BIN + ":" + os.environ["PATH"]}
        done = subprocess.run(["bash", "-c", BASH], env=path, capture_output=True, text=True, timeout=60)
        assert done.stdout.split("\n")[:5] == ["verify", job, "--json", "--since", "completion"], done
        for shell in ("zsh", "fish"):
            text = node.kc("completion", shell).stdout
            assert all(word in text for word in ("snap", "verify", "--cols" if shell == "zsh" else "-l cols", "kc ps --plain"))
            if shutil.which(shell):
                assert subprocess.run([shell, "-n", "/dev/stdin"], input=text, text=True).returncode == 0, shell
        assert "there are bash, zsh, fish" in node.kc("completion", "tcsh", ok=(2,)).stderr


if __name__ == "__main__":
    main(globals())
