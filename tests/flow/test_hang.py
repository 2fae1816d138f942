"""kc hang on real jobs: ranks that are stopped, that stand in a pipe, that are gone; without kcd; kept in a folder and read again.
The drills (test_drills.py) go through all verdicts; here is what a person types."""
import json, os, re, signal

from kc_flow import kill, kill_all, main, until
from kc_screen import Screen
from kc_train import Kc


class Drilled(Kc):
    def start_kcd(self):
        done = self.kcd("--daemon", "--allow-drills")
        assert done.returncode == 0, (done.returncode, done.stderr, self.log())
        self.kcd_pid = self.request("hello")["pid"]


def hang(node, what, *options, code=1):
    answer = json.loads(node.kc("hang", what, "--json", *options, ok=(code,)).stdout)
    assert answer["schema"] == "kc.hang/1" and answer["hung"] == (code == 1), answer
    for v in answer["verdicts"]:
        assert v["evidence"] and v["owner"] and v["next"], v
    return answer


def only(answer, word, rank):
    assert len(answer["verdicts"]) == 1, answer
    v = answer["verdicts"][0]
    assert (v["word"], v["ranks"]) == (word, [rank]), v
    return v


def begin(node, **changes):
    """Three ranks, some steps in; no hang of theirs is acted upon."""
    job = node.begin("h", 3, steps=10**6, batch={"sequences": 6, "micro": 2}, **changes)
    node.wait_step(job, 3)
    return job, node.ranks(job)


def standing(node, verdict, *places):
    """kc comm tells the same operation, of the job and of the board that was kept. Rank 1 was stopped before it came to it, or in it."""
    for what in places:
        g = next(g for g in node.json("comm", what)["groups"] if g["group"] == verdict["group"])
        assert g["sequence"] == verdict["sequence"] and verdict["operation"].startswith(g["operation"]), (g, verdict)
        came = [r["rank"] for r in g["ranks"] if r["place"] == "started"]
        assert came in ([0, 2], [0, 1, 2]) and (g["members"], g["started"], g["done"]) == (3, len(came), 0), g
        assert g["waits_for"] == (None if 1 in came else 1) and g["stands_seconds"] > 0, g
        assert g["measured"] > 0 and g["bytes_per_second"] > 0 and g["done_sequence"] < g["sequence"], g
        rows = node.kc("comm", what, "--plain", "--cols", "channel,sequence", "--where", "done=0 stands_seconds>0").stdout
        assert f"{g['channel']}\t{g['sequence']}\n" in rows, rows
    # the oldest that stands, once it has for a second: where rank 1 was stopped in the one before, that, which the others have left
    told = f"{len(came)}/3 came, 0 done{'' if 1 in came else ', not rank 1'}"
    before = re.compile(f"#{g['sequence'] - 1} .* 3/3 came, [12] done")

    def page_tells():
        page = node.kc("comm", places[0]).stdout
        return told in page or before.search(page)

    until("it is told", page_tells)


def test_a_stopped_rank_also_without_kcd_and_later_from_the_folder():
    with Kc() as node:
        job, pids = begin(node)
        assert hang(node, job, code=0)["verdicts"] == []
        kill(pids[1], signal.SIGSTOP)
        until("it stands", lambda: json.loads(node.kc("hang", job, "--json", ok=(0, 1)).stdout)["hung"])
        folder = os.path.join(node.folder, "a", "kept")
        v = only(hang(node, job, "--dump", folder), "stopped", 1)
        assert v["victims"] == 2 and v["next"] == f"kill -CONT {pids[1]}" and v["owner"] == "operations", v
        assert v["operation"].startswith("all-reduce") and v["group"] and v["sequence"] > 0, v
        standing(node, v, job, folder)
        wanted = {"board", "looks.json", "verdict.json", "verdict.txt", "stacks.txt", "spec.json"}
        assert wanted <= set(os.listdir(folder)), os.listdir(folder)
        assert os.stat(folder).st_mode & 0o777 == 0o700
        with open(os.path.join(folder, "verdict.json")) as f:
            assert only(json.load(f), "stopped", 1)["sequence"] == v["sequence"]
        node.kc("hang", job, "--dump", folder, ok=(5,))
        screen = Screen(node, "watch", job)
        try:
            screen.press(b"7")
            until("the screen tells it", lambda: screen.shows(f"kill -CONT {pids[1]}".encode()))
            screen.press(b"G")
            until("and where its ranks stand", lambda: screen.shows(b"layers/") or screen.press(b"G"))
        finally:
            screen.close()
        node.kill_kcd()
        assert only(hang(node, job), "stopped", 1)["sequence"] == v["sequence"]
        node.start_kcd()
        with open(f"/proc/{pids[1]}/stat") as f:
            assert f.read().rsplit(")", 1)[1].split()[0] == "T", "a stopped rank stays stopped"
        kill(pids[1], signal.SIGCONT)
        step = node.steps(job)[-1]
        node.wait_step(job, step + 3)
        assert hang(node, job, code=0)["verdicts"] == []
        node.kc("pause", job)
        assert hang(node, job, code=0)["verdicts"][0]["word"] == "idle"
        node.kc("resume", job)
        node.kc("stop", job)
        assert "stopped" in hang(node, job, code=0)["text"]
        assert "has no board" in node.kc("comm", job).stderr
        assert node.json("comm", job, "--at", "0")["groups"], "as it was, from its recording"
        assert only(hang(node, folder), "stopped", 1)["text"] == v["text"], "the folder tells the same for ever"


def test_the_file_that_a_rank_stands_in_and_what_it_left_in_the_postmortem():
    with Drilled() as node:
        job, pids = begin(node, inject=[{"rank": 2, "step": 5, "phase": "data", "what": "block"}],
                          policy={"hang_floor_seconds": 1, "hang_ceiling_seconds": 2, "on_hang": "report"})
        path = until("a hang was found", lambda: next((e["path"] for e in node.events(job, "postmortem")), None))
        v = only(hang(node, job), "blocked-in-io", 2)
        assert ".fifo" in v["text"] and v["layer"] == "jobs" and v["owner"] == "models", v
        folder = path if os.path.isabs(path) else node.path(job, path)
        assert only(hang(node, folder), "blocked-in-io", 2)["sequence"] == v["sequence"]
        assert "stacks.txt" not in os.listdir(folder), "policy report holds nobody"
        kill_all(pids)
        node.kc("stop", job, ok=(0, 1))


class Told(Kc):
    """Its kcd hands what happens to a program, which keeps it."""
    def start_kcd(self):
        program = os.path.join(self.folder, "program")
        with open(program, "w") as f:
            f.write(f"#!/bin/sh\ncat >{self.folder}/$$.part && mv {self.folder}/$$.part {self.folder}/$$.told\n")
        os.chmod(program, 0o755)
        done = self.kcd("--daemon", "--on-event", program)
        assert done.returncode == 0, (done.stderr, self.log())
        self.kcd_pid = self.request("hello")["pid"]

    def told(self, event):
        found = [json.load(open(os.path.join(self.folder, n))) for n in os.listdir(self.folder) if n.endswith(".told")]
        return [o for o in found if o["event"] == event]


def test_a_hang_is_handed_to_the_program_of_on_event():
    with Told() as node:
        job, pids = begin(node, policy={"hang_floor_seconds": 1, "hang_ceiling_seconds": 2, "on_hang": "report"})
        kill(pids[1], signal.SIGSTOP)
        told = until("the program was told", lambda: node.told("hung"))
        assert [o["job"] for o in told] == [job], told
        kill(pids[1], signal.SIGCONT)
        node.kc("stop", job)


def test_words_for_what_is_not_there():
    with Kc() as node:
        assert node.kc("hang", "nobody-1", ok=(4,)).stderr.count("\n") == 1
        assert node.kc("hang", "/nowhere/board", ok=(4,)).stderr.count("\n") == 1
        path = os.path.join(node.folder, "junk")
        with open(path, "wb") as f:
            f.write(b"x" * 10000)
        assert node.kc("hang", path, ok=(9,)).stderr.count("\n") == 1
        assert node.kc("comm", path, ok=(9,)).stderr.count("\n") == 1


if __name__ == "__main__":
    main(globals())
