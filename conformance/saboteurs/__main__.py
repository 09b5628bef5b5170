"""Who is killed by what: `python -m conformance.saboteurs [--impl package.module:Adapter]`.

Adapter saboteurs work around the demo that ships, which is right and claims every tier; patches
are made to `impl`.
"""

from __future__ import annotations

import atexit
import shlex
import sys
from argparse import ArgumentParser
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from conformance.protocol import Adapter
from conformance.protocol.subprocess_adapter import SubprocessAdapter
from conformance.runner.checks import Check, collect, run_check
from conformance.runner.interruption import quietly
from conformance.runner.subject import Subject
from conformance.saboteurs import AdapterSaboteur, Saboteur, all_saboteurs

DEMO = f"{sys.executable} {Path(__file__).parent.parent / 'demo' / 'naive.py'}"
IMPLEMENTATION = "conformance.adapters.impl_adapter:Adapter"


def killers(saboteur: Saboteur, checks: Sequence[Check], implementation: str = "") -> list[str]:
    """The checks that cite the saboteur's rule and find it."""
    subject, rule = _subject(saboteur, implementation), saboteur.rule.partition("+")[0]
    subject.shrinks = False  # that it fails is enough
    adapter, found = subject.adapter, []
    try:
        with saboteur.installed():
            subject.adapter = saboteur.wrap(adapter)
            subject.wrap = saboteur.wrap
            for check in checks:
                if rule in check.rules:
                    result = run_check(subject, check, subject.info.observes, ())
                    if result.verdict in ("fail", "error"):
                        found.append(check.name)
                        break
    finally:
        adapter.reset()
        if adapter is not _demo():
            subject.close()
    return found


@cache
def _demo() -> Adapter:
    """The demo in a process of its own, which all saboteurs of this process share."""
    adapter = SubprocessAdapter(shlex.split(DEMO))
    atexit.register(adapter.close)
    return adapter


def _subject(saboteur: Saboteur, implementation: str) -> Subject:
    if isinstance(saboteur, AdapterSaboteur) and not implementation:
        return Subject.of(saboteur.base) if saboteur.base else \
            Subject(_demo(), f"--impl-cmd {shlex.quote(DEMO)}", shlex.split(DEMO))
    subject = Subject.of(implementation or IMPLEMENTATION)
    # In a process of its own the saboteur has to be installed again.
    subject.command = [*subject.command, type(saboteur).__name__]
    return subject


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a line for each saboteur.  The status is 1 if one of them lives."""
    parser = ArgumentParser(prog="python -m conformance.saboteurs")
    parser.add_argument("--impl", default="", help="what to sabotage; default: the demo")
    parser.add_argument("--rule", default="", help="only saboteurs of this rule")
    options = parser.parse_args(arguments)
    checks, alive = collect(), 0
    for saboteur in all_saboteurs():
        if options.rule in ("", saboteur.rule):
            found = killers(saboteur, checks, options.impl)
            alive += not found
            print(f"{saboteur.rule:<40}{type(saboteur).__name__:<30}"
                  f"{'killed by ' + found[0] if found else 'ALIVE'}", flush=True)
    return 1 if alive else 0


if __name__ == "__main__":
    sys.exit(quietly(main))
