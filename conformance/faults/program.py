"""What each process of a job runs, and how one of them goes wrong: `program.py FOLDER FAULT`.

What it says goes to a file of its own: the launcher mixes the words of those that speak at once.
"""
from __future__ import annotations

import hashlib
import json
import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np

from impl import Mesh, Tensor, distributed, nn

STEPS = 6
SIGNALS = {"killed": "SIGKILL", "stopped": "SIGSTOP"}
#: The state of the model, as it is saved.
NAME = "model.safetensors"


def digest(state: dict[str, Tensor]) -> str:
    """The values of a state, in short."""
    found = hashlib.sha256()
    for name, tensor in sorted(state.items()):
        found.update(name.encode() + np.ascontiguousarray(tensor.numpy()).tobytes())
    return found.hexdigest()[:16]


class Training:
    """A few steps of a model with spread and copied parameters."""

    def __init__(self, mesh: Mesh) -> None:
        random = np.random.default_rng(0)
        self.w = Tensor(random.standard_normal((5, 7)).astype(np.float32)).shard_(mesh, data=0)
        self.b = Tensor(random.standard_normal(7).astype(np.float32)).shard_(mesh)
        self.mesh, self.random = mesh, np.random.default_rng(1)
        for parameter in (self.w, self.b):
            parameter.requires_grad = True
        self.optimizer = nn.optim.SGD([self.w, self.b], lr=0.1)
        self.state = {"w": self.w, "b": self.b}

    def step(self) -> float:
        x = Tensor(self.random.standard_normal((6, 5)).astype(np.float32))
        self.optimizer.zero_grad()
        loss = ((x.shard(self.mesh, data=0) @ self.w + self.b).tanh() ** 2).mean()
        loss.backward()
        self.optimizer.step()
        return loss.item()


def later(seconds: float, number: int) -> None:
    """A signal to this process, after some time."""
    timer = threading.Timer(seconds, os.kill, (os.getpid(), number))
    timer.daemon = True
    timer.start()


def go_wrong(fault: dict[str, Any], training: Training) -> None:
    """What the fault says, at its step."""
    kind = fault["kind"]
    if kind in SIGNALS:
        later(fault["after"], getattr(signal, SIGNALS[kind]))
    elif kind == "other":
        (training.w * 2).sum(0).realize()
    elif kind == "alone":
        training.b.sum().item()  # which each process has
        (training.w + 1).numpy()
    elif kind == "raises":
        raise ValueError("this rank goes wrong")
    elif kind == "ends":
        sys.exit(0)


def main(folder: Path, fault: dict[str, Any]) -> None:
    """Train; say each loss, and each state that is saved."""
    me = distributed.rank()
    if distributed.ranks() > 1:
        file = os.open(folder / f"said.{me}", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(file, 1)
        os.dup2(file, 2)
    count = distributed.ranks() if distributed.ranks() > 1 else 4
    training = Training(distributed.mesh(data=count))
    for step in range(STEPS):
        wrong = fault["rank"] == me and fault["step"] == step
        if wrong and fault["where"] == "step":
            go_wrong(fault, training)
        print(f"loss {step} {training.step().hex()}", flush=True)
        state = digest(training.state)
        print(f"state {step} {state}", flush=True)
        if wrong and fault["where"] == "save":
            go_wrong(fault, training)
        nn.state.safe_save(training.state, folder / NAME)
        print(f"saved {step} {state}", flush=True)
    if fault["kind"] == "saving":  # until it is killed
        print("ready", flush=True)
        while True:
            nn.state.safe_save(training.state, folder / NAME)


if __name__ == "__main__":
    main(Path(sys.argv[1]), json.loads(sys.argv[2]))
