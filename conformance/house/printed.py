"""What `python -m impl` prints, as `docs/demo.md` shows it.

    python -m conformance.house.printed renew     put what is printed now into the page

Times, shares and texts that were cut to the width of a column differ from machine to machine, and
are not compared. Whoever renews the page reads what it says about the lines that changed.
"""
from __future__ import annotations

import os
import re
import subprocess
import sys

from conformance.trace import ROOT

PAGE = ROOT / "docs" / "demo.md"
WIDTH = 120
BLOCK = re.compile(r"^(```text\n)(.*?)^```$", re.DOTALL | re.MULTILINE)
#: How many paragraphs of the output stand in each block of the page.
PARAGRAPHS = (1, 1, 1, 2, 1, 1)
#: What is another one on each machine, or in each run.
_DIFFERS = (
    (r"^/\S+\.html$", "FILE"), (r"(loss|accuracy) +[\d.]+", r"\1 N"), (r"\d+\.\d+ s$", "N s"),
    (r"[\d.]+ (us|ms)\b", "TIME"), (r"[^ ]* ?[^ ]*…", "…"),
    (r"\d+ steps$|(\b[A-Z]+\([\d,]+\),? ?)+( and \d+ more)?$", "STEPS"))


def blocks() -> list[str]:
    """The blocks of the page that show what is printed, in its order."""
    return [text for _, text in BLOCK.findall(PAGE.read_text(encoding="utf-8"))]


def cells(text: str) -> list[list[str]]:
    """Lines as lists of cells, without what differs from machine to machine.

    A cell that was cut is left out: where it was depends on the widths of the others.
    """
    found = []
    for line in text.strip().splitlines():
        for pattern, instead in _DIFFERS:
            line = re.sub(pattern, instead, line.rstrip())
        found.append(["-" if set(cell) == {"-"} else cell
                      for cell in re.split(r" {2,}", line.strip())
                      if "…" not in cell and " more" not in cell and " buffers" not in cell])
    return [line for line in found if line != [""]]


def printed() -> str:
    """Run the demo."""
    ran = subprocess.run([sys.executable, "-m", "impl"], check=True, capture_output=True, cwd=ROOT,
                         env={**os.environ, "COLUMNS": str(WIDTH), "DEVICE": "CPU"})
    return ran.stdout.decode().replace("\r", "")


def renew() -> None:
    """Put what is printed now into the page."""
    paragraphs = re.split(r"\n{2,}", printed().strip())
    parts = [iter(paragraphs)] * len(PARAGRAPHS)
    texts = ["\n\n".join(next(part) for _ in range(count)) + "\n"
             for part, count in zip(parts, PARAGRAPHS, strict=True)]
    page = BLOCK.sub(lambda found: f"{found[1]}{texts.pop(0)}```", PAGE.read_text(encoding="utf-8"))
    PAGE.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    if sys.argv[1:] != ["renew"]:
        sys.exit(__doc__)
    renew()
