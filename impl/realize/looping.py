"""Running a LOOP: its bodies are planned and compiled once, and launched in each iteration.
Chapter: spec/loops.md.
"""
from __future__ import annotations

import math
from collections.abc import Sequence
from weakref import WeakKeyDictionary

import numpy as np

from impl import settings
from impl.device import Device, DeviceBackend, Memory
from impl.dtypes import dtypes
from impl.effects import Buffer
from impl.errors import ArgumentError
from impl.ir import Ops, UOp
from impl.loops import LoopInfo
from impl.multi import Mesh, Sharding
from impl.places import Place, named
from impl.ranges import LoopTask
from impl.realize.environment import in_force
from impl.realize.launching import items_of
from impl.realize.layout import CallLayout
from impl.realize.planning import Request, bound, planned
from impl.realize.session import session


class Body:
    """A body that is ready to run: its kernels, and where what goes in and comes out stands.

    It holds memory only between `begin` and `end`.
    """

    def __init__(self, graph: UOp, place: Place) -> None:
        self.place = place
        params = [node for node in graph.toposort() if node.op is Ops.PARAM]
        self.slots = [param.arg[0] for param in params]
        inputs = [self._buffer(param) for param in params]
        leaves = {param: buffer.leaf(param.shape or ())
                  for param, buffer in zip(params, inputs, strict=True)}
        roots, default = graph.substitute(leaves).src, in_force().default
        # Each root has memory of its own, also where two are one value, or it is what goes in.
        stored = [UOp(Ops.CONTIGUOUS, root.dtype, (named(root, place, default),), None, number)
                  for number, root in enumerate(roots)]
        run = bound(planned(Request(stored)))  # r[impl loops.body.once]
        plan = run.plan
        run.place_temporaries(own_arena=True)
        changing = [*inputs, *(run.buffers[number] for number in plan.places)]
        self.arenas: list[tuple[DeviceBackend, int, list[tuple[int, int, int]]]] = []
        for device, memory in plan.memories.items():
            parts = [(turn, offset, plan.storages[number].nbytes) for turn, (number, offset)
                     in enumerate(memory.offsets.items(), len(changing))]
            changing += map(run.buffers.__getitem__, memory.offsets)
            self.arenas.append((Device[device], memory.planned, parts))
        layout = CallLayout(changing)
        for item in items_of(run):
            layout.add(item)
        self.segments = layout.finished()
        for buffer in changing:
            buffer.memory = None
        self.end()

    def _buffer(self, param: UOp) -> Buffer:
        shape = param.shape or ()
        buffer = Buffer(self.place, param.dtype, math.prod(shape))
        if isinstance(self.place, Mesh):
            buffer.lie(shape, Sharding.copies(self.place, len(shape)))
        return buffer

    def begin(self) -> None:
        """Take memory for its temporaries."""
        for device, nbytes, parts in self.arenas:
            arena = device.allocate(nbytes)
            for number, offset, size in parts:
                self.segments.put(number, arena.part(offset, size))

    def end(self) -> None:
        """Let go of all memory: a plan in the cache has this body."""
        for number in range(len(self.segments.places)):
            self.segments.forget(number)  # r[impl schedule.plan.slots]

    def run(self, inputs: Sequence[Memory | None], results: Sequence[Memory]) -> None:
        """Run it: what goes in, by source, and where each root is stored."""
        given = [inputs[slot] for slot in self.slots]
        self.segments.run([each for each in given if each is not None] + list(results))


def run_loop(task: LoopTask, memories: Sequence[Memory]) -> None:
    """Run a LOOP on the memories of its kernel."""
    *sources, target = [memories[place] if place >= 0 else None for place in task.on]
    assert target is not None
    _Running(task.info, sources, target).run()


def body_of(loop: LoopInfo, number: int, place: Place) -> Body:
    """A body on a device, or on a mesh; made at its first use under these settings."""
    known, key = _bodies.setdefault(loop.bodies[number], {}), (place, settings.plan_text())
    found = known.get(key)
    if found is None:
        found = known[key] = Body(loop.bodies[number], place)
    return found


#: The bodies that are ready, each for as long as somebody has its graph: a LOOP, or a plan.
_bodies: WeakKeyDictionary[UOp, dict[tuple[Place, str], Body]] = WeakKeyDictionary()


def prepare_loop(loop: LoopInfo, place: Place) -> None:
    """Plan and compile all bodies of a LOOP, those of a choice too."""
    if loop.kind != "host":
        for number in range(len(loop.bodies)):
            body_of(loop, number, place)


session.run_loop, session.prepare_loop = run_loop, prepare_loop


class _Running:
    """One run of a LOOP: memory for the carries, and for what nobody asked for."""

    def __init__(self, loop: LoopInfo, sources: Sequence[Memory | None], target: Memory) -> None:
        self.loop, self.sources, self.target = loop, sources, target
        self.device: DeviceBackend = target.device
        self.begun: list[Body] = []
        self.item = loop.roots[loop.outputs[0]].dtype.itemsize

    def run(self) -> None:
        """Run what the kind says."""
        try:
            {"scan": self._scan, "while": self._while, "cond": self._cond,
             "host": self._host}[self.loop.kind]()
        finally:
            for body in self.begun:
                body.end()

    def body(self, number: int) -> Body:
        """A body, with memory for its temporaries."""
        place = self.device.mesh if hasattr(self.device, "mesh") else Place(self.device.name)
        body = body_of(self.loop, number, place)
        self.begun.append(body)
        body.begin()
        return body

    def _region(self, root: int, row: int = 0) -> tuple[int, int]:
        """Where an output, or a row of it, lies in the result: first byte, and how many."""
        nbytes = math.prod(self.loop.roots[root].shape or ()) * self.item
        start = self.loop.offsets[self.loop.outputs.index(root)] * self.item
        return start + row * nbytes, nbytes

    def _fresh(self, root: int) -> Memory:
        node = self.loop.roots[root]
        return self.device.allocate(math.prod(node.shape or ()) * node.dtype.itemsize or 1)

    def _direct(self, start: int, nbytes: int) -> bool:
        """Whether a kernel may work on these bytes as they lie."""
        return start % self.device.alignment == 0 and nbytes % self.device.alignment == 0

    def _copy_out(self, root: int, source: Memory, row: int = 0) -> None:
        start, nbytes = self._region(root, row)
        if nbytes:
            _copy(self.target.part(start, nbytes), source, nbytes)

    def _scan(self) -> None:
        loop, body = self.loop, self.body(0)
        carries, count = loop.carries, loop.count
        rows = self._rows(body)
        turns = [[self._fresh(root) for root in range(carries)] for _ in range(2)]
        stacked = range(carries, len(loop.roots))
        places = {root: None if root in loop.outputs and self._direct(*self._region(root))
                  else self._fresh(root) for root in stacked}
        inputs = list(self.sources)
        for turn, row in enumerate(reversed(range(count)) if loop.reverse else range(count)):
            for slot, (nbytes, own) in rows.items():
                source = self.sources[slot]
                assert source is not None
                there = inputs[slot] = source.part(row * nbytes, nbytes)
                if own is not None:
                    _copy(own, there, nbytes)
                    inputs[slot] = own
            following = turns[turn % 2]
            results = [*following, *(self.target.part(*self._region(root, row))
                                     if (own := places[root]) is None else own for root in stacked)]
            body.run(inputs, results)
            for root in stacked:
                own = places[root]
                if own is not None and root in loop.outputs:
                    self._copy_out(root, own, row)
            inputs[:carries] = following
        for root in range(carries):
            if root in loop.outputs:
                source = inputs[root]
                assert source is not None
                self._copy_out(root, source)

    def _rows(self, body: Body) -> dict[int, tuple[int, Memory | None]]:
        """Of each sequence that the body reads: the bytes of a row, and memory for a row that does
        not lie as a kernel needs it.
        """
        loop, found = self.loop, dict[int, tuple[int, Memory | None]]()
        for node in loop.bodies[0].toposort():
            if node.op is Ops.PARAM and 0 <= node.arg[0] - loop.carries < loop.sequences:
                nbytes = math.prod(node.shape or ()) * node.dtype.itemsize
                if self.sources[node.arg[0]] is not None:
                    own = None if self._direct(0, nbytes) else self.device.allocate(nbytes or 1)
                    found[node.arg[0]] = nbytes, own
        return found

    def _while(self) -> None:
        loop, asks, goes = self.loop, self.body(0), self.body(1)
        inputs = list(self.sources)
        flag = self.device.allocate(1)
        turns = [[self._fresh(root) for root in range(loop.carries)] for _ in range(2)]
        turn = 0
        while self._asked(asks, inputs, flag):
            following = turns[turn % 2]
            goes.run(inputs, following)
            inputs[:loop.carries] = following
            turn += 1
        for root in loop.outputs:
            source = inputs[root]
            assert source is not None
            self._copy_out(root, source)

    def _asked(self, body: Body, inputs: Sequence[Memory | None], flag: Memory) -> bool:
        body.run(inputs, [flag])
        return _truth(flag)

    def _cond(self) -> None:
        loop, chosen = self.loop, self.sources[0]
        assert chosen is not None
        body = self.body(0 if _truth(chosen) else 1)
        made = []
        for root in range(len(loop.roots)):
            direct = root in loop.outputs and self._direct(*self._region(root))
            made.append(self.target.part(*self._region(root)) if direct else self._fresh(root))
        body.run(self.sources, made)
        for root in loop.outputs:
            if not self._direct(*self._region(root)):
                self._copy_out(root, made[root])


    def _host(self) -> None:
        name, function, *settings = self.loop.call
        arrays = [_array(source, like) for source, like in zip(
            self.sources, self.loop.bodies[0].src, strict=True)]
        try:
            found = function(*arrays, *settings)
        except np.linalg.LinAlgError as error:  # r[impl tensor.linalg.host+3]
            shapes = ", ".join(str(array.shape) for array in arrays)
            raise ArgumentError(name, f"of {shapes}: {error}", "look at the matrix: .pinverse() "
                                "and .lstsq() take any") from error
        for root in self.loop.outputs:
            array = np.asarray(found[root], self.loop.roots[root].dtype.numpy)
            start, nbytes = self._region(root)
            for target in self.target.members:
                if nbytes:
                    target.device.copy_in(target.part(start, nbytes), array)


def _array(memory: Memory | None, like: UOp) -> np.ndarray:
    """The elements of a source, in the form of its PARAM; floats in float64."""
    shape = like.shape or ()
    if memory is None:  # it has none
        return np.zeros(shape, like.dtype.numpy)
    one = memory.members[0]
    found = one.device.copy_out(one, like.dtype, math.prod(shape)).reshape(shape)
    return found.astype(np.float64) if like.dtype.kind == "f" else found


def _copy(target: Memory, source: Memory, nbytes: int) -> None:
    """Copy bytes on a device, or on each of a mesh."""
    for there, here in zip(target.members, source.members, strict=True):
        there.device.copy(there, here, nbytes)


def _truth(memory: Memory) -> bool:
    """What a bool in memory is; of a mesh all devices have the same."""
    one = memory.members[0]
    return bool(np.asarray(one.device.copy_out(one, dtypes.bool, 1))[0])
