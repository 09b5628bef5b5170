"""`TinyJit`: which call runs, which is captured, which is replayed."""
from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, Generic, ParamSpec, TypeVar

from impl import realize, settings
from impl.errors import ReplayError
from impl.replay.arguments import Arguments, compare, take_apart
from impl.replay.capture import Capture, stand_ins_of, write_back
from impl.replay.recording import Recording
from impl.replay.results import mapped
from impl.symbolic import watching
from impl.tensor import Tensor

Parameters = ParamSpec("Parameters")
Returned = TypeVar("Returned")


# --8<-- [start:jit]
class TinyJit(Generic[Parameters, Returned]):
    """Capture a function of tensors on its second call and replay it from the third on.

    Works on functions and methods; tensors may stand in nested lists, tuples and dicts. Python
    numbers and other objects are frozen: a call with others raises.

    Raises:
        ReplayError: arguments that do not match the capture (r[replay.guard.mismatch]); a value
            that is read inside the function while it is captured (r[replay.read.error]).
    """

    def __init__(self, function: Callable[Parameters, Returned]) -> None:
        self.function = function
        self.calls = self.replays = 0
        self.recording: Recording | None = None
        functools.update_wrapper(self, function)

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
        observers = realize.capturing.observers
        if observers or not settings.get("JIT"):  # r[impl replay.nested.inlined]
            return self.function(*args, **kwargs)
        with realize.lock:  # runs of other threads are no part of this one
            self.calls += 1
            if self.calls == 1:
                return self.function(*args, **kwargs)
            arguments = take_apart((args, kwargs))
            if self.recording is None:
                return self._capture(arguments, args, kwargs)
            if self.recording.unsure(arguments):
                return self._capture_again(arguments, args, kwargs)
            returned: Returned = self.recording.run(arguments)
            self.replays += 1
            return returned

    def _capture_again(self, arguments: Arguments, args: Sequence[Any], kwargs: Any) -> Returned:
        """Capture with other values; two captures that agree are trusted with all values."""
        before = self.recording
        assert before is not None
        compare(before.name, before.signature, arguments.signature)
        returned = self._capture(arguments, args, kwargs)
        if self.recording is not None:
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
        capture = Capture(getattr(self.function, "__name__", "function"), arguments, kept)
        realize.capturing.observers.append(capture)
        try:
            with watching() as capture.guards:
                result = self.function(*args, **kwargs)
            recording = capture.finish(result)
        finally:
            realize.capturing.observers.remove(capture)
            write_back(given, stand_ins, arguments.leaves, gradients)
        try:
            recording.check_capture(
                tensors, {id(t): k.uop for t, k in zip(given, kept, strict=True)})
        except ReplayError:
            for tensor, before, gradient in zip(given, kept, gradients, strict=True):
                tensor.uop, tensor.grad = before.uop, gradient
            raise
        self.recording = recording  # r[impl replay.failure.none]
        originals = {id(stand_ins[id(tensor)]): tensor for tensor in given}
        returned: Returned = mapped(result, lambda v: originals.get(id(v), v))
        return returned
# --8<-- [end:jit]
