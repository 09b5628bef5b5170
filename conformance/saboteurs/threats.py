"""Mistakes that schedulers really made, made again inside `impl`.  See docs/threats.md."""
from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib import import_module
from typing import Any

import numpy as np

from conformance.saboteurs.impl_patches import ImplPatch

Function = Callable[..., Any]


class _Reference(ImplPatch):
    """A function of the reference device, in one of its tables, is another one."""

    table = "_ARITHMETIC"
    operation = ""
    function: Function = staticmethod(np.add)

    @contextmanager
    def installed(self) -> Iterator[None]:
        table = getattr(import_module("impl.reference"), self.table)
        operation = getattr(import_module("impl.ir").Ops, self.operation)
        original = table[operation]
        cache = import_module("impl.schedule").schedule_cache
        cache.clear()
        table[operation] = self.function
        try:
            yield
        finally:
            table[operation] = original
            cache.clear()


class NobodyWaits(ImplPatch):
    rule = "effects.war.rescue"
    description = "readers that wait are not looked for before a write"
    target = "impl.effects.collecting:_waiting"

    def replacement(self, original: Function) -> Function:
        return lambda written, effects: []


class NothingIsForgotten(ImplPatch):
    rule = "effects.version.overwritten"
    description = "an expression is still found in memory that has been overwritten since"
    target = "impl.effects.versions:advance"

    def replacement(self, original: Function) -> Function:
        def advance(buffer: Any, versions: int) -> None:
            nodes = [reference() for reference in buffer.nodes] if versions else []
            original(buffer, versions)
            for node in nodes:
                if node is not None:
                    import_module("impl.ir").note_realized(node, buffer.leaf(node.shape))
        return advance


class RepeatedElementsAreWritten(ImplPatch):
    rule = "effects.view-write.expanded"
    description = "a write to an expanded view is taken to be a write to all of its elements"
    target = "impl.effects.writes:write"

    def replacement(self, original: Function) -> Function:
        def write(base: Any, view: Any, value: Any) -> Any:
            ir = import_module("impl.ir")
            return ir.UOp(ir.Ops.AFTER, base.dtype,
                          (base, ir.UOp(ir.Ops.STORE, base.dtype, (view, value))))
        return write


class BitsAreWrittenNowhere(ImplPatch):
    rule = "tensor.assign.view+3"
    description = "what is written to the bits of a tensor goes to a temporary"
    target = "impl.tensor.views:written_through"

    def replacement(self, original: Function) -> Function:
        return lambda memory, path, value: (
            original(memory, path, value) if value.dtype is memory.dtype else memory)


class ArraysAreShared(ImplPatch):
    rule = "tensor.create.copy"
    description = "a tensor looks at the array that it was made from"
    target = "impl.tensor.base:new_buffer_node"

    @contextmanager
    def installed(self) -> Iterator[None]:
        base: Any = import_module("impl.tensor.base")
        numpy = base.np

        class Sharing:
            """NumPy, but arrays are not copied."""

            def __getattr__(self, name: str) -> Any:
                return getattr(numpy, name)

            def array(self, data: Any, **options: Any) -> Any:
                return numpy.asarray(data)

        base.np = Sharing()
        try:
            yield
        finally:
            base.np = numpy


class ChangesAreForgotten(ImplPatch):
    rule = "replay.effects.all"
    description = "a replay computes what is returned, and nothing else"
    target = "impl.replay.recording:Recording.run"

    def replacement(self, original: Function) -> Function:
        def run(recording: Any, arguments: Any, *given: Any) -> Any:
            recording.states.changes = []
            return original(recording, arguments, *given)
        return run


class OutputsAreShared(ImplPatch):
    rule = "replay.outputs.distinct"
    description = "every replay puts its outputs into the memory of the capture"
    target = "impl.replay.recording:Recording.run"

    def replacement(self, original: Function) -> Function:
        def run(recording: Any, arguments: Any, *given: Any) -> Any:
            recording.prepared.made = ()
            recording.fresh = type(recording.fresh)()
            return original(recording, arguments, *given)
        return run


class AnyArgumentsWillDo(ImplPatch):
    rule = "replay.arguments.form"
    description = "the numbers among the arguments are those of the capture"
    target = "impl.replay.arguments:_described"

    def replacement(self, original: Function) -> Function:
        return lambda value: None


class InnerCapturesHide(ImplPatch):
    rule = "replay.nested.inlined+2"
    description = "what a captured function runs inside another one is not recorded there"
    target = "impl.replay.jit:TinyJit.__call__"

    def replacement(self, original: Function) -> Function:
        def call(captured: Any, *given: Any, **named: Any) -> Any:
            capturing = import_module("impl.realize").session.capturing
            outer, inlined = list(capturing.observers), capturing.inlined
            capturing.observers.clear()
            capturing.inlined = 0
            try:
                return original(captured, *given, **named)
            finally:
                capturing.observers.extend(outer)
                capturing.inlined = inlined
        return call


class ReplaysProtectNobody(ImplPatch):
    rule = "replay.readers.kept"
    description = "a replay overwrites what somebody still waits to read"
    target = "impl.replay.states:States.protect"

    def replacement(self, original: Function) -> Function:
        return lambda states, now, arguments: None


class PaddingMovesDown(ImplPatch):
    rule = "tensor.pad.zeros"
    description = "the operands of an operation are padded, in place of its result"
    target = "impl.gradient.nodes:pad"

    def replacement(self, original: Function) -> Function:
        def pad(x: Any, widths: Any) -> Any:
            ir = import_module("impl.ir")
            if x.op not in (ir.Ops.ADD, ir.Ops.EXP, ir.Ops.EXP2, ir.Ops.MUL):
                return original(x, widths)
            return ir.UOp(x.op, x.dtype, tuple(original(source, widths) if source.shape == x.shape
                                               else source for source in x.src))
        return pad


class MaximumLosesNaN(_Reference):
    rule = "tensor.nan.maximum"
    description = "the larger of a number and NaN is the number, as in C"
    operation = "MAXIMUM"
    function = staticmethod(np.fmax)


class HalvesAccumulateInHalves(ImplPatch):
    rule = "dtypes.half.accumulate"
    description = "sums of halves are halves all the way"
    target = "impl.dtypes:sum_accumulator"

    def replacement(self, original: Function) -> Function:
        return lambda dtype: dtype


class SmallIntegersGrow(ImplPatch):
    rule = "dtypes.wraparound.integer"
    description = "small integers become ints before anything is computed, as in C"
    target = "impl.tensor.broadcasting:weak_dtype"

    def replacement(self, original: Function) -> Function:
        return lambda dtype, value: import_module("impl.dtypes").dtypes.int32


class NothingIsOne(ImplPatch):
    rule = "tensor.reduce.empty"
    description = "every reduction of nothing is 1"
    target = "impl.gradient.nodes:reduce"

    def replacement(self, original: Function) -> Function:
        def reduce(op: Any, x: Any, axes: Any) -> Any:
            found, nodes = original(op, x, axes), import_module("impl.gradient.nodes")
            if 0 not in nodes.shape_of(x):
                return found
            one = import_module("impl.ir").UOp.const(x.dtype, 1)
            return nodes.full(one, nodes.shape_of(found))
        return reduce


class RemaindersVanish(ImplPatch):
    rule = "symbolic.floor.exact"
    description = "a remainder is taken to be the number itself"
    target = "impl.symbolic.arithmetic:_remainder"

    def replacement(self, original: Function) -> Function:
        return lambda left, divisor: left


class PlacesHave32Bits(ImplPatch):
    rule = "ranges.access.inside"
    description = "places are counted in 32 bits"
    target = "impl.symbolic.arithmetic:_add_constant"

    def replacement(self, original: Function) -> Function:
        return lambda node, value: original(node, (value + (1 << 31)) % (1 << 32) - (1 << 31))


class GraphsAreWalkedByRecursion(ImplPatch):
    rule = "symbolic.depth.iterative"
    description = "a graph is walked by a function that calls itself"
    target = "impl.caching.rows:Rows.add"

    def replacement(self, original: Function) -> Function:
        def add(rows: Any, roots: Any) -> list[Any]:
            for root in roots:
                for source in root.src:  # described before what is made of them
                    if source not in rows.place:
                        add(rows, [source])
            return list(original(rows, roots))
        return add


class AnyValueIsBound(ImplPatch):
    rule = "symbolic.variable.refused"
    description = "a variable takes values that it was not declared for"
    target = "impl.symbolic.variable:Variable.bind"

    def replacement(self, original: Function) -> Function:
        def bind(variable: Any, value: int) -> Any:
            return original(variable, min(max(value, variable.minimum), variable.maximum))
        return bind


class InterruptedRunsLookWhole(ImplPatch):
    rule = "realize.failure.left+2"
    description = "memory that a run has half overwritten is read as if nothing had been"
    target = "impl.effects.versions:spoil"

    def replacement(self, original: Function) -> Function:
        return lambda buffers: None


class StagesRunBackwards(ImplPatch):
    rule = "fusion.value.equal"
    description = "a stage of a kernel runs before the one that it reads from"
    target = "impl.fusion.assemble:_KernelBuilder.run"

    def replacement(self, original: Function) -> Function:
        def run(builder: Any) -> Any:
            ir = import_module("impl.ir")
            kernel = original(builder)
            ast = kernel.ast
            return replace(kernel, ast=ir.UOp(ast.op, ast.dtype, ast.src[::-1], ast.arg))
        return run
