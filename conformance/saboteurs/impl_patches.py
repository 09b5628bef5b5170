"""Mistakes made inside `impl`, for which looking from outside is not enough.

Each replaces one function while it is installed. What kills it are the white-box tests of its
chapter, those that cite its rule and ask for nothing. `python -m
conformance.saboteurs.impl_patches` says who is killed by what.
"""
from __future__ import annotations

import os
import pkgutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from inspect import signature
from typing import Any, ClassVar
from unittest import mock

from conformance.saboteurs import Patch
from conformance.trace import ROOT

#: The white-box tests of each chapter.
TESTS = {"dependencies": ("test_dependencies_edges",), "ordering": ("test_ordering_edges",),
         "memory": ("test_memory_plans", "test_symbolic_sizes"),
         "caching": ("test_caching_keys", "test_caching_disk", "test_symbolic_sizes"),
         "fusion": ("test_fusion_decisions",), "playback": ("test_playback",),
         "ranges": ("test_ranges", "test_in_order"), "symbolic": ("test_symbolic_sizes",),
         "tensor": ("test_symbolic_sizes", "test_in_order", "test_tensor_edges",
                    "test_tensor_methods"), "errors": ("test_errors",),
         "replay": ("test_replay_sizes", "test_replay_calls", "test_replay_parted",
                    "test_replay_guards"),
         "kernel": ("test_kernel_steps", "test_kernel", "test_kernel_search",
                    "test_kernel_products", "test_plain", "test_cpu_threads", "test_opencl",
                    "test_kernel_text", "test_tensor_cores", "test_warps"),
         "render": ("test_cpu_threads", "test_vectors", "test_plain", "test_opencl",
                    "test_kernel_text", "test_kernel_products", "test_tensor_cores", "test_warps"),
         "device": ("test_opencl", "test_device", "test_device_search"),
         "opencl": ("test_opencl",), "cuda": ("test_cuda", "test_device_search"),
         "metal": ("test_metal", "test_device_search"),
         "inspect": ("test_inspect",),
         "cpu": ("test_cpu", "test_cpu_threads", "test_cpu_memory", "test_cpu_targets")}


#: Names the saboteur of a process to the processes that it starts.
INHERITED = "CONFORMANCE_SABOTEUR"
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
        """Make the mistake in this process until the block ends.

        Plans do not outlive it. The code counts as another version: texts that the right code
        kept are not found, and nobody finds the wrong ones.
        """
        patch = type("_Patch", (Patch,), {
            "target": self.target, "replacement": lambda _, original: self.replacement(original)})
        cache, texts = (import_module(f"impl.{name}") for name in ("schedule", "caching.texts"))
        version = f"{texts.code_version()} {type(self).__name__} {os.getpid()}"
        cache.schedule_cache.clear()
        try:
            with mock.patch.object(texts, "code_version", lambda: version), patch().installed(), \
                    mock.patch.dict(os.environ, {INHERITED: type(self).__name__}):
                yield
        finally:
            cache.schedule_cache.clear()


@contextmanager
def inherited() -> Iterator[None]:
    """Make the mistake of the process that started this one, if that makes one."""
    name = os.environ.get(INHERITED)
    if not name:
        yield
        return
    with next(each for each in all_patches() if type(each).__name__ == name).installed():
        yield


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
    return _killer_among_all(saboteur)


class _Citing:
    """A pytest plugin: runs the tests that cite a rule, until one finds what is wrong."""

    def __init__(self, rule: str) -> None:
        self.rule, self.killer = rule.partition("+")[0], ""

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        items[:] = [item for item in items if any(
            mark.args[0].partition("+")[0] == self.rule for mark in item.iter_markers("verifies"))]

    def pytest_runtest_makereport(self, item: Any, call: Any) -> None:
        wrong = call.excinfo
        if wrong is not None and not wrong.errisinstance(MISFITS) \
                and wrong.typename not in ("Skipped", "Exit"):
            self.killer = self.killer or item.name


def _killer_among_all(saboteur: ImplPatch) -> str:
    """The same among the tests that ask pytest for something, in a process of its own."""
    command = [sys.executable, "-m", __name__, type(saboteur).__name__]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    return found.stdout.splitlines()[-1] if found.returncode == 1 else ""


def try_pytest(name: str) -> int:
    """Run the tests that cite a saboteur's rule. The status is 1 if one finds it; it is printed."""
    import pytest

    saboteur = next(each for each in all_patches() if type(each).__name__ == name)
    tests = [str(ROOT / "conformance" / f"{each}.py")
             for each in TESTS[saboteur.rule.split(".")[0]]]
    citing = _Citing(saboteur.rule)
    with saboteur.installed():
        pytest.main(["-q", "-x", "-p", "no:cacheprovider", *tests], plugins=[citing])
    print(citing.killer)
    return bool(citing.killer)


def main() -> int:
    """Print a line for each saboteur. The status is 1 if one of them lives.

    With the name of a saboteur: whether a test finds that one, among those that ask for something.
    """
    if len(sys.argv) > 1:
        return try_pytest(sys.argv[1])
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
