"""Files of GGUF, against what ggml's loops make of each kind of block."""
from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from impl import Tensor
from impl.errors import ArgumentError, DTypeError
from impl.nn import saving
from impl.nn.gguf import gguf_load, gguf_metadata
from impl.nn.quantized import KINDS, Quantized
from impl.settings import Context

random = np.random.default_rng(4)


@pytest.fixture(autouse=True)
def _reference() -> Iterator[None]:
    with Context(DEVICE="REFERENCE"):
        yield


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value.encode())) + value.encode()


def written(path: Path, tensors: dict[str, tuple[int, tuple[int, ...], bytes]],
            values: bytes = b"", count: int = 0, version: int = 3) -> Path:
    header = b"GGUF" + struct.pack("<IQQ", version, len(tensors), count) + values
    content = b""
    for name, (kind, shape, data) in tensors.items():
        header += text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape[::-1], kind,
                                           len(content))
        content += data + b"\0" * (-len(data) % 32)
    path.write_bytes(header + b"\0" * (-len(header) % 32) + content)
    return path


def blocks(count: int, size: int, halves: tuple[int, ...]) -> np.ndarray:
    """Blocks of any bytes, with small float16 where the scales are."""
    made = random.integers(0, 256, (count, size), dtype=np.uint8)
    for start in halves:
        made[:, start:start + 2] = random.standard_normal(count).astype("<f2")[:, None].view("u1")
    return made


def half(block: np.ndarray, start: int) -> float:
    return float(block[start:start + 2].copy().view("<f2")[0])


def q4_0(b: np.ndarray) -> list[float]:
    return [((int(b[2 + i % 16]) >> 4 * (i // 16) & 15) - 8) * half(b, 0) for i in range(32)]


def q4_1(b: np.ndarray) -> list[float]:
    return [(int(b[4 + i % 16]) >> 4 * (i // 16) & 15) * half(b, 0) + half(b, 2)
            for i in range(32)]


def q8_0(b: np.ndarray) -> list[float]:
    return [int(b[2 + i].view(np.int8)) * half(b, 0) for i in range(32)]


def q4_k(b: np.ndarray) -> list[float]:
    small, found = [int(one) for one in b[4:16]], []
    for part in range(8):
        if part < 4:
            scale, least = small[part] & 63, small[part + 4] & 63
        else:
            scale = small[part + 4] & 15 | (small[part - 4] >> 6) << 4
            least = small[part + 4] >> 4 | (small[part] >> 6) << 4
        for i in range(32):
            number = int(b[16 + part // 2 * 32 + i]) >> 4 * (part % 2) & 15
            found.append(half(b, 0) * scale * number - half(b, 2) * least)
    return found


def q6_k(b: np.ndarray) -> list[float]:
    found = [0.0] * 256
    for n in range(2):
        low, high, scales = b[64 * n:], b[128 + 32 * n:], b[192 + 8 * n:].view(np.int8)
        for i in range(32):
            for quarter in range(4):
                lower = int(low[i + 32 * (quarter % 2)]) >> 4 * (quarter // 2) & 15
                number = (lower | (int(high[i]) >> 2 * quarter & 3) << 4) - 32
                found[128 * n + 32 * quarter + i] = \
                    half(b, 208) * int(scales[i // 16 + 2 * quarter]) * number
    return found


@pytest.mark.parametrize(("kind", "size", "halves", "numbers"), [
    (2, 18, (0,), q4_0), (3, 20, (0, 2), q4_1), (8, 34, (0,), q8_0), (12, 144, (0, 2), q4_k),
    (14, 210, (208,), q6_k)], ids=["Q4_0", "Q4_1", "Q8_0", "Q4_K", "Q6_K"])
def test_quantised_numbers(tmp_path: Path, kind: int, size: int, halves: tuple[int, ...],
                           numbers: object) -> None:
    data = blocks(4, size, halves)
    wanted = np.array([numbers(block) for block in data])  # type: ignore[operator]
    shape = (2, wanted.size // 2)
    path = written(tmp_path / "m.gguf", {"w": (kind, shape, data.tobytes())})
    assert np.allclose(gguf_load(path)["w"].numpy(), wanted.reshape(shape), rtol=1e-5, atol=1e-5)


#: Where a block has float16, by the code of its kind; any other bytes will do elsewhere.
HALVES = {2: (0,), 3: (0, 2), 6: (0,), 7: (0, 2), 8: (0,), 10: (80, 82), 11: (108,), 12: (0, 2),
          13: (0, 2), 14: (208,), 20: (0,), 23: (0,), 34: (52,), 35: (64,)}


@pytest.mark.parametrize("code", [one for one in KINDS if one != 15],
                         ids=lambda one: KINDS[one].name)
def test_numbers_are_those_of_the_package_of_ggml(code: int) -> None:
    gguf = pytest.importorskip("gguf", reason="pip install gguf")
    kind = KINDS[code]
    data = blocks(8, kind.nbytes, HALVES.get(code, ()))
    if code == 39:  # a power of two, of which the greatest has no float32
        data[:, 0] %= 250
    packed = Quantized(Tensor(data.reshape(2, 4, -1)), kind)
    wanted = gguf.quants.dequantize(data.reshape(2, -1), gguf.GGMLQuantizationType(code))
    assert packed.shape == wanted.shape and np.array_equal(packed.numbers().numpy(), wanted)
    assert np.array_equal(packed.rows(Tensor([[1, 0, 1]])).numpy(), wanted[[[1, 0, 1]]])
    x = random.standard_normal((3, wanted.shape[1])).astype(np.float32)
    bound = 1e-5 * np.abs(x) @ np.abs(wanted).T + 1e-6
    for given in (x, x[:1], x[0], x[:1].reshape(1, 1, -1)):
        assert np.all(np.abs(packed.linear(Tensor(given)).numpy() - given @ wanted.T)
                      <= bound[:1] if len(given) != 3 else bound)


def test_a_kind_that_the_package_cannot_read() -> None:
    data = random.integers(0, 256, (2, 292), dtype=np.uint8)
    scales = random.standard_normal(2).astype("<f4")
    data[:, :4] = scales[:, None].view("u1")
    found = Quantized(Tensor(data), KINDS[15]).numbers().numpy()
    assert np.array_equal(found, (data[:, 4:260].view(np.int8) * scales[:, None]).reshape(-1))


@pytest.mark.parametrize("rows", [1, 8])
@pytest.mark.parametrize("code", [one for one in KINDS if one != 34],
                         ids=lambda one: KINDS[one].name)
def test_the_kernel_of_the_product_reads_the_bytes(code: int, rows: int) -> None:
    kind = KINDS[code]
    data = blocks(256 * 1024 // kind.size, kind.nbytes, HALVES.get(code, ()))
    packed = Quantized(Tensor(data.reshape(256, -1, kind.nbytes)).realize(), kind)
    with Context(DEVICE="CPU"):
        x = Tensor.ones(rows, 1024).realize()
        weight = Quantized(packed.packed.to("CPU").realize(), kind)
        document = Tensor.schedule_document(weight.linear(x))
    sizes = {each["id"]: (each["dtype"], each["bytes"]) for each in document["buffers"]}
    assert any(sizes[one["buffer"]] == ("uint8", data.size)
               for kernel in document["kernels"] for one in kernel["reads"])
    numbers = 4 * 256 * 1024
    assert all(size <= numbers / 4 for dtype, size in sizes.values() if dtype == "float32")


def test_what_is_not_packed_so_is_refused() -> None:
    for wrong in (Tensor.zeros(2, 18), Tensor.zeros(2, 17, dtype="uint8")):
        with pytest.raises(ArgumentError, match="give uint8 in blocks of 18"):
            Quantized(wrong, KINDS[2])


def test_plain_numbers_and_values(tmp_path: Path) -> None:
    wide = random.standard_normal((2, 3)).astype("<f4")
    brain = (wide.view(np.uint32) >> 16).astype("<u2")
    values = (text("a.name") + struct.pack("<I", 8) + text("möbius")
              + text("a.sizes") + struct.pack("<IIQ3i", 9, 5, 3, 1, -2, 3)
              + text("a.words") + struct.pack("<IIQ", 9, 8, 2) + text("x") + text("")
              + text("a.rate") + struct.pack("<If", 6, 0.5)
              + text("general.alignment") + struct.pack("<II", 4, 32))
    path = written(tmp_path / "m.gguf", {
        "wide": (0, (2, 3), wide.tobytes()), "half": (1, (6,), wide.astype("<f2").tobytes()),
        "brain": (30, (2, 3), brain.tobytes()), "int": (26, (2,), b"\1\0\0\0\2\0\0\0")},
        values, 5)
    found = saving.load(path)
    assert np.array_equal(found["wide"].numpy(), wide) and found["int"].tolist() == [1, 2]
    assert np.array_equal(found["half"].numpy(), wide.astype("f2").reshape(-1))
    assert found["brain"].dtype.name == "bfloat16"
    assert np.allclose(found["brain"].numpy(), wide, rtol=1e-2)
    assert gguf_metadata(path) == {"a.name": "möbius", "a.sizes": [1, -2, 3], "a.words": ["x", ""],
                                   "a.rate": 0.5, "general.alignment": 32}


def test_what_is_no_such_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    for tensors, problem in (
            ({"w": (0, (100,), b"\0" * 8)}, "takes 400 bytes"),
            ({"w": (0, (2 ** 40, 2 ** 40), b"")}, "takes"), ({"w": (19, (8,), b"")}, "of kind 19"),
            ({"w": (2, (2, 16), b"\0" * 18)}, "no whole blocks of 32"),
            ({"w": (2, (31,), b"\0" * 18)}, "of shape"), ({"w": (0, (1,) * 9, b"")}, "9 axes")):
        with pytest.raises(DTypeError, match=f"gguf_load: .*{problem}"):
            gguf_load(written(path, tensors))  # type: ignore[arg-type]
    with pytest.raises(DTypeError, match="version 1"):
        gguf_load(written(path, {}, version=1))
    for content in (b"", b"GGUF", b"GGML" + b"\0" * 40,
                    b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 2 ** 60)):
        path.write_bytes(content)
        with pytest.raises(DTypeError, match="gguf_load"):
            gguf_load(path)


def test_changed_bytes_give_tensors_or_an_error(tmp_path: Path) -> None:
    values = text("a") + struct.pack("<IIQ2I", 9, 4, 2, 1, 2)
    path = written(tmp_path / "m.gguf", {"w": (8, (32,), b"\1" * 34), "v": (0, (2,), b"\0" * 8)},
                   values, 1)
    whole = path.read_bytes()
    for _ in range(200):
        changed = bytearray(whole[:int(random.integers(1, len(whole) + 1))])
        for place in random.integers(0, len(changed), 2):
            changed[place] = int(random.integers(0, 256))
        path.write_bytes(changed)
        try:
            assert all(isinstance(one, Tensor) for one in gguf_load(path).values())
        except DTypeError as error:
            assert error.operation == "gguf_load"
