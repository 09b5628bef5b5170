"""Control flow as a value: bodies that are traced once and run when the schedule does. Chapter:
spec/loops.md.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from impl.dtypes import dtypes
from impl.errors import ArgumentError, DTypeError, ShapeError
from impl.gradient import below, nodes, sources_of
from impl.gradient.loops import Steps, mark, renamed_loop
from impl.gradient.substitution import substituted
from impl.ir import Ops, UOp, bound_parts, toposort
from impl.loops import outputs
from impl.symbolic import is_symbolic
from impl.tensor import Tensor
from impl.tensor.parameters import recorded
from impl.tensor.random import generator
from impl.transforms.tracing import call_on_placeholders, is_variable, placeholder
from impl.transforms.trees import Tree


class _Trace:
    """A body on placeholders, and what it reads besides them.

    `marks` are what stands for its arguments, and `constants` what it reads otherwise: values from
    outside, each with what stands for it.
    """

    def __init__(self, operation: str) -> None:
        self.operation = operation
        self.places: dict[UOp, UOp] = {}      # placeholder -> mark
        self.constants: dict[UOp, UOp] = {}   # value from outside -> mark
        self.arguments: list[Tensor] = []
        self.start = generator.counter

    def argument(self, leaf: Tensor, shape: tuple[int, ...]) -> Tensor:
        """A placeholder for an argument."""
        made = placeholder(leaf, shape, self.operation)
        self.arguments.append(Tensor._holding(made.uop, made.device))
        self.places[made.uop] = mark(made.uop)
        return made

    def call(self, function: Callable[..., Any], *args: Any) -> Any:
        """Call a function on placeholders."""
        return call_on_placeholders(self.operation, self.places.keys(), function, *args)

    def graph(self, roots: Sequence[UOp], iteration: UOp | None = None) -> list[UOp]:
        """The roots on marks alone; what they read from outside is noted.

        `iteration` stands for its number: each draws random numbers of its own.
        """
        replaced: dict[UOp, UOp] = dict(self.places)
        order = below(roots)
        for node in order if self.drawn else ():
            if iteration is not None and self._is_drawn(node):  # r[impl loops.random.step+2]
                along = nodes.scale(nodes.cast(iteration, node.dtype), self.drawn)
                made = self.constants.setdefault(node, mark(node))
                replaced[node] = nodes.add(made, along)
        depends, wanted = set(replaced), list(roots)
        for node in order:
            if node in depends:
                continue
            sources = node.src[1:] if node.op is Ops.STORE else sources_of(node)
            if any(s in depends for s in sources):
                depends.add(node)
                wanted += sources
        outside: dict[UOp, bool] = {}
        for node in map(_not_repeated, wanted):
            if node not in depends and node not in replaced and _outside(node, outside):
                replaced[node] = self.constants.setdefault(node, mark(node))
        return substituted(roots, replaced, pure=True)

    @property
    def drawn(self) -> int:
        """How many random numbers the body has drawn."""
        return generator.counter - self.start

    def _is_drawn(self, node: UOp) -> bool:
        if node.op is not Ops.CAST or node.src[0].op is not Ops.BIND:
            return False
        variable, value = bound_parts(node.src[0])
        return str(variable.arg[0]).startswith("random#") and 0 <= value - self.start < self.drawn


def _not_repeated(node: UOp) -> UOp:
    """The value of which a value from outside is a repetition: it is repeated in the body, where
    that costs no memory, and its gradient is summed there.
    """
    # r[impl loops.outside.once]
    below, bottom = node, node
    while below.op in (Ops.EXPAND, Ops.RESHAPE, Ops.PERMUTE) and below.tag is None \
            and not any(map(is_symbolic, below.shape or ())):
        repeats = below.op is Ops.EXPAND
        below = below.src[0]
        if repeats:
            bottom = below
    return bottom


def _outside(node: UOp, known: dict[UOp, bool]) -> bool:
    """Whether a value has to be brought into a body: it is in memory, made of what is bound, or
    what a transform differentiates for. `known` has the answers for what was walked over before.
    """
    if node.op in (Ops.BIND, Ops.DEFINE_VAR):
        return False
    if node.reads:
        return True
    for part in toposort([node], lambda each: each not in known):
        if part not in known:
            known[part] = part.op in (Ops.BIND, Ops.PARAM) or is_variable(part) \
                or any([known[source] for source in part.src])
    return known[node]


def _rows(tree: Tree, length: int | None) -> int:
    """How many iterations there are."""
    sizes = [leaf.shape[0] if leaf.shape else None for leaf in tree.leaves]
    if length is not None:
        sizes.append(length)
    if not sizes or None in sizes or any(size != sizes[0] for size in sizes):
        # r[impl loops.arguments.refused+4]
        raise ShapeError("scan", f"sequences of {sizes} rows", "give sequences with as many rows "
                         "along axis 0 each, or length= where there are none")
    return int(sizes[0] or 0)  # of a symbolic size what it is now, of which a capture is told


def _as_before(operation: str, now: Tree, before: Tree, what: str) -> list[Tensor]:
    """The carries that a body gives: of the form, the shapes and the dtypes of those it was given.

    Raises:
        DTypeError: a dtype differs; ArgumentError, ShapeError: containers or shapes do.
    """
    for mine, theirs in zip(before.leaves, now.leaves, strict=False):
        if mine.dtype is not theirs.dtype:  # r[impl loops.arguments.refused+4]
            raise DTypeError(operation, f"{what} is {theirs.dtype.name}, and was "
                             f"{mine.dtype.name}", f"convert it: .cast({mine.dtype!r})")
    # r[impl loops.arguments.refused+4]
    return before.matching(now.filled(now.leaves), operation, what, exact=True)


def _values(value: Any) -> Tree:
    """What a loop hands on or gives: numbers and bools are tensors too."""
    return Tree(value, numbers=True, bools=True)


def scan(function: Callable[[Any, Any], tuple[Any, Any]], init: Any, xs: Any = None,
         length: int | None = None, reverse: bool = False) -> tuple[Any, Any]:
    """A loop over rows that hands a value on: `carry, y = function(carry, x)` for each row.

    Args:
        function: is called once. The carry that it returns has the containers, shapes and dtypes of
            the one that it gets.
        init: the first carry.
        xs: tensors, with a row along axis 0 for each iteration; None for `length` iterations.
        reverse: from the last row to the first.

    Returns:
        The last carry, and all ys, stacked along axis 0.

    Raises:
        ShapeError, DTypeError, ArgumentError: the carry changes its form, or sequences differ in
            length.
        TraceError: the function asks for a value.
    """
    carried, rows = _values(init), Tree(xs, arrays=True)
    count = _rows(rows, length)
    # r[impl loops.count.symbolic]
    given = [leaf[:count] if is_symbolic(leaf.shape[0]) else leaf for leaf in rows.leaves]
    trace = _Trace("scan")
    inner = [trace.argument(leaf, leaf.shape) for leaf in carried.leaves]
    along = [trace.argument(leaf, leaf.shape[1:]) for leaf in given]
    returned = trace.call(function, carried.filled(inner), rows.filled(along))
    if not isinstance(returned, tuple) or len(returned) != 2:
        raise ArgumentError("scan", f"the function returned no pair, but {returned!r:.60}",
                            "return (carry, y), with None for no y")
    following = _as_before("scan", _values(returned[0]), carried, "the carry")
    stacked = _values(returned[1])
    if count == 0:
        return carried.filled(carried.leaves), stacked.filled(
            [each._wrap(nodes.full(UOp.const(each.dtype, 0), (0, *each.shape)))
             for each in stacked.leaves])
    iteration = mark(UOp.const(dtypes.uint32, 0)) if trace.drawn else None
    ends = [*(each.uop for each in following), *(each.uop for each in stacked.leaves)]
    roots = trace.graph(ends, iteration)
    marks = [trace.places[each] for each in [t.uop for t in trace.arguments]]
    sequences = list(zip(marks[len(inner):], [leaf.uop for leaf in given], strict=True))
    if iteration is not None:
        generator.reserve(trace.drawn * (count - 1))
        number = nodes.cast(nodes.iota(count), dtypes.uint32)
        sequences.append((iteration, nodes.flip(number, (0,)) if reverse else number))
    constants = [(made, node) for node, made in trace.constants.items()]
    carries = list(zip(marks[:len(inner)], [leaf.uop for leaf in carried.leaves], strict=True))
    loop, sources = Steps(carries, sequences, constants).made(
        roots[:len(inner)], roots[len(inner):], count, reverse)
    wanted = range(len(loop.roots) if recorded(sources) else len(ends))
    values = outputs(loop, sources, wanted)
    made = _tensors(values, [*following, *stacked.leaves])
    return carried.filled(made[:len(inner)]), stacked.filled(made[len(inner):])


def while_loop(cond_fun: Callable[[Any], Any], body_fun: Callable[[Any], Any],
               init_val: Any) -> Any:
    """A loop that goes on as long as a condition holds: `while cond(value): value = body(value)`.

    Both functions are called once, now; how often the body runs is found out when the schedule
    does. There is no gradient through it backwards, but `jvp`.

    Raises:
        ShapeError, DTypeError, ArgumentError: the value changes its form, or the condition is not
            one bool.
    """
    carried = _values(init_val)
    trace = _Trace("while_loop")
    inner = [trace.argument(leaf, leaf.shape) for leaf in carried.leaves]
    asks = _one_bool("while_loop", trace.call(cond_fun, carried.filled(inner)))
    following = _as_before("while_loop", _values(trace.call(body_fun, carried.filled(inner))),
                           carried, "the value")
    if trace.drawn:
        raise ArgumentError("while_loop", "a body draws random numbers, and how many is not known",
                            "use scan, or hand on the state of a generator of your own")
    roots = trace.graph([asks.uop, *(each.uop for each in following)])
    pairs = [*((trace.places[t.uop], leaf.uop)
               for t, leaf in zip(trace.arguments, carried.leaves, strict=True)),
             *((made, node) for node, made in trace.constants.items())]
    loop, sources = renamed_loop("while", [roots[:1], roots[1:]], pairs, len(inner))
    values = outputs(loop, sources, range(len(inner)))
    return carried.filled(_tensors(values, carried.leaves))


def cond(pred: Any, true_fun: Callable[..., Any], false_fun: Callable[..., Any],
         *operands: Any) -> Any:
    """What one of two functions gives, by a bool: only that one runs.

    Both are called once, now, and have to give tensors of the same shapes and dtypes in the same
    containers. Which one runs is found out when the schedule does.

    Raises:
        ShapeError, DTypeError, ArgumentError: they do not, or `pred` is not one bool.
    """
    given = _values(list(operands))
    trace = _Trace("cond")
    inner = [trace.argument(leaf, leaf.shape) for leaf in given.leaves]
    first = _values(trace.call(true_fun, *given.filled(inner)))
    second = _as_before("cond", _values(trace.call(false_fun, *given.filled(inner))), first,
                        "what the second function gives")
    chosen = _one_bool("cond", pred)
    roots = trace.graph([*(each.uop for each in first.leaves), *(each.uop for each in second)])
    count = len(first.leaves)
    pairs = [(mark(chosen.uop), chosen.uop),
             *((trace.places[t.uop], leaf.uop)
               for t, leaf in zip(trace.arguments, given.leaves, strict=True)),
             *((made, node) for node, made in trace.constants.items())]
    loop, sources = renamed_loop("cond", [roots[:count], roots[count:]], pairs, 0)
    values = outputs(loop, sources, range(count))
    return first.filled(_tensors(values, first.leaves))


def _tensors(values: dict[int, UOp], like: Sequence[Tensor]) -> list[Tensor]:
    """What comes out, where it is computed: where something of what goes in lies."""
    found = []
    for number, each in enumerate(like):
        made = each._wrap(values[number])
        made.device = nodes.device_of(made.uop) or each.device
        found.append(made)
    return found


def _one_bool(operation: str, value: Any) -> Tensor:
    made = value if isinstance(value, Tensor) else Tensor(bool(value))
    if made.numel() != 1 or made.dtype.kind == "f":
        # r[impl loops.arguments.refused+4]
        raise ShapeError(operation, f"the condition is {made.dtype.name} {made.shape}",
                         "give one bool: compare, and use .any() or .all()")
    return made.reshape(()).cast(dtypes.bool)
