"""Mistakes made inside `impl`, for which looking from outside is not enough.

Each replaces one function while it is installed, or edits a line of one (`edits.py`). What kills it
are the tests that cite its rule: `python -m conformance.saboteurs.finding` says which.
"""
from __future__ import annotations

import atexit
import os
import pkgutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from importlib import import_module
from typing import Any, ClassVar
from unittest import mock

from conformance.saboteurs import Patch

#: Names the saboteur of a process to the processes that it starts.
INHERITED = "CONFORMANCE_SABOTEUR"


class ImplPatch:
    """One mistake in one function of `impl`, `target` being "package.module:function".

    `first` is the test to begin with, where others of the rule take long and do not find it.
    """

    rule: ClassVar[str] = ""
    description: ClassVar[str] = ""
    target: ClassVar[str] = ""
    first: ClassVar[str] = ""

    @property
    def apart(self) -> bool:
        """Whether the mistake may end the process in which it is made."""
        return self.rule.startswith("webgpu.")

    def replacement(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """What stands in the function's place."""
        raise NotImplementedError

    def mistake(self) -> AbstractContextManager[None]:
        """The function is another one until the block ends."""
        patch = type("_Patch", (Patch,), {
            "target": self.target, "replacement": lambda _, original: self.replacement(original)})
        return patch().installed()

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Make the mistake in this process until the block ends.

        Plans and programs do not outlive it. The code counts as another version: texts that the
        right code kept are not found, and nobody finds the wrong ones.
        """
        texts = import_module("impl.caching.texts")
        version = f"{texts.code_version()} {type(self).__name__} {os.getpid()}"
        _forget()
        try:
            with mock.patch.object(texts, "code_version", lambda: version), self.mistake(), \
                    mock.patch.dict(os.environ, {INHERITED: full_name(self)}):
                yield
        finally:
            _forget()


def _forget() -> None:
    """Drop what this process has planned and compiled."""
    import_module("impl.schedule").schedule_cache.clear()
    import_module("impl.realize.looping")._bodies.clear()  # of graphs that somebody still has
    for device in import_module("impl.device").Device.opened.values():
        device.programs.clear()


@contextmanager
def inherited() -> Iterator[None]:
    """Make the mistake of the process that started this one, if that makes one."""
    name = os.environ.get(INHERITED)
    if not name:
        yield
        return
    module, _, patch = name.partition(":")  # of its module alone: there are many
    with getattr(import_module(module), patch)().installed():
        yield


def inherit() -> None:
    """The same until this process ends."""
    stack = ExitStack()
    stack.enter_context(inherited())
    atexit.register(stack.close)


def all_patches() -> list[ImplPatch]:
    """One of each class of the modules `impl_...` that names a rule."""
    package = import_module("conformance.saboteurs")
    found: list[ImplPatch] = []
    for entry in pkgutil.iter_modules(package.__path__):
        if entry.name.startswith("impl_"):
            module = import_module(f"conformance.saboteurs.{entry.name}")
            found += [value() for value in vars(module).values()
                      if isinstance(value, type) and issubclass(value, ImplPatch)
                      and value.rule and value.__module__ == module.__name__]
    return found


def full_name(patch: ImplPatch) -> str:
    """What tells it from one of another module that is called the same."""
    return f"{type(patch).__module__}:{type(patch).__qualname__}"
