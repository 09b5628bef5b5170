"""Your own code in the place of a part of the implementation, judged by the tests of its chapter.

    python -m conformance.learn start memory                        write my_memory.py
    python -m conformance.learn check memory --mine my_memory.py    run the chapter's tests on it

Your file only holds what you want to replace; everything else stays as it is. Tests never live in
your file, so that you can change nothing about them by accident.
"""
from __future__ import annotations

import argparse
import ast
import importlib.util
import sys
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import CodeType, ModuleType

from conformance.trace import ROOT

#: What a reader of each lesson writes.
EXERCISES = {"memory": ("lower_bound", "plan")}


class Overlay(MetaPathFinder, Loader):
    """Loads `impl.SLUG` as it is, and then the reader's file into the same module."""

    def __init__(self, slug: str, mine: Path) -> None:
        self.name = f"impl.{slug}"
        self.sources = (module_path(slug), mine)

    def find_spec(self, fullname: str, path: object = None,
                  target: ModuleType | None = None) -> ModuleSpec | None:
        if fullname != self.name:
            return None
        source = self.sources[0]
        inner = [str(source.parent)] if source.name == "__init__.py" else None
        return importlib.util.spec_from_file_location(fullname, source, loader=self,
                                                      submodule_search_locations=inner)

    def exec_module(self, module: ModuleType) -> None:
        for source in self.sources:
            exec(code_of(source), module.__dict__)  # the reader's own code, on the reader's wish


def code_of(path: Path) -> CodeType:
    return compile(path.read_text(encoding="utf-8"), str(path), "exec", dont_inherit=True)


def module_path(slug: str) -> Path:
    """The file that a reader's functions go into: of a folder, the one that names the rest."""
    folder = ROOT / "impl" / slug / "__init__.py"
    return folder if folder.is_file() else ROOT / "impl" / f"{slug}.py"


def template(slug: str) -> str:
    """The heads and docstrings of what is to be written, without their bodies."""
    tree = ast.parse(module_path(slug).read_text(encoding="utf-8"))
    parts = ["from __future__ import annotations", "",
             f"from impl.{slug} import *  # everything that you do not write yourself"]
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name in EXERCISES[slug]:
            node.body = [node.body[0], *ast.parse("raise NotImplementedError").body]
            parts.append("\n\n" + ast.unparse(node))
    return "\n".join(parts) + "\n"


def start(slug: str, mine: Path) -> int:
    if mine.exists():
        print(f"{mine} exists already; remove it to begin anew", file=sys.stderr)
        return 1
    mine.write_text(template(slug), encoding="utf-8")
    names = " and ".join(EXERCISES[slug])
    print(f"{mine}: write {names}. At first most checks are red, and that is right. Then:")
    print(f"python -m conformance.learn check {slug} --mine {mine}")
    return 0


def check(slug: str, mine: Path) -> int:
    """Run the tests of the chapter, and only these, with the reader's code in place."""
    import pytest

    if any(name == "impl" or name.startswith("impl.") for name in sys.modules):
        raise RuntimeError("impl is loaded already: run this as python -m conformance.learn")
    sys.meta_path.insert(0, Overlay(slug, mine.resolve()))
    tests = sorted((ROOT / "conformance").glob(f"test_{slug}*.py"))
    return int(pytest.main(["-q", "--tb=short", "-p", "no:cacheprovider", *map(str, tests)]))


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m conformance.learn", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=("start", "check"))
    parser.add_argument("lesson", choices=sorted(EXERCISES))
    parser.add_argument("--mine", type=Path, help="your file; my_LESSON.py if it is not named")
    options = parser.parse_args(arguments)
    mine = options.mine or Path(f"my_{options.lesson}.py")
    return start(options.lesson, mine) if options.command == "start" else check(
        options.lesson, mine)


if __name__ == "__main__":
    sys.exit(main())
