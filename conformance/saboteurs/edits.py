"""Mistakes that are an edit of a line: what stands in the code, and what might have stood there.

    class LosesTheSign(Edit):
        rule = "gradient.rule.complete"
        description = "the gradient of a negation is not negated"
        file = "impl/gradient.py"
        old, new = "return [-upstream]", "return [upstream]"

The text `old` stands in the file once, within a function. The changed file is compiled, and every
function that came out different gets its new code, in this process and for a while.
"""
from __future__ import annotations

import functools
import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from inspect import CO_NEWLOCALS
from types import CodeType, FunctionType, ModuleType
from typing import ClassVar

from conformance.saboteurs.impl_patches import ImplPatch
from conformance.trace import ROOT

#: What `impl` keeps in a table of its own, though a function made it from what may be edited.
_TABLES = (("impl.dialects.gpu", "_MADE"),)


class Edit(ImplPatch):
    """One mistake: in `file`, the text `new` stands where `old` does. It has no more lines."""

    file: ClassVar[str] = ""
    old: ClassVar[str] = ""
    new: ClassVar[str] = ""

    @contextmanager
    def mistake(self) -> Iterator[None]:
        module = import_module(self.file.removesuffix(".py").removesuffix("/__init__")
                               .replace("/", "."))
        codes = self.codes()
        functions = [each for each in _live(module) if each.__code__ in codes]
        if not functions:
            raise TypeError(f"no function of {self.file} has the text {self.old!r}")
        before = [function.__code__ for function in functions]
        _forget(module)
        try:
            for function in functions:
                function.__code__ = codes[function.__code__]
            yield
        finally:
            for function, code in zip(functions, before, strict=True):
                function.__code__ = code
            _forget(module)

    def codes(self) -> dict[CodeType, CodeType]:
        """The code of each function that the edit changes, and what it becomes."""
        path = ROOT / self.file  # an error names the line of the user, which is not in impl
        text = path.read_text(encoding="utf-8")
        lines = self.old.count("\n") - self.new.count("\n")
        if text.count(self.old) != 1 or lines < 0:
            raise TypeError(f"{self.file} has {self.old!r} {text.count(self.old)} times, not once")
        edited = text.replace(self.old, self.new + "\n" * lines)
        return dict(_different(*(compile(each, str(path), "exec") for each in (text, edited))))


def _different(old: CodeType, new: CodeType) -> Iterator[tuple[CodeType, CodeType]]:
    """The functions in the code of a module that are not the same in two versions of it.

    A function may gain or lose what stands in it, a lambda for instance: what it makes from now on
    is then new, and what it has made before stays as it is.
    """
    inside = [[each for each in code.co_consts if isinstance(each, CodeType)]
              for code in (old, new)]
    if len(inside[0]) != len(inside[1]):
        if not old.co_flags & CO_NEWLOCALS:
            raise TypeError("the edit makes another function of a module or class")
        return
    for before, after in zip(*inside, strict=True):
        if before != after:
            if before.co_flags & CO_NEWLOCALS:  # else the body of a class
                yield before, after
            yield from _different(before, after)


@functools.cache
def _live(module: ModuleType) -> list[FunctionType]:
    """The functions that were made when a module was imported, wherever they are held."""
    frozen = gc.get_freeze_count()
    gc.unfreeze()  # else what is frozen is not listed
    found = [each for each in gc.get_objects()
             if type(each) is FunctionType and each.__globals__ is vars(module)]
    if frozen:
        gc.freeze()
    return found


def _forget(module: ModuleType) -> None:
    """Drop what the functions of the module's package have answered before, made of its answers."""
    package = module.__name__.rpartition(".")[0]
    near = [each for name, each in list(sys.modules.items())
            if name.startswith(package + ".")] if "." in package else [module]
    for value in [value for each in near for value in list(vars(each).values())]:
        for each in [value, *(vars(value).values() if isinstance(value, type) else ())]:
            if isinstance(each, functools._lru_cache_wrapper):
                each.cache_clear()
    for name, table in _TABLES:
        getattr(import_module(name), table).clear()
