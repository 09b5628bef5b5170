"""Programs that a user of PyTorch would write, and the lines that change for them to run here.

Each `.txt` is a program for PyTorch, with small data. The shorter ones are of the kinds that its
tutorials have, and check their own results. The longer ones draw by NumPy all that is random, and
print what they find step by step: `.out` has what they print under PyTorch. `ported` changes the
imports, and the lines that are named here. Nothing else.
"""
from __future__ import annotations

import math
import re
from pathlib import Path

FOLDER = Path(__file__).parent
PROGRAMS = sorted(path.stem for path in FOLDER.glob("*.txt"))

#: The lines that change besides imports: a part of a line, and what stands there instead.
CHANGED: dict[str, dict[str, str]] = {
    "conditional_gan": {"netG.block1.cbn1.bn.num_batches_tracked.item()":
                        "(2 * len(loader) + 1) * args.epochs"},
    "graphs": {"GraphNet(5, 8, 2, rng), nn.Cross": "GraphNet(5, 8, 2, rng).train(), nn.Cross"},
    "graph_network": {"output.max(1)[1]": "torch.max(output, 1)[1]"},
    "k_means": {"torch.cdist(X, centers).pow(2).min(dim=1)[0]":
                "torch.min(torch.cdist(X, centers).pow(2), dim=1)[0]"},
    "reinforcement": {"policy_net(state).max(1).indices":
                      "torch.max(policy_net(state), 1).indices",
                      "target_net(non_final_next_states).max(1).values":
                      "torch.max(target_net(non_final_next_states), 1).values"}}


def source(name: str) -> str:
    """A program for PyTorch."""
    return (FOLDER / f"{name}.txt").read_text(encoding="utf-8")


def ported(name: str) -> str:
    """The same for this library.

    Raises:
        ValueError: a line that is to change is not there, or there twice.
    """
    text = re.sub(r"^import torch$", "import impl.torch as torch", source(name), flags=re.M)
    text = re.sub(r"^import torch\.", "import impl.torch.", text, flags=re.M)
    text = re.sub(r"^from torch\b", "from impl.torch", text, flags=re.M)
    for old, new in CHANGED.get(name, {}).items():
        if text.count(old) != 1:
            raise ValueError(f"{name}: {old!r} is there {text.count(old)} times")
        text = text.replace(old, new)
    return text


def printed(name: str) -> str:
    """What a program prints under PyTorch; empty, if all that it finds is its own."""
    path = FOLDER / f"{name}.out"
    return path.read_text(encoding="utf-8") if path.exists() else ""


def differences(found: str, wanted: str) -> list[str]:
    """The lines in which a number differs by more than 1e-4 of it, or of 1 if it is smaller."""
    lines = found.splitlines(), wanted.splitlines()
    if len(lines[0]) != len(lines[1]):
        return [f"{len(lines[0])} lines, and {len(lines[1])} of PyTorch"]
    return [f"{mine}\n    {theirs}" for mine, theirs in zip(*lines, strict=True)
            if not _near(_numbers(mine), _numbers(theirs))]


def _near(found: list[float], wanted: list[float]) -> bool:
    return len(found) == len(wanted) and all(
        one == two or abs(one - two) <= 1e-4 * max(1.0, abs(two))
        or math.isnan(one) and math.isnan(two)
        for one, two in zip(found, wanted, strict=True))


def _numbers(line: str) -> list[float]:
    return [float(one) for one in re.findall(r"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?|\bnan\b", line)]
