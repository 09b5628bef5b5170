"""`python -m conformance.formats`: the readers of files, asked of files that are damaged.

For each format a few small files are written that are whole. Then bytes are changed, cut, doubled
and exchanged, in a file as it lies or in what its zip holds, and it is loaded. The reader has to
give tensors or an error of its own. It may not run anything, write or open another file, take
memory for what the file merely claims, or give more bytes than a multiple of what is there.

Each change has a number, from which it is drawn. A process loads a great many, one after the other.
If it ends, or makes no progress, that is a mistake of the one it was at, and another process goes
on behind it.

    python -m conformance.formats --count 1000000 -n 2 --report conformance/reports/formats.json
"""
from __future__ import annotations

import importlib.util
import io
import json
import multiprocessing
import random
import struct
import sys
import tempfile
import time
import zipfile
from argparse import ArgumentParser
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

from conformance.runner.fuzz import commit
from impl import Context, Tensor, nn
from impl.errors import TensorScheduleError
from impl.nn import saving
from impl.nn.gguf import gguf_metadata, gguf_packed
from impl.nn.quantized import KINDS, Quantized

#: What a reader may take beside the file, in bytes: more is what a file claims.
ROOM = 1 << 30
#: A load that takes longer is looked at: there is a walk that is not linear.
SECONDS = 20.0
#: A process that says nothing for so long, and is at the same file still, hangs.
HANGS = 60.0
#: So many files a process loads at most, and after so many it says what it found.
LIFE, EACH = 100_000, 1000
#: After so many mistakes it is enough.
MOST = 20
#: Events of the interpreter of which none may come while a file is loaded.
FORBIDDEN = ("os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.fork", "subprocess.Popen",
             "pickle.find_class", "socket.", "ctypes.dlopen", "shutil.", "os.remove", "os.rename",
             "os.mkdir")
#: Numbers at which sizes turn over.
EDGES = (0, 1, 0x7f, 0x80, 0xff, 0xffff, 0x7fffffff, 0x80000000, 0xffffffff, 2 ** 40,
         2 ** 62, 2 ** 63 - 1, 2 ** 63, 2 ** 64 - 1)


# ---------------------------------------------------------------- files that are whole


def _arrays() -> dict[str, np.ndarray]:
    return {"a": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.arange(3), "c": np.ones(())}


def _written(write: Callable[[Path], Any], suffix: str) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"file{suffix}"
        write(path)
        return path.read_bytes()


def _npy() -> bytes:
    content = io.BytesIO()
    np.save(content, _arrays()["a"])
    return content.getvalue()


def _npz(write: Callable[..., None]) -> bytes:
    content = io.BytesIO()
    write(content, **_arrays())
    return content.getvalue()


def _tree() -> dict[str, Any]:
    return {"model": {"w": Tensor([[1.0, 2.0]]), "half": Tensor([1.0]).bfloat16(),
                      "mask": Tensor([True, False])}, "epoch": 3, "sizes": (1, 2.5, None, "x"),
            "more": [{}, [], ()]}


def _gguf(code: int) -> bytes:
    """Metadata of all kinds, plain tensors, and one of a kind of blocks."""
    def text(value: str) -> bytes:
        return struct.pack("<Q", len(value)) + value.encode()

    values = [text("a") + struct.pack("<I", 8) + text("words"),
              text("b") + struct.pack("<IIQ3i", 9, 5, 3, 1, 2, 3),
              text("c") + struct.pack("<IIQ", 9, 8, 1) + text("x"),
              text("general.alignment") + struct.pack("<II", 4, 32)]
    kind = KINDS[code]
    tensors = [("plain", 0, (2, 2), 16), ("brain", 30, (2,), 4),
               (kind.name, code, (1, kind.size), kind.nbytes)]
    header = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(values)) + b"".join(values)
    content = b""
    for name, code, shape, nbytes in tensors:
        header += text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape[::-1], code,
                                           len(content))
        content += bytes(range(nbytes % 256)) * (nbytes // max(nbytes % 256, 1) + 1)
        content += b"\0" * (-len(content) % 32)
    return header + b"\0" * (-len(header) % 32) + content


def _onnx() -> bytes:
    from onnx import TensorProto, helper, numpy_helper

    weight = numpy_helper.from_array(_arrays()["a"], "w")
    shape = numpy_helper.from_array(np.array([2, -1, 1]), "s")
    first, last = (numpy_helper.from_array(np.array([one]), f"s{one}") for one in (0, 2))
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["w", "x"], ["h"]), helper.make_node("Relu", ["h"], ["r"]),
         helper.make_node("Slice", ["s", "s0", "s2"], ["t"]),
         helper.make_node("Reshape", ["r", "t"], ["y"])], "small",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (3, "n"))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [weight, shape, first, last])
    content: bytes = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 21)]).SerializeToString()
    return content


def whole(peers: bool = True) -> dict[str, list[bytes]]:
    """Files of each format; also those that other libraries write, where they are installed."""
    found = {
        "safetensors": [_written(lambda path: nn.state.safe_save(
            {name: Tensor(one) for name, one in _arrays().items()}, path, {"about": "x"}), ""),
            _written(lambda path: saving.save(_tree(), path), "")],
        "pt": [_written(lambda path: saving.save(_tree(), path), ".pt")],
        "npz": [_npz(np.savez), _npz(np.savez_compressed)], "npy": [_npy()],
        "gguf": list(map(_gguf, KINDS))}
    if peers and importlib.util.find_spec("torch"):
        import torch
        given = {"w": torch.arange(12.).reshape(3, 4).T, "p": torch.nn.Parameter(torch.ones(2)),
                 "u": torch.ones(2, dtype=torch.uint16), "more": [1, (2.5, "x", None)]}
        found["pt"].append(_written(lambda path: torch.save(given, path), ".pt"))
    if peers and importlib.util.find_spec("onnx"):
        found["onnx"] = [_onnx()]
    return found


# ---------------------------------------------------------------- changes


def changed(content: bytes, draw: random.Random) -> bytes:
    """A file with one to four changes; of a zip also in what it holds."""
    if content[:2] == b"PK" and draw.random() < 0.7:
        found = _inside(content, draw)
        if found is not None:
            return found
    return _damaged(content, draw)


def _inside(content: bytes, draw: random.Random) -> bytes | None:
    """A zip of which one entry is damaged, and whose sums are right."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        entries = [(info, archive.read(info)) for info in archive.infolist()]
    chosen = draw.randrange(len(entries))
    for place, (info, _) in enumerate(entries):  # what says what there is, more often
        if info.filename.endswith("data.pkl") and draw.random() < 0.6:
            chosen = place
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        for place, (info, inner) in enumerate(entries):
            name = info.filename if draw.random() > 0.01 else "../" + info.filename
            archive.writestr(zipfile.ZipInfo(name), _damaged(inner, draw) if place == chosen
                             else inner, info.compress_type)
    return made.getvalue()


def _damaged(content: bytes, draw: random.Random) -> bytes:
    found = bytearray(content)
    for _ in range(draw.randint(1, 4)):
        if not found:
            break
        place = draw.randrange(len(found))
        kind = draw.randrange(8)
        if kind < 3:
            found[place] = draw.randrange(256)
        elif kind == 3:
            found[place] ^= 1 << draw.randrange(8)
        elif kind == 4:
            number = draw.choice(EDGES).to_bytes(8, "little")[:draw.choice((1, 2, 4, 8))]
            found[place:place + len(number)] = number
        elif kind == 5:
            del found[place:place + draw.choice((1, 2, 8, len(found)))]
        elif kind == 6:
            found[place:place] = found[draw.randrange(len(found)):][:draw.choice((1, 4, 8, 64))]
        else:  # a figure of a header of text becomes another one, or longer
            for figure in range(place, min(place + 64, len(found))):
                if 48 <= found[figure] < 58:
                    found[figure:figure + 1] = draw.choice((b"-1", b"9999999999", b"0", b"1e9"))
                    break
    return bytes(found)


# ---------------------------------------------------------------- judging


class Watch:
    """Notes events of the interpreter that a reader of files may not cause."""

    def __init__(self) -> None:
        self.on, self.path, self.seen = False, "", ""
        sys.addaudithook(self)

    def __call__(self, event: str, given: tuple[Any, ...]) -> None:
        if not self.on:
            return
        compiled = event == "os.rename" and str(given[1]).endswith(".pyc")  # of an import
        if event.startswith(FORBIDDEN) and not compiled:
            self.seen = event
        elif event == "open" and isinstance(given[0], (str, bytes)) \
                and (str(given[0]) != self.path or "w" in str(given[1])):
            self.seen = f"open {given[0]!r:.60}"


def load(kind: str, path: Path) -> Iterator[Any]:
    """What a file has in it."""
    if kind == "onnx":
        import impl.onnx
        yield impl.onnx.load(path)
        return
    if kind == "gguf":
        gguf_metadata(path)
        yield gguf_packed(path)
    yield saving.load(path)


def _bytes(found: Any) -> int:
    """How many bytes the tensors in it have, together."""
    if isinstance(found, Tensor):
        return found.numel() * found.dtype.itemsize
    if isinstance(found, Quantized):
        return found.packed.numel()
    if isinstance(found, dict):
        return sum(map(_bytes, found.values()))
    return sum(map(_bytes, found)) if isinstance(found, (list, tuple)) else 0


def judge(kind: str, path: Path, watch: Watch, size: int) -> tuple[str, bool]:
    """What is wrong with how a file is read, if something is, and whether tensors were given."""
    watch.path, watch.seen, watch.on, given = str(path), "", True, False
    began = time.monotonic()
    try:
        for found in load(kind, path):
            given = True
            if _bytes(found) > 4096 * size + 4096:
                return f"{_bytes(found)} bytes of a file of {size}", given
    except TensorScheduleError:
        given = False
    except BaseException as error:  # noqa: BLE001  (which is what is looked for)
        return f"{type(error).__name__}: {error}"[:300], False
    finally:
        watch.on = False
    if watch.seen:
        return f"it caused {watch.seen}", given
    took = time.monotonic() - began
    return (f"it took {took:.1f} s" if took > SECONDS else ""), given


Files = dict[str, list[bytes]]


def drawn(files: Files, seed: int, number: int) -> tuple[str, bytes]:
    """The changed file of a number, and its format: each format has its turn."""
    draw = random.Random(seed << 40 | number)
    kind = sorted(files)[number % len(files)]
    return kind, changed(draw.choice(files[kind]), draw)


class Found:
    """How many files were tried, of how many tensors were given, and what was read wrongly."""

    def __init__(self) -> None:
        self.tried, self.given = Counter[str](), Counter[str]()
        self.wrong: list[tuple[str, str, str]] = []

    def add(self, other: Found) -> None:
        """Take in what another process found."""
        self.tried.update(other.tried)
        self.given.update(other.given)
        self.wrong += other.wrong


def run(seed: int, first: int, last: int, end: float, at: Any, results: Connection) -> None:
    """Try the changes of some numbers, or as many as there is time for; send what was found, again
    and again, with the number behind it.
    """
    files, found = whole(), Found()
    _limit_memory()
    watch = Watch()
    memory = "/dev/shm" if Path("/dev/shm").is_dir() else None
    with tempfile.TemporaryDirectory(dir=memory) as folder, Context(DEVICE="REFERENCE"):
        path = Path(folder) / "file"
        read_once([(kind, one) for kind, several in files.items() for one in several], path)
        for number in range(first, last):
            at.value = number
            kind, content = drawn(files, seed, number)
            path.write_bytes(content)
            told, gave = judge(kind, path, watch, len(content))
            found.tried[kind] += 1
            found.given[kind] += gave
            if told:
                found.wrong.append((kind, told, content.hex()))
            ended = number + 1 == last or time.time() > end
            if ended or not (number + 1) % EACH:
                results.send((found, number + 1, ended))
                found = Found()
            if ended:
                return


def supervised(seed: int, first: int, last: int, seconds: float) -> Found:
    """The same in processes of its own, one after the other: what ends one is a mistake, too."""
    found, end = Found(), time.time() + seconds
    context = multiprocessing.get_context("spawn")
    while first < last and time.time() < end and len(found.wrong) < MOST:
        at, (mine, theirs) = context.RawValue("q", first), context.Pipe(duplex=False)
        process = context.Process(target=run, args=(
            seed, first, min(last, first + LIFE), end, at, theirs))
        process.start()
        theirs.close()
        first, problem = _followed(mine, at, first, found)
        process.kill()
        process.join()
        if problem:
            kind, content = drawn(whole(), seed, at.value)
            found.wrong.append((kind, problem, content.hex()))
            first = at.value + 1
    return found


def _followed(results: Connection, at: Any, first: int, found: Found) -> tuple[int, str]:
    """Take in what a process sends until it is done; the number behind, and what was wrong."""
    seen = -1
    while True:
        if results.poll(HANGS):
            try:
                more, first, ended = results.recv()
            except EOFError:
                return first, "it ends the process"
            found.add(more)
            if ended or len(found.wrong) >= MOST:
                return first, ""
        elif at.value == seen:
            return first, f"it takes longer than {HANGS} s"
        seen = at.value


def read_once(files: Sequence[tuple[str, bytes]], path: Path) -> None:
    """Load files that are whole: what is imported for them is imported now."""
    for kind, content in files:
        path.write_bytes(content)
        for _ in load(kind, path):
            pass


def _limit_memory() -> None:
    """Let this process have so much memory more and no more, where that can be said."""
    try:
        import resource
    except ImportError:
        return
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize() \
        if Path("/proc/self/statm").exists() else 0
    if used:
        resource.setrlimit(resource.RLIMIT_AS, (used + ROOM, used + ROOM))


def main(arguments: Sequence[str] | None = None) -> int:
    """Print how many files of each format were tried, and each that was read wrongly."""
    parser = ArgumentParser(prog="python -m conformance.formats")
    parser.add_argument("--count", type=int, default=10_000, help="changed files to try")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="the longest time")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("-n", type=int, default=1, help="processes that share the work")
    parser.add_argument("--report", type=Path, help="a file for the counts, as JSON")
    options = parser.parse_args(arguments)
    begun, share, found = time.monotonic(), -(-options.count // options.n), Found()
    with ThreadPoolExecutor(options.n) as pool:
        parts = [pool.submit(supervised, options.seed, start, min(
            start + share, options.count), options.seconds)
            for start in range(0, options.count, share)]
        for part in parts:
            found.add(part.result())
    for kind, told, content in found.wrong:
        print(f"wrong  {kind}: {told}\n       {content[:4000]}")
    for kind, number in sorted(found.tried.items()):
        print(f"{kind:12} {number:8} changed files, of {found.given[kind]} tensors were given")
    count, took = found.tried.total(), time.monotonic() - begun
    print(f"{count} changed files, {len(found.wrong)} read wrongly; {count / took:.0f} a second")
    if options.report:
        options.report.write_text(json.dumps({
            "command": " ".join(("python -m conformance.formats", *sys.argv[1:])),
            "commit": commit(), "count": count, "tried": dict(sorted(found.tried.items())),
            "with tensors": dict(sorted(found.given.items())),
            "wrong": [each[:2] for each in found.wrong]}, indent=1) + "\n", encoding="utf-8")
    return bool(found.wrong)


if __name__ == "__main__":
    sys.exit(main())
