"""`python -m conformance.bench devices`: what planning a data-parallel step costs on meshes.

All meshes are planned in turns, and nothing runs: the devices are of the reference. The seconds are
those of the processor, so that other programs change them less. The calls of functions are counted,
too, in one more plan of each: nothing changes them but the code.
"""
from __future__ import annotations

import gc
import os
import statistics
import time
from argparse import ArgumentParser, Namespace
from contextlib import nullcontext
from cProfile import Profile
from pstats import Stats

from impl import Context, Mesh, Tensor, nn


def add_arguments(parser: ArgumentParser) -> None:
    """The options."""
    parser.add_argument("--devices", default="1,8,64", help="sizes of meshes, with commas")
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--repeats", type=int, default=15)


def main(options: Namespace) -> int:
    """Measure in turns, and print a line for each mesh."""
    counts = [int(count) for count in options.devices.split(",")]
    times: dict[int, list[float]] = {count: [] for count in counts}
    kernels: dict[int, int] = {}
    for _ in range(options.repeats):
        for count in counts:
            seconds, kernels[count] = planned(count, options.layers)
            times[count].append(seconds)
    medians = {count: statistics.median(found) for count, found in times.items()}
    calls = {count: calls_of(count, options.layers) for count in counts}
    print(f"load {os.getloadavg()[0]:.1f}, {options.repeats} times each, in turns")
    for count in counts:
        low, high = min(times[count]), max(times[count])
        print(f"{count:>3} devices: {1e3 * medians[count]:7.1f} ms ({1e3 * low:.1f} to "
              f"{1e3 * high:.1f}), {kernels[count]} kernels and copies, "
              f"{medians[count] / medians[counts[0]]:.2f} times {counts[0]}; "
              f"{calls[count]} calls, {calls[count] / calls[counts[0]]:.2f} times")
    return 0


def calls_of(count: int, layers: int) -> int:
    """How many functions are called for the plan of `planned`."""
    profile = Profile()
    planned(count, layers, profile)
    calls: int = Stats(profile).total_calls  # type: ignore[attr-defined]
    return calls


def planned(count: int, layers: int, profile: Profile | None = None) -> tuple[float, int]:
    """Seconds for planning a step of some layers on a mesh, and how many kernels it has."""
    gc.collect()  # the tensors of the step before would be looked at
    with Context(DEVICE="REFERENCE", SCACHE=0):
        model = [nn.Linear(64, 64) for _ in range(layers)]
        parameters = [p for layer in model for p in nn.state.get_parameters(layer)]
        hidden = Tensor.empty(64 * 4, 64)
        if count > 1:
            mesh = Mesh([f"REFERENCE:{i}" for i in range(count)])
            hidden = hidden.shard(mesh, 0)
            for parameter in parameters:
                parameter.shard_(mesh)
        hidden.realize(*parameters)
        optimizer = nn.optim.Adam(parameters)
        with Tensor.train():
            for layer in model:
                hidden = layer(hidden).relu()
            loss = hidden.square().mean()
            loss.backward()
            tensors = [loss, *optimizer.schedule_step()]
        start = time.process_time()
        with profile or nullcontext():
            document = Tensor.schedule_document(*tensors)
        return time.process_time() - start, len(document["kernels"])
