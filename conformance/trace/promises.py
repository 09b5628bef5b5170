"""What one can rely on: each promise, what it is tested by, and its last long run.

    python -m conformance.trace promises

A promise is kept by the rules of some chapters, which tests and mistakes on purpose hold in place
at each change. Runs that are too long for that are stored in `conformance/reports/`, with the
commit on which they were made; nothing is said here that is not read from there.
"""
from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from conformance.trace import ROOT, matrix

REPORTS = ROOT / "conformance" / "reports"
#: Commits that are named where a figure is of several.
_COMMITS = 3


@dataclass(frozen=True)
class Promise:
    """A promise in words, the chapters or groups of rules that state it, and what tells of its last
    long run.
    """

    text: str
    rules: tuple[str, ...]
    run: Callable[[], str] | None = None


def _stored(pattern: str) -> list[tuple[str, dict[str, Any]]]:
    return [(path.stem, json.loads(path.read_text(encoding="utf-8")))
            for path in sorted(REPORTS.glob(pattern))]


def _at(commits: Sequence[str]) -> str:
    """On which commits something was run."""
    known = [*dict.fromkeys(commit[:8] for commit in commits if commit)]
    more = f" and {len(known) - _COMMITS} more" if len(known) > _COMMITS else ""
    return (", at " + ", ".join(known[:_COMMITS]) + more) if known else ", at no known commit"


def _programs(names: Callable[[str], bool]) -> str:
    """The random programs of some stored runs."""
    runs = [report for name, report in _stored("fuzz-*.json") if names(name)]
    count = sum(run["tally"]["programs"] for run in runs)
    wrong = sum(len(run["tally"]["failures"]) for run in runs)
    return f"{count:,} random programs, {wrong} wrong" + _at([run["commit"] for run in runs])


def on_one_device() -> str:
    """Random programs on the CPU and on REFERENCE."""
    return _programs(lambda name: name.removeprefix("fuzz-").isdigit())


def on_meshes() -> str:
    """Random programs on several devices."""
    return _programs(lambda name: name.startswith("fuzz-meshes"))


def on_other_devices() -> str:
    """Random programs on GPUs, most of them emulated."""
    return _programs(lambda name: name in ("fuzz-cuda-emulated", "fuzz-devices", "fuzz-opencl"))


def replayed() -> str:
    """Random captured programs, of the last commit on which they were run."""
    slices = json.loads((REPORTS / "captured.json").read_text(encoding="utf-8"))["slices"]
    commits: dict[str, list[dict[str, Any]]] = {}
    for each in slices:
        commits.setdefault(each["commit"], []).append(each)
    last = [*commits][-1]
    runs = commits[last]
    least = min(run["share"] for run in runs)
    return (f"{sum(run['programs'] for run in runs):,} captured programs, "
            f"{sum(run['calls'] for run in runs):,} calls, "
            f"{sum(len(run['differences']) for run in runs)} silent differences; at least "
            f"{100 * least:.1f} % of the calls that could be were replayed" + _at([last]))


def under_sanitizers() -> str:
    """Generated code with all accesses watched."""
    known = json.loads((REPORTS / "sanitized.json").read_text(encoding="utf-8"))
    wrong = sum(bool(each["wrong"]) for each in known["parts"].values())
    return (f"{len(known['parts'])} of {known['planned']} parts under the sanitizers of "
            f"{known['compiler'].split()[0]}, {wrong} wrong" + _at([known.get("commit", "")]))


def of_samples() -> str:
    """PyTorch's samples of inputs, forward and gradients."""
    known = json.loads((REPORTS / "torch-samples.json").read_text(encoding="utf-8"))
    return (f"{known['passed']:,} of {known['passed'] + known['failed']:,} of PyTorch's samples of "
            "inputs, values and gradients" + _at([known.get("commit", "")]))


def of_nodes() -> str:
    """The tests of nodes that ONNX has."""
    known = json.loads((REPORTS / "onnx-nodes.json").read_text(encoding="utf-8"))
    return (f"{known['passed']['impl']:,} of {known['apply']:,} node tests of ONNX"
            + _at([known.get("commit", "")]))


def of_files() -> str:
    """Files of other libraries with bytes changed."""
    known = json.loads((REPORTS / "formats.json").read_text(encoding="utf-8"))
    return (f"{known['count']:,} changed files, {len(known['wrong'])} read wrongly"
            + _at([known["commit"]]))


def _in_the_first() -> str:
    return "the programs of the first row ask for it, too"


#: What is promised, in the order in which a reader asks.
PROMISES = (
    Promise("Every value that a program can see is the one that an interpreter shows which runs "
            "each line at once.", ("effects", "realize", "schedule", "fusion", "tensor.lazy"),
            on_one_device),
    Promise("Kernels run in an order that no reader or writer can tell from the order of the "
            "program.", ("dependencies", "ordering", "linear"), _in_the_first),
    Promise("Memory is used again only where nobody can tell.", ("memory", "placement"),
            _in_the_first),
    Promise("A plan from the cache is the plan that would have been made.", ("caching",),
            _in_the_first),
    Promise("A replayed call shows what a run of its body would show, or it is no replay.",
            ("replay", "following"), replayed),
    Promise("A gradient is the derivative, also of gradients, of loops and of replays.",
            ("gradient", "transforms"), of_samples),
    Promise("Operations mean what other libraries mean by them.", ("tensor", "dtypes"), of_nodes),
    Promise("Values on several devices and in several processes are those of one.",
            ("multi", "collectives", "distributed"), on_meshes),
    Promise("Devices agree.", ("device", "cuda", "metal", "opencl", "webgpu", "reference"),
            on_other_devices),
    Promise("Generated code reads and writes nothing but its own memory.",
            ("kernel", "groups", "render", "cpu"), under_sanitizers),
    Promise("An error names what was wrong and the remedy, and nothing is lost.",
            ("errors", "realize.failure", "replay.failure")),
    Promise("A damaged file is such an error: nothing runs, and nothing is read outside of it.",
            ("errors.message", "errors.argument"), of_files),
)


def rows(rules: list[dict[str, Any]] | None = None,
         ) -> Iterator[tuple[str, str, int, int, int, str]]:
    """Each promise, its chapters or groups, how many rules, tests and mistakes those have, and its
    last long run. `rules` is the rule matrix, where it was made already.
    """
    rules = rules or matrix()
    for promise in PROMISES:
        mine = [rule for rule in rules
                if any(f"{rule['id']}.".startswith(f"{group}.") for group in promise.rules)]
        tests = {(place["file"], place["name"]) for rule in mine for place in rule["tests"]}
        mistakes = {place["name"] for rule in mine for place in rule["saboteurs"]}
        yield (promise.text, ", ".join(promise.rules), len(mine), len(tests), len(mistakes),
               promise.run() if promise.run else "all of it runs at each change")


def table(spec: str = "", rules: list[dict[str, Any]] | None = None) -> str:
    """The promises as a Markdown table; with the way to the chapters, their names are links."""
    def linked(groups: str) -> str:
        return ", ".join(f"[{name}]({spec}/{name.split('.')[0]}.md)" if spec else name
                         for name in groups.split(", "))
    lines = ["| promise, and where it is stated | rules, tests, mistakes | last long run |",
             "|---|---|---|"]
    lines += [f"| {text} ({linked(groups)}) | {rules}, {tests}, {mistakes} | {run} |"
              for text, groups, rules, tests, mistakes, run in rows(rules)]
    return "\n".join(lines)
