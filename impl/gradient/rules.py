"""One rule for each operation: what a change of the result means for each source.

A rule takes the node, the gradient of its result, and the set of nodes that lead to a target. It
yields pairs of a source and a part of that source's gradient, for sources in the set only.
Chapter: spec/gradient.md.
"""
from __future__ import annotations

import functools
import math
from collections.abc import Callable, Collection, Iterator, Set

from impl.dtypes import HALF, dtypes
from impl.gradient import in_order, nodes
from impl.gradient.nodes import div, mul, neg, scale, shape_of, sub, unary, where
from impl.gradient.windows import add_windows
from impl.ir import MOVEMENT, Ops, Shape, UOp
from impl.places import copied_to
from impl.rewrite import PatternMatcher, Rule, UPat
from impl.symbolic import is_number

Parts = Iterator[tuple[UOp, UOp]]
Derivative = Callable[[UOp, UOp, Set[UOp]], Parts]


def zero(node: UOp) -> UOp:
    """0 in a node's dtype, of shape `()`."""
    return UOp.const(node.dtype, 0)


def fit(part: UOp, source: UOp) -> UOp:
    """Bring a part to its source's shape: a number that was spread collects a sum."""
    if part.shape == source.shape:
        return part
    if source.shape == ():  # r[impl gradient.broadcast.sum]
        return nodes.total(part)
    return nodes.full(part, shape_of(source))


#: exp(-x * x) is 0 from here on, also in float64; and the square is finite, also in float16.
_FAR = 30.0


def _bell(x: UOp) -> UOp:
    """exp(-x * x), whose slope is 0 where x is infinite: 0 * infinity would be NaN."""
    for op, limit in ((Ops.MINIMUM, _FAR), (Ops.MAXIMUM, -_FAR)):
        x = nodes.binary(op, x, UOp.const(x.dtype, limit))
    return unary(Ops.EXP, neg(mul(x, x)))


#: source and result -> what to multiply the gradient with.
SLOPES: dict[Ops, Callable[[UOp, UOp], UOp]] = {
    Ops.EXP: lambda x, y: y,
    Ops.EXP2: lambda x, y: scale(y, math.log(2)),
    Ops.LOG: lambda x, y: unary(Ops.RECIPROCAL, x),
    Ops.LOG2: lambda x, y: unary(Ops.RECIPROCAL, scale(x, math.log(2))),
    Ops.SQRT: lambda x, y: div(UOp.const(x.dtype, 0.5), y),
    Ops.RECIPROCAL: lambda x, y: neg(mul(y, y)),
    Ops.SIN: lambda x, y: unary(Ops.COS, x),
    Ops.COS: lambda x, y: neg(unary(Ops.SIN, x)),
    Ops.TANH: lambda x, y: sub(UOp.const(x.dtype, 1), mul(y, y)),
    Ops.ERF: lambda x, y: scale(_bell(x), 2 / math.sqrt(math.pi)),
}


def _unary(node: UOp, gradient: UOp, leads: Set[UOp]) -> Parts:
    source = node.src[0]
    yield source, mul(gradient, SLOPES[node.op](source, node))


def _neg(node: UOp, gradient: UOp, leads: Set[UOp]) -> Parts:
    yield node.src[0], neg(gradient)


def _same(node: UOp, gradient: UOp, leads: Set[UOp]) -> Parts:
    yield node.src[0], gradient


def _cast(node: UOp, gradient: UOp, leads: Set[UOp]) -> Parts:
    yield node.src[0], nodes.cast(gradient, node.src[0].dtype)


def _add(node: UOp, gradient: UOp, leads: Set[UOp]) -> Parts:
    for source in node.src:
        if source in leads:
            yield source, fit(gradient, source)


def _sub(node: UOp, gradient: UOp, leads: Set[UOp]) -> Parts:
    a, b = node.src
    if a in leads:
        yield a, fit(gradient, a)
    if b in leads:
        yield b, neg(fit(gradient, b))


def _mul(node: UOp, gradient: UOp, leads: Set[UOp]) -> Parts:
    a, b = node.src
    if a in leads:
        yield a, fit(mul(gradient, b), a)
    if b in leads:
        yield b, fit(mul(gradient, a), b)


def _div(node: UOp, gradient: UOp, leads: Set[UOp]) -> Parts:
    a, b = node.src
    share = div(gradient, b)
    if a in leads:
        yield a, fit(share, a)
    if b in leads:
        yield b, fit(neg(mul(share, node)), b)


def _pow(node: UOp, gradient: UOp, leads: Set[UOp]) -> Parts:
    base, exponent = node.src
    if base in leads:
        yield base, fit(mul(gradient, slope_of_base(node)), base)
    if exponent in leads:
        yield exponent, fit(mul(gradient, slope_of_exponent(node)), exponent)


def slope_of_base(node: UOp) -> UOp:
    """How a power changes with its base."""
    base, exponent = node.src
    lower = UOp(Ops.POW, node.dtype, (base, sub(exponent, UOp.const(node.dtype, 1))))
    # x to the power 0 is 1 everywhere, also where x to the power -1 is infinite.
    return where(UOp(Ops.CMPEQ, dtypes.bool, (exponent, zero(node))), zero(node),
                 mul(exponent, lower))


def slope_of_exponent(node: UOp) -> UOp:
    """How a power changes with its exponent."""
    base = node.src[0]
    # Where the base is 0 the power is 0 for every positive exponent: its slope is 0.
    logarithm = where(UOp(Ops.CMPEQ, dtypes.bool, (base, zero(node))), zero(node),
                      unary(Ops.LOG, base))
    return mul(node, logarithm)


def _larger(node: UOp, gradient: UOp, leads: Set[UOp]) -> Parts:
    """MAXIMUM and MINIMUM: the winner takes all, and equals take half each."""
    a, b = node.src
    mine, theirs = shares_of_larger(node, gradient)
    if a in leads:
        yield a, fit(mine, a)
    if b in leads:
        yield b, fit(theirs, b)


def shares_of_larger(node: UOp, gradient: UOp) -> tuple[UOp, UOp]:
    """What each operand of a MAXIMUM or MINIMUM has of the gradient.

    Next to a number the second operand wins: the slope of `relu` at 0 is 0, that of `clip` is 1.
    """
    a, b = node.src
    order = (b, a) if node.op is Ops.MAXIMUM else (a, b)
    first_wins = UOp(Ops.CMPLT, dtypes.bool, order)
    losing, winning = zero(node), gradient
    if nodes.constant(a) is None and nodes.constant(b) is None:
        equal = UOp(Ops.CMPEQ, dtypes.bool, (a, b))  # r[impl gradient.maximum.tie+2]
        half = scale(gradient, 0.5)
        losing, winning = where(equal, half, losing), where(equal, half, winning)
    return where(first_wins, gradient, losing), where(first_wins, zero(node), winning)


def _where(node: UOp, gradient: UOp, leads: Set[UOp]) -> Parts:
    condition, a, b = node.src
    if a in leads:
        yield a, fit(where(condition, gradient, zero(node)), a)
    if b in leads:
        yield b, fit(where(condition, zero(node), gradient), b)


def _reduce(node: UOp, gradient: UOp, leads: Set[UOp]) -> Parts:
    source, (op, axes) = node.src[0], node.arg
    shape = shape_of(source)
    spread = nodes.expand(gradient, shape)
    if op is Ops.ADD:
        yield source, spread
    elif op is Ops.MUL:
        yield source, mul(spread, _others_product(source, axes))
    else:
        # r[impl gradient.max.tie]
        chosen = UOp(Ops.CMPEQ, dtypes.bool, (source, nodes.expand(node, shape)))
        weight = nodes.cast(chosen, node.dtype)
        share = div(gradient, nodes.reduce(Ops.ADD, weight, axes))
        yield source, mul(weight, nodes.expand(share, shape))


def _others_product(x: UOp, axes: tuple[int, ...]) -> UOp:
    """For each element the product of all others along the axes, right beside zeros too."""
    shape = shape_of(x)
    is_zero = UOp(Ops.CMPEQ, dtypes.bool, (x, zero(x)))
    without = where(is_zero, UOp.const(x.dtype, 1), x)
    product = nodes.expand(nodes.reduce(Ops.MUL, without, axes), shape)
    zeros = nodes.expand(nodes.reduce(Ops.ADD, nodes.cast(is_zero, x.dtype), axes), shape)
    # The other zeros: all of them, less one where the element itself is one.
    others = sub(zeros, nodes.cast(is_zero, x.dtype))
    none = UOp(Ops.CMPEQ, dtypes.bool, (others, zero(x)))
    return where(none, div(product, without), zero(x))  # r[impl gradient.product.zero]


def adjoint(op: Ops, arg: tuple, source: Shape, gradient: UOp) -> UOp:
    """The gradient of a movement operation's source, given its shape.

    What moved there moves back; what was repeated is summed; what was cut off gets zero.
    """
    if op is Ops.RESHAPE:
        return nodes.reshape(gradient, source)
    if op is Ops.EXPAND:
        grown = [axis for axis, size in enumerate(source) if size != arg[axis]
                 or is_number(size, 1) and not is_number(arg[axis], 1)]
        return _sum_over(gradient, grown)
    if op is Ops.PERMUTE:
        return nodes.permute(gradient, tuple(arg.index(axis) for axis in range(len(arg))))
    if op is Ops.PAD:
        return nodes.shrink(gradient, tuple(
            (before, before + size) for size, (before, _) in zip(source, arg, strict=True)))
    if op is Ops.SHRINK:
        return nodes.pad(gradient, tuple(
            (start, size - stop) for size, (start, stop) in zip(source, arg, strict=True)))
    if op is Ops.FLIP:
        return nodes.flip(gradient, arg)
    axis, _, _, step, dilation = arg
    return add_windows(gradient, axis, source[axis], step, dilation)


def _sum_over(gradient: UOp, axes: list[int]) -> UOp:
    """The sum over some axes. A gradient that several users of a weight gave is a sum of products:
    each of them is added up on its own, as a product of matrices. Not on several devices: what each
    has of a sum is sent, and of several sums several times as much.
    """
    terms, found = [gradient], list[UOp]()
    while terms and gradient.op is Ops.ADD and gradient.dtype not in HALF:
        term = terms.pop()
        if term.op is Ops.ADD and term.realized is None:
            terms += term.src[::-1]
        elif term.op is Ops.MUL and all(factor.op is Ops.EXPAND for factor in term.src):
            found.append(term)
        else:
            break
    place = None if terms or len(found) < 2 else nodes.device_of(gradient)
    if place is None or len(place.members()) > 1:
        return nodes.reduce(Ops.ADD, gradient, axes)
    # r[impl gradient.nodes.few+2]
    sums = [nodes.reduce(Ops.ADD, term, axes) for term in found]
    return functools.reduce(nodes.add, sums)


def _movement(node: UOp, gradient: UOp, leads: Set[UOp]) -> Parts:
    source = node.src[0]
    yield source, adjoint(node.op, node.arg, shape_of(source), gradient)


def _fold(node: UOp, gradient: UOp, leads: Set[UOp]) -> Parts:
    source, (axis, _, step, dilation) = node.src[0], node.arg
    count, size = shape_of(source)[axis:axis + 2]
    yield source, nodes.unfold(gradient, axis, count, size, step, dilation)


def _after(node: UOp, gradient: UOp, leads: Set[UOp]) -> Parts:
    """A write: the region's gradient belongs to the value, the rest to the old version."""
    base, (view, value) = node.src[0], node.src[1].src
    path = movement_path(view, base)
    if value in leads:
        part = gradient
        for step in path:
            part = nodes.move(part, step.op, step.arg)
        yield value, nodes.cast(part, value.dtype)
    if base in leads and path:
        yield base, where(region(view, path), zero(node), gradient)


def movement_path(view: UOp, base: UOp) -> list[UOp]:
    """The movement operations from `base` up to `view`."""
    path = []
    while view is not base:
        assert view.op in MOVEMENT, f"{view} is no view of {base}"
        path.append(view)
        view = view.src[0]
    return path[::-1]


def region(view: UOp, path: list[UOp]) -> UOp:
    """Which elements of the base the view shows, as a bool node of the base's shape."""
    mark = nodes.full(UOp.const(dtypes.int32, 1), shape_of(view))
    for step in reversed(path):
        mark = adjoint(step.op, step.arg, shape_of(step.src[0]), mark)
    return UOp(Ops.CMPNE, dtypes.bool, (mark, UOp.const(dtypes.int32, 0)))


def _copy(node: UOp, gradient: UOp, leads: Set[UOp]) -> Parts:
    source = node.src[0]
    home = nodes.device_of(source)
    yield source, gradient if home is None else copied_to(gradient, home)


def _shard(node: UOp, gradient: UOp, leads: Set[UOp]) -> Parts:
    """A value that was laid on a mesh: back to where it came from."""
    source = node.src[0]
    home = nodes.device_of(source)
    yield source, gradient if home is None or home == node.arg.mesh else copied_to(gradient, home)


def _custom(node: UOp, gradient: UOp, leads: Set[UOp]) -> Parts:
    """What was said of the gradient, and not what the operations say."""
    for source, part in zip(node.tag.inputs, node.tag.pull(gradient), strict=True):
        if part is not None and source in leads:
            yield source, part


def _loop(node: UOp, gradient: UOp, leads: Set[UOp]) -> Parts:
    """The body's gradient in a loop of its own."""
    return loop_rules[0](node, gradient, leads)


#: The rule of LOOP: it differentiates bodies, by all the rules here, and stands in `loops`.
loop_rules: list[Derivative] = []


def _realized(node: UOp, gradient: UOp, leads: Set[UOp]) -> Parts:
    """A leaf: the gradient belongs to the expression that was computed into it."""
    yield nodes.expression_of(node), gradient


def _rule(name: str, reason: str, ops: Ops | Collection[Ops], function: Derivative) -> Rule:
    """A rule whose context is the gradient of the result, and the nodes that lead to a target."""
    def parts(node: UOp, ctx: tuple[UOp, Set[UOp]]) -> Parts:
        return function(node, *ctx)
    return Rule(UPat(ops, name="node"), parts, name, reason)


# r[impl gradient.value.derivative, rewrite.rule.named]
GRADIENTS = PatternMatcher([
    _rule("gradient of a leaf", "memory holds what an expression gave", Ops.BUFFER, _realized),
    _rule("gradient of a function", "the change of a result is its slope times that of its source",
          list(SLOPES), _unary),
    _rule("gradient of one's own", "somebody said what it is", Ops.DETACH, _custom),
    _rule("gradient of -x", "what grows makes its negative fall", Ops.NEG, _neg),
    _rule("gradient of a cast", "a conversion changes as much as its source", Ops.CAST, _cast),
    _rule("gradient of contiguous", "the value is the same", Ops.CONTIGUOUS, _same),
    _rule("gradient of a copy", "the value is the same elsewhere", Ops.COPY, _copy),
    _rule("gradient of shards", "each part has its own, or they are added up", Ops.SHARD, _shard),
    _rule("gradient of x + y", "both count once", Ops.ADD, _add),
    _rule("gradient of x - y", "the second counts against the first", Ops.SUB, _sub),
    _rule("gradient of x * y", "each counts as often as the other is great", Ops.MUL, _mul),
    _rule("gradient of x / y", "the quotient falls as the divisor grows", Ops.DIV, _div),
    _rule("gradient of x ** y", "one power less, or the logarithm of the base", Ops.POW, _pow),
    _rule("gradient of the larger", "the winner takes all, and equals half each",
          (Ops.MAXIMUM, Ops.MINIMUM), _larger),
    _rule("gradient of a choice", "only what was chosen counts", Ops.WHERE, _where),
    _rule("gradient of a reduction", "each element counts as its part in the whole", Ops.REDUCE,
          _reduce),
    _rule("gradient of a movement", "what moved there moves back",
          [Ops(op) for op in sorted(MOVEMENT)], _movement),
    _rule("gradient of a fold", "windows are looked at where they were added up", Ops.FOLD, _fold),
    _rule("gradient of a gather", "rows get the sum of what was read of them", Ops.GATHER,
          in_order.gather),
    _rule("gradient of a write", "the region's goes to the value, the rest to the old version",
          Ops.AFTER, _after),
    _rule("gradient of a loop", "the steps are undone from the last to the first", Ops.LOOP,
          _loop),
    _rule("gradient of a scan", "an element counts in its own result and in all behind it",
          Ops.SCAN, in_order.scan),
    _rule("gradient of a scatter", "what was replaced counts no more", Ops.SCATTER,
          in_order.scatter),
])
