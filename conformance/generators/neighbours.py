"""Programs that differ from a given one in one thing only: what a cache has to tell apart.

Whoever keeps plans finds them by a key. What the key leaves out shows when a program runs after a
neighbour of it in the same process: it is answered with the plan of the other.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from copy import deepcopy
from typing import Any

from conformance import protocol
from conformance.protocol import Program, Statement, shapes

#: Statements with the same operands and a result of the same kind.
ALIKE = (("add", "sub", "mul", "maximum", "minimum"), ("less", "less_equal", "equal"),
         ("and", "or", "xor"), ("sum", "prod", "max", "min"), ("neg", "abs", "relu"),
         ("exp", "sin", "tanh"), ("copy", "contiguous"), ("div", "pow"), ("floordiv", "mod"))
#: Dtypes of one size, or nearly.
DTYPES = {"float32": "int32", "int32": "uint32", "float64": "int64", "int8": "uint8",
          "float16": "float32", "uint32": "int32", "int64": "uint64", "bool": "uint8"}


def neighbours(program: Program) -> Iterator[tuple[str, Program]]:
    """Well-formed programs with one thing about one statement changed, and what that is."""
    seen = {json.dumps(program["statements"], sort_keys=True)}
    for index, statement in enumerate(program["statements"]):
        for what, changed in (*((what, [each]) for what, each in _changed(statement)),
                              *_exchanged(program["statements"][index:index + 2])):
            statements = [*program["statements"][:index], *changed,
                          *program["statements"][index + len(changed):]]
            text = json.dumps(statements, sort_keys=True)
            if text not in seen and _means_something(statements):
                seen.add(text)
                yield what, {**program, "statements": deepcopy(statements)}


def _means_something(statements: list[Statement]) -> bool:
    kinds: shapes.Kinds = {}
    try:
        for statement in statements:
            shapes.step(statement, kinds)
        shapes.check_program(protocol.program(statements))
    except (shapes.ProgramError, ValueError, IndexError, KeyError):
        return False
    return True


def _exchanged(both: list[Statement]) -> Iterator[tuple[str, list[Statement]]]:
    """A movement and another one of its result, in the other order."""
    if len(both) == 2 and all(each["do"] in protocol.MOVEMENT for each in both) \
            and both[1]["from"] == [both[0].get("to")]:
        names = [{key: each[key] for key in ("to", "from")} for each in both]
        yield (f"{both[0]['do']} after {both[1]['do']}",
               [{**other, **name} for other, name in zip(both[::-1], names, strict=True)])


def _changed(statement: Statement) -> Iterator[tuple[str, Statement]]:
    """What is changed about a statement, and the changed one; some of these mean nothing."""
    do = statement["do"]
    for group in ALIKE:
        yield from ((f"{do} {other}", {**statement, "do": other})
                    for other in group if do in group and other != do)
    sources = statement.get("from", ())
    for place in range(len(sources) - 1):
        swapped = list(sources)
        swapped[place:place + 2] = swapped[place + 1], swapped[place]
        yield f"{do} swapped {place}", {**statement, "from": swapped}
        twice = [*sources[:place], sources[place + 1], *sources[place + 1:]]
        yield f"{do} twice {place}", {**statement, "from": twice}
    for field, vary in VARIED.items():
        if field in statement:
            zero = " of no number" * isinstance(statement[field], str) or \
                " of zero" * (statement[field] == 0.0)  # whose sign is a thing of its own
            kind = statement.get("dtype", "")  # a double has digits that a single has not
            yield from ((f"{do} {field}{zero} {number} {kind}", {**statement, field: value})
                        for number, value in enumerate(vary(statement[field])))
    view = statement.get("view", ())
    for number in range(len(view) - 1):
        other = [*view[:number], view[number + 1], view[number], *view[number + 2:]]
        yield (f"{do} {view[number]['do']} after {view[number + 1]['do']}",
               {**statement, "view": other})
    for number, step in enumerate(view):
        yield from ((f"{do} {number} {what}",
                     {**statement, "view": [*view[:number], other, *view[number + 1:]]})
                    for what, other in _changed(step))


def _numbers(value: Any) -> Iterator[Any]:
    """Another digit far behind, another sign, another that is no number."""
    if isinstance(value, str):
        yield from (each for each in ("nan", "inf", "-inf") if each != value)
    elif isinstance(value, bool):
        yield not value
    elif isinstance(value, float):
        yield from (value * (1 + 2**-20), -value, value * (1 + 2**-40))
        if value == 0:
            yield -value
    elif isinstance(value, int):
        yield from (value + 1, -value, value + 256, value + 2**16)


def _pairs(value: list[list[int]]) -> Iterator[list[list[int]]]:
    """Bounds and widths: each moved along, made longer or shorter, and exchanged."""
    for place, (first, second) in enumerate(value):
        for pair in ([first - 1, second - 1], [first + 1, second + 1], [first + 1, second],
                     [second, first]):
            if min(pair) >= 0:
                yield [*value[:place], pair, *value[place + 1:]]
    yield value[::-1]


def _orders(value: list[int]) -> Iterator[list[int]]:
    yield value[::-1]
    yield [*value[1:], *value[:1]]


def _axes(value: list[int]) -> Iterator[list[int]]:
    yield [axis + 1 for axis in value]
    yield [axis - 1 for axis in value if axis]
    yield value[:1]


def _steps(value: list[int]) -> Iterator[list[int]]:
    yield value[::-1]
    yield from ([*value[:place], step + 1, *value[place + 1:]] for place, step in enumerate(value))


VARIED: dict[str, Any] = {
    "value": _numbers, "bounds": _pairs, "widths": _pairs, "order": _orders, "axes": _axes,
    "steps": _steps, "shape": lambda value: [value[::-1], [*value[1:], *value[:1]]],
    "axis": lambda value: [value + 1, max(value - 1, 0)],
    "keepdims": lambda value: [not value],
    "dtype": lambda value: [DTYPES[value]] if value in DTYPES else []}


def held(program: Program) -> Iterator[Program]:
    """The program with all dropped that it does not observe, and with one of that kept.

    What is kept is observed with the rest, or after it.
    """
    *statements, last = program["statements"]
    names = list(dict.fromkeys(each["to"] for each in statements if "to" in each))
    between = [name for name in names if name not in last["names"]]

    def dropping(kept: list[str]) -> list[Statement]:
        gone = [name for name in between if name not in kept]
        return [{"do": "drop", "names": gone}] if gone else []

    yield {**program, "statements": [*statements, *dropping([]), last]}
    for name in between:
        later: Statement = {"do": "observe", "names": [name]}
        yield {**program, "statements": [*statements, *dropping([name]), last, later]}
        yield {**program, "statements": [
            *statements, *dropping([name]), {**last, "names": [*last["names"], name]}]}


def lengthened(program: Program) -> Iterator[Program]:
    """The program with long names that differ in their last letter, and those exchanged."""
    names = sorted({each["to"] for each in program["statements"] if "to" in each})
    long = {name: f"{'a' * 70}{number}" for number, name in enumerate(names)}
    turned = dict(zip(names, [*list(long.values())[1:], *list(long.values())[:1]], strict=True))
    for table in (long, turned):
        statements = deepcopy(program["statements"])
        for each in statements:
            for field in {"to", "target"} & set(each):
                each[field] = table[each[field]]
            for field in {"from", "names"} & set(each):
                each[field] = [table[name] for name in each[field]]
        yield {**program, "statements": statements}
