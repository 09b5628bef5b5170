"""What is kept of programs: facts beside their text, and objects on disk. Chapter: spec/device.md.

To optimise and print a kernel takes a hundred times longer than to read what was printed before
([caching](../caching/texts.py)). So a program can be had from a few facts; its text is only printed
again if the object is gone that was made of it.
"""
from __future__ import annotations

import json
from collections.abc import Callable, Container, Iterable
from typing import Any, TypeVar

from impl import settings
from impl.caching import texts
from impl.caching.disk import Store
from impl.device import DeviceBackend, GlobalCounters, Program
from impl.errors import CompileError
from impl.ir import UOp
from impl.kernel import Estimate
from impl.render import SourceText
from impl.searching import taken
from impl.steps import Step, starting_kernel

Kept = TypeVar("Kept", bound="KeptProgram")
#: A program, and what prints its text.
Known = tuple[Kept, Callable[[], SourceText]]


class KeptProgram(Program):
    """A program that can be had from facts. `key` names its text and what compiles it."""

    key: str = ""
    _steps: tuple[str, ...] | None = None
    _reasons: tuple[str, ...] = ()

    @property
    def optimized(self) -> UOp:
        """The kernel after the optimisation steps; those of a kept text are taken again."""
        if self._optimized is None and self._steps:
            again = zip(map(Step.parse, self._steps), self._reasons, strict=True)
            self._optimized = taken(starting_kernel(self.ast), again)
        return self._optimized or self.ast

    @property
    def steps(self) -> tuple[str, ...]:
        """The optimisation steps that were applied, in order."""
        return super().steps if self._steps is None else self._steps

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why each of the steps was applied."""
        return super().reasons if self._steps is None else self._reasons

    def facts(self) -> dict[str, Any]:
        """What is kept of a program besides its object."""
        cost = None if self.variables else self.cost()
        return {"key": self.key, "source": self.source, "steps": self.steps,
                "reasons": self.reasons, "arguments": self.arguments,
                "cost": cost and (cost.operations, cost.bytes)}

    @classmethod
    def of_facts(cls: type[Kept], device: DeviceBackend, ast: UOp, facts: dict[str, Any]) -> Kept:
        """The program of which these facts were kept; its function is not loaded.

        Raises:
            KeyError, TypeError, ValueError: they are no such facts.
        """
        found = cls(device, ast, None, int(facts["arguments"]))
        found.key, found.source = str(facts["key"]), str(facts["source"])
        found._steps, found._reasons = tuple(facts["steps"]), tuple(facts["reasons"])
        found._cost = Estimate(*facts["cost"]) if facts["cost"] else None
        return found


def known(device: DeviceBackend, ast: UOp, circumstances: object, kind: type[Kept],
          rendered: Callable[[UOp], tuple[Kept, SourceText]]) -> Known[Kept]:
    """A program that is not compiled, and its text, which is made if nobody kept it.

    `circumstances` are all that its key depends on besides its text.
    """
    # r[impl caching.text.same, caching.text.found+2]: no other setting counts
    name = texts.kernel_name(ast, repr((circumstances, texts.code_version(), device.limits,
                                        settings.get("NOOPT"), settings.get("POISON"))))
    try:
        # What a search found is kept by the search, which may be told to begin anew.
        kept = {} if settings.get("BEAM") else texts.kept_text(name)
        program = kind.of_facts(device, ast, kept)
    except (KeyError, TypeError, ValueError):
        program, source = rendered(ast)
        if not settings.get("BEAM"):
            texts.keep_text(name, program.facts())
        return program, lambda: source

    def printed_again() -> SourceText:
        """The text of a program whose facts were kept, and whose object is gone."""
        again, source = rendered(ast)
        if again.key != program.key:
            raise CompileError("compile", f"what is kept of {source.name} is not what is printed "
                               "now", "empty CACHE_FOLDER, and report this")
        return source
    return program, printed_again


def missing_entries(keys: Iterable[str], loaded: Container[str],
                    find: Callable[[str], bool]) -> list[str]:
    """The keys of kernels that are neither loaded nor found on disk; the others are counted."""
    found = []
    for key in keys:
        if key not in loaded:
            if not find(key):
                found.append(key)
                continue
            GlobalCounters.disk_hits += 1
        GlobalCounters.cache_hits += 1
    return found


def entry(kept: Store, kind: str, key: str) -> dict[str, str]:
    """The facts of an entry about a kernel's object; empty if it is missing or damaged."""
    try:
        found = json.loads(kept.get(kind, key) or b"")
        return {str(name): str(value) for name, value in found.items()}
    except (ValueError, AttributeError):
        return {}
