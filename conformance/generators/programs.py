"""Programs to test with: generated ones, and the committed witnesses of bugs that were seen.

A generated program is made of a list of *choices*, small tuples (kind, i, j, k).  Each choice
becomes a statement; what it refers to is found by modulo among what exists, so that every list
of choices is a well-formed program and so is every part of it.  This is what makes a failing
program shrink well: leaving out a choice leaves a program.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Sequence
from copy import deepcopy
from itertools import permutations
from math import prod
from pathlib import Path
from random import Random
from time import monotonic
from typing import Any

import numpy as np

from conformance import protocol
from conformance.protocol import Array, Program, Statement, shapes
from conformance.protocol.shapes import Kind, Kinds

Choice = tuple[int, int, int, int]

LARGEST_REFERENCE = 63
MOST_ELEMENTS = 600
SHAPES: tuple[tuple[int, ...], ...] = (
    (4,), (2, 3), (), (5,), (3, 4), (2, 2, 3), (1,), (8,), (4, 4), (0,), (1, 3), (3, 1), (2, 0),
    (17,), (1, 1), (2, 3, 4), (64,), (0, 3), (16, 16), (3, 5, 7), (1, 2, 1, 3, 1), (300,),
    (2, 1, 3, 2, 2))
INPUT_DTYPES = ("float32", "int32", "float32", "int8", "float32", "uint8", "float16", "bool",
                "int64", "float64", "uint16", "int16", "uint32", "uint64")
FACTORS = (1, 2, 3, 5, 0)


class Draft:
    """A program being written: the statements so far and what is alive after them."""

    def __init__(self) -> None:
        self.statements: list[Statement] = []
        self.kinds: Kinds = {}
        self._count = 0

    def add(self, do: str, *sources: str, **fields: Any) -> str:
        """Append an expression statement and answer the name of its result."""
        name = f"t{self._count}"
        self._count += 1
        statement: Statement = {"do": do, "to": name}
        if sources:
            statement["from"] = list(sources)
        self.append({**statement, **fields})
        return name

    def append(self, statement: Statement) -> None:
        """Append a statement that is known to be well formed."""
        shapes.step(statement, self.kinds)
        self.statements.append(statement)

    def pick(self, reference: int) -> str:
        """A variable, the most recent one for reference 0."""
        names = list(self.kinds)
        return names[-1 - reference % len(names)]

    def like(self, name: str, reference: int) -> str:
        """A variable of the same kind as another one, after a cast where there is need."""
        kind = self.kinds[name]
        fitting = [each for each, other in self.kinds.items() if other.shape == kind.shape]
        chosen = fitting[-1 - reference % len(fitting)]
        if self.kinds[chosen].dtype == kind.dtype:
            return chosen
        return self.add("cast", chosen, dtype=kind.dtype)

    def of_dtype(self, name: str, allowed: Sequence[str]) -> str:
        """The variable, cast to the first of the allowed dtypes unless it has one of them."""
        if self.kinds[name].dtype in allowed:
            return name
        return self.add("cast", name, dtype=allowed[0])

    def constant(self, kind: Kind, value: Any) -> str:
        return self.add("constant", dtype=kind.dtype, shape=list(kind.shape), value=value)


# What a choice becomes ---------------------------------------------------------------------


def _input(draft: Draft, i: int, j: int, k: int) -> None:
    shape = SHAPES[i % len(SHAPES)]
    array = pattern(INPUT_DTYPES[j % len(INPUT_DTYPES)], shape, k)
    draft.add("input", dtype=array.dtype.name, shape=list(shape), data=protocol.encode(array))


def pattern(dtype: str, shape: tuple[int, ...], seed: int) -> Array:
    """Input data: small numbers on a coarse grid, so that sums are exact; sometimes specials."""
    count = prod(shape)
    places = np.arange(count)
    numbers = (places * (2 * (seed % 7) + 3) + seed) % 23 - 11
    if dtype == "bool":
        array = numbers % 3 == 0
    elif dtype in protocol.FLOATS:
        array = numbers / (1, 2, 4, 1)[seed % 4]
    else:
        scale = (1, 1, 13, 100)[seed % 4]
        array = numbers * scale
    result = array.astype(dtype) if dtype != "uint64" else array.astype(np.int64).astype(dtype)
    if dtype in protocol.FLOATS and seed % 11 == 10 and count:
        specials = np.array([np.nan, np.inf, -np.inf, -0.0], dtype)
        result[seed % count:: 5] = specials[seed // 11 % 4]
    return result.reshape(shape)


def _constant(draft: Draft, i: int, j: int, k: int) -> None:
    kind = draft.kinds[draft.pick(i)]
    values: tuple[Any, ...] = (0, 1, 2, 3)
    if kind.dtype in protocol.FLOATS:
        values = (0, 1, -1, 2, 0.5, "nan", "inf", -3)
    elif kind.dtype == "bool":
        values = (True, False)
    elif kind.dtype.startswith("int"):
        values = (0, 1, -1, 2, -3, 7, 100)
    draft.constant(kind, values[j % len(values)])


def _unary(draft: Draft, i: int, j: int, k: int) -> None:
    do = protocol.UNARY[i % len(protocol.UNARY)]
    source = draft.of_dtype(draft.pick(j), _allowed(do))
    draft.add(do, source)


def _binary(draft: Draft, i: int, j: int, k: int) -> None:
    # The plain ones more often than the others.
    names = ("add", "mul", "sub", "maximum", "minimum", "add", *protocol.BINARY)
    do = names[i % len(names)]
    left = draft.of_dtype(draft.pick(j), _allowed(do))
    right = draft.like(left, k)
    if do == "pow":
        # Powers with an arbitrary exponent say little: nearly all of them are open or NaN.
        right = draft.constant(draft.kinds[left], (2, 0, 1, 3, 0.5, -1)[k % 6])
    draft.add(do, left, right)


def _between(draft: Draft, i: int, j: int, k: int) -> None:
    """Whether a value lies between two numbers, or outside; some limits exclude each other."""
    value = draft.of_dtype(draft.pick(i), (*protocol.FLOATS, *protocol.INTEGERS))
    kind = draft.kinds[value]
    if kind.dtype in protocol.FLOATS:  # between two whole numbers there are others
        value = draft.add("mul", value, draft.constant(kind, 0.25))
    low = (0, 1, -1, 2)[j % 4] if not kind.dtype.startswith("uint") else j % 4
    low_end, high_end = (draft.constant(kind, n) for n in (low, low + (1, 1, 2, 0)[j // 4 % 4]))
    pairs = [(low_end, value), (value, high_end)]
    answers = [draft.add("less_equal" if k // 4 % 4 == turn else "less",
                         *(pair if k % 4 else pair[::-1])) for turn, pair in enumerate(pairs)]
    draft.add("and" if k < 48 else "or", *answers)


def _allowed(do: str) -> tuple[str, ...]:
    """The dtypes that an operation is defined for, the one to cast to first."""
    if do in (*protocol.FLOAT_UNARY, "div", "pow", "mean", "softmax"):
        return ("float32", "float64", "float16")
    if do in ("floordiv", "mod"):
        return ("int32", *protocol.INTEGERS)
    if do in (*protocol.BITWISE, "not"):
        return ("int32", "bool", *protocol.INTEGERS)
    if do in (*protocol.COMPARISONS, "maximum", "minimum", "max", "min"):
        return protocol.DTYPES
    return ("int32", *protocol.INTEGERS, *protocol.FLOATS)


def _where(draft: Draft, i: int, j: int, k: int) -> None:
    first = draft.pick(i)
    second = draft.like(first, j)
    conditions = [name for name, kind in draft.kinds.items()
                  if kind == Kind("bool", draft.kinds[first].shape)]
    condition = conditions[k % len(conditions)] if conditions else draft.add("less", first, second)
    draft.add("where", condition, first, second)


def _cast(draft: Draft, i: int, j: int, k: int) -> None:
    draft.add("cast", draft.pick(i), dtype=INPUT_DTYPES[j % len(INPUT_DTYPES)])


def _movement(draft: Draft, i: int, j: int, k: int) -> None:
    source = draft.pick(j)
    do = protocol.MOVEMENT[i % len(protocol.MOVEMENT)]
    move = movement(do, draft.kinds[source].shape, k)
    if move and prod(shapes.moved(move, draft.kinds[source].shape)) <= MOST_ELEMENTS:
        draft.add(do, source, **{key: value for key, value in move.items() if key != "do"})


def movement(do: str, shape: tuple[int, ...], k: int) -> Statement:
    """One movement of a shape, chosen by k; {} where this shape has none of this sort."""
    rank = len(shape)
    if do == "reshape":
        return {"do": do, "shape": _reshaped(shape, k)}
    if rank == 0:
        return {}
    if do == "permute":
        orders = list(permutations(range(rank)))
        return {"do": do, "order": list(orders[k % len(orders)])}
    if do == "flip":
        chosen = k % (2 ** rank - 1) + 1
        return {"do": do, "axes": [axis for axis in range(rank) if chosen >> axis & 1]}
    if do == "expand":
        return {"do": do, "shape": [FACTORS[(k + place) % 4] if size == 1 else size
                                    for place, size in enumerate(shape)]}
    # One axis, or, for every third k, all of them, each in its own way.
    choices = {place: k // 3 + 5 * place for place in range(rank)} if k % 3 == 2 else \
        {k % rank: k // rank}
    changed = [choices.get(place, -1) for place in range(rank)]
    if do == "pad":
        return {"do": do, "widths": [[0, 0] if each < 0 else [each % 3, each // 3 % 3]
                                     for each in changed]}
    if do == "stride":
        return {"do": do, "steps": [1 if each < 0 else 2 + each % 2 for each in changed]}
    return {"do": do, "bounds": [[0, size] if each < 0 else _bounds(size, each)
                                 for size, each in zip(shape, changed, strict=True)]}


def _bounds(size: int, choice: int) -> list[int]:
    """Half, the rest, all but the first, all but the last, one element, or none."""
    half = size // 2
    options = ([0, half], [half, size], [min(1, size), size], [0, max(size - 1, 0)],
               [half, min(half + 1, size)], [0, size], [half, half])
    return list(options[choice % len(options)])


def _reshaped(shape: tuple[int, ...], k: int) -> list[int]:
    count = prod(shape)
    options: list[list[int]] = [[count], [1, *shape], [*shape, 1]]
    if len(shape) > 1:
        options.append([shape[0] * shape[1], *shape[2:]])
    if count:
        options += [[factor, count // factor] for factor in (2, 3, 4) if count % factor == 0]
        options += [[size for size in shape if size != 1]]
    return options[k % len(options)]


def _reduction(draft: Draft, i: int, j: int, k: int) -> None:
    do = protocol.REDUCTIONS[i % len(protocol.REDUCTIONS)]
    source = draft.of_dtype(draft.pick(j), _allowed(do))
    shape = draft.kinds[source].shape
    axes = [[k % len(shape)], list(range(len(shape))), []][k // 4 % 3] if shape else []
    if do in ("max", "min") and any(shape[axis] == 0 for axis in axes):
        return
    draft.add(do, source, axes=axes, keepdims=k % 2 == 1)


def _product(draft: Draft, i: int, j: int, k: int) -> None:
    left = draft.of_dtype(draft.pick(i), _allowed("matmul"))
    shape = draft.kinds[left].shape
    if len(shape) < 2:
        return
    fitting = [name for name, kind in draft.kinds.items()
               if len(kind.shape) == len(shape) and kind.shape[:-2] == shape[:-2]
               and kind.shape[-2] == shape[-1] and kind.dtype == draft.kinds[left].dtype]
    if fitting:
        right = fitting[j % len(fitting)]
    else:
        order = [*range(len(shape) - 2), len(shape) - 1, len(shape) - 2]
        right = draft.add("permute", left, order=order)
    draft.add("matmul", left, right)


def _along(draft: Draft, i: int, j: int, k: int) -> None:
    do = ("softmax", "cumsum")[i % 2]
    source = draft.of_dtype(draft.pick(j), _allowed(do))
    rank = len(draft.kinds[source].shape)
    if rank:
        draft.add(do, source, axis=k % rank)


def _gather(draft: Draft, i: int, j: int, k: int) -> None:
    source = draft.pick(i)
    shape = draft.kinds[source].shape
    if not shape or not 0 < shape[0] < 128:
        return
    index = draft.of_dtype(draft.pick(j), ("int32", *protocol.INTEGERS))
    kind = draft.kinds[index]
    if prod(kind.shape) * prod(shape[1:]) <= MOST_ELEMENTS:
        # Indices are in range in every program: the remainder makes them so.
        inside = draft.add("mod", index, draft.constant(kind, shape[0]))
        draft.add("gather", source, inside)


def _boundary(draft: Draft, i: int, j: int, k: int) -> None:
    draft.add(("contiguous", "copy")[i % 2], draft.pick(j))


def _assign(draft: Draft, i: int, j: int, k: int) -> None:
    target = draft.pick(i)
    draft.append({"do": "assign", "target": target, "from": [draft.like(target, j)]})


def _store(draft: Draft, i: int, j: int, k: int) -> None:
    """Write a region of a variable: with a value that fits, or with a region like it."""
    target = draft.pick(i)
    kind = draft.kinds[target]
    view = list(region_view(kind.shape, k))
    region = Kind(kind.dtype, shapes.view_shape(kind.shape, view))
    fitting = [name for name, other in draft.kinds.items() if other.shape == region.shape]
    if fitting and j % 4:
        value = draft.of_dtype(fitting[-1 - j // 4 % len(fitting)], (kind.dtype,))
    elif j % 2:
        value = draft.constant(region, True if kind.dtype == "bool" else 3)
    else:
        # The region of another variable of this shape, such as the one beside it.
        value = draft.like(target, j // 2)
        for step in region_view(kind.shape, k + j // 2):
            value = draft.add(step["do"], value,
                              **{key: field for key, field in step.items() if key != "do"})
        if draft.kinds[value] != region:
            value = draft.constant(region, 1)
    draft.append({"do": "store", "target": target, "view": view, "from": [value]})


def region_view(shape: tuple[int, ...], k: int) -> Iterator[Statement]:
    """A chain of movements that selects a region of a shape."""
    chains = (("shrink",), ("shrink",), ("stride",), ("shrink", "flip"), ("permute", "shrink"),
              ("flip", "stride"), ("reshape", "shrink"), ())
    for position, do in enumerate(chains[k % len(chains)]):
        step = movement(do, shape, k // len(chains) + position)
        if step:
            yield step
            shape = shapes.moved(step, shape)


def _realize(draft: Draft, i: int, j: int, k: int) -> None:
    names = {draft.pick(reference): None for reference in (i, j, k)}
    draft.append({"do": "realize", "names": list(names)[:1 + k % 3]})


def _observe(draft: Draft, i: int, j: int, k: int) -> None:
    draft.append({"do": "observe", "names": [draft.pick(i)]})


def _drop(draft: Draft, i: int, j: int, k: int) -> None:
    if len(draft.kinds) > 2:
        draft.append({"do": "drop", "names": [draft.pick(i)]})


Maker = Callable[[Draft, int, int, int], None]
# Repeated entries are chosen more often.  The simplest come first: shrinking goes that way.
KINDS: tuple[Maker, ...] = (
    _input, _binary, _store, _realize, _binary, _unary, _movement, _reduction, _store, _assign,
    _binary, _movement, _store, _where, _cast, _constant, _product, _along, _gather, _boundary,
    _realize, _observe, _drop, _input, _between, _reduction)


def build(choices: Sequence[Choice], kinds: Sequence[Maker] = KINDS,
          first: Maker = _input) -> Program:
    """The program that a list of choices stands for: what is observed at its end.

    Every variable in one half of all programs. In the other half only those that nothing is made
    of, so that a scheduler may keep the others from memory. `kinds` are the makers of statements,
    `first` the one for a program without variables yet.
    """
    draft = Draft()
    for kind, i, j, k in choices:
        maker = kinds[kind % len(kinds)] if draft.kinds else first
        maker(draft, i, j, k)
    if draft.kinds:
        used = {name for statement in protocol.walk(draft.statements)
                for name in statement.get("from", ())} if choices[0][3] % 2 else set()
        draft.append({"do": "observe", "names": [name for name in draft.kinds
                                                 if name not in used] or list(draft.kinds)})
    return protocol.program(draft.statements)


def random_choices(seed: int, size: int, kinds: int, least: int) -> list[Choice]:
    """Between `least` and `size` choices among so many kinds; the same ones in every process."""
    random = Random(seed)
    count = random.randint(least, max(least, size))
    return [(random.randrange(kinds), random.randrange(LARGEST_REFERENCE + 1),
             random.randrange(LARGEST_REFERENCE + 1), random.randrange(LARGEST_REFERENCE + 1))
            for _ in range(count)]


def random_program(seed: int, size: int = 12) -> Program:
    """The program number `seed`: the same one in every process."""
    return build(random_choices(seed, size, len(KINDS), least=2))


def strategy(size: int = 12) -> Any:
    """The same programs as a hypothesis strategy."""
    from hypothesis import strategies

    reference = strategies.integers(0, LARGEST_REFERENCE)
    kinds = strategies.integers(0, len(KINDS) - 1)
    choice = strategies.tuples(kinds, reference, reference, reference)
    return strategies.lists(choice, max_size=size).map(build)


# Variations that change nothing ------------------------------------------------------------


def renamed(program: Program, prefix: str = "other_") -> Program:
    """The same program with other names for its variables."""
    changed = deepcopy(program)
    for statement in protocol.walk(changed["statements"]):
        for field in ("to", "target"):
            if field in statement:
                statement[field] = prefix + statement[field]
        for field in ("from", "names"):
            if field in statement:
                statement[field] = [prefix + name for name in statement[field]]
        if "given" in statement:
            statement["given"] = [
                {prefix + name if isinstance(value, str) else name:
                 prefix + value if isinstance(value, str) else value
                 for name, value in call.items()} for call in statement["given"]]
    return changed


def without(program: Program, *kinds: str) -> Program:
    """The program without the statements of some kinds that have no value, such as realize."""
    return {**program, "statements": [statement for statement in program["statements"]
                                      if statement["do"] not in kinds]}


def realizing_reversed(program: Program) -> Program:
    """The program with the variables of every `realize` in the opposite order."""
    changed = deepcopy(program)
    for statement in protocol.walk(changed["statements"]):
        if statement["do"] == "realize":
            statement["names"].reverse()
    return changed


def repeated(program: Program, count: int = 5) -> Program:
    """The program with everything but its inputs repeated, the values observed each time."""
    sources: list[Statement] = []
    body: list[Statement] = []
    for statement in without(program, "drop", "repeat")["statements"]:
        (sources if statement["do"] == "input" else body).append(statement)
    names = [statement["to"] for statement in sources]
    realize = [{"do": "realize", "names": names}] if names else []
    return {**program, "statements": [*sources, *realize,
                                      {"do": "repeat", "count": count, "statements": body}]}


def using_only(program: Program, statements: Collection[str],
               dtypes: Collection[str]) -> Program:
    """The program without the statements that need others than these, or what is left out."""
    kept: list[Statement] = []
    known: set[str] = set()
    for statement in program["statements"]:
        used, types = protocol.needs(protocol.program([statement]))
        names = [name for name in statement.get("names", ()) if name in known]
        if "names" in statement:
            statement = {**statement, "names": names}
        sources = {*statement.get("from", ()), *[statement.get("target")] * ("target" in statement)}
        if used <= set(statements) and types <= set(dtypes) and sources <= known:
            if "names" not in statement or names:
                kept.append(statement)
            known |= {statement["to"]} if "to" in statement else set()
    return {**program, "statements": kept}


# Shrinking ---------------------------------------------------------------------------------


def shrink(program: Program, fails: Callable[[Program], bool], budget: int = 400,
           seconds: float = 120.0) -> Program:
    """A smaller program that still fails: statements are dropped and sources bypassed.

    `budget` bounds how many programs are tried and `seconds` how long, for failures that take
    long to happen.
    """
    improved, end = True, monotonic() + seconds
    while improved:
        improved = False
        for smaller in _smaller(program):
            if budget <= 0 or monotonic() > end:
                return program
            budget -= 1
            if fails(smaller):
                program, improved = smaller, True
                break
    return program


def _smaller(program: Program) -> Iterator[Program]:
    """Well-formed programs a little smaller than this one."""
    statements = program["statements"]
    for size in (64, 32, 16, 8, 4, 2, 1):
        for start in range(len(statements) - size, -1, -1):
            yield from _if_well_formed(program, statements[:start] + statements[start + size:])
    for index, statement in enumerate(statements):
        names = statement.get("names", ())
        for position in range(len(names) if len(names) > 1 else 0):
            fewer = {**statement, "names": [*names[:position], *names[position + 1:]]}
            yield from _if_well_formed(program, _replaced(statements, index, fewer))
        for changed in _smaller_repeats(statement) if "statements" in statement else ():
            yield from _if_well_formed(program, statements[:index] + changed
                                       + statements[index + 1:])
        for name in statement.get("from", ()) if "to" in statement else ():
            rest = [_substituted(each, statement["to"], name) for each in statements[index + 1:]]
            yield from _if_well_formed(program, statements[:index] + rest)


def _smaller_repeats(statement: Statement) -> Iterator[list[Statement]]:
    """What may stand in the place of a repetition: its body, or one with less in it."""
    body = statement["statements"]
    yield body
    for index in range(len(body)):
        yield [{**statement, "statements": body[:index] + body[index + 1:]}]
    for count in range(2, statement.get("count", 0)):
        yield [{**statement, "count": count}]
    given = statement.get("given", ())
    for index in range(len(given)):
        yield [{**statement, "given": [*given[:index], *given[index + 1:]]}]
    for nested in range(statement.get("nested", 0)):
        yield [{**statement, "nested": nested}]


def _replaced(statements: list[Statement], index: int, statement: Statement) -> list[Statement]:
    return [*statements[:index], statement, *statements[index + 1:]]


def _substituted(statement: Statement, name: str, other: str) -> Statement:
    changed = dict(statement)
    for field in ("from", "names"):
        if field in changed:
            changed[field] = list(dict.fromkeys(other if each == name else each
                                                for each in changed[field])) \
                if field == "names" else [other if each == name else each
                                          for each in changed[field]]
    if changed.get("target") == name:
        changed["target"] = other
    return changed


def _if_well_formed(program: Program, statements: list[Statement]) -> Iterator[Program]:
    smaller = {**program, "statements": _trimmed(statements)}
    try:
        shapes.check_program(smaller)
    except shapes.ProgramError:
        return
    if any(each["do"] == "observe" for each in protocol.walk(smaller["statements"])):
        yield smaller


def _trimmed(statements: list[Statement]) -> list[Statement]:
    """The statements with no name in a list that nothing defines any more."""
    known: set[str] = set()
    kept: list[Statement] = []
    for statement in statements:
        if statement["do"] in ("realize", "observe", "drop"):
            names = [name for name in statement["names"] if name in known]
            if not names:
                continue
            statement = {**statement, "names": names}
            if statement["do"] == "drop":
                known.difference_update(names)
        if "to" in statement:
            known.add(statement["to"])
        kept.append(statement)
    return kept


# Witnesses ---------------------------------------------------------------------------------


def witnesses() -> dict[str, Program]:
    """The committed programs, by name.  Each says in `note` which mistake it finds."""
    folder = Path(__file__).parent.parent / "witnesses"
    return {path.stem: json.loads(path.read_text(encoding="utf-8"))
            for path in sorted(folder.glob("*.json"))}
