"""What a call is once Python is gone: ports, memory, and kernels in order. Chapter: spec/export.md.

Nothing is decided here. Which kernels there are, and in which order, says the plan of the schedule;
where temporaries lie, the planner of memory.
"""
from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from impl import memory, symbolic
from impl.dtypes import DType, dtypes
from impl.effects import Buffer
from impl.errors import ExportError
from impl.export import names
from impl.host import np
from impl.ir import UOp
from impl.memory import Lifetime
from impl.replay.once import Observation
from impl.replay.recording import Captured
from impl.schedule import Plan, PlannedKernel, document
from impl.symbolic import plain
from impl.tensor.random import generator


class Spot(NamedTuple):
    """Where something lies: in the `input`, `output` or `state` of a number, or in the `arena` at a
    byte.
    """

    kind: str
    number: int


@dataclass(frozen=True)
class Port:
    """An input, an output or a state. `nbytes` is the most that it can have."""

    name: str
    dtype: DType
    shape: tuple[Any, ...]
    nbytes: int

    @property
    def size(self) -> int:
        """How many elements it has at most."""
        return self.nbytes // self.dtype.itemsize


@dataclass(frozen=True)
class RuntimeInteger:
    """An integer that a call is given, and its bounds."""

    name: str
    least: int
    greatest: int
    node: UOp


@dataclass(frozen=True)
class KernelCall:
    """One run of a kernel, which writes those of its spots that `writes` names. Its values are each
    ("variable", its place), ("number", itself), ("counter", how far from the counter of random
    numbers) or ("key", 0).
    """

    ast: UOp
    spots: tuple[Spot, ...]
    nbytes: tuple[int, ...]  # that each of them has at most
    writes: tuple[int, ...]  # places among the spots
    values: tuple[tuple[str, int], ...]


@dataclass
class Artefact:
    """A function as plain data. `copies` are done after all `calls`, from spot to spot, so many
    bytes; `conditions` say what has to hold of the variables, and how it came out in the capture.
    `random` is the state with the counter and the key of random numbers, of which a call uses
    `random_used`.
    """

    name: str
    inputs: list[Port] = field(default_factory=list)
    variables: list[RuntimeInteger] = field(default_factory=list)
    states: list[Port] = field(default_factory=list)
    contents: list[np.ndarray] = field(default_factory=list)
    outputs: list[Port] = field(default_factory=list)
    calls: list[KernelCall] = field(default_factory=list)
    copies: list[tuple[Spot, Spot, int]] = field(default_factory=list)
    conditions: list[tuple[UOp, bool]] = field(default_factory=list)
    arena: int = 0
    random: Spot | None = None
    random_used: int = 0
    documents: list[dict[str, Any]] = field(default_factory=list)


    def described(self) -> dict[str, Any]:
        """The artefact as plain data, with the documents of its schedules."""
        # r[impl export.document.whole]
        def rows(ports: list[Port]) -> list[dict[str, Any]]:
            return [{"name": p.name, "dtype": p.dtype.name, "bytes": p.nbytes,
                     "shape": [symbolic.text(s.expression) if symbolic.is_symbolic(s) else s
                               for s in p.shape]} for p in ports]

        return {
            "format": "tensor-schedule-export/1", "name": self.name,
            "inputs": rows(self.inputs), "outputs": rows(self.outputs),
            "states": rows(self.states), "arena": self.arena,
            "integers": [{"name": v.name, "least": v.least, "greatest": v.greatest}
                         for v in self.variables],
            "conditions": [f"{symbolic.text(c)} is {outcome}" for c, outcome in self.conditions],
            "calls": [{"kernel": call.ast.arg.name, "memory": call.spots, "writes": call.writes,
                       "values": call.values} for call in self.calls],
            "copies": [{"source": source, "target": target, "bytes": nbytes}
                       for source, target, nbytes in self.copies],
            "schedules": self.documents}


class _Value(NamedTuple):
    """What the kernels make and nobody has a place for yet."""

    number: int


_Where = Spot | _Value


class _Call(NamedTuple):
    """A call of a kernel before its values have places."""

    ast: UOp
    touched: list[_Where]
    writes: tuple[int, ...]
    values: list[tuple[str, int]]


#: What follows the arguments of a call, and what each value of a kernel follows.
_RANDOM, _KEY = "random#", "random-key#"


class ArtefactLayout:
    """Gives everything that the kernels of a call touch a place.

    Args:
        alignment: at multiples of how many bytes each temporary begins.

    Raises:
        ExportError: the call does something that cannot be done without Python.
    """

    def __init__(self, name: str, function: Any, given: Any, found: Observation,
                 alignment: int) -> None:
        assert found.captured is not None
        self.captured: Captured = found.captured
        self.function, self.given, self.found = function, given, found
        self.alignment = alignment
        self.artefact = Artefact(name)
        self.where: dict[Buffer, _Where] = {}        # of what stands in a buffer now
        self.state_of: dict[Buffer, Spot] = {}       # of the buffers that states had
        self.values: list[list[int]] = []            # bytes, first step, last step
        self.calls: list[_Call] = []

    def run(self) -> Artefact:
        """The artefact."""
        self._add_inputs()
        self._add_states()
        for run, plan in zip(self.captured.runs, self.found.planned, strict=True):
            self._add_run(run, plan)
        self._place()
        made = self.artefact
        made.conditions = [*self.captured.comparisons.items()]
        made.random_used = self.found.random_used
        if made.random_used or any(what == "key" for call in made.calls for what, _ in call.values):
            # r[impl export.random.kept]: where the numbers go on is a state like others
            assert generator.key is not None
            now = np.array([self.captured.random_start, generator.key.src[1].arg], np.int32)
            made.random = Spot("state", len(made.states))
            name = names.unique_name("random", [state.name for state in made.states])
            made.states.append(Port(name, dtypes.int32, (2,), now.nbytes))
            made.contents.append(now)
        return made

    def _add_inputs(self) -> None:
        """The arguments: tensors, and integers."""
        arguments = self.captured.arguments
        paths = [*arguments.leaves][::-1]  # parts are found last to first
        called = names.of_arguments(self.function, paths)
        for path in paths:
            leaf = arguments.leaves[path]
            buffer = leaf.arg[0]
            if buffer in self.where:  # r[impl export.refused.named]
                raise ExportError(self.artefact.name, f"argument {called[path]} is a tensor that "
                                  "is also another argument", "pass a copy (.clone())")
            self.where[buffer] = Spot("input", len(self.artefact.inputs))
            self.artefact.inputs.append(_port(called[path], buffer, leaf.arg[2]))
        taken = [*called.values()]
        for bind in dict.fromkeys([*arguments.variables.values()][::-1]):
            variable, least, greatest = bind.src[0].arg
            taken.append(names.unique_name(variable, taken))
            self.artefact.variables.append(RuntimeInteger(taken[-1], least, greatest, bind))

    def _add_states(self) -> None:
        """What is read or given a new value besides the arguments."""
        captured, found = self.captured, self.found
        called = names.of_states(self.function, self.given)
        whose: dict[Buffer, tuple[str, UOp]] = {}
        for nodes, suffix in ((found.held, ""), (found.gradients, ".grad")):
            for holder, node in nodes.items():
                if holder in called or node.arg[0] not in whose:
                    whose[node.arg[0]] = called.get(holder, "") + suffix, node
        states = [b for b, source in captured.sources.items() if source.path is None]
        for change in captured.changes:
            old = self._before(change.holder, change.gradient)
            if old is not None and (not change.gradient or old in states):
                states.append(old)
        taken: list[str] = []
        for buffer in dict.fromkeys(states):
            if buffer not in found.copies and captured.sources[buffer].written:
                raise ExportError(self.artefact.name, "overwrites memory that no tensor had before "
                                  "the call", "make the tensor outside of the function")
            name, leaf = whose.get(buffer, ("", buffer.leaf((buffer.size,))))
            name = name or f"state{len(taken)}"
            while name in taken:
                name += "_"
            taken.append(name)
            spot = self.state_of[buffer] = Spot("state", len(self.artefact.states))
            self.where[buffer] = spot
            self.artefact.states.append(_port(name, buffer, leaf.arg[2]))
            self.artefact.contents.append(found.content(buffer))

    def _before(self, holder: Any, gradient: bool) -> Buffer | None:
        """The buffer that a tensor had, or its gradient, before the call.

        Raises:
            ExportError: it is an argument.
        """
        if isinstance(holder, str):
            if gradient:
                return None
            path = names.of_arguments(self.function, [holder])[holder]
            raise ExportError(  # r[impl export.refused.named]
                self.artefact.name, f"assigns to argument {path}",
                "return the new value, or keep it in a tensor outside of the function")
        nodes = self.found.gradients if gradient else self.found.held
        node = nodes.get(id(holder()))
        return None if node is None else node.arg[0]

    def _add_run(self, run: Any, plan: Plan) -> None:
        """The kernels of one run, in the order of its plan."""
        given = run.canonical.buffers
        places: dict[int, _Where] = {n: self.where[given[slot]] for n, slot in plan.inputs}
        for number, storage in plan.storages.items():
            if number not in places and (number in plan.touched or storage.kind == "output"):
                places[number] = _Value(len(self.values))
                self.values.append([storage.nbytes, len(self.calls) + len(plan.order), -1])
        binds = run.canonical.variables
        for number in plan.order:
            kernel = plan.kernels[number]
            if kernel.task is not None:
                self._refuse_task(kernel)
            written = {touch.storage for touch in kernel.writes}
            self.calls.append(_Call(
                kernel.ast, [places[n] for n in kernel.arguments],
                tuple(at for at, n in enumerate(kernel.arguments) if n in written),
                [self._follows(binds[slot]) for slot in kernel.slots]))
        self.where.update(zip([run.buffers[n] for n in run.plan.places],
                              [places[n] for n in plan.places], strict=True))
        self.artefact.documents.append(document(plan, False, run.effects.nodes))

    def _refuse_task(self, kernel: PlannedKernel) -> None:
        # r[impl export.refused.named]
        if kernel.loop is not None:
            raise ExportError(self.artefact.name, f"has a loop ({kernel.name}), whose body the "
                              "host runs", "write the turns out, or export the body")
        raise ExportError(self.artefact.name, f"copies between devices ({kernel.name})",
                          "put all that it uses on one device (.to)")

    def _follows(self, bind: UOp) -> tuple[str, int]:
        """What a value of a kernel is in each call."""
        name, value = bind.src[0].arg[0], int(bind.src[1].arg)
        if name.startswith(_RANDOM):
            return "counter", value - self.captured.random_start
        if name.startswith(_KEY):
            return "key", 0
        for place, variable in enumerate(self.artefact.variables):
            if variable.node is bind:
                return "variable", place
        return "number", value

    def _place(self) -> None:
        """Give every value memory: an output's own, or a part of the arena."""
        end = len(self.calls)
        for step, call in enumerate(self.calls):
            for each in call.touched:
                if isinstance(each, _Value):
                    life = self.values[each.number]
                    life[1], life[2] = min(life[1], step), max(life[2], step)
        copies = self._last_copies()
        spots: dict[int, Spot] = {}
        rest: list[tuple[_Where, Spot, int]] = []
        for source, target, nbytes in copies:
            if isinstance(source, _Value) and target.kind == "output" \
                    and source.number not in spots:
                spots[source.number] = target  # kernels fill the caller's memory at once
            else:
                rest.append((source, target, nbytes))
        for source, _, _ in rest:
            if isinstance(source, _Value):
                self.values[source.number][2] = end
        planned = self._plan([n for n in range(len(self.values)) if n not in spots])
        spots.update({n: Spot("arena", offset) for n, offset in planned.offsets.items()})

        def spot(each: _Where) -> Spot:
            return spots[each.number] if isinstance(each, _Value) else each

        made = self.artefact
        made.arena = planned.planned
        made.calls = [KernelCall(call.ast, tuple(map(spot, call.touched)),
                                 tuple(map(self._size, call.touched)), call.writes,
                                 tuple(call.values)) for call in self.calls]
        made.copies = self._in_parallel([(spot(s), t, nbytes) for s, t, nbytes in rest])

    def _size(self, where: _Where) -> int:
        """How many bytes there are at most."""
        if isinstance(where, _Value):
            return self.values[where.number][0]
        ports = {"input": self.artefact.inputs, "state": self.artefact.states}[where.kind]
        return ports[where.number].nbytes

    def _last_copies(self) -> list[tuple[_Where, Spot, int]]:
        """What has to stand where after the last kernel: outputs, and new values of states."""
        made, found = self.artefact, list[tuple[_Where, Spot, int]]()
        leaves = self.found.outputs
        paths = [*leaves][::-1]
        for path, name in names.of_results(paths).items():
            buffer, shape = leaves[path]
            made.outputs.append(_port(name, buffer, shape))
            found.append((self.where[buffer], Spot("output", len(made.outputs) - 1),
                          made.outputs[-1].nbytes))
        for change in self.captured.changes:
            old = self._before(change.holder, change.gradient)
            state = None if old is None else self.state_of.get(old)
            now = self.where[change.buffer]
            if state is not None and now != state:
                found.append((now, state, made.states[state.number].nbytes))
        return found

    def _plan(self, numbers: Sequence[int]) -> memory.MemoryPlan:
        """The arena: the planner's, for all runs together."""
        step = max(self.alignment, memory.ALIGNMENT)
        spans = [Lifetime(n, -(-max(nbytes, 1) // step) * step, first, last)
                 for n in numbers for nbytes, first, last in [self.values[n]]]
        return memory.plan(spans)

    def _in_parallel(self, copies: list[tuple[Spot, Spot, int]]) -> list[tuple[Spot, Spot, int]]:
        """The same copies, those first whose source another one overwrites; by way of the arena
        where they wait for each other.
        """
        overwritten = {target for _, target, _ in copies}
        step, found = max(self.alignment, memory.ALIGNMENT), list[tuple[Spot, Spot, int]]()
        aside: dict[Spot, Spot] = {}
        for source, target, nbytes in copies:
            if source in overwritten and source != target and source not in aside:
                aside[source] = Spot("arena", self.artefact.arena)
                self.artefact.arena += -(-nbytes // step) * step
                found.append((source, aside[source], nbytes))
        return [*found, *((aside.get(source, source), target, nbytes)
                          for source, target, nbytes in copies)]


def _port(name: str, buffer: Buffer, shape: tuple[Any, ...]) -> Port:
    """What lies in a buffer, seen with a shape. A symbolic size counts as the greatest it can be.
    """
    greatest = tuple(map(plain, symbolic.map_sizes(shape, symbolic.without_values)))
    count = math.prod(greatest) if symbolic.sizes_in(shape) else buffer.size
    return Port(name, buffer.dtype, shape, count * buffer.dtype.itemsize)
