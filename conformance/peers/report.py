"""How many samples apply, and what came of them."""
from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any, TextIO

from conformance.peers.names import KNOWN
from conformance.runner.fuzz import commit


class Report:
    """Counts of samples by operator and verdict."""

    def __init__(self, verbose: bool = False) -> None:
        self.verbose = verbose
        self.passed: Counter[str] = Counter()
        self.failed: dict[str, Counter[str]] = defaultdict(Counter)
        self.left_out: dict[str, str] = {}

    def passes(self, name: str) -> None:
        """A sample gives what torch gives."""
        self.passed[name] += 1

    def fails(self, name: str, reason: str) -> None:
        """A sample gives something else, or an error."""
        self.failed[name][reason.split("; at ")[0][:150].replace("\n", " ")] += 1
        if self.verbose:
            print(f"{name}: {reason}")

    def leaves_out(self, name: str, reason: str) -> None:
        """An operator does not apply."""
        self.left_out[name] = reason

    def share(self) -> float:
        """Which part of the samples that apply passes."""
        good, bad = self.totals()
        return good / max(good + bad, 1)

    def totals(self) -> tuple[int, int]:
        """Samples that pass, and that fail."""
        return sum(self.passed.values()), sum(sum(each.values()) for each in self.failed.values())

    def as_data(self) -> dict[str, Any]:
        """The counts by operator, what fails with the reasons, and what does not apply, sorted."""
        names = sorted(set(self.passed) | set(self.failed))
        good, bad = self.totals()
        return {"commit": commit(), "passed": good, "failed": bad, "share": round(self.share(), 4),
                "operators": {name: self.passed[name] + sum(self.failed.get(name, {}).values())
                              for name in names},
                "misses": {name: dict(sorted(self.failed[name].items()))
                           for name in names if name in self.failed},
                "known": {name: KNOWN[name] for name in names
                          if name in KNOWN and name in self.failed},
                "apart": dict(sorted(self.left_out.items()))}

    def show(self, to: TextIO) -> None:
        """Print it: what fails, the most frequent first; then what does not apply; then sums."""
        for name, reasons in sorted(self.failed.items(), key=lambda each: -sum(each[1].values())):
            reason = KNOWN.get(name) or reasons.most_common(1)[0][0]
            print(f"fails  {name:34} {sum(reasons.values()):3} of "
                  f"{sum(reasons.values()) + self.passed[name]:3}  {reason}", file=to)
        for name, reason in sorted(self.left_out.items()):
            print(f"apart  {name:34} {reason}", file=to)
        good, bad = self.totals()
        names = set(self.passed) | set(self.failed)
        print(f"{len(names)} operators apply, {len(self.left_out)} do not; of {good + bad} samples "
              f"{good} pass ({100 * self.share():.1f} %), and all of "
              f"{len(names) - len(self.failed)} operators", file=to)
