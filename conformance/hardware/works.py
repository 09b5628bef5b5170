"""The workloads of the hardware run: those of the benchmark, in sizes that fill a GPU."""
from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from conformance.bench.operations import Operations
from conformance.bench.workloads import (
    PARTS,
    Arrays,
    Drawn,
    Work,
    Workload,
    block,
    gpt_loss,
    mlp_loss,
)

DTYPES = ("float32", "float16", "bfloat16")
#: How far a value may be off, as a part of the greatest one; sums of products lose a few digits.
TOLERANCE = {"float32": 2e-3, "float16": 1e-2, "bfloat16": 6e-2}
#: Workloads with more operations are compared with another library, not with NumPy.
MOST_FOR_NUMPY = 3e11


def works(small: bool) -> Iterator[Workload]:
    """The workloads in the order in which they matter; `small` ones for the mock driver."""
    def one(name: str, inputs: Arrays, compute: Callable[[Any, Operations], Any],
            operations: int = 0, written: int = 1, parameters: tuple[str, ...] = ()) -> Workload:
        read = sum(array.size for array in inputs.values())
        return Workload(name, inputs, compute, parameters, Work(read, written, operations))

    side, long = (16, 1 << 10) if small else (4096, 1 << 26)
    many = {"x": repeating(long)}
    square = {"x": repeating(side, side)}
    yield one("elementwise", many, lambda p, lib: lib.relu((p["x"] + 1) * 2), 0, long)
    yield one("sum", many, lambda p, lib: lib.sum(p["x"]))
    yield one("softmax", square, lambda p, lib: lib.softmax(p["x"]), 0, side * side)
    yield one("layer norm", square, lambda p, lib: lib.layer_norm(p["x"]), 0, side * side)
    for size in (16,) if small else (4096, 8192):
        yield one(f"matmul {size}", {"x": repeating(size, size), "y": repeating(size, size)},
                  lambda p, lib: p["x"] @ p["y"], 2 * size**3, size * size)
    batch, heads, places, width = (1, 2, 8, 4) if small else (4, 16, 2048, 64)
    three = {name: repeating(batch, heads, places, width) for name in "qkv"}
    for title, seen in (("attention", attention), ("causal attention", causal_attention)):
        half = 2 if seen is causal_attention else 1
        yield one(title, three, seen, 4 * batch * heads * places * places * width // half,
                  batch * heads * places * width)
    images, channels, edge = (1, 2, 6) if small else (32, 64, 56)
    yield one("conv2d", {"x": repeating(images, channels, edge, edge),
                         "w": repeating(channels, channels, 3, 3)},
              lambda p, lib: lib.conv2d(p["x"], p["w"], padding=1),
              2 * images * channels * channels * 9 * edge * edge, images * channels * edge * edge)
    yield block_of(*((1, 4, 8, 2) if small else (8, 1024, 768, 12)))
    yield step_of(4 if small else 128, 8 if small else 784, 8 if small else 512)
    yield gpt_of(*((1, 4, 8) if small else (8, 64, 128)))


def attention(p: Any, lib: Operations) -> Any:
    """Every place sees all places."""
    return lib.attention(p["q"], p["k"], p["v"])


def causal_attention(p: Any, lib: Operations) -> Any:
    """Every place sees those before it."""
    return lib.attention(p["q"], p["k"], p["v"], causal=True)


def repeating(*shape: int) -> np.ndarray:
    """Random numbers, of which a long array has the same again: drawing them takes longest."""
    count = int(np.prod(shape))
    drawn = np.random.default_rng(count % 1009).standard_normal(min(count, 999_983))
    return np.resize(drawn.astype(np.float32), shape)


def block_of(batch: int, places: int, width: int, heads: int) -> Workload:
    """One transformer layer, forward."""
    drawn = Drawn().floats("x", batch, places, width).layer("", width).arrays
    operations = 2 * batch * places * width * (12 * width + 2 * places)
    return Workload("GPT-2 block", drawn, lambda p, lib: block(p["x"], p, "", heads, lib),
                    work=Work(sum(a.size for a in drawn.values()), batch * places * width,
                              operations))


def step_of(batch: int, inputs: int, hidden: int) -> Workload:
    """A step of training: two layers, cross entropy, gradients, new weights."""
    drawn = Drawn().floats("x", batch, inputs)
    drawn.floats("first", inputs, hidden, size=inputs**-0.5).floats("first_bias", hidden, size=0.1)
    drawn.floats("second", hidden, 10, size=hidden**-0.5).floats("second_bias", 10, size=0.1)
    drawn.numbers("y", 10, batch)
    return Workload("MLP step", drawn.arrays, mlp_loss,
                    ("first", "first_bias", "second", "second_bias"),
                    Work(0, 0, 6 * batch * hidden * (inputs + 10)))


def gpt_of(batch: int, places: int, width: int) -> Workload:
    """A step of training of a small transformer with two layers."""
    drawn, words = Drawn(), 256
    drawn.floats("embedding", words, width, size=0.1).floats("places", places, width, size=0.1)
    for layer in range(2):
        drawn.layer(f"layer{layer}.", width)
    drawn.floats("scale", width, size=0.1, around=1).floats("shift", width, size=0.1)
    drawn.floats("head", width, words, size=width**-0.5)
    drawn.numbers("tokens", words, batch, places).numbers("targets", words, batch, places)
    parameters = ("embedding", "places", "scale", "shift", "head",
                  *(f"layer{layer}.{part}" for layer in range(2) for part in PARTS))
    return Workload("GPT step", drawn.arrays, gpt_loss, parameters,
                    Work(0, 0, 6 * batch * places * (24 * width * width + width * words)))


def rounded(workload: Workload, dtype: str) -> Workload:
    """The workload with inputs that the dtype holds exactly, still as float32."""
    inputs = {name: narrow(array, dtype) if array.dtype.kind == "f" else array
              for name, array in workload.inputs.items()}
    return replace(workload, inputs=inputs, tolerance=TOLERANCE[dtype])


def narrow(array: np.ndarray, dtype: str) -> np.ndarray:
    """Floats rounded to a dtype, to the nearest and even of two."""
    if dtype == "float16":
        return array.astype(np.float16).astype(np.float32)
    if dtype == "bfloat16":
        bits = array.astype(np.float32).view(np.uint32)
        bits = bits + (0x7FFF + (bits >> 16 & 1))
        return (bits & np.uint32(0xFFFF0000)).view(np.float32)
    return array
