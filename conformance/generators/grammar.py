"""Every statement after every other one, on every kind of value: programs, and what they cover.

A *cell* is a combination that an implementation may get wrong by itself: a statement that reads
what another one made (`after`), a statement on a dtype, on a number of axes, on a number of
elements, on a value that waits, is in memory, or was written to, and a statement in a body that is
captured. `CELLS` are all that mean something, `cells` those of a program, `stars` programs with
all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import cache
from math import prod
from typing import Any

import numpy as np

from conformance import protocol
from conformance.generators.programs import Draft, movement
from conformance.protocol import DTYPES, FLOATS, INTEGERS, Program, Statement, shapes
from conformance.protocol.shapes import Kind, Kinds

#: What a cell is about, the statement, and the other thing: `("after", "sum", "permute")`.
Cell = tuple[str, str, str]

ALONG = ("softmax", "cumsum")
#: Statements with a value that are read of one device, without derivatives.
READERS = (*protocol.UNARY, *protocol.BINARY, *protocol.MOVEMENT, *protocol.REDUCTIONS, "where",
           "cast", "bitcast", "matmul", *ALONG, "gather", "contiguous", "copy")
MAKERS = ("input", "constant", *READERS, "assign", "store")
#: Names of how many elements there are: powers of two and their multiples are another matter than
#: what they leave over.
SIZES: dict[str, Callable[[int], bool]] = {
    "none": lambda n: n == 0, "one": lambda n: n == 1, "few": lambda n: 1 < n < 16,
    "whole sixteens": lambda n: 16 <= n < 256 and n % 16 == 0,
    "some left over": lambda n: 16 < n < 256 and n % 16 != 0,
    "many": lambda n: n >= 256}
STATES = ("it waits", "it is in memory", "it was written to")
BODY = "in a body"
#: For each number of axes shapes of different sizes; the first two axes of some are a square.
SHAPES: dict[int, tuple[tuple[int, ...], ...]] = {
    0: ((),), 1: ((5,), (16,), (17,), (1,), (0,), (256,)),
    2: ((3, 4), (4, 4), (5, 7), (1, 1), (0, 3), (16, 17)),
    3: ((2, 3, 2), (2, 2, 4), (3, 3, 3), (1, 1, 1), (2, 0, 3), (4, 8, 9)),
    4: ((1, 2, 2, 3), (2, 2, 2, 2), (3, 1, 3, 2), (2, 2, 0, 1), (3, 4, 4, 6)),
    5: ((1, 2, 1, 3, 1), (2, 2, 1, 2, 2), (1, 3, 2, 1, 3), (2, 0, 1, 2, 1), (2, 3, 3, 4, 4)),
    6: ((1, 2, 1, 2, 1, 3), (2, 2, 1, 2, 2, 1), (1, 3, 1, 2, 3, 1), (1, 0, 2, 1, 1, 1),
        (2, 4, 2, 2, 3, 3))}
RANKS = tuple(SHAPES)


def operands(do: str) -> tuple[str, ...]:
    """The dtypes of what a statement reads first."""
    if do == "bitcast":
        return (*INTEGERS, *FLOATS)
    return tuple(dtype for dtype in DTYPES if shapes._allows(do, dtype))


def results(do: str) -> tuple[str, ...]:
    """The dtypes of what a statement makes."""
    return ("bool",) if do in protocol.COMPARISONS else operands(do)


def fits(do: str, shape: Sequence[int]) -> bool:
    """Whether a statement means something on a shape."""
    rank = len(shape)
    if do == "gather":
        return rank > 0 and shape[0] > 0
    least = 2 if do == "matmul" else 1 if do in (*ALONG, "permute", "flip", "pad", "shrink",
                                                 "stride", "expand") else 0
    return rank >= least and not (do in ("max", "min") and 0 in shape)


def _size(count: int) -> str:
    return next(name for name, holds in SIZES.items() if holds(count))


@cache
def wanted() -> frozenset[Cell]:
    """All cells that mean something."""
    found: set[Cell] = set()
    for do in READERS:
        mine = operands(do)
        found |= {("after", do, maker) for maker in MAKERS if set(mine) & set(results(maker))}
        found |= {("dtype", do, dtype) for dtype in mine}
        usable = [shape for each in SHAPES.values() for shape in each if fits(do, shape)]
        found |= {("axes", do, str(len(shape))) for shape in usable}
        found |= {("elements", do, _size(prod(shape))) for shape in usable}
        found |= {("state", do, state) for state in STATES} | {("state", do, BODY)}
    for do in ("assign", "store"):
        found |= {(f"{do} {role}", maker, "") for maker in MAKERS for role in ("to", "of")}
    return frozenset(found)


def cells(program: Program) -> set[Cell]:
    """The cells of a program; of one that means nothing, those up to where that shows."""
    found: set[Cell] = set()
    try:
        _walk(program["statements"], {}, {}, {}, found, inside=False)
    except (shapes.ProgramError, KeyError, IndexError):
        pass
    return found


def _walk(statements: Iterable[Statement], kinds: Kinds, makers: dict[str, str],
          states: dict[str, str], found: set[Cell], inside: bool) -> None:
    for statement in statements:
        do = statement["do"]
        if do in protocol.REPETITIONS:
            for body in list(protocol.calls(statement))[:1]:
                _walk(body, kinds, makers, states, found, inside=True)
            continue
        for name in statement.get("names", ()):
            if do in ("realize", "observe") and states.get(name) == STATES[0]:
                states[name] = STATES[1]
        sources = statement.get("from", ())
        if do in ("assign", "store"):
            target = statement["target"]
            found |= {(f"{do} to", makers.get(target, ""), ""),
                      (f"{do} of", makers.get(sources[0], ""), "")}
            makers[target], states[target] = do, STATES[2]
        elif do in READERS:
            first = kinds[sources[1 if do == "where" else 0]]
            found |= {("after", do, makers[name]) for name in sources if name in makers}
            found |= {("state", do, BODY if inside else states[name]) for name in sources}
            found |= {("dtype", do, first.dtype), ("axes", do, str(len(first.shape))),
                      ("elements", do, _size(prod(first.shape)))}
        shapes.step(statement, kinds)
        if "to" in statement:
            makers[statement["to"]], states[statement["to"]] = do, STATES[0]


# Programs ------------------------------------------------------------------------------------


class _Star:
    """A value, made by one statement, and all that others make of it."""

    def __init__(self, turn: int) -> None:
        self.draft, self.turn = Draft(), turn
        self.given: dict[tuple[Kind, int], str] = {}

    def input(self, kind: Kind, seed: int = 0) -> str:
        """An input: numbers from -5 to 5 whose order has no pattern, of floats quarters too."""
        if (kind, seed) not in self.given:
            random = np.random.default_rng(self.turn + 100 * seed)
            numbers = random.integers(-5, 6, kind.shape)
            array = numbers % 2 == 0 if kind.dtype == "bool" else \
                (numbers / 4 if kind.dtype in FLOATS else
                 np.abs(numbers) if kind.dtype.startswith("u") else numbers).astype(kind.dtype)
            self.given[kind, seed] = self.draft.add(
                "input", dtype=kind.dtype, shape=list(kind.shape), data=protocol.encode(array))
        return self.given[kind, seed]

    def made(self, do: str, source: str, turn: int) -> str:
        """The statement, on this source and whatever else it needs; "" where it means nothing."""
        draft, kind = self.draft, self.draft.kinds[source]
        if kind.dtype not in operands(do) or not fits(do, kind.shape):
            return ""
        if do in protocol.BINARY:
            other = draft.constant(kind, (2, 3, 1, 0.5)[turn % 4]) if do == "pow" else \
                self.input(kind, 1)
            both = (other, source) if turn % 2 and do != "pow" else (source, other)
            return draft.add(do, *both)
        if do == "where":
            if kind.dtype == "bool" and turn % 2:
                branches = [self.input(Kind("float32", kind.shape), seed) for seed in (1, 2)]
                return draft.add(do, source, *branches)
            condition = self.input(Kind("bool", kind.shape))
            both = (self.input(kind, 2), source)
            return draft.add(do, condition, *(both if turn % 2 else both[::-1]))
        if do in ("cast", "bitcast"):
            others = [dtype for dtype in DTYPES if dtype != kind.dtype and (
                do == "cast" or dtype != "bool"
                and protocol.itemsize(dtype) == protocol.itemsize(kind.dtype))]
            return draft.add(do, source, dtype=others[turn % len(others)])
        return self._along_axes(do, source, turn)

    def _along_axes(self, do: str, source: str, turn: int) -> str:
        draft, kind = self.draft, self.draft.kinds[source]
        shape, rank = kind.shape, len(kind.shape)
        if do in protocol.MOVEMENT:
            step = movement(do, shape, 5 * turn + 2)  # of several axes, most often
            fields = {key: value for key, value in step.items() if key != "do"}
            return draft.add(do, source, **fields) if step else ""
        if do in protocol.REDUCTIONS:
            axes = [axis for axis in range(rank) if (turn + 1) >> axis & 1] or list(range(rank))
            return draft.add(do, source, axes=axes, keepdims=turn % 2 == 0)
        if do in ALONG:
            return draft.add(do, source, axis=turn % rank)
        if do == "matmul":
            columns = (1, 3, 16, 5)[turn % 4]
            right = self.input(Kind(kind.dtype, (*shape[:-2], shape[-1], columns)), 3)
            return draft.add(do, source, right)
        if do == "gather":
            places = np.arange(2 * (1 + turn % 3)).reshape(2, -1) * 3 % shape[0]
            return draft.add(do, source, draft.add(
                "input", dtype="int32", shape=list(places.shape),
                data=protocol.encode(places.astype(np.int32))))
        return draft.add(do, source)

    def center(self, maker: str, kind: Kind) -> str:
        """A value made by a statement from a value of this kind; "" where there is none."""
        if maker == "input":
            return self.input(kind)
        if maker == "constant":
            return self.draft.constant(kind, True if kind.dtype == "bool" else 3)
        if maker not in ("assign", "store"):
            return self.made(maker, self.input(kind), self.turn)
        target = self.draft.add("contiguous", self.input(kind))
        self.write(maker, target, self.input(kind, 1))
        return target

    def write(self, do: str, target: str, value: str) -> None:
        """All elements are written to; by a store from the end to the beginning."""
        axes = [axis for axis, size in enumerate(self.draft.kinds[target].shape) if size > 1]
        view = {"view": [{"do": "flip", "axes": axes}] if axes else []} if do == "store" else {}
        self.draft.append({"do": do, "target": target, **view, "from": [value]})

    def finished(self, *names: str) -> Program:
        self.draft.append({"do": "observe", "names": list(names)})
        return protocol.program(self.draft.statements)


def _kinds(maker: str) -> Iterator[Kind]:
    """Kinds that a statement may be given, all dtypes, ranks and sizes in turn."""
    start = MAKERS.index(maker)
    mine = operands(maker)
    for turn in range(len(mine)):
        for rank in RANKS:
            rank = RANKS[(rank + start + 2 * turn) % len(RANKS)]
            choice = SHAPES[rank][(start + 3 * turn) % len(SHAPES[rank])]
            if fits(maker, choice):
                yield Kind(mine[(turn + start) % len(mine)], choice)
                break


def stars() -> Iterator[tuple[str, Program]]:
    """A value of each maker and of each dtype, and what all readers make of it."""
    missing = set(wanted())
    for turn in range(max(len(operands(maker)) for maker in MAKERS)):
        for place, maker in enumerate(MAKERS):
            kinds = list(_kinds(maker))
            if turn < len(kinds):
                for name, program in _of(maker, kinds[turn], turn * len(MAKERS) + place):
                    new = cells(program) & missing
                    if new:
                        missing -= new
                        yield name, program


def _of(maker: str, kind: Kind, turn: int) -> Iterator[tuple[str, Program]]:
    name = f"{maker} of {kind.dtype} {list(kind.shape)}"
    star = _Star(turn)
    center = star.center(maker, kind)
    if not center:
        return
    if turn % 3 == 1 and maker not in ("assign", "store"):
        star.draft.append({"do": "realize", "names": [center]})
    made = [star.made(do, center, turn + number) for number, do in enumerate(READERS)]
    program = star.finished(center, *(each for each in made if each))
    yield name, program
    if turn % 4 == 3:
        yield f"{name}, repeated", _repeated(program)
    star, first = _Star(turn), kind
    center = star.center(maker, first)
    kind = star.draft.kinds[center]
    other = star.made("copy", center, 0) if maker == "input" else star.center(maker, first)
    targets = [star.draft.add("contiguous", star.input(kind, seed)) for seed in (1, 4)]
    readers = [star.draft.add("copy", each) for each in (center, *targets)]
    ways = ("assign", "store")
    for do, target in zip(ways, targets, strict=True):
        star.write(do, target, center)
    for do, changed in zip(ways, (center, other), strict=True):
        star.write(do, changed, star.input(kind, 5))
    yield f"{name}, written to", star.finished(*targets, center, other, *readers)


def _repeated(program: Program) -> Program:
    """The program as the body of three calls; its inputs are made before them."""
    *rest, _ = program["statements"]
    before = [each for each in rest if each["do"] == "input"]
    body = [each for each in rest if each["do"] not in ("input", "realize")]
    names = [each["to"] for each in body if "to" in each]
    body.append({"do": "observe", "names": names})
    realize: Statement = {"do": "realize", "names": [each["to"] for each in before]}
    repeat: Statement = {"do": "repeat", "count": 3, "statements": body}
    return protocol.program([*before, realize, repeat])


def share(found: Collection[Cell], statements: Collection[str] = protocol.STATEMENTS,
          dtypes: Collection[str] = DTYPES) -> dict[str, Any]:
    """How many cells there are of these statements and dtypes, how many were met, which were not.
    """
    unused = {*protocol.STATEMENTS, *DTYPES} - {*statements, *dtypes}
    repeats = bool({*protocol.REPETITIONS} - unused)
    mine = {cell for cell in wanted() if unused.isdisjoint((*cell, *cell[0].split()))
            and (repeats or cell[2] != BODY)}
    missing = sorted(mine - {*found})
    return {"cells": len(mine), "met": len(mine) - len(missing),
            "missing": [" ".join(filter(None, cell)) for cell in missing]}
