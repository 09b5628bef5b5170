"""What is kept from program to program: a right runtime that uses files, and mistakes."""

from __future__ import annotations

import json
import os
from collections.abc import Collection
from copy import deepcopy
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

from conformance.protocol import Info, Observation, Options, Program
from conformance.saboteurs import AdapterSaboteur, runtime

VARIABLE = "KEPT"


class Keeps(runtime.Adapter):
    """Keeps what a program showed under a digest of the program, behind a checksum."""

    def info(self) -> Info:
        return replace(super().info(), choices={**super().info().choices, "kept": VARIABLE})

    def run(self, program: Program, observe: Collection[str],
            options: Options | None = None) -> Observation:
        asked = json.dumps([self.told(program), sorted(observe), dict(options or {})])
        folder = Path(os.environ.get(VARIABLE, os.devnull))
        file = folder / sha256(asked.encode()).hexdigest()
        if (found := self.found(file)) is not None:
            return Observation.from_json(found)
        seen = super().run(program, observe, options or {})
        if folder.is_dir():
            text = json.dumps(seen.to_json())
            file.write_text(f"{sha256(text.encode()).hexdigest()}\n{text}", encoding="utf-8")
        return seen

    def told(self, program: Program) -> Any:
        """What of a program its file is named by."""
        return program

    def found(self, file: Path) -> Any:
        """What a file says; None if it is not there, or not as it was written."""
        try:
            head, _, text = file.read_bytes().partition(b"\n")
        except OSError:
            return None
        return json.loads(text) if head.decode("latin-1") == sha256(text).hexdigest() else None


class Believes(Keeps):
    """Takes a file for what was written, if it can be read at all."""

    def found(self, file: Path) -> Any:
        return json.loads(file.read_bytes().partition(b"\n")[2]) if file.exists() else None


class Confuses(Keeps):
    """Names a file by the operations of its program."""

    def told(self, program: Program) -> Any:
        return [each["do"] for each in program["statements"]]


class DamageIsBelieved(AdapterSaboteur):
    rule = "caching.kept.equal"
    description = "a damaged file is read as if it were whole"
    base = "conformance.saboteurs.kept:Believes"


class OthersAreBelieved(AdapterSaboteur):
    rule = "caching.kept.equal"
    description = "a file may be that of another program"
    base = "conformance.saboteurs.kept:Confuses"


class FormsHaveOneNumber(AdapterSaboteur):
    rule = "caching.program.own"
    description = "a program has the numbers of the first one of its operations, if sizes differ"

    def __init__(self) -> None:
        self.first: dict[tuple[str, ...], Program] = {}

    def program(self, program: Program, options: Options) -> Program:
        key = tuple(each["do"] for each in program["statements"])
        pairs = list(zip(program["statements"],
                         self.first.setdefault(key, deepcopy(program))["statements"], strict=True))
        if all(one.get("shape") != other.get("shape")
               for one, other in pairs if one["do"] == "constant"):
            for one, other in pairs:
                if one["do"] == "constant" and "given" not in str(one["value"]):
                    one["value"] = other["value"]
        return program
