"""Functions of float32: errors and special values. Chapter: spec/functions.md."""
from __future__ import annotations

import platform

import numpy as np
import pytest

from conformance.bench import accuracy
from conformance.kernels import kernel_builder as kb
from conformance.kernels.kernel_builder import load, param, store
from conformance.trace import ROOT, verifies
from impl import Context
from impl.functions.transcendental import TEMPLATES
from impl.ir import TRANSCENDENTAL, Ops, RangeKind, new_range

pytestmark = pytest.mark.device("CPU")

FUNCTIONS = {op.name.lower(): op for op in (*sorted(TRANSCENDENTAL), Ops.SQRT)}
EDGES = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1, -1, 2, -2, 0.5, -0.5, 3, -3, 1e-45, -1e-45,
                  1e-40, -1e-40, 1.17549435e-38, 3.4028235e38, -3.4028235e38, 88.72283, 88.72284,
                  -103.9, -104.5, 128, 127.99, -149, -149.5, -150.5, 71476, 71477, 1e10, 1e38,
                  0.625, 0.9277, 4, 4.1, 1.5, -1.5, 8388608, 8388609, 16777216], np.float32)


def computed(op: Ops, *given: np.ndarray) -> np.ndarray:
    i = new_range(given[0].size, RangeKind.GLOBAL)
    value = kb.apply(op, *(load(param(1 + n), i) for n in range(len(given))))
    out = np.zeros(given[0].size, np.float32)
    kb.run(kb.kernel(store(param(0), i, value), prefix=(i,)), out, *given)
    return out


#: The processor that is here, and one without fused multiply-add.
TARGETS = pytest.mark.parametrize("target", [
    "", pytest.param("x86-64", marks=pytest.mark.skipif(
        platform.machine() != "x86_64", reason="another processor"))])


@verifies("functions.function.error")
def test_every_function_has_a_text() -> None:
    """Else C has that of its library, which has other bits than vectors, and WGSL has none."""
    assert {op.name.lower() for op in TRANSCENDENTAL} <= set(TEMPLATES)


@verifies("functions.function.error")
def test_every_function_is_measured() -> None:
    """The command `accuracy` asks for its error, and the chapter says what it was."""
    measured = (ROOT / "conformance" / "bench" / "accuracy.c").read_text(encoding="utf-8")
    chapter = (ROOT / "spec" / "functions.md").read_text(encoding="utf-8")
    figures = chapter.partition("Measured over")[2].partition("```")[0]
    for op in TRANSCENDENTAL:
        name = op.name.lower()
        assert f"each({name}, " in measured, f"conformance/bench/accuracy.c has no {name}"
        assert f"`{name}`" in figures, f"spec/functions.md has no figure of {name}"


@verifies("functions.function.error")
@TARGETS
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_are_near_the_real_results(name: str, target: str) -> None:
    """Every 65,521st float, all around some edges; the command `accuracy` looks at the rest."""
    near = (EDGES[np.isfinite(EDGES)].view(np.int32)[:, None] + np.arange(-8, 9)).reshape(-1)
    values = [*accuracy.floats(65_521), *accuracy.floats(65_521, 12_345),
              near.astype(np.int32).view(np.float32), EDGES,
              np.linspace(-20, 20, 20_000, dtype=np.float32),
              (np.arange(1, 4000) * (np.pi / 4)).astype(np.float32)]
    given = np.concatenate(values)
    with Context(CPU_TARGET=target):
        found = computed(FUNCTIONS[name], given)
    away = accuracy.errors(found, accuracy.exact(name, given))
    assert away.max() <= 2, (away.max(), given[away.argmax()])


@verifies("functions.function.error")
@TARGETS
def test_powers_are_near_the_real_results(target: str) -> None:
    generator = np.random.default_rng(0)
    base = np.exp2(generator.uniform(-126, 127, 100_000)).astype(np.float32)
    base[::2] = generator.uniform(0.5, 2, 50_000).astype(np.float32)
    power = (generator.uniform(-149, 128, 100_000) / np.log2(base.astype(np.float64)))
    power = np.clip(np.nan_to_num(power), -1e30, 1e30).astype(np.float32)
    with np.errstate(all="ignore"):
        exact = np.power(base.astype(np.float64), power.astype(np.float64))
    with Context(CPU_TARGET=target):
        found = computed(Ops.POW, base, power)
    away = accuracy.errors(found, exact)
    assert away.max() <= 2, (base[away.argmax()], power[away.argmax()])


@verifies("functions.function.special")
@pytest.mark.parametrize("name", FUNCTIONS)
def test_special_values_of_functions(name: str) -> None:
    """NaN, infinities, and zeros with their signs, exactly."""
    with np.errstate(all="ignore"):
        exact = accuracy.exact(name, EDGES).astype(np.float32)
    found = computed(FUNCTIONS[name], EDGES)
    special = ~np.isfinite(exact) | (exact == 0)
    assert np.array_equal(found[special], exact[special], equal_nan=True)
    known = special & ~np.isnan(exact)
    assert (np.signbit(found) == np.signbit(exact))[known].all()
    tiny = np.float32(1e-45)
    assert (name in ("exp", "exp2", "log", "log2", "cos", "sqrt")
            or computed(FUNCTIONS[name], np.full(16, tiny))[0] > 0), "subnormals are kept"


@verifies("functions.function.special")
def test_special_values_of_powers() -> None:
    """All pairs of edges: as IEEE 754 has it."""
    one, two = np.repeat(EDGES, EDGES.size), np.tile(EDGES, EDGES.size)
    with np.errstate(all="ignore"):
        exact = np.power(one.astype(np.float64), two.astype(np.float64)).astype(np.float32)
    found = computed(Ops.POW, one, two)
    away = accuracy.errors(found, exact)
    assert away.max() <= 2, (one[away.argmax()], two[away.argmax()], found[away.argmax()])
    known = ~np.isnan(exact)
    assert (np.signbit(found) == np.signbit(exact))[known].all()


@verifies("functions.function.error")
def test_an_error_is_seen() -> None:
    """The measure itself: a neighbour is one unit away, a lost sign of infinity is all wrong."""
    exact = np.array([1.0, 1.0, np.inf, np.nan, 1e-45])
    found = np.array([np.nextafter(np.float32(1), np.float32(2)), 1.0, -np.inf, 0.0, 0.0],
                     np.float32)
    away = accuracy.errors(found, exact)
    assert away[0] == 1 and away[1] == 0 and np.isinf(away[2:4]).all() and 0.5 < away[4] < 2
