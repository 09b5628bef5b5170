"""After each pass its result is checked, and what is wrong is found. See spec/schedule.md."""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from conformance.trace import verifies
from impl import Context, Tensor
from impl.dtypes import dtypes
from impl.errors import GraphError
from impl.ir import Ops, RangeKind, UOp, new_range
from impl.lowering import lower
from impl.lowering.blocks import Define, Write
from impl.lowering.checks import check_lowered
from impl.places import Place
from impl.ranges import Access, Pattern
from impl.rewrite import LEVELS
from impl.schedule import checks, passes, pipeline
from impl.schedule.checks import CHECKS
from impl.schedule.draft import Draft
from impl.searching import optimize, with_steps


def build() -> Tensor:
    """Four loop nests one after another, a temporary between any two."""
    x = Tensor(np.arange(64, dtype=np.int32).reshape(8, 8)).realize()
    total = ((x + 1).contiguous() * 3).contiguous().sum(0)
    return (total.contiguous() * 2).sum()


def written(draft: Draft, name: str, value: Any) -> None:
    """A field, whatever a pass has written there."""
    vars(draft)[name] = value


def other_value(change: Callable[[UOp], UOp]) -> Callable[[Draft], None]:
    def wrong(draft: Draft) -> None:
        stage = draft.graph.stages[0]
        object.__setattr__(stage, "form", replace(stage.form, value=change(stage.form.value)))
    return wrong


def reads_too_far(draft: Draft) -> None:
    stage = draft.graph.stages[0]
    pattern = stage.reads[0].pattern
    moved = (*pattern.index[:-1], pattern.index[-1] + 1)
    object.__setattr__(stage, "reads", [Access(stage.reads[0].value,
                                               Pattern(pattern.shape, moved, pattern.valid))])


def readers_first(draft: Draft) -> None:
    draft.placed.stages.reverse()


def two_numbers(draft: Draft) -> None:
    draft.groups[1].number = 0


def backwards(draft: Draft) -> None:
    groups = list(draft.groups)[::-1]
    for place, group in enumerate(groups):
        group.number = place
    draft.grouping.groups[:] = groups


def elsewhere(draft: Draft) -> None:
    draft.groups[0].device = Place("ELSEWHERE")


def at(offset: Callable[[int], int]) -> Callable[[Draft], None]:
    def wrong(draft: Draft) -> None:
        for memory in draft.memories.values():
            memory.offsets = {storage: offset(old) for storage, old in memory.offsets.items()}
            memory.planned += 64
    return wrong


def no_loop(draft: Draft) -> None:
    kernel = draft.kernels[0]
    kernel.ast = kernel.ast.replace(arg=None)


def no_arguments(draft: Draft) -> None:
    draft.kernels[0].arguments = ()


LOOSE = new_range(5, RangeKind.LOOP, 999)
#: (after which pass, what goes wrong, the rule, what the message names)
MISTAKES: list[tuple[str, Callable[[Draft], None], str, str]] = [
    ("make_stages", other_value(lambda v: v + UOp(Ops.CAST, v.dtype, (LOOSE,))),
     "ranges.reduce.own", "loop 999 in stage 0"),
    ("make_stages", reads_too_far, "ranges.access.inside", "1 to 64 in stage 0"),
    ("make_stages", other_value(lambda v: v + 0), "ranges.stage.lean", "expression of stage 0"),
    ("place", readers_first, "placement.in-place.safe", "where it has version None"),
    ("split", two_numbers, "fusion.stages.together", "in kernel 0"),
    ("split", backwards, "fusion.group.acyclic", "where it has version None"),
    ("split", elsewhere, "fusion.cut.device", "kernel 0 on ELSEWHERE"),
    ("find_hazards", lambda d: written(d, "waits", []), "dependencies.raw.order",
     "kernel 1, which does not wait for kernel 0"),
    ("put_in_order", lambda d: written(d, "order", d.order[::-1]), "ordering.legal.permutation",
     "kernel 1, which runs before kernel 0"),
    ("put_in_order", lambda d: written(d, "order", d.order[:-1]), "ordering.legal.permutation",
     "the order"),
    ("take_over", lambda d: written(d, "order", d.order[::-1]), "ordering.legal.permutation",
     "kernel 1, which runs before kernel 0"),
    ("take_over", lambda d: written(d, "dependencies", []), "dependencies.", "does not wait"),
    ("lay_out", at(lambda offset: offset + 8), "memory.alignment.arena", "memory"),
    ("lay_out", at(lambda offset: offset + 640), "memory.alignment.arena", "memory"),
    ("lay_out", at(lambda offset: 0), "memory.reuse.disjoint", "memory"),
    ("assemble", no_loop, "ir.kernel.sink", "verify kernel 0"),
    ("assemble", no_arguments, "fusion.kernel.canonical", "of kernel 0"),
]


@verifies("schedule.verify.passes")
@pytest.mark.parametrize("after, mistake, rule, named", MISTAKES,
                         ids=[f"{after}-{rule}-{n}" for n, (after, _, rule, _)
                              in enumerate(MISTAKES)])
def test_a_mistake_of_a_pass_is_found_behind_it(
        after: str, mistake: Callable[[Draft], None], rule: str, named: str,
        monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(draft: Draft) -> Draft:
        mistake(getattr(passes, after)(draft))
        return draft

    right = getattr(passes, after)
    changed = tuple(wrong if each is right else each for each in pipeline.PASSES)
    monkeypatch.setattr(pipeline, "PASSES", changed)
    monkeypatch.setattr(checks, "CHECKS", tuple(
        replace(each, after=wrong) if each.after is right else each for each in CHECKS))
    with Context(SPEC=2, SCACHE=0, DEVICE="REFERENCE", FUSE=0), \
            pytest.raises(GraphError) as caught:
        build().realize()
    message = str(caught.value)
    assert f"r[{rule}" in message and named in message
    if "the order" not in named:
        assert f"({__file__}:" in message or f"{__file__}:" in message  # the user's line


@verifies("schedule.verify.passes")
def test_right_passes_pass() -> None:
    with Context(SPEC=2, SCACHE=0, DEVICE="REFERENCE"):
        for fuse in (0, 1):
            with Context(FUSE=fuse):
                assert build().item() == 2 * 3 * sum(range(1, 65))
    assert {each.after.__name__ for each in CHECKS} >= {
        "make_stages", "place", "split", "find_hazards", "put_in_order", "take_over", "lay_out",
        "assemble"} and "tensor" in LEVELS


def planned() -> UOp:
    rows = Tensor(np.ones((64, 4096), np.int32)).realize()
    return (rows * 3 + 1).schedule()[0].ast


@verifies("lowering.lower.checked")
def test_a_lowering_that_computes_too_late_is_found() -> None:
    ast = optimize(planned())
    check_lowered(lower(ast))
    low = lower(ast)
    blocks = [low.root]
    while not any(isinstance(item, Write) for item in blocks[-1].items):
        blocks.append(next(i.block for i in blocks[-1].items if hasattr(i, "block")))
    body = blocks[-1].items
    kept = list(body)
    body.reverse()
    with pytest.raises(GraphError, match="verify lowering.* before it is computed"):
        check_lowered(low)
    body[:] = [item for item in kept if not isinstance(item, Write)]
    with pytest.raises(GraphError, match="is never done"):
        check_lowered(low)
    body[:] = [item for item in kept if not isinstance(item, Define)]
    low.root.items[:0] = [item for item in kept if isinstance(item, Define)]
    with pytest.raises(GraphError, match=r"r\[lowering.lower.checked\]"):
        check_lowered(low)


@verifies("searching.steps.checked")
def test_a_step_that_spoils_a_kernel_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    from impl.steps import Upcast
    ast, right = planned(), Upcast.apply

    def wrong(step: Any, known: Any) -> UOp:
        made = right(step, known)
        index = made.src[0].src[0]
        moved = index.replace(src=(index.src[0], index.src[1] + LOOSE, index.src[2]))
        return made.substitute({index: moved})

    asked = with_steps(ast, ["UPCAST(0,4)"])
    with Context(SPEC=2):
        assert optimize(asked).arg.steps
    monkeypatch.setattr(Upcast, "apply", wrong)
    with Context(SPEC=2), pytest.raises(GraphError, match=r"after UPCAST\(0,4\).*outside"):
        optimize(asked)
    assert dtypes.int32 is asked.src[0].dtype
