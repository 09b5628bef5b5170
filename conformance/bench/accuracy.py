"""How far functions of float32 are from the real results, over all floats or every n-th.

    python -m conformance.bench accuracy --every 1 exp sin

Errors are counted in units in the last place of the real result, which NumPy computes in float64.
"""
from __future__ import annotations

import json
import math
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np

#: Bits of all floats.
_FLOATS = 1 << 32
#: Floats in one run of a kernel: what is computed of them stays in the caches.
_CHUNK = 1 << 18


def _erf(values: np.ndarray) -> np.ndarray:
    """NumPy has no erf."""
    small = np.clip(np.nan_to_num(values), -7, 7)
    found = np.fromiter(map(math.erf, small.tolist()), np.float64, values.size)
    return np.where(np.isnan(values), np.nan, found)


#: The real results.
EXACT: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "exp": np.exp, "exp2": np.exp2, "log": np.log, "log2": np.log2, "sin": np.sin, "cos": np.cos,
    "tanh": np.tanh, "erf": _erf, "sqrt": np.sqrt}


def floats(every: int, start: int = 0) -> Iterator[np.ndarray]:
    """All floats in order of their bits, or every n-th, in chunks."""
    step = every * _CHUNK
    for first in range(start, _FLOATS, step):
        bits = np.arange(first, min(first + step, _FLOATS), every, dtype=np.uint64)
        yield bits.astype(np.uint32).view(np.float32)


def errors(found: np.ndarray, exact: np.ndarray) -> np.ndarray:
    """Distances in units in the last place; infinite where a special value is not met."""
    with np.errstate(all="ignore"):
        rounded = exact.astype(np.float32)
        unit = np.spacing(np.abs(rounded)).astype(np.float64)
        distance = np.abs(found.astype(np.float64) - exact) / unit
    whole = np.isfinite(rounded) & np.isfinite(found)
    same = (found == rounded) | (np.isnan(found) & np.isnan(rounded))
    # Between the largest float and infinity, either may be what is rounded to.
    edge = np.isinf(rounded) & (np.abs(found) == np.finfo(np.float32).max) | (
        np.isinf(found) & (np.abs(rounded) == np.finfo(np.float32).max))
    return np.where(whole, distance, np.where(same, 0.0, np.where(edge, 1.0, np.inf)))


def compute(name: str, values: np.ndarray, other: np.ndarray | None = None) -> np.ndarray:
    """What the compiled kernel gives."""
    from impl import Tensor
    x = Tensor(values)
    found = x.pow(Tensor(other)) if other is not None else getattr(x, name)()
    return np.asarray(found.numpy())


def worst(name: str, every: int, start: int = 0) -> tuple[float, float]:
    """The largest error of a function, and where it is."""
    most, place = 0.0, 0.0
    for values in floats(every, start):
        with np.errstate(all="ignore"):
            exact = EXACT[name](values.astype(np.float64))
        away = errors(compute(name, values), exact)
        at = int(np.argmax(away))
        if away[at] > most:
            most, place = float(away[at]), float(values[at])
    return most, place


def worst_power(count: int, seed: int = 0) -> tuple[float, tuple[float, float]]:
    """The largest error of pow over random pairs whose power is a normal or subnormal float."""
    generator = np.random.default_rng(seed)
    most, place = 0.0, (0.0, 0.0)
    for _ in range(max(count // _CHUNK, 1)):
        base = np.exp2(generator.uniform(-126, 127, _CHUNK)).astype(np.float32)
        near = generator.random(_CHUNK) < 0.5
        base = np.where(near, generator.uniform(0.5, 2, _CHUNK).astype(np.float32), base)
        reach = generator.uniform(-150, 128, _CHUNK)
        with np.errstate(all="ignore"):
            power = (reach / np.log2(base.astype(np.float64))).astype(np.float32)
            power = np.where(np.isfinite(power), power, np.float32(1))
            exact = np.power(base.astype(np.float64), power.astype(np.float64))
        away = errors(compute("pow", base, power), exact)
        at = int(np.argmax(away))
        if away[at] > most:
            most, place = float(away[at]), (float(base[at]), float(power[at]))
    return most, place


def add_arguments(parser: ArgumentParser) -> None:
    """Which functions, and how many floats."""
    parser.add_argument("functions", nargs="*", default=[*EXACT, "pow"])
    parser.add_argument("--every", type=int, default=256, help="look at every n-th float")
    parser.add_argument("--json", type=Path, help="where to write the errors")


def main(options: Namespace) -> int:
    """Print the largest errors."""
    found: dict[str, float] = {}
    names: Sequence[str] = options.functions
    for name in names:
        place: object
        if name == "pow":
            found[name], place = worst_power(_FLOATS // options.every)
        else:
            found[name], place = worst(name, options.every)
        print(f"{name:6} {found[name]:.3f} units in the last place, at {place!r}", flush=True)
    if options.json:
        options.json.write_text(json.dumps({"every": options.every, "errors": found}, indent=1))
    return 0
