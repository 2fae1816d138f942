"""What flow tests of real training share: kc as a person types it, small jobs on the golden data, and readers of snapshots
and safetensors of their own (kc-snapshot(5) and the safetensors format), so that no value is checked by the code that
wrote it."""
import array, json, os, struct, subprocess

from kc_flow import BIN, ROOT, Node, until

GOLDEN = os.path.join(ROOT, "tests", "golden", "gpt2")


class Kc(Node):
    """A node whose jobs are started by kc, with real ranks."""

    def __init__(self, **how):
        super().__init__(fake=False, **how)

    def kc(self, *arguments, ok=(0,), timeout=120, **how):
        done = subprocess.run([os.path.join(BIN, "kc"), *arguments], env=self.environment, capture_output=True, text=True,
                              errors="replace", timeout=timeout, stdin=subprocess.DEVNULL, **how)
        assert done.returncode in ok, f"kc {' '.join(arguments)} exited {done.returncode}\n{done.stdout}{done.stderr}"
        return done

    def json(self, *arguments, ok=(0,)):
        return json.loads(self.kc(*arguments, "--json", ok=ok).stdout)

    def write_spec(self, name="job", ranks=1, zero=0, **changes):
        """The golden run (tests/golden/gpt2), changed; `changes` are objects merged into the spec's. Returns the path."""
        spec = {"name": name, "ranks": ranks, "steps": 20, "threads": 1, "oversubscribe": True,
                "model": {"family": "gpt2", "layers": 2, "hidden": 32, "heads": 4, "context": 32, "vocab": 256,
                          "init": {"from": os.path.join(GOLDEN, "model")}},
                "data": {"train": os.path.join(GOLDEN, "train.bin"), "order": "sequential"},
                "batch": {"sequences": 8, "micro": 8 // ranks},
                "optimizer": {"lr": 1e-2}, "lr_schedule": {"kind": "cosine", "warmup": 4},
                "parallel": {"data": ranks, "zero": zero}}
        for key, value in changes.items():
            spec[key] = dict(spec[key], **value) if isinstance(spec.get(key), dict) else value
        path = os.path.join(self.folder, f"{name}-{len(os.listdir(self.folder))}.json")
        with open(path, "w") as f:
            json.dump(spec, f)
        return path

    def begin(self, *arguments, **changes):
        return self.kc("start", self.write_spec(*arguments, **changes)).stdout.strip()

    def train(self, *arguments, **changes):
        """Start and wait until it has finished; the id."""
        job = self.begin(*arguments, **changes)
        self.kc("wait", job)
        return job

    def result(self, job):
        return until(f"{job} has a result", lambda: self.read(job, "result.json"))

    def metrics(self, job, key="loss"):
        return [m[key] for m in self.lines(job, "metrics.jsonl") if key in m]

    def root(self, job):
        return self.result(job)["state_root"]

    def snapshots(self, job):
        return self.json("snap", "ls", job)["snapshots"]


def safetensors(path):
    """name → list of floats."""
    with open(path, "rb") as f:
        header = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
        body = f.read()
    out = {}
    for name, t in header.items():
        if name != "__metadata__":
            assert t["dtype"] == "F32", (name, t["dtype"])
            out[name] = array.array("f", body[t["data_offsets"][0]:t["data_offsets"][1]])
    return out


def snapshot(path):
    """(manifest, {kind: {name: floats}}), read by the format alone."""
    with open(os.path.join(path, "MANIFEST.json")) as f:
        manifest = json.load(f)["manifest"]
    values = [{t["name"]: array.array("f", bytes(4 * size(t["shape"]))) for t in manifest["tensors"]} for _ in range(3)]
    for pack in manifest["packs"]:
        with open(os.path.join(path, pack["file"]), "rb") as f:
            data = f.read()
        assert len(data) == pack["bytes"]
        index, count, length = struct.unpack_from("<QQQ", data, len(data) - 48)  # the footer
        assert (manifest["format"], count, length) == (2, pack["extents"], len(data))
        for i in range(count):
            tensor, kind, *box = struct.unpack_from("<II10Q", data, index + 128 * i)
            lo, hi, offset = struct.unpack_from("<QQQ", data, index + 128 * i + 88)
            t = manifest["tensors"][tensor]
            put(values[kind][t["name"]], t.get("dims", t["shape"]), box[:5], box[5:], lo, array.array("f", data[offset:offset + 4 * (hi - lo)]))
    return manifest, [by_name_in_files(manifest["tensors"], v) for v in values]


def put(tensor, dims, first, sizes, lo, values):
    """Values lo … of a box into its tensor, a row of the last dimension at a time."""
    if not dims:
        dims, first, sizes = [1], [0], [1]
    done = 0
    while done < len(values):
        rest, n = divmod(lo + done, sizes[len(dims) - 1])
        run = min(sizes[len(dims) - 1] - n, len(values) - done)
        at, stride = first[len(dims) - 1] + n, dims[-1]
        for d in range(len(dims) - 2, -1, -1):
            rest, n = divmod(rest, sizes[d])
            at, stride = at + (first[d] + n) * stride, stride * dims[d]
        tensor[at:at + run] = values[done:done + run]
        done += run


def by_name_in_files(tensors, values):
    """A name with a star is one tensor for each index of dimension 0."""
    out = {}
    for t in tensors:
        v, parts = values[t["name"]], t["shape"][0] if "*" in t["name"] else 1
        for i in range(parts):
            out[t["name"].replace("*", str(i))] = v[len(v) // parts * i:len(v) // parts * (i + 1)]
    return out


def size(shape):
    n = 1
    for d in shape:
        n *= d
    return n


def far(a, b):
    """Largest difference, as a share of the largest magnitude of b."""
    return max(abs(x - y) for x, y in zip(a, b)) / max(abs(y) for y in b)
