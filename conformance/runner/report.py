"""Reports: a line for each test between a header and a footer, and a summary for people.

A report that has no footer is not one: the run that wrote it did not end.  That of a run which
somebody ended has a footer that says so, and is not `ok`.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from conformance import protocol
from conformance.protocol import Info, Program, ProtocolError

VERDICTS = ("pass", "fail", "error", "inconclusive", "unsupported", "xfail", "xpass", "not-run")
BAD = ("fail", "error", "xpass")
#: Characters of a line of a witness that a table shows; the report has all of them.
LONGEST = 400
CUT = " ... (cut; --report keeps all of it)"


@dataclass
class Result:
    """The verdict on one test."""

    test: str
    rules: list[str]
    tier: str
    verdict: str
    message: str = ""
    examples: int = 0
    seed: int = 0
    witness: Program | None = None
    repro: str = ""
    seconds: float = 0.0

    def to_json(self) -> dict[str, Any]:
        return {"type": "test", **vars(self)}


@dataclass
class Report:
    """The results of one run of the suite, in the order of execution."""

    info: Info
    tiers: list[str]
    profile: str
    seed: int
    results: list[Result] = field(default_factory=list)
    harness: str = ""
    #: Where the run was when somebody ended it; empty if nobody did.
    interrupted: str = ""
    #: What made the report, to be pasted; empty if it was not made from a command line.
    command: str = ""
    #: How many cells of the grammar there are for what is declared, how many were met, and which
    #: were not; empty if nobody looked.
    grammar: dict[str, Any] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        return not (self.harness or self.interrupted
                    or any(each.verdict in BAD for each in self.results))

    def counts(self) -> dict[str, int]:
        """How many tests got each verdict."""
        return dict(Counter(each.verdict for each in self.results))

    def lines(self) -> Iterable[dict[str, Any]]:
        yield {"type": "header", "format": protocol.REPORT_FORMAT,
               "implementation": self.info.to_json(), "tiers": self.tiers,
               "profile": self.profile, "seed": self.seed,
               **({"command": self.command} if self.command else {})}
        yield from (each.to_json() for each in self.results)
        yield {"type": "footer", "verdicts": self.counts(), "ok": self.ok,
               **({"grammar": self.grammar} if self.grammar else {}),
               **({"harness": self.harness} if self.harness else {}),
               **({"interrupted": self.interrupted} if self.interrupted else {})}

    def locate(self, path: Path) -> None:
        """Let the commands that run a witness alone take it from the report at this path."""
        for each in self.results:
            each.repro = each.repro.replace(" witness.json", f" {path} --test {each.test}")

    def write(self, path: Path) -> None:
        """Write the report, whole or not at all."""
        text = "".join(json.dumps(line) + "\n" for line in self.lines())
        partial = path.with_name(f"{path.name}.{os.getpid()}.tmp")
        partial.write_text(text, encoding="utf-8")
        partial.replace(path)

    def asked(self) -> str:
        """How much was asked, in words: what passes by not being asked passes nothing."""
        done = [each for each in self.results if each.examples]
        left = Counter(each.verdict for each in self.results if not each.examples)
        programs = sum(each.examples for each in done)
        why = ", ".join(f"{count} {verdict}" for verdict, count in sorted(left.items()))
        met = ", {met} of {cells} cells of the grammar".format(**self.grammar) \
            if self.grammar else ""
        return (f"asked: {len(done)} of {len(self.results)} checks, {programs} programs{met}, "
                f"tiers {', '.join(self.tiers)}" + (f"; not asked: {why}" if why else ""))

    def badge(self) -> dict[str, Any]:
        """The endpoint of a badge (shields.io): what passed of what was asked."""
        done = [each for each in self.results if each.examples]
        right = sum(each.verdict == "pass" for each in done)
        return {"schemaVersion": 1, "label": "tensor-conformance",
                "message": f"{right} of {len(done)} checks", "color":
                "red" if not self.ok else "brightgreen" if right == len(done) else "yellow"}

    def junit(self) -> str:
        """The report as a CI reads it: what was not asked is skipped, with the reason."""
        suite = ElementTree.Element("testsuite", name=f"tensor-conformance {self.info.name}")
        results = [*self.results, *([Result("harness", [], "values", "error", self.harness)]
                                    if self.harness else [])]
        for each in results:
            case = ElementTree.SubElement(suite, "testcase", name=each.test,
                                          classname=chapter(each.test), time=str(each.seconds))
            if each.verdict != "pass":
                sort = {"error": "error", "fail": "failure", "xpass": "failure"}
                found = ElementTree.SubElement(case, sort.get(each.verdict, "skipped"),
                                               message=f"{each.verdict}: {each.message}"[:500])
                found.text = protocol.paste(each.witness) if each.witness else each.message
        for name, verdicts in (("tests", VERDICTS), ("failures", ("fail", "xpass")),
                               ("errors", ("error",))):
            suite.set(name, str(sum(each.verdict in verdicts for each in results)))
        suite.set("skipped", str(sum(each.verdict not in ("pass", *BAD) for each in results)))
        return ElementTree.tostring(suite, encoding="unicode") + "\n"

    def table(self) -> str:
        """A line for each chapter, and below it what is wrong and why."""
        if self.harness:
            return f"nothing was tested: {self.harness}\n"
        chapters: dict[str, Counter[str]] = {}
        for each in self.results:
            chapters.setdefault(chapter(each.test), Counter())[each.verdict] += 1
        shown = [verdict for verdict in VERDICTS if verdict in self.counts()]
        lines = [" ".join([f"{'chapter':<14}", *(f"{verdict:>12}" for verdict in shown)])]
        for name, counts in chapters.items():
            lines.append(" ".join([f"{name:<14}", *(f"{counts[v] or '':>12}" for v in shown)]))
        for each in self.results:
            if each.verdict == "inconclusive":
                lines += ["", f"INCONCLUSIVE {each.test} ({', '.join(each.rules)})",
                          f"    {each.message}"]
            if each.verdict in BAD:
                lines += ["", f"{each.verdict.upper()} {each.test} ({', '.join(each.rules)})",
                          *(f"    {line}" for line in each.message.splitlines()[:12])]
                if each.witness:
                    lines += [f"    {line if len(line) < LONGEST else line[:LONGEST] + CUT}"
                              for line in protocol.paste(each.witness).splitlines()]
                if each.repro:
                    lines.append(f"    {each.repro}")
        if self.interrupted:
            lines += ["", f"INTERRUPTED {self.interrupted}: what comes after it was not tested"]
        lines += ["", self.asked()]
        return "\n".join(lines) + "\n"


def chapter(test: str) -> str:
    """The chapter of a test: `test_memory.test_reuse` belongs to memory."""
    return test.split(".")[0].removeprefix("test_")


def read(path: Path) -> list[dict[str, Any]]:
    """The lines of a report.  Raises ProtocolError for a damaged or unfinished one."""
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    for line in lines:
        protocol.check("report", line)
    if not lines or lines[0]["type"] != "header" or lines[-1]["type"] != "footer":
        raise ProtocolError(f"{path} is not a whole report")
    return lines


def results_of(path: Path) -> list[Result]:
    """What a report says of each test, to go on from there; nothing where there is none.

    Raises:
        ProtocolError: it is no whole report.
    """
    if not path.exists():
        return []
    names = Result.__dataclass_fields__
    return [Result(**{key: value for key, value in line.items() if key in names})
            for line in read(path) if line["type"] == "test"]


def document(path: Path) -> Any:
    """What a file of JSON says.  Raises ValueError that names the file."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror}") from error
    except ValueError as error:
        raise ValueError(f"{path} is not JSON: {error}") from error


def witness_of(path: Path, test: str = "") -> Program:
    """A program in a file of its own, or the witness of a test in a report.

    Raises:
        ValueError: the file has none, or several and no test was named.
    """
    if path.suffix != ".jsonl":
        program: Program = document(path)
        return program
    try:
        found = {line["test"]: line["witness"] for line in read(path) if line.get("witness")}
    except (OSError, ValueError, ProtocolError) as error:
        raise ValueError(f"{path}: {error}") from error
    names = [name for name in found if test in (name, name.rpartition(".")[2], "")]
    if len(names) != 1:
        there = "".join(f"\n    --test {name}" for name in found) or " none"
        raise ValueError(f"{path}: which program? It has{there}")
    witness: Program = found[names[0]]
    return witness


@dataclass(frozen=True)
class Expectation:
    """A failure that is known: which test, why, and where it is being dealt with.

    `versions` are those of the library in which it was seen, `witness` a file that shows it, `date`
    the day on which it was seen.
    """

    test: str
    rule: str
    reason: str
    issue: str = ""
    versions: str = ""
    witness: str = ""
    date: str = ""

    @staticmethod
    def read(path: Path) -> list[Expectation]:
        """The entries of a file.  Raises ValueError that names the entry that is not one."""
        entries = document(path)
        if not isinstance(entries, list) or not all(isinstance(each, dict) for each in entries):
            raise ValueError(f"{path}: not a list of entries like "
                             '{"test": ..., "rule": ..., "reason": ...}')
        for number, entry in enumerate(entries):
            for name in ("test", "rule", "reason"):
                if name not in entry:
                    raise ValueError(f'{path}: entry {number} has no "{name}"')
            for name, value in entry.items():
                if name not in Expectation.__dataclass_fields__ or not isinstance(value, str):
                    raise ValueError(f'{path}: "{name}" of entry {number} is no text that an '
                                     f"entry has: {', '.join(Expectation.__dataclass_fields__)}")
        return [Expectation(**each) for each in entries]
