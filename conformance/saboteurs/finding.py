"""Which test finds a mistake made inside `impl`: `python -m conformance.saboteurs.finding`.

The tests that cite the rule of a saboteur are run by pytest, in this process, while the mistake is
in place. One of them has to fail. With names of saboteurs: those only, and what their tests print.

`killers.json` says which it was the last time: that test is tried first, and all others where it
does not find the mistake any more. Of saboteurs that are named, the test has to pass while no
mistake is made, too. `--renew` looks at all tests again and writes the file.
"""
from __future__ import annotations

import gc
import json
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from conformance.saboteurs.impl_patches import ImplPatch, all_patches, full_name
from conformance.trace import ROOT, load

#: What a saboteur raises that does not fit the code any more. Nobody has found its mistake. (The
#: errors that say what a user did wrong are of these types too, but of classes of their own.)
MISFITS = (TypeError, AttributeError, NameError, UnboundLocalError)
#: In a process that runs tests already: nothing that such a process has once only.
_ALONE = ["--rootdir", str(ROOT), "-pno:cacheprovider", "-pno:xdist", "-pno:faulthandler",
          "-pno:terminal", "-pno:unraisableexception", "-pno:threadexception", "-pno:warnings"]


#: To pytest: plugins that are installed and not named are not looked for, which takes long.
_NO_PLUGINS = "PYTEST_DISABLE_PLUGIN_AUTOLOAD"
#: By the full name of a saboteur, the test that found it, where others were tried in vain.
KILLERS = Path(__file__).with_name("killers.json")


@dataclass
class Search:
    """A pytest plugin that remembers the first test that fails, and what the others did."""

    killer: str = ""
    test: str = ""  # the same with its file, as pytest names it
    misfit: str = ""
    passed: int = 0
    skipped: list[str] = field(default_factory=list)

    def pytest_configure(self, config: Any) -> None:
        config.option.tbstyle = "no"  # which nobody would see
        os.environ.pop(_NO_PLUGINS, None)  # of this run, and not of those that tests start

    def pytest_runtest_makereport(self, item: Any, call: Any) -> None:
        wrong = call.excinfo
        if wrong is None:
            self.passed += call.when == "call"
        elif wrong.typename == "Skipped":
            self.skipped.append(f"{item.name}: {wrong.value}")
        elif wrong.type in MISFITS:
            self.misfit = f"{item.name}: {wrong.value}"
        elif wrong.typename != "Exit":
            self.killer, self.test = self.killer or item.name, self.test or item.nodeid


@cache
def _killers() -> dict[str, str]:
    """The test that found each saboteur when that was last looked for."""
    found: dict[str, str] = json.loads(KILLERS.read_text(encoding="utf-8"))
    return found


@cache
def _cited() -> dict[str, list[str]]:
    """The tests that cite each rule, as pytest names them."""
    found: dict[str, list[str]] = {}
    for place in load(ROOT).tests:
        inner = "::".join(place.name.split(".")[1:])
        found.setdefault(place.id, []).append(f"{ROOT / place.file}::{inner}")
    return found


def tests_of(saboteur: ImplPatch) -> list[str]:
    """The tests that cite the rule of a saboteur, that to begin with first.

    Raises:
        TypeError: what it names as that is none of them.
    """
    tests = sorted(_cited().get(saboteur.rule.partition("+")[0], []),
                   key=lambda test: test.rpartition("::")[2] != saboteur.first)
    if saboteur.first and not tests[0].endswith(f"::{saboteur.first}"):
        raise TypeError(f"{type(saboteur).__name__}: no {saboteur.first} cites {saboteur.rule}")
    return tests


def search(saboteur: ImplPatch, tests: Sequence[str] = (), *, quiet: bool = True) -> Search:
    """Run tests, else those that cite a saboteur's rule, until one of them finds its mistake.

    Raises:
        TypeError, AttributeError, NameError: the saboteur does not fit the code any more.
    """
    tests = tests or tests_of(saboteur)
    _know(tests)
    known = str(ROOT / _killers().get(full_name(saboteur), ""))
    if known.partition("[")[0] in tests:
        with suppress(RuntimeError, TypeError):  # the test has another name, or does not fit
            if (found := _tried(saboteur, [known], quiet)).killer:
                return found
    return _tried(saboteur, tests, quiet)


def _tried(saboteur: ImplPatch, tests: Sequence[str], quiet: bool) -> Search:
    """What comes of some tests while the mistake is made, until one fails.

    Raises:
        RuntimeError: there are no such tests.
        TypeError, AttributeError, NameError: the saboteur does not fit the code any more.
    """
    found = Search()
    try:
        with saboteur.installed(), _silence(quiet), \
                mock.patch.dict(os.environ, {_NO_PLUGINS: "1"}):
            status = pytest.main(["-x", "-s", *_ALONE, *tests], plugins=[found])
    finally:
        _let_go()
    if status not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        raise RuntimeError(f"pytest could not run {tests}")
    if found.misfit and not found.killer:
        raise TypeError(f"{type(saboteur).__name__} does not fit: {found.misfit}")
    return found


@cache
def passes(test: str) -> bool:
    """Whether a test passes while no mistake is made: else it finds none."""
    with _silence(True), mock.patch.dict(os.environ, {_NO_PLUGINS: "1"}):
        status = pytest.main(["-x", "-s", *_ALONE, str(ROOT / test)], plugins=[Search()])
    _let_go()
    return status is pytest.ExitCode.OK


def search_apart(saboteur: ImplPatch) -> Search:
    """The same in a process of its own, which the mistake may end: a driver that is given nonsense
    gives no error. Then it has been found, too.
    """
    server = get_context("forkserver")  # which has imported everything, and started nothing
    server.set_forkserver_preload(["conformance.saboteurs.finding", "impl.webgpu",
                                    "wgpu.backends.wgpu_native"])
    answer, question = server.Pipe(duplex=False)
    process = server.Process(target=_answer, args=(saboteur, tests_of(saboteur), question))
    process.start()
    question.close()
    try:
        found = answer.recv()
    except EOFError:
        process.join()
        found = Search(killer=f"signal {-(process.exitcode or 0)}")
        if (process.exitcode or 0) >= 0:
            found = TypeError(f"{type(saboteur).__name__} could not be tried")
    process.join()
    if isinstance(found, Exception):
        raise found
    return found


def _answer(saboteur: ImplPatch, tests: Sequence[str], question: Connection) -> None:
    """What a search finds, or the error that it ends with, to the process that asked."""
    try:
        question.send(search(saboteur, tests))
    except Exception as error:  # any: the other process raises it
        question.send(error)


def _let_go() -> None:
    """Drop what a failed test held: a tensor that can no longer be computed would be in the way of
    writes in other tests.
    """
    for name in ("last_type", "last_value", "last_traceback", "last_exc"):
        if hasattr(sys, name):
            delattr(sys, name)
    gc.collect()


def _know(tests: Iterable[str]) -> None:
    """Import the modules of tests: what they import while a mistake is made, they would keep."""
    paths = {Path(test.partition("::")[0]) for test in tests}
    new = sorted(str(path) for path in paths
                 if ".".join(path.relative_to(ROOT).with_suffix("").parts) not in sys.modules)
    if new:
        with _silence(True):
            pytest.main(["--collect-only", *_ALONE, *new])


@contextmanager
def _silence(quiet: bool) -> Iterator[None]:
    """Keep what the tests of a wrong implementation print to themselves."""
    if not quiet:
        yield
        return
    sys.stdout.flush()
    sys.stderr.flush()
    kept = [os.dup(stream) for stream in (1, 2)]
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        for stream in (1, 2):
            os.dup2(nowhere, stream)
        yield
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        for stream, before in zip((1, 2), kept, strict=True):
            os.dup2(before, stream)
            os.close(before)
        os.close(nowhere)


def main(words: Sequence[str]) -> int:
    """Print a line for each saboteur. The status is 1 if one of them lives."""
    names, alive = [word for word in words if word != "--renew"], 0
    killers, renewing = dict(_killers()), len(names) < len(words)
    if renewing:
        _killers().clear()
    for saboteur in all_patches():
        if names and type(saboteur).__name__ not in names:
            continue
        found = search(saboteur, quiet=renewing or not names)
        failing = bool(names and found.test) and not passes(found.test)
        alive += failing or not found.killer and not found.skipped
        killers.pop(full_name(saboteur), None)
        if found.killer and found.passed:
            killers[full_name(saboteur)] = found.test
        verdict = f"{found.killer} fails WITHOUT the mistake too" if failing else \
            f"killed by {found.killer}" if found.killer else \
            f"its tests are skipped here, {found.skipped[0]}" if found.skipped else "ALIVE"
        print(f"{saboteur.rule:<36}{type(saboteur).__name__:<30}{verdict}", flush=True)
    if renewing:
        there = {full_name(each) for each in all_patches()}
        kept = {name: test for name, test in sorted(killers.items()) if name in there}
        KILLERS.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
    return 1 if alive else 0


if __name__ == "__main__":
    # Run as a program, this module is not the one that the tests import.
    sys.exit(import_module("conformance.saboteurs.finding").main(sys.argv[1:]))
