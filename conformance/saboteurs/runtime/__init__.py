"""A small lazy runtime in NumPy: what mistakes are made in, to see whether the suite finds them.

It fuses loops, keeps plans, shares memory among temporaries, moves elements when they are read,
and captures and replays. It claims the tiers values, schedule, order, memory, cache and replay.

    python -m conformance --impl conformance.saboteurs.runtime:Adapter
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from typing import Any

import numpy as np

from conformance import protocol
from conformance.protocol import Info, Observation, Options, Program, Statement, Value
from conformance.saboteurs.runtime import operations
from conformance.saboteurs.runtime.operations import Array
from conformance.saboteurs.runtime.schedule import (
    Buffer,
    Plan,
    Step,
    Task,
    View,
    canonical,
    described,
    fused,
    in_order,
    key_of,
    loops_alike,
    needed,
    ordered,
    planned,
)

POISON = 0xA5


class Session:
    """Variables, and the tasks that wait."""

    def __init__(self, adapter: Adapter, options: Options) -> None:
        self.adapter, self.options = adapter, options
        self.variables: dict[str, View] = {}
        self.waiting: list[Task] = []

    # Statements

    def delay(self, statement: Statement) -> None:
        """Note a statement that has a value or an effect on one."""
        do = statement["do"]
        sources = [self.variables[name] for name in statement.get("from", ())]
        if do in ("assign", "store"):
            self.write(statement, sources[0])
        elif do in operations.MOVEMENTS:
            view = sources[0]
            step = {key: value for key, value in statement.items() if key not in ("to", "from")}
            self.variables[statement["to"]] = View(view.buffer, (*view.steps, step))
        elif do == "input":
            array = protocol.decode(statement["dtype"], statement["shape"], statement["data"])
            self.variables[statement["to"]] = View(
                Buffer(statement["dtype"], array.shape, array.reshape(-1).copy(), 1))
        else:
            self.variables[statement["to"]] = self.task(statement, sources)

    def task(self, statement: Statement, sources: Sequence[View]) -> View:
        """A task that makes a new buffer."""
        kinds = [(each.buffer.dtype, each.shape) for each in sources]
        target = Buffer(*operations.result(statement, kinds), version=1)
        self.wait(statement, sources, target)
        return View(target)

    def wait(self, statement: Statement, sources: Sequence[View], target: Buffer) -> None:
        self.waiting.append(Task(statement, tuple(sources), target, target.version,
                                 tuple(view.buffer.version for view in sources)))

    def write(self, statement: Statement, value: View) -> None:
        """An assignment or a store: others that see the buffer get a copy of it first."""
        name = statement["target"]
        target = self.variables[name]
        if target.steps:
            target = self.variables[name] = self.task({"do": "contiguous"}, [target])
        self.protect(target.buffer, {name})
        if value.buffer is target.buffer:
            value = self.task({"do": "contiguous"}, [value])
        target.buffer.version += 1
        seen = tuple(v.buffer.version for v in (value,))
        self.waiting.append(Task(statement, (value,), target.buffer, target.buffer.version, seen))

    def protect(self, buffer: Buffer, names: Collection[str]) -> None:
        """Let variables other than these keep the present value of a buffer."""
        for name, view in self.variables.items():
            if view.buffer is buffer and name not in names:
                self.variables[name] = self.task({"do": "contiguous"}, [view])

    # Running

    def realize(self) -> None:
        """Run what waits."""
        held = {view.buffer for view in self.variables.values()}
        tasks, self.waiting = needed(self.waiting, held), []
        if tasks:
            buffers, plan = self.plan(tasks, held)
            self.run(plan, buffers, {})

    def plan(self, tasks: Sequence[Task], held: set[Buffer]) -> tuple[list[Buffer], Plan]:
        """The plan of these tasks, a kept one if there is one, and the buffers of its slots."""
        buffers, slots, steps = canonical(tasks, held)
        settings = self.options.get("settings", {})
        key = key_of(slots, steps, settings)
        plans = self.adapter.plans
        hit = key in plans
        if not hit:
            plans[key] = planned(slots, steps, settings, key, self.adapter.fuse)
        self.adapter.seen.schedule.append(described(plans[key], hit))
        return buffers, plans[key]

    def run(self, plan: Plan, buffers: Sequence[Buffer], numbers: dict[str, Any]) -> None:
        """Run the kernels of a plan on these buffers."""
        seed = self.options.get("order_seed")
        if seed is not None:  # lives of temporaries depend on the order
            plan = in_order(plan, ordered(plan, seed), self.options.get("settings", {}))
        arena = np.full(plan.arena, POISON, np.uint8)
        memory: dict[int, Array] = {}
        for place in plan.places:
            temporary = plan.slots[place["buffer"]]
            stop = place["offset"] + temporary.bytes
            memory[place["buffer"]] = arena[place["offset"]:stop].view(temporary.dtype)
        for number, (slot, buffer) in enumerate(zip(plan.slots, buffers, strict=True)):
            if number not in memory:
                if buffer.array is None:
                    buffer.array = np.empty(int(np.prod(slot.shape, dtype=np.int64)), slot.dtype)
                memory[number] = buffer.array
        for kernel in plan.order:
            self.adapter.run_kernel(plan, kernel, memory, numbers)
        self.adapter.seen.order.append(list(plan.order))

    def elements(self, view: View) -> Array:
        array = view.buffer.array
        assert array is not None
        return np.array(operations.moved(view.steps, array.reshape(view.buffer.shape)), order="C")


# Replay --------------------------------------------------------------------------------------


class Recording:
    """One call of a body, to be run again: a plan, which name each of its slots has, and the
    elements of those that the body brings itself.
    """

    def __init__(self, plan: Plan, slots: list[str | None], brought: dict[int, Array],
                 made: dict[str, tuple[int, tuple[Statement, ...]]],
                 observed: list[int]) -> None:
        self.plan, self.slots, self.brought = plan, slots, brought
        self.made, self.observed = made, observed
        self.written = {step.target for step in plan.steps}


class Captured:
    """The body of a repetition: called once, recorded at the second call, then replayed."""

    def __init__(self, session: Session, body: Sequence[Statement]) -> None:
        self.session, self.body = session, body
        self.outer = list(dict.fromkeys(outer_names(body)))
        self.calls = 0

    def call(self, given: dict[str, Any]) -> list[tuple[str, View]]:
        """One call; what it observes."""
        session = self.session
        session.realize()
        self.calls += 1
        names = [given.get(name, name) for name in self.outer]
        recordings = session.adapter.recordings.setdefault(json.dumps(self.body), {})
        key = self.signature(names)
        targets = {each["target"] for each in self.body if "target" in each}
        for name in targets & set(names):
            session.protect(session.variables[name].buffer, names)
        session.realize()
        if self.calls > 2 and key in recordings:
            return self.replay(recordings[key], given)
        recording, observed = self.trace(given, names)
        if self.calls >= 2 and recording is not None:
            recordings[key] = recording
        return observed

    def signature(self, names: Sequence[str]) -> str:
        """What a recording depends on: kinds of arguments, and which of them are one."""
        views = [self.session.variables[name] for name in names]
        buffers = [view.buffer for view in views]
        return json.dumps([[names.index(name), buffers.index(view.buffer), view.buffer.dtype,
                            view.buffer.shape, view.steps]
                           for name, view in zip(names, views, strict=True)])

    def trace(self, given: dict[str, Any], names: Sequence[str],
              ) -> tuple[Recording | None, list[tuple[str, View]]]:
        """Run the body, and note what was done."""
        session, outer = self.session, self.session.variables
        inner = session.adapter.sessions(session.adapter, session.options)
        inner.variables = {name: outer[name] for name in names}
        observed: list[tuple[str, View]] = []
        for statement in self.body:
            if "from" in statement:
                statement = {**statement,
                             "from": [given.get(each, each) for each in statement["from"]]}
            if statement["do"] == "observe":
                for name in statement["names"]:
                    name = given.get(name, name)
                    observed.append((name, inner.task({"do": "contiguous"},
                                                      [inner.variables[name]])))
            elif statement["do"] == "drop":
                for name in statement["names"]:
                    inner.variables.pop(name)
            elif statement["do"] != "realize":
                inner.delay(statement)
        before = {outer[name].buffer: name for name in reversed(names)}
        held = {view.buffer for view in (*inner.variables.values(), *outer.values(),
                                         *(view for _, view in observed))}
        tasks = needed(inner.waiting, held)
        outer.update(inner.variables)
        if not tasks:
            return None, observed
        buffers, plan = session.plan(tasks, held)
        brought = {slot: each.array.copy() for slot, each in enumerate(buffers)
                   if each.array is not None and each not in before}
        session.run(plan, buffers, given)
        formal = {given.get(name, name): name for name in reversed(self.outer)}
        number = {buffer: slot for slot, buffer in enumerate(buffers)}
        if any(view.buffer not in number for view in inner.variables.values()
               if view.buffer not in before):
            return None, observed
        recording = Recording(
            plan, [formal[before[each]] if each in before else None for each in buffers], brought,
            {name: (number[view.buffer], view.steps) for name, view in inner.variables.items()
             if view.buffer in number and (name not in formal or view.buffer not in before)},
            [number[view.buffer] for _, view in observed])
        return recording, observed

    def replay(self, recording: Recording, given: dict[str, Any]) -> list[tuple[str, View]]:
        """Run a recording with the arguments of this call."""
        session, buffers = self.session, list[Buffer]()
        for slot, name in zip(recording.plan.slots, recording.slots, strict=True):
            buffers.append(Buffer(slot.dtype, slot.shape, version=1) if name is None else
                           session.variables[given.get(name, name)].buffer)
        for number, elements in recording.brought.items():
            buffers[number].array = elements.copy()
        session.adapter.seen.schedule.append(described(recording.plan, True))
        session.run(recording.plan, buffers, given)
        for name, (number, steps) in recording.made.items():
            session.variables[given.get(name, name)] = View(buffers[number], steps)
        names = [given.get(name, name) for each in self.body if each["do"] == "observe"
                 for name in each["names"]]
        return [(name, View(buffers[number]))
                for name, number in zip(names, recording.observed, strict=True)]


def outer_names(body: Sequence[Statement]) -> Iterator[str]:
    """The names that a body uses and has not made."""
    made: set[str] = set()
    for statement in body:
        for name in (*statement.get("from", ()), *statement.get("names", ()),
                     *([statement["target"]] if "target" in statement else ())):
            if name not in made:
                yield name
        made.update([statement["to"]] if "to" in statement else ())


def sources_of(plan: Plan, read: tuple[int, int, list[Statement]],
               memory: dict[int, Array]) -> Array:
    """What a step reads, with its shape; a view of the memory where nothing moves."""
    slot, _, moves = read
    return operations.moved(moves, memory[slot].reshape(plan.slots[slot].shape))


# The adapter ---------------------------------------------------------------------------------


class Adapter:
    """The runtime as the suite drives it."""

    fuse = staticmethod(fused)
    computed = staticmethod(operations.computed)
    whole = staticmethod(operations.whole)
    sessions = Session
    eager = False

    def __init__(self) -> None:
        self.plans: dict[str, Plan] = {}
        self.recordings: dict[str, dict[str, Recording]] = {}
        self.seen = Observation()

    def info(self) -> Info:
        statements = ("input", "constant", *operations.ELEMENTWISE, *operations.TYPED,
                      *operations.MOVEMENTS, "sum", "prod", "max", "min", "mean", "softmax",
                      "cumsum", "matmul", "gather", "assign", "store", "realize", "drop",
                      "observe", *protocol.REPETITIONS)
        return Info("runtime", "1", statements=statements,
                    observes=("values", "schedule", "order", "memory", "cache", "replay"),
                    settings=("NO_MEMORY_PLANNER", "NO_FUSION"))

    def run(self, program: Program, observe: Collection[str],
            options: Options | None = None) -> Observation:
        self.seen = Observation()
        session, self.held = self.sessions(self, options or {}), list[tuple[str, Array]]()
        with np.errstate(all="ignore"):
            self.execute(session, program["statements"], "replay" in observe)
        self.seen.values = [Value.of(name, array) for name, array in self.held]
        return self.seen

    def execute(self, session: Session, statements: Sequence[Statement], replays: bool) -> None:
        for statement in statements:
            do = statement["do"]
            if do in protocol.REPETITIONS and replays:
                self.repeat(session, statement)
            elif do in protocol.REPETITIONS:
                for each in protocol.calls(statement):
                    self.execute(session, each, replays)
            elif do in ("realize", "observe"):
                session.realize()
                if do == "observe":
                    self.held += [(name, session.elements(session.variables[name]))
                                  for name in statement["names"]]
            elif do == "drop":
                for name in statement["names"]:
                    session.variables.pop(name)
            else:
                session.delay(statement)
                if self.eager:
                    session.realize()

    def repeat(self, session: Session, statement: Statement) -> None:
        """Call a body as often as it says; what it observes is looked at after the last call."""
        captured = Captured(session, statement["statements"])
        observed: list[tuple[str, View]] = []
        for given in statement.get("given", [{}] * statement.get("count", 0)):
            observed += captured.call(given)
        self.held += [(name, session.elements(view)) for name, view in observed]

    # Kernels

    def run_kernel(self, plan: Plan, kernel: int, memory: dict[int, Array],
                   numbers: dict[str, Any]) -> None:
        """Run the steps of one kernel: in tiles, if all of them are elementwise."""
        steps = [plan.steps[each] for each in plan.kernels[kernel]]
        if operations.elementwise(steps[0].statement["do"]) and all(
                loops_alike(steps, range(each), steps[each]) for each in range(1, len(steps))):
            self.run_tiles(plan, steps, memory, numbers)
        else:
            for step in steps:
                if operations.elementwise(step.statement["do"]):
                    self.run_tiles(plan, [step], memory, numbers)
                else:
                    self.run_whole(plan, step, memory)

    def run_tiles(self, plan: Plan, steps: Sequence[Step], memory: dict[int, Array],
                  numbers: dict[str, Any]) -> None:
        """Run elementwise steps, some elements of each and then the next ones."""
        moved = [[sources_of(plan, read, memory).reshape(-1) for read in step.reads]
                 for step in steps]
        count = len(memory[steps[0].target])
        for start in range(0, count, operations.TILE):
            tile = slice(start, min(count, start + operations.TILE))
            for step, sources in zip(steps, moved, strict=True):
                target = memory[step.target]
                if step.statement["do"] == "constant":
                    value = step.statement["value"]
                    value = numbers[value["given"]] if isinstance(value, dict) else value
                    target[tile] = np.full(tile.stop - tile.start, protocol.number(value),
                                           target.dtype)
                else:
                    target[tile] = self.computed(step.statement, [each[tile] for each in sources])

    def run_whole(self, plan: Plan, step: Step, memory: dict[int, Array]) -> None:
        """Run one step that is not elementwise."""
        sources = [sources_of(plan, read, memory) for read in step.reads]
        target = memory[step.target]
        if step.statement["do"] in ("assign", "store"):
            places = np.arange(len(target)).reshape(plan.slots[step.target].shape)
            chosen = operations.moved(step.statement.get("view", ()), places)
            target[chosen.reshape(-1)] = sources[0].reshape(-1)
        else:
            target[:] = self.whole(step.statement, sources).reshape(-1)

    def reset(self) -> None:
        """Forget all plans and recordings."""
        self.plans.clear()
        self.recordings.clear()
