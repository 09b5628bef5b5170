"""All workloads by name: those that are scheduled, the table of the run, and its further shapes."""
from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from conformance.bench.operations import Operations
from conformance.bench.workloads import (
    HEADS,
    LAYERS,
    Drawn,
    Work,
    Workload,
    block,
    gpt_loss,
    mlp_loss,
)

Compute = Callable[[Any, Operations], Any]
#: Operations for each element, as such a row is usually written.
SOFTMAX, NORM = 5, 8


def made(name: str, drawn: Drawn, compute: Compute, outputs: int, operations: int,
         width: int = 4, tolerance: float = 2e-4) -> Workload:
    """A workload that reads its inputs once, and writes so many outputs of so many bytes."""
    read = sum(array.nbytes for array in drawn.arrays.values())
    return Workload(name, drawn.arrays, compute, work=Work(read, outputs * width, operations),
                    tolerance=tolerance)


# ---------------------------------------------------------------- steps and blocks

def _mlp_step() -> Workload:
    drawn = Drawn().floats("first", 784, 512, size=0.03).floats("first_bias", 512, size=0.1)
    drawn.floats("second", 512, 10, size=0.05).floats("second_bias", 10, size=0.1)
    parameters = tuple(drawn.arrays)
    drawn.floats("x", 128, 784).numbers("y", 10, 128)
    # Forward, the gradients of both weights, and that of what is between them.
    operations = 2 * 128 * (2 * 784 * 512 + 3 * 512 * 10)
    return _step("mlp_step", drawn, mlp_loss, parameters, operations)


def _step(name: str, drawn: Drawn, loss: Compute, parameters: tuple[str, ...],
          operations: int) -> Workload:
    """A training step: it reads everything, and writes the loss and the parameters."""
    read = sum(array.nbytes for array in drawn.arrays.values())
    written = 4 + sum(drawn.arrays[name].nbytes for name in parameters)
    return Workload(name, drawn.arrays, loss, parameters, Work(read, written, operations))


def _layer_operations(batch: int, places: int, width: int) -> int:
    """The products of one causal transformer layer: twelve matrices, and what each place sees."""
    seen = places * (places + 1) // 2
    return batch * (2 * places * 12 * width * width + 4 * seen * width)


def _gpt_block() -> Workload:
    drawn = Drawn().floats("x", 1, 256, 768).layer("", 768)
    return made("gpt_block", drawn, lambda p, lib: block(p["x"], p, "", HEADS["gpt_block"], lib),
                256 * 768, _layer_operations(1, 256, 768))


def _gpt_step() -> Workload:
    drawn = Drawn().floats("embedding", 256, 128, size=0.3).floats("places", 64, 128, size=0.3)
    for layer in range(LAYERS):
        drawn.layer(f"layer{layer}.", 128)
    drawn.floats("scale", 128, size=0.1, around=1).floats("shift", 128, size=0.1)
    drawn.floats("head", 128, 256, size=0.09)
    parameters = tuple(drawn.arrays)
    drawn.numbers("tokens", 256, 8, 64).numbers("targets", 256, 8, 64)
    forward = LAYERS * _layer_operations(8, 64, 128) + 2 * 8 * 64 * 128 * 256
    return _step("gpt_step", drawn, gpt_loss, parameters, 3 * forward)


# ---------------------------------------------------------------- parts of many workloads

def _elementwise(name: str, count: int) -> Workload:
    return made(name, Drawn().floats("x", count), lambda p, lib: lib.relu((p["x"] + 1) * 2),
                count, 3 * count)


def _softmax(name: str, rows: int, width: int) -> Workload:
    return made(name, Drawn().floats("x", rows, width), lambda p, lib: lib.softmax(p["x"]),
                rows * width, SOFTMAX * rows * width)


def _product(name: str, rows: int, inner: int, columns: int, batch: tuple[int, ...] = (),
             turned: str = "NN") -> Workload:
    """x @ y; a T in `turned` says that the operand lies transposed in memory."""
    count = 1
    for size in batch:
        count *= size
    x = (inner, rows) if turned[0] == "T" else (rows, inner)
    y = (columns, inner) if turned[1] == "T" else (inner, columns)

    def compute(p: Any, lib: Operations) -> Any:
        left = lib.permute(p["x"], 1, 0) if turned[0] == "T" else p["x"]
        return left @ (lib.permute(p["y"], 1, 0) if turned[1] == "T" else p["y"])
    return made(name, Drawn().floats("x", *batch, *x).floats("y", *batch, *y), compute,
                count * rows * columns, 2 * count * rows * inner * columns)


def _convolution(name: str, x: tuple[int, int, int, int], weight: tuple[int, int, int, int],
                 stride: int = 1, padding: int = 0, groups: int = 1) -> Workload:
    high, wide = ((size + 2 * padding - side) // stride + 1
                  for size, side in zip(x[2:], weight[2:], strict=True))
    outputs = x[0] * weight[0] * high * wide
    return made(name, Drawn().floats("x", *x).floats("weight", *weight),
                lambda p, lib: lib.conv2d(p["x"], p["weight"], stride, padding, groups),
                outputs, 2 * outputs * weight[1] * weight[2] * weight[3])


def _attention(name: str, batch: int, heads: int, places: int, width: int,
               kind: str = "") -> Workload:
    """Attention; `kind` is "", "causal" or "mask": a mask that is added, equal for all heads."""
    drawn, shape = Drawn(), (batch, heads, places, width)
    for part in ("query", "key", "value"):
        drawn.floats(part, *shape)
    if kind == "mask":
        drawn.floats("mask", places, places)

    def compute(p: Any, lib: Operations) -> Any:
        return lib.attention(p["query"], p["key"], p["value"], kind == "causal", p.get("mask"))
    seen = places * (places + 1) // 2 if kind == "causal" else places * places
    return made(name, drawn, compute, batch * heads * places * width,
                4 * batch * heads * seen * width)


def _layer_norm(name: str, rows: int, width: int, affine: bool) -> Workload:
    drawn = Drawn().floats("x", rows, width)
    if affine:
        drawn.floats("scale", width).floats("shift", width)
    return made(name, drawn, lambda p, lib: lib.layer_norm(p["x"], p.get("scale"), p.get("shift")),
                rows * width, (NORM + 2 * affine) * rows * width)


def _sum(name: str, shape: tuple[int, ...], axis: int | None = None) -> Workload:
    count = 1
    for size in shape:
        count *= size
    return made(name, Drawn().floats("x", *shape), lambda p, lib: lib.sum(p["x"], axis),
                1 if axis is None else count // shape[axis], count)


# ---------------------------------------------------------------- what nobody tuned

def _matvec(name: str, rows: int, inner: int) -> Workload:
    return made(name, Drawn().floats("x", rows, inner).floats("y", inner),
                lambda p, lib: p["x"] @ p["y"], rows, 2 * rows * inner)


def _vecmat(name: str, inner: int, columns: int) -> Workload:
    return made(name, Drawn().floats("x", inner).floats("y", inner, columns),
                lambda p, lib: p["x"] @ p["y"], columns, 2 * inner * columns)


def _matmul_half(name: str) -> Workload:
    return made(name, Drawn().half("x", 512, 384).half("y", 384, 448),
                lambda p, lib: p["x"] @ p["y"], 512 * 448, 2 * 512 * 384 * 448, 2, 2e-3)


def _matmul_int8(name: str) -> Workload:
    return made(name, Drawn().bytes("x", 512, 384).bytes("y", 384, 448),
                lambda p, lib: lib.wide_product(p["x"], p["y"]), 512 * 448,
                2 * 512 * 384 * 448, tolerance=0)


def _matmul_fused(name: str) -> Workload:
    drawn = Drawn().floats("x", 1000, 300).floats("weight", 300, 700).floats("bias", 700)
    return made(name, drawn, lambda p, lib: lib.relu(p["x"] @ p["weight"] + p["bias"]),
                1000 * 700, 2 * 1000 * 300 * 700)


def _add_transposed(name: str) -> Workload:
    return made(name, Drawn().floats("x", 2999, 2003).floats("y", 2003, 2999),
                lambda p, lib: p["x"] + lib.permute(p["y"], 1, 0), 2999 * 2003, 2999 * 2003)


def _permuted(name: str) -> Workload:
    return made(name, Drawn().floats("x", 48, 97, 31, 64),
                lambda p, lib: lib.permute(p["x"], 0, 2, 3, 1) * 2, 48 * 97 * 31 * 64,
                48 * 97 * 31 * 64)


def _strided(name: str) -> Workload:
    count = 1500 * 1000
    one = made(name, Drawn().floats("x", 3000, 3000), lambda p, lib: p["x"][::2, ::3] + 1,
               count, count)
    return Workload(name, one.inputs, one.compute, work=Work(count * 4, count * 4, count))


def _broadcast(name: str) -> Workload:
    drawn = Drawn().floats("x", 211, 1, 911).floats("y", 1, 53, 911)
    return made(name, drawn, lambda p, lib: p["x"] * p["y"] + p["x"], 211 * 53 * 911,
                2 * 211 * 53 * 911)


def _gelu(name: str) -> Workload:
    return made(name, Drawn().floats("x", 1_000_003), lambda p, lib: lib.gelu(p["x"]),
                1_000_003, 10 * 1_000_003)


def _max_short(name: str) -> Workload:
    return made(name, Drawn().floats("x", 200_003, 7), lambda p, lib: lib.max(p["x"], -1),
                200_003, 200_003 * 7)


def _cumsum(name: str, shape: tuple[int, ...]) -> Workload:
    count = shape[0] * (shape[1] if len(shape) > 1 else 1)
    return made(name, Drawn().floats("x", *shape), lambda p, lib: lib.cumsum(p["x"], -1), count,
                count)


def _argmax(name: str) -> Workload:
    return made(name, Drawn().floats("x", 2000, 3001), lambda p, lib: lib.argmax(p["x"], -1),
                2000, 2000 * 3001, tolerance=0)


def _gather(name: str) -> Workload:
    drawn = Drawn().floats("table", 50_000, 96).numbers("rows", 50_000, 16_384)
    one = made(name, drawn, lambda p, lib: lib.rows(p["table"], p["rows"]), 16_384 * 96, 0)
    touched = len(set(drawn.arrays["rows"].tolist())) * 96 * 4 + drawn.arrays["rows"].nbytes
    return Workload(name, one.inputs, one.compute, work=Work(touched, 16_384 * 96 * 4, 0))


def _sort(name: str) -> Workload:
    return made(name, Drawn().floats("x", 201, 1000), lambda p, lib: lib.sort(p["x"]), 201_000,
                10 * 201_000, tolerance=0)


def _rms_norm(name: str) -> Workload:
    return made(name, Drawn().floats("x", 1531, 1025).floats("scale", 1025),
                lambda p, lib: lib.rms_norm(p["x"], p["scale"]), 1531 * 1025, 4 * 1531 * 1025)


def _cross_entropy(name: str) -> Workload:
    return made(name, Drawn().floats("scores", 2048, 5003).numbers("targets", 5003, 2048),
                lambda p, lib: lib.cross_entropy(p["scores"], p["targets"]), 1,
                SOFTMAX * 2048 * 5003)


def _scheduled_softmax() -> Workload:
    return _softmax("softmax", 4096, 1024)


def _scheduled_layer_norm() -> Workload:
    return _layer_norm("layer_norm", 4096, 1024, True)


def _scheduled_attention() -> Workload:
    return _attention("attention", 4, 8, 512, 64, "causal")


#: What `schedule` measures: smaller than the table, so that a test can compute them too.
SCHEDULED: dict[str, Callable[[], Workload]] = {
    "softmax": _scheduled_softmax, "layer_norm": _scheduled_layer_norm,
    "attention": _scheduled_attention,
    "mlp_step": _mlp_step, "gpt_block": _gpt_block, "gpt_step": _gpt_step,
}

#: The table of `run`: a title, and how the workload is made from its name.
TABLE: dict[str, tuple[str, Callable[[str], Workload]]] = {
    "elementwise": ("`((x+1)*2).relu()`, 2^24", lambda n: _elementwise(n, 1 << 24)),
    "sum": ("sum, 2^24", lambda n: _sum(n, (1 << 24,))),
    "softmax_4096": ("softmax, rows, 4096 x 4096", lambda n: _softmax(n, 4096, 4096)),
    "layer_norm_4096": ("layer norm, 4096 x 4096", lambda n: _layer_norm(n, 4096, 4096, False)),
    "matmul_512": ("matmul, 512", lambda n: _product(n, 512, 512, 512)),
    "matmul_1024": ("matmul, 1024", lambda n: _product(n, 1024, 1024, 1024)),
    "matmul_2048": ("matmul, 2048", lambda n: _product(n, 2048, 2048, 2048)),
    "attention_512": ("attention, B4 H8 T512 D64", lambda n: _attention(n, 4, 8, 512, 64)),
    "conv2d_64": ("conv2d 3x3, N8 C64 56x56 K64",
                  lambda n: _convolution(n, (8, 64, 56, 56), (64, 64, 3, 3), padding=1)),
    "mlp_step": ("MLP training step", lambda n: _mlp_step()),
    "gpt_block": ("GPT-2 block forward", lambda n: _gpt_block()),
    "gpt_step": ("small GPT training step", lambda n: _gpt_step()),
}

#: Shapes that nobody tuned.
FURTHER: dict[str, tuple[str, Callable[[str], Workload]]] = {
    "matmul_prime": ("matmul, 509 x 521 x 523", lambda n: _product(n, 509, 521, 523)),
    "matmul_nt": ("matmul, second transposed, 768 x 512 x 640",
                  lambda n: _product(n, 768, 512, 640, turned="NT")),
    "matmul_tn": ("matmul, first transposed, 512 x 768 x 640",
                  lambda n: _product(n, 512, 768, 640, turned="TN")),
    "matmul_tt": ("matmul, both transposed, 700 x 600 x 500",
                  lambda n: _product(n, 700, 600, 500, turned="TT")),
    "matmul_batched": ("matmul, 16 of 192 x 160 x 224",
                       lambda n: _product(n, 192, 160, 224, (16,))),
    "matmul_tiny": ("matmul, 10,000 of 4 x 4 x 4", lambda n: _product(n, 4, 4, 4, (10_000,))),
    "matmul_tall": ("matmul, 8192 x 64 x 48", lambda n: _product(n, 8192, 64, 48)),
    "matmul_deep": ("matmul, 32 x 8192 x 32", lambda n: _product(n, 32, 8192, 32)),
    "matmul_flat": ("matmul, 2048 x 8 x 2048", lambda n: _product(n, 2048, 8, 2048)),
    "matvec": ("matrix times vector, 4096 x 4096", lambda n: _matvec(n, 4096, 4096)),
    "vecmat": ("vector times matrix, 3001 x 2003", lambda n: _vecmat(n, 3001, 2003)),
    "matmul_half": ("matmul, float16, 512 x 384 x 448", _matmul_half),
    "matmul_int8": ("matmul, int8 to int32, 512 x 384 x 448", _matmul_int8),
    "matmul_fused": ("`relu(x @ w + b)`, 1000 x 300 x 700", _matmul_fused),
    "elementwise_odd": ("`((x+1)*2).relu()`, 99,991", lambda n: _elementwise(n, 99_991)),
    "gelu": ("gelu, 1,000,003", _gelu),
    "add_transposed": ("x + y.T, 2999 x 2003", _add_transposed),
    "permuted": ("permute and double, 48 x 97 x 31 x 64", _permuted),
    "strided": ("`x[::2, ::3] + 1`, 3000 x 3000", _strided),
    "broadcast": ("x * y + x, 211 x 1 x 911 and 1 x 53 x 911", _broadcast),
    "sum_first": ("sum over the first axis, 8191 x 513", lambda n: _sum(n, (8191, 513), 0)),
    "sum_middle": ("sum over the middle axis, 64 x 1023 x 129",
                   lambda n: _sum(n, (64, 1023, 129), 1)),
    "max_short": ("max of short rows, 200,003 x 7", _max_short),
    "cumsum_rows": ("cumsum of rows, 999 x 1001", lambda n: _cumsum(n, (999, 1001))),
    "cumsum_long": ("cumsum of one row, 1,000,003", lambda n: _cumsum(n, (1_000_003,))),
    "argmax": ("argmax of rows, 2000 x 3001", _argmax),
    "gather": ("16,384 rows of 50,000 x 96", _gather),
    "sort": ("sort of rows, 201 x 1000", _sort),
    "matmul_few": ("matmul, 5 x 1001 x 777", lambda n: _product(n, 5, 1001, 777)),
    "matmul_few_nt": ("matmul, second transposed, 3 x 1031 x 509",
                      lambda n: _product(n, 3, 1031, 509, turned="NT")),
    "matmul_few_columns": ("matmul, 2003 x 701 x 3", lambda n: _product(n, 2003, 701, 3)),
    "vecmat_small": ("vector times matrix, 97 x 193", lambda n: _vecmat(n, 97, 193)),
    "sum_narrow": ("sum over the first axis, 2^20 x 8", lambda n: _sum(n, (1 << 20, 8), 0)),
    "conv2d_depthwise_wide": ("conv2d, depthwise 7x7, N2 C30 41x53",
                              lambda n: _convolution(n, (2, 30, 41, 53), (30, 1, 7, 7), padding=3,
                                                     groups=30)),
    "conv2d_depthwise_strided": ("conv2d, depthwise 3x3, stride 2, N2 C31 57x57",
                                 lambda n: _convolution(n, (2, 31, 57, 57), (31, 1, 3, 3), 2, 1,
                                                        groups=31)),
    "conv2d_one": ("conv2d 5x5, N7 C1 61x67 K1",
                   lambda n: _convolution(n, (7, 1, 61, 67), (1, 1, 5, 5), padding=2)),
    "conv2d_from_one": ("conv2d 5x5, N5 C1 29x31 K13",
                        lambda n: _convolution(n, (5, 1, 29, 31), (13, 1, 5, 5))),
    "attention_causal_long": ("attention, causal, B1 H3 T1021 D40",
                              lambda n: _attention(n, 1, 3, 1021, 40, "causal")),
    "attention_even": ("attention, B2 H4 T98 D64", lambda n: _attention(n, 2, 4, 98, 64)),
    "conv2d_depthwise": ("conv2d, depthwise 3x3, N4 C96 45x45",
                         lambda n: _convolution(n, (4, 96, 45, 45), (96, 1, 3, 3), padding=1,
                                                groups=96)),
    "conv2d_strided": ("conv2d 5x5, stride 2, N4 C32 65x65 K48",
                       lambda n: _convolution(n, (4, 32, 65, 65), (48, 32, 5, 5), 2)),
    "conv2d_first": ("conv2d 7x7, stride 2, padding 3, N2 C3 113x113 K64",
                     lambda n: _convolution(n, (2, 3, 113, 113), (64, 3, 7, 7), 2, 3)),
    "conv2d_pointwise": ("conv2d 1x1, N2 C128 29x29 K256",
                         lambda n: _convolution(n, (2, 128, 29, 29), (256, 128, 1, 1))),
    "attention_causal": ("attention, causal, B2 H6 T256 D48",
                         lambda n: _attention(n, 2, 6, 256, 48, "causal")),
    "attention_mask": ("attention, mask, B2 H4 T384 D64",
                       lambda n: _attention(n, 2, 4, 384, 64, "mask")),
    "attention_odd": ("attention, B3 H5 T197 D32", lambda n: _attention(n, 3, 5, 197, 32)),
    "softmax_short": ("softmax of short rows, 100,003 x 10",
                      lambda n: _softmax(n, 100_003, 10)),
    "softmax_long": ("softmax of long rows, 8 x 1,000,003",
                     lambda n: _softmax(n, 8, 1_000_003)),
    "softmax_tiny": ("softmax, 3 x 5", lambda n: _softmax(n, 3, 5)),
    "layer_norm_affine": ("layer norm with scale and shift, 2000 x 769",
                          lambda n: _layer_norm(n, 2000, 769, True)),
    "rms_norm": ("RMS norm, 1531 x 1025", _rms_norm),
    "cross_entropy": ("cross entropy, 2048 x 5003", _cross_entropy),
}


@cache
def scheduled(name: str) -> Workload:
    return SCHEDULED[name]()


def workload(name: str) -> Workload:
    """A workload by its name; those of the run are not kept, as some are great."""
    if name in SCHEDULED:
        return scheduled(name)
    return (TABLE | FURTHER)[name][1](name)
