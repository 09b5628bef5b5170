"""The lesson on a softmax in one kernel: a row that is too long to be kept, a block at a time.

The reader's functions are asked with numbers that count in float32, as a device does, and about
which nobody can ask an `if`. Rows go through them block by block.

    blocking.online.equal: the result is nan, and should be 2

        scores of the blocks: [-inf, -inf] [0, 0]
        values: [5, 5] [1, 3]
"""
from __future__ import annotations

import importlib
import random
from collections.abc import Callable, Iterator, Sequence
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from conformance.learn.lesson import Counterexample, Lesson, Undecided, raised

EQUAL = "blocking.online.equal"
INFINITY = float("inf")
NEAR = 1e-5  # of the greatest value


class Condition:
    """Whether two numbers are equal; only `where` can ask."""

    def __init__(self, truth: Any, chosen: Callable[[Any, Any], Any]) -> None:
        self.truth, self.chosen = truth, chosen

    def __bool__(self) -> bool:
        raise Undecided("an `if` (or `and`, `or`, `not`, max, min) asks about a number; while a "
                        "kernel is made nobody knows it. Write where(condition, one, other)")


class Number:
    """A number of a kernel: in the judge a float32."""

    def __init__(self, value: Any) -> None:
        self.value = np.float32(value)

    def made(self, op: str, *given: Any) -> Any:
        """The number that an operation gives."""
        with np.errstate(all="ignore"):
            return Number({"add": np.add, "sub": np.subtract, "mul": np.multiply,
                           "div": np.divide, "exp": np.exp, "max": np.maximum}[op](
                *(np.float32(getattr(each, "value", each)) for each in given)))

    def __add__(self, other: Any) -> Any:
        return self.made("add", self, other)

    def __radd__(self, other: Any) -> Any:
        return self.made("add", other, self)

    def __sub__(self, other: Any) -> Any:
        return self.made("sub", self, other)

    def __rsub__(self, other: Any) -> Any:
        return self.made("sub", other, self)

    def __mul__(self, other: Any) -> Any:
        return self.made("mul", self, other)

    def __rmul__(self, other: Any) -> Any:
        return self.made("mul", other, self)

    def __truediv__(self, other: Any) -> Any:
        return self.made("div", self, other)

    def __rtruediv__(self, other: Any) -> Any:
        return self.made("div", other, self)

    def exp(self) -> Any:
        """e to the power of it."""
        return self.made("exp", self)

    def __eq__(self, other: Any) -> Any:
        found = bool(self.value == np.float32(getattr(other, "value", other)))
        return Condition(found, lambda one, two: one if found else two)

    def __ne__(self, other: Any) -> Any:
        found = bool(self.value != np.float32(getattr(other, "value", other)))
        return Condition(found, lambda one, two: one if found else two)

    __hash__ = object.__hash__

    def __bool__(self) -> bool:
        raise Undecided("an `if` asks about a number; write where(condition, one, other)")

    def __float__(self) -> float:
        raise Undecided("math.exp and float() need a number that is known, and while a kernel is "
                        "made nobody knows it. Write number.exp()")

    __lt__ = __le__ = __gt__ = __ge__ = lambda self, other: bool(self)


def where(condition: Condition, one: Any, other: Any) -> Any:
    """`one` if the condition is true, else `other`. Both are computed."""
    if not isinstance(condition, Condition):
        raise TypeError(f"where({condition!r:.40}, ...): the first is no comparison with == or !=")
    return condition.chosen(one, other)


# Rows --------------------------------------------------------------------------------------


class Row(NamedTuple):
    """Scores and values of a row, in blocks of one size."""

    scores: tuple[float, ...]
    values: tuple[float, ...]
    block: int

    def __str__(self) -> str:
        def blocks(numbers: Sequence[float]) -> str:
            return " ".join("[" + ", ".join(f"{each:g}" for each in numbers[at:at + self.block])
                            + "]" for at in range(0, len(numbers), self.block))
        return f"scores of the blocks: {blocks(self.scores)}\nvalues: {blocks(self.values)}"


def rows() -> Iterator[Row]:
    """From the smallest up."""
    low = -INFINITY
    yield Row((0,), (3,), 1)
    yield Row((0, 0), (1, 3), 2)
    yield Row((0, 0), (1, 3), 1)
    yield Row((1, 0), (1, 3), 1)
    yield Row((0, 1), (1, 3), 1)
    yield Row((0, 100), (1, 3), 1)
    yield Row((100, 0), (1, 3), 1)
    yield Row((100, 100, 100), (1, 2, 3), 1)
    yield Row((-200, -200), (1, 3), 1)
    yield Row((low, 0), (5, 2), 1)
    yield Row((0, low), (2, 5), 1)
    yield Row((low, low, 0, 0), (5, 5, 1, 3), 2)
    yield Row((0, 1, 2, 3), (1, 2, 3, 4), 2)
    yield Row((3, 2, 1, 0), (1, 2, 3, 4), 2)
    yield Row((0, 0, 0, 0), (3e38, 3e38, 3e38, 3e38), 1)
    yield Row((0, 0, 0, 0), (3e38, 3e38, 3e38, 3e38), 2)
    chooser = random.Random(0)
    for size in (4, 6, 8):
        for _ in range(20):
            yield drawn(chooser, size)


def drawn(chooser: random.Random, size: int) -> Row:
    wide = chooser.choice((1, 10, 60))
    scores = tuple(-INFINITY if chooser.random() < 0.1 else round(chooser.uniform(-wide, wide), 2)
                   for _ in range(size - 1))
    return Row((*scores, 0.5), tuple(float(chooser.randrange(-4, 5)) for _ in range(size)),
               chooser.choice((1, 2)))


def weighted(row: Row) -> float:
    """By definition, in float64."""
    scores = np.array(row.scores, np.float64)
    powers = np.exp(scores - scores.max())
    return float((powers / powers.sum() * np.array(row.values, np.float64)).sum())


def gone_through(module: Any, row: Row, nans: list[str] | None = None) -> float:
    """The row, block by block, with the reader's functions; `nans` hears whose answer is NaN."""
    def number(name: str, *given: Any) -> Number:
        answer = _number(name, getattr(module, name)(*given))
        if nans is not None and np.isnan(answer.value):
            nans.append(name)
        return answer

    most, total, done = Number(-INFINITY), Number(0.0), Number(0.0)
    for at in range(0, len(row.scores), row.block):
        scores = list(map(Number, row.scores[at:at + row.block]))
        values = list(map(Number, row.values[at:at + row.block]))
        before, most = most, Number(max(float(most.value), *(float(s.value) for s in scores)))
        powers = [number("power", score, most) for score in scores]
        total_before, total = total, number("total", total, before, most, _sum(powers))
        scale = number("scale", total_before, before, most, total)
        weights = [number("weight", power, total) for power in powers]
        done = done * scale + _sum([one * two for one, two in zip(weights, values, strict=True)])
    return float(done.value)


def _sum(numbers: Sequence[Number]) -> Number:
    found = Number(0.0)
    for each in numbers:
        found = found + each
    return found


class Unlike(TypeError):
    """What a function answers is no number."""


def _number(name: str, answer: Any) -> Number:
    if isinstance(answer, (int, float)) and not isinstance(answer, bool):
        return Number(answer)
    if not isinstance(answer, Number):
        raise Unlike(f"{name} answers {answer!r:.60}, and not a number")
    return answer


def online(module: ModuleType) -> Iterator[Counterexample]:
    """The first row for which the reader's functions are wrong."""
    for row in rows():
        nans: list[str] = []
        try:
            found = gone_through(module, row, nans)
        except Unlike as error:
            yield Counterexample("raised", str(error), str(row))
            return
        except Exception as error:  # any: it is the reader's own code
            yield raised(error, str(row))
            return
        right = weighted(row)
        if not abs(found - right) <= NEAR * max(map(abs, row.values)):
            yield Counterexample(EQUAL, f"the result is {found:g}, and should be {right:g}",
                                 "\n".join([str(row), *(
                                     f"the first NaN comes from {name}" for name in nans[:1])]))
            return


# In the runtime ----------------------------------------------------------------------------


def install(module: ModuleType) -> None:
    """Let the step ONLINE of the runtime compute with the reader's functions."""
    known: Any = module
    ir: Any = importlib.import_module("impl.ir")
    base: Any = known._Blocks
    ops = {"add": ir.Ops.ADD, "sub": ir.Ops.SUB, "mul": ir.Ops.MUL, "div": ir.Ops.DIV,
           "exp": ir.Ops.EXP}

    def node_of(value: Any) -> Any:
        node = getattr(value, "node", value)
        return node if isinstance(node, ir.UOp) else ir.UOp.const(known._FLOAT, float(node))

    class Element(Number):
        """A number in a kernel: a node of its graph."""

        def __init__(self, node: Any) -> None:
            self.node = node

        def made(self, op: str, *given: Any) -> Any:
            return Element(ir.UOp(ops[op], known._FLOAT, tuple(map(node_of, given))))

        def _compared(self, other: object, turned: bool) -> Condition:
            node = ir.UOp(ir.Ops.CMPEQ, known.dtypes.bool, (self.node, node_of(other)))

            def chosen(one: Any, two: Any) -> Any:
                pair = (two, one) if turned else (one, two)
                return Element(ir.UOp(ir.Ops.WHERE, known._FLOAT, (node, *map(node_of, pair))))
            return Condition(None, chosen)

        def __eq__(self, other: object) -> Any:
            return self._compared(other, False)

        def __ne__(self, other: object) -> Any:
            return self._compared(other, True)

        __hash__ = object.__hash__

    class Blocks(base):
        def _weighted(self) -> list[Any]:
            load, store, index = known._load, known._store, known._index
            score: Any = self.found.score
            loop, element = self._loops(known.RangeKind.REDUCE, 2)
            each, other = self._loops(known.RangeKind.LOOP, 2)
            top = ir.UOp(ir.Ops.REDUCE, known._FLOAT,
                         (self._moved(score, self.loop, loop), loop), ir.Ops.MAXIMUM)
            most = ir.UOp(ir.Ops.MAXIMUM, known._FLOAT, (load(self.before), top))
            summed = ir.UOp(ir.Ops.REDUCE, known._FLOAT,
                            (load(index(self.powers, element)), element), ir.Ops.ADD)

            def of(place: Any) -> Any:
                return Element(load(place))

            before, after = of(self.before), of(self.after)
            power = known.power(Element(self._moved(score, self.loop, each)), after)
            total = known.total(of(self.total_before), before, after, Element(summed))
            scale = known.scale(of(self.total_before), before, after, of(self.total))
            weight = known.weight(of(index(self.powers, other)), of(self.total))
            return [store(self.after, most, self.block),
                    store(index(self.powers, each), node_of(power), self.block, each),
                    store(self.total, node_of(total), self.block),
                    store(self.scale, node_of(scale), self.block),
                    store(index(self.weights, other), node_of(weight), self.block, other)]

    known._Blocks = Blocks


def score(module: ModuleType) -> Iterator[str]:
    """How far results are from exact ones: the reader's, and those of a whole row in float32."""
    chooser, worst = random.Random(3), [0.0, 0.0]
    for _ in range(200):
        row = drawn(chooser, 64)._replace(block=8)
        right, scores = weighted(row), np.array(row.scores, np.float32)
        powers = np.exp(scores - scores.max())
        whole = float((powers / powers.sum() * np.array(row.values, np.float32)).sum())
        for place, found in enumerate((gone_through(module, row), whole)):
            worst[place] = max(worst[place], abs(found - right))
    yield (f"in 200 rows of 64, in blocks of 8, you are off by {worst[0]:.0e} at most, "
           f"and a row as a whole by {worst[1]:.0e}")


ONLINE = Lesson(
    number=9, functions=("power", "total", "scale", "weight"),
    names="""\
Numbers have + - * / and exp(). `a == b` is a condition, and
    where(a == b, one, other)       chooses between two numbers; both are computed
No `if` can ask about a number. All are float32, and may be -inf (a score that is hidden).""",
    heads='''\
from conformance.learn.lesson_online import where

INFINITY = float("inf")


def power(score, most):
    """e to the power of score - most, where `most` is the greatest score so far.

    0 as long as nothing but -inf was seen.
    """
    raise NotImplementedError


def total(total_before, before, most, summed):
    """The sum of the powers of all elements so far.

    `summed` are those of this block. `total_before` was the total before it, when the greatest
    score was `before`.
    """
    raise NotImplementedError


def scale(total_before, before, most, total):
    """By what the weighted sum of all blocks before this one is multiplied now."""
    raise NotImplementedError


def weight(power, total):
    """The weight of an element of this block; 0 as long as nothing but -inf was seen."""
    raise NotImplementedError
''',
    rules=(EQUAL,),
    hints=(
        "Forget -inf at first. power is one line: (score - most).exp().",
        "The total before was a sum of exp(score - before). Now it has to be the sum of exp(score "
        "- most). Which factor makes one of the other?",
        "The weighted sum so far has weights that add up to 1. How large is its part of the new "
        "total?",
        "-inf - (-inf) is nan. Before you subtract, put 0 in the place of a `most` that is -inf: "
        "where(most == -INFINITY, 0.0, most). exp(-inf - 0) is 0, as it should be.",
        "0 / 0 is nan. Put 1 in the place of a total that is 0."),
    counterexamples=online, module="blocking.online", chapters=("blocking",), install=install,
    score=score)
