"""All values with storage and the stages that compute them. Chapter: spec/ranges.md.

Needs: which nodes are stored, sources first, and which are reshapes of those.
Guarantees: each stored node has a value and one stage, which reads values of its device that are
there before, unless it is a copy. Movement operations are gone: they are indices now.
"""
from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from impl.custom import CustomKernel
from impl.effects import constant_of, leaf_of, way
from impl.ir import IN_ORDER, Ops, Shape, UOp
from impl.places import ANYWHERE, Place, copied_to, home, place_of
from impl.ranges.in_order import form_in_order, form_of_given, form_of_loop
from impl.ranges.indices import Index, loops_within, output_ranges
from impl.ranges.stages import (
    Access,
    Form,
    LoopTask,
    OwnKernel,
    Pattern,
    Stage,
    Task,
    Value,
    without_dead_reads,
    write_pattern,
)
from impl.ranges.tracing import Tracer

#: What reads all of its sources, from memory.
_ALL_OF = frozenset((Ops.COPY, Ops.LOOP, Ops.CUSTOM))


def _way_to_base(write: UOp) -> tuple[Any, ...]:
    """What says where a write goes: every step from its view down to its base.

    A view that is stored too, because it was asked for, is no end of the way.
    """
    rows = [(step.op, step.arg, step.src[0].shape) for step in way(write)]
    return write.src[1].src[0].shape, *rows


class StageGraph:
    """All values with storage, and the stages that compute them, in a legal order."""

    def __init__(self, cuts: dict[UOp, str], alias: dict[UOp, UOp], default_device: Place) -> None:
        self.cuts, self.alias, self.default_device = cuts, alias, default_device
        self.values: list[Value] = []
        self.stages: list[Stage] = []
        self.number_of: dict[object, int] = {}
        self.forms: dict[tuple[Any, ...], tuple[Form, tuple[int, ...]]] = {}
        self.patterns: dict[tuple[Any, ...], Pattern] = {}  # by shape, index and condition
        self.reshaped: dict[tuple[Any, ...], tuple[Index, UOp]] = {}
        self.loaded: dict[UOp, tuple[int, Shape] | None] = {}  # what `read_from` has answered
        self.copied = {self._itself(source) for node in cuts if node.op in _ALL_OF
                       for source in node.src}
        self.homeless: set[int] = set()  # values made of no memory: any device will do

    def build(self) -> StageGraph:
        """Make the stage of every value, sources first (r[ranges.stage.one-value])."""
        # r[impl ranges.stage.one-value+2, effects.version.single-writer]
        for node, reason in self.cuts.items():
            if node in self.number_of:
                continue  # a copy that somebody needed before
            if 0 in (node.shape or ()):
                # r[impl ranges.stage.one-value+2]
                self._new_value(node, node, False, self._home(node, ()))  # nothing to compute
            elif node.op is Ops.AFTER:
                self._write_stage(node, reason)
            elif node.op is Ops.CUSTOM:
                self._given_stage(node, reason)
            else:
                self._value_stage(node, reason)
        return self

    def read_from(self, node: UOp) -> tuple[int, Shape] | None:
        """What a loop nest loads for a node. A reshape of a stored value is computed instead, by
        its index: so all stages see a value in one shape, and find the loops that they share.

        A constant is computed too, unless it is copied: equal ones on other devices are the
        same node, and cannot read it there.
        """
        if node not in self.loaded:
            # Asked first: where a number was realized before, what it is made of may have a stage
            # that comes later.
            is_number = node not in self.copied and constant_of(node) is not None
            self.loaded[node] = None if is_number or node in self.alias else self.stored(node)
        return self.loaded[node]

    def stored(self, node: UOp) -> tuple[int, Shape] | None:
        """The number of the value that holds a node, and the shape in which the node sees it."""
        shape, node = node.shape, self._itself(node)
        leaf = leaf_of(node)
        if leaf is None and node not in self.cuts:
            return None
        assert shape is not None
        if leaf is None:
            return self.number_of[node], shape
        buffer = leaf.arg[0]
        if buffer not in self.number_of:
            self._new_value(buffer, buffer.leaf((math.prod(leaf.arg[2]),)), True)
        return self.number_of[buffer], shape

    def result(self, root: UOp) -> tuple[int, Shape]:
        """The value that holds what was asked for, and its shape."""
        found = self.stored(root)
        assert found is not None  # a root has storage: choose_cuts sees to that
        return found

    def _itself(self, node: UOp) -> UOp:
        """The node that is stored, where one is a reshape of it."""
        while node in self.alias:
            node = self.alias[node]
        return node

    def _new_value(self, key: object, node: UOp, leaf: bool, device: Place | None = None) -> Value:
        where = node.arg[0].device if leaf else device or self.default_device
        value = Value(len(self.values), node, where, leaf)
        self.values.append(value)
        self.number_of[key] = value.number
        if not leaf and device is None:
            self.homeless.add(value.number)
        return value

    def _value_stage(self, node: UOp, reason: str) -> None:
        form, slots = self._form(node, node, self._value_form)
        device = self._home(node, slots)
        task: Task | None = node.arg if node.op is Ops.COPY else None
        if node.op is not Ops.COPY:
            before, slots = slots, self._brought(slots, device)
            if node.op is Ops.LOOP:
                there = dict(zip(before, slots, strict=True))
                task = LoopTask(node.arg, tuple(there[self._number(s)] for s in node.src))
        value = self._new_value(node, node, False, device)
        self.stages.append(Stage(len(self.stages), node, form, slots,
                                 Access(value.number, form.write), reason, task))

    def _given_stage(self, node: UOp, reason: str) -> None:
        """The stage of a kernel that the user has written, with all values that it stores."""
        custom: CustomKernel = node.arg
        slots = tuple(self._number(source) for source in node.src)
        device = self._home(node, slots)
        slots = self._brought(slots, device)
        values: list[int] = []
        writes: list[tuple[Access, int | None]] = []
        for position, source in enumerate(custom.sources):
            if position not in custom.stored:
                assert source is not None
                values.append(slots[source])
                continue
            result, old = custom.result(node, position), None
            if source is not None:  # r[impl custom.value.equal]: the tensor keeps its value
                kept = UOp(Ops.CONTIGUOUS, result.dtype, (node.src[source],), None, result)
                self._value_stage(kept, f"custom: {custom.name} stores a part of it")
                old = self.number_of[kept]
            value = self._new_value(result, result, False, device)
            index = output_ranges(custom.arguments[position][0])
            pattern = Pattern(custom.arguments[position][0], index)
            writes.append((Access(value.number, pattern), old))
            values.append(value.number)
        read = [p for p in range(len(values)) if p not in custom.stored]
        (first, before), *more = writes
        form = form_of_given(node, first.pattern, [custom.arguments[p][0] for p in read])
        self.stages.append(Stage(
            len(self.stages), node, form, tuple(values[p] for p in read), first, reason, None,
            before, before is None, OwnKernel(custom.ast, tuple(values), tuple(more))))

    def _number(self, node: UOp) -> int:
        """The value that holds a stored node."""
        found = self.stored(node)
        assert found is not None  # the cutter sees to that
        return found[0]

    def _write_stage(self, node: UOp, reason: str) -> None:
        """The stage of an AFTER: it computes the region and writes it into the base's memory."""
        base, (view, given) = node.src[0], node.src[1].src
        form, slots = self._form(node, given, self._write_form)
        overwrites = self._memory_of(base)
        device = self._home(given, slots)
        if overwrites is not None and overwrites not in self.homeless:
            device = self.values[overwrites].device
        elif overwrites is not None:
            overwrites, = self._brought((overwrites,), device)
        slots = self._brought(slots, device)
        value = self._new_value(node, node, False, device)
        self.stages.append(Stage(len(self.stages), node, form, slots,
                                 Access(value.number, form.write), reason, None, overwrites,
                                 view is base))

    def _form(self, node: UOp, root: UOp, make: Callable[[UOp, Tracer], Form],
              ) -> tuple[Form, tuple[int, ...]]:
        """The loop nest of a node, and the values that it loads, by slot; `root` is computed.

        A network repeats its layers: a nest of a form that was met before is not traced again.
        """
        key, values = self._describe(root, root is node)
        if root is not node:
            key += _way_to_base(node)  # r[impl ranges.form.shared+2]
        known = self.forms.get(key)  # r[impl ranges.form.shared+2]
        if known is None:
            tracer = Tracer(self.read_from, self.patterns, self.reshaped)
            form = make(node, tracer)
            if tracer.simple.rewrites:
                form = without_dead_reads(form)
            place = {value: i for i, value in enumerate(values)}
            known = self.forms[key] = form, tuple(place[value] for value in tracer.slots)
        form, picked = known
        return form, tuple(values[i] for i in picked)

    def _describe(self, root: UOp, inside: bool) -> tuple[tuple[Any, ...], list[int]]:
        """What a nest depends on, with its values by order of appearance; and those values."""
        place: dict[UOp, int] = {}
        values: dict[int, int] = {}
        rows: list[Any] = []
        stack, loaded = [root], self.loaded
        while stack:
            node = stack.pop()
            if node in place:
                rows.append(place[node])
                continue
            place[node] = len(place)
            stored = None if inside and node is root else \
                loaded[node] if node in loaded else self.read_from(node)
            if stored is not None:
                rows.append((values.setdefault(stored[0], len(values)), stored[1], node.dtype))
            elif node.op is Ops.CONST:
                rows.append((Ops.CONST, node))
            elif node.op is Ops.BIND:
                rows.append((Ops.BIND, node.src[0]))
            else:
                rows.append((node.op, node.dtype, node.arg, node.shape))
                stack += node.src
        return tuple(rows), list(values)

    def _value_form(self, node: UOp, tracer: Tracer) -> Form:
        assert node.shape is not None
        index = output_ranges(node.shape)
        if node.op in IN_ORDER:
            return form_in_order(node, tracer, index)
        if node.op is Ops.LOOP:
            return form_of_loop(node, tracer, index)
        expression = tracer.trace(node, index)
        return Form(loops_within(index), expression, tracer.pattern(node.shape, index),
                    tracer.reads, tracer.reduced, tracer.operations)

    def _write_form(self, node: UOp, tracer: Tracer) -> Form:
        base, (view, given) = node.src[0], node.src[1].src
        assert view.shape is not None
        index = output_ranges(view.shape)
        expression = tracer.trace(given, index, inside=False)
        return Form(loops_within(index), expression, write_pattern(view, base, index), tracer.reads,
                    tracer.reduced, tracer.operations)

    def _home(self, node: UOp, slots: Sequence[int]) -> Place | None:
        """The device of what a node is made of, though nothing of it may be read: the sum over no
        elements. None if it is made of no memory.
        """
        if node.op is Ops.COPY:
            return place_of(node)
        found = next((slot for slot in slots if slot not in self.homeless), None)
        return home(node.src, self._lies) if found is None else self.values[found].device

    def _lies(self, node: UOp) -> Place | None:
        """Where a node is stored: nowhere, or anywhere, or in the place of its value."""
        stored = self.read_from(node)
        if stored is None:
            return None
        return ANYWHERE if stored[0] in self.homeless else self.values[stored[0]].device

    def _brought(self, slots: Sequence[int], device: Place | None) -> tuple[int, ...]:
        """What a stage on a device loads: of what was computed elsewhere, a copy.

        That was made of no memory, so that whoever asked for it did not say where it should lie.
        """
        # r[impl schedule.document.devices+2]
        found = []
        for slot in slots:
            value = self.values[slot]
            if slot in self.homeless and value.device != (device or self.default_device):
                copy = copied_to(value.node, device or self.default_device)
                if copy not in self.number_of:
                    self._value_stage(copy, "what reads it is on another device")
                slot = self.number_of[copy]
            found.append(slot)
        return tuple(found)

    def _memory_of(self, base: UOp) -> int | None:
        """The value whose memory an assign may write into; None if there is no such memory."""
        while self.stored(base) is None:
            if base.op is not Ops.AFTER:
                return None
            base = base.src[0]
        place = self.stored(base)
        assert place is not None
        return place[0]
