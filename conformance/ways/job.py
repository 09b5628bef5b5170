"""One way run on a mesh, in this process or in all processes of a job.

    mpiexec -n 4 python -m conformance.ways.job SIZE WAYS     prints a line of JSON for each way
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

from conformance.ways.programs import SIZES, WAYS, Size, Way, drawn, one_after_the_other, parameters
from impl import Context, Mesh, Tensor, distributed, nn
from impl.collectives import Peers
from impl.collectives.steps import Rounds
from impl.device import Memory

STEPS, RATE, MOMENTUM = 3, 0.5, 0.9
#: The algorithms that send least. Between processes MPI chooses.
LEAST = dict.fromkeys(("ALLREDUCE", "ALLGATHER", "REDUCESCATTER", "ALLTOALL"), "ring")
#: What steps left: losses, the first gradients, the parameters; and the bytes of a step.
Found = dict[str, Any]


def trained(size: Size, way: Way | None = None, mesh: Mesh | None = None, layers: int = 1) -> Found:
    """Some steps of training, on a mesh, or on one device."""
    p = parameters(size, way.layers if way else layers)
    words, targets = drawn(size)
    if way is not None and mesh is not None:
        way.placed(p, mesh)
        words, targets = (x.shard(mesh, **way.inputs) for x in (words, targets))
    Tensor.realize(words, targets, *p.values())
    for value in p.values():
        value.requires_grad = True
    optimizer = nn.optim.SGD(list(p.values()), lr=RATE, momentum=MOMENTUM)
    found: Found = {"losses": [], "sent": 0}
    for step in range(STEPS):
        optimizer.zero_grad()
        loss = (way.loss if way else one_after_the_other)(p, words, targets, size.heads)
        loss.backward()
        gradients = [value.grad for value in p.values() if value.grad is not None]
        with counted() as sent:
            Tensor.realize(loss, *(gradients if not step else ()), *optimizer.schedule_step())
        found["losses"].append(float(loss.item()))
        if not step:
            found["sent"] = max(sent.values(), default=0)
            found["gradients"] = [one.numpy() for one in gradients]
    found["parameters"] = [value.numpy() for value in p.values()]
    return found


@contextmanager
def counted() -> Iterator[Counter[str]]:
    """The bytes that each device sends to others meanwhile.

    In one process those of each move. Of a call of MPI, which has algorithms of its own, those
    that it has to send at least.
    """
    sent: Counter[str] = Counter()
    phases = Peers.phases

    def counting(self: Peers, found: Rounds, sources: Sequence[Memory],
                 targets: Sequence[Memory], op: Any = None) -> Any:
        for moves in found:
            for move in moves:
                if not move.is_local:
                    sent[self.devices[move.sender].name] += \
                        (move.stop - move.start) * self.dtype.itemsize
        return phases(self, found, sources, targets, op)

    with mock.patch.object(Peers, "phases", counting), _calls_counted(sent):
        yield sent


@contextmanager
def _calls_counted(sent: Counter[str]) -> Iterator[None]:
    if distributed.ranks() == 1:
        yield
        return
    from impl.distributed.engine import Ranks
    name = str(distributed.rank())

    def least(method: str, share: Any) -> Any:
        before = getattr(Ranks, method)

        def call(self: Ranks, *given: Any) -> Any:
            # The first array, or that of each sum; a note may go without.
            nbytes = sum(mine.nbytes for mine, *_ in given[0]) if method == "sums" else \
                next((one.nbytes for one in given if isinstance(one, np.ndarray)), 0)
            sent[name] += int(nbytes * share(len(self.members)))
            return before(self, *given)
        return mock.patch.object(Ranks, method, call)

    with least("all", lambda k: k - 1), least("exchanged", lambda k: (k - 1) / k), \
            least("shifted", lambda k: 1), least("sums", lambda k: 2 * (k - 1) / k), \
            least("met", lambda k: k - 1):
        yield


def furthest(found: Found, expected: Found) -> float:
    """The greatest difference, in each tensor as a share of its greatest element."""
    shares = []
    for kind in ("losses", "gradients", "parameters"):
        for one, other in zip(found[kind], expected[kind], strict=True):
            wide = np.asarray(other, np.float64)
            shares.append(float(np.abs(np.asarray(one, np.float64) - wide).max()
                                / np.abs(wide).max()))
    return max(shares) if all(map(np.isfinite, shares)) else float("inf")


@cache
def on_one_device(size: Size, layers: int) -> Found:
    """What the same steps leave where nothing is spread."""
    return trained(size, layers=layers)


def measured(way: Way, size: Size) -> dict[str, Any]:
    """A way on four devices: how far it is from one device, and what each device sends."""
    with Context(**LEAST):
        found = trained(size, way, distributed.mesh(**way.axes))
    error = 0.0
    if distributed.rank() == 0:
        error = furthest(found, on_one_device(size, way.layers))
    return {"way": way.name, "error": error, "sent": found["sent"]}


def main(size: str, names: str) -> None:
    """Measure some ways; the first process says what came of it."""
    for name in names.split(","):
        found = measured(WAYS[name], SIZES[size])
        if distributed.rank() == 0:
            print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
