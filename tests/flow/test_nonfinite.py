#!/usr/bin/env python3
"""A value that is not finite (F47): whatever the layout, the rank, the step, the op, the layer, the tensor and the element that
made it are told, by each policy, and no other rank is blamed. The value is put there by a drill, so what is right is known."""
import os, sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from kc_flow import main
from kc_train import Kc


class Drills(Kc):
    """A node whose kcd puts faults into ranks."""

    def kcd(self, *arguments, **how):
        return super().kcd(*arguments, *(["--allow-drills"] if "--daemon" in arguments else []), **how)


def begin(node, name, layout, phase, nth, on_nonfinite, **changes):
    return node.begin(name, 2, 0, steps=6, parallel=dict({"data": 1}, **layout), batch={"micro": 4},
                      policy={"on_nonfinite": on_nonfinite, "max_rollbacks": 1},
                      inject=[{"rank": 1, "step": 3, "phase": phase, "what": "nonfinite", "nth": nth}], **changes)


def test_F47_whoever_made_it_is_named_with_op_and_tensor():
    with Drills() as node:
        for layout, phase, nth, words in (
                ({"data": 2}, "forward", 2, "rank 1: linear of layer 0 made NaN of finite values in micro-batch 0, in h.0.attn.qkv at [4, 0, "),
                ({"data": 2}, "backward", 2, "rank 1: layernorm.i made NaN of finite values in micro-batch 0, in d h.1.mlp.residual at [4, 0, 0]"),
                ({"tensor": 2}, "forward", 2, "rank 1: linear of layer 0 made NaN of finite values in micro-batch 0, in h.0.attn.qkv at ["),
                ({"pipeline": 2}, "forward", 2, "rank 1: attention of layer 1 made NaN of finite values in micro-batch 0, in h.1.attn at [0"),
                ({"pipeline": 2}, "backward", 2, "rank 1: layernorm.i made NaN of finite values in micro-batch 0, in d h.1.mlp.residual at [0")):
            job = begin(node, "stops", layout, phase, nth, "stop")
            node.kc("wait", job, ok=(1,))
            result, told = node.result(job), node.events(job, "nonfinite")
            failure = result["first_failure"]
            assert (failure["rank"], failure["reason"]) == (1, "nonfinite"), failure
            assert f"step 3: {words}" in failure["text"] and "lower optimizer.lr" in failure["text"], (layout, phase, failure)
            assert [(e["rank"], e["step"], e["ranks"] > 0) for e in told] == [(1, 3, True)] and words in told[0]["text"], told
            assert "errno" not in told[0], told
            assert [e["action"] for e in node.events(job, "fault")] == ["fail"]
            left = {e["rank"]: e["reason"] for e in node.events(job, "rank-exit")}
            assert left == {0: "peer-left", 1: "nonfinite"}, left
            assert words in node.kc("show", job).stdout


def test_F47_a_parameter_is_whose_it_is_to_update():
    """An update makes it, all gather it, and the next step finds it, also where parameters are gathered for each op anew."""
    with Drills() as node:
        for zero in (0, 1, 3):
            job = node.begin("spoilt", 2, zero, steps=6, batch={"micro": 4},
                             inject=[{"rank": 1, "step": 3, "phase": "optimizer", "what": "nonfinite"}])
            node.kc("wait", job, ok=(1,))
            failure = node.result(job)["first_failure"]
            assert failure["rank"] == 1 and "step 4: rank 1: the parameter transformer." in failure["text"] and \
                " is NaN at [" in failure["text"], (zero, failure)


def test_F47_skip_and_rollback_name_it_and_go_on():
    with Drills() as node:
        words = "step 3: rank 1: linear of layer 0 made NaN of finite values in micro-batch 0, in h.0.attn.qkv at [4, 0, "
        undisturbed = node.train("well", 2, 0, steps=6)
        for policy, says in (("skip", "the update is left out by policy"), ("rollback", "the run goes back to a snapshot by policy")):
            job = begin(node, policy, {"data": 2}, "forward", 2, policy)
            node.kc("wait", job)
            told = node.events(job, "nonfinite")
            assert [(e["rank"], e["step"], e["ranks"]) for e in told] == [(1, 3, 1)], told
            assert words in told[0]["text"] and says in told[0]["text"], told
            assert node.steps(job) == list(range(1, 7)) and node.result(job)["first_failure"] is None
            assert node.root(job) != node.root(undisturbed)
        log = open(os.path.join(node.path(job), "rank-1.log")).read()
        assert words in log, log


if __name__ == "__main__":
    main(globals())
