"""Finished plans, found again by the shape of the question.

The key of a plan is the canonical graph: buffers and variables are numbered by appearance, so that
`x + y` on other buffers hits, and `x + x` does not hit `x + y`. All settings and device
properties that can change a plan belong to it. Bound values are not in the key.
"""
from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from impl import settings
from impl.effects import Buffer, Effects, leaf_of
from impl.errors import VariableError
from impl.ir import Ops, UOp

PlanType = TypeVar("PlanType")


# --8<-- [start:canonical]
@dataclass
class Canonical:
    """A graph with its buffers and variables taken out.

    `key` describes the graph completely; `buffers[i]` and `values[i]` are what slot i stands for in
    this call. Two graphs with equal keys have equal plans.
    """

    key: tuple[Any, ...]
    buffers: list[Buffer]
    variables: list[UOp] = field(default_factory=list)
    values: list[int] = field(default_factory=list)


def canonicalize(effects: Effects, device_key: Iterable[Any]) -> Canonical:
    """Number buffers and variables by appearance, and describe every node by its sources' places.

    r[caching.key.alias], r[caching.key.settings], r[caching.key.values]
    """
    place: dict[UOp, int] = {}
    slots: dict[Buffer, int] = {}
    variables: dict[UOp, int] = {}
    values: list[int] = []
    binds: list[UOp] = []
    rows: list[tuple[Any, ...]] = []
    held = {leaf.arg[0] for leaf in effects.held}
    for node in effects.nodes:
        place[node] = len(place)
        leaf = leaf_of(node)
        if leaf is not None:  # r[impl caching.key.alias]
            buffer = leaf.arg[0]
            slot = slots.setdefault(buffer, len(slots))
            # r[impl caching.key.renaming, caching.key.held]
            rows.append((slot, buffer.device, buffer.size, node.dtype.name, node.shape,
                         buffer in held))
        elif node.op is Ops.BIND:  # r[impl caching.key.values]
            variable, value = node.unbind()
            slot = variables.setdefault(variable, len(variables))
            if slot == len(values):  # r[impl caching.values.each]
                values.append(value)
                binds.append(node)
            elif values[slot] != value:
                raise VariableError(variable.arg[0], f"is bound to {values[slot]} and to {value} "
                                    "in one schedule", "bind it once, or use two variables")
            rows.append((Ops.BIND, slot, node.dtype.name, variable.arg[1:]))
        elif node.op is Ops.CONST:
            rows.append((Ops.CONST, node.dtype.name, exact(node.arg)))
        else:  # r[impl caching.key.program]
            rows.append((node.op, node.dtype.name, node.arg, *[place[s] for s in node.src]))
    roots = tuple(place[root] for root in effects.roots)
    # r[impl caching.key.settings, caching.key.device]
    key = (tuple(rows), roots, settings.plan_key(), tuple(device_key))
    # A plan names slots only; no run leaves a buffer in it. r[impl caching.result.independent]
    return Canonical(key, list(slots), binds, values)
# --8<-- [end:canonical]


def exact(value: Any) -> Any:
    """A constant such that unequal constants compare unequal: 0.0 and -0.0, and NaN is itself."""
    return value.hex() if isinstance(value, float) else value


def stable_name(key: tuple[Any, ...]) -> str:
    """A name of a key that is the same in every process (r[caching.key.stable])."""
    return hashlib.sha256(repr(key).encode()).hexdigest()  # r[impl caching.key.stable]


# --8<-- [start:cache]
class PlanCache(Generic[PlanType]):
    """A bounded table from keys to plans; the plan used longest ago goes first. Thread-safe."""

    def __init__(self, capacity: int = 4096) -> None:
        self.capacity = capacity
        self.plans: OrderedDict[tuple[Any, ...], PlanType] = OrderedDict()
        self.lock = threading.Lock()
        self.hits = self.misses = 0

    def get(self, key: tuple[Any, ...]) -> PlanType | None:
        """The plan, if it is there; counts a hit or a miss."""
        with self.lock:
            plan = self.plans.get(key)  # r[impl caching.hit.equal]
            if plan is None:
                self.misses += 1
            else:
                self.hits += 1
                self.plans.move_to_end(key)
            return plan

    def put(self, key: tuple[Any, ...], plan: PlanType) -> None:
        """Keep a plan; beyond the capacity the oldest is dropped (r[caching.bounded.capacity])."""
        with self.lock:
            self.plans[key] = plan
            while len(self.plans) > self.capacity:  # r[impl caching.bounded.capacity]
                self.plans.popitem(last=False)

    def clear(self) -> None:
        """Forget everything, the counts too."""
        with self.lock:
            self.plans.clear()
            self.hits = self.misses = 0

    def __len__(self) -> int:
        return len(self.plans)
# --8<-- [end:cache]
