"""`TinyJit`: which call runs, which is captured, which is replayed, which is traced."""
from __future__ import annotations

import functools
import inspect
import sys
import types
import weakref
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Generic, ParamSpec, TypeVar

from impl import realize, settings
from impl.effects import leaf_of, lock
from impl.errors import ReplayError, user_line
from impl.following.pure import held_by_name
from impl.following.reads import Reads, Reason
from impl.realize import Mode, handlers_noted, session
from impl.replay.arguments import Arguments, take_apart
from impl.replay.capture import Capture
from impl.replay.recording import Recording
from impl.replay.stand_ins import StandIns
from impl.settings import derived
from impl.symbolic import watching
from impl.tensor import Tensor
from impl.tensor.parameters import realize_unasked
from impl.tensor.random import generator

Parameters = ParamSpec("Parameters")
Returned = TypeVar("Returned")
#: Captures that came to nothing, after which a function is traced at each call.
_ATTEMPTS = 3
#: Reasons why there was no room that are told apart.
_MOST_TOLD = 20


class TinyJit(Generic[Parameters, Returned]):
    """Capture a function of tensors on its second call and replay it from the third on.

    A replay is made where everything that the body can read is what it was; for anything else
    there is a further capture. A function that does what cannot be followed runs at each call
    (`explain()` tells the line). Works on functions, methods and callable objects; tensors may
    stand in nested lists, tuples, dicts and dataclasses.

    Args:
        trust: what cannot be followed is the same at each call, and need not be done again.

    Raises:
        ReplayError: a generator or a coroutine, which has no result to replay.
    """

    def __init__(self, function: Callable[Parameters, Returned], trust: bool = False) -> None:
        if not callable(function) and not isinstance(function, (staticmethod, classmethod)):
            # r[impl replay.refused.kind]
            raise ReplayError("TinyJit", f"{function!r:.60} is no function",
                              "give the function itself: TinyJit(f), and then f(x)")
        # Names and words of a function; a model keeps its attributes to itself: see `__getattr__`.
        functools.update_wrapper(self, function, updated=())
        plain = function.func if isinstance(function, functools.partial) else function
        for test, what in ((inspect.isgeneratorfunction, "generator"),
                           (inspect.iscoroutinefunction, "coroutine"),
                           (inspect.isasyncgenfunction, "asynchronous generator")):
            if test(plain) or test(vars(type(plain)).get("__call__")):
                raise ReplayError(  # r[impl replay.refused.kind]
                    "TinyJit", f"{getattr(plain, '__name__', plain)} is a {what}, whose body runs "
                    "between calls", "capture the function that computes one of its values")
        if isinstance(function, (staticmethod, classmethod)):
            raise ReplayError("TinyJit", f"is given a {type(function).__name__}",
                              "write @staticmethod or @classmethod above @TinyJit")
        self.function, self.trust = function, trust
        self._name: str = getattr(function, "__name__", "") or getattr(
            plain, "__name__", type(plain).__name__)
        self._disturbed = False  # whether a capture failed because other threads worked
        self.cache_clear()
        _made.add(weakref.ref(self, _made.discard))  # last: others look at what is in it

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        """Bound to an object, there is one capture for each object."""
        if instance is None:
            return self
        name = f"_captured_{id(self):x}"  # of this function, not of another with its name
        space = getattr(instance, "__dict__", None)
        if not isinstance(space, dict):  # an object with slots only
            return types.MethodType(self, instance)
        known = space.get(name)
        bound = self.function.__get__(instance, owner)
        if known is None or known.function != bound:  # the object is a copy, or an id came again
            known = space[name] = TinyJit(bound, self.trust)
        return known

    def __getattr__(self, name: str) -> Any:
        """What a captured function has not, its function has: the parameters of a model."""
        # r[impl replay.wrapper.attributes]
        if name == "function":  # of an object that is being made
            raise AttributeError(name)
        return getattr(self.function, name)

    def __setattr__(self, name: str, value: Any) -> None:
        """What is no part of a captured function is set on its function: a parameter of a model."""
        # r[impl replay.wrapper.attributes]
        own = vars(self)
        if "_told" not in own or name in own or isinstance(self.function, types.MethodType):
            super().__setattr__(name, value)  # `_told` is the last that is made
        else:
            setattr(self.function, name, value)

    def __reduce__(self) -> Any:
        """A function is named where it is defined; captures are made anew where they are needed."""
        # r[impl replay.pickle.again]
        name: str = getattr(self.function, "__qualname__", "")
        if held_by_name(getattr(self.function, "__module__", "") or "", name) is self:
            return name
        return TinyJit, (self.function, self.trust)

    def cache_clear(self) -> None:
        """Forget all captures; the next call runs as it is, the one after is captured."""
        with lock.mutex:
            self._clear()

    reset = cache_clear

    def _clear(self) -> None:
        self._begun = self._found = self.traces = 0  # calls looked at in full, and their replays
        #: The one that was used last stands first. Another thread may go through it: it is replaced
        #: as a whole, under the lock, and never changed.
        self.entries: tuple[Recording, ...] = ()
        self._reasons: dict[Reason, None] = {}  # why calls are traced, if they are
        self._attempts = 0  # captures that came to nothing, one after the other
        self._disturbances = self._waits = 0  # captures disturbed in a row; calls until the next
        self._full: dict[str, int] = {}  # which guards did not hold when there was no room
        self.after = vars(self).get("after", 1)  # calls that run as they are before one is captured
        self._known = 0  # calls with an argument that the function has by another name, too
        self._told = False

    @property
    def calls(self) -> int:
        """How many calls there were."""
        return self._begun + sum(recording.shortcuts for recording in self.entries)

    @property
    def replays(self) -> int:
        """How many of them were replayed."""
        return self._found + sum(recording.shortcuts for recording in self.entries)

    def __call__(self, *args: Parameters.args, **kwargs: Parameters.kwargs) -> Returned:
        """Run, capture, replay or trace."""
        mode = derived(Mode)
        if session.capturing.inlined or not mode.captures:
            # r[impl replay.nested.inlined+2]
            return self.function(*args, **kwargs)
        if not kwargs and not mode.poison:
            for recording in self.entries:
                hold = recording.shortcut
                if hold is None:
                    continue
                mutex, taken, launching = lock.mutex, False, False
                try:  # what `with mutex` does, in half the time
                    taken = mutex.acquire(False) or mutex.acquire()
                    # In another thread's turn, where kernels wait, and in the middle of another
                    # call, everything is looked at.
                    if lock.owner or session.scheduled or lock.launching:
                        break
                    lock.launching = launching = True
                    since = lock.changes
                    found = hold(args, mode)
                    if found is None:
                        continue
                    if recording.whole:
                        return found
                    if recording.plain:
                        return recording.run_again(found)
                    returned = recording.run_with_states(since, found, args)
                    if returned:
                        return returned[0]
                except realize.Overtaken:  # by what such a signal has done
                    break
                finally:
                    if launching:
                        lock.launching = False
                    # A signal may come between taking and knowing that it was taken. It comes after
                    # a call, so never before: what this thread holds around it is not given back.
                    if taken or mutex._is_owned():  # type: ignore[attr-defined]
                        mutex.release()
        try:
            return self._in_full(args, kwargs, bool(mode.poison))
        except realize.Overtaken:  # again and again: handlers of signals work on its states
            return self._trace(args, kwargs)

    def say_nothing(self) -> None:
        """Do not say that there is no room for another capture."""
        self._told = True

    def compute(self, tensors: Sequence[Tensor | None]) -> None:
        """Compute those of the next call's arguments that wait, if no gradient flows through them.

        Who waits for a state as it is before that call is computed with them: what they have in
        common is computed once. And then the call may be a short one.
        """
        waiting = [each for each in tensors if each is not None and leaf_of(each.uop) is None]
        if not waiting or not self.entries or session.capturing.inlined:
            return
        with lock:
            if not lock.launching and not session.scheduled:
                states = self.entries[0].states
                realize_unasked([*waiting, *states.waiting(waiting)])

    def _in_full(self, args: Any, kwargs: Any, poisoned: bool) -> Returned:
        """Run, capture, replay or trace, when everything has to be looked at."""
        with lock:  # runs of other threads are no part of this one
            if lock.launching:  # what calls it is the handler of a signal, or a finalizer
                # r[impl replay.call.interrupted]
                return self.function(*args, **kwargs)
            first = self._begun < self.after
            self._begun += 1
            if not first and self.entries:
                found, returned = self._replay(args, kwargs, poisoned)
                if found:
                    return returned
        if first:
            return self.function(*args, **kwargs)
        if self._waits:
            self._waits -= 1
            return self._trace(args, kwargs)
        if self._is_traced():
            return self._trace(args, kwargs)
        with lock.turn() as free:
            if not free:  # a captured function waits for this one
                return self.function(*args, **kwargs)
            with lock:  # another thread may have been first
                found, returned = self._replay(args, kwargs, poisoned)
            if found:
                return returned
            if not self._is_traced():
                return self._capture(args, kwargs)
        return self._trace(args, kwargs)

    def _replay(self, args: Any, kwargs: Any, poisoned: bool) -> tuple[bool, Any]:
        """Replay an entry that fits, if there is one."""
        try:
            arguments = take_apart((args, kwargs))
        except ReplayError:
            return False, None
        if arguments.strange:
            return False, None
        with session.capturing.inlining():  # r[impl replay.call.interrupted]
            return self._replay_one(arguments, poisoned)

    def _replay_one(self, arguments: Arguments, poisoned: bool) -> tuple[bool, Any]:
        """Replay the first entry that fits."""
        mode, entries = realize.in_force(), self.entries
        for place, recording in enumerate(entries):
            if recording.fits(arguments, mode):
                found = recording.replayed(arguments, poisoned)
                if not found:
                    continue
                returned, = found
                recording.uses += 1
                self._found += 1
                if place and self.entries is entries:
                    self.entries = (recording, *entries[:place], *entries[place + 1:])
                return True, returned
        return False, None

    def _is_traced(self) -> bool:
        """Whether there will be no capture."""
        if self._reasons and not self.trust or self._attempts >= _ATTEMPTS:
            return True
        return len(self.entries) >= int(settings.get("JIT_ENTRIES"))

    def _trace(self, args: Any, kwargs: Any) -> Returned:
        """Run the body: its plan comes from the cache."""
        with lock.mutex:
            self.traces += 1
        entries = self.entries
        if entries and len(entries) >= int(settings.get("JIT_ENTRIES")):
            self._note_broken(entries, args, kwargs)
        return self.function(*args, **kwargs)

    def _note_broken(self, entries: Sequence[Recording], args: Any, kwargs: Any) -> None:
        """Note which guard did not hold of the entry that was used last, and say so once."""
        try:
            why = entries[0].misfit(take_apart((args, kwargs)), realize.in_force()) \
                or entries[0].last
        except ReplayError as error:
            why = error.detail
        with lock.mutex:
            known = why if why in self._full or len(self._full) < _MOST_TOLD else "something else"
            self._full[known] = self._full.get(known, 0) + 1
        if not self._told:  # r[impl replay.entries.limit]
            self._told = True
            print(f"tensor-schedule: {self._name} has {len(entries)} captures, as many as "
                  f"JIT_ENTRIES allows, and runs as it is now where none fits: {why}; pass what "
                  "changes as a Tensor or a bound Variable", file=sys.stderr)

    def _reads(self, args: Any, kwargs: Any) -> Reads:
        """What the body can read, found from its code."""
        from impl.following.following import Following
        from impl.following.instructions import step
        reads = Following(step, captured_function, self.trust).run(self.function, args, kwargs)
        if self.trust:  # r[impl following.trust.known]
            reads.reasons.clear()
        return reads

    def _capture(self, args: Sequence[Any], kwargs: Any) -> Returned:
        """Run the function on stand-ins of the arguments, and record what it does."""
        try:
            given = take_apart((args, kwargs))
        except ReplayError as error:
            self._reasons[Reason(user_line(), f"is given what no guard can see: {error.detail}",
                                error.remedy)] = None
            return self._trace(args, kwargs)
        if given.strange:
            self._reasons[Reason(user_line(), f"is given what no guard can see: {given.strange}",
                                "give a plain one, or a dataclass")] = None
            return self._trace(args, kwargs)
        reads = self._reads(args, kwargs)
        self._reasons.update(reads.reasons)
        if reads.reasons:
            return self._trace(args, kwargs)  # r[impl following.traced.reason]
        if not reads.known().isdisjoint(given.objects()):
            self._known += 1
            return self._trace(args, kwargs)  # r[impl replay.guard.state]: it may ask which it is
        call = StandIns(args, kwargs, given, reads)
        call.see()
        if call.shared and reads.written:  # where the body may run again, it would write again
            self._reasons.update(dict.fromkeys(reads.written.values()))
            return self._trace(args, kwargs)
        capture = Capture(self._name, self.function, call.arguments, call.originals, call.kept,
                          reads, self.trust)
        gradients = [(h, h.grad, h._parameter) for h, _ in capture.before] if call.shared \
            else []
        self._attempts += 1
        try:
            result, recording = self._recorded(call, capture)
        except BaseException as error:
            if not call.shared or not isinstance(error, Exception) or lock.disturbed:
                raise  # r[impl replay.failure.done+2]
            result = recording = None  # it will raise again, and has then done what it does
        if lock.disturbed:  # what it saw is not the function's doing alone
            self._not_captured()
            return call.originals_in(result)
        self._reasons.update(dict.fromkeys(capture.reasons))
        if recording is None or not recording.states.may_be(given.tensors, call.started):
            if call.shared:  # r[impl replay.guard.state]
                call.take_back(gradients)
                generator.counter = capture.random_start
                return self._trace(args, kwargs)
            if capture.is_strange and not capture.changed and not reads.written:
                generator.counter = capture.random_start
                return self._trace(args, kwargs)  # r[impl replay.guard.complete]: on no stand-ins
            recording = None
        if recording is not None and reads.hold():  # r[impl replay.failure.done+2]
            self._attempts = self._disturbances = 0
            recording.mode = realize.in_force()
            self._keep(recording)
        elif self._attempts >= _ATTEMPTS:
            self._reasons.update(dict.fromkeys(reads.changed()))
        return call.originals_in(result)

    def _recorded(self, call: StandIns, capture: Capture) -> tuple[Any, Recording | None]:
        """Call the function; its result, and the recording if one can be made."""
        reads, recording = capture.reads, None
        try:
            with handlers_noted(), session.capturing.observed(capture):
                with watching() as capture.comparisons:
                    result = self.function(*call.args, **call.kwargs)
                try:
                    capture.check_containers((call.args, call.kwargs))
                    if self.trust:  # what the body itself has changed is not looked at
                        reads.places = {at: p for at, p in reads.places.items() if p.holds()}
                    if not lock.disturbed:
                        recording = capture.finish(result)
                except Exception:
                    if not lock.disturbed:
                        raise
        finally:
            capture.end()
            call.write_back()
            call.leave(reads)
        return result, recording

    def _keep(self, recording: Recording) -> None:
        """Add a capture. One that agrees with another at other sizes is right for all sizes."""
        with lock:
            entries = list(self.entries)
            for place, other in enumerate(entries):
                if other.is_like(recording):
                    recording.trusted = other.keys == recording.keys
                    if recording.trusted:  # no shortcut of the other one was ever used
                        entries[place] = recording
                        self.entries = tuple(entries)
                        return
            self.entries = (recording, *entries)

    def _not_captured(self) -> None:
        """Say, once, that a call was disturbed: the next one is captured instead. If that is, too,
        twice as many calls are traced before each further attempt.
        """
        if not self._disturbed:  # r[impl replay.thread.isolated+2]
            print(f"tensor-schedule: {self._name} was not captured: other threads, or handlers of "
                  "signals, worked in its middle; the next call is", file=sys.stderr)
        self._disturbed, self._attempts = True, 0
        self._disturbances += 1
        self._waits = 2 ** min(self._disturbances, 10) - 2

    def explain(self, verbose: bool = False) -> str:
        """The captures, what each is guarded by and how often it was used; why calls are traced.

        Args:
            verbose: name every guard, and do not only count them.
        """
        lines = [f"{self._name}: {self.calls} calls, {self.replays} replayed, {self.traces} traced"]
        for reason in list(self._reasons):  # another thread may find one
            lines.append(f"  not replayed: {reason.line} {reason.does}")
            lines.append(f"    instead: {reason.remedy}, or TinyJit(function, trust=True) if it "
                         "makes no difference")
        if self._disturbances:
            lines.append(f"  not captured {self._disturbances} times in a row: other threads, "
                         "handlers of signals, or code that operations call, worked in its middle")
            lines.append(f"    {self._waits} calls are traced before the next one is captured")
        if self._known:
            lines.append(f"  not captured {self._known} times: an argument is what the function "
                         "reads by another name, too, and it may ask which it is")
            lines.append("    instead: pass it, or let the function read it, and not both")
        for number, recording in enumerate(self.entries):
            lines.append(f"  capture {number}: used {recording.uses + recording.shortcuts} times")
            lines += [f"    {each}" for each in recording.guard_texts(verbose)]
        for why, count in Counter(self._full).most_common(5):
            lines.append(f"  no room for another capture, {count} times: {why}")
        return "\n".join(lines)


#: All captured functions that are alive.
_made: set[weakref.ref[TinyJit[..., Any]]] = set()


def captured_functions() -> list[TinyJit[..., Any]]:
    """All captured functions that were called, by their names."""
    found = [known() for known in _made.copy()]  # at once: other threads make further ones
    return sorted((each for each in found if each is not None and each.calls),
                  key=lambda each: each._name)


def captured_function(value: Any) -> Any:
    """The function of a captured function; None for anything else."""
    return value.function if type(value) is TinyJit else None
