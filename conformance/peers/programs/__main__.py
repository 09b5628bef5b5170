"""Run programs of PyTorch's users: `python -m conformance.peers.programs [NAME ...] [--torch]`."""
from __future__ import annotations

import argparse
import subprocess
import sys
import time

from conformance.peers.programs import CHANGED, PROGRAMS, ported, source


def main() -> int:
    """A line for each program: whether it did what it checks, lines that changed, seconds."""
    parser = argparse.ArgumentParser(prog="python -m conformance.peers.programs",
                                     description=__doc__)
    parser.add_argument("names", nargs="*", default=[], help=f"of {', '.join(PROGRAMS)}")
    parser.add_argument("--torch", action="store_true", help="run them as they are, on PyTorch")
    given = parser.parse_args()
    failed = 0
    for name in given.names or PROGRAMS:
        text = source(name) if given.torch else ported(name)
        begun = time.perf_counter()
        ran = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True,
                             check=False)
        seconds = time.perf_counter() - begun
        failed += ran.returncode != 0
        print(f"{name:22} {'ok' if ran.returncode == 0 else 'FAILED':7}"
              f"{len(text.splitlines()):4} lines, {len(CHANGED.get(name, {}))} changed, "
              f"{seconds:6.1f} s", flush=True)
        if ran.returncode:
            print("   ", ran.stderr.strip().splitlines()[-1])
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
