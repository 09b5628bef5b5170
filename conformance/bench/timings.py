"""The result of a run as tables: our time, the best peer, and how near both are to the limit."""
from __future__ import annotations

import statistics
from collections.abc import Iterator
from typing import Any

from conformance.bench.limits import possible
from conformance.bench.peers import TITLES

Row = dict[str, Any]


def markdown(result: dict[str, Any]) -> str:
    """Tables for each number of threads, after lines on the machine and its limits."""
    parts = [measured_on(result) + "."]
    for count in sorted({row["threads"] for row in result["rows"]}):
        rows = [row for row in result["rows"] if row["threads"] == count]
        parts.append(f"**{count} thread{'s' if count > 1 else ''}.** {limits(result, count)}")
        for group in dict.fromkeys(row["group"] for row in rows):
            shown = [row for row in rows if row["group"] == group]
            if "limit" in shown[0]:
                parts.append("\n".join([f"**{group}, {count} threads**" if count > 1
                                        else f"**{group}, 1 thread**", "", *table(shown)]))
                parts.append(summary(shown))
            else:
                parts.append("\n".join([f"**{group}**", "", *plain(shown)]))
    return "\n\n".join(part for part in parts if part)


def measured_on(result: dict[str, Any], threads: str = "") -> str:
    """The machine, the threads and the versions, in a sentence without its end."""
    machine, versions = result["machine"], result["versions"]
    libraries = ", ".join(f"{TITLES.get(name, name)} {versions[name]}" for name in versions)
    noted = dict.fromkeys(one.get("commit") for one in [result, *result.get("runs", ())])
    commits = ", ".join(one for one in noted if one)  # older results have none
    return (f"Measured on {machine['processor']}, {machine['cores']} cores, {machine['system']}, "
            f"Python {machine['python']}{', ' if threads else ''}{threads}: {libraries}"
            f"{'; commit ' if commits else ''}{commits}")


def limits(result: dict[str, Any], threads: int) -> str:
    """What the machine could do, in words."""
    most = possible(result, threads)
    said = [f"{size(one.footprint)}: copy {significant(one.copy / 1e9)}, "
            f"read {significant(one.read / 1e9)} GB/s" for one in most.speeds]
    return f"Limits: {significant(most.peak / 1e9)} GFLOP/s; over {'; over '.join(said)}."


def size(count: int) -> str:
    return f"{count >> 20} MiB" if count >= 1 << 20 else f"{count >> 10} KiB"


def best(row: Row) -> tuple[str, float] | None:
    """The fastest peer and its median."""
    found = {name: said["median"] for name, said in row["results"].items()
             if name != "impl" and "median" in said}
    name = min(found, key=lambda one: found[one], default=None)
    return None if name is None else (name, found[name])


def ratio(row: Row) -> float | None:
    """The best peer's time by ours: above 1, ours is faster."""
    fastest, ours = best(row), row["results"].get("impl", {}).get("median")
    return fastest[1] / ours if fastest and ours else None


def part(times: float) -> str:
    """A ratio, with as many digits as say something."""
    return f"{times:.2f}" if times >= 0.1 else significant(times, 2)


def table(rows: list[Row]) -> Iterator[str]:
    """The lines of a table of times and limits. Every library has a column."""
    names = list(dict.fromkeys(name for row in rows for name in row["results"]))
    peers = [name for name in names if name != "impl"]
    yield ("| | ours, ms | best peer | ratio | ours of limit | best peer of limit | "
           + " | ".join(f"{TITLES.get(name, name)}, ms" for name in peers) + " |")
    yield "|---|--:|---|--:|--:|--:|" + "--:|" * len(peers)
    for row in rows:
        yield (f"| {row['title']} | " + " | ".join(leading(row)) + " | "
               + " | ".join(short(row, name) for name in peers) + " |")


def leading(row: Row) -> Iterator[str]:
    """Our time with its spread, the best peer, the ratio, and both shares of the limit."""
    ours, fastest, times = row["results"].get("impl", {}), best(row), ratio(row)
    yield spread(row, "impl")
    yield f"{TITLES.get(fastest[0], fastest[0])} {significant(fastest[1])}" if fastest else ""
    yield "" if times is None else (f"**{part(times)}**" if times >= 1 else part(times))
    yield f"{row['limit'] / ours['median']:.0%}" if "median" in ours else ""
    yield f"{row['limit'] / fastest[1]:.0%}" if fastest else ""


def spread(row: Row, name: str) -> str:
    """Median, and from the least to the greatest round; or why there is none."""
    said = row["results"].get(name, {"missing": "not asked"})
    if "median" not in said:
        return said.get("missing") or f"failed: {said['error']}"
    text = significant(said["median"])
    if said["count"] > 1:
        text += f" ({significant(said['low'])} to {significant(said['high'])})"
    return text


def short(row: Row, name: str) -> str:
    said = row["results"].get(name, {"missing": "not asked"})
    return significant(said["median"]) if "median" in said else spread(row, name)


def plain(rows: list[Row]) -> Iterator[str]:
    """Figures without a limit: a goal, and everybody's number."""
    names = list(dict.fromkeys(name for row in rows for name in row["results"]))
    yield "| | unit | goal | " + " | ".join(TITLES.get(name, name) for name in names) + " |"
    yield "|---|---|--:|" + "--:|" * len(names)
    for row in rows:
        goal = "" if row["goal"] is None else significant(row["goal"])
        yield (f"| {row['title']} | {row['unit']} | {goal} | "
               + " | ".join(spread(row, name) for name in names) + " |")


def summary(rows: list[Row]) -> str:
    """How the rows do against the best peer, in a sentence."""
    found = {row["title"]: times for row in rows if (times := ratio(row)) is not None}
    if not found:
        return ""
    least = min(found, key=lambda title: found[title])
    return (f"Ratio to the best peer: {part(statistics.median(found.values()))} at the median, "
            f"least {part(found[least])} ({least}); {sum(r >= 1 for r in found.values())} of "
            f"{len(found)} at 1 or above.")


#: So many of the rows that are furthest behind are shown at once.
_SHOWN = 10


def behind(result: dict[str, Any]) -> str:
    """The workloads where a peer is faster, the furthest behind first, as a table."""
    found = [(times, row) for row in result["rows"]
             if "limit" in row and (times := ratio(row)) is not None and times < 1]
    if not found:
        return "In no row: ours is the fastest."
    head = ["| | threads | ours, ms | best peer, ms | ratio | ours of limit |",
            "|---|--:|--:|---|--:|--:|"]
    rows = []
    for times, row in sorted(found, key=lambda one: one[0]):
        fastest = best(row)
        assert fastest is not None
        ours = row["results"]["impl"]["median"]
        rows.append(f"| {row['title']} | {row['threads']} | {significant(ours)} | "
                    f"{TITLES.get(fastest[0], fastest[0])} {significant(fastest[1])} | "
                    f"{part(times)} | {row['limit'] / ours:.0%} |")
    return "\n".join([*head, *rows[:_SHOWN], *_folded([*head, *rows[_SHOWN:]])])


def _folded(table: list[str]) -> Iterator[str]:
    """A table that opens on demand, if it has any rows; a block of mkdocs-material."""
    count = len(table) - 2
    if count:
        yield from ("", f'??? note "{count} more"', "", *(f"    {row}" for row in table))


def line(row: Row) -> str:
    """A row while the run goes on."""
    said = ", ".join(f"{TITLES.get(name, name)} {short(row, name)}" for name in row["results"])
    times = ratio(row)
    shown = "" if times is None else f" ratio {part(times)}"
    limit = f" limit {significant(row['limit'])}" if "limit" in row else ""
    return f"{row['key']} [{row['unit']}]{shown}{limit}: {said}"


def significant(value: float, digits: int = 3) -> str:
    """A number with so many digits that mean something."""
    if value == int(value) and abs(value) < 1e6:
        return f"{int(value):,}"
    if abs(value) >= 10**digits:
        return f"{round(value):,}"
    return f"{value:.{digits}g}"
