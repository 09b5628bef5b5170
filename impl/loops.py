"""Control flow as a value: what is repeated or chosen when a schedule runs.

Chapter: spec/loops.md.

A LOOP is a node like any other. Its sources are the values that go in, its value is one row of
numbers with all that comes out, and its argument, a `LoopInfo`, has the body: a graph of its own,
on PARAM nodes that stand for what goes in. So a body is written once and scheduled once, however
often it runs.
"""
from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from impl.dtypes import DType, dtypes
from impl.ir import Ops, Shape, UOp


@dataclass(frozen=True)
class LoopInfo:
    """A body and how it is run.

    `kind` says what happens. A body is a SINK, and PARAM s in it is source s of the node:

        scan    the first sources are `carries`, the next ones `sequences`: iteration i gets row i
                of each. The first roots of the body are the carries of the next iteration, the
                others are stacked. It runs `count` times, with `reverse` from the last row to the
                first.
        while   the first sources are `carries`. As long as the first body gives true for them the
                second one gives the next ones.
        cond    source 0 is a bool: the first body where it is true, else the second.
        host    a function of NumPy gets the sources as arrays: `call` has a name for errors, the
                function, and what it gets besides. Both bodies are PARAMs alone: the first one's
                have the forms of the sources, the second one's those of what it returns.

    `outputs` are the roots, all of one dtype, that the value has, one behind the other.
    """

    kind: str
    bodies: tuple[UOp, ...]
    outputs: tuple[int, ...]
    carries: int = 0
    sequences: int = 0
    count: int = 0
    reverse: bool = False
    call: tuple[Any, ...] = ()

    @property
    def roots(self) -> tuple[UOp, ...]:
        """What the body gives; of several bodies the last one's."""
        return self.bodies[-1].src

    def root_shape(self, root: int) -> Shape:
        """The shape of what comes out of a root, in the end."""
        own = self.roots[root].shape or ()
        return (self.count, *own) if self.kind == "scan" and root >= self.carries else own

    @cached_property
    def offsets(self) -> list[int]:
        """Where each output begins, in elements; and where the last one ends."""
        sizes = (math.prod(self.root_shape(root)) for root in self.outputs)
        return list(itertools.accumulate(sizes, initial=0))

    def shape(self, given: Shape) -> Shape:
        """The shape of the value, whatever that of a source is."""
        return (self.offsets[-1],)

    def __str__(self) -> str:
        return {"scan": f"scan of {self.count} iterations", "while": "while loop", "cond": "cond",
                "host": f"{self.call[0]} on the host" if self.call else ""}[self.kind]

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "offsets"}


def param(slot: int, like: UOp | None = None, dtype: DType = dtypes.float32,
          shape: Shape = ()) -> UOp:
    """What stands for a source in a body."""
    if like is not None:
        dtype, shape = like.dtype, like.shape or ()
    return UOp(Ops.PARAM, dtype, (), (slot, tuple(shape)))


def body(roots: Sequence[UOp]) -> UOp:
    """A body that gives these."""
    return UOp(Ops.SINK, dtypes.index, tuple(roots))


def output_of(node: UOp, position: int) -> UOp:
    """One output of a LOOP, in its shape."""
    loop: LoopInfo = node.arg
    shape = loop.root_shape(loop.outputs[position])
    start = loop.offsets[position]
    row = UOp(Ops.SHRINK, node.dtype, (node,), ((start, start + math.prod(shape)),))
    return UOp(Ops.RESHAPE, node.dtype, (row,), shape)


def on_host(call: tuple[Any, ...], sources: Sequence[UOp],
            forms: Sequence[tuple[DType, Shape]]) -> list[UOp]:
    """What a function of NumPy gives for some values, when the schedule runs.

    Args:
        sources: values that are stored; floats come to the function in float64.
        call: a name for errors; a function of arrays and of what follows here, which is found by
            its name in a module, changes nothing and returns arrays in a list.
        forms: the dtypes and shapes of what it returns.
    """
    given = body([param(number, source) for number, source in enumerate(sources)])
    gives = body([param(number, None, *form) for number, form in enumerate(forms)])
    made = outputs(LoopInfo("host", (given, gives), (), call=call), sources, range(len(forms)))
    return [made[number] for number in range(len(forms))]


def outputs(loop: LoopInfo, sources: Sequence[UOp], wanted: Sequence[int]) -> dict[int, UOp]:
    """What comes out of some roots of a loop: one node for those of each dtype."""
    found: dict[int, UOp] = {}
    for dtype in dict.fromkeys(loop.roots[root].dtype for root in wanted):
        mine = tuple(root for root in wanted if loop.roots[root].dtype is dtype)
        node = UOp(Ops.LOOP, dtype, tuple(sources), replace(loop, outputs=mine))
        found.update({root: output_of(node, position) for position, root in enumerate(mine)})
    return found
