"""The mistakes of docs/threats.md, and which of them the suite has found in other libraries.

A committed report has the failures of a library, and the file of expected failures beside it says
which of them is a mistake that was made public: that joins the two.
"""
from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from conformance import protocol
from conformance.runner.report import Expectation, read
from conformance.trace import ROOT

TABLE = ROOT / "docs" / "threats.md"
REPORTS = ROOT / "conformance" / "reports"
#: How the table shortens the names of repositories.
SHORT = {"tinygrad/tinygrad": "tg", "pytorch/pytorch": "pt", "jax-ml/jax": "jax",
         "openxla/xla": "xla", "apache/tvm": "tvm"}


@dataclass(frozen=True)
class Threat:
    """One row of the table: where the mistake was seen, and what answers it here."""

    seen: str
    happened: str
    rule: str
    witness: str
    saboteur: str


def threats(table: Path = TABLE) -> list[Threat]:
    """The rows of the page of threats."""
    lines = [line for line in table.read_text(encoding="utf-8").splitlines()
             if line.startswith("|") and "`test_" in line]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [Threat(seen, happened, *(re.sub(r"^\[?`|`.*$", "", cell) for cell in rest))
            for seen, happened, *rest in cells]


def linked(page: str) -> str:
    """The page with the issues and the rules of its tables as links."""
    places = {short: repository for repository, short in SHORT.items()}

    def issue(seen: re.Match[str]) -> str:
        return f"[{seen[0]}](https://github.com/{places[seen[1]]}/issues/{seen[2]})"

    def row(line: str) -> str:
        if not line.startswith("|"):
            return line
        line = re.sub(rf"(?<![\w\[])({'|'.join(places)})#(\d+)", issue, line)
        return re.sub(r"(?<=\| )`([a-z-]+\.[a-z-]+\.[a-z0-9-]+)`(?= \|)", r"r[\1]", line)

    return "\n".join(map(row, page.split("\n")))


@dataclass(frozen=True)
class Found:
    """A threat that the suite found in a library.

    `statements` counts those of the smallest program that shows it, bodies of calls included;
    `code` is a file that shows it in plain code of the library.
    """

    threat: Threat
    issue: str
    report: str
    library: str
    test: str
    statements: int
    code: str


def found(reports: Path = REPORTS, table: Path = TABLE) -> list[Found]:
    """What the committed reports show of the threats, in the order of the page."""
    rows = [(threat, issue) for threat in threats(table) for issue in threat.seen.split(", ")]
    known = [each for path in sorted(reports.glob("*.expected.json"))
             for each in _of_library(path)]
    return [Found(threat, issue, *rest) for threat, issue in rows
            for named, rest in known if named == issue]


def _of_library(path: Path) -> list[tuple[str, tuple[str, str, str, int, str]]]:
    """The public issues among the failures of one library, the first failure of each."""
    name = path.name.removesuffix(".expected.json")
    header, *tests, _ = read(path.with_name(f"{name}.jsonl"))
    witnesses = {test["test"]: test["witness"] for test in tests if test["witness"]}
    library = "{name} {version}".format(**header["implementation"])
    entries: dict[str, tuple[str, str, str, int, str]] = {}
    for each in Expectation.read(path):
        repository, _, number = each.issue.partition("#")
        if repository in SHORT and each.test in witnesses:
            size = len(list(protocol.walk(witnesses[each.test]["statements"])))
            entries.setdefault(f"{SHORT[repository]}#{number}",
                               (name, library, each.test, size, each.witness))
    return list(entries.items())
