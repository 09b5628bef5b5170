"""The table of the chapter: all steps, as they declare themselves. Chapter: spec/steps.md.

    python -m impl.steps.table     print it
"""
from __future__ import annotations

from functools import partial

from impl.steps.step import DECLARED, STEPS, parameters

_CHAPTERS = ("steps", "blocking", "groups")


def table() -> str:
    """All steps: how each is written, what it does, for what it is legal, and why it is taken."""
    rows = ["| step | what it does | legal for | why |", "|---|---|---|---|"]
    for chapter in _CHAPTERS:
        for name in sorted(name for name in STEPS if _chapter(name) == chapter):
            given = ",".join("n" if each == "amount" else each for each in parameters(name))
            written, declared = f"`{name}({given})`", DECLARED[name]
            if chapter != _CHAPTERS[0]:
                written = f"[{written}]({chapter}.md)"
            rows.append(f"| {written} | {declared.does} | {declared.legal} | {declared.why} |")
    return "\n".join(rows)


def _chapter(name: str) -> str:
    """The chapter in whose folder a step is."""
    make = STEPS[name]
    module: str = (make.func if isinstance(make, partial) else make).__module__
    return module.split(".")[1]


if __name__ == "__main__":
    print(table())
