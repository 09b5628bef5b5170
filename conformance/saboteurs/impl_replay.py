"""Mistakes in captures and replays, made inside `impl.replay`."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from conformance.saboteurs.impl_patches import ImplPatch
from conformance.saboteurs.threats import OutputsAreShared

Function = Callable[..., Any]


class OutputsStayWhereTheyWere(OutputsAreShared):
    rule = "replay.output.fresh"


class WhatSharesMemoryStaysTogether(ImplPatch):
    rule = "replay.state.parted"
    description = "a capture does not part tensors that share memory"
    target = "impl.replay.capture:part"

    def replacement(self, original: Function) -> Function:
        return lambda tensors: None


class ArgumentsAreNotParted(ImplPatch):
    rule = "replay.state.parted"
    description = "an argument may share memory with the state"
    first = "test_an_output_that_is_fed_back"
    target = "impl.replay.recording:Recording._part"

    def replacement(self, original: Function) -> Function:
        return lambda recording, tensors, held: None


class KnownValuesAreNotCaptured(ImplPatch):
    rule = "replay.capture.whole"
    description = "what was computed before a capture is not computed in it"
    target = "impl.replay.capture:forget_realized"

    def replacement(self, original: Function) -> Function:
        return lambda: None


class PendingWorkIsCaptured(ImplPatch):
    rule = "replay.pending.before"
    description = "what was pending is computed in the capture"
    target = "impl.replay.capture:_realize_all"

    def replacement(self, original: Function) -> Function:
        return lambda tensors: None


class VariablesStayAsTheyWere(ImplPatch):
    rule = "replay.values.bound"
    description = "a bound variable has the value of the capture"
    target = "impl.replay.recording:Recording._follows"

    def replacement(self, original: Function) -> Function:
        def follows(recording: Any, bind: Any, paths: Any) -> Any:
            return None if bind in paths else original(recording, bind, paths)
        return follows


class RandomNumbersComeAgain(ImplPatch):
    rule = "replay.random.advances"
    description = "every replay draws the random numbers of the capture"
    target = "impl.replay.recording:Recording._follows"

    def replacement(self, original: Function) -> Function:
        def follows(recording: Any, bind: Any, paths: Any) -> Any:
            found = original(recording, bind, paths)
            return None if isinstance(found, int) else found
        return follows


class AliasesAreNotCompared(ImplPatch):
    rule = "replay.guard.alias"
    description = "which arguments are one tensor is not looked at"
    target = "impl.replay.arguments:aliases_of"

    def replacement(self, original: Function) -> Function:
        return lambda leaves: []


class ArgumentsMayBeStates(ImplPatch):
    rule = "replay.guard.state"
    description = "an argument that the function uses by another name, too, is not noticed"
    target = "impl.replay.recording:Recording.check_capture"

    def replacement(self, original: Function) -> Function:
        return lambda recording, tensors, before: None


class ValuesAreReadInCaptures(ImplPatch):
    rule = "replay.read.error"
    description = "a value that is read in a capture is that of the capture for ever"
    target = "impl.realize:refuse_capture"

    def replacement(self, original: Function) -> Function:
        return lambda *words: None
