"""The lesson on the interpreter lets right meanings pass, and no wrong one."""
from __future__ import annotations

import importlib
import math
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from conformance import learn
from conformance.learn import lesson_reference
from conformance.learn.lesson_reference import OPERATIONS, held, interpreter
from conformance.learn.lessons import LESSONS

solution: Any = importlib.import_module("conformance.learn.solutions.reference")
ours: Any = importlib.import_module("impl.reference")
calculate: Callable[..., Any] = solution.calculate


def module_of(**parts: Any) -> Any:
    return SimpleNamespace(calculate=parts.get("calculate", calculate),
                           run=parts.get("run", solution.run))


# Right, in other ways than the solution ----------------------------------------------------


def one_by_one(op: str, dtype: Any, given: Any) -> Any:
    """No array knows any arithmetic."""
    rows = zip(*(array.ravel().tolist() for array in given), strict=True)
    plain = [[int(x) if isinstance(x, bool) else x for x in row] for row in rows]
    return np.array([held(OPERATIONS[op](*row), dtype.name) for row in plain],
                    dtype).reshape(given[-1].shape)


def by_the_runtime(op: str, dtype: Any, given: Any) -> Any:
    from impl.dtypes import dtypes
    from impl.ir import Ops

    sources = [SimpleNamespace(dtype=getattr(dtypes, x.dtype.name)) for x in given]
    return ours.compute(SimpleNamespace(op=Ops[op.upper()], dtype=getattr(dtypes, dtype.name),
                                        src=sources), given)


def in_wide_types(op: str, dtype: Any, given: Any) -> Any:
    """Whole numbers in 64 bits, and cut back; floats as they are."""
    if op in ("where", "cast") or given[0].dtype.kind == "f" or op.startswith("cmp"):
        return calculate(op, dtype, given)
    if op in ("floor", "trunc"):
        return np.array(given[0])
    found = solution.PLAIN[op](*[x.astype(np.int64) for x in given])
    return np.array(found != 0 if dtype.kind == "b" else found.astype(dtype))


def without_change(statements: Any) -> Any:
    """No array is ever written to: a write makes a new one."""
    values: dict[str, Any] = {}
    for kind, name, *rest in statements:
        if kind == "make":
            values[name] = rest[0]
        elif kind == "let":
            pairs = zip(*(values[each] for each in rest[1]), strict=True)
            values[name] = [a + b if rest[0] == "add" else a * b for a, b in pairs]
        elif kind == "view":
            values[name] = values[rest[0]][slice(*rest[1])]
        elif kind in ("turned", "same"):
            values[name] = values[rest[0]][::-1 if kind == "turned" else 1]
        elif kind == "write":
            start, stop = rest[0]
            values[name] = [*values[name][:start], *values[rest[1]], *values[name][stop:]]
        else:
            values.setdefault("shown", []).append(values[name])
    return values["shown"]


@pytest.mark.parametrize("parts", [
    {}, {"calculate": one_by_one}, {"calculate": by_the_runtime, "run": without_change},
    {"calculate": in_wide_types, "run": lesson_reference.shown}, {"run": lesson_reference.played}])
def test_a_right_one_is_shown_none(parts: dict[str, Any], monkeypatch: Any) -> None:
    monkeypatch.setenv("DEVICE", "REFERENCE")
    assert list(map(str, interpreter(module_of(**parts)))) == []


# Wrong, as one writes them -----------------------------------------------------------------


def but(name: str, answer: Callable[..., Any]) -> dict[str, Any]:
    return {"calculate": lambda op, dtype, given: answer(dtype, *given) if op == name
            else calculate(op, dtype, given)}


def in_place(op: str, dtype: Any, given: Any) -> Any:
    if op == "add":
        given[0] += given[1]
        return given[0]
    return calculate(op, dtype, given)


def with_windows(kept: str) -> Callable[..., Any]:
    """Forgets to copy in one kind of statement."""
    def run(statements: Any) -> Any:
        values: dict[str, Any] = {}
        shown = []
        for kind, name, *rest in statements:
            if kind == "make":
                values[name] = np.array(rest[0])
            elif kind == "let":
                values[name] = calculate(rest[0], np.dtype(int), [values[n] for n in rest[1]])
            elif kind in ("view", "turned", "same"):
                part = slice(*rest[1]) if kind == "view" else slice(
                    None, None, -1 if kind == "turned" else 1)
                window = values[rest[0]][part]
                values[name] = window if kind == kept else window.copy()
            elif kind == "write":
                values[name][slice(*rest[0])] = values[rest[1]]
            elif kept == "show":
                shown.append(values[name])
            else:
                shown.append(values[name].tolist())
        return shown
    return run


def only_at_the_end(statements: Any) -> Any:
    """Reads what is shown when everything has happened."""
    late = [each for each in statements if each[0] != "show"]
    return solution.run([*late, *(each for each in statements if each[0] == "show")])


def lazily(statements: Any) -> Any:
    """Sums are computed when they are shown."""
    values: dict[str, Any] = {}
    shown = []
    for kind, name, *rest in statements:
        if kind == "let":
            one, other = (values[each] for each in rest[1])
            values[name] = lambda op=rest[0], a=one, b=other: calculate(
                op, np.dtype(int), [a(), b()])
        elif kind == "show":
            shown.append(values[name]().tolist())
        elif kind == "make":
            values[name] = partial(np.asarray, np.array(rest[0]))
        elif kind == "write":
            values[name]()[slice(*rest[0])] = values[rest[1]]().copy()
        else:
            part = slice(*rest[1]) if kind == "view" else slice(
                None, None, -1 if kind == "turned" else 1)
            values[name] = partial(np.asarray, values[rest[0]]()[part].copy())
    return shown


def writes(change: Callable[..., Any]) -> Callable[..., Any]:
    """The solution, with another statement in the place of each write."""
    return lambda statements: solution.run([
        change(*each) if each[0] == "write" else each for each in statements])


def adds_in_place(statements: Any) -> Any:
    """z = x + y is computed in the memory of x."""
    found = []
    for each in statements:
        found.append(each)
        if each[0] == "let" and each[1] != each[3][0]:
            found.append(("same", each[3][0], each[1]))
    return solution.run(found)


VALUE = "reference.operation.value"
WRONG: list[tuple[dict[str, Any], str]] = [
    (but("maximum", lambda dtype, a, b: np.fmax(a, b)), f"{VALUE}: 1.5 maximum nan is nan, and"),
    (but("maximum", lambda dtype, a, b: np.where(a > b, a, b)), "maximum"),
    (but("floordiv", lambda dtype, a, b: np.trunc(a / b).astype(dtype)), "2 floordiv -7 is -1, and "
                                                                         "you say 0"),
    (but("floormod", lambda dtype, a, b: np.fmod(a, b)), "2 floormod -7 is -5, and you say 2"),
    (but("sub", lambda dtype, a, b: a - b), "raised: your code raised TypeError: numpy boolean"),
    (but("neg", lambda dtype, a: (1 - a).astype(dtype) if dtype.kind == "b" else -a),
     f"{VALUE}: neg of False is False, and you say True"),
    (but("where", lambda dtype, c, a, b: (c * a + (1 - c) * b).astype(dtype)),
     f"{VALUE}: where of [True, "),
    (but("cast", lambda dtype, a: a.astype(np.int32).astype(dtype)), "cast of 1.5 is 1.5, and you "
                                                                     "say 1.0"),
    (but("cast", lambda dtype, a: np.round(a).astype(dtype) if dtype.kind == "i" else
         calculate("cast", dtype, [a])), "cast of 1.5 is 1, and you say 2"),
    (but("floor", lambda dtype, a: np.floor(a / 1)), "has the type float64"),
    (but("trunc", lambda dtype, a: np.floor(a).astype(dtype)), "trunc of -2.25 is -2.0, and you"),
    (but("cmpeq", lambda dtype, a, b: np.isclose(a, b, equal_nan=True)), "nan cmpeq nan is False"),
    (but("add", lambda dtype, a, b: np.minimum(a.astype(np.int64) + b, 255).astype(dtype)
         if dtype.name == "uint8" else calculate("add", dtype, [a, b])), "2 add 255 is 1, and you"),
    (but("reciprocal", lambda dtype, a: np.where(a == 0, 0, 1 / a).astype(dtype)),
     "reciprocal of 0.0 is inf, and you say 0.0"),
    (but("exp", lambda dtype, a: np.exp(a.astype(np.float16)).astype(dtype)), "exp of 1.5 is"),
    (but("neg", lambda dtype, a: (0 - a).astype(dtype)), "neg of 0.0 is -0.0, and you say 0.0"),
    (but("tanh", lambda dtype, a: np.tanh(a.astype(float))), "your answer has the type float64"),
    ({"calculate": in_place}, "you have changed an array that you were given"),
    ({"calculate": lambda *given: None}, "raised: calculate answers None, and not an array"),
    ({"run": with_windows("view")}, "effects.variable.isolated: z is [1, 2], and you show"),
    ({"run": with_windows("turned")}, "effects.variable.isolated: z is [4, 3, 2, 1], and you show"),
    ({"run": with_windows("same")}, "effects.variable.isolated: z is [1, 2, 3, 4], and you show"),
    ({"run": writes(lambda kind, name, part, other: ("same", name, other))},
     "effects.value.eager: x is [10, 20, 3, 4], and you show [10, 20]"),
    ({"run": writes(lambda kind, name, part, other: ("same", "nobody", other))},
     "effects.value.eager: x is [10, 20, 3, 4], and you show [1, 2, 3, 4]"),
    ({"run": adds_in_place}, "effects."),
    ({"run": only_at_the_end}, "effects.value.eager: "),
    ({"run": lazily}, "effects.variable.isolated: z is [2, 4, 6, 8], and you show [20, 40, 6, 8]"),
    ({"run": lambda statements: solution.run(statements)[:1]}, "effects.value.eager: you show 1 "
                                                               "values, and 2 are asked for"),
    ({"run": lambda statements: None}, "raised: run answers None, and not a list"),
]


@pytest.mark.parametrize(("parts", "said"), WRONG, ids=[said[:60] for _, said in WRONG])
def test_a_wrong_one_is_shown_the_smallest_counterexample(parts: dict[str, Any],
                                                          said: str) -> None:
    assert said in "\n".join(map(str, interpreter(module_of(**parts))))


def test_the_reference_device_computes_as_the_reader_does(
        monkeypatch: pytest.MonkeyPatch) -> None:
    from impl import Context, Tensor

    asked: list[str] = []

    def watched(op: str, dtype: Any, given: Any) -> Any:
        asked.append(op)
        return calculate(op, dtype, given)

    module: Any = SimpleNamespace(compute=ours.compute, calculate=watched)
    lesson_reference.install(module)
    monkeypatch.setattr(ours, "compute", module.compute)
    with Context(DEVICE="REFERENCE"):
        x = Tensor([1.5, -2.0, 0.25])
        assert math.isclose((x * 2 + x.exp()).sum().item(), -0.5 + math.exp(1.5) + math.exp(-2)
                            + math.exp(0.25), rel_tol=1e-6)
        assert Tensor([7.0]).bitcast("int32").tolist() == [1088421888]
    assert {"mul", "exp", "add"} <= {*asked} and "bitcast" not in asked


def test_the_page_shows_the_score_that_is_printed() -> None:
    page = (learn.ROOT / "docs" / "course" / "reference.md").read_text(encoding="utf-8")
    assert all(line in page for line in lesson_reference.score(module_of()))
    assert len(LESSONS["reference"].hints) == 7 and "the next of seven hints" in page
