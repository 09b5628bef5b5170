"""What a function reads besides its arguments: places, each with what it held at the capture.

A place is a name of a module, a cell of a closure, an attribute, an item. Where all places hold
what they held, a run of the body does what it did. Chapter: spec/following.md.
"""
from __future__ import annotations

import operator
import struct
import types
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from impl.following.pure import CONTAINERS, plain_types
from impl.following.records import EXACT, is_record
from impl.host import np
from impl.tensor import Tensor
from impl.tensor.parameters import dependence, dependent_bits

#: Arrays are compared by content up to this size in bytes.
MOST_BYTES = 1 << 16


class _Missing:
    """What a place holds that is not there."""

    def __repr__(self) -> str:
        return "nothing"


MISSING: Any = _Missing()


def number_form(value: Any) -> tuple[Any, ...]:
    """What tells a number from others of its type: 0.0 and -0.0 are two, and NaN has a sign."""
    # r[impl replay.guard.complete]
    if value == value or not isinstance(value, (float, complex)):
        return (repr(value),)
    return repr(value), struct.pack("dd", value.real, value.imag)


def same(now: Any, before: Any) -> bool:
    """Whether two values are one to a program: numbers and texts by value and type, containers
    that do not change part by part, all else by identity.
    """
    if now is before:
        return True
    kind = type(now)
    if kind is not type(before):
        return False
    if kind is float or kind is complex or isinstance(now, np.generic):
        return number_form(now) == number_form(before)
    if kind is range:  # two that are empty are equal
        return (now.start, now.stop, now.step) == (before.start, before.stop, before.step)
    if kind is tuple:
        return len(now) == len(before) and all(map(same, now, before))
    return kind in plain_types() and bool(now == before)


@dataclass(frozen=True, slots=True)
class Read:
    """A place, and what it held. `kind` says how it is looked at:

    - `item`: `owner[key]` of a dict (names of modules among them), a list or an array of objects
    - `attribute`: `owner.key`
    - `class`: the class of an object
    - `own`: what a class itself has by a name, not what it inherits
    - `names`: the names that a class itself has
    - `absent`: no `key` in the dict `owner`
    - `cell`: the content of a cell
    - `parts`: all of a list, dict or set, in its order
    - `array`: the content of an array, or of other memory
    - `answer`: what a function says that reads a setting of a library
    - `code`: code and defaults of a function
    - `method`: `owner.key`, a method of a class
    - `tensor`: what a program sees of a tensor besides its elements
    """

    kind: str
    owner: Any
    key: Any
    held: Any
    path: str

    def now(self) -> Any:
        """What the place holds now, in the form of `held`."""
        found: Any = _LOOKS[self.kind](self.owner, self.key)
        return found

    def holds(self) -> bool:
        """Whether it holds what it held."""
        try:
            now = self.now()
        except Exception:
            return False
        if self.kind in ("parts", "tensor"):
            return len(now) == len(self.held) and all(map(same, now, self.held))
        if self.kind == "code":
            return all(a is b for a, b in zip(now, self.held, strict=True))
        if self.kind in ("array", "names", "answer"):
            return bool(now == self.held)
        return now is self.held if self.kind == "method" else same(now, self.held)

    def text(self) -> str:
        """The guard as one reads it."""
        held = self.held
        if self.kind == "array":
            return f"{self.path}: an array of shape {held[1]}"
        if self.kind in ("parts", "names"):
            return f"{self.path}: {len(held)} {self.kind}"
        if self.kind == "class":
            return f"{self.path} is a {held.__name__}"
        if self.kind == "answer":
            return f"{self.path} is what it was"
        if held is MISSING:
            return f"there is no {self.path}"
        if self.kind == "tensor":
            return f"{self.path}: shape {held[0]}, {held[1].name}, {held[2]}"
        if self.kind in ("code", "method"):
            return f"{self.path}: its code"
        if isinstance(held, plain_types()) or type(held) is tuple:
            return f"{self.path} is {held!r}"
        return f"{self.path} is the {type(held).__name__} that it was"


def _item(owner: Any, key: Any) -> Any:
    if isinstance(owner, dict):  # also one that makes an item where there is none
        return dict.get(owner, key, MISSING)
    try:
        return owner[key]
    except LookupError:
        return MISSING


def _parts(owner: Any, _: Any) -> list[Any]:
    if isinstance(owner, (dict, types.MappingProxyType)):
        return [*owner, *owner.values()]
    return list(owner)


def _array(owner: Any, _: Any) -> tuple[Any, ...]:
    if isinstance(owner, np.ndarray):
        return owner.dtype, owner.shape, owner.strides, owner.flags.num, owner.tobytes()
    view = memoryview(owner)
    return view.format, view.shape, view.strides, view.readonly, view.tobytes()


def code_of(function: types.FunctionType, _: Any = None) -> tuple[Any, ...]:
    """What a function does, and with which defaults."""
    return function.__code__, function.__defaults__, function.__kwdefaults__


def form_of(tensor: Tensor, _: Any = None) -> tuple[Any, ...]:
    """What a program sees of a tensor besides its elements."""
    return (tensor.uop.shape, tensor.uop.dtype, tensor.device, tensor._parameter,
            tensor.grad is None, dependence(tensor))


def _cell(owner: types.CellType, _: Any) -> Any:
    try:
        return owner.cell_contents
    except ValueError:
        return MISSING


_LOOKS: dict[str, Callable[[Any, Any], Any]] = {
    "item": _item, "attribute": lambda owner, key: getattr(owner, key, MISSING),
    "absent": lambda owner, key: key if key in owner else MISSING, "cell": _cell,
    "class": lambda owner, _: type(owner),
    "own": lambda owner, key: vars(owner).get(key, MISSING),
    "names": lambda owner, _: frozenset(vars(owner)), "answer": lambda owner, _: owner(),
    "parts": _parts, "array": _array, "code": code_of, "tensor": form_of,
    "method": lambda owner, key: getattr(getattr(owner, key), "__func__", getattr(owner, key))}


@dataclass(frozen=True)
class Reason:
    """Why a function is not replayed blindly: what a line does, and what to write instead."""

    line: str
    does: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.line} {self.does}; {self.remedy}"


@dataclass
class Reads:
    """All that a function reads besides its arguments, and what it does that nobody can follow.

    `written`: places that it writes to, and the reason to give where they hold something else after
    a call than before it.
    """

    places: dict[tuple[Any, ...], Read] = field(default_factory=dict)
    tensors: dict[int, Tensor] = field(default_factory=dict)
    reasons: dict[Reason, None] = field(default_factory=dict)
    written: dict[tuple[str, int, str], Reason] = field(default_factory=dict)
    counted: bool = False  # whether Python may make a number of a symbolic size
    gradients: bool = False  # whether the user's code looks at gradients, and may ask which are one

    def note(self, kind: str, owner: Any, key: Any, path: str) -> Any:
        """Note a place, and what it holds."""
        at = (kind, id(owner), type(key), key)
        found = self.places.get(at)
        if found is None:
            held = _LOOKS[kind](owner, key)
            found = self.places[at] = Read(kind, owner, key, held, path)
        return found.held

    def known(self) -> frozenset[int]:
        """The tensors and containers that the function can reach besides, by identity; with the
        gradients that the tensors have now, if the user's code looks at those.
        """
        slopes = [id(each.grad) for each in self.tensors.values()] if self.gradients else []
        objects = [each for place in self.places.values() for each in (place.owner, place.held)]
        return frozenset((*self.tensors, *slopes, *(
            id(each) for each in objects if isinstance(each, EXACT) or is_record(each))))

    def hold(self) -> bool:
        """Whether all places hold what they held."""
        return all(place.holds() for place in self.places.values())

    def changed(self) -> list[Reason]:
        """Why the places that the function writes to do not hold what they held."""
        return [self.written[place.kind, id(place.owner), place.key]
                for place in self.kept() if not place.holds()]

    def kept(self) -> list[Read]:
        """The places that the function writes to."""
        return [place for place in self.places.values()
                if (place.kind, id(place.owner), place.key) in self.written]

    def broken(self) -> Read | None:
        """A place that holds something else now."""
        return next((place for place in self.places.values() if not place.holds()), None)


#: How many values are named where guards are told in short, and how many characters of each.
_VALUES, _CHARACTERS = 10, 100


def in_short(places: Iterable[Read]) -> list[str]:
    """Guards as lines: the values among them, which are what most often changes, and how many
    there are of each other sort.
    """
    values, sorts = list[str](), Counter[str]()
    for place in places:
        sort = _sort(place)
        if sort == "values":
            values.append(place.text())
        else:
            sorts[sort] += 1
    lines = [text if len(text) <= _CHARACTERS else text[:_CHARACTERS] + " ..."
             for text in values[:_VALUES]]
    sorts["more values"] = max(0, len(values) - _VALUES)
    rest = ", ".join(f"{sort}: {count}" for sort, count in sorts.most_common() if count)
    return [*lines, *([f"and {rest} (explain(verbose=True) names them)"] if rest else [])]


def _sort(place: Read) -> str:
    """What a place is, for who counts places."""
    kind, held = place.kind, place.held
    if held is MISSING or kind == "absent":
        return "names that are not there"
    if kind in ("class", "names", "own") or place.key == "__mro__":
        return "classes"
    if kind in ("code", "method"):
        return "functions"
    if kind in ("tensor", "array"):
        return f"{kind}s"
    if kind == "parts":
        return "containers part by part"
    if kind == "answer" or " " in place.path:  # this library's are named in words
        return "settings"
    return "values" if isinstance(held, plain_types()) or type(held) is tuple else "objects"


class Test:
    """A function of guards, as text: one that does not hold makes it answer None."""

    def __init__(self, parameters: str = "") -> None:
        self.space: dict[str, Any] = {"same": same, "M": MISSING, "is_": operator.is_}
        self.lines = [f"def hold({parameters}):", "    try:"]
        self.names: dict[int, str] = {}

    def name(self, value: Any) -> str:
        """What an object is called in the text."""
        found = self.names.get(id(value))
        if found is None:
            found = self.names[id(value)] = f"c{len(self.names)}"
            self.space[found] = value
        return found

    def line(self, text: str) -> None:
        """A line as it is."""
        self.lines.append(f"        {text}")

    def add(self, condition: str, *values: Any) -> None:
        """What must not be true; `{}` stands for the next of the values."""
        self.line(f"if {condition.format(*map(self.name, values))}: return None")

    def add_places(self, places: list[Read]) -> None:
        """Places that have to hold what they held."""
        for place in places:
            self.line(f"if not ({self._test(place)}): return None")

    def made(self, result: str, then: Sequence[str] = ()) -> Any:
        """The function, and what is done `then` with the result, if all guards hold."""
        text = [*self.lines, f"        {result if then else f'return {result}'}",
                "    except Exception:", "        return None", *[f"    {line}" for line in then]]
        exec(compile("\n".join(text), "<guards>", "exec"), self.space)
        return self.space.pop("hold")  # what knows itself is freed late

    def _test(self, place: Read) -> str:
        """The words of one guard."""
        kind, held = place.kind, place.held
        owner, value = self.name(place.owner), self.name(held)
        is_dict = kind == "item" and type(place.owner) is dict
        if kind == "absent":
            return f"{self.name(place.key)} not in {owner}"
        if kind == "class":
            return f"type({owner}) is {value}"
        if kind == "names":
            return f"{owner}.__dict__.keys() == {value}"
        if kind == "answer":
            return f"(w := {owner}()) is {value} or w == {value}"
        if kind == "own":
            return self._equal(f"{owner}.__dict__.get({self.name(place.key)}, M)", value, held)
        if kind == "code":
            code, defaults, named = map(self.name, held)
            return (f"{owner}.__code__ is {code} and {owner}.__defaults__ is {defaults} "
                    f"and {owner}.__kwdefaults__ is {named}")
        if kind == "tensor":
            shape, dtype, device, wanted, bare, depends = map(self.name, held)
            bits = f"not {owner}.uop.reads & {self.name(dependent_bits)}[0] or "
            asked = f"{'' if held[-1] else bits}{self.name(dependence)}({owner}) == {depends}"
            return (f"{owner}.uop.dtype is {dtype} and {owner}._parameter is {wanted} "
                    f"and ({asked}) "
                    f"and ({owner}.grad is None) is {bare} "
                    f"and ((w := {owner}.uop.shape) is {shape} or same(w, {shape})) "
                    f"and ((w := {owner}.device) is {device} or same(w, {device}))")
        if kind == "parts" and type(place.owner) in (list, dict):
            parts = owner if type(place.owner) is list else f"[*{owner}, *{owner}.values()]"
            return (f"len(w := {parts}) == {len(held)} and all(map(is_, w, {value})) "
                    f"or {self.name(place)}.holds()")
        if kind == "method" and place.key.isidentifier():
            look = f"{owner}.{place.key}"
            return f"{look} is {value}" if isinstance(held, types.FunctionType) and \
                getattr(place.owner, place.key) is held else \
                f"getattr({look}, '__func__', {look}) is {value}"
        if kind == "attribute" and place.key.isidentifier() and held is not MISSING:
            look = f"{owner}.{place.key}"
            if place.owner is Tensor and vars(Tensor).get(place.key, MISSING) is held:
                # Its type finds names that are missing: to ask what it has itself is quicker.
                look = f"{self.name(vars(Tensor))}[{self.name(place.key)}]"
        elif is_dict:
            key = self.name(place.key)
            if held is MISSING:
                return f"{key} not in {owner}"
            look = f"{owner}[{key}]"
        elif kind == "cell" and held is not MISSING:
            look = f"{owner}.cell_contents"
        else:
            return f"{self.name(place)}.holds()"
        return self._equal(look, value, held)

    @staticmethod
    def _equal(look: str, value: str, held: Any) -> str:
        if type(held) in (int, str, bytes):
            return (f"(w := {look}) is {value} or "
                    f"type(w) is {type(held).__name__} and w == {value}")
        if type(held) is float and held == held and held != 0:
            return f"(w := {look}) is {value} or type(w) is float and w == {value}"
        if isinstance(held, (bool, type(None))) or not (
                isinstance(held, plain_types()) or type(held) is tuple):
            return f"{look} is {value}"
        return f"(w := {look}) is {value} or same(w, {value})"


def compiled(places: list[Read]) -> Callable[[], Any]:
    """One function that tells whether all places hold what they held."""
    test = Test()
    test.add_places(places)
    made: Callable[[], Any] = test.made("True")
    return made


def is_container(value: Any) -> bool:
    """Whether it is a container of Python, and no class of its own."""
    return type(value) in CONTAINERS
