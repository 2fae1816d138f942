#!/usr/bin/env python3
"""Jobs on several files with weights and loss masks: PyTorch's numbers, the same bits after any interruption, and what is wrong with
a mask told in one line. And kc data prepare with GPT-2's tokenizer, as it is typed."""
import json, os, signal, struct, subprocess, sys, threading, time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from kc_flow import BIN, ROOT, kill, main, until
from kc_train import GOLDEN, Kc
from test_training import SMALL

TRAIN = os.path.join(GOLDEN, "train.bin")
MASKED = os.path.join(ROOT, "tests", "golden", "gpt2-masked")
MASK = os.path.join(MASKED, "train.mask")
BPE = os.path.join(ROOT, "tests", "golden", "gpt2-bpe")
GPT2 = ("--tokenizer", "gpt2", "--vocab", os.path.join(BPE, "vocab.json"), "--merges", os.path.join(BPE, "merges.txt"))


def write(node, name, values, magic=20240520, version=1, kind="H"):
    path = os.path.join(node.folder, name)
    with open(path, "wb") as f:
        f.write(struct.pack("<3i", magic, version, len(values)).ljust(1024, b"\0") + struct.pack(f"<{len(values)}{kind}", *values))
    return path


def mask(node, name, values):
    return write(node, name, values, magic=20261130, kind="B")


def test_a_loss_mask_gives_pytorchs_numbers():
    """Mean over the tokens that count, of all ranks and micro-batches, in loss and in norm."""
    with open(os.path.join(MASKED, "reference.json")) as f:
        reference = json.load(f)["loss_mask"]
    with Kc() as node:
        for ranks, zero, micro in ((1, 0, 8), (1, 0, 2), (2, 1, 2), (4, 0, 1)):
            job = node.train(f"m{ranks}{micro}", ranks, zero, batch={"micro": micro}, data={"train": {"path": TRAIN, "mask": MASK}})
            lines = [m for m in node.lines(job, "metrics.jsonl") if "loss" in m]
            assert len(lines) == len(reference)
            for line, step in zip(lines, reference):
                assert line["tokens"] == step["tokens"], (line, step)
                assert abs(line["loss"] / step["loss"] - 1) <= 1e-5, (line, step)
                assert abs(line["grad_norm"] / step["grad_norm"] - 1) <= 1e-4, (line, step)


def test_a_mixture_is_the_same_on_every_layout_and_after_every_interruption():
    """F39, F41: which file a sample is of follows from its position."""
    with Kc() as node:
        tokens = struct.unpack("<3001H", open(TRAIN, "rb").read()[1024:])
        second = write(node, "second.bin", tokens[1500:])
        third = write(node, "third.bin", [t % 128 for t in tokens[:700]], magic=20240801, version=7, kind="I")
        data = {"train": [{"path": TRAIN, "weight": 0.5, "mask": MASK}, {"path": second, "weight": 0.3}, {"path": third, "weight": 0.2}],
                "validation": {"path": TRAIN, "mask": MASK}}
        how = dict(SMALL, data=dict(SMALL["data"], **data), evaluate={"every": 25, "batches": 2})
        calm = node.train("calm", 2, 1, **dict(how, steps=300))
        again = node.begin("killed", 2, 1, **dict(how, steps=300, snapshot={"every": 40}))
        node.kc("wait", again, "--for", "step>=90")
        kill(node.ranks(again)[1])
        node.kc("wait", again)
        assert node.read(again, "state.json")["incarnation"] == 2
        assert node.root(again) == node.root(calm)
        assert node.metrics(again) == node.metrics(calm)
        assert node.metrics(again, "tokens") == node.metrics(calm, "tokens") and len(set(node.metrics(calm, "tokens"))) > 20
        losses = node.metrics(node.train("alone", 1, 0, **dict(how, steps=300)))
        assert max(abs(a / b - 1) for a, b in zip(losses[:50], node.metrics(calm))) <= 1e-4
        spec = node.read(calm, "spec.json")["data"]
        assert [f["weight"] for f in spec["train"]] == [0.5, 0.3, 0.2] and "mask" not in spec["train"][1], spec


def test_a_mask_of_ones_changes_no_bit():
    with Kc() as node:
        ones = mask(node, "ones.mask", [1] * 3001)
        plain, masked = node.train("plain", 2, 1, **SMALL), node.train("ones", 2, 1, **dict(
            SMALL, data={"order": "shuffled", "train": {"path": TRAIN, "mask": ones}}))
        assert node.root(plain) == node.root(masked)


def failed(node, job, *words):
    node.kc("wait", job, ok=(1,))
    failure = node.result(job)["first_failure"]
    assert failure["reason"] == "data" and all(w in failure["text"] for w in words), failure


def test_what_is_wrong_with_a_mask_is_one_line():
    with Kc() as node:
        def refused(data, *words):
            for verb in ("check", "start"):
                said = node.kc(verb, node.write_spec(data=data), ok=(9,)).stderr
                assert all(w in said for w in words) and said.count("\n") == 1, said
        refused({"train": {"path": TRAIN, "mask": mask(node, "short.mask", [1] * 3000)}}, "data.train.mask: ", "masks 3000 tokens", "3001")
        refused({"train": {"path": TRAIN, "mask": mask(node, "none.mask", [0] * 3001)}}, "none of its 3001 tokens counts")
        refused({"train": {"path": TRAIN, "mask": mask(node, "two.mask", [1, 2] * 1500 + [1])}}, "the byte of token 1 is neither 0 nor 1")
        refused({"train": [TRAIN, {"path": TRAIN, "mask": TRAIN}]}, "data.train[1].mask: ", "is no loss mask")
        refused({"train": MASK}, "is a loss mask and no token file")
        refused({"train": [{"path": TRAIN, "weight": 0}]}, "the weights of its 1 file sum to 0")
        # the whole of one step is masked, far from the first: told with the step, never a division by nothing
        late = mask(node, "late.mask", [0 if 3 * 256 < i <= 4 * 256 else 1 for i in range(3001)])
        failed(node, node.begin("late", 2, 0, data={"train": {"path": TRAIN, "mask": late}}, policy={"on_crash": "stop"}),
               "step 4: data.train: the loss mask leaves out every token of the 8 samples from position 24 on")
        first = mask(node, "first.mask", [0 if i <= 8 * 32 else 1 for i in range(3001)])
        failed(node, node.begin("validation", 1, 0, data={"validation": {"path": TRAIN, "mask": first}}, evaluate={"every": 5, "batches": 1},
                                policy={"on_crash": "stop"}), "evaluation after step 5: data.validation: the loss mask leaves out")


def test_a_mask_that_somebody_writes_is_noticed():
    with Kc() as node:
        path = mask(node, "flips.mask", [1] * 3001)
        job = node.begin("flips", 2, 0, **dict(SMALL, steps=1000000, data={"train": {"path": TRAIN, "mask": path}},
                                               policy={"on_crash": "stop"}))
        node.kc("wait", job, "--for", "step>=5")
        done = threading.Event()

        def flip():
            with open(path, "r+b", buffering=0) as f:
                while not done.is_set():
                    for pair in (b"\0\1", b"\1\1"):
                        os.pwrite(f.fileno(), pair * 1500, 1024)
                        time.sleep(0.0005)
        writer = threading.Thread(target=flip)
        writer.start()
        try:
            failed(node, job, "tokens that count, by the loss masks it is", "the files differ between the ranks, or somebody writes them")
        finally:
            done.set()
            writer.join()


def test_data_prepare_with_gpt2s_tokenizer():
    with Kc() as node:
        folder = node.folder
        text = os.path.join(folder, "a.txt")
        with open(text, "w") as f:
            f.write("The tide comes in, and the tide goes out.\n" * 2000)
        outs = []
        for threads in ("1", "2"):
            out = os.path.join(folder, "out" + threads)
            said = node.json("data", "prepare", *GPT2, "--threads", threads, "--out", out, text)
            assert said["vocab"] == 600 and said["end_of_text"] == 0 and said["train_mask"] is None, said
            outs.append([open(os.path.join(out, f), "rb").read() for f in ("train.bin", "val.bin")])
        assert outs[0] == outs[1]
        said = node.kc("data", "prepare", *GPT2, "--out", os.path.join(folder, "p"), text).stdout
        assert '"documents":"masked","end_of_text":0' in said, said
        # prompts
        lines = os.path.join(folder, "b.jsonl")
        with open(lines, "w") as f:
            for i in range(200):
                f.write(json.dumps({"prompt": f"what is {i}? ", "completion": "the sea\n"}) + "\n")
        out = os.path.join(folder, "sft")
        said = node.json("data", "prepare", *GPT2, "--out", out, lines)
        info = node.json("data", "info", said["train_mask"])
        assert info["kind"] == "mask" and info["tokens"] == said["train_tokens"] and 0 < info["counted_tokens"] < info["tokens"], info
        assert "count (" in node.kc("data", "info", said["validation_mask"]).stdout
        job = node.train("sft", 2, 0, steps=3, model={"vocab": 600, "init": {"from": None}},
                         data={"train": {"path": said["train"], "mask": said["train_mask"]},
                               "validation": {"path": said["validation"], "mask": said["validation_mask"]}}, evaluate={"every": 3})
        assert all(0 < t < 256 for t in node.metrics(job, "tokens"))
        # what is missing or wrong
        for arguments, code, words in ((("--tokenizer", "gpt2"), 2, "--vocab vocab.json"), (GPT2[:4], 2, "--merges merges.txt"),
                                       (GPT2[2:], 2, "did you mean --tokenizer gpt2?"),
                                       ((*GPT2[:4], "--merges", text), 9, "a.txt: line 1: "),
                                       (("--tokenizer", "gtp2"), 2, 'Did you mean gpt2'), ((*GPT2, "--threads", "0"), 2, "--threads")):
            said = node.kc("data", "prepare", *arguments, "--out", os.path.join(folder, "none"), text, ok=(code,)).stderr
            assert words in said, said
        assert not os.path.exists(os.path.join(folder, "none"))


def test_an_interrupted_prepare_leaves_nothing():
    with Kc() as node:
        text, out = os.path.join(node.folder, "long.txt"), os.path.join(node.folder, "out")
        with open(text, "w") as f:
            for i in range(1500000):
                f.write(f"{i * 7919 % 1000003} comes in, {i * 104729 % 999983} goes out\n")
        process = subprocess.Popen([os.path.join(BIN, "kc"), "data", "prepare", *GPT2, "--threads", "1", "--out", out, text],
                                   env=node.environment, stderr=subprocess.PIPE, text=True)
        until("it writes", lambda: os.path.isdir(out) and os.listdir(out))
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
        assert "interrupted: nothing was written" in process.stderr.read()
        assert os.listdir(out) == []


if __name__ == "__main__":
    main(globals())
