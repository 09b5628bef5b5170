"""Small mistakes by the hundred, made by a machine: how many of them do the tests find?

    python -m conformance.saboteurs.mutation --minutes 10
    python -m conformance.saboteurs.mutation --target checker --seed 1 --report mutation.json
    python -m conformance.saboteurs.mutation --again --report mutation.json     the survivors again

A mutant is the code with one small change: `<` for `<=`, `+` for `-`, a condition turned round, a
statement left out. It is killed if a test of its chapter fails, or does not end. Those that survive
are listed: each is either the same program in other words, or something that no test looks at.

Which mutants are tried is drawn from the seed, from all targets by turns, until time is up. They
exist in memory only; no file is changed.
"""
from __future__ import annotations

import argparse
import ast
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import asdict, dataclass, field
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_file_location
from itertools import islice, zip_longest
from multiprocessing import get_context
from pathlib import Path
from types import ModuleType
from typing import Any

import hypothesis
import pytest

from conformance.runner.fuzz import commit
from conformance.trace import ROOT, files_of

FORMAT = "tensor-mutation/1"
#: Imported here so that no child has to.
IMPORTED = (hypothesis, pytest)
#: A mutant whose tests take so many times as long as those of the code itself does not end.
PATIENCE = 4.0


@dataclass(frozen=True)
class Target:
    """Code that is changed, and the tests that have to find out."""

    name: str
    code: tuple[str, ...]
    tests: tuple[str, ...]

    def files(self) -> list[Path]:
        return sorted(path for pattern in self.code for path in ROOT.glob(pattern))


TARGETS = (
    Target("checker", ("conformance/oracle/checker.py",), ("test_checker",)),
    Target("oracle", ("conformance/oracle/__init__.py",),
           ("test_oracle", "test_oracle_tolerances")),
    Target("dependencies", ("impl/dependencies/*.py",),
           ("test_dependencies_edges", "test_dependencies")),
    Target("placement", ("impl/placement.py",),
           ("test_placement_decisions", "test_placement")),
    Target("ordering", ("impl/ordering.py",), ("test_ordering_edges", "test_ordering")),
    Target("memory", ("impl/memory/*.py",), ("test_memory_plans", "test_sharing", "test_memory")),
    Target("fusion", ("impl/fusion/*.py",), ("test_fusion_decisions", "test_fusion")),
    Target("schedule", ("impl/schedule/*.py",), ("test_schedule_decisions", "test_schedule")))


# Mutants -----------------------------------------------------------------------------------

COMPARED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq, ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is}
COMPUTED: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.FloorDiv, ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv, ast.Div: ast.Mult, ast.BitOr: ast.BitAnd, ast.BitAnd: ast.BitOr,
    ast.LShift: ast.RShift, ast.RShift: ast.LShift}
CALLED = {"min": "max", "max": "min", "any": "all", "all": "any", "first": "last"}


@dataclass(frozen=True)
class Mutant:
    """The `number`-th change of a file, and what it is."""

    file: str
    number: int
    line: int
    change: str


def changes(tree: ast.Module) -> Iterator[tuple[ast.AST, ast.AST]]:
    """Each node that can be changed, with what takes its place."""
    for node in _code(tree):
        for other in _instead(node):
            yield node, ast.copy_location(other, node)


def _code(tree: ast.AST) -> Iterator[ast.AST]:
    """The nodes that are executed and decide something: no annotations, docstrings, messages."""
    for name, value in ast.iter_fields(tree):
        if name in ("annotation", "returns", "type_params", "decorator_list") \
                or isinstance(tree, ast.Raise | ast.JoinedStr | ast.Import | ast.ImportFrom):
            continue
        for node in value if isinstance(value, list) else [value]:
            if isinstance(node, ast.AST) and not _is_text(node):
                yield node
                yield from _code(node)


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _instead(node: ast.AST) -> Iterator[ast.AST]:
    changed: Any = copy(node)  # not what is below: it stays the same
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        changed.ops = [COMPARED[type(node.ops[0])]()]
        yield changed
    elif isinstance(node, ast.BinOp) and type(node.op) in COMPUTED:
        changed.op = COMPUTED[type(node.op)]()
        yield changed
    elif isinstance(node, ast.BoolOp):
        changed.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        yield changed
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not | ast.USub):
        yield changed.operand
    elif isinstance(node, ast.Constant) and type(node.value) is bool:
        yield ast.Constant(not node.value)
    elif isinstance(node, ast.Constant) and type(node.value) is int:
        yield ast.Constant(node.value + 1)
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in CALLED:
        changed.func = ast.Name(CALLED[node.func.id], ast.Load())
        yield changed
    elif isinstance(node, ast.If | ast.IfExp):
        changed.test = ast.UnaryOp(ast.Not(), changed.test)
        yield changed
    elif isinstance(node, ast.Continue):
        yield ast.Break()
    elif isinstance(node, ast.AugAssign) or isinstance(node, ast.Expr) and not isinstance(
            node.value, ast.Yield | ast.YieldFrom):
        yield ast.Pass()


class _Replace(ast.NodeTransformer):
    def __init__(self, old: ast.AST, new: ast.AST) -> None:
        self.old, self.new = old, new

    def visit(self, node: ast.AST) -> Any:
        return self.new if node is self.old else self.generic_visit(node)


def mutants(path: Path) -> list[Mutant]:
    """All mutants of a file."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return [Mutant(str(path.relative_to(ROOT)), number, getattr(old, "lineno", 0),
                   f"{_short(old)}  ->  {_short(new)}")
            for number, (old, new) in enumerate(changes(tree))]


def _short(node: ast.AST) -> str:
    if isinstance(node, ast.If):
        node = node.test
    line = ast.unparse(ast.fix_missing_locations(node)).splitlines()[0]
    return line if len(line) <= 90 else line[:90] + " ..."


def mutated(path: Path, number: int) -> ast.Module:
    """The code of a file with one change."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    old, new = next(islice(changes(tree), number, None))
    changed: ast.Module = _Replace(old, new).visit(tree)
    return ast.fix_missing_locations(changed)


class Overlay(MetaPathFinder, Loader):
    """Loads one module of the project from a changed tree."""

    def __init__(self, path: Path, number: int) -> None:
        self.path, self.number = path, number
        parts = path.relative_to(ROOT).with_suffix("").parts
        self.name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)

    def find_spec(self, fullname: str, path: object = None,
                  target: ModuleType | None = None) -> ModuleSpec | None:
        if fullname != self.name:
            return None
        inner = [str(self.path.parent)] if self.path.stem == "__init__" else None
        return spec_from_file_location(fullname, self.path, loader=self,
                                       submodule_search_locations=inner)

    def exec_module(self, module: ModuleType) -> None:
        tree = mutated(self.path, self.number)
        exec(compile(tree, str(self.path), "exec", dont_inherit=True), module.__dict__)


# Trying ------------------------------------------------------------------------------------


@dataclass
class Score:
    """What came of the mutants of one target."""

    mutants: int = 0
    killed: int = 0
    endless: int = 0
    survivors: list[dict[str, Any]] = field(default_factory=list)

    @property
    def tried(self) -> int:
        return self.killed + self.endless + len(self.survivors)


def run_tests(file: str, number: int, tests: Sequence[str]) -> int:
    """Run tests in this process with a mutant in place; -1: with the code as it is."""
    if number >= 0:
        sys.meta_path.insert(0, Overlay(ROOT / file, number))
        for name in [each for each in sys.modules if each.partition(".")[0] == "conformance"]:
            del sys.modules[name]  # so that they are loaded with the mutant
    return int(pytest.main(["-q", "-x", "--no-header", "--tb=no", "-p", "no:cacheprovider",
                            *(str(path) for each in tests for path in files_of(each))]))


def _in_child(file: str, number: int, tests: Sequence[str], environment: dict[str, str]) -> None:
    os.setsid()
    if number >= 0:  # see `mutants._in_child`
        environment = {**environment,
                       "CACHE_FOLDER": tempfile.mkdtemp(dir=environment["CACHE_FOLDER"])}
    os.environ.update(environment)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(nowhere, stream)
    os._exit(run_tests(file, number, tests))


class Mutation:
    """A run under way."""

    def __init__(self, targets: Sequence[Target], seed: int, minutes: float,
                 report: Path | None, again: bool = False) -> None:
        self.targets, self.seed, self.minutes, self.path = targets, seed, minutes, report
        self.scores = {target.name: Score() for target in targets}
        self.again: list[tuple[Target, Mutant]] = []
        self.others: dict[str, Any] = {}  # what a report says of targets that are not chosen now
        if again and report is not None:
            self._begin_with(json.loads(report.read_text(encoding="utf-8"))["targets"])
        self.began = time.monotonic()

    def _begin_with(self, known: dict[str, Any]) -> None:
        """Take over what a report says; its survivors are to be tried once more."""
        self.others = {name: score for name, score in known.items() if name not in self.scores}
        for target in self.targets:
            score = self.scores[target.name] = Score(**{
                name: value for name, value in known[target.name].items() if name != "tried"})
            for each in score.survivors:
                mutant = Mutant(**each)
                if mutant not in mutants(ROOT / mutant.file):
                    raise SystemExit(f"{mutant.file} has changed since; begin a new report")
                self.again.append((target, mutant))

    def run(self) -> None:
        """Try mutants until time is up, and write down what came of them."""
        with tempfile.TemporaryDirectory(prefix="mutation-") as cache:
            environment = {**os.environ, "CACHE_FOLDER": cache}
            wanted = [each for each in self.targets
                      if not self.again or self.scores[each.name].survivors]
            limits = {target.name: self._usual(target, environment) for target in wanted}
            self.began = time.monotonic()
            for target, mutant in self._drawn():
                if time.monotonic() - self.began > 60 * self.minutes:
                    break
                self._try(target, mutant, limits[target.name], environment)
                self._write()
        self._write()

    def _drawn(self) -> Iterator[tuple[Target, Mutant]]:
        """All mutants in an order drawn from the seed, from the targets by turns."""
        if self.again:
            yield from self.again
            return
        queues = []
        for target in self.targets:
            found = [mutant for path in target.files() for mutant in mutants(path)]
            self.scores[target.name].mutants = len(found)
            random.Random(f"{self.seed} {target.name}").shuffle(found)
            queues.append([(target, mutant) for mutant in found])
        for turn in zip_longest(*queues):
            yield from (each for each in turn if each is not None)

    def _usual(self, target: Target, environment: dict[str, str]) -> float:
        """Seconds after which a mutant is given up; the code as it is has to pass."""
        start = time.monotonic()
        status = self._status(target, "", -1, environment, None)
        if status != 0:
            raise SystemExit(f"the tests of {target.name} fail without any change")
        return 10 + PATIENCE * (time.monotonic() - start)

    def _status(self, target: Target, file: str, number: int, environment: dict[str, str],
                limit: float | None) -> int | None:
        """The status of the tests; None if they did not end."""
        process = get_context("fork").Process(  # what is imported already need not be again
            target=_in_child, args=(file, number, target.tests, environment))
        process.start()
        process.join(limit)
        if process.is_alive():
            os.killpg(process.pid or 0, signal.SIGKILL)  # with what it has started
            process.join()
            return None
        return process.exitcode

    def _try(self, target: Target, mutant: Mutant, limit: float,
             environment: dict[str, str]) -> None:
        status = self._status(target, mutant.file, mutant.number, environment, limit)
        score = self.scores[target.name]
        if self.again:
            score.survivors.remove(asdict(mutant))
        if status is None:
            score.endless += 1
        elif status == 0:
            score.survivors.append(asdict(mutant))
        else:
            score.killed += 1
        verdict = {None: "endless", 0: "SURVIVES"}.get(status, "killed")
        print(f"{verdict:<10}{mutant.file}:{mutant.line}  {mutant.change}", flush=True)

    def _write(self) -> None:
        if self.path is not None:
            partial = self.path.with_name(f"{self.path.name}.{os.getpid()}.tmp")
            partial.write_text(json.dumps(self.report(), indent=1) + "\n", encoding="utf-8")
            partial.replace(self.path)

    def report(self) -> dict[str, Any]:
        """What is known by now."""
        return {"format": FORMAT, "commit": commit(), "seed": self.seed,
                "minutes": round((time.monotonic() - self.began) / 60, 1),
                "targets": self.others | {
                    name: {"mutants": score.mutants, "tried": score.tried,
                           "killed": score.killed, "endless": score.endless,
                           "survivors": score.survivors}
                    for name, score in self.scores.items()}}

    def table(self) -> str:
        """A line for each target."""
        lines = [f"{'target':<14}{'mutants':>9}{'tried':>7}{'found':>7}{'survive':>9}{'score':>8}"]
        for name, score in self.scores.items():
            found = score.killed + score.endless
            share = f"{100 * found / score.tried:.0f} %" if score.tried else "-"
            lines.append(f"{name:<14}{score.mutants:>9}{score.tried:>7}{found:>7}"
                         f"{len(score.survivors):>9}{share:>8}")
        return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it.  The status is 0 when no mutant survives."""
    parser = argparse.ArgumentParser(prog="python -m conformance.saboteurs.mutation",
                                     description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10.0, help="no mutant begins after these")
    parser.add_argument("--seed", type=int, default=0, help="of the draw")
    parser.add_argument("--target", action="append", default=[],
                        choices=[target.name for target in TARGETS])
    parser.add_argument("--report", type=Path, help="where to write what was found")
    parser.add_argument("--again", action="store_true",
                        help="try only what survived in the report, and bring it up to date")
    options = parser.parse_args(arguments)
    if options.again and options.report is None:
        parser.error("--again needs the --report of an earlier run")
    chosen = [each for each in TARGETS if not options.target or each.name in options.target]
    run = Mutation(chosen, options.seed, options.minutes, options.report, options.again)
    try:
        run.run()
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
    print(run.table())
    return int(any(score.survivors for score in run.scores.values()))


if __name__ == "__main__":
    sys.exit(main())
