#!/usr/bin/env python3
"""Faults of processes that heal, with kcd, keepers and fake ranks: whom the kernel killed is told with its evidence, restarts wait
longer each time, jobs go on without a device that is faulty, and what dead instances left is removed."""
import contextlib, json, os, sys, time, uuid

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from kc_flow import *


# ---- out of memory ----

def own_group():
    """The folder of our memory control group, and the name of its limit; None where there is none."""
    groups = [line.rstrip("\n").split(":", 2) for line in open("/proc/self/cgroup")]
    for mount in (line.split() for line in open("/proc/self/mountinfo")):
        dash = mount.index("-")
        for number, names, path in groups:
            v1 = "memory" in names.split(",") and mount[dash + 1] == "cgroup" and "memory" in mount[dash + 3].split(",")
            v2 = names == "" and mount[dash + 1] == "cgroup2"
            inside = path[len(mount[3]):] if path.startswith(mount[3]) and mount[3] != "/" else path
            folder = mount[4] + inside.rstrip("/")
            if v1 and os.path.isdir(folder):
                return folder, "memory.limit_in_bytes"
            if v2 and os.path.exists(f"{folder}/cgroup.subtree_control") and "memory" in open(f"{folder}/cgroup.subtree_control").read():
                return folder, "memory.max"
    return None


@contextlib.contextmanager
def group_of(bytes):
    """A control group with a limit, as the path of its cgroup.procs; None where we may make none."""
    found = own_group()
    if not found:
        yield None
        return
    folder = f"{found[0]}/kc-test-{uuid.uuid4().hex[:10]}"
    try:
        os.mkdir(folder)
    except OSError:
        yield None
        return
    try:
        with open(f"{folder}/{found[1]}", "w") as f:
            f.write(str(bytes))
        yield f"{folder}/cgroup.procs"
    finally:
        until(f"{folder} is empty", lambda: not open(f"{folder}/cgroup.procs").read())
        os.rmdir(folder)


def test_F08_out_of_memory_is_told_with_its_evidence():
    """A real kill by the kernel, in a group with a limit; the rank beside it is not accused, and the job goes on."""
    with group_of(96 << 20) as procs:
        if not procs:
            print("skipped test_F08_out_of_memory_is_told_with_its_evidence: no control group of memory can be made here")
            return
        with Node(start=False) as node:
            done = node.kcd("--daemon", preexec_fn=lambda: open(procs, "w").write("0"))
            assert done.returncode == 0, done.stderr
            node.kcd_pid = node.request("hello")["pid"]
            job = node.start(steps=40, env={"FAKE_EAT_AT": 5, "FAKE_ONLY_RANK": 1})
            node.wait(job, "finished")
            victim, = [e for e in node.events(job, "rank-exit") if e["rank"] == 1 and e.get("signal") == 9]
            assert victim["oom"] in ("likely", "certain"), victim
            fault = node.read(job, "state.json")["last_fault"]
            assert fault["rank"] == 1 and fault["oom"] in ("likely", "certain"), fault
            assert "killed by the kernel, out of memory (" in fault["text"], fault
            if fault["oom"] == "certain":
                assert f"the kernel's log names pid {victim['pid']}" in fault["text"], fault
            print(f"        {fault['text']}")
            assert all("oom" not in e for e in node.events(job, "rank-exit") if e["rank"] == 0)


def test_F08_a_signal_of_somebody_is_no_lack_of_memory():
    with Node() as node:
        job = node.start(steps=40)
        node.wait_step(job, 3)
        kill(node.ranks(job)[0])
        node.wait(job, "finished")
        fault = node.read(job, "state.json")["last_fault"]
        assert fault["oom"] == "unknown" and "killed by someone (signal 9, SIGKILL)" in fault["text"], fault
        assert [e["oom"] for e in node.events(job, "rank-exit") if e.get("signal") == 9 and e["rank"] == 0] == ["unknown"]


if __name__ == "__main__":
    main(globals())
