"""`python -m conformance.bench networks`: every kernel of common networks beside its roofline.

A training step of each network is planned and run kernel by kernel. Each kernel is run again at
once, while its inputs are in place, and its least time is compared with the time that the machine
needs at least: for its operations at the multiply-add peak, or for its bytes at the speed of
memory, whichever takes longer. Those that reach less than a quarter of that are named. With
`--plans` nothing is compiled or timed: named are the kernels that do most of their work one
element at a time, which a test also asks for.
"""
from __future__ import annotations

import json
import math
import os
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from conformance.bench.architectures import ARCHITECTURES, Network
from conformance.bench.limits import Limits, measure
from conformance.bench.rounds import commit
from conformance.bench.workloads import Work
from impl import Context, Tensor, realize
from impl import torch as as_torch
from impl.choosing import hand_steps
from impl.choosing.heuristic import hand_plan
from impl.dtypes import dtypes
from impl.ir import DEAR, ELEMENTWISE, Ops, UOp
from impl.kernel import Analysis, DeviceLimits, estimate
from impl.kernel.analysis import LANES, loop_size
from impl.realize import ensure_memory
from impl.steps import starting_kernel

#: A kernel is named if it takes more than so many times what the machine needs at least.
FACTOR = 4
#: What a launch may take besides, in seconds.
_LAUNCH = 5e-6
#: A kernel with a smaller part of the step's time is not named.
_LEAST_PART = 0.01
#: A kernel with fewer operations has no substantial work.
SUBSTANTIAL = 1 << 16
#: How often a kernel is run, at most.
_MOST_RUNS = 50
#: Steps of a kernel that are shown.
_SHOWN = 12
#: The processor that plans are made for where nothing is timed.
PROCESSOR = DeviceLimits(vector_bytes=64, vector_registers=32, second_cache=2 << 20,
                         third_cache=32 << 20)


@dataclass(frozen=True)
class Timed:
    """A kernel of a step: its least time and the time that the machine needs at least, in seconds.
    """

    network: str
    kernel: str
    label: str
    seconds: float
    least: float
    operations: int
    bytes: int
    steps: tuple[str, ...]

    @property
    def reached(self) -> float:
        """The part of the roofline that it reaches."""
        return self.least / max(self.seconds - _LAUNCH, 1e-9)


def add_arguments(parser: ArgumentParser) -> None:
    """The options."""
    parser.add_argument("names", nargs="*", help="networks (default: all)")
    parser.add_argument("--plans", action="store_true", help="compile and time nothing")
    parser.add_argument("--forward", action="store_true", help="the loss only, without gradients")
    parser.add_argument("--all", action="store_true", help="a line for each kernel")
    parser.add_argument("--against", action="store_true", help="time PyTorch's whole step, too")
    parser.add_argument("--seconds", type=float, default=0.02, help="for each kernel")
    parser.add_argument("--json", help="where the figures go")


def main(options: Namespace) -> int:
    """Walk over the networks; 1 if a kernel is named."""
    unknown = [name for name in options.names if name not in ARCHITECTURES]
    if unknown:
        print(f"no network {', '.join(unknown)}; there are: {', '.join(ARCHITECTURES)}")
        return 2
    names = options.names or list(ARCHITECTURES)
    if options.plans:
        return _print_plans(names, not options.forward)
    with Context(CPU_COUNT=1):
        limits, found = measure(1), []
        print(f"peak {limits.peak / 1e9:.0f} GFLOP/s; copies "
              + ", ".join(f"{one.copy / 1e9:.0f} GB/s over {one.footprint >> 10} KiB"
                          for one in limits.speeds) + f"; load {os.getloadavg()[0]:.1f}")
        for name in names:
            rows = timed(name, limits, not options.forward, options.seconds)
            found += rows
            total = sum(row.seconds for row in rows)
            peer = f", PyTorch {1e3 * _peer(name, not options.forward):.2f} ms" \
                if options.against else ""
            print(f"{name}: {len(rows)} kernels, {1e3 * total:.2f} ms, "
                  f"{sum(row.least for row in rows) / total:.0%} of the roofline{peer}", flush=True)
            for row in sorted(rows, key=lambda row: -row.seconds):
                if options.all or is_slow(row, total):
                    print(_line(row), flush=True)
    if options.json:
        Path(options.json).write_text(json.dumps(
            {"commit": commit(), "kernels": [asdict(row) for row in found]}, indent=1))
    return int(any(row.reached < 1 / FACTOR for row in found))


def is_slow(row: Timed, total: float) -> bool:
    """Whether a kernel counts in its step, and reaches less than a quarter of its roofline."""
    return row.seconds >= _LEAST_PART * total and row.reached < 1 / FACTOR


def _line(row: Timed) -> str:
    return (f"  {row.kernel}: {1e6 * row.seconds:.0f} us, {row.reached:.0%} of "
            f"{1e6 * row.least:.0f} us; {row.operations / 1e6:.1f} M operations, "
            f"{row.bytes / 1e6:.2f} MB; {_some(row.steps)}\n    {row.label}")


def _some(steps: Sequence[str]) -> str:
    """The first of some steps, and how many more there are."""
    more = f" and {len(steps) - _SHOWN} more" if len(steps) > _SHOWN else ""
    return " ".join(steps[:_SHOWN]) + more if steps else "no steps"


# ---------------------------------------------------------------- plans

def step_of(name: str, backward: bool = True) -> list[Tensor]:
    """The loss of a network and the gradients of its parameters, which are in memory."""
    with Tensor.train():
        network: Network = ARCHITECTURES[name](as_torch)
        parameters = list(network.model.parameters())
        if parameters:
            Tensor.realize(*parameters)
        loss = network.loss()
        return [loss, *loss.gradient(*parameters)] if backward else [loss]


def planned(tensors: Sequence[Tensor]) -> list[UOp]:
    """The kernels that would compute some tensors, those in loops left out; nothing runs."""
    plan = realize.planned(realize.Request([tensor.uop for tensor in tensors])).plan
    return [kernel.ast for kernel in plan.kernels if kernel.task is None]


def scalar_work(ast: UOp, limits: DeviceLimits = PROCESSOR) -> tuple[int, int]:
    """Operations of a kernel that are done one element at a time, after the steps that rules
    choose, and all of them.
    """
    done, _ = hand_plan(starting_kernel(ast), limits)
    known, alone, total = Analysis(done), 0, 0
    for node in known.order:
        if node.op is Ops.REDUCE or node.op in ELEMENTWISE and node.dtype.kind == "f":
            mask = known.free[node] | (known.free[node.src[0]] if node.op is Ops.REDUCE else 0)
            loops = known.loops(mask)
            count = math.prod(map(loop_size, loops))
            total += count
            alone += count * (not any(loop.arg[1] in LANES for loop in loops))
    return alone, total


def without_lanes(ast: UOp, limits: DeviceLimits = PROCESSOR) -> bool:
    """Whether a kernel with substantial work does most of it one element at a time."""
    if estimate(ast).operations < SUBSTANTIAL or ast.arg.asked is not None:
        return False
    alone, total = scalar_work(ast, limits)
    return alone >= SUBSTANTIAL and 4 * alone > total


def _print_plans(names: Sequence[str], backward: bool) -> int:
    count = 0
    for name in names:
        with Context(DEVICE="CPU"):
            for ast in planned(step_of(name, backward)):
                if without_lanes(ast):
                    count += 1
                    steps = hand_steps(starting_kernel(ast), PROCESSOR)
                    print(f"{name}: {ast.arg.name}, {estimate(ast).operations} operations; "
                          f"{_some([step.name for step, _ in steps])}", flush=True)
    print(f"{count} kernels do most of their work one element at a time")
    return int(count > 0)


# ---------------------------------------------------------------- times

def timed(name: str, limits: Limits, backward: bool, seconds: float) -> list[Timed]:
    """The kernels of a network's step, each run as it stands in the plan and then again at once."""
    return [row for item in Tensor.schedule(*step_of(name, backward))
            for row in [_timed(name, item, limits, seconds)]]


def _timed(name: str, item: Any, limits: Limits, seconds: float) -> Timed:
    # What a kernel overwrites may be what it reads: values that shrink become slow to compute with.
    before = [(memory, memory.device.copy_out(memory, dtypes.uint8, memory.nbytes))
              for memory in map(ensure_memory, item.writes)]
    times = [item.run()]
    again = 0.0
    while again < seconds and len(times) < _MOST_RUNS:
        for memory, content in before:
            memory.device.copy_in(memory, content)
        times.append(item.run())
        again += times[-1]
    if item.program is None:
        return Timed(name, str(item.task), item.metadata["label"], min(times), 0.0, 0, 0, ())
    cost = item.program.cost(item.values)
    return Timed(name, item.program.name, item.metadata["label"], min(times),
                 least(item.ast, limits), cost.operations, cost.bytes,
                 tuple(item.program.steps))


def least(ast: UOp, limits: Limits) -> float:
    """Seconds that a processor needs at least for a kernel.

    A multiply-add is two operations at the peak; any other operation takes the place of one, and
    dear ones as many as they have instructions.
    """
    known, total = Analysis(ast), 0
    products = {node.src[0] for node in known.order
                if node.op is Ops.REDUCE and node.arg is Ops.ADD and node.src[0].op is Ops.MUL}
    for node in known.order:
        mask = known.free[node]
        if node.op is Ops.REDUCE:
            mask |= known.free[node.src[0]]
            weight = 1 if node.src[0] in products else 2
        elif node.op in ELEMENTWISE and node.dtype.kind == "f" and node.op is not Ops.CAST:
            weight = 1 if node in products else 2 * DEAR.get(node.op, 1)
        else:
            continue
        total += weight * math.prod(loop_size(loop) for loop in known.loops(mask))
    moved = estimate(ast).bytes
    written = sum(_written(known, store) for store in ast.src)
    return limits.seconds(Work(max(moved - written, 0), min(written, moved), total))


def _written(known: Analysis, store: UOp) -> int:
    if store.src[0].src[0].op is not Ops.PARAM:
        return 0
    loops = known.loops(known.free[store.src[0].src[1]])
    return store.src[0].dtype.itemsize * math.prod(map(loop_size, loops))


def _peer(name: str, backward: bool, seconds: float = 1.0) -> float:
    """The least time of PyTorch's step with one thread."""
    import torch
    torch.set_num_threads(1)
    network = ARCHITECTURES[name](torch)
    network.model.train()

    def step() -> None:
        loss = network.loss()
        if backward:
            torch.autograd.grad(loss, list(network.model.parameters()))
    return min(_times(step, seconds))


def _times(step: Any, seconds: float) -> Iterator[float]:
    ends = time.perf_counter() + seconds
    step()
    while True:
        start = time.perf_counter()
        step()
        yield time.perf_counter() - start
        if time.perf_counter() > ends:
            return
