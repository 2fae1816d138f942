"""What flow tests of real training share: kc as a person types it, small jobs on the golden data, and readers of snapshots
and safetensors of their own (kc-snapshot(5) and the safetensors format), so that no value is checked by the code that
wrote it."""
import array, ctypes, json, os, struct, subprocess

import kc_schema
from kc_flow import BIN, ROOT, Node, until

GOLDEN = os.path.join(ROOT, "tests", "golden", "gpt2")


class Kc(Node):
    """A node whose jobs are started by kc, with real ranks."""

    def __init__(self, **how):
        self.schemas = set()  # of what was answered with --json
        super().__init__(fake=False, **how)

    def kc(self, *arguments, ok=(0,), timeout=120, **how):
        done = subprocess.run([os.path.join(BIN, "kc"), *arguments], env=self.environment, capture_output=True, text=True,
                              errors="replace", timeout=timeout, stdin=subprocess.DEVNULL, **how)
        assert done.returncode in ok, f"kc {' '.join(arguments)} exited {done.returncode}\n{done.stdout}{done.stderr}"
        if "--json" in arguments and not {"--cols", "--where"} & set(arguments):
            self.schemas |= kc_schema.check(done.stdout)
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
        data, index, count = pack_of(os.path.join(path, pack["file"]))
        assert (manifest["format"], count, len(data)) == (3, pack["extents"], pack["bytes"])
        for i in range(count):
            tensor, kind, *box = struct.unpack_from("<II10Q", data, index + 192 * i)
            lo = struct.unpack_from("<Q", data, index + 192 * i + 88)[0]
            t = manifest["tensors"][tensor]
            words = extent_of(path, pack["file"], i)
            put(values[kind][t["name"]], t.get("dims", t["shape"]), box[:5], box[5:], lo, array.array("f", words.tobytes()))
    return manifest, [by_name_in_files(manifest["tensors"], v) for v in values]


def pack_of(path):
    """(bytes, where the index begins, extents), by the footer."""
    with open(path, "rb") as f:
        data = f.read()
    index, count, length = struct.unpack_from("<QQQ", data, len(data) - 48)
    assert length == len(data), path
    return data, index, count


def extent_of(version, file, i):
    """The bits of an extent's values, differences undone."""
    data, index, _ = pack_of(os.path.join(version, file))
    lo, hi, offset, _, _, codec, _, stored, _, _, origin = struct.unpack_from("<QQQQQIIQQQQ", data, index + 192 * i + 88)
    body, base = data[offset:offset + stored], None
    if origin:
        base = extent_of(os.path.join(os.path.dirname(version), f"v{origin:08d}"), file, i)
    if codec == 5:
        return base
    if codec < 2:
        return array.array("I", body * (hi - lo if codec else 1))
    return array.array("I", (undo(codec, word, base[k] if base else 0) for k, word in enumerate(words_of(body))))


def words_of(frame):
    """The words of a frame, chunk by chunk, from the planes of their bytes."""
    left, at = struct.unpack_from("<I", frame, 4)[0], 8
    while left:
        n = min(left, 1 << 17)
        entries = struct.unpack_from("<4I", frame, at)
        at, planes = at + 16, []
        for entry in entries:
            how, length = entry >> 24, entry & 0xffffff
            body = frame[at:at + length]
            planes.append(body if how == 0 else body * n if how == 1 else inflate(body, n))
            at += length
        yield from (a | b << 8 | c << 16 | d << 24 for a, b, c, d in zip(*planes))
        left -= n


def inflate(frame, n):
    out = ctypes.create_string_buffer(n)
    assert ctypes.CDLL("libzstd.so.1").ZSTD_decompress(out, ctypes.c_size_t(n), frame, ctypes.c_size_t(len(frame))) == n
    return out.raw


def undo(codec, word, base):
    """planes, xor: a turned word; difference: of places in the order of numbers."""
    if codec < 4:
        return ((word >> 1 | word << 31) & 0xffffffff) ^ base
    place = (~base if base >> 31 else base | 1 << 31) & 0xffffffff
    place = (place + (word >> 1 ^ -(word & 1))) & 0xffffffff
    return place ^ 1 << 31 if place >> 31 else ~place & 0xffffffff


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
