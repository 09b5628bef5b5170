#!/usr/bin/env python3
"""A lazy implementation in one page of scheduling: `python naive.py` speaks JSON lines.

Each statement becomes a kernel; kernels wait until a value is asked for and then run in an
order that their reads and writes permit.  Every expression has a buffer of its own, a store
makes a new version of its target's buffer.  There are two devices, which are only names: a copy
whose result lies elsewhere is the one kernel that may touch buffers of both.  A mesh is a name,
too: a value on it is kept whole, and cut when somebody asks what a device has.
"""

from __future__ import annotations

import json
import sys
import traceback
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import product
from math import prod
from random import Random
from typing import Any

from interpreter import STATEMENTS, Tensor, encode, evaluate, region

ALIGNMENT = 64
DEVICES = ["CPU", "CPU:1"]
MESHES = ["CPU", "CPU:1", "CPU:2", "CPU:3", "CPU:4", "CPU:5"]
EFFECTS = ["assign", "store", "realize", "drop", "observe", "shards", "repeat", "calls"]
SHARDS = ["shard", "shard_like"]


@dataclass(eq=False)
class Buffer:
    """Memory of a device or a mesh, and how many versions of its content were asked for."""

    device: str
    lies: dict[str, Any] = field(default_factory=dict)  # on a mesh: devices, axes, cut
    value: Any = None  # a Tensor, once it is computed
    version: int = 0
    alive: bool = True


@dataclass(eq=False)
class Kernel:
    """A statement that waits, with what it reads and what it writes."""

    statement: dict[str, Any]
    reads: list[tuple[Buffer, int]]
    target: Buffer
    version: int
    dependencies: list[tuple[Kernel, str, Buffer, int]] = field(default_factory=list)

    def run(self) -> None:
        values = [buffer.value for buffer, _ in self.reads]
        if self.statement["do"] in SHARDS:
            self.target.value = values[0]
            return
        if self.statement["do"] not in ("assign", "store"):
            self.target.value = evaluate(self.statement, values)
            return
        old, new = self.target.value, values[0]
        items = list(old.items)
        shape, places = region(self.statement.get("view", ()), old.shape)
        if new.shape != shape:
            raise ValueError(f"a value of shape {new.shape} does not fit {shape}")
        for place, item in zip(places, new.items, strict=True):
            items[place] = item
        self.target.value = Tensor(old.dtype, old.shape, items)


class Run:
    """One run of a program."""

    def __init__(self, cache: set[str], options: dict[str, Any]) -> None:
        self.variables: dict[str, Buffer] = {}
        self.waiting: list[Kernel] = []
        self.values: list[dict[str, Any]] = []
        self.laid: list[dict[str, Any]] = []
        self.documents: list[dict[str, Any]] = []
        self.orders: list[list[int]] = []
        self.cache, self.options = cache, options

    def execute(self, statements: list[dict[str, Any]]) -> None:
        for statement in statements:
            do = statement["do"]
            if do == "repeat":
                for _ in range(statement["count"]):
                    self.execute(statement["statements"])
            elif do == "calls":
                for given in statement["given"]:
                    self.execute([called(each, given) for each in statement["statements"]])
            elif do == "shards":
                self.realize()
                self.laid += [laid(name, self.variables[name]) for name in statement["names"]]
            elif do in ("realize", "observe"):
                self.realize()
                for name in statement["names"] if do == "observe" else ():
                    value = self.variables[name].value
                    self.values.append({"name": name, "dtype": value.dtype, "data": encode(value),
                                        "shape": list(value.shape)})
            elif do == "drop":
                for name in statement["names"]:
                    self.variables.pop(name).alive = False
            else:
                self.delay(statement)

    def delay(self, statement: dict[str, Any]) -> None:
        """Make a kernel of a statement and note what it must wait for."""
        reads = [(self.variables[name], self.variables[name].version)
                 for name in statement.get("from", ())]
        if "to" in statement:
            if statement["to"] in self.variables:
                self.variables[statement["to"]].alive = False
            self.variables[statement["to"]] = target = Buffer(*lies_on(statement, reads))
        else:
            target = self.variables[statement["target"]]
            # A value that lies in its own target is copied first.
            if any(buffer is target for buffer, _ in reads):
                copy = Buffer(target.device, target.lies, alive=False)
                copy.version = 1
                self.waiting.append(self.linked(Kernel({"do": "copy"}, reads, copy, 1)))
                reads = [(copy, 1)]
        target.version += 1
        self.waiting.append(self.linked(Kernel(statement, reads, target, target.version)))

    def linked(self, kernel: Kernel) -> Kernel:
        """Read after write, write after read, write after write."""
        for other in self.waiting:
            for buffer, _ in kernel.reads:
                if other.target is buffer:
                    kernel.dependencies.append((other, "RAW", buffer, other.version))
            for buffer, _ in other.reads:
                if buffer is kernel.target:
                    kernel.dependencies.append((other, "WAR", buffer, kernel.version))
            if other.target is kernel.target:
                kernel.dependencies.append((other, "WAW", kernel.target, kernel.version))
        return kernel

    def realize(self) -> None:
        """Run all that waits and write down how."""
        if not self.waiting:
            return
        sources = [k for k in self.waiting if k.statement["do"] == "input"]
        kernels = [k for k in self.waiting if k.statement["do"] != "input"]
        self.waiting = []
        for kernel in sources:  # inputs are there before any kernel runs
            kernel.run()
            kernel.target.version = max(1, kernel.target.version)
        number = {kernel: index for index, kernel in enumerate(kernels)}
        planned = ordered(kernels, number, None)
        order = ordered(kernels, number, self.options.get("order_seed"))
        for kernel in order:
            kernel.run()
        if kernels:
            settings = self.options.get("settings", {})
            document = describe(kernels, number, planned)
            document["memory"] = plan(document, not settings.get("NO_MEMORY_PLANNER"))
            key = sha256(json.dumps([skeleton(document, kernels), settings],
                                    sort_keys=True).encode()).hexdigest()
            document["cache"] = {"hit": key in self.cache, "key": key}
            self.cache.add(key)
            self.documents.append(document)
            self.orders.append([number[kernel] for kernel in order])


def lies_on(statement: dict[str, Any], reads: list[tuple[Buffer, int]],
            ) -> tuple[str, dict[str, Any]]:
    """The device of what a statement makes: the one that it names, or that of its operands.

    What is computed on a mesh has copies everywhere.

    Raises:
        ValueError: a mesh is none, or has not the axes that are to cut a value.
    """
    if statement["do"] == "shard":
        lies = {key: statement[key] for key in ("devices", "axes", "cut")}
        names, sizes = zip(*lies["axes"], strict=True)
        if len(set(lies["devices"])) != len(lies["devices"]) or set(lies["cut"]) - set(names) \
                or prod(sizes) != len(lies["devices"]):
            raise ValueError(f"there is no such mesh: {lies}")
        return mesh_name(lies), lies
    if "device" in statement:
        return DEVICES[statement["device"] % len(DEVICES)], {}
    if statement["do"] == "shard_like":
        return reads[1][0].device, reads[1][0].lies
    if not reads:
        return DEVICES[0], {}
    lies = reads[0][0].lies
    return reads[0][0].device, lies and {**lies, "cut": {}}


def mesh_name(lies: dict[str, Any]) -> str:
    """A mesh as a device."""
    axes = ", ".join(f"{name}={size}" for name, size in lies["axes"])
    return f"mesh of {', '.join(MESHES[each] for each in lies['devices'])}; {axes}"


def laid(name: str, buffer: Buffer) -> dict[str, Any]:
    """How a value lies on its mesh, and what each device has of it."""
    value, lies, shards = buffer.value, buffer.lies, []
    for place in product(*(range(size) for _, size in lies["axes"])):
        bounds = []
        for axis, size in enumerate(value.shape):
            number, count = 0, 1
            for (mesh_axis, extent), coordinate in zip(lies["axes"], place, strict=True):
                if lies["cut"].get(mesh_axis) == axis:
                    number, count = number * extent + coordinate, count * extent
            width = -(-size // count)
            bounds.append([min(number * width, size), min((number + 1) * width, size)])
        part = evaluate({"do": "shrink", "bounds": bounds}, [value])
        shards.append({"name": name, "dtype": part.dtype, "shape": list(part.shape),
                       "data": encode(part)})
    return {"name": name, **lies, "shards": shards}


def called(statement: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """A statement of a function with the arguments of a call in it."""
    changed = dict(statement)
    for key in changed.keys() & {"from", "names"}:
        changed[key] = [given.get(name, name) for name in changed[key]]
    if isinstance(changed.get("value"), dict):
        changed["value"] = given[changed["value"]["given"]]
    return changed


def ordered(kernels: list[Kernel], number: dict[Kernel, int], seed: int | None) -> list[Kernel]:
    """A legal order: the first kernel that is ready, or a random one of those."""
    random, done = Random(seed), set()
    order: list[Kernel] = []
    while len(order) < len(kernels):
        ready = [kernel for kernel in kernels if kernel not in done and all(
            other in done or other not in number for other, *_ in kernel.dependencies)]
        chosen = ready[0] if seed is None else random.choice(ready)
        done.add(chosen)
        order.append(chosen)
    return order


# The document ------------------------------------------------------------------------------


def versions_before(kernels: list[Kernel]) -> dict[Buffer, int]:
    """What each buffer holds before the schedule: versions count from there."""
    first = {buffer: version for kernel in kernels for buffer, version in kernel.reads}
    for target in {kernel.target for kernel in kernels}:
        first[target] = min(each.version for each in kernels if each.target is target) - 1
    return first


def describe(kernels: list[Kernel], number: dict[Kernel, int],
             order: list[Kernel]) -> dict[str, Any]:
    """The schedule document of these kernels."""
    buffers: dict[Buffer, int] = {}
    for kernel in kernels:
        for buffer in [*(buffer for buffer, _ in kernel.reads), kernel.target]:
            buffers.setdefault(buffer, len(buffers))
    base = versions_before(kernels)
    made = {kernel.target for kernel in kernels if base[kernel.target] == 0}
    kinds = {buffer: "input" if not any(k.target is buffer for k in kernels)
             else "state" if buffer not in made else "output" if buffer.alive else "temporary"
             for buffer in buffers}

    def access(buffer: Buffer, version: int) -> dict[str, int]:
        return {"buffer": buffers[buffer], "version": version - base[buffer], "start": 0,
                "stop": buffer.value.nbytes}

    def steps(kernel: Kernel) -> list[dict[str, Any]]:
        return [{"before": number[other], "after": number[kernel], "kind": kind,
                 "buffer": buffers[buffer], "version": version - base[buffer]}
                for other, kind, buffer, version in kernel.dependencies
                if other in number and buffer.value.nbytes]

    dependencies = [step for kernel in kernels for step in steps(kernel)]
    document = {
        "format": "tensor-schedule/1", "implementation": "naive",
        "buffers": [{"id": index, "name": f"b{index}", "kind": kinds[buffer],
                     "dtype": buffer.value.dtype, "shape": list(buffer.value.shape),
                     "bytes": buffer.value.nbytes, "device": buffer.device}
                    for buffer, index in buffers.items()],
        "kernels": [{"id": number[kernel], "name": kernel.statement["do"],
                     "kind": "copy" if kernel.statement["do"] in ("copy", *SHARDS) else "kernel",
                     "device": kernel.target.device,
                     "reads": [access(*read) for read in kernel.reads],
                     "writes": [access(kernel.target, kernel.version)]} for kernel in kernels],
        "dependencies": dependencies, "order": [number[kernel] for kernel in order],
        "boundaries": [{"before": step["before"], "after": step["after"],
                        "buffer": step["buffer"], "reason": "each statement is a kernel"}
                       for step in dependencies if step["kind"] == "RAW"],
        "fusions": [], "outputs": [index for buffer, index in buffers.items()
                                   if kinds[buffer] == "output"]}
    return document


def plan(document: dict[str, Any], reuse: bool) -> dict[str, Any]:
    """First fit: each temporary at the lowest offset that is free during its life.

    Each device has an arena of its own.
    """
    life: dict[int, list[int]] = {}
    for step, kernel in enumerate(document["order"]):
        for each in document["kernels"][kernel]["reads"] + document["kernels"][kernel]["writes"]:
            life.setdefault(each["buffer"], []).append(step)
    total: dict[str, Any] = {"alignment": ALIGNMENT, "arenas": [], "placements": [],
                             "planned": 0, "unplanned": 0, "lower_bound": 0}
    for arena, device in enumerate(dict.fromkeys(b["device"] for b in document["buffers"])):
        sizes = {each["id"]: -(-each["bytes"] // ALIGNMENT) * ALIGNMENT
                 for each in document["buffers"]
                 if each["kind"] == "temporary" and each["bytes"] and each["device"] == device}
        places = placed(sizes, life, arena, reuse)
        planned = max((p["offset"] + p["bytes"] for p in places), default=0)
        total["arenas"].append({"id": arena, "device": device, "bytes": planned})
        total["placements"] += places
        total["planned"] += planned
        total["unplanned"] += sum(sizes.values())
        total["lower_bound"] += max(
            (sum(p["bytes"] for p in places if p["first"] <= step <= p["last"])
             for step in range(len(document["order"]))), default=0)
    return total


def placed(sizes: dict[int, int], life: dict[int, list[int]], arena: int,
           reuse: bool) -> list[dict[str, Any]]:
    """The places of the temporaries of one arena, of these sizes."""
    places: list[dict[str, Any]] = []
    for buffer, size in sizes.items():
        first, last = min(life[buffer]), max(life[buffer])
        busy = sorted((p["offset"], p["bytes"]) for p in places
                      if not reuse or p["first"] <= last and first <= p["last"])
        offset = 0
        for start, length in busy:
            if offset + size <= start:
                break
            offset = max(offset, start + length)
        places.append({"buffer": buffer, "arena": arena, "offset": offset, "bytes": size,
                       "first": first, "last": last, "in_place_of": None})
    return places


def skeleton(document: dict[str, Any], kernels: list[Kernel]) -> list[Any]:
    """What decides a plan: the statements without their names, the buffers without addresses."""
    statements = [{key: value for key, value in kernel.statement.items()
                   if key not in ("to", "from", "target")} for kernel in kernels]
    return [statements, document]


# The protocol ------------------------------------------------------------------------------


def answer(message: dict[str, Any], cache: set[str]) -> dict[str, Any]:
    if message["type"] == "start":
        return {"type": "started", "info": {
            "name": "naive", "version": "1", "language": "Python without NumPy",
            "observes": ["values", "schedule", "order", "memory", "cache", "replay", "multi",
                         "errors", "sharded"],
            "devices": DEVICES, "meshes": MESHES,
            "statements": STATEMENTS + EFFECTS + SHARDS, "settings": ["NO_MEMORY_PLANNER"]}}
    if message["type"] == "reset":
        cache.clear()
        return {"type": "ok", "seq": message["seq"], "observation": {"values": []}}
    try:
        run = Run(cache, message.get("options", {}))
        run.execute(message["program"]["statements"])
        return {"type": "ok", "seq": message["seq"], "observation": {
            "values": run.values, "schedule": run.documents, "order": run.orders,
            "laid": run.laid}}
    except Exception as error:
        return {"type": "error", "seq": message["seq"], "message": repr(error),
                "traceback": traceback.format_exc()}


def main() -> None:
    cache: set[str] = set()
    for line in sys.stdin:
        message = json.loads(line)
        if message["type"] == "stop":
            break
        print(json.dumps(answer(message, cache)), flush=True)


if __name__ == "__main__":
    main()
