"""The lesson on gradients lets right derivatives pass, and no wrong one."""
from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from conformance import learn
from conformance.learn import lesson_gradient
from conformance.learn.lesson_gradient import gradient, published
from conformance.learn.lessons import LESSONS

rules: Any = importlib.import_module("impl.gradient.rules")
solution: Any = importlib.import_module("conformance.learn.solutions.gradient")
Parts = Callable[..., Any]


def module_of(parts: Parts) -> Any:
    return SimpleNamespace(parts=parts)


def right(operation: str, argument: Any, sources: Any, result: Any, gradient: Any) -> Any:
    """In another way than ours: slopes of the sources alone, one table for all."""
    x, shape = sources[0], sources[0].shape
    if len(sources) == 2:
        y = sources[1]
        slopes = {"add": (1.0, 1.0), "sub": (1.0, -1.0), "mul": (y, x),
                  "div": (1.0 / y, 0.0 - x / (y * y))}[operation]
        return tuple((gradient * slope).sum() if each.shape == () != gradient.shape else
                     gradient * slope for each, slope in zip(sources, slopes, strict=True))
    table: dict[str, Callable[[], Any]] = {
        "neg": lambda: gradient * -1.0, "exp": lambda: gradient * x.exp(),
        "log": lambda: gradient / x, "sin": lambda: gradient * x.cos(),
        "cos": lambda: 0.0 - gradient * x.sin(),
        "tanh": lambda: gradient * (1.0 - x.tanh()) * (1.0 + x.tanh()),
        "sqrt": lambda: gradient * 0.5 / x.sqrt(), "reciprocal": lambda: 0.0 - gradient / (x * x),
        "sum": lambda: gradient.expand(shape), "reshape": lambda: gradient.reshape(shape),
        "max": lambda: shared(x.equals(result.expand(shape)), argument, gradient),
        "expand": lambda: gradient.sum([k for k in range(len(shape)) if shape[k] == 1]),
        "permute": lambda: gradient.permute(sorted(range(len(argument)), key=argument.__getitem__)),
        "flip": lambda: gradient.flip(argument),
        "pad": lambda: gradient.shrink([(each[0], each[0] + size) for each, size in
                                        zip(argument, shape, strict=True)]),
        "shrink": lambda: gradient.pad([(each[0], size - each[1]) for each, size in
                                        zip(argument, shape, strict=True)])}
    return (table[operation](),)


def shared(chosen: Any, axes: Any, gradient: Any) -> Any:
    return chosen / chosen.sum(axes).expand(chosen.shape) * gradient.expand(chosen.shape)


def but(name: str, answer: Parts) -> Parts:
    return lambda operation, *given: (answer if operation == name else right)(operation, *given)


def by_results(operation: str, argument: Any, sources: Any, result: Any, gradient: Any) -> Any:
    """With the result wherever that saves a function."""
    x = sources[0]
    table: dict[str, Callable[[], Any]] = {
        "exp": lambda: gradient * result, "tanh": lambda: gradient - gradient * result * result,
        "sqrt": lambda: gradient / (result + result), "log": lambda: gradient * x.reciprocal(),
        "reciprocal": lambda: (gradient * result * result).neg(),
        "cos": lambda: (gradient * x.sin()).neg(), "neg": gradient.neg}
    if operation in table:
        return (table[operation](),)
    return right(operation, argument, sources, result, gradient)


def by_axes(operation: str, argument: Any, sources: Any, result: Any, gradient: Any) -> Any:
    """Movements with loops over axes; ties are counted before they are spread."""
    x = sources[0]
    if operation == "permute":
        back = [0] * len(argument)
        for place, axis in enumerate(argument):
            back[axis] = place
        return (gradient.permute(back),)
    if operation == "expand":
        for axis, size in enumerate(x.shape):
            if size != argument[axis]:
                gradient = gradient.sum([axis])
        return (gradient,)
    if operation == "flip":
        for axis in argument:
            gradient = gradient.flip([axis])
        return (gradient,)
    if operation == "max":
        chosen = x.equals(result.expand(x.shape))
        count = chosen.sum(argument).expand(x.shape)
        return (chosen * gradient.expand(x.shape) / count,)
    return right(operation, argument, sources, result, gradient)


def through_products(operation: str, argument: Any, sources: Any, result: Any,
                     gradient: Any) -> Any:
    """a - b is a + -1 * b, and a / b is a * (1 / b)."""
    if operation == "sub":
        one, other = right("add", argument, sources, result, gradient)
        return one, other * -1.0
    if operation == "div":
        over = sources[1].reciprocal()
        one, of_over = right("mul", argument, (sources[0], over), result, gradient)
        return one, (of_over * over * over).neg()
    return right(operation, argument, sources, result, gradient)


def unfitted(operation: str, argument: Any, sources: Any, result: Any, gradient: Any) -> Any:
    return gradient, gradient


VALUE, SUM, TIE = "gradient.value.derivative", "gradient.broadcast.sum", "gradient.max.tie"
WRONG: list[tuple[Parts, str]] = [
    (but("neg", lambda o, a, s, r, g: (g,)), f"{VALUE}: you say 1 for element (0) of source 0; "
                                             "differences say -1"),
    (but("exp", lambda o, a, s, r, g: (r,)), f"{VALUE}: "),
    (but("sqrt", lambda o, a, s, r, g: (g * 0.5 / s[0],)), f"{VALUE}: "),
    (but("cos", lambda o, a, s, r, g: (g * s[0].sin(),)), f"{VALUE}: "),
    (but("tanh", lambda o, a, s, r, g: (g * (1 - s[0] * s[0]),)), f"{VALUE}: "),
    (but("reciprocal", lambda o, a, s, r, g: (g * r * r,)), f"{VALUE}: "),
    (but("sub", lambda o, a, s, r, g: right("add", a, s, r, g)), "of source 1; differences say -1"),
    (but("mul", lambda o, a, s, r, g: (g * s[0], g * s[1])), f"{VALUE}: "),
    (but("div", lambda o, a, s, r, g: (right(o, a, s, r, g)[0], -right(o, a, s, r, g)[0])),
     f"{VALUE}: "),
    (but("add", unfitted), f"{SUM}: the gradient of source 1 has shape (3,), and the source ()"),
    (but("sum", lambda o, a, s, r, g: (g,)), f"{VALUE}: the gradient of source 0 has shape (1,)"),
    (but("max", lambda o, a, s, r, g: (s[0].equals(r.expand(s[0].shape)) * g.expand(s[0].shape),)),
     f"{TIE}: you say 1 for element (0) of source 0; what is right is 0.5"),
    (but("max", lambda o, a, s, r, g: (g.expand(s[0].shape),)), f"{TIE}: "),
    (but("expand", lambda o, a, s, r, g: (g,)), f"{SUM}: the gradient of source 0 has shape (3,)"),
    (but("expand", lambda o, a, s, r, g: (g.shrink([(0, n) for n in s[0].shape]),)), f"{SUM}: "),
    (but("permute", lambda o, a, s, r, g: (g.permute(a),)), f"{VALUE}: the gradient of source 0"),
    (but("flip", lambda o, a, s, r, g: (g,)), f"{VALUE}: "),
    (but("pad", lambda o, a, s, r, g: (g.shrink([(0, n) for n in s[0].shape]),)), f"{VALUE}: "),
    (but("reshape", lambda o, a, s, r, g: (g.flip(range(len(g.shape))).reshape(s[0].shape),)),
     f"{VALUE}: "),
    (lambda *given: None, "raised: parts answers None, and not a tuple"),
    (lambda o, a, s, r, g: (g,), "raised: parts answers (a value of shape (1,),), and not"),
    (lambda o, a, s, r, g: tuple(1.0 for _ in s), "raised: the gradient of source 0 is 1.0, and"),
    (lambda o, a, s, r, g: (g.log10(),),
     "raised: your code raised AttributeError: values have no "),
    (but("log", lambda o, a, s, r, g: (g / s[0] if s[0] > 0 else g,)),
     "raised: your code raised Undecided: an `if` (or `<`, `==`, max, min) asks about a value"),
    (but("max", lambda o, a, s, r, g: (g if s[0] == r else 0 * g,)),
     "raised: your code raised Undecided: an `if` (or `<`, `==`, max, min) asks about a value"),
    (but("sqrt", lambda o, a, s, r, g: (g * s[0] ** -0.5,)),
     "raised: your code raised TypeError: values have no **; x * x is the square"),
    (but("mul", lambda o, a, s, r, g: (g.expand((1, 1)), g)),
     "raised: your code raised ValueError"),
]


@pytest.mark.parametrize(("parts", "said"), WRONG, ids=[said[:60] for _, said in WRONG])
def test_a_wrong_gradient_is_shown_the_smallest_counterexample(parts: Parts, said: str) -> None:
    found = "\n".join(map(str, gradient(module_of(parts))))
    assert said in found and "    source 0: [" in found


def installed(parts: Parts) -> Any:
    module: Any = published(rules)
    module.parts = parts
    lesson_gradient.install(module)
    return module


@pytest.mark.parametrize("parts", [
    right, solution.parts, by_results, by_axes, through_products])
def test_a_right_one_is_shown_none(parts: Parts) -> None:
    assert list(map(str, gradient(module_of(parts)))) == []


def test_the_runtime_asks_the_reader() -> None:
    asked: list[str] = []

    def watched(operation: str, *given: Any) -> Any:
        asked.append(operation)
        return right(operation, *given)

    module = installed(watched)
    assert [rule.name for rule in module.GRADIENTS.rules] == [
        rule.name for rule in rules.GRADIENTS.rules]
    assert lesson_gradient.nodes_made(module) > lesson_gradient.nodes_made(rules)
    assert sorted(set(asked)) == sorted([*lesson_gradient.FUNCTIONS, *lesson_gradient.PAIRS])


def test_the_page_shows_the_score_that_is_printed() -> None:
    page = (learn.ROOT / "docs" / "course" / "gradient.md").read_text(encoding="utf-8")
    assert all(line in page for line in lesson_gradient.score(rules))
    assert len(LESSONS["gradient"].hints) == 7 and "the next of seven hints" in page


def test_a_file_takes_the_place_of_the_rules(tmp_path: Path,
                                             capsys: pytest.CaptureFixture[str]) -> None:
    mine = tmp_path / "my_gradient.py"
    assert learn.main(["start", "gradient", "--mine", str(mine)]) == 0
    assert "def parts(operation" in mine.read_text(encoding="utf-8")
    assert "all 3 rules of this lesson are red" in capsys.readouterr().out
    assert learn.Overlay("gradient", mine).find_spec("impl.gradient.rules") is not None
