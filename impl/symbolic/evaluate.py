"""The value of an index, and how a person writes it. Chapter: spec/symbolic.md."""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from impl.dtypes import Scalar
from impl.errors import GraphError
from impl.ir import COMPARISONS, Ops, UOp, toposort

_CONST, _ADD, _RANGE, _DEFINE_VAR, _AND = Ops.CONST, Ops.ADD, Ops.RANGE, Ops.DEFINE_VAR, Ops.AND


_MEANING: dict[Ops, Callable[..., int]] = {
    Ops.NEG: lambda a: -a,
    Ops.CAST: lambda a: a,
    Ops.ADD: lambda a, b: a + b,
    Ops.SUB: lambda a, b: a - b,
    Ops.MUL: lambda a, b: a * b,
    Ops.FLOORDIV: lambda a, b: a // b if b else 0,
    Ops.FLOORMOD: lambda a, b: a % b if b else 0,
    Ops.MAXIMUM: max,
    Ops.MINIMUM: min,
    Ops.AND: lambda a, b: a & b,
    Ops.OR: lambda a, b: a | b,
    Ops.XOR: lambda a, b: a ^ b,
    Ops.CMPLT: lambda a, b: a < b,
    Ops.CMPLE: lambda a, b: a <= b,
    Ops.CMPEQ: lambda a, b: a == b,
    Ops.CMPNE: lambda a, b: a != b,
    Ops.WHERE: lambda condition, a, b: a if condition else b,
}


def evaluate(node: UOp, values: Mapping[UOp, int]) -> int:
    """The value of an index for given values of its atoms; bools count as 0 and 1.

    Raises:
        GraphError: an atom has no value, or the node is not index arithmetic.
    """
    return evaluate_in_order(toposort((node,), lambda u: u not in values), values)


def evaluate_in_order(order: Sequence[UOp], values: Mapping[UOp, int]) -> int:
    """The value of the last node of an order, sources first, for given values of its atoms.

    Raises:
        GraphError: an atom has no value, or a node is not index arithmetic.
    """
    done: dict[UOp, Scalar] = dict(values)
    for part in order:
        if part in done:
            continue
        if part.op is _CONST:
            done[part] = part.arg
        elif part.op in _MEANING:
            done[part] = _MEANING[part.op](*[done[s] for s in part.src])
        else:
            raise GraphError("evaluate", f"{part!r} has no value", "give one for it")
    return int(done[order[-1]])


_SIGNS = {Ops.ADD: " + ", Ops.MUL: "*", Ops.FLOORDIV: " // ", Ops.FLOORMOD: " mod ",
          Ops.CMPLT: " < ", Ops.CMPLE: " <= ", Ops.CMPEQ: " == ", Ops.CMPNE: " != ",
          Ops.AND: " and "}


def text(node: UOp) -> str:
    """An index as a person writes it; loops are r0, r1, ..., other nodes go by their operation."""
    done: dict[UOp, str] = {}
    for part in node.toposort(lambda u: u.op in _SIGNS):
        if part.op is _CONST:
            done[part] = str(part.arg)
        elif part.op is _RANGE:
            done[part] = f"r{part.arg[0]}"
        elif part.op is _DEFINE_VAR:
            done[part] = part.arg[0]
        elif part.op is Ops.BIND:
            done[part] = part.src[0].arg[0]
        elif part.op in _SIGNS:
            done[part] = _SIGNS[part.op].join(_operand(part, s, done[s]) for s in part.src)
        else:
            done[part] = part.op.name.lower()
    return done[node].replace(" + -", " - ")


def _operand(node: UOp, source: UOp, written: str) -> str:
    """A source in brackets, where it needs them."""
    if source.op not in _SIGNS or node.op in COMPARISONS:
        return written
    if node.op is _AND or (node.op is _ADD and source.op is not _AND):
        return written
    return f"({written})"
