"""The lesson on a softmax in one kernel lets right functions pass, and no wrong one."""
from __future__ import annotations

import importlib
import math
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from conformance import learn
from conformance.learn import lesson_online
from conformance.learn.lesson import published
from conformance.learn.lesson_online import EQUAL, INFINITY, online, where
from conformance.learn.lessons import LESSONS

solution: Any = importlib.import_module("conformance.learn.solutions.online")
NAMES = ("power", "total", "scale", "weight")


def module_of(parts: dict[str, Any]) -> Any:
    return SimpleNamespace(**{name: parts.get(name, getattr(solution, name)) for name in NAMES})


def said_of(parts: dict[str, Any]) -> str:
    return "\n".join(map(str, online(module_of(parts))))


def plain(score: Any, most: Any) -> Any:
    return (score - most).exp()


def chosen_after(score: Any, most: Any) -> Any:
    """Computes all and drops it where nothing was seen."""
    return where(most == -INFINITY, 0.0, (score - most).exp())


def two_powers(total_before: Any, before: Any, most: Any, summed: Any) -> Any:
    """e^before / e^most where both are small, and 0 where nothing was before."""
    return where(before == -INFINITY, summed, total_before * (before - where(
        most == -INFINITY, 0.0, most)).exp() + summed)


# Right, in other ways than the solution ----------------------------------------------------

@pytest.mark.parametrize("parts", [
    {}, {"power": chosen_after}, {"total": two_powers},
    {"scale": lambda before, b, m, total: where(
        total == 0.0, 0.0, before * solution.power(b, m) / where(total == 0.0, 1.0, total))},
    {"weight": lambda power, total: where(total != 0.0, power / where(total == 0.0, 1.0, total),
                                          0.0)},
    {"power": lambda score, most: where(score == -INFINITY, 0.0, (score - where(
        most == -INFINITY, 0.0, most)).exp())}])
def test_a_right_one_is_shown_none(parts: dict[str, Any]) -> None:
    assert said_of(parts) == ""


# Wrong, as one writes them -----------------------------------------------------------------


def asks(score: Any, most: Any) -> Any:
    if most == -INFINITY:
        return 0.0
    return (score - most).exp()


def plain_total(total_before: Any, before: Any, most: Any, summed: Any) -> Any:
    return total_before * (before - most).exp() + summed


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"power": plain}, f"{EQUAL}: the result is nan, and should be 2\n"),
    ({"power": lambda score, most: score.exp()}, f"{EQUAL}: the result is "),
    ({"power": lambda score, most: (most - score).exp()}, f"{EQUAL}: the result is "),
    ({"power": asks}, "raised: your code raised Undecided: an `if` (or `and`, "),
    ({"power": lambda score, most: max(score, most)}, "raised: your code raised Undecided"),
    ({"power": lambda score, most: None}, "raised: power answers None, and not a number"),
    ({"total": lambda before, b, m, summed: before + summed}, f"{EQUAL}: the result is "),
    ({"total": lambda before, b, m, summed: summed}, f"{EQUAL}: the result is "),
    ({"total": lambda before, b, m, summed: before * solution.power(m, b) + summed},
     f"{EQUAL}: the result is "),
    ({"total": lambda before, b, m, summed: before * plain(b, m) + summed},
     f"{EQUAL}: the result is nan, and should be "),
    ({"scale": lambda before, b, m, total: 1.0}, f"{EQUAL}: the result is "),
    ({"scale": lambda before, b, m, total: solution.power(b, m)}, f"{EQUAL}: the result is "),
    ({"scale": lambda before, b, m, total: before / total}, f"{EQUAL}: the result is "),
    ({"scale": lambda before, b, m, total: before * solution.power(b, m) / total},
     f"{EQUAL}: the result is nan, and should be "),
    ({"weight": lambda power, total: power}, f"{EQUAL}: the result is 4, and should be 2"),
    ({"weight": lambda power, total: power / total}, f"{EQUAL}: the result is nan, and should be "),
    ({"weight": lambda power, total: power,
      "scale": lambda before, b, m, total: solution.power(b, m)},
     f"{EQUAL}: the result is 4, and should be 2"),
    ({"power": lambda score, most: math.exp(score - most)},
     "raised: your code raised Undecided: math.exp and float() need a number that is known"),
    ({"power": plain}, "the first NaN comes from power"),
    ({"total": plain_total}, "the first NaN comes from total"),
]


@pytest.mark.parametrize(("parts", "said"), WRONG)
def test_a_wrong_one_is_shown_the_smallest_counterexample(parts: dict[str, Any],
                                                          said: str) -> None:
    assert said in said_of(parts)


@pytest.fixture
def registry() -> Iterator[None]:
    """A copy of a module declares its step once more: afterwards the declared one is ours again."""
    step: Any = importlib.import_module("impl.steps.step")
    importlib.import_module("impl.blocking.online")
    kept = [(known, known.copy()) for known in (step.STEPS, step.DECLARED, step.OF_LANES)]
    asked = step.ASKED_FOR[:]
    yield
    for known, before in kept:
        known.clear()
        known.update(before)
    step.ASKED_FOR[:] = asked


@pytest.mark.usefixtures("registry")
def test_the_step_of_the_runtime_asks_the_reader() -> None:
    """The same nodes as ours, made of the reader's functions."""
    module = published(importlib.import_module("impl.blocking.online"))
    known: Any = module
    asked: list[str] = []

    def noted(name: str) -> Any:
        def function(*given: Any) -> Any:
            asked.append(name)
            return getattr(solution, name)(*given)
        return function

    vars(module).update((name, noted(name)) for name in NAMES)
    ours = known._Blocks
    lesson_online.install(module)
    from impl import Context, Tensor
    from impl.steps.step import apply_steps
    Online: Any = importlib.import_module("impl.blocking.online").Online
    with Context(DEVICE="REFERENCE"):
        scores = Tensor.zeros(1, 8).contiguous().realize()
        values = Tensor.zeros(8, 2).contiguous().realize()
        ast = (scores.softmax(-1) @ values).schedule()[-1].ast
    before = vars(importlib.import_module("impl.blocking.online"))
    loop = _loop_of(ast)
    with pytest.MonkeyPatch.context() as patch:
        assert apply_steps(ast, [Online(loop, 2)])
        patch.setitem(before, "_Blocks", known._Blocks)
        assert apply_steps(ast, [Online(loop, 4)])
    assert set(asked) == {*NAMES} and known._Blocks is not ours


def _loop_of(ast: Any) -> int:
    """The number of the loop of the last sum of a kernel."""
    from impl.ir import Ops
    from impl.kernel import Analysis
    known = Analysis(ast)
    last = next(n for n in ast.src[-1].src[1].toposort() if n.op is Ops.REDUCE)
    return known.ranges.index(last.src[1])


def test_the_page_shows_what_is_printed() -> None:
    page = (learn.ROOT / "docs" / "course" / "online.md").read_text(encoding="utf-8")
    for parts in (WRONG[0][0], WRONG[7][0]):
        assert "\n".join(map(str.rstrip, said_of(parts).strip().splitlines())) in page
    assert next(iter(lesson_online.score(solution))) in page
    assert len(LESSONS["online"].hints) == 5 and "the next of five hints" in page
