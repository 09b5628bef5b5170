"""How far functions of float32 are from the real results, over all floats or every n-th.

    python -m conformance.bench accuracy --every 1 exp sin

Errors are counted in units in the last place of the real result, which C computes in double:
`accuracy.c`, built with the C compiler of this machine.
"""
from __future__ import annotations

import ctypes
import functools
import json
import os
import subprocess
import tempfile
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from impl.ir import TRANSCENDENTAL

#: Functions whose error a rule bounds, and those that are made of them with one rounding more.
FUNCTIONS = (*(op.name.lower() for op in sorted(TRANSCENDENTAL)), "sqrt")
MADE_OF_THEM = ("reciprocal", "rsqrt", "sigmoid", "log10", "tan")
#: Bits of all floats.
_FLOATS = 1 << 32
#: Floats in one run of a kernel: what is computed of them stays in the caches.
_CHUNK = 1 << 18


@functools.lru_cache(maxsize=1)
def _measure() -> ctypes.CDLL:
    """The functions in `accuracy.c`."""
    source = Path(__file__).with_suffix(".c")
    with tempfile.TemporaryDirectory(prefix="accuracy-") as folder:
        built = Path(folder, "accuracy.so")
        # For glibc the macro means that there are functions of vectors: 4 units of double away.
        subprocess.run([*os.environ.get("CC", "cc").split(), "-O3", "-march=native", "-shared",
                        "-fPIC", "-fno-math-errno", "-fno-trapping-math", "-D__FAST_MATH__",
                        str(source), "-o", str(built), "-lm"], check=True)
        return ctypes.CDLL(str(built))


def _address(array: np.ndarray) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)


def exact(name: str, values: np.ndarray) -> np.ndarray:
    """The real results of a function of float32.

    Raises:
        ValueError: it is not known.
    """
    given, real = np.ascontiguousarray(values, np.float32), np.empty(values.size)
    if not _measure().real_results(name.encode(), _address(given), _address(real),
                                   ctypes.c_long(given.size)):
        raise ValueError(f"there is no function {name}; see accuracy.c")
    return real


def errors(found: np.ndarray, real: np.ndarray) -> np.ndarray:
    """Distances in units in the last place; infinite where a special value is not met."""
    given, wanted = np.ascontiguousarray(found, np.float32), np.ascontiguousarray(real, np.float64)
    away = np.empty(given.size)
    _measure().distances(_address(given), _address(wanted), _address(away),
                         ctypes.c_long(given.size))
    return away


def floats(every: int, start: int = 0) -> Iterator[np.ndarray]:
    """All floats in order of their bits, or every n-th, in chunks."""
    step = every * _CHUNK
    for first in range(start, _FLOATS, step):
        bits = np.arange(first, min(first + step, _FLOATS), every, dtype=np.uint64)
        yield bits.astype(np.uint32).view(np.float32)


def compute(name: str, *values: np.ndarray) -> np.ndarray:
    """What the compiled kernel gives."""
    from impl import Tensor
    given = [Tensor(each).realize() for each in values]
    return np.asarray(_captured(name, values[0].size)(*given).numpy())


@functools.lru_cache(maxsize=8)
def _captured(name: str, size: int) -> Callable[..., Any]:
    """The function of `size` floats: captured, since it is called for many thousand chunks."""
    from impl import TinyJit
    return TinyJit(lambda x, *other: getattr(x, name)(*other).realize())


def worst(name: str, every: int, start: int = 0) -> tuple[float, float]:
    """The largest error of a function, and where it is."""
    most, place = 0.0, 0.0
    for values in floats(every, start):
        away = errors(compute(name, values), exact(name, values))
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
            real = np.power(base.astype(np.float64), power.astype(np.float64))
        away = errors(compute("pow", base, power), real)
        at = int(np.argmax(away))
        if away[at] > most:
            most, place = float(away[at]), (float(base[at]), float(power[at]))
    return most, place


def add_arguments(parser: ArgumentParser) -> None:
    """Which functions, and how many floats."""
    parser.add_argument("functions", nargs="*", default=[*FUNCTIONS, *MADE_OF_THEM, "pow"])
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
