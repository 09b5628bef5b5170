"""Programs that a user of PyTorch would write, and the lines that change for them to run here.

Each `.txt` is a program for PyTorch, of the kinds that its tutorials have, with small data. It
checks
its own results. `ported` changes the imports, and the lines that are named here. Nothing else.
"""
from __future__ import annotations

import re
from pathlib import Path

FOLDER = Path(__file__).parent
PROGRAMS = sorted(path.stem for path in FOLDER.glob("*.txt"))

#: The lines that change besides imports: a part of a line, and what stands there instead.
CHANGED: dict[str, dict[str, str]] = {
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
