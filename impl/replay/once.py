"""One call of a function, looked at and then undone: what leaves the process is made of it."""
from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from impl import realize
from impl.effects import Buffer, Effects, is_lost, lock
from impl.errors import ReplayError
from impl.following.reads import Reason
from impl.host import np
from impl.ir import Ops, Shape, UOp
from impl.realize import session
from impl.replay.arguments import take_apart
from impl.replay.capture import Capture
from impl.replay.jit import TinyJit, captured_function
from impl.replay.recording import Captured
from impl.replay.results import buffer_and_shape
from impl.replay.stand_ins import StandIns
from impl.replay.states import States
from impl.symbolic import watching
from impl.tensor import Tensor
from impl.tensor.random import generator

#: A tensor, or its gradient, as it was before a call: whose it is, and its leaf.
_Was = tuple["weakref.ref[Tensor]", UOp]


@dataclass
class Observation:
    """What one call of a function did, and what was in memory before it; nothing of it is left.

    `outputs` are buffers and shapes of the results, by path; `random_used` is how many random
    numbers were drawn. `planned` has what the planner gave for each run, in the order of the runs
    of `captured`; `reasons` is why the call could not be done again without Python, if it could
    not; `copies` are the buffers that tensors had, with copies of what stood there; `held` is the
    leaf that each tensor had, by its identity, and `gradients` that of its gradient.
    """

    captured: Captured | None
    outputs: dict[str, tuple[Buffer, Shape]]
    random_used: int
    reasons: list[Reason]
    planned: list[Any]
    copies: dict[Buffer, Buffer]
    held: dict[int, UOp]
    gradients: dict[int, UOp]

    def content(self, buffer: Buffer) -> np.ndarray:
        """What stood in a buffer before the call, or in one that the call made of numbers."""
        memory = realize.ensure_memory(self.copies.get(buffer, buffer))
        return memory.device.copy_out(memory, buffer.dtype, buffer.size)


class _Observer(Capture):
    """A capture that has each run planned once more, by somebody else."""

    keeps_graphs = undone = True
    planner: Callable[[Effects], Any]
    planned: list[Any]
    waiting: dict[int, tuple[Effects, Any]]  # by identity: planned, and not run yet

    def planning(self, effects: Effects) -> None:
        """Have it planned while all that it reads is as it was."""
        self.waiting[id(effects)] = effects, self.planner(effects)

    def __call__(self, run: realize.Run) -> None:
        """Note a run, and what the planner made of it."""
        super().__call__(run)
        self.planned.append(self.waiting.pop(id(run.effects))[1])


def observe(function: Any, args: Sequence[Any], kwargs: dict[str, Any],
            planner: Callable[[Effects], Any]) -> Observation:
    """Call a function once on copies of its arguments; then put back what every tensor held.

    `planner` is given the effects of each run before it happens. A captured function is called as
    the function that it captures.

    Raises:
        ReplayError: an argument cannot be described, or other threads work at the same time.
    """
    jit = function if isinstance(function, TinyJit) else TinyJit(function)
    with lock.turn() as free:
        if not free or session.capturing.observers:
            raise ReplayError(jit._name, "is observed while another captured function runs",
                              "do it outside of captured functions and other threads")
        reads = jit._reads(args, kwargs)
        call = StandIns(args, kwargs, take_apart((args, kwargs)), reads)
        return _observe(jit, (call.args, call.kwargs), _Observer(
            jit._name, captured_function(jit), call.arguments, call.originals, call.kept, reads,
            jit.trust), planner)


def _observe(jit: Any, given: Any, capture: _Observer,
             planner: Callable[[Effects], Any]) -> Observation:
    """The call itself, with the state of all tensors taken before and put back after it."""
    capture.planner, capture.planned, capture.waiting = planner, [], {}
    was, gradients, copies = _take(capture)
    held, of_gradients = ({id(holder): node for reference, node in leaves
                           if (holder := reference()) is not None} for leaves in (was, gradients))
    captured, outputs, random_used = None, dict[str, tuple[Buffer, Shape]](), 0
    reasons = dict.fromkeys(capture.reads.reasons)
    try:
        with session.capturing.observed(capture):
            with watching() as capture.comparisons:
                result = jit.function(*given[0], **given[1])
            capture.check_containers(given)
            captured = capture.captured(result)
        outputs = {path: buffer_and_shape(tensor)
                   for path, tensor in take_apart(result).tensors.items()}
        capture.before, capture.parameters, result = [], [], None
        if captured is not None and not States("", captured.sources, []).has_owners():
            captured = None
    finally:
        capture.end()
        _put_back(was, gradients, copies)
        random_used = generator.counter - capture.random_start
        generator.counter = capture.random_start
    return Observation(captured, outputs, random_used, [*reasons, *capture.reasons],
                       capture.planned, copies, held, of_gradients)


def _take(capture: _Observer) -> tuple[list[_Was], list[_Was], dict[Buffer, Buffer]]:
    """The leaves of all tensors and gradients, and copies of what stands there."""
    was, gradients = list[_Was](), list[_Was]()
    for holder, node in capture.before:
        # What a transform has traced on, or what failed, has no value.
        if node.op is Ops.BUFFER and id(holder) not in capture.aside and not is_lost(node):
            was.append((weakref.ref(holder), node))
            if holder.grad is not None and holder.grad.uop.op is Ops.BUFFER:
                gradients.append((weakref.ref(holder), holder.grad.uop))
    buffers = dict.fromkeys(node.arg[0] for _, node in (*was, *gradients))
    return was, gradients, {buffer: realize.copied(buffer) for buffer in buffers}


def _put_back(was: Sequence[_Was], gradients: Sequence[_Was],
              copies: dict[Buffer, Buffer]) -> None:
    """Give tensors and gradients what they held; what was overwritten, in other memory."""
    # r[impl export.state.kept]
    again: dict[Buffer, Buffer] = {}

    def restored(node: UOp) -> UOp:
        buffer, version, shape = node.arg
        if version == buffer.version and not buffer.spoiled:
            return node
        if buffer not in again:  # what shared memory does so again
            again[buffer] = realize.copied(copies[buffer])
        return again[buffer].leaf(shape)

    old = {id(holder): node for reference, node in gradients
           if (holder := reference()) is not None}
    for reference, node in was:
        holder = reference()
        if holder is None:
            continue
        before = restored(node)
        if holder.uop is not before:
            holder.uop = before
        gradient = old.get(id(holder))
        if gradient is None:
            holder.grad = None
        elif holder.grad is None or holder.grad.uop is not restored(gradient):
            holder.grad = Tensor(restored(gradient))
