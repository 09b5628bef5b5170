"""`python -m conformance.hardware`: see the package."""
from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

#: Of the time that is left, what a step may take at most; the rest of the tables comes after it.
SHARE_OF_SUITE = 0.4
#: Checks of the suite that a dry run makes.
DRY_CHAPTER = "dtypes"


def options(arguments: Sequence[str] | None = None) -> Namespace:
    """The command line."""
    parser = ArgumentParser(
        prog="python -m conformance.hardware",
        description="The suite on a CUDA GPU, then times against other libraries there; "
                    "writes hardware.json and hardware.md.")
    parser.add_argument("--dry-run", action="store_true", help="over the mock driver, very small")
    parser.add_argument("--seconds", type=float, default=450, help="for everything")
    parser.add_argument("--out", type=Path, default=Path.cwd(), help="folder for the two files")
    parser.add_argument("--only", default="", help="these workloads, separated by commas")
    parser.add_argument("--skip-suite", action="store_true", help="times only")
    parser.add_argument("--skip-times", action="store_true", help="the suite only")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run everything; the status is 0 if nothing is wrong."""
    given = options(arguments)
    os.environ["DEVICE"] = "CUDA"
    with contextlib.ExitStack() as stack:
        if given.dry_run:
            stack.enter_context(import_module("conformance.emulation.driver").installed())
        problem = import_module("impl.cuda.driver").problem()
        if problem:
            print(f"nothing was run: {problem}")
            return 2
        return Run(given).all()


class Run:
    """One run: what it has found so far is always on disk."""

    def __init__(self, given: Namespace) -> None:
        self.given, self.begun = given, time.monotonic()
        self.result: dict[str, Any] = {"format": "tensor-hardware/1", "dry": given.dry_run,
                                       "problems": [], "suite": [], "limits": {}, "rows": []}

    def left(self) -> float:
        """Seconds that are left."""
        return float(self.given.seconds) - (time.monotonic() - self.begun)

    def all(self) -> int:
        """Each step in turn; one that breaks is noted, and the next one goes on."""
        self.given.out.mkdir(parents=True, exist_ok=True)
        self.step("machine", self.machine)
        if not self.given.skip_suite:
            self.step("suite", self.suite)
        if not self.given.skip_times:
            for step in (self.limits, self.replay, self.collectives, self.times):
                self.step(step.__name__, step)
        bad = [each for each in self.result["suite"] if each["verdict"] in ("fail", "error")]
        wrong = [row for row in self.result["rows"]
                 if "missing" in row["times"].get("impl", {"missing": ""})]
        for job in self.result.get("collectives", []):
            self.result["problems"] += [
                f"collectives in {job['way']}: {row['kind']} gives wrong values"
                for row in job.get("rows", []) if None in row.values()]
        print(f"{len(bad)} checks failed, {len(wrong)} workloads have no time of ours; "
              f"{self.given.out / 'hardware.md'}")
        return 1 if bad or wrong or self.result["problems"] else 0

    def step(self, name: str, work: Callable[[], None]) -> None:
        """Do a step and save."""
        try:
            work()
        except Exception as error:  # whatever a new machine does: the next step may still work
            self.result["problems"].append(f"{name}: {type(error).__name__}: {error}")
            print(self.result["problems"][-1], file=sys.stderr)
        self.save()

    def save(self) -> None:
        """Write both files."""
        from conformance.hardware.page import page
        self.result["seconds"] = round(time.monotonic() - self.begun, 1)
        for name, text in (("hardware.json", json.dumps(self.result, indent=1) + "\n"),
                           ("hardware.md", page(self.result))):
            (self.given.out / name).write_text(text, encoding="utf-8")

    def machine(self) -> None:
        """What this runs on."""
        import impl
        device: Any = impl.Device["CUDA"]
        driver = import_module("cuda.bindings.driver")
        self.result["machine"] = {
            "gpu": driver.cuDeviceGetName(128, device.context.device)[1].decode().strip("\0 "),
            "architecture": device.architecture, "driver": driver.cuDriverGetVersion()[1],
            "compiler": import_module("impl.cuda.compiler").version(),
            "memory": device.context.call("cuMemGetInfo")[1]}
        self.result["versions"] = {"ours": impl.__version__}
        for name in ("torch", "jax"):
            with contextlib.suppress(ImportError):
                self.result["versions"][name] = str(import_module(name).__version__)

    def suite(self) -> None:
        """The conformance suite; what does not fit into its time is not run, and said so."""
        from conformance.runner.checks import CHAPTERS, collect, run_check
        from conformance.runner.subject import Subject
        subject = Subject.of("conformance.adapters.impl_adapter:Adapter")
        until, broken = self.left() * (1 - SHARE_OF_SUITE), set[str]()
        for check in collect([DRY_CHAPTER] if self.given.dry_run else CHAPTERS):
            if self.left() < until:
                self.result["problems"].append(f"suite: no time for what comes after {check.name}")
                break
            found = run_check(subject, check, subject.info.observes, broken)
            if found.verdict in ("fail", "error"):
                broken.update(check.rules)
            self.result["suite"].append(
                {"test": found.test, "verdict": found.verdict, "message": found.message[:2000],
                 "seconds": found.seconds})
            print(f"{found.verdict:<12}{found.test}  {found.seconds:.1f} s", file=sys.stderr)
            if self.given.dry_run and len(self.result["suite"]) == 2:
                break
        subject.close()

    def limits(self) -> None:
        """The speed of copies and of the vendor's products."""
        from conformance.hardware import measure
        from conformance.hardware.works import DTYPES
        limits = self.result["limits"]
        limits["copy"] = measure.copy_speed(1 << (12 if self.given.dry_run else 30))
        try:
            torch = import_module("torch")
            if torch.cuda.is_available():
                limits["peak"] = {dtype: measure.peak(torch, dtype, 8192) for dtype in DTYPES}
        except ImportError:
            self.result["problems"].append("limits: without PyTorch there is no matrix peak")

    def replay(self) -> None:
        """Many tiny kernels, against a graph that is written by hand."""
        from conformance.hardware import libraries, measure
        from conformance.hardware.graph import ByHand
        count = 20 if self.given.dry_run else 1000
        hand, ours = ByHand(count), libraries.Ours("float32")
        captured = ours._captured(count)
        times: dict[str, list[float]] = {"ours": [], "by hand": []}
        for _ in range(7):
            times["by hand"].append(measure.sample(hand.run, hand.finish, 5))
            times["ours"].append(measure.sample(captured, ours.finish, 5))
        self.result["replay"] = {"kernels": count,
                                 **{name: sorted(found)[3] for name, found in times.items()}}

    def collectives(self) -> None:
        """What GPUs send each other, by NCCL and without it."""
        from conformance.hardware.collectives import jobs
        gpus = 2 if self.given.dry_run else import_module(
            "cuda.bindings.driver").cuDeviceGetCount()[1]
        if gpus > 1:
            self.result["collectives"] = list(jobs(gpus, self.given.dry_run, self.left() / 4))

    def times(self) -> None:
        """All workloads in all dtypes, as long as there is time."""
        from conformance.hardware.works import DTYPES, works
        wanted = [name for name in self.given.only.split(",") if name]
        for workload in works(self.given.dry_run):
            if wanted and workload.name not in wanted:
                continue
            for dtype in DTYPES:
                if self.left() < 5:
                    self.result["problems"].append(f"times: no time from {workload.name} on")
                    return
                self.result["rows"].append(self.row(workload, dtype))
                self.save()

    def row(self, workload: Any, dtype: str) -> dict[str, Any]:
        """One workload in one dtype: every library is checked, then timed in turns."""
        from conformance.hardware import compare, measure
        limits = self.result["limits"]
        limit = measure.limit(workload.work, dtype, limits.get("copy", 1e12),
                              limits.get("peak", {}).get(dtype))
        times = compare.times(workload, dtype, self.left())
        print(f"{workload.name} {dtype}: " + ", ".join(
            f"{name} {said.get('median', said.get('missing'))}" for name, said in times.items()),
            file=sys.stderr)
        return {"name": workload.name, "dtype": dtype, "limit": limit, "times": times}


if __name__ == "__main__":
    sys.exit(main())
