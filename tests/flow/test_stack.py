#!/usr/bin/python3
"""kc stack: the threads of ranks that hang, as one tree, from outside; where tracing is forbidden, from the ranks themselves;
and whoever was looked at goes on as before."""
import json, os, signal, subprocess

from kc_flow import BIN, ROOT, alive, main, until
from kc_train import Kc

SPIN = [{"rank": 2, "step": 4, "phase": "forward", "what": "spin"}]


class Drills(Kc):
    """A node whose jobs may have faults in their specs."""

    def kcd(self, *arguments, **how):
        return super().kcd(*arguments, *(["--allow-drills"] if "--daemon" in arguments else []), **how)


def no_ptrace(node):
    """A program that runs another one without the right to trace."""
    path = os.path.join(node.folder, "no_ptrace")
    if not os.path.exists(path):
        subprocess.run(["gcc", "-O1", os.path.join(ROOT, "tests/flow/no_ptrace.c"), "-o", path], check=True)
    return path


def denied(node, *arguments):
    return subprocess.run([no_ptrace(node), os.path.join(BIN, "kc"), *arguments], env=node.environment, capture_output=True,
                          text=True, timeout=60, stdin=subprocess.DEVNULL)


def state(pid):
    with open(f"/proc/{pid}/stat") as f:
        return f.read().rpartition(")")[2].split()[0]


def nodes(tree):
    for n in tree:
        yield n
        yield from nodes(n["children"])


def ranks_of(answer, function):
    return {r for n in nodes(answer["tree"]) if n.get("function") == function for r in n["ranks"]}


def hung(node, **changes):
    """A job of which rank 2 spins for ever and the others wait for it."""
    job = node.begin(ranks=4, steps=2000, inject=SPIN, stop={"grace_seconds": 1}, **changes)
    node.wait_step(job, 3)

    def stuck():
        answer = node.json("stack", job)
        return answer if all(r["word"] == "stuck" for r in answer["ranks"]) and ranks_of(answer, "spin_for") == {2} else None
    return job, until("rank 2 spins and the others wait", stuck)


# F26: the dump needs nothing of the sick process
def test_f26_one_that_spins_stands_out_and_one_that_is_stopped_is_seen():
    with Drills() as node:
        job, answer = hung(node)
        assert ranks_of(answer, "main") == {0, 1, 2, 3}
        assert {t["way"] for t in answer["threads"]} == {"held"}
        assert {"kc-comm", "kc-watch", "main"} <= {n.get("thread") for n in answer["tree"]}
        at = {r["rank"]: r["at"] for r in answer["ranks"]}
        assert at[2]["function"] == "spin_for" and at[2]["room"] == "drill", at
        assert at[0]["room"] in ("schedule", "comm"), at
        text = node.kc("stack", job).stdout
        assert "stuck  [1] 2  in spin_for (layers/drill/process.c)" in text, text
        assert "[3] 0-1,3\n" in text, text
        one = node.json("stack", f"{job}/2")
        assert [r["rank"] for r in one["ranks"]] == [2]
        assert "no rank 7" in node.kc("stack", f"{job}/7", ok=(4,)).stderr
        # a rank that is stopped stays stopped, and is seen
        pid = node.ranks(job)[1]
        os.kill(pid, signal.SIGSTOP)
        until("rank 1 is stopped", lambda: state(pid) == "T")
        answer = node.json("stack", job)
        assert {t["state"] for t in answer["threads"] if t["rank"] == 1} == {"T"}
        assert ranks_of(answer, "main") == {0, 1, 2, 3}
        assert state(pid) == "T"
        # with kcd dead as well
        node.kill_kcd()
        assert ranks_of(node.json("stack", job), "spin_for") == {2}
        os.kill(pid, signal.SIGCONT)
        node.start_kcd()


def test_without_the_right_ranks_are_asked_and_the_right_is_named():
    with Drills() as node:
        job, _ = hung(node, threads=9)
        threads = json.loads(denied(node, "stack", job, "--json").stdout)["threads"]
        assert len(threads) == 4 * 13 and {t["way"] for t in threads} == {"asked"}, threads  # more than the board takes at once
        done = denied(node, "stack", job)
        assert done.returncode == 0, done
        assert "tracing is refused here" in done.stdout and "--cap-add=SYS_PTRACE" in done.stdout, done.stdout
        assert "note   [4] 0-3  " in done.stdout, done.stdout
        assert "stuck  [1] 2  in spin_for (layers/drill/process.c)" in done.stdout, done.stdout
        # a rank that is stopped hears nothing: it is said, and it stays so
        pid = node.ranks(job)[1]
        os.kill(pid, signal.SIGSTOP)
        until("rank 1 is stopped", lambda: state(pid) == "T")
        done = denied(node, "stack", job)
        assert done.returncode == 6 and "it is stopped, or the kernel holds it" in done.stdout, done
        assert state(pid) == "T"
        os.kill(pid, signal.SIGCONT)
        # asked so often, they still run: nobody has left, and it stops as ever
        assert all(alive(pid) for pid in node.ranks(job))


def test_a_run_that_is_looked_at_all_the_time_has_the_same_bits():
    with Kc() as node:
        plain = node.root(node.train(ranks=2, steps=60))
        job = node.begin(ranks=2, steps=60)
        looks = 0
        while not node.read(job, "result.json"):
            (denied(node, "stack", job) if looks % 2 else node.kc("stack", job, ok=(0, 5, 6)))
            looks += 1
        assert looks > 0
        assert node.root(job) == plain
        assert "no rank of it runs now" in node.kc("stack", job, ok=(5,)).stderr


if __name__ == "__main__":
    main(globals())
