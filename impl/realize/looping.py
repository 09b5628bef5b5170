"""Running a LOOP: its bodies are planned and compiled once, and launched in each iteration.
Chapter: spec/loops.md.
"""
from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from typing import NamedTuple
from weakref import WeakKeyDictionary

from impl import settings
from impl.device import Along, Device, DeviceBackend, Memory, Table
from impl.dtypes import dtypes
from impl.effects import Buffer
from impl.errors import ArgumentError
from impl.host import np
from impl.ir import Ops, UOp, toposort
from impl.loops import LoopInfo
from impl.loops import body as body_on
from impl.multi import Mesh, Sharding
from impl.places import Place, named
from impl.ranges import LoopTask
from impl.realize.environment import in_force
from impl.realize.invariant import Parted, parted
from impl.realize.launching import items_of
from impl.realize.layout import CallLayout
from impl.realize.planning import Request, bound, planned
from impl.realize.session import session


class Body:
    """A body that is ready to run: its kernels, and where what goes in and comes out stands.

    It holds memory only between `begin` and `end`.
    """

    def __init__(self, roots: Sequence[UOp], place: Place) -> None:
        self.place = place
        params = [node for node in toposort(roots) if node.op is Ops.PARAM]
        #: The bytes of what goes in, by slot.
        self.given = {param.arg[0]: _nbytes(param) for param in params}
        inputs = [self._buffer(param) for param in params]
        leaves = {param: buffer.leaf(param.shape or ())
                  for param, buffer in zip(params, inputs, strict=True)}
        roots, default = body_on(roots).substitute(leaves).src, in_force().default
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
        #: Its table, for so many iterations in a row, once it has been asked for.
        self.along: tuple[int, Along] | None = None
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

    def run(self, inputs: Mapping[int, Memory | None] | Sequence[Memory | None],
            results: Sequence[Memory]) -> None:
        """Run it: what goes in, by source, and where each root is stored."""
        given = [inputs[slot] for slot in self.given]
        self.segments.run([each for each in given if each is not None] + list(results))

    def run_along(self, rows: Mapping[int, _Places], carried: Mapping[int, _Places],
                  results: Sequence[_Places]) -> bool:
        """Run all iterations behind the first one, which has run; False if their kernels
        are not one table that the device can repeat.

        `carried` lies where the iteration before has left it. What else goes in lies where it lay.
        """
        # r[impl loops.iterations.call]
        table = self.segments.segments[0] if len(self.segments.segments) == 1 else None
        count = max((len(each.offsets) for each in results), default=0)
        most = min(count - 1, _TOGETHER)
        if most < 1 or not isinstance(table, Table):
            return False
        if self.along is None or self.along[0] < most:
            if (made := table.repeated(most)) is None:
                return False
            self.along = most, made
        most, together = self.along
        ways = {number: each.addresses()[1:]
                for number, each in enumerate(results, len(self.given))}
        for number, slot in enumerate(self.given):
            if slot in carried:
                ways[number] = carried[slot].addresses()
            elif slot in rows:
                ways[number] = rows[slot].addresses()[1:]
        for begin in range(0, count - 1, most):
            for number, memory in enumerate(self.segments.placed):
                for _, launch, argument in self.segments.places[number]:
                    if number in ways:
                        along = ways[number][begin:begin + most]
                        together.set_addresses(launch, argument, along)
                    elif begin == 0 and memory is not None:
                        together.set_addresses(launch, argument, memory.address)
            times = min(most, count - 1 - begin)
            together.run(times)
            table.note(times)
        return True


class _Places(NamedTuple):
    """Where something lies in each iteration: parts of one memory; in the last one elsewhere, if
    that is said.
    """

    memory: Memory
    offsets: np.ndarray
    nbytes: int
    last: Memory | None = None

    def at(self, turn: int) -> Memory:
        """The memory in an iteration."""
        if self.last is not None and turn == len(self.offsets) - 1:
            return self.last
        return self.memory.part(int(self.offsets[turn]), self.nbytes)

    def addresses(self) -> np.ndarray:
        """The addresses of all iterations."""
        found = self.offsets + self.memory.address
        if self.last is not None:
            found[-1] = self.last.address
        return found


#: How many iterations are laid out to be run in one call, at most.
_TOGETHER = 128


def run_loop(task: LoopTask, memories: Sequence[Memory]) -> None:
    """Run a LOOP on the memories of its kernel."""
    *sources, target = [memories[place] if place >= 0 else None for place in task.on]
    assert target is not None
    _Running(task.info, sources, target).run()


class Repeated:
    """A body of a loop that is ready to run: what is the same in every iteration, and the rest.

    `roots` are the results of an iteration. Of a scan some are what others are, and need no memory
    of their own: `begins` has for a carry the root that is stacked from what iterations begin with,
    and `ends` the one that is stacked from what they end with.
    """

    def __init__(self, loop: LoopInfo, number: int, place: Place, direct: Sequence[int]) -> None:
        graph, scan = loop.bodies[number], loop.kind == "scan"
        self.begins: dict[int, int] = {}
        self.ends: dict[int, int] = {}
        self._join(loop, direct)
        apart = {*self.begins.values(), *self.ends}
        self.roots = tuple(root for root in (_needed(loop) if scan else range(len(graph.src)))
                           if root not in apart)
        roots = [graph.src[root] for root in self.roots]
        changing = range(loop.carries + loop.sequences)
        parts = Parted((), (), roots) if loop.kind == "cond" else parted(roots, changing)
        self.first = Body(parts.first, place) if parts.first else None
        self.made = [_nbytes(root) for root in parts.first]
        self.slots, self.rest = parts.slots, Body(parts.rest, place)
        self.held: dict[int, Memory] = {}
        self.begun = False

    def _join(self, loop: LoopInfo, direct: Sequence[int]) -> None:
        """Find the roots that are what iterations begin or end with."""
        # r[impl loops.carry.stacked]
        for root in direct:
            node = loop.roots[root]
            if node.op is Ops.PARAM and node.arg[0] < loop.carries and _nbytes(node):
                self.begins.setdefault(node.arg[0], root)
        begun = set(self.begins.values())  # nobody stores these: no carry can lie there
        for root in direct:
            if root not in begun:
                carry = loop.roots.index(loop.roots[root])
                if carry < loop.carries and carry not in self.begins:
                    self.ends.setdefault(carry, root)

    def begin(self, device: DeviceBackend, sources: Sequence[Memory | None]) -> None:
        """Take memory for its temporaries, and compute what all iterations read."""
        self.begun = True
        if self.first is not None:
            made = [device.allocate(nbytes) for nbytes in self.made]
            self.first.begin()
            self.first.run(sources, made)
            self.first.end()
            self.held = dict(zip(self.slots, made, strict=True))
        self.rest.begin()

    def run(self, inputs: Sequence[Memory | None], results: Sequence[Memory]) -> None:
        """Run one iteration: what goes in, by source, and where each of its roots is stored."""
        self.rest.run({**dict(enumerate(inputs)), **self.held}, results)

    def end(self) -> None:
        """Let go of all memory."""
        self.held, self.begun = {}, False
        for body in (self.first, self.rest):
            if body is not None:
                body.end()


def _needed(loop: LoopInfo) -> list[int]:
    """The roots of a scan that are asked for, and the carries that these are made of."""
    needed, before = set(loop.outputs), -1
    while len(needed) > before:
        before = len(needed)
        needed |= {node.arg[0] for node in toposort([loop.roots[root] for root in needed])
                   if node.op is Ops.PARAM and node.arg[0] < loop.carries}
    return sorted(needed)


def _region(loop: LoopInfo, root: int, row: int = 0) -> tuple[int, int]:
    """Where an output, or a row of it, lies in a loop's value: first byte, and how many."""
    nbytes = _nbytes(loop.roots[root])
    start = loop.offsets[loop.outputs.index(root)] * loop.roots[root].dtype.itemsize
    return start + row * nbytes, nbytes


def _direct(alignment: int, start: int, nbytes: int) -> bool:
    """Whether a kernel may work on these bytes as they lie."""
    return start % alignment == 0 and nbytes % alignment == 0


def _nbytes(node: UOp) -> int:
    return math.prod(node.shape or ()) * node.dtype.itemsize


def body_of(loop: LoopInfo, number: int, place: Place) -> Repeated:
    """A body on a device, or on a mesh; made at its first use under these settings."""
    known = _bodies.setdefault(loop.bodies[number], {})
    direct = _stacked_directly(loop, Device[place].alignment) if loop.kind == "scan" else ()
    key = (loop.kind, loop.carries, loop.sequences, loop.outputs, direct, place,
           settings.plan_text())
    found = known.get(key)
    if found is None or found.begun:  # a nested run has memory of its own
        found = known[key] = Repeated(loop, number, place, direct)  # r[impl realize.nested.apart]
    return found


def _stacked_directly(loop: LoopInfo, alignment: int) -> tuple[int, ...]:
    """The roots whose rows kernels may store, and read, where they are stacked: with another
    number of iterations they can lie elsewhere.
    """
    return tuple([root for root in loop.outputs
                  if root >= loop.carries and _direct(alignment, *_region(loop, root))])


#: The bodies that are ready, each for as long as somebody has its graph: a LOOP, or a plan.
_bodies: WeakKeyDictionary[UOp, dict[Hashable, Repeated]] = WeakKeyDictionary()


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
        self.begun: list[Repeated] = []

    def run(self) -> None:
        """Run what the kind says."""
        try:
            {"scan": self._scan, "while": self._while, "cond": self._cond,
             "host": self._host}[self.loop.kind]()
        finally:
            for body in self.begun:
                body.end()

    def body(self, number: int) -> Repeated:
        """A body, with memory for its temporaries."""
        place = self.device.mesh if hasattr(self.device, "mesh") else Place(self.device.name)
        body = body_of(self.loop, number, place)
        self.begun.append(body)
        body.begin(self.device, self.sources)
        return body

    def _part(self, root: int, row: int = 0) -> Memory:
        """The memory of an output, or of a row of it, in the result."""
        return self.target.part(*_region(self.loop, root, row))

    def _fresh(self, root: int) -> Memory:
        return self.device.allocate(_nbytes(self.loop.roots[root]) or 1)

    def _copy_out(self, root: int, source: Memory, row: int = 0) -> None:
        start, nbytes = _region(self.loop, root, row)
        if nbytes:
            _copy(self.target.part(start, nbytes), source, nbytes)

    def _scan(self) -> None:
        loop, repeated = self.loop, self.body(0)
        carries, count, inputs = loop.carries, loop.count, list(self.sources)
        order = np.arange(count)[::-1] if loop.reverse else np.arange(count)
        rows, copies = self._rows(repeated, order)
        own = {root: self._fresh(root) for root in repeated.roots if root >= carries
               and not self._direct(root)}
        results = [_Places(own[root], np.zeros(count, np.int64), own[root].nbytes)
                   if root in own else self._results(root, repeated.begins.get(root), order)
                   for root in repeated.roots]
        place = {root: number for number, root in enumerate(repeated.roots)}
        place.update({carry: place[root] for carry, root in repeated.ends.items()})
        following = {carry: results[place[carry]] for carry in range(carries) if carry in place}
        for carry, root in repeated.begins.items():
            source = inputs[carry]
            assert source is not None
            self._copy_out(root, source, int(order[0]))
        for turn, row in enumerate(order.tolist()):
            if turn == 1 and not own and not copies \
                    and repeated.rest.run_along(rows, following, results):
                inputs[:carries] = [following[carry].at(count - 1) if carry in following else None
                                    for carry in range(carries)]
                break
            for slot, each in rows.items():
                there = inputs[slot] = each.at(turn)
                if slot in copies:
                    _copy(copies[slot], there, each.nbytes)
                    inputs[slot] = copies[slot]
            made = [each.at(turn) for each in results]
            repeated.run(inputs, made)
            for root, memory in own.items():
                self._copy_out(root, memory, row)
            for carry in following:
                inputs[carry] = made[place[carry]]
        for root in loop.outputs:
            if root < carries:
                source = inputs[root]
                assert source is not None
                self._copy_out(root, source)

    def _results(self, root: int, begins: int | None, order: np.ndarray) -> _Places:
        """Where a root lies in each iteration: what is stacked, where it belongs. A carry lies
        where that is stacked with which the next one begins, or in two places in turns.
        """
        stacked = root if root >= self.loop.carries else begins
        if stacked is not None:
            start, nbytes = _region(self.loop, stacked)
            if begins is None:
                return _Places(self.target, start + order * nbytes, nbytes)
            after = order + (-1 if self.loop.reverse else 1)
            return _Places(self.target, start + after * nbytes, nbytes, self._fresh(root))
        nbytes = _nbytes(self.loop.roots[root])
        apart = -(-nbytes // self.device.alignment) * self.device.alignment
        return _Places(self.device.allocate(2 * apart or 1), np.arange(len(order)) % 2 * apart,
                       nbytes)

    def _rows(self, repeated: Repeated, order: np.ndarray) -> tuple[dict[int, _Places],
                                                                    dict[int, Memory]]:
        """Of each sequence that the body reads: where its rows lie, and memory for a row, if they
        do not lie as a kernel needs them.
        """
        rows, copies = dict[int, _Places](), dict[int, Memory]()
        for slot, nbytes in repeated.rest.given.items():
            if 0 <= slot - self.loop.carries < self.loop.sequences \
                    and (source := self.sources[slot]) is not None:
                rows[slot] = _Places(source, order * nbytes, nbytes)
                if not _direct(self.device.alignment, 0, nbytes):
                    copies[slot] = self.device.allocate(nbytes or 1)
        return rows, copies

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

    def _asked(self, body: Repeated, inputs: Sequence[Memory | None], flag: Memory) -> bool:
        body.run(inputs, [flag])
        return _truth(flag)

    def _cond(self) -> None:
        loop, chosen = self.loop, self.sources[0]
        assert chosen is not None
        body = self.body(0 if _truth(chosen) else 1)
        made = []
        for root in range(len(loop.roots)):
            made.append(self._part(root) if self._direct(root) else self._fresh(root))
        body.run(self.sources, made)
        for root in loop.outputs:
            if not self._direct(root):
                self._copy_out(root, made[root])

    def _direct(self, root: int) -> bool:
        """Whether a kernel may store a root where it belongs."""
        return root in self.loop.outputs \
            and _direct(self.device.alignment, *_region(self.loop, root))

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
            start, nbytes = _region(self.loop, root)
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
