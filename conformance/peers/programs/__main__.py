"""Run programs of PyTorch's users, and compare what they print with what they print there.

    python -m conformance.peers.programs [NAME ...] [--torch] [--write]
"""
from __future__ import annotations

import argparse
import subprocess
import sys
import time

from conformance.peers.programs import (
    CHANGED,
    FOLDER,
    PROGRAMS,
    differences,
    ported,
    printed,
    source,
)


def main() -> int:
    """A line for each program: whether it did what it has to, lines that changed, seconds."""
    parser = argparse.ArgumentParser(prog="python -m conformance.peers.programs",
                                     description=__doc__)
    parser.add_argument("names", nargs="*", default=[], help=f"of {', '.join(PROGRAMS)}")
    parser.add_argument("--torch", action="store_true", help="run them as they are, on PyTorch")
    parser.add_argument("--write", action="store_true",
                        help="the same, and keep what those print that print what they find")
    given = parser.parse_args()
    failed = 0
    for name in given.names or PROGRAMS:
        text = source(name) if given.torch or given.write else ported(name)
        begun = time.perf_counter()
        ran = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True,
                             check=False)
        seconds = time.perf_counter() - begun
        if given.write and printed(name):
            (FOLDER / f"{name}.out").write_text(ran.stdout, encoding="utf-8")
        wrong = ran.stderr.strip().splitlines()[-1:] if ran.returncode else \
            differences(ran.stdout, printed(name)) if printed(name) else []
        failed += bool(wrong)
        print(f"{name:22} {'FAILED' if wrong else 'ok':7}"
              f"{len(text.splitlines()):4} lines, {len(CHANGED.get(name, {}))} changed, "
              f"{seconds:6.1f} s", flush=True)
        for line in wrong[:5]:
            print("   ", line)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
