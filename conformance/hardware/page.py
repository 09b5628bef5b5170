"""The result of a hardware run as a page."""
from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from conformance.bench.table import significant
from conformance.hardware.libraries import TITLES


def page(result: dict[str, Any]) -> str:
    """Markdown: the machine, the suite, and a table for each dtype."""
    return "\n".join([*_head(result), *_suite(result), *_limits(result), *_tables(result),
                      *_replay(result), *_collectives(result), ""])


def _head(result: dict[str, Any]) -> Iterator[str]:
    machine = result["machine"]
    yield "# A run on hardware" if not result["dry"] else "# A dry run: nothing of it is a GPU"
    if result["dry"]:
        yield ("\nOver the mock of the driver, with very small sizes. It shows that the script "
               "runs to its end; its times mean nothing, and are not shown.")
    yield (f"\n{machine['gpu']}, sm_{machine['architecture']}, driver {machine['driver']}, "
           f"{machine['compiler']}; {', '.join(f'{k} {v}' for k, v in result['versions'].items())}."
           + ("" if result["dry"] else f" {result.get('seconds', 0):.0f} s in all."))
    for line in result["problems"]:
        yield f"\n- **{line}**"


def _suite(result: dict[str, Any]) -> Iterator[str]:
    verdicts = Counter(each["verdict"] for each in result["suite"])
    yield "\n## Conformance\n"
    yield ", ".join(f"{count} {name}" for name, count in verdicts.items()) or "not run"
    for each in result["suite"]:
        if each["verdict"] in ("fail", "error"):
            yield f"\n- {each['test']}: {each['message'].partition(chr(10))[0]}"


def _limits(result: dict[str, Any]) -> Iterator[str]:
    limits = result["limits"]
    if result["dry"]:
        return
    yield "\n## What the GPU can do\n"
    if "copy" in limits:
        yield f"- copy: {significant(limits['copy'] / 1e9)} GB/s, read and written"
    for dtype, speed in limits.get("peak", {}).items():
        yield f"- product of {dtype} matrices: {significant(speed / 1e12)} TFLOP/s (the vendor's)"


def _tables(result: dict[str, Any]) -> Iterator[str]:
    rows = result["rows"]
    for dtype in dict.fromkeys(row["dtype"] for row in rows):
        yield f"\n## {dtype}\n"
        if result["dry"]:
            yield from _dry([row for row in rows if row["dtype"] == dtype])
            continue
        yield "Milliseconds, medians (least to greatest).\n"
        yield "| | " + " | ".join(TITLES.values()) + " | best other / ours | ours of limit |"
        yield "|---|" + "--:|" * (len(TITLES) + 2)
        for row in rows:
            if row["dtype"] == dtype:
                yield (f"| {row['name']} | " + " | ".join(_cell(row["times"].get(name))
                                                          for name in TITLES)
                       + f" | {_ratio(row)} | {_part(row)} |")


def _dry(rows: list[dict[str, Any]]) -> Iterator[str]:
    """A line for each thing that is said, with the workloads of which it is."""
    for said in dict.fromkeys(map(_ran, rows)):
        yield f"- {said}: {', '.join(row['name'] for row in rows if _ran(row) == said)}"


def _ran(row: dict[str, Any]) -> str:
    """What a dry run says of a workload: that it ran and was right, or why not."""
    said = row["times"].get("impl", {})
    return "right" if "median" in said else str(said.get("missing", "was not run"))


def _cell(said: dict[str, Any] | None) -> str:
    if said is None:
        return ""
    if "median" not in said:
        return str(said["missing"]).replace("|", "/").replace("\n", " ")[:80]
    return (f"{significant(said['median'])} ({significant(said['low'])} to "
            f"{significant(said['high'])})")


def _ratio(row: dict[str, Any]) -> str:
    found = [said["median"] for name, said in row["times"].items()
             if name != "impl" and "median" in said]
    ours = row["times"].get("impl", {}).get("median")
    return f"{min(found) / ours:.2f}" if found and ours else ""


def _part(row: dict[str, Any]) -> str:
    ours = row["times"].get("impl", {}).get("median")
    return f"{1e3 * row['limit'] / ours:.0%}" if ours and row.get("limit") else ""


def _replay(result: dict[str, Any]) -> Iterator[str]:
    if "replay" in result:
        said = result["replay"]
        if result["dry"]:
            yield f"\n## Replay\n\n{said['kernels']} tiny kernels were replayed as one graph."
            return
        yield (f"\n## Replay\n\n{said['kernels']} tiny kernels: ours "
               f"{significant(said['ours'] * 1e6)} us, a graph written by hand "
               f"{significant(said['by hand'] * 1e6)} us, ratio "
               f"{said['ours'] / said['by hand']:.2f}.")


def _collectives(result: dict[str, Any]) -> Iterator[str]:
    for job in result.get("collectives", []):
        yield f"\n## Collectives in {job['way']}\n"
        if "missing" in job:
            yield str(job["missing"]).splitlines()[-1]
            continue
        yield f"{job['gpus']} GPUs, {'with' if job['found'] else 'WITHOUT'} NCCL.\n"
        if result["dry"]:
            yield from (f"- {row['kind']}: {_right(row)}" for row in job["rows"])
            continue
        yield "| | bytes of a piece | ms by NCCL | ms without |"
        yield "|---|--:|--:|--:|"
        for row in job["rows"]:
            yield (f"| {row['kind']} | {row['bytes']} | "
                   + " | ".join(_milliseconds(row[name]) for name in ("nccl", "without")) + " |")


def _right(row: dict[str, Any]) -> str:
    return "WRONG" if None in (row["nccl"], row["without"]) else "right"


def _milliseconds(seconds: float | None) -> str:
    return "WRONG" if seconds is None else significant(1e3 * seconds)
