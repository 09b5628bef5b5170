"""What a training step costs on 8 to 65,536 devices: a simulator.

    python -m conformance.bench.scaling               a model of 70 billion parameters, all ways
    python -m conformance.bench.scaling --here        predicted and measured, 2 and 4 processes

A link has a latency and a time for each byte. Operations and working memory of a layer are those of
the schedule document of that layer, which is planned and never run: nothing is allocated. The rest
is counted: bytes of each collective (as in spec/collectives.md), and what hides behind what.
"""
from __future__ import annotations

import functools
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from impl import Context, Device, Tensor
from impl.effects import collect
from impl.kernel import estimate
from impl.realize.environment import environment
from impl.schedule import plan_for


@dataclass(frozen=True)
class Link:
    """Seconds to start a message, and bytes in a second."""

    latency: float
    bandwidth: float

    def all_reduce(self, nbytes: float, count: int) -> float:
        """By a ring or by a tree, whichever takes less time; each has `nbytes`."""
        deep = (count - 1).bit_length()
        return min(2 * (count - 1) * self._of(nbytes / count), 2 * deep * self._of(nbytes))

    def all_gather(self, nbytes: float, count: int) -> float:
        """By a ring, or directly; the result has `nbytes`. A reduce-scatter takes as long."""
        return (count - 1) * self._of(nbytes / count)

    def send(self, nbytes: float) -> float:
        """One message."""
        return self._of(nbytes)

    def _of(self, nbytes: float) -> float:
        return self.latency + nbytes / self.bandwidth


@dataclass(frozen=True)
class Cluster:
    """Devices in nodes: a fast link inside a node, a slower one between two."""

    operations: float = 400e12      # in a second, of each device, on products of matrices
    memory: float = 80e9
    node: int = 8
    inside: Link = Link(3e-6, 300e9)
    between: Link = Link(10e-6, 40e9)

    def link(self, stride: int, count: int) -> Link:
        """That of a group of devices which stand `stride` apart."""
        return self.inside if stride * count <= self.node else self.between


@dataclass(frozen=True)
class Model:
    """A transformer, and the batch of a step."""

    layers: int = 80
    width: int = 8192
    keys: int = 1024                # the width of keys and of values
    hidden: int = 28672
    words: int = 32000
    tokens: int = 4096
    sequences: int = 1024
    itemsize: int = 2               # of parameters, gradients and activations
    states: int = 12                # bytes of a parameter's copy in float32 and Adam's two states

    @property
    def layer_parameters(self) -> int:
        """Four products of attention, and three of the hidden layer."""
        return self.width * (2 * self.width + 2 * self.keys + 3 * self.hidden)

    @property
    def parameters(self) -> int:
        """All, with the words at both ends."""
        return self.layers * self.layer_parameters + 2 * self.words * self.width


@dataclass(frozen=True)
class Way:
    """How many devices along each axis of the mesh, and whether parameters are spread along data.

    Neighbours are first those along `tensor`, then `sequence`, `pipeline` and `data`.
    """

    name: str
    data: int = 1
    tensor: int = 1
    sequence: int = 1
    pipeline: int = 1
    spread: bool = False

    @property
    def devices(self) -> int:
        """All of the mesh."""
        return self.data * self.tensor * self.sequence * self.pipeline


@dataclass(frozen=True)
class Cost:
    """Of one step, for each device: seconds, bytes sent, the peak of memory, and the share of the
    time of transfers that hides behind computing.
    """

    seconds: float
    computing: float
    sent: float
    peak: float
    overlap: float


@functools.cache
def layer_counts(model: Model) -> tuple[int, int]:
    """Operations of a layer on one sequence, forwards and backwards, and the bytes of its
    temporaries, from its plan on one device. Values are of `itemsize` bytes.
    """
    shapes = {"q": (model.width, model.width), "k": (model.width, model.keys),
              "v": (model.width, model.keys), "out": (model.width, model.width),
              "gate": (model.width, model.hidden), "up": (model.width, model.hidden),
              "down": (model.hidden, model.width)}
    with Context(DEVICE="REFERENCE"):
        p = {name: Tensor.empty(*shape, requires_grad=True) for name, shape in shapes.items()}
        x = Tensor.empty(model.tokens, model.width, requires_grad=True)
        head = min(128, model.keys)
        normed = x.layernorm()
        q, k, v = ((normed @ p[name]).reshape(model.tokens, -1, head).transpose(0, 1)
                   for name in "qkv")
        groups = model.width // model.keys
        k, v = (side.unsqueeze(1).expand(-1, groups, -1, -1).reshape(-1, model.tokens, head)
                for side in (k, v))
        mixed = q.scaled_dot_product_attention(k, v, is_causal=True)
        y = x + mixed.transpose(0, 1).reshape(model.tokens, model.width) @ p["out"]
        normed = y.layernorm()
        y = y + ((normed @ p["gate"]).silu() * (normed @ p["up"])) @ p["down"]
        (y * Tensor.empty(model.tokens, model.width)).sum().backward()
        slopes = [value.grad.uop for value in (x, *p.values()) if value.grad is not None]
        effects = collect([y.uop, *slopes])
        plan, _, _ = plan_for(effects, environment(effects), False)
        operations = sum(estimate(kernel.ast).operations for kernel in plan.kernels)
        planned = sum(one.planned for one in plan.memories.values())
    return operations, planned * model.itemsize // 4


def simulated(model: Model, way: Way, cluster: Cluster, micro: int = 1) -> Cost:
    """One training step; each device has `micro` sequences at a time, split by `sequence`.

    Layers keep what goes into them, and compute the rest again for the gradient.
    """
    operations, working = layer_counts(model)
    layers, split = model.layers / way.pipeline, way.tensor * way.sequence
    turns = max(1, model.sequences // (way.data * micro))
    own = micro * model.tokens / way.sequence * model.width * model.itemsize  # one activation
    layer = model.layer_parameters * model.itemsize / way.tensor
    # A third more than forwards and backwards: what is computed again.
    compute = turns * layers * micro * operations * 4 / 3 / split / cluster.operations
    compute *= (turns + way.pipeline - 1) / turns
    shown = hiding = sent = 0.0

    tensor = cluster.link(1, way.tensor)
    if way.tensor > 1:  # two all-reduces of activations in each direction, which all wait for
        count = 4 * turns * layers
        shown += count * tensor.all_reduce(own, way.tensor)
        sent += count * 2 * own * (way.tensor - 1) / way.tensor
    stride = way.tensor
    if way.sequence > 1:  # blocks of keys and values; backwards also their gradients
        link = cluster.link(stride, way.sequence)
        block = 2 * own * model.keys / model.width / way.tensor
        count = 3 * turns * layers * (way.sequence - 1)
        hiding += count * link.send(block)
        sent += count * block
    stride *= way.sequence
    if way.pipeline > 1:  # a microbatch to the next, and its gradient back
        link = cluster.link(stride, way.pipeline)
        count = 2 * (turns + way.pipeline - 1)
        hiding += count * link.send(own / way.tensor)
        sent += count * own / way.tensor
    stride *= way.pipeline
    copies = way.data * way.sequence  # these have the same parameters
    if copies > 1:
        link = cluster.link(stride, copies)
        if way.spread:  # gathered twice, scattered once, for each layer and microbatch
            count = 3 * turns * layers
            hiding += count * link.all_gather(layer, copies)
            sent += count * layer * (copies - 1) / copies
        else:
            hiding += link.all_reduce(layers * layer, copies)
            sent += 2 * layers * layer * (copies - 1) / copies
    hidden = min(hiding, compute)
    parameters = model.parameters / way.tensor / way.pipeline
    held = parameters * (2 * model.itemsize + model.states)
    if way.spread:
        held = held / copies + 2 * layer
    kept = layers * own * min(way.pipeline, turns)
    total = shown + hiding
    return Cost(compute + shown + hiding - hidden, compute, sent,
                held + kept + micro * working / split, hidden / total if total else 0.0)


def best(model: Model, way: Way, cluster: Cluster) -> tuple[int, Cost]:
    """The number of sequences at a time for which a step takes least time, of those that fit."""
    most = max(1, model.sequences // way.data)
    tried = [(micro, simulated(model, way, cluster, micro))
             for micro in (1 << bit for bit in range(most.bit_length()))]
    fitting = [each for each in tried if each[1].peak <= cluster.memory]
    return min(fitting, key=lambda each: each[1].seconds) if fitting else tried[0]


def ways(devices: int, model: Model) -> Iterator[Way]:
    """What a mesh of so many devices is used for; only what the batch and the layers allow."""
    tensor = min(8, devices)
    pipeline = min(8, max(1, devices // tensor))
    every = [
        Way("data parallel", data=devices), Way("FSDP", data=devices, spread=True),
        Way("tensor", tensor=devices), Way("sequence", sequence=devices, spread=True),
        Way("pipeline", pipeline=devices),
        Way("FSDP x tensor", data=devices // tensor, tensor=tensor, spread=True),
        Way("FSDP x sequence", data=devices // tensor, sequence=tensor, spread=True),
        Way("FSDP x pipeline", data=devices // pipeline, pipeline=pipeline, spread=True),
        Way("data x tensor x pipeline", data=devices // tensor // pipeline, tensor=tensor,
            pipeline=pipeline)]
    for way in every:
        if way.devices == devices and way.data <= model.sequences and way.tensor <= 64 \
                and way.pipeline <= model.layers and way.sequence <= model.tokens // 16:
            yield way


def table(model: Model, cluster: Cluster, counts: Sequence[int]) -> Iterator[str]:
    """A line for each way on each number of devices; what does not fit is marked."""
    yield (f"{'devices':>7}  {'way':<26}{'at a time':>9}{'s a step':>10}{'computing':>11}"
           f"{'GB sent':>9}{'GB peak':>9}{'hidden':>8}")
    for count in counts:
        for way in ways(count, model):
            micro, cost = best(model, way, cluster)
            fits = "" if cost.peak <= cluster.memory else "  does not fit"
            yield (f"{count:>7}  {way.name:<26}{micro:>9}{cost.seconds:>10.2f}"
                   f"{cost.computing:>11.2f}"
                   f"{cost.sent / 1e9:>9.1f}{cost.peak / 1e9:>9.1f}{100 * cost.overlap:>6.0f} %"
                   f"{fits}")


# ---------------------------------------------------------------- beside measured times

def _worker() -> None:
    """Steps of data parallel training by this process and the others; the first one prints."""
    import numpy as np

    from impl import TinyJit, distributed, nn
    mesh = distributed.mesh(data=distributed.ranks()) if distributed.ranks() > 1 else None
    width, rows = 768, 256
    layers = [nn.Linear(width, width) for _ in range(4)]
    parameters = [p for layer in layers for p in nn.state.get_parameters(layer)]
    batch = Tensor(np.ones((rows, width), np.float32))
    if mesh is not None:
        batch = batch.shard(mesh, data=0)
        for parameter in parameters:
            parameter.shard_(mesh)
    batch.realize()
    optimizer = nn.optim.SGD(parameters, lr=1e-3)

    def step(x: Tensor) -> Tensor:
        with Tensor.train():
            optimizer.zero_grad()
            hidden = x
            for layer in layers:
                hidden = layer(hidden).relu()
            loss = hidden.square().mean()
            loss.backward()
            optimizer.step()
            return loss.realize()

    add = TinyJit(lambda t: t.sum(0).realize())
    times = {"step": _median(TinyJit(step), batch)}
    for size in (8, 1 << 20):
        value = Tensor(np.ones((distributed.ranks(), size), np.float32))
        value = (value if mesh is None else value.shard(mesh, data=0)).realize()
        times[f"all-reduce {size}"] = _median(add, value) if size < 9 else \
            _median(TinyJit(lambda t: t.sum(0).realize()), value)
    if distributed.rank() == 0:
        print("\t".join(f"{name}={seconds}" for name, seconds in times.items()))


def _median(function: object, value: Tensor) -> float:
    assert callable(function)
    found = []
    for _ in range(24):
        start = time.perf_counter()
        function(value)
        Device[Device.DEFAULT].synchronize()
        found.append(time.perf_counter() - start)
    return statistics.median(found[6:])


def _run(count: int) -> dict[str, float]:
    command = [sys.executable, "-m", "conformance.bench.scaling", "--worker"]
    if count > 1:
        command = ["mpiexec", "-n", str(count), *command]
    text = subprocess.run(command, capture_output=True, text=True, check=True, timeout=280,
                          env={**os.environ, "CPU_COUNT": "1"}).stdout
    return {name: float(seconds) for name, seconds in
            (part.split("=") for part in text.strip().splitlines()[-1].split("\t"))}


def here() -> Iterator[str]:
    """Predicted and measured, for processes of one thread on this machine."""
    nbytes = 4 * (768 * 768 + 768) * 4
    one, cores = _run(1)["step"], os.cpu_count() or 1
    yield f"one process: {1e3 * one:.2f} ms a step"
    for count in (2, 4):
        found = _run(count)
        small, large = found["all-reduce 8"], found["all-reduce 1048576"]
        moves = 2 * (count - 1)
        link = Link(small / moves, max(1.0, moves * (1 << 22) / count / max(1e-9, large - small)))
        crowd = max(1.0, count / cores)
        # The gradients of a layer are one all-reduce of weights, and one of the bias.
        sending = 8 * link.all_reduce(nbytes / 8, count)
        predicted = one / count * crowd + sending
        yield (f"{count} processes: predicted {1e3 * predicted:.2f} ms, measured "
               f"{1e3 * found['step']:.2f} ms (a message {1e6 * link.latency:.0f} us, "
               f"{link.bandwidth / 1e9:.2f} GB/s)")


def main(arguments: Sequence[str]) -> None:
    """Print the table, or what is predicted and measured here."""
    if "--worker" in arguments:
        return _worker()
    lines = here() if "--here" in arguments else table(
        Model(), Cluster(), [8, 64, 512, 4096, 16384, 65536])
    for line in lines:
        print(line, flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
