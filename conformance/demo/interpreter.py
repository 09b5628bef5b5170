"""The operations on flat lists of numbers.  Written for reading, not for speed."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import product
from math import copysign, exp, inf, isinf, isnan, ldexp, log, nan, prod, sin, sqrt, tanh
from typing import Any

CODES = {"bool": "?", "int8": "b", "int16": "h", "int32": "i", "int64": "q", "uint8": "B",
         "uint16": "H", "uint32": "I", "uint64": "Q", "float16": "e", "float32": "f",
         "float64": "d"}
Number = Any  # int, float or bool


@dataclass(frozen=True)
class Tensor:
    """Elements in row-major order; integers and floats already in the range of the dtype."""

    dtype: str
    shape: tuple[int, ...]
    items: list[Number]

    @property
    def nbytes(self) -> int:
        return len(self.items) * struct.calcsize("<" + CODES[self.dtype])


def decode(dtype: str, shape: Sequence[int], data: str) -> Tensor:
    code = f"<{prod(shape)}{CODES[dtype]}"
    return Tensor(dtype, tuple(shape), list(struct.unpack(code, bytes.fromhex(data))))


def encode(tensor: Tensor) -> str:
    return struct.pack(f"<{len(tensor.items)}{CODES[tensor.dtype]}", *tensor.items).hex()


def fit(dtype: str, value: Number) -> Number:
    """A number as the dtype holds it: integers wrap around, floats are rounded."""
    if dtype == "bool":
        return value != 0
    if dtype.startswith("float"):
        try:
            code = "<" + CODES[dtype]
            number = float(value) if dtype == "float64" else double(value)
            return struct.unpack(code, struct.pack(code, number))[0]
        except OverflowError:
            return copysign(inf, value)
    bits = 8 * struct.calcsize("<" + CODES[dtype])
    value = (0 if isinstance(value, float) and (isnan(value) or isinf(value)) else int(value))
    value %= 1 << bits
    return value - (1 << bits) if dtype[0] == "i" and value >> (bits - 1) else value


def double(value: Number) -> float:
    """A number on its way to a narrower float: what a double cannot hold leaves its last digit
    odd, so that the number is not taken for the middle of two and rounded a second time."""
    rest = abs(value).bit_length() - 53 if isinstance(value, int) else 0
    if rest <= 0:
        return float(value)
    kept = abs(value) >> rest
    return copysign(ldexp(kept | (kept << rest != abs(value)), rest), value)


def build(dtype: str, shape: Sequence[int], items: Sequence[Number]) -> Tensor:
    return Tensor(dtype, tuple(shape), [fit(dtype, item) for item in items])


# Numbers -----------------------------------------------------------------------------------


def guarded(function: Callable[..., float], otherwise: float) -> Callable[..., float]:
    """The function where Python defines it, NaN for NaN, and a fixed value elsewhere."""
    def apply(*values: float) -> float:
        if any(isnan(value) for value in values):
            return nan
        try:
            return function(*values)
        except OverflowError:
            return inf
        except (ValueError, ZeroDivisionError):
            return otherwise
    return apply


def divide(a: float, b: float) -> float:
    if b != 0 or isnan(a):
        return a / b if b != 0 else nan
    return nan if a == 0 else copysign(inf, a) * copysign(1.0, b)


def power(a: float, b: float) -> float:
    if b == 0:
        return 1.0
    if a == 0 and b < 0:
        return inf
    result = guarded(lambda x, y: x**y, nan)(a, b)
    return nan if isinstance(result, complex) else result


def larger(a: Number, b: Number) -> Number:
    return a if a != a or a > b else b


def smaller(a: Number, b: Number) -> Number:
    return a if a != a or a < b else b


UNARY: dict[str, Callable[[Number], Number]] = {
    "neg": lambda x: -x, "abs": abs, "relu": lambda x: x if x != x or x > 0 else 0,
    "not": lambda x: not x if isinstance(x, bool) else ~x, "exp": guarded(exp, nan),
    "log": lambda x: -inf if x == 0 else guarded(log, nan)(x), "sqrt": guarded(sqrt, nan),
    "sin": guarded(sin, nan), "tanh": guarded(tanh, nan),
    "reciprocal": lambda x: divide(1.0, x), "contiguous": lambda x: x, "copy": lambda x: x}
BINARY: dict[str, Callable[[Number, Number], Number]] = {
    "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b,
    "div": divide, "floordiv": lambda a, b: a // b if b else 0,
    "mod": lambda a, b: a % b if b else 0, "maximum": larger, "minimum": smaller, "pow": power,
    "and": lambda a, b: a & b, "or": lambda a, b: a | b, "xor": lambda a, b: a ^ b,
    "less": lambda a, b: a < b, "less_equal": lambda a, b: a <= b, "equal": lambda a, b: a == b}
REDUCTIONS: dict[str, tuple[Callable[[Number, Number], Number], Number]] = {
    "sum": (BINARY["add"], 0), "mean": (BINARY["add"], 0), "prod": (BINARY["mul"], 1),
    "max": (larger, None), "min": (smaller, None)}


# Places ------------------------------------------------------------------------------------


def indices(shape: Sequence[int]) -> Iterator[tuple[int, ...]]:
    return product(*map(range, shape))


def offset(shape: Sequence[int], index: Sequence[int]) -> int:
    return reduce(lambda total, pair: total * pair[0] + pair[1], zip(shape, index, strict=False), 0)


def moved(step: dict[str, Any], shape: tuple[int, ...]) -> tuple[tuple[int, ...], list[int]]:
    """The shape that a movement makes, and for each of its elements the number of the source
    element, -1 where there is none."""
    if step["do"] == "reshape":
        return tuple(step["shape"]), list(range(prod(shape)))
    new = moved_shape(step, shape)
    places = [source_place(step, shape, at) for at in indices(new)]
    return new, [offset(shape, at) if all(0 <= i < n for i, n in zip(at, shape, strict=True))
                 else -1 for at in places]


def moved_shape(step: dict[str, Any], shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape that a movement other than reshape makes."""
    do, axes = step["do"], range(len(shape))
    if do == "expand":
        return tuple(step["shape"])
    if do == "permute":
        return tuple(shape[axis] for axis in step["order"])
    if do == "stride":
        return tuple(-(-shape[axis] // step["steps"][axis]) for axis in axes)
    if do == "shrink":
        return tuple(stop - start for start, stop in step["bounds"])
    if do == "pad":
        return tuple(shape[axis] + sum(step["widths"][axis]) for axis in axes)
    return shape


def source_place(step: dict[str, Any], shape: tuple[int, ...], at: Sequence[int]) -> list[int]:
    """Where the element at a place of the moved tensor comes from; outside where from nowhere."""
    do, axes = step["do"], range(len(shape))
    if do == "expand":
        return [min(at[axis], shape[axis] - 1) for axis in axes]
    if do == "permute":
        return [at[step["order"].index(axis)] for axis in axes]
    if do == "flip":
        return [shape[axis] - 1 - at[axis] if axis in step["axes"] else at[axis] for axis in axes]
    if do == "stride":
        return [at[axis] * step["steps"][axis] for axis in axes]
    if do == "shrink":
        return [at[axis] + step["bounds"][axis][0] for axis in axes]
    return [at[axis] - step["widths"][axis][0] for axis in axes]


def region(view: Sequence[dict[str, Any]],
           shape: tuple[int, ...]) -> tuple[tuple[int, ...], list[int]]:
    """What a chain of movements selects: its shape, and the numbers of its elements."""
    chosen = list(range(prod(shape)))
    for step in view:
        shape, places = moved(step, shape)
        chosen = [chosen[place] for place in places]
    return shape, chosen


def misfit(statement: dict[str, Any], shapes: Sequence[tuple[int, ...]]) -> bool:
    """Whether a statement cannot be executed for operands of these shapes."""
    do, first = statement["do"], shapes[0]
    if do == "reshape":
        return prod(statement["shape"]) != prod(first)
    if do == "expand":
        return len(statement["shape"]) != len(first) or any(
            old not in (1, new) for old, new in zip(first, statement["shape"], strict=True))
    if do == "permute":
        return sorted(statement["order"]) != list(range(len(first)))
    if do == "matmul":
        return first[-1] != shapes[1][-2]
    if do == "gather":
        return False
    axes = [*statement.get("axes", ()), statement.get("axis", 0)]
    return any(other != first for other in shapes) or any(
        axis >= max(1, len(first)) for axis in axes)


# Statements --------------------------------------------------------------------------------


def evaluate(statement: dict[str, Any], sources: Sequence[Tensor]) -> Tensor:
    """The value of an expression statement."""
    do = statement["do"]
    if do == "input":
        return decode(statement["dtype"], statement["shape"], statement["data"])
    if do == "constant":
        value = statement["value"]
        return build(statement["dtype"], statement["shape"],
                     [float(value) if isinstance(value, str) else value]
                     * prod(statement["shape"]))
    if misfit(statement, [source.shape for source in sources]):
        raise ValueError(f"{do}: shapes {[source.shape for source in sources]} do not fit")
    first = sources[0]
    if do in UNARY:
        return build(first.dtype, first.shape, [UNARY[do](x) for x in first.items])
    if do in BINARY:
        dtype = "bool" if do in ("less", "less_equal", "equal") else first.dtype
        pairs = zip(first.items, sources[1].items, strict=False)
        return build(dtype, first.shape, [BINARY[do](a, b) for a, b in pairs])
    if do == "where":
        chosen = zip(first.items, sources[1].items, sources[2].items, strict=False)
        return build(sources[1].dtype, first.shape, [a if c else b for c, a, b in chosen])
    if do == "cast":
        return build(statement["dtype"], first.shape, first.items)
    if do == "bitcast":
        return bitcast(statement, first)
    if do in REDUCTIONS:
        return reduced(statement, first)
    if do in ALONG:
        return ALONG[do](statement, sources)
    shape, places = moved(statement, first.shape)
    return build(first.dtype, shape, [first.items[p] if p >= 0 else 0 for p in places])


def bitcast(statement: dict[str, Any], x: Tensor) -> Tensor:
    """The bytes of the elements, read as another dtype."""
    return decode(statement["dtype"], x.shape, encode(x))


def combine(do: str, dtype: str, items: Sequence[Number]) -> Number:
    """Reduce a list; halves are accumulated in singles."""
    function, start = REDUCTIONS[do]
    wide = "float32" if dtype == "float16" else dtype
    items = list(items) if start is None else [start, *items]
    total = reduce(lambda a, b: fit(wide, function(a, b)), items)
    if do != "mean":
        return total
    return divide(total, len(items) - 1)


def reduced(statement: dict[str, Any], x: Tensor) -> Tensor:
    axes = statement["axes"]
    kept = tuple(1 if axis in axes else size for axis, size in enumerate(x.shape))
    groups: dict[tuple[int, ...], list[Number]] = {at: [] for at in indices(kept)}
    for at, item in zip(indices(x.shape), x.items, strict=False):
        groups[tuple(0 if axis in axes else i for axis, i in enumerate(at))].append(item)
    shape = kept if statement["keepdims"] else tuple(
        size for axis, size in enumerate(x.shape) if axis not in axes)
    return build(x.dtype, shape, [combine(statement["do"], x.dtype, g) for g in groups.values()])


def lines(x: Tensor, axis: int) -> Iterator[list[int]]:
    """The numbers of the elements along an axis, for each place on the others."""
    others = [1 if a == axis else size for a, size in enumerate(x.shape)]
    for at in indices(others):
        yield [offset(x.shape, [i if a == axis else at[a] for a in range(len(at))])
               for i in range(x.shape[axis])]


def softmax(statement: dict[str, Any], sources: Sequence[Tensor]) -> Tensor:
    x, items = sources[0], list(sources[0].items)
    for line in lines(x, statement["axis"]):
        row = [x.items[place] for place in line]
        highest = reduce(larger, row) if row else 0
        weights = [UNARY["exp"](item - highest) for item in row]
        for place, weight in zip(line, weights, strict=False):
            items[place] = divide(weight, sum(weights))
    return build(x.dtype, x.shape, items)


def cumsum(statement: dict[str, Any], sources: Sequence[Tensor]) -> Tensor:
    x, items = sources[0], list(sources[0].items)
    wide = "float32" if x.dtype == "float16" else x.dtype
    for line in lines(x, statement["axis"]):
        total: Number = 0
        for place in line:
            items[place] = total = fit(wide, total + x.items[place])
    return build(x.dtype, x.shape, items)


def matmul(statement: dict[str, Any], sources: Sequence[Tensor]) -> Tensor:
    a, b = sources
    rows, inner, columns = a.shape[-2], a.shape[-1], b.shape[-1]
    items = []
    for batch, i, j in product(range(prod(a.shape[:-2])), range(rows), range(columns)):
        row, column = (batch * rows + i) * inner, batch * inner * columns + j
        terms = [a.items[row + k] * b.items[column + k * columns] for k in range(inner)]
        items.append(combine("sum", a.dtype, terms))
    return build(a.dtype, (*a.shape[:-1], columns), items)


def gather(statement: dict[str, Any], sources: Sequence[Tensor]) -> Tensor:
    x, index = sources
    size = prod(x.shape[1:])
    items = [x.items[row * size + i] for row in index.items for i in range(size)]
    return build(x.dtype, index.shape + x.shape[1:], items)


ALONG = {"softmax": softmax, "cumsum": cumsum, "matmul": matmul, "gather": gather}
STATEMENTS = [*UNARY, *BINARY, *REDUCTIONS, *ALONG, "where", "cast", "bitcast", "input", "constant",
              "reshape", "expand", "permute", "flip", "stride", "shrink", "pad"]
