"""Mistakes in process replay, made inside `impl`."""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from conformance.saboteurs.impl_patches import ImplPatch

Function = Callable[..., Any]


class HeldForgottenInRecords(ImplPatch):
    rule = "playback.record.complete"
    description = "a record does not say which versions stay observable"
    target = "impl.playback.records:encode"

    def replacement(self, original: Function) -> Function:
        return lambda effects: {**original(effects), "held": []}


class SettingsForgottenInRecords(ImplPatch):
    rule = "playback.record.complete"
    description = "a record does not say with which settings it was made"
    target = "impl.playback.records:plan_settings"

    def replacement(self, original: Function) -> Function:
        return lambda: {}


class EverythingIsTheSame(ImplPatch):
    rule = "playback.replay.told"
    description = "what comes out is not compared with what was recorded"
    first = "test_other_kernels_are_shown"
    target = "impl.playback.compare:_again"

    def replacement(self, original: Function) -> Function:
        return lambda file, record: replace(original(file, record), outcome="same")


class NothingIsASuccess(ImplPatch):
    rule = "playback.replay.told"
    description = "the status is 0 unless something changed"
    first = "test_nothing_compared_is_no_success"
    target = "impl.playback.__main__:main"

    def replacement(self, original: Function) -> Function:
        return lambda arguments: original(arguments) % 2


class SkippedIsPassed(ImplPatch):
    rule = "playback.replay.told"
    description = "a record that cannot be compared counts as the same"
    first = "test_nothing_compared_is_no_success"
    target = "impl.playback.compare:Verdict.__init__"

    def replacement(self, original: Function) -> Function:
        def start(verdict: Any, file: str, outcome: str, *rest: Any) -> None:
            original(verdict, file, "same" if outcome == "skipped" else outcome, *rest)
        return start


class AnythingIsLoaded(ImplPatch):
    rule = "playback.record.private"
    description = "a pickle may name any function"
    target = "impl.playback.records:_Loader.find_class"

    def replacement(self, original: Function) -> Function:
        import pickle
        return lambda loader, module, name: pickle.Unpickler.find_class(loader, module, name)
