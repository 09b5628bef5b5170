"""The lesson on replay: a reader's key of a call, judged by the values that it makes stale.

A *part* is what stands at one place among the arguments. The reader says what of it belongs into
the key, and which tensors of a call are one memory. Two calls with equal keys are one recording:
the second is replayed. If its right value is another one, the key has too little; if nothing
differs that matters and the keys do, it has too much.

    replay.arguments.form: the key does not see the value of args[1]: a replay gives [1, 4]

        captured    [1, 2] ** 2   gave [1, 4]
        now         [1, 2] ** 3   is   [1, 8]
"""
from __future__ import annotations

import math
import random
from collections.abc import Iterable, Iterator, Mapping
from types import ModuleType
from typing import Any, NamedTuple

from conformance.learn.lesson import Counterexample, Lesson, raised


class Part(NamedTuple):
    """What stands at one place of a call."""

    kind: str                    # "tensor", "value", "variable" or "object"
    type: str = ""               # of a value: "int", "float", "str", ...
    value: Any = None            # of a value or an object; of a variable: what it is bound to
    shape: tuple[Any, ...] = ()
    dtype: str = ""
    device: str = ""
    memory: int = 0              # the number of the memory that a tensor lies in
    name: str = ""               # of a variable, as its least and its greatest value
    low: int = 0
    high: int = 0


Call = Mapping[str, Part]


class Case(NamedTuple):
    """A call that was captured, one that comes now, and what a replay of it would give."""

    what: str        # in which the two differ, as the subject of a sentence
    captured: Call
    now: Call
    shown: tuple[str, str, str, str] = ("",) * 4  # captured, gave, now, is; empty if one recording

    @property
    def picture(self) -> str:
        if self.shown[0]:
            before, gave, now, right = self.shown
            wide = max(len(before), len(now))
            return f"captured    {before:<{wide}}   gave {gave}\nnow         {now:<{wide}}   " \
                   f"is   {right}"
        return "\n".join(f"{when:<9}{path}: {said(part)}"
                         for when, call in (("captured", self.captured), ("now", self.now))
                         for path, part in call.items())


def said(part: Part) -> str:
    """A part, without what it does not have."""
    given = (f"{name}={each!r}" for name, each in part._asdict().items()
             if each != Part._field_defaults.get(name))
    return f"Part({', '.join(given)})"


class Switch:
    """An object that equals others, and does something else."""

    def __init__(self, factor: int) -> None:
        self.factor = factor

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Switch)

    def __hash__(self) -> int:
        return 0

    def __repr__(self) -> str:
        return "settings"


def tensor(*shape: int, dtype: str = "int32", device: str = "CPU", memory: int = 1) -> Part:
    return Part("tensor", shape=shape, dtype=dtype, device=device, memory=memory)


def value(given: Any) -> Part:
    return Part("value", type=type(given).__name__, value=given)


def variable(name: str, low: int, high: int, bound: int) -> Part:
    return Part("variable", value=bound, name=name, low=low, high=high)


def parted(what: str, one: Part, two: Part, *shown: str) -> Case:
    """Two calls f(x, part) that are not one recording."""
    x = tensor(2)
    return Case(what, {"args[0]": x, "args[1]": one}, {"args[0]": x, "args[1]": two},
                (shown[0], shown[1], shown[2], shown[3]))


def apart() -> Iterator[Case]:
    """Calls that differ in something that a recording has built in."""
    yield parted("the value of args[1]", value(2), value(3),
                 "[1, 2] ** 2", "[1, 4]", "[1, 2] ** 3", "[1, 8]")
    yield parted("the type of args[1]", value(1), value(True),
                 "-x if flag is True else x, 1", "x", "-x if flag is True else x, True", "-x")
    yield parted("the type of args[1]", value(2), value(2.0),
                 "[1, 2] * 2", "[2, 4]", "[1, 2] * 2.0", "[2.0, 4.0]")
    yield parted("the sign of args[1]", value(0.0), value(-0.0),
                 "[1, 2] * 0.0", "[0.0, 0.0]", "[1, 2] * -0.0", "[-0.0, -0.0]")
    yield parted("the type of args[1]", value(None), value(0),
                 "[[1, 2]].sum(None)", "3", "[[1, 2]].sum(0)", "[1, 2]")
    yield parted("the value of args[1]", value("sum"), value("mean"),
                 "f([1, 2], 'sum')", "3", "f([1, 2], 'mean')", "1.5")
    yield parted("the shape of args[1]", tensor(2), tensor(3),
                 "f(x, [1, 2])", "3", "f(x, [1, 2, 3])", "6")
    yield parted("the shape of args[1]", tensor(2, 3), tensor(3, 2),
                 "f(x, y of 2 x 3).shape", "(2, 3)", "f(x, y of 3 x 2).shape", "(3, 2)")
    yield parted("the dtype of args[1]", tensor(1), tensor(1, dtype="float32"),
                 "f(x, [1])", "[1]", "f(x, [1.0])", "[1.0], whose bits are 1065353216")
    yield parted("the device of args[1]", tensor(2), tensor(2, device="CUDA"),
                 "f(x, y on CPU)", "[1, 2]", "f(x, y on CUDA)", "[1, 2], in memory of CUDA")
    yield parted("the kind of args[1]", tensor(1), value(3),
                 "f(x, [3])", "[3]", "f(x, 3)", "[3], with no memory to read")
    yield parted("which object args[1] is", Part("object", value=Switch(2)),
                 Part("object", value=Switch(3)),
                 "f([1, 2], settings)", "[2, 4]", "f([1, 2], others)", "[3, 6]")
    yield parted("the name of args[1]", variable("n", 0, 4, 2), variable("m", 0, 4, 2),
                 "f(x, n.bind(2)), x of n elements", "2 elements",
                 "f(x, m.bind(2)), x of n elements", "n elements, and no n is given")
    yield parted("the greatest value of args[1]", variable("n", 0, 4, 2), variable("n", 0, 9, 2),
                 "f(x, n.bind(2)), n to 4", "2 elements, memory for 4",
                 "f(x, n.bind(2)), n to 9", "2 elements, memory for 9")
    yield parted("the least value of args[1]", variable("n", 0, 4, 2), variable("n", 2, 4, 2),
                 "f(x, n.bind(2)), n from 0", "n > 1 is asked", "f(x, n.bind(2)), n from 2",
                 "n > 1 is known")


def together() -> Iterator[tuple[str, Case]]:
    """Calls that are one recording, each with the rule that says so."""
    x = tensor(2)
    yield "caching.key.renaming", Case(
        "is the same but for the memory in which args[1] lies", {"args[0]": x, "args[1]": x},
        {"args[0]": x, "args[1]": tensor(2, memory=7)})
    yield "caching.key.circumstances", Case(
        "is the same but for the value that args[1] is bound to",
        {"args[0]": x, "args[1]": variable("n", 0, 4, 2)},
        {"args[0]": x, "args[1]": variable("n", 0, 4, 3)})
    for each in (2, 1.5, "sum", None, True, float("nan")):
        yield "caching.key.renaming", Case(
            "is the same", {"args[0]": x, "args[1]": value(each)},
            {"args[0]": x, "args[1]": value(each)})
    same = Switch(2)
    yield "caching.key.renaming", Case(
        "is the same", {"args[0]": Part("object", value=same)},
        {"args[0]": Part("object", value=same)})


Memory = dict[str, int]


def memories() -> Iterator[tuple[Memory, Memory, bool]]:
    """Which memory the tensors of two calls lie in, and whether the calls are one recording."""
    yield {}, {}, True
    yield {"args[0]": 1}, {"args[0]": 2}, True
    yield {"args[0]": 1, "args[1]": 2}, {"args[0]": 1, "args[1]": 1}, False
    yield {"args[0]": 1, "args[1]": 1}, {"args[0]": 1, "args[1]": 2}, False
    yield {"args[0]": 1, "args[1]": 2}, {"args[0]": 2, "args[1]": 1}, True
    yield {"args[0]": 4, "args[1]": 4}, {"args[0]": 7, "args[1]": 7}, True
    three = [{f"args[{place}]": number for place, number in enumerate(numbers)}
             for numbers in ((1, 2, 3), (1, 1, 2), (1, 2, 1), (2, 1, 1), (1, 1, 1))]
    yield from ((one, two, one is two) for one in three for two in three)
    for one in three:
        yield one, dict(reversed([(path, 9 - number) for path, number in one.items()])), True


def replay(module: ModuleType) -> Iterator[Counterexample]:
    """The first pair of calls that breaks each rule of the lesson on replay, of each function."""
    for of_function in (_described, _shared):
        met: set[str] = set()
        for found in of_function(module):
            if found.rule not in met:
                met.add(found.rule)
                yield found
            if "raised" in met:
                return


def _described(module: ModuleType) -> Iterator[Counterexample]:
    for case in apart():
        try:
            equal = _equal(module.describe, case)
        except Exception as error:  # any: it is the reader's own code
            yield raised(error, case.picture)
            return
        if equal:
            yield Counterexample("replay.arguments.form", f"the key does not see {case.what}: a "
                                 f"replay gives {case.shown[1]}", case.picture)
    for rule, case in together():
        try:
            equal = _equal(module.describe, case)
        except Exception as error:
            yield raised(error, case.picture)
            return
        if not equal:
            yield Counterexample(rule, f"the key is another one, though the call {case.what}",
                                 case.picture)


def _equal(describe: Any, case: Case) -> bool:
    return all(bool(describe(case.captured[path]) == describe(part))
               for path, part in case.now.items())


def _shared(module: ModuleType) -> Iterator[Counterexample]:
    for before, now, one in memories():
        drawn = f"captured {before or 'no tensors'}\nnow      {now or 'no tensors'}"
        try:
            equal = bool(module.aliases(dict(before)) == module.aliases(dict(now)))
        except Exception as error:
            yield raised(error, drawn)
            return
        if equal and not one:
            yield Counterexample("replay.arguments.form", "other tensors are one memory, and the "
                                 "key is the same: the kernels may write one before they read "
                                 "the other", drawn)
        if one and not equal:
            yield Counterexample("caching.key.renaming", "the same tensors are one memory, and "
                                 "the key is another one", drawn)


# In the runtime ----------------------------------------------------------------------------

_VALUES = ("bool", "int", "str", "bytes", "NoneType")


def part_of(described: Any) -> Part | None:
    """The part behind what the implementation notes of an argument; None for a container."""
    if not isinstance(described, tuple):
        return Part("object", value=described.value) if hasattr(described, "value") else None
    kind, *rest = described
    if kind == "Tensor" and len(rest) == 3:
        return Part("tensor", shape=rest[0], dtype=rest[1], device=rest[2])
    if kind == "Variable":
        name, low, high = rest[0]
        return Part("variable", name=name, low=low, high=high)
    if kind in _VALUES and len(rest) == 1 and not isinstance(rest[0], tuple):
        return Part("value", type=kind, value=rest[0])
    if kind == "float" and len(rest) == 1:
        return Part("value", type=kind, value=float(rest[0]))
    return None


def install(module: ModuleType) -> None:
    """Let the runtime ask the reader's functions whether a call fits its capture.

    What containers there are it compares itself, and it says how they differ.
    """
    differing, absent = module.differing, object()

    def seen(described: Any) -> Any:
        part = part_of(described)
        return described if part is None else module.describe(part)

    def differing_keys(old: dict[str, Any], new: dict[str, Any]) -> str:
        def differs(path: str) -> bool:
            one, two = old.get(path, absent), new.get(path, absent)
            if absent in (one, two):
                return True
            return bool(seen(one) != seen(two))

        paths = [path for path in {**old, **new} if differs(path)]
        found: str = differing({p: old[p] for p in paths if p in old},
                               {p: new[p] for p in paths if p in new})
        return found

    def aliases_of(leaves: dict[str, Any]) -> Any:
        memory = {path: leaf.arg[0].number for path, leaf in leaves.items()}
        found = module.aliases(memory)
        apart = module.aliases({path: place for place, path in enumerate(memory)})
        return None if bool(found == apart) else found  # a shortcut asks whether there are any

    module.__dict__.update(differing=differing_keys, aliases_of=aliases_of)


# The score ---------------------------------------------------------------------------------


def drawn(count: int) -> Iterator[Call]:
    """So many calls f(a, b), of which some come again in other memory or with another binding."""
    chooser = random.Random(count)

    def part(memory: int, name: str) -> Part:
        kind = chooser.randrange(3)
        if kind == 0:
            shape = chooser.choice(((2,), (3,), (2, 3), (3, 2)))
            return tensor(*shape, dtype=chooser.choice(("int32", "float32")), memory=memory)
        if kind == 1:
            return value(chooser.choice((1, 2, 1.0, 2.0, True, 0.0, -0.0, math.nan, None, "sum")))
        low, high = chooser.choice(((0, 4), (0, 9), (2, 9)))
        return variable(name, low, high, chooser.randrange(2, 5))

    for number in range(count):
        names = chooser.sample("nm", 2)
        one, other = (part(2 * number + place, names[place]) for place in range(2))
        same = one.kind == other.kind == "tensor" and chooser.random() < 0.5
        yield {"args[0]": one, "args[1]": one if same else other}


def _apart(keys: Iterable[Any]) -> int:
    """How many of them differ."""
    found: list[Any] = []
    for key in keys:
        if not any(bool(key == each) for each in found):
            found.append(key)
    return len(found)


def _theirs(module: ModuleType, call: Call) -> Any:
    """What the reader's functions make of a call."""
    memory = {path: part.memory for path, part in call.items() if part.kind == "tensor"}
    return [module.describe(part) for part in call.values()], module.aliases(memory)


def _ours(call: Call) -> Any:
    """What the implementation notes of a call with real arguments."""
    import numpy as np

    from impl import Tensor, Variable
    from impl.replay import arguments

    made: dict[int, Any] = {}
    for part in call.values():
        if part.kind == "tensor":
            made[id(part)] = Tensor(np.zeros(part.shape, part.dtype))
        elif part.kind == "variable":
            made[id(part)] = Variable(part.name, part.low, part.high).bind(part.value)
        else:
            made[id(part)] = part.value
    given = tuple(made[id(part)] for part in call.values())
    return arguments.take_apart((given, {})).signature


def _right(call: Call) -> Any:
    """By definition: no memory and no binding, and numbers as texts."""
    parts = [part._replace(memory=0, value="" if part.kind == "variable" else repr(part.value))
             for part in call.values()]
    return parts, call["args[0]"] is call["args[1]"]


def score(module: ModuleType) -> Iterator[str]:
    """How many recordings some calls take."""
    calls = list(drawn(300))
    yours, ours, least = (_apart(map(key, calls)) for key in (
        lambda call: _theirs(module, call), _ours, _right))
    yield f"300 calls: {yours} recordings with your key, {ours} with ours, at least {least}"


HEADS = '''
def describe(part):
    """What of one argument belongs into the key: anything that can be compared by ==."""
    raise NotImplementedError


def aliases(memory):
    """What of {path: number of its memory}, of all tensors of a call, belongs into the key."""
    raise NotImplementedError
'''

REPLAY = Lesson(
    module="replay.arguments",
    chapters=("replay", "caching"),
    functions=("describe", "aliases"),
    names="""\
An argument is a part. It says what it is:
    part.kind             "tensor", "value", "variable" or "object"
and, as far as it has them,
    part.shape, part.dtype, part.device, part.memory      of a tensor
    part.type, part.value                                 of a value: "int" and 3, "str" and "sum"
    part.name, part.low, part.high, part.value            of a bound variable
    part.value                                            of an object: the object. Of what it does
                                                          nothing is known: only that very object
                                                          is the same
A call is replayed if its key equals that of the call that was captured: `describe` of every
argument, and `aliases` of all tensors.""",
    heads=HEADS,
    install=install,
    rules=("replay.arguments.form", "replay.arguments.call", "replay.sizes.follow",
           "caching.key.renaming", "caching.key.circumstances"),
    hints=(
        "Ask of everything that a part has: is it built into the kernels, or is it put in at each "
        "call? What is built in belongs into the key, and what is put in does not.",
        "Shape, dtype and device are built in. So is a Python value: it is a constant in a "
        "kernel's text. Memory is put in, and so is what a variable is bound to.",
        "1, 1.0 and True are equal in Python, and 0.0 and -0.0 are; NaN does not equal itself. "
        "The name of the type tells the first three apart, and repr() does the others.",
        "Of an object nobody knows what the function does with it. It is the same if it is that "
        "very object: compare id(part.value). (Who keeps ids has to keep the objects alive; the "
        "runtime does.)",
        "The name and the interval of a variable are in the key, as in the plan's.",
        "aliases: which paths are together in one memory. The numbers themselves are other ones in "
        "each call. Make groups of paths, and sort them."),
    counterexamples=replay, number=19, score=score)
