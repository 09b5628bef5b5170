"""Deliberately wrong implementations, so that a test that cites a rule becomes evidence for it.

A saboteur is one mistake around a right implementation.  The checks that cite its `rule` must
find it; if they do not, they verify nothing.  There are two sorts:

- `AdapterSaboteur` changes programs on their way in, or values and documents on their way out.
  It works around any implementation that is otherwise right.
- `Patch` replaces one function of a module while it is installed.

    class ForgetReaders(Patch):
        rule = "dependencies.war.order"
        description = "writers do not wait for readers"
        target = "impl.dependencies.hazards:hazards"

        def replacement(self, original):
            return lambda *args: [each for each in original(*args) if each.kind != "WAR"]

`python -m conformance.saboteurs` says who is killed by what.
"""

from __future__ import annotations

import pkgutil
import sys
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from copy import deepcopy
from importlib import import_module
from typing import Any, ClassVar

from conformance.protocol import Adapter, Document, Info, Observation, Options, Program


class Saboteur:
    """One mistake.  Subclasses name the `rule` that it breaks and describe it in a few words."""

    rule: ClassVar[str] = ""
    description: ClassVar[str] = ""

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Make the mistake in this process until the block ends."""
        yield

    def wrap(self, adapter: Adapter) -> Adapter:
        """The implementation with the mistake."""
        return adapter


class AdapterSaboteur(Saboteur):
    """A mistake made between the suite and a right implementation.  Override what it spoils.

    `base` is what it works around, "package.module:Adapter"; the demo, if it is empty.
    """

    base: ClassVar[str] = ""

    def program(self, program: Program, options: Options) -> Program:
        """The program that is executed in place of the one that was asked for."""
        return program

    def document(self, document: Document) -> None:
        """Spoil a schedule document, in place."""

    def observation(self, seen: Observation, program: Program, options: Options) -> Observation:
        """What is answered in place of what was seen."""
        return seen

    def wrap(self, adapter: Adapter) -> Adapter:
        return _Sabotaged(adapter, self)


class _Sabotaged:
    """An adapter with a saboteur on the line."""

    def __init__(self, adapter: Adapter, saboteur: AdapterSaboteur) -> None:
        self.adapter, self.saboteur = adapter, saboteur

    def info(self) -> Info:
        return self.adapter.info()

    def run(self, program: Program, observe: Collection[str],
            options: Options | None = None) -> Observation:
        asked = self.saboteur.program(deepcopy(program), options or {})
        seen = self.adapter.run(asked, observe, options or {})
        seen.schedule = deepcopy(seen.schedule)
        for document in seen.schedule:
            self.saboteur.document(document)
        return self.saboteur.observation(seen, program, options or {})

    def reset(self) -> None:
        self.adapter.reset()

    def close(self) -> None:
        close = getattr(self.adapter, "close", None)
        if close is not None:
            close()


class Patch(Saboteur):
    """A mistake made inside: `target`, "package.module:function" or "...:Class.method"."""

    target: ClassVar[str] = ""

    def replacement(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """What stands in the function's place."""
        raise NotImplementedError

    @contextmanager
    def installed(self) -> Iterator[None]:
        module, _, path = self.target.partition(":")
        owner: Any = import_module(module)
        *outer, name = path.split(".")
        for part in outer:
            owner = getattr(owner, part)
        original = getattr(owner, name)
        changed = self.replacement(original)
        # Modules that imported the function by its name hold it too.
        places = [(owner, name)] + ([] if outer else _holders(module, original, owner))
        for holder, attribute in places:
            setattr(holder, attribute, changed)
        try:
            yield
        finally:
            for holder, attribute in places:
                setattr(holder, attribute, original)


def _holders(module: str, original: Any, owner: Any) -> list[tuple[Any, str]]:
    """The modules of the package, and those of its tests, that know an object by a name."""
    places = (f"{module.split('.')[0]}.", "conformance.chapters.", "conformance.suite.")
    return [(holder, attribute)
            for name, holder in list(sys.modules.items())
            if f"{name}.".startswith(places) and holder is not None and holder is not owner
            for attribute, value in list(vars(holder).items()) if value is original]


def all_saboteurs() -> list[Saboteur]:
    """One of each class in the modules of this package that names a rule, by module and name."""
    found: list[Saboteur] = []
    for entry in pkgutil.iter_modules(__path__):
        if entry.name in ("__main__", "mutation", "mutants") or entry.name.startswith("test_"):
            continue
        module = import_module(f"{__name__}.{entry.name}")
        for value in vars(module).values():
            if isinstance(value, type) and issubclass(value, Saboteur) and value.rule \
                    and value.__module__ == module.__name__:
                found.append(value())
    return found


def by_name(name: str) -> Saboteur:
    """The saboteur of this class name."""
    return next(each for each in all_saboteurs() if type(each).__name__ == name)
