"""A schedule as plain text: tables and sentences for a terminal."""
from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from impl.errors import GraphError

Document = dict[str, Any]
Row = dict[str, Any]
#: Seconds that each kernel took, by its id.
Timings = Mapping[int, float]
FORMAT = "tensor-schedule/1"
KINDS = {"RAW": "needs what it wrote", "WAR": "overwrites what it read",
         "WAW": "overwrites what it wrote"}


@dataclass(frozen=True)
class Machine:
    """What a device can do, to predict a kernel's time: the slower of moving and computing."""

    bytes_per_second: float
    operations_per_second: float
    launch_seconds: float = 0.0

    def predict(self, kernel: Row) -> float:
        """Seconds that the kernel takes at the limits of the machine."""
        moving = kernel.get("bytes", 0) / self.bytes_per_second
        computing = kernel.get("operations", 0) / self.operations_per_second
        return self.launch_seconds + max(moving, computing)


def checked(document: Document) -> Document:
    """The document, if it is one.

    Raises:
        GraphError: another format (r[inspect.format.refused]).
    """
    if document.get("format") != FORMAT:  # r[impl inspect.format.refused]
        raise GraphError("inspect", f"the format is {document.get('format')!r}, not {FORMAT!r}",
                         "give what Tensor.schedule_document returns")
    return document


def count_text(value: float) -> str:
    """A number with a metric prefix: 1234567 is 1.23 M."""
    for unit, size in (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if value >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value:g}"


def bytes_text(count: float) -> str:
    """A number of bytes with a binary prefix: 4096 is 4 KiB."""
    for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= size:
            return f"{count / size:.{3 if count < 1000 * size else 4}g} {unit}"
    return f"{count:g} B"


def time_text(seconds: float | None) -> str:
    """Seconds in the unit that suits them; a dash for an unknown time."""
    if seconds is None:
        return "-"
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"


def plural(count: int, noun: str) -> str:
    """'1 kernel', '3 kernels'; 'copy' becomes 'copies'."""
    if count == 1:
        return f"1 {noun}"
    return f"{count} {noun[:-1] + 'ies' if noun.endswith('y') else noun + 's'}"


def ordered_kernels(document: Document) -> list[Row]:
    """The kernels in the order in which they run."""
    by_id = {kernel["id"]: kernel for kernel in document["kernels"]}
    return [by_id[number] for number in document["order"]]


def buffer_names(document: Document) -> dict[int, str]:
    """What each buffer is called."""
    return {b["id"]: b.get("name") or f"b{b['id']}" for b in document["buffers"]}


def buffer_sizes(document: Document) -> dict[int, int]:
    """Bytes of each buffer."""
    return {b["id"]: b["bytes"] for b in document["buffers"]}


def touched(accesses: Iterable[Row], names: Mapping[int, str]) -> list[str]:
    """The buffers of some accesses, each once, in order."""
    return list(dict.fromkeys(names[access["buffer"]] for access in accesses))


def shortened(words: Sequence[str], width: int, noun: str = "buffer") -> str:
    """Words with commas, the last ones counted instead of named where the line gets too long.

    A word is whole or not there: where none fits, all of them are counted.
    """
    for left in range(max(len(words), 1)):  # r[impl inspect.table.lines]
        line = ", ".join(words[:len(words) - left]) + (f" and {left} more" if left else "")
        if len(line) <= width:
            return line
    return plural(len(words), noun)


def clipped(line: str, width: int) -> str:
    """The line, with an ellipsis where it is too long."""
    return line if len(line) <= width else line[:width - 1].rstrip() + "…"


def table(head: Sequence[str], rows: Sequence[Sequence[str]], right: frozenset[int]) -> str:
    """Columns as wide as their widest cell; the columns in `right` are aligned to the right."""
    widths = [max(len(row[i]) for row in [head, *rows]) for i in range(len(head))]
    lines = []
    for row in [head, ["-" * width for width in widths], *rows]:
        cells = [cell.rjust(width) if i in right else cell.ljust(width)
                 for i, (cell, width) in enumerate(zip(row, widths, strict=True))]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


#: Characters of a line of a table that has no other width.
WIDTH = 120
#: The fewest and the most characters of the columns that hold words.
SPAN = {"kernel": (20, 28), "what": (24, 44), "reads": (13, 24), "writes": (12, 16),
        "steps": (8, 48)}


def kernel_table(document: Document, timings: Timings | None = None,
                 machine: Machine | None = None, width: int = WIDTH) -> str:
    """One line a kernel, in the order in which they run (r[inspect.table.lines]).

    Columns that would be empty are left out: `time` without timings, `predicted` without a machine.
    Those that hold words are made narrower where a line would have more characters than `width`.
    """
    names = buffer_names(checked(document))
    kernels = ordered_kernels(document)
    columns: dict[str, list[str | list[str]]] = {
        "id": [str(k["id"]) for k in kernels],
        "kernel": [k.get("name") or k["kind"] for k in kernels],
        "what": [_without_folders(k.get("label", "")) for k in kernels],
        "reads": [touched(k["reads"], names) for k in kernels],
        "writes": [touched(k["writes"], names) for k in kernels],
        "bytes": [bytes_text(k["bytes"]) if "bytes" in k else "-" for k in kernels],
        "operations": [count_text(k["operations"]) if "operations" in k else "-" for k in kernels],
        "time": [time_text((timings or {}).get(k["id"])) for k in kernels],
        "predicted": [time_text(machine.predict(k)) if machine else "-" for k in kernels],
        "steps": [k.get("optimizations", []) for k in kernels]}
    shown = {head: cells for head, cells in columns.items()
             if head in ("id", "kernel", "reads", "writes")
             or any(cell not in ("", "-", []) for cell in cells)}
    fitted = fitting(shown, width)
    rows = [list(row) for row in zip(*fitted.values(), strict=True)]
    numbers = frozenset(i for i, head in enumerate(fitted) if head not in SPAN)
    return table(list(fitted), rows, numbers)  # r[impl inspect.table.lines]


def _without_folders(label: str) -> str:
    """A label as it is, but for the folders of the file at its end: conv2d (model.py:3)."""
    return re.sub(r"\([^()]*[/\\]([^()/\\]+:\d+)\)$", r"(\1)", label)


def fitting(columns: Mapping[str, Sequence[str | list[str]]], width: int) -> dict[str, list[str]]:
    """The cells as texts, those of the widest columns cut until a line has `width` characters.

    No column gets narrower than SPAN allows; a line may then be longer all the same.
    """
    room = {head: most for head, (_, most) in SPAN.items() if head in columns}
    while True:
        cells = {head: [narrow(cell, room.get(head), head) for cell in column]
                 for head, column in columns.items()}
        wide = {head: max(map(len, (head, *column))) for head, column in cells.items()}
        spare = {head: min(wide[head], room[head]) - SPAN[head][0] for head in room}
        widest = max(spare, key=lambda head: spare[head], default="")
        # r[impl inspect.table.lines]
        if sum(wide.values()) + 2 * (len(wide) - 1) <= width or not widest or spare[widest] <= 0:
            return cells
        room[widest] = min(wide[widest], room[widest]) - 1


def narrow(cell: str | list[str], room: int | None, head: str) -> str:
    """A text or a list of words in so many characters."""
    if isinstance(cell, list):
        return shortened(cell, room or WIDTH, "step" if head == "steps" else "buffer")
    return cell if room is None else clipped(cell, room)


def boundary_table(document: Document) -> str:
    """Why each value that goes through memory does not stay inside a kernel."""
    names, sizes = buffer_names(checked(document)), buffer_sizes(document)
    lines = []
    for row in document.get("boundaries", []):  # r[impl inspect.explain.complete]
        buffer = row.get("buffer")
        through = "" if buffer is None else f", {names[buffer]} ({bytes_text(sizes[buffer])})"
        reason = row["reason"] or "no reason was given"
        lines.append(f"kernel {row['before']} -> kernel {row['after']}{through}: {reason}")
    return "\n".join(lines) or "no value crosses from one kernel to another"


def memory_summary(document: Document) -> str:
    """How much memory temporaries need, with and without sharing, and where each one lies."""
    memory = checked(document).get("memory")
    if not memory or not memory["placements"]:
        return "no temporaries: nothing has to be placed"
    names = buffer_names(document)
    # r[impl inspect.report.whole]
    planned, unplanned, least = memory["planned"], memory["unplanned"], memory["lower_bound"]
    alone = f"would take {bytes_text(unplanned)}" if unplanned > least else \
        "would take as much: there is a moment when all of them are alive"
    lines = [f"{plural(len(memory['placements']), 'temporary')} in {bytes_text(planned)}; "
             f"each in memory of its own {alone}",
             f"at no time can it be less than {bytes_text(least)}: the plan is at "
             f"{planned / max(least, 1):.2f} of that bound"]
    rows = [[names[p["buffer"]], str(p["arena"]), str(p["offset"]), bytes_text(p["bytes"]),
             f"{p['first']} to {p['last']}", in_place(p, names)]
            for p in sorted(memory["placements"], key=lambda p: (p["arena"], p["first"],
                                                                 p["offset"]))]
    head = ["buffer", "arena", "offset", "size", "positions", ""]
    return "\n".join(lines) + "\n\n" + table(head, rows, frozenset((1, 2, 3)))


def in_place(placement: Row, names: Mapping[int, str]) -> str:
    """The buffer whose memory a placement takes over, in words."""
    other = placement.get("in_place_of")
    return "" if other is None else f"written over {names[other]}"


def explain(document: Document, timings: Timings | None = None) -> str:
    """The schedule in sentences: what runs, what each kernel waits for, and why it is one."""
    names = buffer_names(checked(document))
    fused: dict[int, list[str]] = {}
    for row in document.get("fusions", []):
        fused.setdefault(row["kernel"], []).append(row["reason"].removeprefix("fused: "))
    apart: dict[int, list[str]] = {}
    for row in document.get("boundaries", []):
        through = "" if row.get("buffer") is None else f" through {names[row['buffer']]}"
        apart.setdefault(row["after"], []).append(
            f"kernel {row['before']}{through}: {row['reason'] or 'no reason was given'}")
    parts = [summary(document, timings)]
    for position, kernel in enumerate(ordered_kernels(document)):
        parts.append(_explain_kernel(document, position, kernel, names, fused, apart))
    parts += [f"note: {note}" for note in document.get("notes", [])]
    return "\n\n".join([*parts, memory_summary(document)])


def summary(document: Document, timings: Timings | None = None) -> str:
    """One sentence about the whole schedule."""
    kernels = document["kernels"]
    copies = sum(kernel["kind"] == "copy" for kernel in kernels)
    moved = sum(kernel.get("bytes", 0) for kernel in kernels)
    text = plural(len(kernels) - copies, "kernel")
    text += f", {plural(copies, 'copy')}" if copies else ""
    text += f"; {bytes_text(moved)} read or written"
    operations = sum(kernel.get("operations", 0) for kernel in kernels)
    if operations:
        text += f"; {count_text(operations)} operations"
    if timings:
        text += f"; {time_text(sum(timings.values()))}"
    cache = document.get("cache")
    if cache:
        text += "; the plan came from the cache" if cache["hit"] else "; planned anew"
    return text


def _explain_kernel(document: Document, position: int, kernel: Row, names: Mapping[int, str],
                    fused: Mapping[int, list[str]], apart: Mapping[int, list[str]]) -> str:
    number = kernel["id"]
    name = kernel.get("name") or kernel["kind"]
    lines = [f"position {position}: kernel {number}, {name} on {kernel['device']}"]
    if kernel.get("label"):
        lines.append(f"  computes   {kernel['label']}")
    lines.append(f"  reads      {', '.join(touched(kernel['reads'], names)) or 'nothing'}")
    lines.append(f"  writes     {', '.join(touched(kernel['writes'], names)) or 'nothing'}")
    for before, hazards in waits_of(document, number).items():  # r[impl inspect.explain.complete]
        because = " and ".join(f"{KINDS[kind]} ({kind}: {', '.join(where)})"
                               for kind, where in hazards.items())
        lines.append(f"  waits for  kernel {before}: {because}")
    if "transfer" in kernel:
        lines.append(f"  sends      {kernel['transfer']}")
    lines += [f"  apart from {reason}" for reason in apart.get(number, [])]
    lines += [f"  fused      {reason}" for reason in fused.get(number, [])]
    steps, reasons = kernel.get("optimizations", []), kernel.get("because", [])
    for place, step in enumerate(steps):  # r[impl inspect.explain.complete]
        reason = f": {reasons[place]}" if place < len(reasons) else ""
        lines.append(f"  {'' if place else 'steps':9}  {step}{reason}")
    return "\n".join(lines)


def waits_of(document: Document, number: int) -> dict[int, dict[str, list[str]]]:
    """The kernels that one has to wait for: by kind of dependency, the buffers and versions."""
    names = buffer_names(document)
    found: dict[int, dict[str, list[str]]] = {}
    for row in document["dependencies"]:
        if row["after"] == number:
            where = f"{names[row['buffer']]} version {row['version']}"
            places = found.setdefault(row["before"], {}).setdefault(row["kind"], [])
            if where not in places:
                places.append(where)
    return found
