"""Mistakes in what the lanes of a warp do together, made inside `impl`."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from conformance.saboteurs.edits import Edit
from conformance.saboteurs.impl_patches import ImplPatch

Function = Callable[..., Any]


class AnyWarpExchanges(ImplPatch):
    rule = "kernel.warp.whole+2"
    description = "lanes exchange values in a loop that some of them have left"
    target = "impl.kernel.analysis:_verify_exchange"

    def replacement(self, original: Function) -> Function:
        return lambda known, node: None


class ExchangesMoveIntoLoops(Edit):
    rule = "kernel.warp.whole+2"
    description = "OWN and INNER move an exchange among lanes into a loop"
    file = "impl/steps/declaration.py"
    old = "Trace.EXCHANGE: lambda known: any(exchanged(node) for node in known.order)"
    new = "Trace.EXCHANGE: lambda known: any(exchanged(node) for node in ())"


class HalfOfAWarpIsForgotten(ImplPatch):
    rule = "render.exchange.order"
    description = "the lanes of a warp exchange with half of it"
    target = "impl.render.printer:_Printer._exchange"

    def replacement(self, original: Function) -> Function:
        return lambda printer, node, width: original(printer, node, width // 2)


class EverythingIsPrivate(ImplPatch):
    rule = "lowering.wait.private"
    description = "a lane keeps elements in registers that another one reads"
    target = "impl.kernel.private:_in_pieces"

    def replacement(self, original: Function) -> Function:
        return lambda rest, piece, lanes: rest


class LoopsStoreAlike(ImplPatch):
    rule = "lowering.wait.private"
    description = "each lane has what others have stored"
    target = "impl.kernel.private:_stored_alike"

    def replacement(self, original: Function) -> Function:
        from impl.ir import Ops
        return lambda ast: {n: None for n in ast.toposort() if n.op is Ops.LOCAL}


class EverythingIsAMultiple(ImplPatch):
    rule = "lowering.wide.legal"
    description = "neighbours are accessed at once wherever they begin"
    target = "impl.lowering.wide:_begins_at_multiples"

    def replacement(self, original: Function) -> Function:
        return lambda low, index, lane, count: True


class ArgumentsAreAligned(ImplPatch):
    rule = "dialects.wide.aligned"
    description = "arguments are taken to begin at a multiple of 16 bytes"
    target = "impl.dialects.cuda:CUDA.aligned"

    def replacement(self, original: Function) -> Function:
        return lambda dialect, pointer: f"const bool w{pointer} = true;"


class IndicesAreShort(ImplPatch):
    rule = "render.index.narrow"
    description = "indices have 32 bits whatever they may be"
    target = "impl.render.printer:_Printer._is_small"

    def replacement(self, original: Function) -> Function:
        return lambda printer: True
