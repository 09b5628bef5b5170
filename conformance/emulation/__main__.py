"""The suite on every device with work-groups: one command, a report for each.

    python -m conformance.emulation                      # each of the devices, one by one
    python -m conformance.emulation CUDA --out reports

CUDA and METAL are emulated (see `devices`), and their reports say so in their names. A device that
cannot be used here is named, and the others go on.
"""
from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from argparse import ArgumentParser
from collections.abc import Sequence
from pathlib import Path

#: The reports that the site shows, by device.
NAMES = {"OPENCL": "opencl.jsonl", "WEBGPU": "webgpu.jsonl", "CUDA": "cuda-emulated.jsonl",
         "METAL": "metal-emulated.jsonl"}
REPORTS = Path(__file__).parent.parent / "reports"


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the reports. The status is 0 if nothing is wrong on any device."""
    parser = ArgumentParser(prog="python -m conformance.emulation",
                            description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("devices", nargs="*", help=f"some of {', '.join(NAMES)}; all without one")
    parser.add_argument("--out", type=Path, default=REPORTS, help="the folder of the reports")
    given = parser.parse_args(arguments)
    unknown = sorted({*given.devices} - {*NAMES})
    if unknown:
        parser.error(f"{', '.join(unknown)}: the devices are {', '.join(NAMES)}")
    given.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="emulation-") as folder:
        wrong = [device for device in given.devices or NAMES
                 if _suite(device, given.out / NAMES[device], folder)]
    print(f"something is wrong on {', '.join(wrong)}" if wrong else "nothing is wrong")
    return 1 if wrong else 0


def _suite(device: str, report: Path, folder: str) -> int:
    """Run the suite on one device, in a process of its own."""
    print(f"{device}: {report}", flush=True)
    # The report has its command in it, which is to be right in any other folder too.
    words = [sys.executable, "-m", "conformance", "--report", os.path.relpath(report), "--impl",
             f"conformance.emulation.devices:{device}"]
    kept = {"EMULATION_FOLDER": folder, "CACHE_FOLDER": f"{folder}/kernels"}
    return subprocess.run(words, env={**kept, **os.environ}, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
