"""Replay recorded schedules and programs against the present code, and show what has changed.

    CAPTURE_PROCESS_REPLAY=1 python script.py
    python -m impl.playback [FOLDER]

The status is 0 if everything that was recorded comes out as it did, 1 if something changed, and 2
if nothing could be compared.
"""
from __future__ import annotations

import sys
from argparse import ArgumentParser
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from impl.caching.disk import untrusted
from impl.playback.compare import Verdict, replay
from impl.playback.records import folder_of_records


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; its status."""
    parser = ArgumentParser(prog="python -m impl.playback", description=__doc__.split("\n")[0])
    parser.add_argument("folder", nargs="?", type=Path, help="where the records are")
    parser.add_argument("--lines", type=int, default=40, help="the most lines of one difference")
    given = parser.parse_args(arguments)
    folder = given.folder or folder_of_records()
    problem = untrusted(folder) if folder.is_dir() else "is not there"
    if problem:  # r[impl playback.record.private]
        print(f"{folder} {problem}; nothing was compared")
        return 2
    counts: Counter[str] = Counter()
    for verdict in replay(folder):
        counts[verdict.outcome] += 1
        if verdict.outcome != "same":
            print(told(verdict, given.lines))
    print(f"{counts.total()} records in {folder}: {counts['same']} same, {counts['changed']} "
          f"changed, {counts['skipped']} skipped")
    # r[impl playback.replay.told]
    return 1 if counts["changed"] else 0 if counts["same"] else 2


def told(verdict: Verdict, most: int) -> str:
    """A verdict as text: what it is about, and the difference, indented."""
    record = verdict.record
    what = f"{record.kind} {record.name} ({record.line})" if record else verdict.file
    if verdict.outcome == "skipped":
        return f"{what}: skipped: {verdict.detail}"
    lines = verdict.detail.splitlines()
    left = [f"... and {len(lines) - most} lines more"] if len(lines) > most else []
    parts = sorted({line[1:].split(" ")[0] for line in lines[2:] if line[:1] in "+-"})
    where = " in " + ", ".join(parts) if record and record.kind == "schedule" else ""
    return "\n    ".join([f"{what}: changed{where}", *lines[:most], *left])


if __name__ == "__main__":
    sys.exit(main())
