"""`python -m conformance.peers.missing`: which names of torch are not here, and what is said then.

Names that PyTorch's modules show because they import them, such as `math`, count as its names too:
nobody can tell them from others.
"""
from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from typing import Any

import impl.torch as ours
from impl import Tensor
from impl.errors import TensorScheduleError

#: What is compared: the path below `torch`.
PARTS = ("Tensor", "", "nn", "nn.functional", "linalg")
#: How a remedy begins that says what to write; others are guesses, or say where to look.
TOLD = ("use ", "leave it out")


def missing(part: str) -> Iterator[tuple[str, str | None]]:
    """Each public name of a part of torch, with the remedy where it is not here, else None."""
    theirs = importlib.import_module("torch")
    mine: Any = Tensor([[1.0]]) if part == "Tensor" else ours
    for step in part.split("."):
        theirs = getattr(theirs, step) if step else theirs
        mine = getattr(mine, step) if step and part != "Tensor" else mine
    for name in dir(theirs):
        if not name.startswith("_") and not name.endswith("_notes"):
            try:
                getattr(mine, name)
            except TensorScheduleError as error:
                yield name, error.remedy
            else:
                yield name, None


def main() -> int:
    """Print them, and their counts. The status is 1 if of one nothing is known to write."""
    silent = 0
    for part in PARTS:
        found = list(missing(part))
        gone = [(name, remedy) for name, remedy in found if remedy is not None]
        for name, remedy in gone:
            silent += not remedy.startswith(TOLD)
            print(f"{part or 'torch':16} {name:40} {remedy}")
        print(f"{part or 'torch'}: {len(gone)} of {len(found)} names are not here")
    return 1 if silent else 0


if __name__ == "__main__":
    sys.exit(main())
