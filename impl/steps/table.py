"""The table of the chapter: all steps, as they declare themselves. Chapter: spec/steps.md.

    python -m impl.steps.table          print it
    python -m impl.steps.table renew    write it into spec/steps.md, in place of the one there
"""
from __future__ import annotations

import importlib
import re
import sys
from functools import partial
from pathlib import Path

from impl.steps.step import DECLARED, STEPS, step_parameters

_CHAPTERS = ("steps", "blocking", "groups")
_HEAD = "| step | what it does | legal for | why |"
#: The chapter of a source checkout.
CHAPTER = Path(__file__).parents[2] / "spec" / "steps.md"


def table() -> str:
    """All steps: text, effect, legal loops, and the reason to take it."""
    rows = [_HEAD, "|---|---|---|---|"]
    for chapter in _CHAPTERS:
        for name in sorted(name for name in STEPS if _chapter(name) == chapter):
            numbers = ",".join("n" if each == "amount" else each for each in step_parameters(name))
            written, declared = f"`{name}({numbers})`", DECLARED[name]
            if chapter != _CHAPTERS[0]:
                written = f"[{written}]({chapter}.md)"
            rows.append(f"| {written} | {declared.does} | {declared.legal} | {declared.why} |")
    return "\n".join(rows)


def renewed(text: str) -> str:
    """The text with the table as the steps are now."""
    return re.sub(rf"^{re.escape(_HEAD)}\n(?:\|.*\n)*", lambda _: table() + "\n", text, flags=re.M)


def _chapter(name: str) -> str:
    """The chapter in whose folder a step is."""
    make = STEPS[name]
    module: str = (make.func if isinstance(make, partial) else make).__module__
    return module.split(".")[1]


if __name__ == "__main__":
    for folder in _CHAPTERS:  # whose modules declare steps
        importlib.import_module(f"impl.{folder}")
    if sys.argv[1:] == ["renew"]:
        CHAPTER.write_text(renewed(CHAPTER.read_text(encoding="utf-8")), encoding="utf-8")
    else:
        print(table())
