"""What was found in released libraries, as reports that their projects can use.

    python -m conformance.peers.upstream renew mlx dask     where these are installed

Each witness in `conformance/witnesses/LIBRARY` is plain code of the library. It is run in a process
of its own, and becomes a section of `docs/conformance/upstream/LIBRARY.md`: what is wrong, the
code, what it printed, and where it is known already. A witness that shows nothing any more has no
section.
"""
from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from conformance.trace import ROOT

WITNESSES, REPORTS = ROOT / "conformance" / "witnesses", ROOT / "docs" / "conformance" / "upstream"
#: Begins the line of a witness that says where it is known.
KNOWN = "Upstream: "
UNKNOWN = "No public issue about it was found."
HEAD = """# Reports for other projects

What the suite and programs like its own found in released libraries, each as a report that the
project can use: what is wrong, plain code, and what it printed. Nobody has sent them yet. A wrong
value is silent if nothing says so: no error, no end of the process.

| library | reports | silent | of no public issue that was found |
|---|---|---|---|"""


def told(path: Path) -> tuple[str, str, str, str]:
    """Version, what is wrong, where it is known, and the code of a witness."""
    text = path.read_text(encoding="utf-8")
    words = ast.get_docstring(ast.parse(text)) or ""
    code = text.split('"""', 2)[2].strip()
    words, _, known = words.partition(KNOWN)
    version, _, wrong = words.partition(". ")
    return version, " ".join(wrong.split()), " ".join(known.split()), code


def section(path: Path, printed: str) -> str:
    """The report of one witness."""
    version, wrong, known, code = told(path)
    where = f"Known as {known}" if known else UNKNOWN
    title = path.stem.replace("_", " ").capitalize()
    return (f"## {title}\n\n{wrong}\n\n{version}. {where}\n\n```{{.python .foreign}}\n{code}\n```\n"
            f"\n```text\n{printed}\n```\n")


def renew(library: str) -> tuple[int, int]:
    """Write the page of a library anew: how many of its witnesses show what they say, of how many.
    """
    sections, paths = [], sorted((WITNESSES / library).glob("*.py"))
    for path in paths:
        run = subprocess.run([sys.executable, str(path)], capture_output=True, text=True,
                             check=False)
        if run.returncode == 0 and run.stdout.startswith("expected "):
            sections.append(section(path, run.stdout.strip()))
    head = (f"# {library}\n\nEach section is a report, ready for the project: plain code of the "
            "library, run in a process of its own. The last two lines of the code say when it is "
            "mended.\n")
    REPORTS.mkdir(exist_ok=True)
    (REPORTS / f"{library}.md").write_text("\n".join([head, *sections]), encoding="utf-8")
    return len(sections), len(paths)


def index() -> str:
    """A table of the pages: how many reports, and of these how many are silent, and new."""
    rows: list[tuple[Any, ...]] = []
    for path in sorted(REPORTS.glob("*.md")):
        if path.stem != "index":
            parts = path.read_text(encoding="utf-8").split("\n## ")[1:]
            loud = sum("Error: " in part or "end of the process" in part for part in parts)
            new = sum(UNKNOWN in part for part in parts)
            rows.append((f"[{path.stem}]({path.name})", len(parts), len(parts) - loud, new))
    rows.append(("all", *(sum(column) for column in list(zip(*rows, strict=True))[1:])))
    table = "\n".join("| " + " | ".join(map(str, row)) + " |" for row in rows)
    return f"{HEAD}\n{table}\n"


def main(arguments: Sequence[str]) -> int:
    """Run it."""
    if len(arguments) < 2 or arguments[0] != "renew":
        print(__doc__)
        return 2
    for library in arguments[1:]:
        shown, count = renew(library)
        print(f"{library}: {shown} of {count} witnesses show what they say")
    (REPORTS / "index.md").write_text(index(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
