"""How tightly memory is planned, on problems from files.

    python -m conformance.bench memory --csv FOLDER

A file holds one problem, in the format of the MiniMalloc benchmarks: a line `id,lower,upper,size`,
and then for each buffer its name, the first step of its life, the step after its last, and its
bytes. The capacity, in bytes, stands in the file's name: `NAME.CAPACITY.csv`.

The planner is asked for offsets within the capacity (with --least, for the least that it can
find). What it answers is checked here, by definition: nothing that is alive together shares a
byte. The status is 1 if a file cannot be read or an answer is wrong, and 0 otherwise; a plan that
needs more than the capacity is shown as such.
"""
from __future__ import annotations

import csv
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import perf_counter

from impl import memory

COLUMNS = ("id", "lower", "upper", "size")


class ProblemError(ValueError):
    """A file that is no problem: where, what, and what to do about it."""


@dataclass(frozen=True)
class Row:
    """A buffer: alive from step `lower` to the step before `upper`."""

    name: str
    lower: int
    upper: int
    size: int


@dataclass(frozen=True)
class Problem:
    name: str
    capacity: int
    rows: list[Row]


@dataclass(frozen=True)
class Line:
    """What is told of a problem; bytes and seconds."""

    problem: Problem
    bound: int
    greedy: int
    ours: int
    seconds: float


def add_arguments(parser: ArgumentParser) -> None:
    """The options of `python -m conformance.bench memory`."""
    parser.add_argument("--csv", type=Path, required=True, metavar="FOLDER",
                        help="a folder with files NAME.CAPACITY.csv, or one such file")
    parser.add_argument("--repeat", type=int, default=3, help="runs; the median time is shown")
    parser.add_argument("--least", action="store_true",
                        help="ask for the lower bound, not only for the capacity")
    parser.add_argument("--budget", type=int, default=memory.SEARCH_BUDGET,
                        help="how much the search may do, in cells (see impl/memory/search.py)")


def main(arguments: Namespace) -> int:
    """Print a table with a line for each file; the status."""
    try:
        problems = [read(path) for path in files(arguments.csv)]
    except ProblemError as error:
        print(error, file=sys.stderr)
        return 1
    print(f"{'file':<14}{'size':>6}{'capacity':>12}{'lower bound':>13}{'greedy':>11}{'ours':>11}"
          f"{'of capacity':>13}{'seconds':>9}")
    status = 0
    for problem in problems:
        try:
            print(text(measure(problem, arguments.budget, arguments.least,
                               max(1, arguments.repeat))), flush=True)
        except WrongPlan as wrong:
            print(f"{problem.name}: {wrong}", file=sys.stderr)
            status = 1
    return status


def text(line: Line) -> str:
    """A line of the table."""
    problem = line.problem
    return (f"{problem.name:<14}{len(problem.rows):>6}{problem.capacity:>12}{line.bound:>13}"
            f"{line.greedy:>11}{line.ours:>11}{line.ours / problem.capacity:>13.4f}"
            f"{line.seconds:>9.2f}{'' if line.ours <= problem.capacity else '  does not fit'}")


# Files


def files(place: Path) -> list[Path]:
    """The problems of a folder, by name; or the one file."""
    found = sorted(place.glob("*.csv")) if place.is_dir() else [place]
    if not found:
        raise ProblemError(f"{place}: there is no file *.csv; give the folder that holds them")
    return found


def read(path: Path) -> Problem:
    """The problem of a file.

    Raises:
        ProblemError: the name has no capacity, or the text is not of the format.
    """
    name, _, capacity = path.name.removesuffix(".csv").rpartition(".")
    if not capacity.isascii() or not capacity.isdigit() or not int(capacity) or not name:
        raise ProblemError(f"{path}: the file's name holds no capacity; call it "
                           f"{path.stem}.CAPACITY.csv, with the capacity in bytes")
    try:
        with path.open(encoding="utf-8", newline="") as stream:
            rows = _rows(path, csv.reader(stream, strict=True))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ProblemError(f"{path}: cannot be read as a table of text: {error}; "
                           f"give a file that begins with {','.join(COLUMNS)}") from error
    return Problem(name, int(capacity), rows)


def _rows(path: Path, lines: Iterator[list[str]]) -> list[Row]:
    header = [cell.strip() for cell in next(lines, [])]
    if sorted(header) != sorted(COLUMNS):
        raise ProblemError(f"{path}:1: the columns are {','.join(header) or 'missing'}; "
                           f"they have to be {','.join(COLUMNS)}")
    rows: list[Row] = []
    names: set[str] = set()
    for number, cells in enumerate(lines, 2):
        if not cells:
            continue
        row = _row(f"{path}:{number}", dict(zip(header, cells, strict=False)), len(cells))
        if row.name in names:
            raise ProblemError(f"{path}:{number}: the id {row.name} was there before; "
                               "give each buffer its own")
        names.add(row.name)
        rows.append(row)
    return rows


def _row(where: str, cells: dict[str, str], count: int) -> Row:
    if count != len(COLUMNS):
        raise ProblemError(f"{where}: {count} cells where there are {len(COLUMNS)} columns; "
                           f"write {','.join(COLUMNS)}")
    try:
        lower, upper, size = (int(cells[column]) for column in COLUMNS[1:])
    except ValueError:
        raise ProblemError(f"{where}: {cells} has something that is no whole number; write lower, "
                           "upper and size as digits") from None
    if size < 0 or upper <= lower:
        raise ProblemError(f"{where}: a life from {lower} to before {upper}, of {size} bytes; "
                           "upper has to be above lower, and size not negative")
    return Row(cells["id"], lower, upper, size)


# Plans


class WrongPlan(ValueError):
    """An answer in which something is missing, or lies on something else."""


def measure(problem: Problem, budget: int, least: bool, repeat: int) -> Line:
    """Plan a problem and check the plan; the time is the median of the runs.

    Raises:
        WrongPlan: the answer is no plan.
    """
    bound = live_bound(problem.rows)
    spans = [memory.Lifetime(number, row.size, row.lower, row.upper - 1)
             for number, row in enumerate(problem.rows)]
    enough = bound if least else max(bound, problem.capacity)
    greedy = checked_height(problem.rows, memory.assign(spans, bound, 0))
    heights, seconds = set(), []
    for _ in range(repeat):
        begin = perf_counter()
        offsets = memory.assign(spans, enough, budget)
        seconds.append(perf_counter() - begin)
        heights.add(checked_height(problem.rows, offsets))
    if len(heights) > 1:
        raise WrongPlan(f"the same problem was planned in {sorted(heights)} bytes")
    return Line(problem, bound, greedy, heights.pop(), median(seconds))


def live_bound(rows: Sequence[Row]) -> int:
    """The most bytes alive at one position: counted where a life begins, as only there it grows.
    """
    return max((sum(other.size for other in rows if other.lower <= row.lower < other.upper)
                for row in rows), default=0)


def checked_height(rows: Sequence[Row], offsets: dict[int, int]) -> int:
    """The bytes that a plan needs.

    Raises:
        WrongPlan: a buffer has no offset, a negative one, or shares a byte with one that is alive
            together with it.
    """
    if sorted(offsets) != list(range(len(rows))):
        raise WrongPlan(f"{len(offsets)} offsets for {len(rows)} buffers")
    for number, row in enumerate(rows):
        start, stop = offsets[number], offsets[number] + row.size
        if start < 0:
            raise WrongPlan(f"buffer {row.name} lies at {start}")
        for earlier, other in enumerate(rows[:number]):
            apart = offsets[earlier] + other.size <= start or stop <= offsets[earlier]
            if not apart and row.lower < other.upper and other.lower < row.upper:
                raise WrongPlan(f"buffers {row.name} and {other.name} share bytes")
    return max((offsets[number] + row.size for number, row in enumerate(rows)), default=0)
