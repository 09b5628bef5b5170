"""Programs for several devices: any program, with its work spread over them by copies.

    t2 = add t0 t1    becomes    elsewhere_0 = copy t0 to device 1
                                 elsewhere_1 = copy t1 to device 1
                                 t2 = add elsewhere_0 elsewhere_1

A variable stays where it was made, for as long as there is a variable of its name: so what is
repeated finds everything where the first repetition found it.  Before operands of several devices
are mixed they are copied to one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from random import Random

import numpy as np

from conformance import protocol
from conformance.generators import programs
from conformance.generators.programs import Draft
from conformance.protocol import Program, Statement


def placed(program: Program, seed: int, devices: int = 2) -> Program:
    """The program, for each seed a little otherwise, on so many devices; its values are the same.

    Copies are dropped after their use now and then, so that they may be temporaries.
    """
    return {**program, "statements": list(_Placing(program, seed, devices).all(
        program["statements"], within=False))}


def random_program(seed: int, size: int = 12) -> Program:
    """The program number `seed` on two devices: the same one in every process."""
    return placed(programs.random_program(seed, size), seed)


def advancing(devices: int = 2) -> Iterator[Program]:
    """A state on each device, of which each call makes the next one on the device after that."""
    for home, watched in product(range(devices), (False, True)):
        draft = Draft()
        values = np.array([1, 2, 3], np.float32)
        state = draft.add("input", dtype="float32", shape=[3], data=protocol.encode(values))
        if home:
            state = draft.add("copy", state, device=home)
        draft.append({"do": "realize", "names": [state]})
        body: list[Statement] = [
            {"do": "copy", "to": "there", "from": [state], "device": (home + 1) % devices},
            {"do": "add", "to": "next", "from": ["there", "there"]},
            {"do": "copy", "to": "back", "from": ["next"], "device": home},
            {"do": "assign", "target": state, "from": ["back"]}]
        watch = [{"do": "observe", "names": ["next", state]}] if watched else []
        repeat: Statement = {"do": "repeat", "count": 5, "statements": [*body, *watch]}
        yield protocol.program([*draft.statements, repeat, {"do": "observe", "names": [state]}])


def transfers(program: Program) -> int:
    """How many statements of a program are copies to a device that they name."""
    return sum("device" in statement for statement in protocol.walk(program["statements"]))


class _Placing:
    """Where the variables of a program lie, while copies are put into it."""

    def __init__(self, program: Program, seed: int, devices: int) -> None:
        self.random, self.devices, self.count = Random(seed), devices, 0
        self.where: dict[str, int] = {}
        #: Variables that are arguments of calls: those of one argument have to lie on one device.
        self.given = {value for statement in protocol.walk(program["statements"])
                      for call in statement.get("given", ()) for value in call.values()}

    def all(self, statements: Sequence[Statement], within: bool) -> Iterator[Statement]:
        """Statements, `within` a repetition or not, with the copies that they need."""
        for statement in statements:
            if statement["do"] in protocol.REPETITIONS:
                self.where.update({name: 0 for call in statement.get("given", ()) for name in call})
                body = list(self.all(statement["statements"], within=True))
                yield {**statement, "statements": body}
            elif "from" in statement:
                yield from self._computed(statement, within)
            elif "to" in statement:
                yield from self._source(statement)
            else:
                yield statement

    def _source(self, statement: Statement) -> Iterator[Statement]:
        """Inputs and constants lie on device 0; the variable may be one of another device."""
        name = statement["to"]
        device = self.where.setdefault(name, 0)
        if device == 0:
            yield statement
        else:
            yield {**statement, "to": self._name()}
            yield self._copy(name, self._last(), device)

    def _computed(self, statement: Statement, within: bool) -> Iterator[Statement]:
        device = self._device(statement)
        if statement["do"] == "copy":
            yield {**statement, "device": device}
            return
        made: dict[str, str] = {}
        for name in statement["from"]:
            if self.where[name] != device and name not in made:
                made[name] = self._name()
                yield self._copy(made[name], name, device)
        yield {**statement, "from": [made.get(name, name) for name in statement["from"]]}
        if made and not within and self.random.random() < 0.5:
            yield {"do": "drop", "names": list(made.values())}

    def _device(self, statement: Statement) -> int:
        """Where a statement is executed."""
        if "target" in statement:
            return self.where[statement["target"]]
        name = statement["to"]
        if name not in self.where:
            likely = self.where[statement["from"][0]]  # half of all stay where they are
            chosen = self.random.choice([likely] * self.devices + list(range(self.devices)))
            self.where[name] = 0 if name in self.given else chosen
        return self.where[name]

    def _copy(self, to: str, source: str, device: int) -> Statement:
        return {"do": "copy", "to": to, "from": [source], "device": device}

    def _name(self) -> str:
        self.count += 1
        return self._last()

    def _last(self) -> str:
        return f"elsewhere_{self.count - 1}"
