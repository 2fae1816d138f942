#!/usr/bin/env python3
"""kcd and keepers with fake ranks (fake_rank.c): life, death and restarts, requests in every state, and what is left."""
import json, os, pwd, signal, subprocess, sys, tempfile, time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from kc_flow import *


def whole(node, job, steps):
    """Every step stands once, in order."""
    assert node.steps(job) == list(range(1, steps + 1)), node.steps(job)


# ---- the plain life ----

def test_start_to_finished():
    with Node() as node:
        job = node.start("demo", steps=20)
        assert job == "demo-1"
        node.wait(job, "finished")
        whole(node, job, 20)
        result = node.read(job, "result.json")
        assert result["state"] == "finished" and result["exit_code"] == 0 and result["step"] == 20
        assert result["loss"] == 0.25 and result["validation_loss"] == 2.5 and result["first_failure"] is None
        assert result["state_root"] == "%016x%016x" % (2**64 - 21, 20) and result["seconds"] > 0.1
        line = node.lines(job, "metrics.jsonl")[2]
        assert list(line) == ["step", "loss", "grad_norm", "lr", "tokens", "seconds", "tokens_per_second"]
        assert open(node.path(job, "metrics.jsonl")).readlines()[2].startswith('{"step":3,"loss":1.6666666666666667,')
        assert node.lines(job, "metrics.jsonl")[-1] == {"step": 20, "validation_loss": 2.5}
        assert all(e["time"].endswith("Z") and e["monotonic_ns"] > 0 for e in node.events(job))
        begun = node.events(job, "started")
        assert begun and all(set(e) == {"time", "monotonic_ns", "event", "rank", "step"} and e["step"] == 0 for e in begun), begun
        assert all("version" in e and "a" not in e for e in node.events(job, "snapshot"))
        assert node.start("demo", steps=1) == "demo-2"


def test_ids_are_never_reused():
    with Node() as node:
        for n in (1, 2):
            node.wait(node.start("a", steps=1), "finished")
        node.request("remove", job="a-2")
        assert not os.path.exists(node.path("a-2"))
        assert node.start("a", steps=1) == "a-3"
        node.wait("a-3", "finished")


def test_what_a_rank_inherits():
    """stdin null, output to the log, an allow-list of the environment, umask 077, a session of its own, no stray descriptor."""
    with Node(environment={"SECRET_OF_THE_USER": "x", "LC_TIME": "C", "KC_RANK": "9"}) as node:
        job = node.start("env", steps=2000, env={"MINE": "1"})
        node.wait(job, "running")
        ranks = node.ranks(job)
        for rank, pid in enumerate(ranks):
            environ = dict(e.split("=", 1) for e in open(f"/proc/{pid}/environ").read().split("\0") if e)
            assert "SECRET_OF_THE_USER" not in environ and environ["LC_TIME"] == "C" and environ["MINE"] == "1"
            assert environ["KC_RANK"] == str(rank) and environ["KC_JOB"] == job and environ["KC_HOME"] == node.home
            assert environ["KC_INSTANCE"] == node.instance and environ["KC_JOB_DIR"] == node.path(job) and environ["KC_CPUS"]
            assert os.getsid(pid) == pid
            assert "Umask:\t0077" in open(f"/proc/{pid}/status").read()
            links = {int(fd): os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")}
            assert links[0] == "/dev/null" and links[1] == links[2] == node.path(job, f"rank-{rank}.log"), links
            assert sum("kc-window" in l for l in links.values()) == 2 and sum("kc-copy" in l for l in links.values()) == 2
            strays = [l for l in links.values() if "sock" in l or "eventpoll" in l or l.endswith(".lock")]
            assert not [l for l in strays if "devices" not in l], links
            blocked = [l for l in open(f"/proc/{pid}/status") if l.startswith("SigBlk")][0].split()[1]
            assert int(blocked, 16) == 0
        assert open(f"/proc/{ranks[0]}/cmdline").read().split("\0")[0] == "kc-rank"
        node.request("stop", job=job)


# ---- deaths ----

def test_killed_rank_restarts():
    """kill -9 of a rank: named with its signal, no out-of-memory without evidence (F08); restarted from the newest snapshot."""
    with Node() as node:
        job = node.start(steps=60, env={"FAKE_SNAPSHOT_EVERY": 10})
        node.wait_step(job, 25)
        old = node.ranks(job)
        kill(old[1])
        record = until("the second incarnation", lambda: (r := node.read(job, "state.json"))["incarnation"] == 2 and r)
        failure = record["last_fault"]
        assert record["first_failure"] is None and failure["rank"] == 1 and failure["reason"] == "signal" and failure["step"] >= 24
        assert "killed by someone (signal 9, SIGKILL)" in failure["text"] and "1 other followed" in failure["text"], (failure, node.events(job))
        node.wait(job, "finished")
        whole(node, job, 60)
        assert not any(map(alive, old))
        assert node.read(job, "result.json")["first_failure"] is None, "it was survived"
        assert node.read(job, "state.json")["last_fault"]["rank"] == 1
        assert node.events(job, "fault")[0]["action"] == "restart"


def test_restart_limit():
    with Node() as node:
        job = node.start(steps=50, env={"FAKE_KILL_AT": 3, "FAKE_ONLY_RANK": 0, "FAKE_UNTIL": 99}, policy={"max_restarts": 2})
        record = node.wait(job, "failed")
        assert record["restarts"] == 2 and record["incarnation"] == 3 and record["first_failure"]["step"] == 3
        assert record["first_failure"] == record["last_fault"] == node.read(job, "result.json")["first_failure"]
        assert record["first_failure"]["text"].endswith("; restarts are used up (2 of 2 without progress)"), record
        assert all(("exit_code" in e) != ("signal" in e) for e in node.events(job, "rank-exit"))
        assert node.read(job, "result.json")["exit_code"] == 1


def test_deterministic_failure_is_not_restarted_for_ever():
    with Node() as node:
        job = node.start(steps=50, env={"FAKE_ERROR_AT": 3, "FAKE_ONLY_RANK": 1, "FAKE_UNTIL": 99}, policy={"max_restarts": 9})
        record = node.wait(job, "failed")
        assert record["restarts"] == 1 and "a made-up error" in record["first_failure"]["text"]
        assert record["first_failure"]["text"].endswith("; the same fault at the same step again"), record


def test_policy_stop():
    with Node() as node:
        job = node.start(steps=50, env={"FAKE_KILL_AT": 3, "FAKE_ONLY_RANK": 0}, policy={"on_crash": "stop"})
        assert node.wait(job, "failed")["restarts"] == 0
        first = job
        job = node.start(steps=50, env={"FAKE_DATA_AT": 3, "FAKE_ONLY_RANK": 0})
        record = node.wait(job, "failed")
        assert record["restarts"] == 0 and record["first_failure"]["reason"] == "data"
        for job in (first, job):
            states = [e["state"] for e in node.events(job, "state")]
            assert states[-2:] == ["stopping", "failed"] and "restarting" not in states, states


def test_a_peer_that_is_gone_first_decides_nothing():
    """Its peer leaves at once when it has said what is wrong, and is gone before it: the first word counts all the same."""
    with Node() as node:
        job = node.start(steps=50, env={"FAKE_DATA_AT": 3, "FAKE_ONLY_RANK": 0, "FAKE_LINGER_MS": 60})
        assert node.wait(job, "failed")["first_failure"]["reason"] == "data"
        states = [e["state"] for e in node.events(job, "state")]
        assert states[-2:] == ["stopping", "failed"] and "restarting" not in states, states


def test_F05_death_before_ready_is_seen_at_once():
    with Node() as node:
        job = node.start(steps=50, env={"FAKE_EXIT_AT": 0, "FAKE_EXIT_CODE": 7, "FAKE_ONLY_RANK": 1}, policy={"on_crash": "stop"})
        failure = node.wait(job, "failed")["first_failure"]
        assert failure["rank"] == 1 and failure["phase"] == "starting" and "exit code 7" in failure["text"]
        started = node.events(job, "launched")[0]["monotonic_ns"]
        ended = node.events(job, "state")[-1]["monotonic_ns"]
        print(f"        start to failed: {(ended - started) / 1e6:.0f} ms")
        assert ended - started < 3e9


def test_F11_an_error_is_the_verdict():
    with Node() as node:
        job = node.start(ranks=4, steps=50, env={"FAKE_ERROR_AT": 7, "FAKE_ONLY_RANK": 3}, policy={"on_crash": "stop"})
        failure = node.wait(job, "failed")["first_failure"]
        assert failure["rank"] == 3 and failure["step"] == 7 and failure["reason"] == "error" and failure["followers"] == 3
        assert "rank 3 at step 7" in failure["text"] and "and 3 others followed" in failure["text"]


def test_F04_many_deaths_at_once():
    with Node() as node:
        job = node.start(ranks=8, steps=400, env={"FAKE_SNAPSHOT_EVERY": 5})
        node.wait_step(job, 6)
        old = node.ranks(job)
        kill_all(old)
        until("restarted", lambda: node.read(job, "state.json")["incarnation"] == 2)
        until("no zombie", lambda: not any(os.path.exists(f"/proc/{p}") for p in old))
        assert len(node.events(job, "rank-exit")) == 8
        node.wait(job, "running")
        node.request("stop", job=job)


def test_F06_a_rank_that_ignores_TERM_is_killed_after_the_grace():
    with Node() as node:
        job = node.start(steps=5000, env={"FAKE_HANG_AT": 5, "FAKE_ONLY_RANK": 1, "FAKE_IGNORE_TERM": 1}, stop={"grace_seconds": 0.5})
        node.wait_step(job, 4)
        begin = time.monotonic()
        reply = node.request("stop", job=job)
        assert reply["state"] == "stopped" and 0.4 < time.monotonic() - begin < 5
        assert {e["rank"] for e in node.events(job, "killed")} >= {1} and node.events(job, "killed")[0]["grace_seconds"] == 0.5


def test_a_peer_that_dies_while_stopping_is_no_failed_snapshot():
    with Node() as node:
        job = node.start(steps=5000, env={"FAKE_HANG_AT": 5, "FAKE_ONLY_RANK": 1, "FAKE_IGNORE_TERM": 1}, stop={"grace_seconds": 20})
        node.wait_step(job, 4)
        c = node.connect()
        c.send("stop", job=job)
        node.wait(job, "stopping")
        kill(node.ranks(job)[1])
        reply = c.receive()
        c.close()
        assert reply["ok"] and reply["state"] == "stopped" and node.read(job, "result.json")["exit_code"] == 0, reply


def test_F07_a_hung_rank_does_not_hide_the_first_failure():
    with Node() as node:
        job = node.start(ranks=3, steps=50, env={"FAKE_SEGV_AT": 5, "FAKE_ONLY_RANK": 2, "FAKE_IGNORE_TERM": 1},
                         policy={"on_crash": "stop"}, stop={"grace_seconds": 1})
        failure = node.wait(job, "failed")["first_failure"]
        assert failure["rank"] == 2 and "signal 11, SIGSEGV" in failure["text"]


def test_F03_helpers_of_a_rank_end_with_it():
    with Node() as node:
        for kind in (1, 2, 3):
            job = node.start(steps=5000, env={"FAKE_HELPER": kind})
            node.wait_step(job, 2)
            token = node.read(job, "state.json")["token"]
            assert len(processes_with(token)) == 4
            node.request("stop", job=job)
            assert processes_with(token) == []
            job = node.start(steps=3, env={"FAKE_HELPER": kind})
            token = node.wait(job, "finished")["token"]
            assert processes_with(token) == []


def test_F03_who_hides_is_ended_too():
    """A descendant of a rank in a session of its own, without an environment and orphaned: it is the keeper's child, then kcd's."""
    with Node() as node:
        job = node.start(steps=5000, env={"FAKE_HELPER": 4})
        node.wait_step(job, 2)
        mark = f"KC_HELPER={node.instance}.{job}"
        hidden = until("the hidden ones", lambda: len(p := processes_with(mark)) == 2 and p)
        assert not set(hidden) & set(processes_with(node.read(job, "state.json")["token"]))
        assert {parent(p) for p in hidden} == {node.keeper(job)}
        node.request("stop", job=job)
        assert not any(map(alive, hidden)) and processes_with(mark) == []
        job = node.start("killed", steps=5000, env={"FAKE_HELPER": 4, "FAKE_SNAPSHOT_EVERY": 3})
        bystander = node.start("bystander", steps=5000)
        node.wait_step(job, 5)
        node.wait(bystander, "running")
        mark = f"KC_HELPER={node.instance}.{job}"
        hidden = until("the hidden ones", lambda: len(p := processes_with(mark)) == 2 and p)
        keeper = node.keeper(bystander)
        kill(node.keeper(job))
        until("a new incarnation", lambda: node.read(job, "state.json")["incarnation"] == 2)
        assert not any(map(alive, hidden)) and alive(keeper)
        node.request("stop", job=job), node.request("stop", job=bystander)
        assert node.keeper(bystander) == 0 and node.read(bystander, "state.json")["restarts"] == 0
        assert processes_with(mark) == []


def test_ranks_that_are_not_recorded_are_not_let_in():
    with Node() as node:
        job = node.start(ranks=12, steps=50, env={"FAKE_SPOIL_RECORD": 1}, policy={"on_crash": "stop"})
        result = until("the result", lambda: node.read(job, "result.json"))
        assert result["state"] == "failed" and result["step"] == 0, result
        assert result["first_failure"]["rank"] is None and "could not be recorded" in result["first_failure"]["text"], result
        assert os.path.isdir(node.path(job, "state.json"))
        assert not node.events(job, "launched") and not node.events(job, "started") and node.events(job, "record-failed")
        until("nothing of it is left", lambda: not processes_with(f"KC_JOB={job}"))
        until("kcd has given up", lambda: not processes_with(node.path(job)))


def test_the_last_line_tells_why_a_rank_left():
    with Node() as node:
        job = node.start(steps=9, env={"FAKE_EXIT_AT": 0, "FAKE_EXIT_CODE": 2, "FAKE_ONLY_RANK": 1, "FAKE_EXIT_LINE": "no\tboard: \x1b[31mred"},
                         policy={"on_crash": "stop"})
        failure = node.wait(job, "failed")["first_failure"]
        assert "exit code 2 without a word; the last it printed: no board: ?[31mred" in failure["text"], failure


def test_rank_binary_missing():
    with Node(environment={"KC_RANK_BINARY": "/nowhere/kc-rank"}, fake=False) as node:
        record = node.wait(node.start(steps=3), "failed")
        assert "/nowhere/kc-rank" in record["first_failure"]["text"] and "No such file" in record["first_failure"]["text"]


# ---- requests ----

def test_stop_saves_and_resume_continues():
    with Node() as node:
        job = node.start(steps=100)
        node.wait_step(job, 5)
        reply = node.request("stop", job=job)
        step = reply["step"]
        assert reply["state"] == "stopped" and os.path.exists(node.path(job, "snapshots", f"step-{step}"))
        assert node.read(job, "result.json")["state"] == "stopped" and node.steps(job)[-1] == step
        assert node.ask("stop", job=job)["note"]
        for verb in ("pause", "checkpoint"):
            assert node.ask(verb, job=job)["code"] == 5
        node.request("resume", job=job)
        node.wait(job, "finished")
        whole(node, job, 100)
        assert node.ask("resume", job=job)["code"] == 5
        node.request("remove", job=job)
        assert node.ask("stop", job=job)["code"] == 4


def test_F13_TERM_to_one_rank_stops_all_at_the_same_step():
    with Node() as node:
        job = node.start(ranks=3, steps=5000)
        node.wait_step(job, 3)
        kill(node.ranks(job)[2], signal.SIGTERM)
        record = node.wait(job, "stopped")
        assert record["first_failure"] is None and {e["reason"] for e in node.events(job, "rank-exit")} == {"stopped"}
        assert os.path.exists(node.path(job, "snapshots", f"step-{record['step']}"))


def parent(pid):
    return int(open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()[1])


def cpu_ticks(pid):
    fields = open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()
    return int(fields[11]) + int(fields[12])


def test_pause_checkpoint_resume():
    """Held at one step; a checkpoint saves that step; no CPU is used; resume goes on; each request again is ok with a note."""
    with Node() as node:
        job = node.start(steps=120)
        node.wait_step(job, 5)
        step = node.request("pause", job=job)["step"]
        assert node.state(job) == "paused" and node.steps(job)[-1] == step
        assert "already" in node.ask("pause", job=job)["note"]
        reply = node.request("checkpoint", job=job)
        assert reply["step"] == step and reply["path"] == node.path(job, "snapshots", f"step-{step}") and os.path.exists(reply["path"])
        before = sum(map(cpu_ticks, node.ranks(job)))
        time.sleep(0.5)  # an observation, not a wait: nothing must happen in it
        assert node.steps(job)[-1] == step and sum(map(cpu_ticks, node.ranks(job))) - before <= 2
        node.request("resume", job=job)
        assert "already" in node.ask("resume", job=job)["note"]
        node.wait_step(job, step + 2)
        running = node.request("checkpoint", job=job)
        assert running["step"] > step and os.path.exists(running["path"])
        node.wait(job, "finished")
        whole(node, job, 120)


def test_pause_during_start_holds_before_the_first_step():
    with Node() as node:
        job = node.start(steps=50, env={"FAKE_START_MS": 300})
        assert node.request("pause", job=job)["step"] == 0 and node.steps(job) == []
        node.request("resume", job=job)
        node.wait(job, "finished")


def test_last_step_finishes_instead_of_pausing():
    with Node() as node:
        job = node.start(steps=12, env={"FAKE_MS": 60})
        node.wait_step(job, 11)
        reply = node.request("pause", job=job)
        assert reply["ok"] and (reply.get("state") == "finished" and "finished" in reply["note"] or node.state(job) == "paused"), reply
        if node.state(job) == "paused":  # the request came before the last step began
            node.request("resume", job=job)
        node.wait(job, "finished")


def test_stop_and_death_wake_paused_ranks():
    with Node() as node:
        job = node.start(steps=5000)
        node.wait_step(job, 2)
        step = node.request("pause", job=job)["step"]
        assert node.request("stop", job=job)["step"] == step
        job = node.start(steps=5000)
        node.wait_step(job, 2)
        node.request("checkpoint", job=job)
        step = node.request("pause", job=job)["step"]
        kill(node.ranks(job)[0])
        until("a new incarnation", lambda: node.read(job, "state.json")["incarnation"] == 2)
        node.wait(job, "paused")  # what was wanted is still wanted: held before the first step of the new incarnation
        node.request("resume", job=job)
        node.wait(job, "running")
        node.request("stop", job=job)


def test_F12_a_pause_longer_than_the_grace_is_no_fault():
    with Node() as node:
        job = node.start(steps=60, stop={"grace_seconds": 0.2})
        node.wait_step(job, 2)
        node.request("pause", job=job)
        time.sleep(0.6)
        node.request("resume", job=job)
        record = node.wait(job, "finished")
        assert record["restarts"] == 0 and record["seconds"] < 0.6 + 60 * 0.03


def test_grace_does_not_count_while_a_snapshot_is_written():
    """F24: a slow snapshot is not a hang."""
    with Node() as node:
        job = node.start(steps=5000, env={"FAKE_SNAPSHOT_MS": 800}, stop={"grace_seconds": 0.3})
        node.wait_step(job, 2)
        reply = node.request("stop", job=job)
        assert reply["state"] == "stopped" and not node.events(job, "killed")
        assert os.path.exists(node.path(job, "snapshots", f"step-{reply['step']}"))


def test_refusals_name_what_is_wrong():
    with Node() as node:
        assert node.ask("stop", job="nobody-1")["code"] == 4
        assert node.ask("dance")["code"] == 8
        reply = node.ask("start", spec=node.spec(steps=0), dir="/")
        assert reply["code"] == 9 and "steps" in reply["error"]
        job = node.start(steps=5000)
        assert "has not ended" in node.ask("remove", job=job)["error"]
        node.request("stop", job=job)
        c = node.connect()  # garbage is hung up on, and hurts nobody
        c.socket.sendall(b"no json\n")
        assert c.socket.recv(10) == b""
        c.close()
        assert node.request("hello")["pid"] == node.kcd_pid


def test_stop_of_a_job_that_fails_says_so():
    with Node() as node:
        job = node.start(steps=5000, env={"FAKE_ERROR_AT_STOP": 1, "FAKE_ONLY_RANK": 1})
        node.wait_step(job, 2)
        reply = node.ask("stop", job=job)
        assert not reply["ok"] and reply["code"] == 1 and "asked to stop, but failed: rank 1" in reply["error"], reply
        assert "an error made up at the stop" in reply["failure"] and node.state(job) == "failed"
        job = node.start(steps=5000, env={"FAKE_ERROR_AT_STOP": 1, "FAKE_ONLY_RANK": 1})
        node.wait_step(job, 2)
        done = subprocess.run([os.path.join(BIN, "kc"), "stop", job], env=node.environment, capture_output=True, text=True)
        assert done.returncode == 1 and "an error made up at the stop" in done.stderr, done


def cores():
    return len(os.sched_getaffinity(0))


def test_queue_first_come_first_served():
    with Node() as node:
        reply = node.ask("start", spec=node.spec("huge", ranks=64, oversubscribe=False), dir="/")
        assert not reply["ok"] and "64" in reply["error"], reply
        n = 2 if cores() >= 2 else 1
        first = node.start("q", ranks=n, steps=5000, threads=max(1, cores() // n), oversubscribe=False)
        node.wait(first, "running")
        second = node.start("q", ranks=1, steps=5, oversubscribe=False)
        third = node.start("q", ranks=1, steps=5, oversubscribe=False)
        assert node.state(second) == node.state(third) == "queued"
        assert node.ask("checkpoint", job=second)["code"] == 5
        assert "queued" in node.ask("pause", job=second)["note"]
        assert "queued" in node.ask("resume", job=second)["note"]
        assert node.request("stop", job=third)["state"] == "stopped"
        node.request("stop", job=first)
        node.wait(second, "finished")
        assert node.read(third, "result.json")["state"] == "stopped"


def test_instances_of_one_home_share_the_cores():
    """No core is leased twice; who waits for another instance's lease gets it without being told."""
    with Node() as node, Node(home=node.home) as other:
        first = node.start("mine", ranks=1, steps=5000, threads=cores(), oversubscribe=False)
        node.wait(first, "running")
        second = other.start("theirs", ranks=1, steps=5, oversubscribe=False)
        time.sleep(1.5)  # an observation: it must not start, also when kcd tries again
        assert other.state(second) == "queued" and not other.events(second, "launched")
        locks = os.path.join(node.home, "run", node.host, "devices", node.host)
        assert len(os.listdir(locks)) >= cores()
        node.request("stop", job=first)
        other.wait(second, "finished")


# ---- deaths of supervisors ----

def test_kill_kcd_and_the_next_one_adopts():
    """F01: the job trains on, and a new kcd is its supervisor again."""
    with Node() as node:
        job = node.start(steps=5000)
        queued = node.start("later", ranks=1, steps=3, oversubscribe=False, threads=cores())
        node.wait_step(job, 3)
        keeper, ranks = node.keeper(job), node.ranks(job)
        node.kill_kcd()
        node.wait_step(job, node.steps(job)[-1] + 5)
        node.start_kcd()  # over the stale socket
        assert node.keeper(job) == keeper and node.ranks(job) == ranks and node.state(queued) == "queued"
        step = node.request("pause", job=job)["step"]
        node.kill_kcd()
        node.start_kcd()
        assert node.state(job) == "paused"
        node.request("resume", job=job)
        node.wait_step(job, step + 2)
        assert node.request("stop", job=job)["state"] == "stopped"
        node.wait(queued, "finished")
        assert not alive(keeper)


def test_job_that_ends_without_kcd():
    with Node() as node:
        job = node.start(steps=30)
        node.wait_step(job, 3)
        node.kill_kcd()
        node.wait(job, "finished")
        until("its keeper is gone", lambda: not processes_with(node.path(job)))
        assert node.read(job, "result.json")["state"] == "finished"
        node.start_kcd()
        assert {"id": job, "state": "finished"} in node.request("list")["jobs"]


def test_kill_keeper():
    """Its ranks save and end at a step boundary; kcd restarts the job under a new keeper; no line is lost or doubled."""
    with Node() as node:
        job = node.start(steps=100)
        node.wait_step(job, 10)
        keeper, ranks = node.keeper(job), node.ranks(job)
        kill(keeper)
        until("a new keeper", lambda: node.keeper(job) not in (0, keeper))
        node.wait(job, "finished")
        assert not any(map(alive, ranks)) and len(os.listdir(node.path(job, "snapshots"))) >= 2
        whole(node, job, 100)
        record = node.read(job, "state.json")
        assert record["incarnation"] == 2 and record["restarts"] == 1
        failure = record["last_fault"]
        assert failure["reason"] == "keeper-gone" and failure["rank"] is None and failure["followers"] == 0, failure
        assert failure["text"].startswith(f"the keeper (pid {keeper}) was lost at step "), failure
        assert node.read(job, "result.json")["first_failure"] is None


def test_kill_keeper_of_ranks_that_ignore_it():
    with Node() as node:
        job = node.start(steps=5000, env={"FAKE_HANG_AT": 4, "FAKE_ONLY_RANK": 1, "FAKE_IGNORE_TERM": 1}, stop={"grace_seconds": 0.4})
        node.wait_step(job, 3)
        keeper, ranks = node.keeper(job), node.ranks(job)
        kill(keeper)
        until("a new incarnation", lambda: node.read(job, "state.json")["incarnation"] == 2)
        assert not any(map(alive, ranks))
        node.wait(job, "running")
        node.request("stop", job=job)


def test_a_keeper_that_dies_at_once_is_not_started_for_ever():
    """Each is counted, with a pause between them, and the last one too many ends the job."""
    with Node() as node:
        job = node.start("hopeless", ranks=12, steps=50, env={"FAKE_KILL_KEEPER": 1}, policy={"max_restarts": 2})
        record = node.wait(job, "failed")
        assert record["restarts"] == 2 and record["incarnation"] == 0, record
        assert "was lost before it had started its ranks, after 2 restarts" in record["first_failure"]["text"]
        assert record["first_failure"]["rank"] is None and record["keeper"]["pid"] == 0
        times = [e["monotonic_ns"] for e in node.events(job, "keeper-lost")]
        assert len(times) == 3 and all(b - a > 0.9e9 for a, b in zip(times, times[1:])), times


def test_kill_keeper_while_stopping():
    with Node() as node:
        job = node.start(steps=5000, env={"FAKE_SNAPSHOT_MS": 600})
        node.wait_step(job, 3)
        c = node.connect()
        c.send("stop", job=job)
        node.wait(job, "stopping")
        kill(node.keeper(job))
        assert c.receive()["state"] == "stopped"
        c.close()


def test_kill_both():
    """Nothing is left running for long; a new kcd goes on with the job."""
    with Node() as node:
        job = node.start(steps=120)
        node.wait_step(job, 5)
        keeper, ranks = node.keeper(job), node.ranks(job)
        kill(node.kcd_pid)
        kill(keeper)
        until("the ranks end by themselves", lambda: not any(map(alive, ranks)), 5)
        node.start_kcd()
        node.wait(job, "finished")
        whole(node, job, 120)


def test_reboot_interrupts():
    """A record of another boot is told as interrupted, and can be resumed."""
    with Node() as node:
        job = node.start(steps=150)
        node.wait_step(job, 3)
        node.request("checkpoint", job=job)
        keeper, ranks = node.keeper(job), node.ranks(job)
        kill_all([node.kcd_pid, keeper] + ranks)
        until("all gone", lambda: not any(map(alive, ranks + [node.kcd_pid, keeper])))
        record = node.read(job, "state.json")
        record["boot"] = "another"
        with open(node.path(job, "state.json"), "w") as f:
            json.dump(record, f)
        node.start_kcd()
        assert node.wait(job, "interrupted")["exit_code"] == 1
        assert node.read(job, "result.json")["state"] == "interrupted"
        node.request("resume", job=job)
        node.wait(job, "finished")
        whole(node, job, 150)


# ---- kcd itself ----

def test_version():
    with Node(start=False) as node:
        done = node.kcd("--version")
        kc = subprocess.run([os.path.join(BIN, "kc"), "--version"], capture_output=True, text=True)
        assert done.returncode == 0 and done.stdout.split()[0] == "kcd" and done.stdout.split()[1] in kc.stdout, (done, kc)
        assert "--version" in node.kcd("--help").stdout


def test_second_kcd():
    with Node() as node:
        again = node.kcd("--daemon")
        assert again.returncode == 5 and f"already running (pid {node.kcd_pid})" in again.stderr
        assert again.stderr.count("\n") == 1
        elsewhere = Node(instance=node.instance, start=False)  # the name is taken, though the home is free
        again = elsewhere.kcd("--daemon")
        assert again.returncode == 5 and f"already running (pid {node.kcd_pid})" in again.stderr, again
        assert node.home in again.stderr and "--instance NAME" in again.stderr and again.stderr.count("\n") == 1, again
        os.rmdir(elsewhere.folder) if not os.listdir(elsewhere.folder) else subprocess.run(["rm", "-rf", elsewhere.folder])
        other = Node(home=node.home)  # another instance, side by side (F09)
        with other:
            a, b = node.start("same", steps=5), other.start("same", steps=5)
            assert {a, b} == {"same-1", "same-2"}
            node.wait(a, "finished"), other.wait(b, "finished")
            assert node.ask("stop", job=b)["ok"]


def test_shutdown_stops_every_job():
    with Node() as node:
        running, paused = node.start(steps=5000), node.start(steps=5000)
        queued = node.start(ranks=1, steps=5, oversubscribe=False, threads=cores())
        node.wait_step(running, 2), node.wait_step(paused, 2)
        node.request("pause", job=paused)
        node.shutdown()
        assert node.state(running) == node.state(paused) == node.state(queued) == "stopped"
        for job in (running, paused):
            assert os.listdir(node.path(job, "snapshots")) == [f"step-{node.read(job, 'result.json')['step']}"]
        node.assert_nothing_left()


def test_TERM_to_kcd_stops_every_job():
    with Node() as node:
        job = node.start(steps=5000)
        node.wait_step(job, 2)
        kill(node.kcd_pid, signal.SIGTERM)
        until("kcd has ended", lambda: not alive(node.kcd_pid))
        assert node.state(job) == "stopped" and len(os.listdir(node.path(job, "snapshots"))) == 1
        node.assert_nothing_left()


def test_shutdown_detach():
    with Node() as node:
        job = node.start(steps=5000)
        node.wait_step(job, 2)
        node.shutdown(detach=True)
        node.wait_step(job, node.steps(job)[-1] + 3)
        node.start_kcd()
        assert node.request("stop", job=job)["state"] == "stopped"


def test_long_path():
    """A control socket's path may be longer than sun_path (108 bytes)."""
    folder = tempfile.mkdtemp(prefix="kc-long-")
    home = os.path.join(folder, *["a-long-name-for-a-directory"] * 6)
    assert len(home) > 150
    with Node(home=home) as node:
        job = node.start(steps=5000)
        node.wait_step(job, 2)
        node.kill_kcd()
        node.start_kcd()
        node.request("stop", job=job)
    subprocess.run(["rm", "-rf", folder])


def test_home_not_writable():
    with Node(start=False) as node:
        os.mkdir(node.home, 0o700)
        how = {}
        if os.getuid() == 0:
            nobody = pwd.getpwnam("nobody")
            how = {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}
            os.chmod(node.folder, 0o755)
            os.chmod(node.home, 0o755)
        else:
            os.chmod(node.home, 0o500)
        done = node.kcd("--daemon", **how)
        assert done.returncode == 10 and done.stderr.count("\n") == 1, done
        assert node.home in done.stderr and "not writable" in done.stderr and "KC_HOME" in done.stderr, done
        os.chmod(node.home, 0o700)


def test_log_is_turned_over():
    """By size, under the feet of the rank: what is kept is the end of what it printed, in order and without a gap."""
    with Node() as node:
        job = node.start(steps=150, env={"FAKE_MS": 25, "FAKE_PRINT": 100_000}, log={"max_mib": 1, "keep": 1})
        node.wait(job, "finished")
        names = sorted(n for n in os.listdir(node.path(job)) if n.startswith("rank-0.log"))
        assert names == ["rank-0.log", "rank-0.log.1"], names
        text = "".join(open(node.path(job, n)).read() for n in ("rank-0.log.1", "rank-0.log"))
        numbers = [int(l[:-1]) for l in text.splitlines() if len(l) == 63]
        assert numbers[0] > 0 and numbers[-1] == 150 * 1563 - 1 and numbers == sorted(set(numbers))
        missing = numbers[-1] - numbers[0] + 1 - len(numbers)
        assert missing < 100, missing  # none where the file system can collapse a range
        told = json.loads(subprocess.run([os.path.join(BIN, "kc"), "log", f"{job}/0", "--json"], env=node.environment,
                                         capture_output=True, text=True, check=True).stdout)["lines"]
        assert "".join(line["text"] + "\n" for line in told) == text
        times = [line["time"] for line in told]  # whatever was taken off the front meanwhile
        assert all(times) and times == sorted(times), times[-1]


def memory_of(pid):
    text = open(f"/proc/{pid}/smaps_rollup").read()
    return sum(int(l.split()[1]) for l in text.splitlines() if l.startswith(("Private_Clean", "Private_Dirty"))) / 1024


def test_supervisors_stay_small():
    """Under 16 MiB of private memory each, and under 1 % of a core together."""
    with Node() as node:
        job = node.start(steps=5000, env={"FAKE_MS": 20})
        node.wait_step(job, 3)
        pids = [node.kcd_pid, node.keeper(job)]
        before, begin = sum(map(cpu_ticks, pids)), time.monotonic()
        time.sleep(3)
        share = (sum(map(cpu_ticks, pids)) - before) / os.sysconf("SC_CLK_TCK") / (time.monotonic() - begin)
        sizes = [memory_of(p) for p in pids]
        print(f"        kcd {sizes[0]:.1f} MiB, keeper {sizes[1]:.1f} MiB, {100 * share:.2f} % of a core")
        assert max(sizes) < 16 and share < 0.1
        node.request("stop", job=job)


if __name__ == "__main__":
    main(globals())
