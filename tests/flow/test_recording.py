#!/usr/bin/env python3
"""The night before: what a job's board showed can be looked at afterwards, over killed ranks, a killed keeper and a resume; and a
recording that can't be written disturbs nothing."""
import ctypes, os, shutil, struct, sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from kc_flow import kill, main, until
from kc_train import Kc

LONG = dict(steps=1000000, model={"init": {"from": None}}, snapshot={"every": 20})


def moments(node, job):
    return node.json("replay", job)["moments"]


def wrong(node, job):
    return [m for m in moments(node, job) if m["wrong"]]


def segments(node, job):
    return sorted(os.listdir(node.path(job, "recording")))


def at(node, job, time):
    return node.json("show", job, "--at", time)["job"]


class Digest(ctypes.Structure):
    _fields_ = [("low", ctypes.c_uint64), ("high", ctypes.c_uint64)]


def digest(data):
    xxh = ctypes.CDLL("libxxhash.so.0").XXH3_128bits
    xxh.restype, xxh.argtypes = Digest, [ctypes.c_char_p, ctypes.c_size_t]
    d = xxh(data, len(data))
    return struct.pack("<QQ", d.low, d.high)


def unpacked(data, room):
    zstd = ctypes.CDLL("libzstd.so.1").ZSTD_decompress
    zstd.restype, zstd.argtypes = ctypes.c_size_t, [ctypes.c_char_p, ctypes.c_size_t, ctypes.c_char_p, ctypes.c_size_t]
    out = ctypes.create_string_buffer(room)
    assert zstd(out, room, data, len(data)) == room
    return out.raw


def number(raw, at):
    value = shift = 0
    while True:
        value, shift, at = value | (raw[at] & 127) << shift, shift + 7, at + 1
        if raw[at - 1] < 128:
            return value, at


def apply(raw, board):
    """The entries of a frame, as kc-recording(5) has them."""
    at = end = 0
    last = {}
    while at < len(raw):
        gap, at = number(raw, at)
        count, at = number(raw, at)
        begin = end + (gap >> 1 ^ -(gap & 1))
        if count > 16:
            words = struct.unpack_from(f"<{count}Q", raw, at)
            at += 8 * count
        else:
            words = []
            for before in last.get(count, [0] * count):
                d, at = number(raw, at)
                words.append((before + (d >> 1 ^ -(d & 1))) % 2**64)
            last[count] = words
        struct.pack_into(f"<{count}Q", board, 8 * begin, *words)
        end = begin + count


def read_segment(path):
    """(id, times of its moments, the board as of the last), by the format alone."""
    with open(path, "rb") as f:
        data = f.read()
    magic, version, _, size, _, _, ranks, _ = struct.unpack_from("<8sIIQQQII", data)
    assert magic == b"KCTAPE1\n" and version == 1 and ranks == 2 and data[152:168] == digest(data[:152])
    board, moments, at = bytearray(size), [], 168
    while at < len(data):
        magic, flags, stored, raw, time, _ = struct.unpack_from("<IIIIQQ", data, at)
        body = data[at + 48:at + 48 + stored]
        assert magic == 0x4d524643 and bool(flags & 1) == (not moments) and len(body) == stored
        assert data[at + 32:at + 48] == digest(data[at:at + 32] + digest(body)), path
        if raw:
            apply(unpacked(body, raw), board)
        at += 48 + stored
        if not flags & 2:
            moments.append(time)
    return data[48:112].rstrip(b"\0").decode(), moments, board


def test_the_night_before():
    with Kc() as node:
        job = node.begin("tape", 2, 1, **LONG)
        node.kc("wait", job, "--for", "step>=30")
        until("it was recorded while it ran", lambda: moments(node, job) and moments(node, job)[-1]["time"])
        assert not wrong(node, job)

        kill(node.ranks(job)[1])
        node.wait(job, "running")
        seen = until("it was recorded, before its peer was told and when all were gone",
                     lambda: (lambda w: len(w) >= 2 and w)(wrong(node, job)))
        first, last = at(node, job, seen[0]["time"]), at(node, job, seen[-1]["time"])
        assert first["state"] == "running" and first["step"] >= 30 and first["ranks"][0]["state"] == "running", first
        assert [r["state"] for r in last["ranks"]] == ["failed"] * 2 and last["state"] == "restarting", last
        blamed = node.json("hang", job, "--at", seen[-1]["time"], ok=(0, 1))
        assert [(v["word"], v["ranks"]) for v in blamed["verdicts"]] == [("dead-peer", [1])], blamed
        assert blamed["at"] == seen[-1]["time"] and blamed["saved"], blamed
        until("it begins again", lambda: node.read(job, "state.json")["incarnation"] == 2)
        node.kc("wait", job, "--for", f"step>{first['step']}")

        before = segments(node, job)
        kill(node.keeper(job))
        until("another keeper records", lambda: len(segments(node, job)) > len(before))
        node.wait(job, "running")
        list_of = moments(node, job)
        clocks = [m["monotonic_ns"] for m in list_of]
        assert clocks == sorted(clocks) and list_of[0]["whole"], "one night, whoever recorded it"
        node.kc("stop", job)
        assert at(node, job, "end")["state"] == "stopped"

        seconds = [read_segment(node.path(job, "recording", n)) for n in segments(node, job) if n.endswith(".seconds")]
        assert all(name == job and job.encode() in board for name, _, board in seconds)
        assert seconds[0][1][0] == clocks[0] and sum(len(times) for _, times, _ in seconds) >= len(list_of)

        whole = os.path.join(node.folder, "night")
        with open(whole, "wb") as out:
            for name in segments(node, job):
                with open(node.path(job, "recording", name), "rb") as part:
                    out.write(part.read())
        assert len(node.json("replay", whole)["moments"]) == len(moments(node, job)), "cat of segments is a recording"
        with open(whole, "r+b") as torn:
            torn.truncate(os.path.getsize(whole) - 7)
        cut = node.json("replay", whole)
        assert cut["torn_bytes"] > 0 and cut["damaged_bytes"] == 0, cut

        # a resume that can't record trains on, and says so once
        shutil.rmtree(node.path(job, "recording"))
        with open(node.path(job, "recording"), "w") as f:
            f.write("in the way")
        node.kc("resume", job)
        told = until("it is told", lambda: node.events(job, "recording-failed"))
        node.kc("wait", job, "--for", f"step>{node.json('show', job)['job']['step'] + 50}")
        assert len(node.events(job, "recording-failed")) == 1 and "recording" in told[0]["text"], told
        node.kc("replay", job, "--json", ok=(9,))
        node.kc("stop", job)
        node.kc("rm", job)
        assert not os.path.exists(node.path(job))


if __name__ == "__main__":
    main(globals())
