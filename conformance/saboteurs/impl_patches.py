"""Mistakes made inside `impl`, for which looking from outside is not enough.

Each replaces one function while it is installed. What kills it are the white-box tests of its
chapter, those that cite its rule and ask for nothing. `python -m
conformance.saboteurs.impl_patches` says who is killed by what.
"""
from __future__ import annotations

import pkgutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from inspect import signature
from typing import Any, ClassVar

from conformance.saboteurs import Patch

#: The white-box tests of each chapter.
TESTS = {"dependencies": ("test_dependencies_edges",), "ordering": ("test_ordering_edges",),
         "memory": ("test_memory_plans", "test_symbolic_sizes"),
         "caching": ("test_caching_keys", "test_caching_disk", "test_symbolic_sizes"),
         "fusion": ("test_fusion_decisions",), "playback": ("test_playback",),
         "ranges": ("test_ranges",), "symbolic": ("test_symbolic_sizes",),
         "tensor": ("test_symbolic_sizes",), "replay": ("test_replay_sizes",),
         "kernel": ("test_kernel_steps", "test_kernel", "test_kernel_search",
                    "test_kernel_products", "test_cpu_threads", "test_opencl"),
         "render": ("test_cpu_threads", "test_opencl"), "device": ("test_opencl",),
         "opencl": ("test_opencl",), "cpu": ("test_cpu_threads", "test_cpu_memory")}


#: What a saboteur raises that does not fit the code any more. Nobody has found its mistake.
MISFITS = (TypeError, AttributeError, NameError)


class ImplPatch:
    """One mistake in one function of `impl`, `target` being "package.module:function"."""

    rule: ClassVar[str] = ""
    description: ClassVar[str] = ""
    target: ClassVar[str] = ""

    def replacement(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """What stands in the function's place."""
        raise NotImplementedError

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Make the mistake in this process until the block ends. Plans do not outlive it."""
        patch = type("_Patch", (Patch,), {
            "target": self.target, "replacement": lambda _, original: self.replacement(original)})
        cache = import_module("impl.schedule").schedule_cache
        cache.clear()
        try:
            with patch().installed():
                yield
        finally:
            cache.clear()


def all_patches(chapter: str = "") -> list[ImplPatch]:
    """One of each class of the modules `impl_...` whose rule is of the chapter."""
    package = import_module("conformance.saboteurs")
    found: list[ImplPatch] = []
    for entry in pkgutil.iter_modules(package.__path__):
        if entry.name.startswith("impl_"):
            module = import_module(f"conformance.saboteurs.{entry.name}")
            found += [value() for value in vars(module).values()
                      if isinstance(value, type) and issubclass(value, ImplPatch)
                      and value.rule.startswith(f"{chapter}." if chapter else "")
                      and value.rule and value.__module__ == module.__name__]
    return found


def tests_of(rule: str) -> dict[str, Callable[[], None]]:
    """The white-box tests that cite a rule and ask for nothing."""
    modules = [import_module(f"conformance.{name}") for name in TESTS[rule.split(".")[0]]]
    return {name: function for module in modules for name, function in vars(module).items()
            if name.startswith("test_") and rule in getattr(function, "__rules__", ())
            and not signature(function).parameters}


def killer(saboteur: ImplPatch) -> str:
    """The name of a test that cites the saboteur's rule and finds it, or ""."""
    for name, test in tests_of(saboteur.rule).items():
        with saboteur.installed():
            try:
                test()
            except (KeyboardInterrupt, SystemExit, *MISFITS):
                raise
            except BaseException:  # any: a crash finds it too, and pytest's own are no Exception
                return name
    return ""


def main() -> int:
    """Print a line for each saboteur. The status is 1 if one of them lives."""
    alive = 0
    for saboteur in all_patches():
        found = killer(saboteur)
        alive += not found
        print(f"{saboteur.rule:<36}{type(saboteur).__name__:<30}"
              f"{'killed by ' + found if found else 'ALIVE'}", flush=True)
    return 1 if alive else 0


if __name__ == "__main__":
    # Run as a program, this module is not the one that the saboteurs import.
    sys.exit(import_module("conformance.saboteurs.impl_patches").main())
