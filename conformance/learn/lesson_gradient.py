"""The lesson on gradients: what a change of a result means for each source of an operation.

The reader's `parts` is asked with arrays of NumPy in the judge, and with nodes of the graph in the
runtime. Both understand the same few operations, so that the answer is a graph there.

    gradient.value.derivative: you say 1.0 for element (1) of source 0; differences say 2.0

        mul of shapes (3) and (3)
        source 0: [0.5, -1.25, 2.0]
        source 1: [1.5, 2.0, -0.75]
        the gradient of the result: [1.0, 0.5, -2.0]
"""
from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from conformance.learn.lesson import (
    Counterexample,
    Lesson,
    Undecided,
    first_of_each,
    is_whole,
    published,
    raised,
)

DERIVATIVE, BROADCAST = "gradient.value.derivative", "gradient.broadcast.sum"
TIE = "gradient.max.tie"
Array = np.ndarray[Any, Any]
NUMBERS = (0.5, -1.25, 2.0, 0.75, -0.5, 1.5, -2.25, 0.25, 1.75, -1.0, 2.5, -1.75)
FACTORS = (1.5, 2.0, -0.75, 1.25, -1.5, 0.5, 2.25, -2.0, 1.0, 0.75, -0.25, -1.25)
UPSTREAM = (1.0, 0.5, -2.0, 0.25, 1.5, -0.75, 3.0, -1.5, 2.0, -0.5, 0.125, 1.25)
#: Functions of one number: their values, and whether they need positive ones.
FUNCTIONS: dict[str, tuple[Callable[[Any], Any], bool]] = {
    "neg": (np.negative, False), "exp": (np.exp, False), "sin": (np.sin, False),
    "cos": (np.cos, False), "tanh": (np.tanh, False), "reciprocal": (np.reciprocal, False),
    "log": (np.log, True), "sqrt": (np.sqrt, True)}
PAIRS: dict[str, Callable[[Any, Any], Any]] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide}
ASKS = ("an `if` (or `<`, `==`, max, min) asks about a value; in the runtime it is a node of a "
        "graph, and has no number yet. equals(other) gives 1 or 0, and can be multiplied with")
MOVEMENTS = ("expand", "reshape", "permute", "pad", "shrink", "flip")


class Value:
    """An array, with the operations of which a gradient may be made."""

    def __init__(self, array: Array, kind: str = "number") -> None:
        self.array, self.kind = array, kind

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(map(int, self.array.shape))

    def __repr__(self) -> str:
        return f"a value of shape {self.shape}"

    def _with(self, other: Any, name: str, function: Callable[[Any, Any], Any]) -> Value:
        if isinstance(other, Value):
            if other.shape != self.shape and self.shape and other.shape:
                raise ValueError(f"{name} of shapes {self.shape} and {other.shape}: they have to "
                                 "be equal, or one is ()")
            other = other.array
        return Value(function(self.array, other))

    def __add__(self, other: Any) -> Value:
        return self._with(other, "+", np.add)

    def __sub__(self, other: Any) -> Value:
        return self._with(other, "-", np.subtract)

    def __rsub__(self, other: Any) -> Value:
        return self._with(other, "-", lambda a, b: b - a)

    def __mul__(self, other: Any) -> Value:
        return self._with(other, "*", np.multiply)

    def __truediv__(self, other: Any) -> Value:
        return self._with(other, "/", np.divide)

    def __rtruediv__(self, other: Any) -> Value:
        return self._with(other, "/", lambda a, b: b / a)

    __radd__, __rmul__ = __add__, __mul__

    def __neg__(self) -> Value:
        return Value(-self.array)

    def __bool__(self) -> bool:
        raise Undecided(ASKS)

    def __lt__(self, other: Any) -> bool:
        raise Undecided(ASKS)

    def __eq__(self, other: object) -> bool:
        raise Undecided(ASKS)

    __le__ = __gt__ = __ge__ = __lt__
    __hash__ = object.__hash__

    def __pow__(self, other: Any) -> Value:
        raise TypeError("values have no **; x * x is the square")

    def equals(self, other: Value) -> Value:
        """1 where both are equal, and 0 elsewhere."""
        return self._with(other, "equals", lambda a, b: (a == b) * 1.0)

    def __getattr__(self, name: str) -> Callable[[], Value]:
        if name not in FUNCTIONS:
            raise AttributeError(f"values have no {name!r}; they have + - * /, equals, sum, "
                                 + ", ".join((*FUNCTIONS, *MOVEMENTS)))
        return lambda: Value(FUNCTIONS[name][0](self.array))

    def sum(self, axes: Sequence[int] | None = None) -> Value:
        """The sum over some axes, which stay with size 1; over all, of shape (), without any."""
        if axes is None:
            return Value(np.asarray(self.array.sum()))
        return Value(self.array.sum(axis=tuple(axes), keepdims=True))

    def expand(self, shape: Sequence[int]) -> Value:
        if len(shape) != len(self.shape):
            raise ValueError(f"expand of shape {self.shape} to {tuple(shape)}: they need as many "
                             "axes")
        return Value(np.broadcast_to(self.array, tuple(shape)))

    def reshape(self, shape: Sequence[int]) -> Value:
        return Value(self.array.reshape(tuple(shape)))

    def permute(self, axes: Sequence[int]) -> Value:
        return Value(self.array.transpose(tuple(axes)))

    def pad(self, amounts: Sequence[tuple[int, int]]) -> Value:
        return Value(np.pad(self.array, tuple(amounts)))

    def shrink(self, bounds: Sequence[tuple[int, int]]) -> Value:
        return Value(self.array[tuple(slice(*each) for each in bounds)])

    def flip(self, axes: Sequence[int]) -> Value:
        return Value(np.flip(self.array, tuple(axes)))


# The problems ------------------------------------------------------------------------------


class Problem(NamedTuple):
    """An operation, its argument, and its sources."""

    operation: str
    argument: Any
    sources: tuple[Array, ...]

    def of(self, sources: Sequence[Array]) -> Array:
        """The value, by NumPy's definition."""
        if self.operation in FUNCTIONS:
            return np.asarray(FUNCTIONS[self.operation][0](sources[0]))
        if self.operation in PAIRS:
            return np.asarray(PAIRS[self.operation](*sources))
        if self.operation == "max":
            return np.asarray(sources[0].max(axis=self.argument, keepdims=True))
        if self.operation == "sum":
            return np.asarray(sources[0].sum(axis=self.argument, keepdims=True))
        moved: Value = getattr(Value(sources[0]), self.operation)(self.argument)
        return moved.array


def filled(shape: tuple[int, ...], numbers: Sequence[float], positive: bool = False) -> Array:
    flat = np.resize(np.array(numbers), math.prod(shape))
    return np.abs(flat.reshape(shape)) if positive else flat.reshape(shape)


def problems() -> Iterator[Problem]:
    """Each operation, on few numbers first."""
    for name, (_, positive) in FUNCTIONS.items():
        yield Problem(name, (), (filled((1,), NUMBERS, positive),))
        yield Problem(name, (), (filled((2, 3), NUMBERS, positive),))
    for name in PAIRS:
        for one, other in SIDES:
            yield Problem(name, (), (filled(one, NUMBERS), filled(other, FACTORS)))
    for name in ("sum", "max"):
        for axes, shape in REDUCED:
            yield Problem(name, axes, (filled(shape, NUMBERS),))
    yield Problem("max", (0,), (np.array([2.0, 1.0, 2.0]),))
    yield Problem("max", (1,), (np.array([[1.0, 1.0, 1.0], [0.0, 3.0, 3.0]]),))
    for name, argument, shape in MOVED:
        yield Problem(name, argument, (filled(shape, NUMBERS),))


SIDES: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...] = (
    ((1,), (1,)), ((3,), (3,)), ((3,), ()), ((), (3,)), ((2, 3), ()))
REDUCED: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...] = (
    ((0,), (3,)), ((1,), (2, 3)), ((0,), (2, 3)), ((0, 2), (2, 3, 2)))
MOVED: tuple[tuple[str, Any, tuple[int, ...]], ...] = (
    ("expand", (3,), (1,)), ("expand", (2, 3), (2, 1)), ("expand", (2, 3), (1, 3)),
    ("expand", (2, 3), (1, 1)), ("expand", (1, 3), (1, 3)),
    ("reshape", (6,), (2, 3)), ("reshape", (3, 1, 2), (2, 3)), ("reshape", (), (1,)),
    ("permute", (1, 0), (2, 3)), ("permute", (1, 2, 0), (2, 3, 2)),
    ("permute", (2, 0, 1), (1, 2, 3)),
    ("pad", ((1, 0),), (2,)), ("pad", ((0, 2), (1, 1)), (2, 3)),
    ("shrink", ((1, 3),), (3,)), ("shrink", ((0, 1), (1, 2)), (2, 3)),
    ("flip", (0,), (3,)), ("flip", (0, 1), (2, 3)), ("flip", (1,), (2, 3)))


def wanted(problem: Problem, upstream: Array) -> list[Array]:
    """The derivatives, by differences in both directions, one number after the other; at a tie of a
    maximum its share, by definition."""
    if problem.operation == "max":
        source = problem.sources[0]
        chosen = (source == problem.of(problem.sources)) * 1.0
        return [upstream * chosen / chosen.sum(axis=problem.argument, keepdims=True)]
    step, found = 1e-5, []
    for number, source in enumerate(problem.sources):
        slopes = np.zeros(source.shape)
        for place in np.ndindex(source.shape):
            ends = []
            for sign in (1, -1):
                moved = [np.array(each, dtype=np.float64) for each in problem.sources]
                moved[number][place] += sign * step
                ends.append(float((problem.of(moved) * upstream).sum()))
            slopes[place] = (ends[0] - ends[1]) / (2 * step)
        found.append(slopes)
    return found


# What is said of an answer -----------------------------------------------------------------


def gradient(module: ModuleType) -> Iterator[Counterexample]:
    """The first problem that breaks each rule of the lesson on gradients."""
    return first_of_each(filter(None, [_judged(module, problem)]) for problem in problems())


def _judged(module: ModuleType, problem: Problem) -> Counterexample | None:
    result = problem.of(problem.sources)
    upstream = filled(result.shape, UPSTREAM)
    picture = described(problem, upstream)
    try:
        answer = module.parts(problem.operation, problem.argument,
                              tuple(map(Value, problem.sources)), Value(result), Value(upstream))
    except Exception as error:  # any: it is the reader's own code
        return raised(error, picture)
    if not isinstance(answer, tuple) or len(answer) != len(problem.sources):
        return Counterexample("raised", f"parts answers {answer!r}, and not a tuple with a "
                              "gradient for each source", picture)
    for number, (mine, right) in enumerate(zip(answer, wanted(problem, upstream), strict=True)):
        if not isinstance(mine, Value):
            return Counterexample("raised", f"the gradient of source {number} is {mine!r}, and not "
                                  "made of what you were given", picture)
        found = _wrong(problem, number, mine.array, right)
        if found:
            return Counterexample(*found, picture)
    return None


def _wrong(problem: Problem, number: int, mine: Array, right: Array) -> tuple[str, str] | None:
    if mine.shape != right.shape:
        rule = BROADCAST if right.shape == () or problem.operation == "expand" else DERIVATIVE
        return rule, (f"the gradient of source {number} has shape {mine.shape}, and the source "
                      f"{right.shape}")
    for place in np.ndindex(right.shape):
        if not abs(mine[place] - right[place]) <= 1e-6 * (1 + abs(right[place])):
            rule = BROADCAST if problem.operation == "expand" or right.shape == () else DERIVATIVE
            rule = TIE if problem.operation == "max" else rule
            where = "(" + ", ".join(map(str, place)) + ")"
            said = "what is right is" if problem.operation == "max" else "differences say"
            return rule, (f"you say {mine[place]:.6g} for element {where} of source {number}; "
                          f"{said} {right[place]:.6g}")
    return None


def described(problem: Problem, upstream: Array) -> str:
    shapes = " and ".join(str(each.shape) for each in problem.sources)
    argument = f" {problem.argument}" if problem.argument != () else ""
    lines = [f"{problem.operation}{argument} of shape{'s' * (len(problem.sources) > 1)} {shapes}"]
    lines += [f"source {number}: {each.tolist()}" for number, each in enumerate(problem.sources)]
    return "\n".join([*lines, f"the gradient of the result: {upstream.tolist()}"])


# In the runtime ----------------------------------------------------------------------------


def install(module: ModuleType) -> None:
    """Let the runtime ask the reader for the operations of the lesson, before its own rules."""
    known: Any = module
    node_value: Any = value_of_nodes(module)
    ops = {known.Ops[name.upper()]: name for name in (*FUNCTIONS, *PAIRS, *MOVEMENTS)}
    reductions = {known.Ops.ADD: "sum", known.Ops.MAXIMUM: "max"}

    def asked(node: Any, ctx: Any) -> Any:
        gradient, leads = ctx
        name, argument = ops.get(node.op, ""), node.arg
        if node.op is known.Ops.REDUCE:
            name, argument = reductions.get(argument[0], ""), argument[1]
        if not name or not all(map(_is_plain, (node, *node.src))):
            return None
        found = module.parts(name, argument or (), tuple(map(node_value, node.src)),
                             node_value(node), node_value(gradient))
        return [(source, each.node) for source, each in zip(node.src, found, strict=True)
                if source in leads]

    def instead(rule: Any) -> Any:
        def parts(node: Any, ctx: Any) -> Any:
            found = asked(node, ctx)
            return rule.function(node, ctx) if found is None else found
        return known.Rule(rule.pattern, parts, rule.name, rule.reason)

    known.GRADIENTS = known.PatternMatcher(map(instead, known.GRADIENTS.rules))


def _is_plain(node: Any) -> bool:
    """Whether all sizes are numbers, and the values of a kind that has a gradient."""
    return node.dtype.kind == "f" and all(is_whole(size) and size for size in node.shape)


def value_of_nodes(module: ModuleType) -> type:
    """The class of values in the runtime: each operation makes a node."""
    known: Any = module
    nodes, Ops = known.nodes, known.Ops

    class Node:
        def __init__(self, node: Any) -> None:
            self.node = node

        @property
        def shape(self) -> tuple[int, ...]:
            found: tuple[int, ...] = self.node.shape
            return found

        def _other(self, other: Any) -> Any:
            return other.node if isinstance(other, Node) else known.UOp.const(
                self.node.dtype, other)

        def __neg__(self) -> Node:
            return Node(nodes.neg(self.node))

        def equals(self, other: Node) -> Node:
            same = known.UOp(Ops.CMPEQ, known.dtypes.bool, (self.node, self._other(other)))
            return Node(nodes.cast(same, self.node.dtype))

        def __getattr__(self, name: str) -> Callable[[], Node]:
            if name not in FUNCTIONS:
                raise AttributeError(f"values have no {name!r}")
            return lambda: Node(nodes.unary(Ops[name.upper()], self.node))

        def sum(self, axes: Sequence[int] | None = None) -> Node:
            return Node(nodes.total(self.node) if axes is None else
                        nodes.reduce(Ops.ADD, self.node, tuple(axes)))

    def pair(function: Callable[[Any, Any], Any], turned: bool = False) -> Callable[..., Node]:
        def method(self: Any, other: Any) -> Node:
            there = self._other(other)
            return Node(function(there, self.node) if turned else function(self.node, there))
        return method

    def moved(name: str) -> Callable[..., Node]:
        return lambda self, argument: Node(
            nodes.move(self.node, Ops[name.upper()], tuple(argument)))

    for name, function in (("add", nodes.add), ("sub", nodes.sub), ("mul", nodes.mul),
                           ("truediv", nodes.div)):
        setattr(Node, f"__{name}__", pair(function))
        setattr(Node, f"__r{name}__", pair(function, turned=True))
    for name in MOVEMENTS:
        setattr(Node, name, moved(name))
    return Node


def nodes_made(module: ModuleType) -> int:
    """How many operations the rules write down for one of each operation."""
    known: Any = module
    rules, counted = known.GRADIENTS, 0
    for problem in problems():
        if problem.operation in MOVEMENTS or problem.operation in ("sum", "max"):
            continue  # these are much the same for everybody
        shapes = [each.shape for each in problem.sources]
        if shapes != [(2, 3)] and shapes != [(3,), (3,)]:
            continue
        sources = tuple(known.nodes.cast(known.nodes.iota(math.prod(shape) + number),
                                         known.dtypes.float32) for number, shape in
                        enumerate(shapes, 2))
        sources = tuple(known.nodes.reshape(known.nodes.shrink(
            each, ((0, math.prod(shape)),)), shape) for each, shape in
            zip(sources, shapes, strict=True))
        node = known.UOp(known.Ops[problem.operation.upper()], known.dtypes.float32, sources)
        upstream = known.nodes.unary(known.Ops.SIN, sources[0])
        given = {below for each in (node, upstream) for below in each.toposort()}
        found = [part for _, part in rules.rewrite(node, (upstream, set(sources)))]
        made = {below for each in found for below in each.toposort()} - given
        counted += sum(bool(below.src) and below.op.name not in ("EXPAND", "RESHAPE")
                       for below in made)
    return counted


def score(module: ModuleType) -> Iterator[str]:
    """Operations that a backward walk has to write down for one of each."""
    yield (f"operations for the gradients of twelve operations: yours {nodes_made(module)}, "
           f"ours {nodes_made(published(module))}")


GRADIENT = Lesson(
    functions=("parts",),
    names="""\
`operation` and `argument` are one of
    "neg" "exp" "log" "sin" "cos" "tanh" "sqrt" "reciprocal"    one source
    "add" "sub" "mul" "div"        two sources of one shape; or one of them is a number of shape ()
    "sum" "max"  axes              these axes are left with size 1
    "expand" shape   "reshape" shape      the shape of the result
    "permute" axes                        axis k of the result is axis axes[k] of the source
    "pad" amounts    "shrink" bounds      (before, after) and (start, stop), for each axis
    "flip" axes                           these axes run backwards
Values have a `shape`, + - * / with numbers and with values of their shape or of shape (), and
the methods
    neg exp log sin cos tanh sqrt reciprocal      of no argument
    equals(other)                  1 where both are equal, 0 elsewhere
    sum(axes) or sum()             over some axes, left with size 1; or over all, of shape ()
    expand(shape) reshape(shape) permute(axes) pad(amounts) shrink(bounds) flip(axes)
No `if` may ask about a value: in the runtime it is a node of a graph, and has no number yet.""",
    heads='''\
def parts(operation, argument, sources, result, gradient):
    """A tuple: for each source its part of the gradient, in the shape of the source.

    `gradient` says how much the end of the program changes with each element of `result`.
    """
    raise NotImplementedError
''',
    rules=(DERIVATIVE, BROADCAST, TIE),
    hints=(
        "neg: the source's gradient is -gradient. exp: the slope of exp(x) is exp(x), and that is "
        "`result`, which is there already.",
        "tanh: 1 - result * result. sqrt: half of 1 / result. reciprocal: -(result * result).",
        "mul: each source gets the gradient times the other one. div: (gradient / b) for a; for b "
        "that times -result.",
        "A number of shape () was used for all elements, so its gradient is the .sum() of all "
        "parts. Write one function that brings a part to the shape of its source.",
        "sum: each element counts once, so the gradient is spread back: expand. And expand is "
        "turned round by a sum over the axes that grew.",
        "permute: back again. The source's axis axes[k] is axis k of the result; "
        "[axes.index(k) for k in range(len(axes))] are the way back. pad and shrink undo each "
        "other.",
        "max: those that equal the result share the gradient. equals gives 1 for them; divide by "
        "the sum of that over the same axes."),
    counterexamples=gradient, number=4, module="gradient.rules",
    chapters=("gradient",), install=install, score=score)
