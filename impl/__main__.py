"""The main job: train on handwritten digits, then show what the scheduler did.

    python -m impl [--epochs N] [--report FILE] [--devices N]

The data are scikit-learn's `load_digits`: 1,797 pictures of 8 x 8, real handwriting. A fifth of
them is held out for the test. The rest of the file uses nothing but the public API.
"""
from __future__ import annotations

import argparse
import os
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path

from impl import (
    Context,
    Device,
    ExecItem,
    GlobalCounters,
    Mesh,
    Tensor,
    TinyJit,
    distributed,
    inspect,
    nn,
    realize,
)
from impl.errors import ArgumentError, DeviceError
from impl.host import np
from impl.schedule import schedule_cache

BATCH = 128


class Classifier:
    """Two linear layers: pictures (batch, 64) to scores (batch, 10)."""

    def __init__(self) -> None:
        self.hidden = nn.Linear(64, 256)
        self.scores = nn.Linear(256, 10)

    def __call__(self, x: Tensor) -> Tensor:
        return self.scores(self.hidden(x).relu())


class Trainer:
    """The model, its optimiser, and one captured training step; on a mesh, data parallel."""

    def __init__(self, mesh: Mesh | None) -> None:
        Tensor.manual_seed(3)
        self.model, self.mesh = Classifier(), mesh
        if mesh is not None:
            for parameter in nn.state.get_parameters(self.model):
                parameter.shard_(mesh)
        self.optimizer = nn.optim.Adam(nn.state.get_parameters(self.model), lr=0.004)
        self.step = TinyJit(self.train_step)

    def batch(self, values: np.ndarray) -> Tensor:
        """Pictures or labels as a tensor; on a mesh each device has its part of them."""
        whole = Tensor(values)
        return whole if self.mesh is None else whole.shard(self.mesh, data=0).realize()

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        """The loss of a batch, its gradients left with the parameters."""
        self.optimizer.zero_grad()
        loss = self.model(x).sparse_categorical_crossentropy(y)
        loss.backward()
        return loss

    def train_step(self, x: Tensor, y: Tensor) -> Tensor:
        """One step; the loss before it."""
        with Tensor.train():
            tensors = self.pending_step(x, y)
            return tensors[0].realize(*tensors[1:])

    def pending_step(self, x: Tensor, y: Tensor) -> list[Tensor]:
        """One step as expressions: the loss, and all that the optimiser changes."""
        loss = self.loss(x, y)
        updated = self.optimizer.schedule_step()
        self.optimizer.zero_grad()  # nobody will look at the gradients, so they need no memory
        return [loss, *updated]


def digits() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Pictures and labels for training, and for the test."""
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        sys.exit('python -m impl: the data come with scikit-learn. Remedy: '
                 'pip install -e ".[demo]"')
    pictures, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(labels))
    pictures = (pictures[order] / 16).astype(np.float32)
    labels, held_out = labels[order].astype(np.int32), len(labels) // 5
    return pictures[held_out:], labels[held_out:], pictures[:held_out], labels[:held_out]


def accuracy(trainer: Trainer, x: np.ndarray, y: np.ndarray) -> float:
    """The share of pictures that are recognised."""
    return float((trainer.model(trainer.batch(x)).argmax(1).numpy() == y).mean())


def train(trainer: Trainer, x: np.ndarray, y: np.ndarray, epochs: int) -> None:
    """Train with a progress bar on the terminal."""
    chooser, steps = np.random.default_rng(1), len(y) // BATCH
    started = time.perf_counter()
    for epoch in range(epochs):
        order = chooser.permutation(len(y))
        losses = [trainer.step(trainer.batch(x[rows]), trainer.batch(y[rows])) for rows in
                  (order[i * BATCH:(i + 1) * BATCH] for i in range(steps))]
        loss = float(np.mean([one.item() for one in losses]))
        done = (epoch + 1) * 30 // epochs
        ending = "\n" if epoch + 1 == epochs else "" if sys.stdout.isatty() else None
        if ending is not None:
            print(f"\rtraining  [{'#' * done}{'.' * (30 - done)}] epoch {epoch + 1}/{epochs}  "
                  f"loss {loss:.4f}  {time.perf_counter() - started:5.1f} s", end=ending,
                  flush=True)


def whole_number(text: str) -> int:
    """A whole number of one or more, as a word of the command line.

    Raises:
        ArgumentTypeError: it is none.
    """
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number of 1 or more. Remedy: give "
                                         "such a number, or leave the setting out")
    return int(text)


def main() -> None:
    """Train, test, explain."""
    parser = argparse.ArgumentParser(prog="python -m impl", description=__doc__.split("\n")[0])
    parser.add_argument("--epochs", type=whole_number, default=20,
                        help="how often all pictures are seen; 20 without a wish")
    parser.add_argument("--devices", type=whole_number, default=distributed.ranks(),
                        help="train on so many devices; under mpiexec on one of each process")
    parser.add_argument("--report", type=Path, help="where to write the HTML report")
    given = parser.parse_args()
    x, y, test_x, test_y = digits()
    try:
        Device[Device.DEFAULT]
        mesh = distributed.mesh(data=given.devices) if max(given.devices, distributed.ranks()) > 1 \
            else None
    except (DeviceError, ArgumentError) as error:
        sys.exit(f"python -m impl: {error}")
    if distributed.rank():  # all compute, and one of them speaks
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    print(f"device    {mesh or Device.DEFAULT}, {len(y)} pictures to train on, "
          f"{len(test_y)} held out")
    trainer = Trainer(mesh)
    train(trainer, x, y, given.epochs)
    print(f"accuracy  {accuracy(trainer, test_x, test_y):.4f} on the held-out pictures\n")
    show(trainer, trainer.batch(x[:BATCH]).realize(), trainer.batch(y[:BATCH]).realize(),
         given.report)


def measure(items: list[ExecItem], repeats: int = 9) -> dict[int, float]:
    """The median time of each kernel in seconds, by its number."""
    times: dict[int, list[float]] = {}
    for _ in range(repeats):
        for item in items:
            times.setdefault(item.metadata["kernel"], []).append(item.run())
    return {number: statistics.median(found) for number, found in times.items()}


def show(trainer: Trainer, x: Tensor, y: Tensor, report: Path | None) -> None:
    """What the scheduler made of one training step."""
    with Tensor.train(), realize.measured() as spans:  # a step more, as it runs
        tensors = trainer.pending_step(x, y)
        tensors[0].realize(*tensors[1:])
    with Tensor.train():
        tensors = trainer.pending_step(x, y)
    document = Tensor.runtime.document(tensors, programs=True)
    with Context(FUSE=0):
        apart = Tensor.runtime.document(tensors)
    timings = measure(Tensor.schedule(*tensors))
    counters = {"plans cached": len(schedule_cache), "cache hits": schedule_cache.hits,
                            "cache misses": schedule_cache.misses,
                            "replays": trainer.step.replays,
                            "kernels run": GlobalCounters.kernels}
    columns = shutil.get_terminal_size((120, 24)).columns
    for part in (inspect.kernel_table(document, timings, width=columns),
                 inspect.boundary_table(document), inspect.memory_summary(document)):
        print(part + "\n")
    print(f"without fusion (FUSE=0) there would be {len(apart['kernels'])} kernels, and "
          + inspect.memory_summary(apart).splitlines()[0] + "\n")
    print(", ".join(f"{name}: {count}" for name, count in counters.items()))
    path = report or Path(tempfile.mkdtemp(prefix="tensor-schedule-")) / "report.html"
    inspect.html_report(document, path, timings, counters=counters, spans=spans)
    print(path)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit("interrupted")
