"""NumPy, in the dtypes of the inputs: the definitions of `operations`, run as they stand."""
from __future__ import annotations

import numpy as np

from conformance.bench.operations import Numpy
from conformance.bench.peers import NotMeasured, Numbers, Ready, repeated
from conformance.bench.workloads import Array, Workload


def make() -> NumpyPeer:
    """The adapter."""
    return NumpyPeer()


class NumpyPeer:
    def version(self) -> str:
        return np.__version__

    def ready(self, workload: Workload) -> Ready:
        if workload.parameters:
            raise NotMeasured("computes no gradients")
        words, inputs = Words(), workload.inputs
        return Ready(lambda: workload.compute(inputs, words), lambda answer: [np.asarray(answer)])

    def values(self, workload: Workload) -> list[Array]:
        made = self.ready(workload)
        return made.values(made.run())

    def add(self) -> Numbers:
        a, b = (np.array([1, 2, 3, number], np.float32) for number in (4, 5))
        repeated(lambda: a + b, 20)
        return {"seconds": repeated(lambda: a + b, 200)}


class Words(Numpy):
    """Where float32 has a faster way to say the same."""

    def relu(self, x: Array) -> Array:
        return np.maximum(x, np.float32(0))
