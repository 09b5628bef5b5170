"""One way run on a mesh, in this process or in all processes of a job.

    mpiexec -n 4 python -m conformance.ways.job SIZE WAYS 4 eager,replay

prints a line of JSON for each way, run as it is and replayed.
"""
from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any
from unittest import mock

import numpy as np

from conformance.ways.programs import (
    SIZES,
    Size,
    Way,
    drawn,
    one_after_the_other,
    parameters,
    ways,
)
from impl import Context, Mesh, Tensor, TinyJit, distributed, nn
from impl.collectives import Peers
from impl.collectives.running import Phase
from impl.collectives.steps import Rounds
from impl.device import Memory

#: The first two calls of a captured function are no replays.
STEPS, RATE, MOMENTUM = 4, 0.5, 0.9
#: The algorithms that send least. Between processes MPI chooses.
LEAST = dict.fromkeys(("ALLREDUCE", "ALLGATHER", "REDUCESCATTER", "ALLTOALL"), "ring")
#: What steps left: losses, the last gradients, the parameters; and the bytes of the last step.
Found = dict[str, Any]


def trained(size: Size, way: Way | None = None, mesh: Mesh | None = None, layers: int = 1,
            replayed: bool = False) -> Found:
    """Some steps of training, on a mesh, or on one device; captured and replayed, if asked for.

    Raises:
        RuntimeError: the step was not replayed.
    """
    p = parameters(size, way.layers if way else layers)
    words, targets = drawn(size)
    if way is not None and mesh is not None:
        way.placed(p, mesh)
        words, targets = (x.shard(mesh, **way.inputs) for x in (words, targets))
    Tensor.realize(words, targets, *p.values())
    for value in p.values():
        value.requires_grad = True
    optimizer = nn.optim.SGD(list(p.values()), lr=RATE, momentum=MOMENTUM)
    loss_of = way.loss if way else one_after_the_other

    def step(words: Tensor, targets: Tensor) -> list[Tensor]:
        optimizer.zero_grad()
        loss = loss_of(p, words, targets, size.heads)
        loss.backward()
        made = [loss, *(value.grad for value in p.values() if value.grad is not None)]
        Tensor.realize(*made, *optimizer.schedule_step())
        return made

    run = TinyJit(step) if replayed else step
    losses, greatest = list[float](), list[float]()
    for _ in range(STEPS):
        with counted() as sent:
            loss, *gradients = run(words, targets)
        losses.append(float(loss.item()))
        sizes = [float(np.abs(one.numpy()).max()) for one in gradients]
        greatest = list(map(max, sizes, greatest or sizes))
    if isinstance(run, TinyJit) and run.replays != STEPS - 2:
        raise RuntimeError(f"{run.replays} of {STEPS} calls were replayed: {run.explain()}")
    return {"losses": losses, "sent": max(sent.values(), default=0),
            "gradients": [one.numpy() for one in gradients], "greatest": greatest,
            "parameters": [value.numpy() for value in p.values()]}


#: The bytes that each device has sent, since somebody counts.
_sent: Counter[str] = Counter()


@contextmanager
def counted() -> Iterator[Counter[str]]:
    """The bytes that each device sends to others meanwhile.

    In one process those of each move, when the moves are made: a replay has prepared them once. Of
    a call of MPI, which has algorithms of its own, those that it has to send at least.
    """
    phases = Peers.phases

    def counting(self: Peers, found: Rounds, sources: Sequence[Memory],
                 targets: Sequence[Memory], op: Any = None) -> Iterator[Phase]:
        own: Counter[str] = Counter()
        for moves in found:
            for move in moves:
                if not move.is_local:
                    own[self.devices[move.sender].name] += \
                        (move.stop - move.start) * self.dtype.itemsize
        for number, phase in enumerate(phases(self, found, sources, targets, op)):
            if not number:
                phase[0].append(lambda: _sent.update(own))
            yield phase

    _sent.clear()
    with mock.patch.object(Peers, "phases", counting), _calls_counted(_sent):
        yield _sent


@contextmanager
def _calls_counted(sent: Counter[str]) -> Iterator[None]:
    if distributed.ranks() == 1:
        yield
        return
    from impl.distributed.engine import Ranks
    from impl.distributed.sums import Sums
    name = str(distributed.rank())

    def least(kind: type, method: str, share: Any, size: Any) -> Any:
        before = getattr(kind, method)

        def call(self: Any, *given: Any) -> Any:
            count = len((self if kind is Ranks else self.ranks).members)
            sent[name] += int(size(self, *given) * share(count))
            return before(self, *given)
        return mock.patch.object(kind, method, call)

    def first(ranks: Ranks, given: np.ndarray, *others: Any) -> int:
        return given.nbytes

    with least(Ranks, "all", lambda k: k - 1, first), \
            least(Ranks, "exchanged", lambda k: (k - 1) / k, first), \
            least(Ranks, "shifted", lambda k: 1, first), \
            least(Ranks, "met", lambda k: k - 1, lambda ranks, what, given=0: given), \
            least(Sums, "__call__", lambda k: 2 * (k - 1) / k,
                  lambda sums: sum(mine.nbytes for mine, *_ in sums.messages)):
        yield


def furthest(found: Found, expected: Found) -> float:
    """The greatest difference, in each tensor as a share of its greatest element.

    A gradient's is that of all steps: where a loss is least, what is left of it is rounding.
    """
    shares = []
    for kind in ("losses", "gradients", "parameters"):
        sizes = expected["greatest"] if kind == "gradients" else [
            np.abs(other).max() for other in expected[kind]]
        for one, other, size in zip(found[kind], expected[kind], sizes, strict=True):
            wide = np.asarray(other, np.float64)
            shares.append(float(np.abs(np.asarray(one, np.float64) - wide).max() / size))
    return max(shares) if all(map(np.isfinite, shares)) else float("inf")


@cache
def on_one_device(size: Size, layers: int) -> Found:
    """What the same steps leave where nothing is spread."""
    return trained(size, layers=layers)


def measured(way: Way, size: Size, mode: str) -> dict[str, Any]:
    """A way on its devices: how far it is from one device, and what each device sends."""
    with Context(**LEAST):
        found = trained(size, way, distributed.mesh(**way.axes), replayed=mode == "replay")
    error = 0.0
    if distributed.rank() == 0:
        error = furthest(found, on_one_device(size, way.layers))
    return {"way": way.name, "mode": mode, "error": error, "sent": found["sent"]}


def main(size: str, names: str, count: str, modes: str) -> None:
    """Measure some ways on so many devices; the first process says what came of it."""
    known = ways(int(count))
    for name in names.split(","):
        for mode in modes.split(","):
            found = measured(known[name], SIZES[size], mode)
            if distributed.rank() == 0:
                print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
