"""A kernel that was run before, for new values: launched, and nothing else is done.

Who realizes each line of a program waits for Python more than for kernels. If all that is asked for
is one operation on values in memory, the plan is found by a short key; and if that plan is one
kernel that fills one new buffer, there is nothing to bind, to place or to commit. Chapter:
spec/realize.md.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from impl.device import Device, Memory
from impl.effects import Buffer, mark_realized
from impl.ir import UOp
from impl.schedule import Plan


# --8<-- [start:direct]
class Direct:
    """The only kernel of a plan, ready to be launched for other buffers."""

    __slots__ = ("program", "backend", "device", "dtype", "size", "nbytes", "places")

    def __init__(self, plan: Plan, program: Any) -> None:
        (number, self.device, self.dtype, self.size, _), = plan.made
        self.program = program
        self.nbytes = plan.storages[number].nbytes or 1
        self.backend = Device[self.device]
        # Where each argument stands among the buffers of a call, of which the new one is the last.
        slots = dict(plan.inputs)
        self.places = [slots.get(storage, -1) for storage in plan.kernels[0].arguments]

    @staticmethod
    def serves(plan: Plan) -> bool:
        """Whether a plan does nothing but to fill one new buffer, in one kernel."""
        if len(plan.kernels) != 1 or len(plan.made) != 1 or plan.written or plan.memories:
            return False
        kernel, (number, _, _, _, kept) = plan.kernels[0], plan.made[0]
        return kept and not kernel.copy and not kernel.slots and not plan.unknowns \
            and plan.places == [number]

    def run(self, root: UOp, buffers: Sequence[Buffer],
            ensure_memory: Callable[[Buffer], Memory]) -> UOp:
        """Compute a root from these buffers; the leaf that holds its value."""
        made = Buffer(self.device, self.dtype, self.size)
        memory = [buffer.memory or ensure_memory(buffer) for buffer in buffers]
        made.memory = new = self.backend.allocate(self.nbytes)  # r[impl realize.memory.first]
        memory.append(new)
        self.program([memory[place] for place in self.places])  # r[impl realize.direct.same]
        leaf = made.leaf(root.shape or ())
        mark_realized(root, leaf)
        return leaf
# --8<-- [end:direct]
