"""The last lesson: all parts in one list, and a network that learns.

The reader's `pipeline` puts passes in an order in which each finds what it needs. The reader's
`step` teaches a network of two layers, and is compared with NumPy, number by number.

    schedule.passes.pure: fuse runs before place, which writes `placed`; it needs that

        fuse needs placed, gives fused
        place needs graph, gives placed
        at the beginning there is: graph
"""
from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from conformance.learn.lesson import Counterexample, Lesson, raised

PURE, FLOW = "schedule.passes.pure", "schedule.document.flow"
DERIVATIVE, SUM = "gradient.value.derivative", "gradient.walk.sum"
Array = np.ndarray[Any, Any]


class Pass(NamedTuple):
    """A part of the scheduler: what has to be there before it, and what is there after it."""

    name: str
    needs: tuple[str, ...]
    gives: tuple[str, ...]

    def __str__(self) -> str:
        return (f"{self.name} needs {', '.join(self.needs) or 'nothing'}, "
                f"gives {', '.join(self.gives)}")


GIVEN = ("effects", "environment")
#: The parts of the runtime: what each needs, and what it gives.
PARTS = tuple(Pass(name, tuple(needs.split()), tuple(gives.split())) for name, needs, gives in (
    ("cut", "effects environment", "cuts"), ("make_stages", "cuts", "graph results"),
    ("place", "graph results", "placed"), ("fuse", "placed", "fused"),
    ("make_late", "fused placed", "late placement"),
    ("split", "late fused placement", "grouping"),
    ("find_hazards", "grouping placement", "accesses waits"),
    ("put_in_order", "grouping placement accesses waits", "order"),
    ("take_over", "grouping placement order accesses waits", "takeovers dependencies"),
    ("lay_out", "takeovers order dependencies grouping placement", "under_way memories"),
    ("assemble", "takeovers grouping placement", "kernels")))


class Problem(NamedTuple):
    """Passes in any order, and what is there at the beginning; `wrong` says why none is right."""

    passes: tuple[Pass, ...]
    given: tuple[str, ...] = ()
    wrong: str = ""

    def __str__(self) -> str:
        lines = [str(each) for each in self.passes]
        return "\n".join([*lines, f"at the beginning there is: {', '.join(self.given) or 'nothing'}"
                          ])


def problems() -> Iterator[Problem]:
    """From the smallest up; then those of the runtime, shuffled."""
    a, b, c = Pass("a", (), ("x",)), Pass("b", ("x",), ("y",)), Pass("c", ("x", "y"), ("z",))
    yield Problem(())
    yield Problem((a,))
    yield Problem((PARTS[3], PARTS[2]), ("graph", "results"))
    for passes in itertools.permutations((a, b, c)):
        yield Problem(passes)
    yield Problem((c, Pass("two", ("w",), ("x", "y"))), ("w",))
    yield Problem((b,), (), "nobody writes x")
    yield Problem((Pass("one", ("q",), ("p",)), Pass("two", ("p",), ("q",))), (),
                  "each waits for the other")
    yield Problem((a, Pass("again", (), ("x",))), (), "x is written twice")
    chooser = random.Random(0)
    for _ in range(5):
        shuffled = list(PARTS)
        chooser.shuffle(shuffled)
        yield Problem(tuple(shuffled), GIVEN)


def _ordered(module: ModuleType, problem: Problem) -> Counterexample | None:
    shown = str(problem)
    try:
        answer = module.pipeline(list(problem.passes), list(problem.given))
    except ValueError as error:
        return None if problem.wrong else raised(error, shown)
    except Exception as error:  # any: it is the reader's own code
        return raised(error, shown)
    if not isinstance(answer, list) or not all(each in problem.passes for each in answer):
        return Counterexample("raised", f"pipeline answers {answer!r:.60}, and not a list of "
                              "passes", shown)
    if problem.wrong:
        return Counterexample(PURE, f"{problem.wrong}, so there is no order; raise a ValueError",
                              shown)
    for each in problem.passes:
        if answer.count(each) != 1:
            return Counterexample(PURE, f"{each.name} runs {answer.count(each)} times", shown)
    writer = {name: each for each in problem.passes for name in each.gives}
    for place, each in enumerate(answer):
        for name in each.needs:
            if name in writer and answer.index(writer[name]) > place:
                return Counterexample(PURE, f"{each.name} runs before {writer[name].name}, which "
                                      f"writes `{name}`; it needs that", shown)
    return None


# A network that learns ---------------------------------------------------------------------


class Case(NamedTuple):
    """The weights of a network, some examples with their classes, and how far to go."""

    weights: tuple[Array, ...]
    x: Array
    y: Array
    rate: float
    steps: int = 1
    captured: bool = False

    def __str__(self) -> str:
        w1, _, w2, _ = self.weights
        lines = [f"{len(self.x)} example{'s' if len(self.x) > 1 else ''} of {w1.shape[0]} numbers, "
                 f"{w1.shape[1]} hidden, {w2.shape[1]} classes, rate {self.rate:g}"]
        if self.captured:
            lines.append("in a captured function, called several times")
        return "\n".join(lines)


def cases() -> Iterator[Case]:
    """From the smallest up."""
    yield drawn(0, 1, 2, 2, 2, rate=0.0)
    yield drawn(1, 1, 2, 3, 2)
    yield drawn(2, 3, 2, 3, 4)
    yield drawn(2, 3, 2, 3, 4, steps=3)
    large = drawn(3, 2, 2, 3, 3)
    yield large._replace(weights=(*large.weights[:2], large.weights[2] * 400, large.weights[3]))
    yield drawn(4, 4, 3, 5, 3, steps=4)._replace(captured=True)


def drawn(seed: int, count: int, inputs: int, hidden: int, classes: int, rate: float = 0.5,
          steps: int = 1) -> Case:
    numbers = np.random.default_rng(seed)

    def some(*shape: int) -> Array:
        return numbers.standard_normal(shape).astype(np.float32)

    weights = some(inputs, hidden), some(hidden), some(hidden, classes), some(classes)
    return Case(weights, some(count, inputs), numbers.integers(0, classes, count, np.int32), rate,
                steps)


def learned(case: Case) -> tuple[list[float], list[Array]]:
    """By definition, in float64: the losses before each step, and the weights after the last."""
    w1, b1, w2, b2 = (each.astype(np.float64) for each in case.weights)
    losses, count = [], len(case.x)
    for _ in range(case.steps):
        hidden = np.maximum(case.x @ w1 + b1, 0)
        scores = hidden @ w2 + b2
        shifted = scores - scores.max(1, keepdims=True)
        shares = np.exp(shifted) / np.exp(shifted).sum(1, keepdims=True)
        picked = shifted[np.arange(count), case.y] - np.log(np.exp(shifted).sum(1))
        losses.append(float(-picked.mean()))
        slope = shares.copy()
        slope[np.arange(count), case.y] -= 1
        slope /= count
        below = slope @ w2.T * (hidden > 0)
        w2, b2 = w2 - case.rate * hidden.T @ slope, b2 - case.rate * slope.sum(0)
        w1, b1 = w1 - case.rate * case.x.T @ below, b1 - case.rate * below.sum(0)
    return losses, [w1, b1, w2, b2]


def _taught(module: ModuleType, case: Case) -> Counterexample | None:
    from impl import Context, Tensor, TinyJit

    shown, losses = str(case), []
    with Context(DEVICE="REFERENCE"):
        weights = [Tensor(each, requires_grad=True).realize() for each in case.weights]
        x, y = Tensor(case.x).realize(), Tensor(case.y).realize()

        def once(x: Any, y: Any) -> Any:
            with Tensor.train():
                loss = module.step(weights, x, y, case.rate)
                if isinstance(loss, Tensor):
                    loss.realize(*weights)
                return loss

        call = TinyJit(once) if case.captured else once
        try:
            for _ in range(case.steps):
                loss = call(x, y)
                if not isinstance(loss, Tensor) or loss.shape != ():
                    return Counterexample("raised", f"step answers {loss!r:.60}, and not a loss: "
                                          "a tensor of one number", shown)
                losses.append(loss.item())
            found = [each.numpy() for each in weights]
        except Exception as error:  # any: it is the reader's own code
            return raised(error, shown)
    return _compared(case, losses, found, shown)


def _compared(case: Case, losses: Sequence[float], found: Sequence[Array],
              shown: str) -> Counterexample | None:
    right, weights = learned(case)
    for number, (mine, theirs) in enumerate(zip(losses, right, strict=True)):
        if not abs(mine - theirs) <= 1e-3 * max(1.0, abs(theirs)):
            before = "" if number == 0 else \
                f"; after {number} step{'s' if number > 1 else ''} that were right so far"
            rule = SUM if number else DERIVATIVE
            return Counterexample(rule, f"the loss is {mine:.4f}, and should be {theirs:.4f}"
                                  f"{before}", shown)
    for name, old, made, wanted in zip(("w1", "b1", "w2", "b2"), case.weights, found, weights,
                                       strict=True):
        if made.shape != wanted.shape:
            return Counterexample("raised", f"{name} had the shape {old.shape}, and has "
                                  f"{made.shape}", shown)
        apart = ~(np.abs(made - wanted) <= 1e-3 * np.maximum(1, np.abs(wanted)))
        if apart.any():
            place = tuple(int(each) for each in np.argwhere(apart)[0])
            was = float(old[place])
            stayed = " (it has not changed)" if made[place] == old[place] else ""
            return Counterexample(DERIVATIVE, f"{name}{list(place)} was {was:.4f}; it is "
                                  f"{made[place]:.4f}{stayed}, and should be "
                                  f"{wanted[place]:.4f}", shown)
    return None


def training(module: ModuleType) -> Iterator[Counterexample]:
    """The first problem that breaks each rule of the last lesson."""
    for problem in problems():
        found = _ordered(module, problem)
        if found is not None:
            yield found
            return  # without its parts the runtime cannot teach anybody
    for case in cases():
        found = _taught(module, case)
        if found is not None:
            yield found
            return


# In the runtime ----------------------------------------------------------------------------


def install(module: ModuleType) -> None:
    """Let the runtime run its passes in the reader's order."""
    known: Any = module
    ours, passes = known.make_plan, {each.__name__: each for each in known.PASSES}
    assert list(passes) == [each.name for each in PARTS]

    def make_plan(*given: Any) -> Any:
        if known.PASSES and known.PASSES[0].__name__ in passes and not chosen:
            chosen.extend(known.pipeline(list(reversed(PARTS)), list(GIVEN)))
            known.PASSES = tuple(passes[each.name] for each in chosen)
        return ours(*given)

    chosen: list[Pass] = []
    known.make_plan = make_plan


def score(module: ModuleType) -> Iterator[str]:
    """What one step of training costs, and what the scheduler is worth there."""
    from impl import Context, Tensor
    from impl.schedule import schedule_cache

    known: Any = module
    case = drawn(0, 32, 64, 128, 10)
    yield f"{'one step of training':<28}{'kernels':>8}{'bytes moved':>13}{'peak':>9}"
    for fuse in (0, 1):
        schedule_cache.clear()
        with Context(DEVICE="REFERENCE", FUSE=fuse), Tensor.train():
            weights = [Tensor(each, requires_grad=True).realize() for each in case.weights]
            loss = known.step(weights, Tensor(case.x).realize(), Tensor(case.y).realize(), 0.1)
            made = Tensor.schedule_document(loss, *weights)
        peak = sum(each["bytes"] for each in made["memory"]["arenas"])
        yield (f"{f'FUSE={fuse}':<28}{len(made['kernels']):>8}"
               f"{sum(each['bytes'] for each in made['kernels']):>13}{peak:>9}")
    least = sum(2 * each.nbytes for each in case.weights) + case.x.nbytes + case.y.nbytes + 4
    yield f"{'at least':<28}{1:>8}{least:>13}{0:>9}"


TRAINING = Lesson(
    number=24, functions=("pipeline", "step"),
    names="""\
A pass is a part of the scheduler:
    each.name, each.needs, each.gives      texts, as in needs ("graph", "results")
What a step gets are tensors:
    weights            [w1, b1, w2, b2], of shapes (inputs, hidden), (hidden,), (hidden, classes)
                       and (classes,); all require gradients
    x, y               examples (count, inputs), and their classes (count,), whole numbers
A tensor has + - * / @ and ==, exp(), log(), relu(); sum(1) and max(1, keepdim=True) along axis 1,
mean() of all; reshape(-1, 1), backward(), assign(), and .grad, which may be set to None.
Tensor.arange(n) is 0, 1, ... n - 1; write `from impl import Tensor` for it at the top.""",
    heads='''\
def pipeline(passes, given):
    """The passes as a list, each once, in an order in which each finds what it needs.

    `given` are the names of what is there at the beginning. Where there is no such order, a
    ValueError says why: nobody writes a name, two write it, or passes wait for each other.
    """
    raise NotImplementedError


def step(weights, x, y, rate):
    """One step of training; gives back the loss before it, a tensor of one number.

    The network is relu(x @ w1 + b1) @ w2 + b2; the loss is the mean over all examples of the
    negative logarithm of the share that softmax gives to the right class. Each weight becomes
    what it was less `rate` times its gradient, in place.
    """
    raise NotImplementedError
''',
    rules=(PURE, FLOW, DERIVATIVE, SUM),
    hints=(
        "pipeline: keep a set of the names that are there. Take any pass whose needs are all in "
        "it, put it into the list, and add what it gives. When none can be taken and some are "
        "left, raise a ValueError.",
        "Two passes that give the same name: count the names before you begin.",
        "step: first the scores, with one line for each layer. Then the loss. softmax is exp(s) / "
        "sum(exp(s)), so its logarithm is s - log(sum(exp(s))).",
        "exp(1000) is infinite. Take the maximum of each row away first; the result is the same.",
        "How do you get s[y] of each row? A matrix of classes: y.reshape(-1, 1) compared with "
        "Tensor.arange(classes) is true at the right class and nowhere else.",
        "loss.backward() *adds* to the gradient of each weight. Set .grad to None before it, and "
        "assign all weights when all gradients are known."),
    counterexamples=training, module="schedule.pipeline", chapters=("schedule", "gradient"),
    install=install, score=score, late=True)
