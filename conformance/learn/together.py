"""All parts of the reader's in one run of a program, and the same run with ours beside it.

    python -m conformance.learn run -- python -m impl --epochs 5

Each `my_LESSON.py` of a folder whose rules were all green at its last check takes the place of our
part. The program runs twice, in processes of their own and with empty caches of kernels: first with
the reader's parts, then with ours alone. What the runtime counts stands side by side at the end,
and whether both have printed the same.
"""
from __future__ import annotations

import io
import itertools
import json
import os
import re
import runpy
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from conformance.learn.lessons import LESSONS
from conformance.learn.overlay import Overlay, Progress, digest
from conformance.trace import ROOT

#: What is compared: the name of a counter, and what a person calls it.
COUNTED = {"kernels": "kernels run", "operations": "operations", "bytes": "bytes they touch",
           "plan_misses": "schedules planned", "compiled": "kernels compiled",
           "peak": "bytes in memory at the peak", "seconds": "seconds"}


class NoProgram(ValueError):
    """What was asked to be run is no Python program."""


def program_of(words: Sequence[str]) -> list[str]:
    """The words of a command without its interpreter: `-m impl`, or a script and its arguments.

    Raises:
        NoProgram: it is something else.
    """
    given = list(words) or ["python", "-m", "impl"]
    interpreter = Path(given[0]).name
    if interpreter.startswith(("python", "pypy")) or given[0] == sys.executable:
        given = given[1:]
    if given[:1] == ["-m"] and len(given) > 1 or given[:1] and given[0].endswith(".py"):
        return given
    raise NoProgram(f"{' '.join(words)!r} is no Python program that can be run. Remedy: "
                    "run -- python -m impl, or run -- python my_script.py")


def chosen(folder: Path, unchecked: bool) -> tuple[list[str], dict[str, str]]:
    """The lessons whose parts are the reader's, and why each other file of the folder is not."""
    green, left = [], {}
    for slug, lesson in LESSONS.items():
        mine = folder / f"my_{slug}.py"
        if not mine.exists():
            continue
        known = Progress(mine).of(slug)
        if unchecked:
            green.append(slug)
        elif set(known["green"]) != set(lesson.rules):
            left[slug] = "not all of its rules are green"
        elif known.get("file") != digest(mine):
            left[slug] = "it was changed after its last check"
        else:
            green.append(slug)
    return green, left


def run(words: Sequence[str], folder: Path, unchecked: bool = False) -> int:
    """Run a program with all parts of the reader's, then with ours, and compare.

    Returns the exit status of the reader's run, or of ours if that fails.
    """
    try:
        program = program_of(words)
    except NoProgram as error:
        print(error, file=sys.stderr)
        return 2
    mine, left = chosen(folder, unchecked)
    for slug, why in left.items():
        print(f"{folder / f'my_{slug}.py'} is left out: {why}. "
              f"python -m conformance.learn check {slug}", file=sys.stderr)
    if not mine:
        print(f"no lesson is done in {folder}: ours would run alone. Begin with\n"
              "python -m conformance.learn start symbolic", file=sys.stderr)
        return 1
    print(f"your parts: {', '.join(mine)}", flush=True)
    counts = []
    for slugs in (mine, []):
        status, counted = _in_a_process(program, folder, slugs)
        if status:
            print(f"{'your scheduler' if slugs else 'ours alone'} ended with status {status}; "
                  "there is nothing to compare", file=sys.stderr)
            return status
        counts.append(counted)
    print(*table(*counts), *said_apart(*(each["printed"] for each in counts)), sep="\n")
    return 0


def table(mine: dict[str, Any], ours: dict[str, Any]) -> list[str]:
    """The counts of both runs, a line for each."""
    lines = [f"{'':<30}{'yours':>16}{'ours':>16}"]
    for name, words in COUNTED.items():
        both = [f"{each[name]:.1f}" if name == "seconds" else f"{each[name]:,}"
                for each in (mine, ours)]
        lines.append(f"{words:<30}{both[0]:>16}{both[1]:>16}")
    return lines


def said_apart(mine: Sequence[str], ours: Sequence[str]) -> list[str]:
    """Whether two runs have printed the same lines, and the first pair that differs."""
    apart = [(one or "nothing", other or "nothing") for one, other in itertools.zip_longest(
        mine, ours) if _timeless(one or "") != _timeless(other or "")]
    if not apart:
        return [f"both print the same {len(mine)} lines" + ", but for times" * (
            list(mine) != list(ours))]
    return [f"{len(apart)} of {max(len(mine), len(ours))} printed lines differ, the first:",
            f"  yours: {apart[0][0]}", f"  ours:  {apart[0][1]}"]


def _timeless(line: str) -> str:
    """A line without times and names of folders, which differ in each run."""
    words = re.sub(r"\d[\d.,]* (?:s|ms|us|ns)\b", "some time", line).split()
    return " ".join("a folder" if each.startswith(tempfile.gettempdir()) else each
                    for each in words)


class _Kept(io.StringIO):
    """What is printed, shown and kept."""

    def write(self, text: str) -> int:
        if sys.__stdout__ is not None:
            sys.__stdout__.write(text)
        return super().write(text)

    def flush(self) -> None:
        if sys.__stdout__ is not None:
            sys.__stdout__.flush()


def _in_a_process(program: list[str], folder: Path,
                  slugs: Sequence[str]) -> tuple[int, dict[str, Any]]:
    """The exit status of a run, and what was counted. Of ours only errors are shown."""
    with tempfile.TemporaryDirectory(prefix="learn-") as place:
        counts = Path(place) / "counts.json"
        path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
        ended = subprocess.run(
            [sys.executable, "-m", "conformance.learn.together", str(counts), str(folder),
             ",".join(slugs), *program], check=False, stdout=None if slugs else subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": path, "CACHE_FOLDER": str(Path(place) / "cache")})
        return ended.returncode, json.loads(counts.read_text()) if counts.exists() else {}


def inside(counts: Path, folder: Path, slugs: Sequence[str], program: list[str]) -> None:
    """Run a program in this process with some parts of the reader's, and note what was counted."""
    sys.meta_path[:0] = [Overlay(slug, (folder / f"my_{slug}.py").resolve()) for slug in slugs]
    module = program[0] == "-m"
    sys.argv = program[1:] if module else list(program)
    started, sys.stdout = time.perf_counter(), (printed := _Kept())
    try:
        if module:
            runpy.run_module(program[1], run_name="__main__", alter_sys=True)
        else:
            sys.path.insert(0, str(Path(program[0]).resolve().parent))
            runpy.run_path(program[0], run_name="__main__")
    finally:
        from impl import GlobalCounters
        known = {name: getattr(GlobalCounters, name, 0) for name in COUNTED}
        known["seconds"] = time.perf_counter() - started
        known["printed"] = printed.getvalue().splitlines()
        counts.write_text(json.dumps(known), encoding="utf-8")


if __name__ == "__main__":
    inside(Path(sys.argv[1]), Path(sys.argv[2]), [s for s in sys.argv[3].split(",") if s],
           sys.argv[4:])
