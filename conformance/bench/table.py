"""A result as a table: `python -m conformance.bench table result.json`."""
from __future__ import annotations

import json
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from conformance.bench import drawing, timings
from conformance.bench.peers import TITLES
from conformance.bench.timings import measured_on, significant


def add_arguments(parser: ArgumentParser) -> None:
    """The options."""
    parser.add_argument("result", type=Path, help="what `run --output` or `schedule --json` wrote")
    parser.add_argument("--drawings", type=Path, metavar="FOLDER",
                        help="write the drawings of a run there, as SVG")


def main(options: Namespace) -> int:
    """Print the table of a result, and draw it."""
    result = json.loads(options.result.read_text(encoding="utf-8"))
    print(markdown(result))
    if options.drawings and result.get("kind") == "run":
        for name, svg, _ in drawing.drawings(result):
            path = options.drawings / f"{name}.svg"
            path.write_text(drawing.standalone(svg), encoding="utf-8")
    return 0


def markdown(result: dict[str, Any]) -> str:
    """A table for each group of figures, after a line on where they were measured."""
    if result.get("kind") == "run":
        return timings.markdown(result)
    names = list(result["versions"])
    parts = [measured(result)]
    for group in dict.fromkeys(row["group"] for row in result["rows"]):
        rows = [row for row in result["rows"] if row["group"] == group and anything(row)]
        if rows:
            parts.append("\n".join([f"**{group}**", "", *table(rows, names)]))
    return "\n\n".join(parts)


def behind(result: dict[str, Any]) -> str:
    """The rows where we miss the goal, or where a peer needs less than we do, as a table."""
    rows = ["| | ours | goal | peers that need less |", "|---|--:|--:|---|"]
    for row in result["rows"]:
        said = row["results"].get("impl", {})
        ahead = [f"{TITLES.get(name, name)} {significant(ratio, 2)}x"
                 for name, ratio in row["ratios"].items() if ratio < 1]
        goal = row["goal"]
        missed = "median" not in said or goal is not None and said["median"] > goal
        if missed and anything(row) and (goal is not None or compared(row)) \
                or ahead and compared(row):
            ours = cell(row, "impl") + (f"&nbsp;{row['unit']}" if "median" in said else "")
            rows.append(f"| {row['group']}: {row['title']} | {ours} | "
                        f"{'' if goal is None else significant(goal)} | {', '.join(ahead)} |")
    return "\n".join(rows) if len(rows) > 2 else "In no row: every goal is reached."


def compared(row: dict[str, Any]) -> bool:
    """Whether libraries can be compared by a row: each has nodes and kernels of its own kind."""
    return not row["key"].startswith(("node.", "kernel."))


def measured(result: dict[str, Any]) -> str:
    """The machine, the threads and the versions, in a sentence."""
    machine = result["machine"]
    quick = " A quick run: it shows that everything runs, its times say little." \
        if result["quick"] else ""
    load = machine.get("load")
    busy = f" While it ran, {load:.1f} processes wanted a core on average." if load else ""
    threads = f"{result['threads']} thread{'s' if result['threads'] > 1 else ''}"
    return f"{measured_on(result, threads)}.{busy}{quick}"


def anything(row: dict[str, Any]) -> bool:
    """Whether a row has a number of anyone, or something that went wrong."""
    return any("missing" not in said or "over the" in said["missing"]
               for said in row["results"].values())


def table(rows: list[dict[str, Any]], names: list[str]) -> Iterator[str]:
    """The lines of one table."""
    yield "| | unit | goal | " + " | ".join(TITLES.get(name, name) for name in names) + " |"
    yield "|---|---|--:|" + "--:|" * len(names)
    for row in rows:
        goal = "" if row["goal"] is None else significant(row["goal"])
        cells = [cell(row, name) for name in names]
        yield f"| {row['title']} | {row['unit']} | {goal} | " + " | ".join(cells) + " |"


def cell(row: dict[str, Any], name: str) -> str:
    """Median, spread, and how many times ours it is; or why there is no number."""
    said = row["results"].get(name, {"missing": "not asked"})
    if "median" not in said:
        return said.get("missing") or f"failed: {said['error']}"
    text = significant(said["median"])
    if name == "impl" and row["goal"] is not None:
        text = f"**{text}**" if said["median"] <= row["goal"] else text
    if said["count"] > 1:
        text += f" ({significant(said['low'])} to {significant(said['high'])})"
    if name in row["ratios"]:
        text += f", {significant(row['ratios'][name], 2)}x"
    return text
