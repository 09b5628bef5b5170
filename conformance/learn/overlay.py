"""The reader's file in the place of a part of the implementation, and what was reached with it."""
from __future__ import annotations

import hashlib
import importlib.util
import json
from collections.abc import Callable
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from conformance.learn.lesson import READERS
from conformance.learn.lessons import LESSONS
from conformance.trace import ROOT


class Overlay(MetaPathFinder, Loader):
    """Loads a part of `impl` as it is, and then the reader's file into the same module."""

    def __init__(self, slug: str, mine: Path) -> None:
        self.name = module_name(slug)
        self.source, self.mine, self.lesson = module_path(slug), mine, LESSONS[slug]
        READERS.add(str(mine))

    def find_spec(self, fullname: str, path: object = None,
                  target: ModuleType | None = None) -> ModuleSpec | None:
        if fullname != self.name:
            return None
        inner = [str(self.source.parent)] if self.source.name == "__init__.py" else None
        return importlib.util.spec_from_file_location(fullname, self.source, loader=self,
                                                      submodule_search_locations=inner)

    def exec_module(self, module: ModuleType) -> None:
        exec(code_of(self.source), module.__dict__)
        if self.lesson.install is None:
            exec(code_of(self.mine), module.__dict__)  # the reader's own code and wish
            return
        space: dict[str, Any] = {"__name__": self.mine.stem}
        if self.lesson.late:
            module.__dict__.update((name, self._late(name, space))
                                   for name in self.lesson.functions)
        else:
            exec(code_of(self.mine), space)  # the same; its names are not those of the module
            module.__dict__.update((name, _of(space, name)) for name in self.lesson.functions)
        self.lesson.install(module)

    def _late(self, name: str, space: dict[str, Any]) -> Callable[..., Any]:
        """A function of the reader's, whose file is run when one of them is called first."""
        def called(*given: Any) -> Any:
            if name not in space:
                exec(code_of(self.mine), space)
            return _of(space, name)(*given)

        return called


class Missing(NameError):
    """A function that is to be written is not in the reader's file."""


def _of(space: dict[str, Any], name: str) -> Any:
    if name not in space:
        raise Missing(f"your file has no function `{name}`")
    return space[name]


def code_of(path: Path) -> CodeType:
    return compile(path.read_text(encoding="utf-8"), str(path), "exec", dont_inherit=True)


def module_name(slug: str) -> str:
    """The part of the implementation that a reader's functions go into."""
    return f"impl.{LESSONS[slug].module or slug}"


def module_path(slug: str) -> Path:
    """Its file: of a folder, the one that names the rest."""
    path = ROOT.joinpath(*module_name(slug).split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def digest(mine: Path) -> str:
    """What tells whether a file was changed."""
    return hashlib.sha256(mine.read_bytes()).hexdigest()[:16]


class Progress:
    """What a reader has reached, in a file beside the reader's own."""

    def __init__(self, mine: Path) -> None:
        self.path = mine.resolve().parent / ".learn.json"
        self.known = self._read()

    def _read(self) -> dict[str, Any]:
        try:
            found: dict[str, Any] = json.loads(self.path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return found

    def of(self, slug: str) -> dict[str, Any]:
        """The green rules of a lesson at its last check, and how many hints were read."""
        found: dict[str, Any] = self.known.setdefault(slug, {"green": [], "hints": 0})
        return found

    def write(self, slug: str) -> None:
        """Write down one lesson. A check takes minutes: what was reached in others since it began,
        and hints that were read, stay."""
        now = self._read()
        if slug in self.known:
            mine, hints = self.of(slug), now.get(slug, {}).get("hints", 0)
            now[slug] = {**mine, "hints": max(mine["hints"], hints)}
        else:
            now.pop(slug, None)
        self.path.write_text(json.dumps(now, indent=1) + "\n", encoding="utf-8")
