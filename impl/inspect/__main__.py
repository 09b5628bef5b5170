"""Schedules in files, on the command line.

    python -m impl.inspect show a.json                  tables, reasons and memory as text
    python -m impl.inspect report a.json a.html         the same as a page
    python -m impl.inspect diff a.json b.json           what differs (--html FILE: as a page)
    python -m impl.inspect trace a.json a.trace.json    what runs when, predicted, for Perfetto

A file is what `json.dump(Tensor.schedule_document(tensor), file)` writes. `diff` ends with status 1
if the schedules differ in anything that it compares, as `diff` does: kernels, bytes, reasons,
order, dependencies, memory.
"""
from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from impl import inspect
from impl.errors import TensorScheduleError
from impl.inspect.text import Document


def _document(path: str) -> Document:
    found = json.loads(Path(path).read_text(encoding="utf-8"))
    if not isinstance(found, dict):
        raise ValueError(f"{path} is no schedule document")
    return found


def main(given: list[str] | None = None) -> int:
    """Do what the command line asks for."""
    assert __doc__
    parser = argparse.ArgumentParser(prog="python -m impl.inspect", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    for name, files in (("show", ("document",)), ("report", ("document", "page")),
                        ("diff", ("first", "second")), ("trace", ("document", "trace"))):
        command = commands.add_parser(name)
        for each in files:
            command.add_argument(each)
        if name == "diff":
            command.add_argument("--html", metavar="FILE", help="write a page")
    asked = parser.parse_args(given)
    try:
        return _done(asked)
    except (OSError, ValueError, TensorScheduleError) as error:
        print(f"python -m impl.inspect: {error}", file=sys.stderr)
        return 2


def _done(asked: argparse.Namespace) -> int:
    if asked.command == "diff":
        first, second = _document(asked.first), _document(asked.second)
        print(inspect.difference(first, second))
        if asked.html:
            Path(asked.html).write_text(inspect.difference_html(
                first, second, (asked.first, asked.second)), encoding="utf-8")
        return int(inspect.compared(first, second).differs)
    document = _document(asked.document)
    if asked.command == "show":
        print(inspect.kernel_table(document), inspect.explain(document), sep="\n\n")
    elif asked.command == "report":
        print(inspect.html_report(document, asked.page))
    else:
        print(inspect.write_trace(inspect.predicted_spans(document), asked.trace, document))
    return 0


if __name__ == "__main__":
    sys.exit(main())
