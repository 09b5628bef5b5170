"""What a node must look like, to be found in a graph. Chapter: spec/rewrite.md."""
from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from typing import Any

from impl.dtypes import DType
from impl.errors import GraphError
from impl.ir import Ops, UOp

COMMUTATIVE = frozenset((Ops.ADD, Ops.MUL, Ops.MAXIMUM, Ops.MINIMUM, Ops.AND, Ops.OR, Ops.XOR,
                         Ops.CMPEQ, Ops.CMPNE))


class UPat:
    """What a node must look like, to be found in a graph.

    Args:
        op: the operation, or several of which it must be one; None for any.
        dtype: the same for the element type.
        src: a tuple of patterns, one for each source in order; a list of patterns that match the
            sources in any order; one pattern that all sources match, however many there are; or
            None for any sources.
        arg: what `arg` must equal; None for any.
        name: the parameter of the rule's function that receives the node. One name used twice
            matches only if both are the same node.
        allow_any_len: further sources may follow those of the tuple `src`.
        custom_early_reject: operations that must stand among the sources, besides those that
            `src` names: a node without them is not looked at.
        where: a test that the node must pass.
    """

    __slots__ = ("ops", "dtypes", "src", "arg", "name", "allow_any_len", "custom_early_reject",
                 "where", "choices")

    def __init__(self, op: Ops | Collection[Ops] | None = None,
                 dtype: DType | Collection[DType] | None = None,
                 src: Sequence[UPat] | UPat | None = None, arg: Any = None, name: str | None = None,
                 allow_any_len: bool = False, custom_early_reject: Collection[Ops] = (),
                 where: Callable[[UOp], bool] | None = None) -> None:
        self.ops = None if op is None else frozenset((op,) if isinstance(op, Ops) else op)
        self.dtypes = (None if dtype is None
                       else frozenset((dtype,) if isinstance(dtype, DType) else dtype))
        self.src, self.arg, self.name = src, arg, name
        self.allow_any_len, self.where = allow_any_len, where
        self.custom_early_reject = frozenset(custom_early_reject)
        self.choices: tuple[UPat, ...] = ()

    @staticmethod
    def var(name: str | None = None, dtype: DType | Collection[DType] | None = None) -> UPat:
        """Any node, captured."""
        return UPat(dtype=dtype, name=name)

    @staticmethod
    def cvar(name: str | None = None, dtype: DType | Collection[DType] | None = None) -> UPat:
        """Any number, captured."""
        return UPat(Ops.CONST, dtype, name=name)

    @staticmethod
    def const(value: Any = None, name: str | None = None) -> UPat:
        """A number; with `value`, this number. 0.0 and -0.0 are two, NaN is one."""
        return UPat(Ops.CONST, name=name, where=None if value is None else _is_number(value))

    @staticmethod
    def either(*patterns: UPat) -> UPat:
        """A node that one of the patterns matches; the first that leads to a match counts."""
        pattern = UPat()
        pattern.choices = patterns
        if all(p.ops is not None for p in patterns):
            pattern.ops = frozenset().union(*(p.ops for p in patterns if p.ops is not None))
        return pattern

    @staticmethod
    def alu(op: Ops, *sources: UPat, name: str | None = None) -> UPat:
        """An operation on these sources: in any order if the operation is commutative."""
        return UPat(op, src=list(sources) if op in COMMUTATIVE else sources, name=name)

    def captures(self) -> list[str]:
        """The names of all captures, in the order in which they are met.

        Raises:
            GraphError: a pattern for all sources captures.
        """
        parts = self.choices or ((self.src,) if isinstance(self.src, UPat) else self.src or ())
        inner = [name for part in parts for name in part.captures()]
        if inner and isinstance(self.src, UPat):
            raise GraphError("UPat", "a pattern for all sources cannot capture",
                             "capture the node itself and read its src")
        return list(dict.fromkeys(([self.name] if self.name else []) + inner))

    def needs(self) -> frozenset[Ops]:
        """Operations that must stand among the sources of a node for the pattern to match it."""
        if self.src is None or isinstance(self.src, UPat):
            return self.custom_early_reject
        exact = [p.ops for p in self.src if p.ops is not None and len(p.ops) == 1]
        return self.custom_early_reject.union(*exact)

    def arities(self) -> set[int | None]:
        """How many sources a node can have to match; None stands for any number."""
        if self.choices:
            return {arity for choice in self.choices for arity in choice.arities()}
        fixed = isinstance(self.src, (tuple, list)) and not self.allow_any_len
        return {len(self.src) if fixed and isinstance(self.src, (tuple, list)) else None}


def _is_number(value: Any) -> Callable[[UOp], bool]:
    def matches(node: UOp) -> bool:
        number = node.arg
        if node.dtype.kind == "f":
            same_sign = math.copysign(1.0, number) == math.copysign(1.0, value)
            return bool(number == value and same_sign or (number != number and value != value))
        return bool(number == value)
    matches.__name__ = "is_" + "".join(c if c.isalnum() else "_" for c in str(value))
    return matches
