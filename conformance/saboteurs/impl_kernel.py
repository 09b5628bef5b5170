"""Mistakes in optimisation steps, made inside `impl.kernel`."""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from conformance.saboteurs.impl_patches import ImplPatch
from impl.ir import Ops, UOp
from impl.kernel import STEPS, parameters

Function = Callable[..., Any]


class RestIsNotStored(ImplPatch):
    rule = "kernel.step.equal"
    description = "what is left of a loop that was cut is not stored"
    target = "impl.kernel.steps:Upcast.apply"

    def replacement(self, original: Function) -> Function:
        def apply(step: Any, known: Any) -> UOp:
            made: UOp = original(step, known)
            before, after = len(known.ast.src), len(made.src)
            return made if before == after else UOp(made.op, made.dtype, made.src[:-1], made.arg)
        return apply


class RestIsNotReduced(ImplPatch):
    rule = "kernel.step.equal"
    description = "what is left of a reduction is not combined with the whole blocks"
    target = "impl.kernel.steps:Reducer._reduction"

    def replacement(self, original: Function) -> Function:
        def reduction(reducer: Any, node: UOp) -> UOp:
            rest, reducer.rest = reducer.rest, None
            try:
                found: UOp = original(reducer, node)
                return found
            finally:
                reducer.rest = rest
        return reduction


class StepsAreNotRecorded(ImplPatch):
    rule = "kernel.step.recorded"
    description = "the list of steps that were applied is lost"
    target = "impl.kernel.steps:with_stores"

    def replacement(self, original: Function) -> Function:
        def sink(*given: Any, **named: Any) -> UOp:
            made: UOp = original(*given, **named)
            return UOp(made.op, made.dtype, made.src, replace(made.arg, steps=()))
        return sink


class AnyLoopMayBeCut(ImplPatch):
    rule = "kernel.step.refused"
    description = "loops of any kind are cut, whatever the step is for"
    target = "impl.kernel.steps:Step._loop"

    def replacement(self, original: Function) -> Function:
        def loop(step: Any, known: Any, kinds: Any, axis: int | None = None) -> UOp:
            found: UOp = known.ranges[step.axis if axis is None else axis]
            return found
        return loop


class NumbersAreNotCounted(ImplPatch):
    rule = "kernel.step.parsed"
    description = "a step takes the numbers that it needs and forgets the others"
    target = "impl.kernel.steps:Step.parse"

    def replacement(self, original: Function) -> Function:
        def parse(text: str) -> Any:
            name, _, numbers = text.rstrip(")").partition("(")
            known = parameters(name.strip().upper()) if name.strip().upper() in STEPS else ()
            kept = ",".join(numbers.split(",")[:len(known)])
            return original(f"{name}({kept})")
        return parse


class SizesDoNotCount(ImplPatch):
    rule = "kernel.beam.kept"
    description = "a list that was found for one size is used for all"
    target = "impl.kernel.search:kernel_name"

    def replacement(self, original: Function) -> Function:
        return lambda ast, circumstances="", named=True: " ".join(
            node.op.name for node in ast.toposort())


class StartIsForgotten(ImplPatch):
    rule = "kernel.beam.start"
    description = "the best of the last generation is taken, however the list of the rules does"
    target = "impl.kernel.search:_Search._last"

    def replacement(self, original: Function) -> Function:
        def last(search: Any, start: Any, beam: Any) -> Any:
            return original(search, beam[0], beam)
        return last


class AnyWindowIsShared(ImplPatch):
    rule = "kernel.window.shared"
    description = "a condition on the output alone is taken for one of the window"
    target = "impl.kernel.windows:_only"

    def replacement(self, original: Function) -> Function:
        return lambda value, grows, pair: True


class RowsAreNeverRead(ImplPatch):
    rule = "kernel.rows.whole"
    description = "a sum over rows of memory takes a few elements of each row"
    target = "impl.kernel.heuristic:plan_rows"

    def replacement(self, original: Function) -> Function:
        return lambda planner, node: False


class PrivateArraysHaveNoEnd(ImplPatch):
    rule = "kernel.pad.untouched"
    description = "a padded loop reads beyond the end of a private array"
    target = "impl.kernel.padding:_within_local"

    def replacement(self, original: Function) -> Function:
        return lambda place: place.src[0].op is Ops.LOCAL


class AllBytesAreSigned(ImplPatch):
    rule = "kernel.dot.bytes"
    description = "both operands of DOT have signed bytes"
    target = "impl.reference:_dot"

    def replacement(self, original: Function) -> Function:
        def dot(one: Any, two: Any) -> Any:
            parts = [(x.astype("i4")[..., None] >> [0, 8, 16, 24]).astype("i1").astype("i4")
                     for x in (one, two)]
            return (parts[0] * parts[1]).sum(-1).astype("i4")
        return dot


class StepsOfGroupsAreIgnored(ImplPatch):
    rule = "kernel.step.groups"
    description = "a device without work-groups does not refuse their steps"
    target = "impl.kernel:_refuse_groups"

    def replacement(self, original: Function) -> Function:
        return lambda asked: None


class ReductionsDependOnTheirLoops(ImplPatch):
    rule = "kernel.value.free"
    description = "the value of a reduction depends on the loops that it reduces"
    target = "impl.kernel.analysis:Analysis._free"

    def replacement(self, original: Function) -> Function:
        def free(known: Any, node: UOp) -> int:
            mask: int = original(known, node)
            return mask | known.mask(node.src[1:]) if node.op is Ops.REDUCE else mask
        return free


class KernelsAreTakenAsTheyCome(ImplPatch):
    rule = "kernel.node.known"
    description = "nodes that are no operation of kernels are let through"
    target = "impl.kernel.analysis:verify"

    def replacement(self, original: Function) -> Function:
        from impl.kernel.analysis import Analysis
        return lambda ast: Analysis(ast)


class ValuesLeaveTheirLoops(KernelsAreTakenAsTheyCome):
    rule = "kernel.loop.scope"
    description = "a value is used outside of a loop that it depends on"
