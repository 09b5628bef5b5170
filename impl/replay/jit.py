"""`TinyJit`: which call runs, which is captured, which is replayed."""
from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Sequence
from typing import Any, Generic, ParamSpec, TypeVar

from impl import realize
from impl.effects import lock
from impl.errors import ReplayError
from impl.realize import session
from impl.replay.arguments import Arguments, compare_arguments, take_apart
from impl.replay.capture import Capture, stand_ins_of, write_back
from impl.replay.recording import Recording
from impl.replay.results import mapped
from impl.symbolic import watching
from impl.tensor import Tensor

Parameters = ParamSpec("Parameters")
Returned = TypeVar("Returned")


class TinyJit(Generic[Parameters, Returned]):
    """Capture a function of tensors on its second call and replay it from the third on.

    Works on functions and methods; tensors may stand in nested lists, tuples and dicts. Python
    numbers and other objects are frozen: a call with others raises.

    Raises:
        ReplayError: arguments that do not match the capture (r[replay.guard.mismatch]); a value
            that is read inside the function while it is captured (r[replay.read.error]).
    """

    def __init__(self, function: Callable[Parameters, Returned]) -> None:
        functools.update_wrapper(self, function)
        self.function = function
        self.calls = self.replays = 0
        self.recording: Recording | None = None
        self.name = getattr(function, "__name__", "function")
        self.disturbed = False  # whether a capture failed because other threads worked

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        """Bound to an object, there is one capture for each object."""
        if instance is None:
            return self
        name = f"_captured_{id(self):x}"  # of this function, not of another with its name
        known = instance.__dict__.get(name)
        if known is None or known.function.__self__ is not instance:  # the object is a copy
            known = instance.__dict__[name] = TinyJit(self.function.__get__(instance, owner))
        return known

    def reset(self) -> None:
        """Forget the capture; the next call runs as it is, the one after is captured."""
        self.calls, self.replays, self.recording = 0, 0, None

    def __call__(self, *args: Parameters.args, **kwargs: Parameters.kwargs) -> Returned:
        """Run, capture or replay."""
        mode = realize.in_force()
        if session.capturing.observers or not mode.captures:
            return self.function(*args, **kwargs)  # r[impl replay.nested.inlined]
        # Asked for once: another thread may forget the recording meanwhile.
        recording = self.recording
        guards = None if recording is None else recording.guards
        if guards is not None and not kwargs and not mode.poison:
            with lock.mutex:
                # In another thread's turn, and where kernels wait, everything is looked at.
                found = None if lock.owner or session.scheduled else guards.hold(args)
                if found is not None:
                    self.calls += 1
                    self.replays += 1
                    return recording.run_again(found)  # type: ignore[union-attr]
        return self._in_full(args, kwargs, bool(mode.poison))

    def _in_full(self, args: Any, kwargs: Any, poisoned: bool) -> Returned:
        """Run, capture or replay, when everything has to be looked at."""
        with lock:  # runs of other threads are no part of this one
            self.calls += 1
            if self.calls > 1 and self.recording is not None:
                arguments = take_apart((args, kwargs))
                if not self.recording.unsure(arguments):
                    replayed: Returned = self.recording.run(arguments, poisoned)
                    self.replays += 1
                    return replayed
            first = self.calls == 1
        if first:
            return self.function(*args, **kwargs)
        with lock.turn() as free:
            if not free:  # a captured function waits for this one
                return self.function(*args, **kwargs)
            if self.recording is None:
                return self._capture(take_apart((args, kwargs)), args, kwargs)
            arguments = take_apart((args, kwargs))
            if self.recording.unsure(arguments):
                return self._capture_again(arguments, args, kwargs)
        return self(*args, **kwargs)  # another thread was first

    def _capture_again(self, arguments: Arguments, args: Sequence[Any], kwargs: Any) -> Returned:
        """Capture with other values; two captures that agree are trusted with all values."""
        before = self.recording
        assert before is not None
        compare_arguments(before.name, before.signature, arguments.signature)
        returned = self._capture(arguments, args, kwargs)
        if self.recording is not None and self.recording is not before:
            self.recording.trusted = before.keys == self.recording.keys
        return returned

    def _capture(self, arguments: Arguments, args: Sequence[Any], kwargs: Any) -> Returned:
        """Run the function on stand-ins of the arguments, and record what it does.

        A stand-in has memory of its own. So a tensor that is an argument and that the function
        also uses by another name is told apart from the argument.
        """
        tensors = arguments.tensors
        given = list(tensors.values())
        realize.realize(given)
        stand_ins = stand_ins_of(given)
        # While these live, nothing overwrites the memory of the arguments.
        kept = [Tensor(tensor.uop) for tensor in given]
        gradients = [tensor.grad for tensor in given]
        args, kwargs = mapped((args, kwargs), lambda v: stand_ins.get(id(v), v))
        arguments = take_apart((args, kwargs))
        arguments.leaves = {p: t.uop for p, t in arguments.tensors.items()}
        capture = Capture(self.name, self.function, arguments, kept)
        started = {id(tensor): tensor.uop for tensor in given}
        session.capturing.observers.append(capture)
        try:
            with watching() as capture.comparisons:
                result = self.function(*args, **kwargs)
            capture.check_containers((args, kwargs))
            recording = None if lock.disturbed else capture.finish(result)
        finally:
            session.capturing.observers.remove(capture)
            # r[impl replay.failure.done+2]
            write_back(given, stand_ins, arguments.leaves, gradients)
        if recording is None or lock.disturbed:
            return self._not_captured(result, given, stand_ins)
        try:
            recording.states.check_capture(tensors, started)
        except ReplayError:
            for tensor, before, gradient in zip(given, kept, gradients, strict=True):
                tensor.uop, tensor.grad = before.uop, gradient
            raise
        self.recording = recording  # r[impl replay.failure.done+2]
        return self._returned(result, given, stand_ins)

    def _not_captured(self, result: Any, given: Sequence[Tensor],
                      stand_ins: dict[int, Tensor]) -> Returned:
        """What a call returns that waited for another thread: the next call is captured instead."""
        if not self.disturbed:  # r[impl replay.thread.isolated+2]
            print(f"tensor-schedule: {self.name} was not captured: other threads worked while it "
                  "waited; wait outside of it, or let no other thread work", file=sys.stderr)
        self.disturbed = True
        return self._returned(result, given, stand_ins)

    @staticmethod
    def _returned(result: Any, given: Sequence[Tensor], stand_ins: dict[int, Tensor]) -> Any:
        """The result, with the arguments themselves where the function returned a stand-in."""
        originals = {id(stand_ins[id(tensor)]): tensor for tensor in given}
        return mapped(result, lambda v: originals.get(id(v), v))
