"""The figures that do not depend on the machine, as numbers that the tests hold.

`python -m conformance.bench record` writes them anew: after a change that makes them better, so
that they stay so, or after one that makes them worse for a good reason.
"""
from __future__ import annotations

import json
from argparse import ArgumentParser, Namespace
from pathlib import Path

from conformance.bench.figures import recorded_questions
from conformance.bench.peers import load
from conformance.bench.worker import ask

RECORD = Path(__file__).with_name("recorded.json")
#: By how much of itself a figure may exceed its record before a test fails.
TOLERANCE = 0.02


def add_arguments(parser: ArgumentParser) -> None:
    """The options: none."""


def main(options: Namespace) -> int:
    """Write the record; print what changed."""
    before = recorded() if RECORD.exists() else {}
    now = measured()
    RECORD.write_text(json.dumps(now, indent=1) + "\n", encoding="utf-8")
    for name, value in now.items():
        if before.get(name) != value:
            print(f"{name}: {before.get(name, 'nothing')} -> {value}")
    return 0


def recorded() -> dict[str, float]:
    """The record."""
    found: dict[str, float] = json.loads(RECORD.read_text(encoding="utf-8"))
    return found


def measured() -> dict[str, float]:
    """The figures as they are now."""
    peer, found = load("impl"), {}
    for name, method, arguments, fields in recorded_questions():
        said = ask(peer, method, arguments)
        found.update({f"{name}.{part}": said[part] for part in fields})
    return found


def worse(before: dict[str, float], now: dict[str, float]) -> list[str]:
    """What is worse than its record by more than the tolerance, a line each."""
    return [f"{name}: {now.get(name, 'not measured')}, recorded {value}"
            for name, value in before.items()
            if name not in now or now[name] > value * (1 + TOLERANCE)]
