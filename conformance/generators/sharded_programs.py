"""Programs for meshes: any program, with its values laid on several devices by chance.

    t2 = add t0 t1    becomes    laid_0 = shard t0 on a mesh, axis 1 cut
                                 laid_1 = shard t1 on that mesh, axis 0 cut
                                 t2 = add laid_0 laid_1

A variable stays on its mesh for as long as there is a variable of its name, as in `multi_programs`.
Operands that are on the mesh of a statement already are left there, cut as they are, or are laid
anew.  At the end it is asked what each device has.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from random import Random
from typing import Any

from conformance import protocol
from conformance.generators import effect_programs, programs
from conformance.protocol import Program, Statement, shapes
from conformance.protocol.shapes import Kinds, Limits, Mesh, ProgramError

#: The forms of meshes that are drawn: those of one axis more often, and three devices or fewer.
FORMS = ((2,), (3,), (2,), (4,), (2, 2), (1,), (6,), (2, 3), (3,), (3, 2), (2, 1), (2,))
NAMES = ("rows", "columns")
#: Every device of a mesh, as far as there are so many: what an implementation has no limits on.
ALL = Limits(6)
Cut = dict[str, int]


def laid(program: Program, seed: int, limits: Limits = ALL) -> Program:
    """The program, for each seed a little otherwise, on meshes; its values are the same."""
    writer = _Laying(program, seed, limits)
    statements = list(writer.all(program["statements"], {}, within=False))
    names = {name for each in protocol.walk(program["statements"]) if each["do"] == "observe"
             for name in each["names"]}
    changed = protocol.program(statements)
    kinds = shapes.check_program(changed)
    there = [name for name in kinds if name in names and isinstance(kinds[name].device, Mesh)]
    return {**program, "statements": [*statements, *([{"do": "shards", "names": there}]
                                                     if there else [])]}


def random_program(seed: int, size: int = 10, limits: Limits = ALL) -> Program:
    """The program number `seed` on meshes: the same one in every process."""
    return laid(_plain(seed, size), seed, limits)


def replayed_program(seed: int, size: int = 10, limits: Limits = ALL) -> Program:
    """The same program with everything but its inputs repeated; or what it repeats itself."""
    program = _plain(seed, size)
    if any(each["do"] in protocol.REPETITIONS for each in program["statements"]):
        return laid(program, -1 - seed, limits)
    return laid(programs.repeated(program, count=3), seed, limits)


def _plain(seed: int, size: int) -> Program:
    """The program before it is laid: about everything, or about effects."""
    make = programs.random_program if seed % 2 else effect_programs.random_program
    return make(seed, size)


def shardings(program: Program) -> int:
    """How many statements of a program lay a value on a mesh."""
    return sum(each["do"] in ("shard", "shard_like")
               for each in protocol.walk(program["statements"]))


def random_mesh(random: Random, limits: Limits) -> Mesh:
    """A mesh of some of the devices, in some order."""
    forms = [form for form in FORMS if prod(form) <= limits.devices and len(form) <= limits.axes]
    form = random.choice(forms)
    devices = list(range(prod(form)))
    if random.random() < 0.25:
        devices = random.sample(range(limits.devices), prod(form))
    return Mesh(tuple(devices), tuple(zip(NAMES, form, strict=False)))


def random_cut(random: Random, mesh: Mesh, shape: tuple[int, ...], limits: Limits) -> Cut:
    """A cut of a value of this shape: each axis of the mesh cuts an axis, or has copies."""
    cut: Cut = {}
    for name, _ in mesh.axes:
        if shape and random.random() < 0.75:
            axis = random.randrange(len(shape))
            wished = {**cut, name: axis}
            if limits.allow(mesh, wished, shape) and (axis not in cut.values()
                                                      or random.random() < 0.5):
                cut = wished
    return cut


class _Laying:
    """Where the variables of a program lie, while statements are put into it."""

    def __init__(self, program: Program, seed: int, limits: Limits) -> None:
        self.random, self.limits, self.count = Random(f"laid {seed}"), limits, 0
        self.home = random_mesh(self.random, limits)
        self.meshes = [self.home] * 6
        if self.random.random() < 0.3:
            self.meshes.append(random_mesh(self.random, limits))
        self.where: dict[str, int | Mesh] = {}
        #: Variables that are arguments of calls: those of one argument have to lie on one mesh.
        self.given = {value for statement in protocol.walk(program["statements"])
                      for call in statement.get("given", ()) for value in call.values()}

    def all(self, statements: Sequence[Statement], kinds: Kinds, within: bool,
            ) -> Iterator[Statement]:
        """Statements, `within` a repetition or not, with those that lay their operands."""
        for statement in statements:
            if statement["do"] in protocol.REPETITIONS:
                inner = dict(kinds)
                for call in statement.get("given", ())[:1]:
                    self.where.update({name: self.home for name in call})
                    inner.update({name: kinds[value] for name, value in call.items()
                                  if isinstance(value, str)})
                body = list(self.all(statement["statements"], inner, within=True))
                yield {**statement, "statements": body}
            elif "from" in statement:
                yield from self._computed(statement, kinds)
            elif "to" in statement:
                yield from self._source(statement)
            else:
                yield statement
            try:
                shapes.step(statement, kinds)
            except ProgramError:
                if not within:  # a number of a call is not known here
                    raise
                kinds[statement["to"]] = shapes.Kind(statement["dtype"],
                                                     tuple(statement["shape"]))

    def _source(self, statement: Statement) -> Iterator[Statement]:
        """Inputs and constants lie on device 0, and are laid on a mesh from there."""
        name = statement["to"]
        place = self.where.setdefault(name, self._place(name))
        if place == 0:
            yield statement
            return
        yield {**statement, "to": self._name()}
        yield self._moved(name, self._last(), tuple(statement["shape"]), place)

    def _computed(self, statement: Statement, kinds: Kinds) -> Iterator[Statement]:
        target: str = statement["target"] if "target" in statement else statement["to"]
        place = self.where.get(target)
        if place is None:
            first = self.where[statement["from"][0]]
            place = self.where[target] = self._place(target, first)
        made: dict[str, str] = {}
        for name in dict.fromkeys(statement["from"]):
            there = self.where[name] == place
            if there and (place == 0 or self.random.random() < 0.85):
                continue
            if there and self._copied(statement):
                continue
            made[name] = self._name()
            others = [made.get(other, other) for other in statement["from"]
                      if other != name and (other in made or self.where[other] == place)
                      and len(kinds[other].shape) == len(kinds[name].shape)]
            if place != 0 and others and self.random.random() < 0.3 \
                    and self.limits.uneven:
                yield {"do": "shard_like", "to": made[name], "from": [name, others[0]]}
            else:
                yield self._moved(made[name], name, kinds[name].shape, place)
        yield {**statement, "from": [made.get(name, name) for name in statement["from"]]}

    def _copied(self, statement: Statement) -> bool:
        """Whether its operand is the target's own value, of which no copy is wanted."""
        return statement.get("target") in statement["from"] and self.random.random() < 0.5

    def _place(self, name: str, likely: Any = None) -> int | Mesh:
        """Where a new variable lies: on the mesh of the program most often."""
        if name in self.given:
            return self.home
        if likely is not None and self.random.random() < 0.8:
            place: int | Mesh = likely
            return place
        return 0 if self.random.random() < 0.1 else self.random.choice(self.meshes)

    def _moved(self, to: str, source: str, shape: tuple[int, ...],
               place: int | Mesh) -> Statement:
        """The statement that brings a value to a place."""
        if not isinstance(place, Mesh):
            return {"do": "copy", "to": to, "from": [source], "device": place}
        return {"do": "shard", "to": to, "from": [source], "devices": list(place.devices),
                "axes": [list(axis) for axis in place.axes],
                "cut": random_cut(self.random, place, shape, self.limits)}

    def _name(self) -> str:
        self.count += 1
        return self._last()

    def _last(self) -> str:
        return f"laid_{self.count - 1}"
