"""The only kernel of a plan, ready to be launched at once. Chapter: spec/realize.md."""
from __future__ import annotations

from collections.abc import Sequence

from impl.device import Device
from impl.effects import Buffer, mark_realized
from impl.ir import UOp
from impl.realize.run import ensure_memory, programs_of
from impl.schedule import Plan


# --8<-- [start:direct]
class Direct:
    """The only kernel of a plan, ready to be launched for other buffers.

    Who realizes each line of a program waits for Python more than for kernels. A plan that fills
    one new buffer, in one kernel, leaves nothing to bind, to place or to commit.
    """

    __slots__ = ("program", "backend", "device", "dtype", "size", "nbytes", "places")

    def __init__(self, plan: Plan) -> None:
        (number, self.device, self.dtype, self.size, _), = plan.made
        program = programs_of(plan)[0]
        assert program is not None  # it is no copy
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

    def run(self, root: UOp, buffers: Sequence[Buffer]) -> UOp:
        """Compute a root from these buffers; the leaf that holds its value."""
        made = Buffer(self.device, self.dtype, self.size)
        memory = [buffer.memory or ensure_memory(buffer) for buffer in buffers]
        made.memory = new = self.backend.allocate(self.nbytes)  # r[impl realize.memory.first]
        memory.append(new)
        self.program([*map(memory.__getitem__, self.places)])  # r[impl realize.direct.same]
        leaf = made.leaf(root.shape or ())
        mark_realized(root, leaf)
        return leaf
# --8<-- [end:direct]
