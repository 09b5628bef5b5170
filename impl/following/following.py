"""Following the code of a function, to find all that it can read besides its arguments.

Nothing is run. Each instruction moves *things* from place to place: a thing is an object that was
there before the call, or stands for those that the call makes at one line. Both ways of a branch
are followed, and a loop once for all of its turns, so what is found is all that any call can read
until one of these places holds something else. Chapter: spec/following.md.
"""
from __future__ import annotations

import dis
import types
from collections.abc import Callable, Sequence
from typing import Any

from impl.dtypes import dtypes
from impl.following import pure, versions
from impl.following.calls import Calls
from impl.following.reads import (
    MISSING,
    Reads,
    is_container,
)
from impl.following.things import (
    NONE,
    NOTHING,
    Created,
    Entered,
    Outcome,
    Outside,
    Value,
    found_in,
)
from impl.tensor import Tensor
from impl.tensor.parameters import mode

#: Places and things of one function; more are more than a guard should look at.
_MOST = 20_000
_ROUNDS = 60

#: What an instruction does to a stack: the stack after it, if the next one is reached.
Step = Callable[["Following", Entered, dis.Instruction, "list[Value]"], "list[Value] | None"]


class Following(Calls):
    """One analysis: frames are run until nothing new is found."""

    def __init__(self, step: Step, is_captured: Callable[[Any], Any], trust: bool = False) -> None:
        super().__init__(is_captured, trust)
        self.step = step

    def run(self, function: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Reads:
        """Follow a call of a function with these arguments."""
        if versions.LAYOUT is None:
            self.refuse("runs on a version of Python whose instructions are not known",
                        "use trust=True")
            return self.reads
        name = getattr(function, "__name__", "the function")
        given = [self.argument(value, f"args[{n}]") for n, value in enumerate(args)]
        named = {key: self.argument(value, key) for key, value in kwargs.items()}
        self.reads.note("attribute", Tensor, "training", "Tensor.training")  # methods ask for it
        self.reads.note("attribute", type(Tensor), "changes",
                        "how often a method of Tensor was set")
        self.reads.note("attribute", dtypes, "defaults", "the default dtypes")
        self.reads.note("attribute", mode, "gradients", "whether gradients pass")  # no_grad
        self.changed = True
        while self.changed and (self.trust or not self.reads.reasons):
            self.changed = False
            try:  # r[impl following.reads.places]
                self.call(self.wrap(function, name), given, named)
                for frame in reversed(list(self.frames.values())):  # those that are called first
                    self.interpret(frame)
            except RecursionError:
                self.refuse("has calls in calls that are too deep to be followed",
                            "use trust=True")
                break
            self.rounds += 1
            if len(self.reads.places) + len(self.interned) > _MOST or self.rounds > _ROUNDS:
                self.refuse("reads more than can be guarded", "use trust=True")
                break
        return self.reads

    def write(self, thing: Any, value: Value, what: str, name: str = "",
              deletes: bool = False) -> None:
        """Something is put into a thing, or an attribute is taken from it."""
        if isinstance(thing, Created):
            self.put(thing.contents, value)
            if thing.kind is not None and name:
                self.setter(thing, thing.kind, name, value, deletes)
        elif isinstance(thing, Outside):
            held = thing.value
            if isinstance(held, Tensor) and type(held) is Tensor:
                return  # seen in the capture itself
            if name and (pure.is_plain(held) or is_container(held) or name == "__traceback__"
                         and not isinstance(held, BaseException)):
                return  # they have no attributes: an error, and no change
            if name and not isinstance(held, (type, types.ModuleType)) \
                    and self.setter(thing, type(held), name, value, deletes):
                return
            if isinstance(held, (*pure.plain_types(), tuple, types.FunctionType)) and not name:
                return
            own = getattr(held, "__dict__", None)
            if name and own is not None and not isinstance(held, type) \
                    and not hasattr(type(found_in(type(held).__mro__, name)), "__set__") \
                    and self.is_kept(value, *(("attribute", held) if name in own else
                                              ("absent", own)), name, f"{thing.path}.{name}"):
                return
            shown = f"{thing.path}.{name}" if name else f"{what} {thing.path}".strip()
            self.refuse(f"changes {shown}, which is outside; a replay would not do it again",
                        "return the value, or keep it in a Tensor that is assigned to")

    def is_kept(self, value: Value, kind: str, owner: Any, key: str, path: str) -> bool:
        """Whether what is written to a place outside may be left out of a replay, since the place,
        in which a number, a text or the like was, holds the same after the call as before it.

        That is seen in the capture (see `Reads.written`). Reads of the place give what it held, or
        what is written.
        """
        # r[impl following.reads.places]
        held = self.reads.note(kind, owner, key, path)
        if value and all(isinstance(each, Outside) and each.value is held for each in value):
            return True  # `model.steps += 1`: a tensor is assigned to, and put where it is
        if not (pure.is_plain(held) or held is MISSING) or not all(
                isinstance(each, Outcome) or isinstance(each, Outside)
                and pure.is_plain(each.value) for each in value):
            return False
        space = vars(owner) if kind == "attribute" else owner
        self.put(self.written.setdefault(id(space), {}).setdefault(key, set()), value)
        self.reads.written[kind, id(owner), key] = self.reason(
            f"changes {path}, which is outside; a replay would not do it again",
            "return the value, or keep it in a Tensor that is assigned to")
        return True

    def setter(self, thing: Any, kind: type, name: str, value: Value,
               deletes: bool = False) -> bool:
        """Call what a class has to set an attribute, or to delete it; whether there is something.
        """
        # r[impl following.hooks.later]
        hook, descriptor = ("__delattr__", "__delete__") if deletes else ("__setattr__", "__set__")
        given = [] if deletes else [value]
        self.hook(kind, hook)
        self.own(kind.__mro__, name)
        found, setting = found_in(kind.__mro__, name), found_in(kind.__mro__, hook)
        called: Value = NONE
        if not isinstance(setting, types.WrapperDescriptorType) and not (isinstance(
                setting, types.FunctionType) and not pure.is_followed(setting.__code__)):
            called |= self.special(thing, hook)
            self.call(called, [self.wrap(name, name), *given], {})
        setting = MISSING if found is MISSING else found_in(type(found).__mro__, descriptor)
        if isinstance(setting, types.FunctionType):
            self.own(type(found).__mro__, descriptor)
            called |= self.wrap(setting, name)
            self.call(self.wrap(setting, name), [self.wrap(found, name), frozenset([thing]),
                                                 *given], {})
        elif isinstance(found, property) and (setting := found.fdel if deletes else found.fset):
            called |= self.wrap(setting, name)
            self.call(self.wrap(setting, name), [frozenset([thing]), *given], {})
        return bool(called)

    def interpret(self, frame: Entered) -> None:
        """Go through the instructions of a function once, in their order."""
        if frame.stamp == self.stamp:  # nothing is new since it was looked at
            return
        self.frame, self.late, started = frame, False, self.stamp
        frame.states.setdefault(0, [])
        stack: list[Value] | None = None
        for instruction in frame.instructions:
            if self.reads.reasons and not self.trust:
                break
            frame.line = getattr(instruction, "line_number", instruction.starts_line) or frame.line
            offset = instruction.offset
            waiting = frame.states.get(offset)
            if waiting is not None:
                stack = self.joined(stack, waiting)
            if stack is None:
                continue
            if instruction.is_jump_target or offset == 0:
                self.join(frame, offset, stack)
            for handler in frame.handlers:
                if handler.start <= offset < handler.end:
                    self.join(frame, handler.target, [
                        *stack[:handler.depth], *([NOTHING] if handler.lasti else []),
                        self.caught()])
            stack = self.step(self, frame, instruction, list(stack))
        self.frame = None
        frame.stamp = self.stamp if started == self.stamp and not self.late else -1

    def caught(self) -> Value:
        """The value that a handler catches: an exception of Python, or any that was raised."""
        return NOTHING | {self.raised} | self.raised.contents

    @staticmethod
    def joined(first: list[Value] | None, second: list[Value]) -> list[Value]:
        """The values on a stack where two ways meet."""
        if first is None:
            return list(second)
        return [a | b for a, b in zip(first, second, strict=False)]

    def join(self, frame: Entered, offset: int, stack: list[Value]) -> None:
        """A stack comes to a place."""
        known = frame.states.get(offset)
        found = list(stack) if known is None else self.joined(known, stack)
        if found != known:
            frame.states[offset] = found
            self.changed = True
            self.stamp += 1
