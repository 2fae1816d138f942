#!/usr/bin/env python3
"""Faults on purpose, on real programs: twelve of the drills of jobs/drills.json (`make drills` runs all), each with its diagnosis,
its end and the state that a job without the fault has; what is refused; and that nothing is left of kc drill, also of one that
was interrupted."""
import glob, json, os, signal, subprocess

from kc_flow import BIN, ROOT, main, processes_with, until
from kc_train import Kc

# one of each kind: deaths in three layouts, hangs of five causes, wrong calls, values, the disk, what a rank leaves behind
SHORT = ("exit-start", "kill-snapshot", "kill-pipeline", "stop-forward", "spin-communication", "block-data", "lock-mesh", "count",
         "send-send", "nonfinite-backward", "nospace", "grandchild-death")


class Drill(Kc):
    """A home without a kcd: kc drill has its own."""

    def __init__(self):
        super().__init__(start=False)
        os.makedirs(self.home)

    def drill(self, *arguments, **how):
        return self.kc("drill", *arguments, **how)

    def nothing_left(self, pid=""):
        assert not os.listdir(self.home), os.listdir(self.home)
        assert not processes_with(os.path.join(self.home, "drill."))
        assert not [n for n in os.listdir("/dev/shm") if pid and f".drill-{pid}" in n]

    def write_set(self, **changes):
        with open(os.path.join(ROOT, "jobs", "drills.json")) as f:
            whole = json.load(f)
        whole["drills"] = [dict(d, **changes) for d in whole["drills"] if d["name"] == "grandchild"]
        path = os.path.join(self.folder, "set.json")
        with open(path, "w") as f:
            json.dump(whole, f)
        return path


def test_twelve_drills():
    with Drill() as node:
        answer = node.drill("--only", ",".join(SHORT), "--at-once", "3", "--json", ok=(0, 1), timeout=170)
        said = json.loads(answer.stdout)
        assert said["schema"] == "kc.drill/1" and [d["name"] for d in said["drills"]] == list(SHORT), said
        for d in said["drills"]:
            print(f"        {d['name']}: found in {d['detected_seconds']} s by {d['detected_by']}, {d['got']['end']}")
            assert d["right"], json.dumps(d, indent=1)
            assert not any(d["left"].values()), d
        assert (said["right"], said["wrong"], answer.returncode) == (len(SHORT), 0, 0)
        node.nothing_left()


def test_a_drill_that_went_wrong_is_told():
    """As text, with a row that says why; the exit code is 1."""
    with Drill() as node:
        done = node.drill(node.write_set(end="failed", event="hang"), ok=(1,))
        rows = done.stdout.splitlines()
        assert rows[1].startswith("grandchild ") and rows[1].endswith("WRONG: no such event"), done.stdout
        assert rows[-1].startswith("1 drills, 0 right, 1 wrong"), done.stdout
        node.nothing_left()


def test_the_set_is_looked_at_first():
    with Drill() as node:
        listed = node.drill("--dry-run", "--json")
        drills = json.loads(listed.stdout)["drills"]
        assert len(drills) >= 40 and len({d["name"] for d in drills}) == len(drills)
        assert set(SHORT) <= {d["name"] for d in drills}
        refused = node.drill(node.write_set(layout="seven"), ok=(9,))
        assert 'its layout is "seven"' in refused.stderr and refused.stderr.count("\n") == 1
        node.nothing_left()


def test_an_ordinary_kcd_puts_no_fault_into_a_job():
    """Neither when the job is started nor by what the user's environment says."""
    with Kc(environment={"KC_DRILLS": "1"}) as node:
        spec = node.write_spec(inject=[{"what": "exit", "step": 1}])
        refused = node.kc("start", spec, ok=(9,))
        assert refused.stderr.startswith("kc: inject: ") and "--allow-drills" in refused.stderr, refused.stderr
        assert refused.stderr.count("\n") == 1
        assert not os.path.isdir(os.path.join(node.home, "jobs")) or not node.json("ps")["jobs"]


def test_interrupted():
    """Ctrl-C while a rank hangs: kcd, keeper, ranks, folder and segments go, and the exit code says so."""
    with Drill() as node:
        def heed():
            signal.signal(signal.SIGINT, signal.SIG_DFL)
        p = subprocess.Popen([os.path.join(BIN, "kc"), "drill", "--only", "stop-reported"], env=node.environment, text=True,
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, preexec_fn=heed)
        until("the rank is stopped", lambda: any('"injected"' in open(f).read() for f in
              glob.glob(os.path.join(node.home, "drill.*", "jobs", "*", "events.jsonl"))))
        p.send_signal(signal.SIGINT)
        out, err = p.communicate(timeout=60)
        assert p.returncode == 130 and "interrupted" in err, (p.returncode, out, err)
        node.nothing_left(str(p.pid))


if __name__ == "__main__":
    main(globals())
