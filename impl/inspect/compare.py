"""Two schedules beside each other: two runs, two commits, with and without fusion."""
from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

from impl.inspect.drawing import tag
from impl.inspect.page import STYLE
from impl.inspect.text import (
    Document,
    Row,
    bytes_text,
    checked,
    count_text,
    ordered_kernels,
    plural,
    shortened,
    table,
)

#: The file and the line at the end of a label.
_LINE = re.compile(r"\(([^()]*:\d+)\)$")
_ELSEWHERE = "no line"


@dataclass(frozen=True)
class Fact:
    """A number of both schedules."""

    name: str
    first: int
    second: int
    text: Callable[[int], str]

    @property
    def cells(self) -> tuple[str, str, str, str]:
        """Name, both numbers, and by how much the second one is greater."""
        change = self.second - self.first
        told = f"{'-' if change < 0 else '+'}{self.text(abs(change))}" if change else ""
        return self.name, self.text(self.first), self.text(self.second), told


@dataclass(frozen=True)
class Line:
    """The kernels of both schedules for one line of the user's program."""

    name: str
    first: Sequence[Row]
    second: Sequence[Row]


@dataclass(frozen=True)
class Comparison:
    """What differs; `alike` lines have the same kernels in both.

    `reasons` are those of boundaries, with how often each schedule gives them; `apart` says in
    sentences what else differs: the order, the dependencies, where temporaries lie.
    """

    facts: list[Fact]
    lines: list[Line]
    alike: int
    reasons: list[tuple[str, int, int]]
    apart: list[str]

    @property
    def differs(self) -> bool:
        """Whether the schedules differ in anything that is compared."""
        return bool(self.lines or self.reasons or self.apart
                    or any(fact.first != fact.second for fact in self.facts))


def compared(first: Document, second: Document) -> Comparison:
    """What differs between two schedules, by the lines of the program that was written.

    Kernels are alike if they have the same name, device, bytes, and as far as both schedules say
    them, operations, source and steps.

    Raises:
        GraphError: another format (r[inspect.format.refused]).
    """
    by_line: dict[str, tuple[list[Row], list[Row]]] = {}
    for side, document in enumerate((checked(first), checked(second))):
        for kernel in ordered_kernels(document):
            found = _LINE.search(kernel.get("label", ""))
            name = found[1] if found else kernel.get("label") or _ELSEWHERE
            by_line.setdefault(name, ([], []))[side].append(kernel)
    known = [key for key in ("operations", "source", "optimizations")
             if any(key in kernel for kernel in first["kernels"])
             and any(key in kernel for kernel in second["kernels"])]

    def alike(kernel: Row) -> str:
        return repr([kernel.get(key) for key in ("name", "kind", "device", "bytes", *known)])

    # r[impl inspect.diff.lines+2]
    lines = [Line(name, *both) for name, both in by_line.items()
             if Counter(map(alike, both[0])) != Counter(map(alike, both[1]))]
    counts = [Counter(row["reason"] or "no reason was given"
                      for row in document.get("boundaries", ())) for document in (first, second)]
    reasons = [(reason, counts[0][reason], counts[1][reason])
               for reason in dict.fromkeys([*counts[0], *counts[1]])
               if counts[0][reason] != counts[1][reason]]
    return Comparison(_facts(first, second), lines, len(by_line) - len(lines), reasons,
                      _apart(first, second, alike))


def _apart(first: Document, second: Document, alike: Callable[[Row], str]) -> list[str]:
    """In which ways schedules differ whose kernels may be the same."""
    orders = [[alike(kernel) for kernel in ordered_kernels(each)] for each in (first, second)]
    if Counter(orders[0]) != Counter(orders[1]):
        return []  # what stands where is told of the same kernels
    parts = ((orders, "The kernels run in another order."),
             ([_waits(each) for each in (first, second)],
              "Other kernels wait for each other."),
             ([_placed(each) for each in (first, second)],
              "Temporaries lie elsewhere, or live at other times."))
    return [told for (one, two), told in parts if one != two]  # r[impl inspect.diff.lines+2]


def _waits(document: Document) -> Counter[tuple[int, int, str]]:
    """Which position of the order waits for which, and why."""
    at = {kernel: place for place, kernel in enumerate(document["order"])}
    return Counter((at[row["before"]], at[row["after"]], row["kind"])
                   for row in document.get("dependencies", ()))


def _placed(document: Document) -> list[tuple[int, ...]]:
    """Where temporaries lie, from when until when."""
    rows = (document.get("memory") or {}).get("placements", ())
    return sorted(tuple(row[key] for key in ("arena", "offset", "bytes", "first", "last"))
                  for row in rows)


def _facts(*documents: Document) -> list[Fact]:
    def both(count: Callable[[Document], int]) -> tuple[int, int]:
        one, two = map(count, documents)
        return one, two

    memory = [document.get("memory") or {} for document in documents]
    def total(key: str) -> tuple[int, int]:
        return both(lambda document: sum(k.get(key, 0) for k in document["kernels"]))

    facts = [
        Fact("kernels", *both(lambda d: sum(k["kind"] != "copy" for k in d["kernels"])), str),
        Fact("copies", *both(lambda d: sum(k["kind"] == "copy" for k in d["kernels"])), str),
        Fact("read or written", *total("bytes"), bytes_text),
        Fact("operations", *total("operations"), count_text),
        Fact("for temporaries", memory[0].get("planned", 0), memory[1].get("planned", 0),
             bytes_text),
        Fact("lower bound", memory[0].get("lower_bound", 0), memory[1].get("lower_bound", 0),
             bytes_text)]
    # What one of them does not say is not compared.
    return [fact for fact in facts if (fact.first or fact.second) and (
        fact.name != "operations" or fact.first and fact.second)]


def difference(first: Document, second: Document) -> str:
    """What differs between two schedules, as text for a terminal."""
    found = compared(first, second)
    rows = [fact.cells for fact in found.facts]
    parts = [table(["", "first", "second", "change"], rows, frozenset((1, 2, 3)))]
    for line in found.lines:
        parts.append(f"{line.name}: {_kernels(line.first)} -> {_kernels(line.second)}\n"
                     f"  first   {_names(line.first)}\n  second  {_names(line.second)}")
    for reason, one, two in found.reasons:
        parts.append(f"{one} -> {two} times a boundary: {reason}")
    parts += found.apart
    parts.append(_the_rest(found))
    return "\n\n".join(parts)


def _kernels(kernels: Sequence[Row]) -> str:
    moved = sum(kernel.get("bytes", 0) for kernel in kernels)
    return f"{plural(len(kernels), 'kernel')}, {bytes_text(moved)}"


def _names(kernels: Sequence[Row]) -> str:
    return shortened([kernel.get("name") or kernel["kind"] for kernel in kernels], 90,
                     "kernel") if kernels else "nothing"


def _the_rest(found: Comparison) -> str:
    if not found.lines:
        return "Both schedules have the same kernels for each line."
    if not found.alike:
        return "No line has the same kernels in both."
    return f"{plural(found.alike, 'other line')}: the same kernels in both."


def difference_tables(first: Document, second: Document, names: tuple[str, str]) -> str:
    """The same as tables of HTML; `names` say what the two are."""
    found = compared(first, second)
    head = ("", *names, "change")
    parts = [_html_table(head, [[escape(cell) for cell in fact.cells]
                                for fact in found.facts])]
    if found.lines:
        parts.append(_html_table(("line", *names), [
            [escape(line.name), *(f"{escape(_kernels(side))}<br>"
                                  f"<span class='soft'>{escape(_names(side))}</span>"
                                  for side in (line.first, line.second))]
            for line in found.lines]))
    if found.reasons:
        parts.append(_html_table(("reason of a boundary", *(f"times, {name}" for name in names)), [
            [escape(reason), str(one), str(two)] for reason, one, two in found.reasons]))
    parts += [tag("p", escape(told)) for told in found.apart]
    return "".join(parts) + tag("p", escape(_the_rest(found)), class_="soft")


def _html_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    top = tag("thead", tag("tr", "".join(tag("th", escape(each), scope="col") for each in head)))
    body = "".join(tag("tr", "".join(tag("td", cell) for cell in row)) for row in rows)
    return tag("div", tag("table", top + tag("tbody", body)), class_="wide", tabindex=0,
               role="region", aria_label=f"table: {', '.join(each for each in head if each)}")


def difference_html(first: Document, second: Document, names: tuple[str, str]) -> str:
    """A page that shows what differs between two schedules."""
    return plain_page("Two schedules", tag("section", difference_tables(first, second, names)))


def plain_page(title: str, body: str) -> str:
    """A page in the style of a report, without any script."""
    return ("<!doctype html>\n<html lang='en'><head><meta charset='utf-8'>"
            "<meta name='viewport' content='width=device-width, initial-scale=1'>"
            f"<title>{escape(title)}</title><style>{STYLE}</style></head><body><main>"
            f"<h1>{escape(title)}</h1>{body}</main></body></html>\n")
