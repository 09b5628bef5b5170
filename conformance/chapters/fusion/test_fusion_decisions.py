"""Cuts, groups, limits and reasons: what this implementation decides.  See spec/fusion.md."""
from __future__ import annotations

import itertools
import random
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

from conformance.kernels.footprint import Buffer, events, reductions
from conformance.trace import verifies
from impl import Context, Tensor, Variable, run_schedule
from impl.caching import canonicalize
from impl.dependencies import History, Touch
from impl.dtypes import dtypes
from impl.effects import collect
from impl.fusion import FusionLimits, choose_cuts
from impl.fusion.products import innermost
from impl.ir import Ops, RangeKind, UOp, new_range
from impl.places import Place
from impl.ranges import Pattern, StageGraph
from impl.schedule import Environment, Plan, make_plan, schedule_cache
from impl.torch import no_grad


@pytest.fixture(autouse=True)
def on_the_reference_device() -> Iterator[None]:
    with Context(DEVICE="REFERENCE"):
        yield


def numbers(*shape: int) -> Tensor:
    count = int(np.prod(shape))
    values = np.random.default_rng(count).normal(size=count).astype(np.float32)
    return Tensor(values.reshape(shape)).realize()


def leaves(count: int, *shape: int) -> list[Tensor]:
    return [Tensor(np.full(shape, i % 7, np.float32)).realize() for i in range(count)]


def total(tensors: list[Tensor]) -> Tensor:
    return sum(tensors[1:], tensors[0])


def plan_of(*tensors: Tensor, limits: FusionLimits | None = None, fuse: bool = True) -> Plan:
    effects = collect([tensor.uop for tensor in tensors])
    environment = Environment(Place("REFERENCE"), limits or FusionLimits(), fuse)
    return make_plan(effects, canonicalize(effects, ()), environment)


def arguments(plan: Plan) -> list[int]:
    return [len(kernel.arguments) for kernel in plan.kernels]


def normalised(x: Tensor) -> Tensor:
    centred = x - x.mean(-1, keepdim=True)
    return centred / ((centred * centred).mean(-1, keepdim=True) + 1e-5).sqrt()


def attention(heads: int = 2, rows: int = 8, width: int = 4) -> Tensor:
    q, k, v = (numbers(heads, rows, width) + i for i in range(3))
    return (q @ k.transpose(1, 2) * 0.5).softmax(-1) @ v


def moments(x: Tensor) -> tuple[Tensor, ...]:
    return x.mean(1), x.var(1)


def assigned_twice(x: Tensor) -> Tensor:
    x.assign(x + 1)
    return x.assign(x * 2)


def scaled(x: Tensor) -> Tensor:
    """Each call uses a variable of another name."""
    return x * Variable(f"size{next(_numbers)}", 1, 9).bind(3)


_numbers = itertools.count()


def whole_and_part(state: Tensor, x: Tensor) -> Tensor:
    state.assign(x * 2)
    state[:3] = x[:3] + 1
    return state


def shifted(x: Tensor) -> Tensor:
    x[1:, ::2] = x[:-1, ::2]
    return x


#: Programs with all sorts of kernels; each call makes the tensors anew.
PROGRAMS: dict[str, Callable[[], tuple[Tensor, ...]]] = {
    "map": lambda: (numbers(4, 6) * 2 + 1,),
    "softmax": lambda: (numbers(4, 6).softmax(1),),
    "softmax of columns": lambda: (numbers(4, 6).softmax(0),),
    "layer norm": lambda: (normalised(numbers(4, 6)),),
    "mean and variance": lambda: moments(numbers(4, 6)),
    "attention": lambda: (attention(),),
    "product": lambda: ((numbers(4, 6) @ numbers(6, 3) + numbers(3)).relu(),),
    "two products": lambda: (numbers(4, 6) @ numbers(6, 3) @ numbers(3, 5),),
    "both ways": lambda: (numbers(4, 4).exp().sum(0), numbers(4, 4).exp().sum(1)),
    "transposed": lambda: ((numbers(4, 4).exp() + numbers(4, 4).exp().permute(1, 0)) * 2,
                           numbers(4, 4).exp()),
    "all and each": lambda: (numbers(4, 6) / numbers(4, 6).sum(),),
    "convolution": lambda: (numbers(1, 1, 6, 6).conv2d(numbers(2, 1, 3, 3)),),
    "padded": lambda: (numbers(4, 6).exp().pad((1, 1)).sum(1).exp().sum(0),),
    "reshaped": lambda: (numbers(4, 6).sum(1), numbers(4, 6).sum(1).reshape(2, 2) * 2),
    "whole and part": lambda: (whole_and_part(numbers(6), numbers(6)),),
    "assign": lambda: (shifted(numbers(4, 6)),),
    "in place": lambda: (numbers(4, 6).assign(numbers(4, 6).softmax(1)),),
    "assign twice": lambda: (assigned_twice(numbers(4, 6)),),
    "variable": lambda: (scaled(numbers(4, 6)).sum(1),),
    "sum of sums": lambda: ((numbers(4, 6).sum(1).exp() * 3).sum(),),
}
each_program = pytest.mark.parametrize("make", PROGRAMS.values(), ids=PROGRAMS)


# Recorded numbers: a change of one of these is a decision, and is to be noticed.


@verifies("fusion.stages.together")
@pytest.mark.parametrize(("name", "kernels", "stages"), [
    ("map", 1, [1]), ("softmax", 1, [4]), ("layer norm", 1, [3]), ("mean and variance", 1, [2]),
    ("attention", 1, [6]), ("product", 1, [1]), ("two products", 1, [2]),
    ("sum of sums", 1, [2]), ("in place", 1, [4]),
])
def test_one_kernel_each(name: str, kernels: int, stages: list[int]) -> None:
    plan = plan_of(*PROGRAMS[name]())
    assert len(plan.kernels) == kernels
    assert [kernel.stages for kernel in plan.kernels] == stages


@verifies("fusion.stages.together")
def test_large_ones_are_one_kernel_too() -> None:
    x = Tensor.empty(512, 1024).contiguous()
    x.uop = Tensor(np.zeros((512, 1024), np.float32)).uop
    assert len(plan_of(x.softmax(1)).kernels) == 1
    assert len(plan_of(x.log_softmax(1)).kernels) == 1
    assert len(plan_of(normalised(x)).kernels) == 1
    assert len(plan_of(x.mean(1), x.var(1), x.max(1)).kernels) == 1
    q = Tensor(np.zeros((2, 8, 128, 64), np.float32))
    plan = plan_of(q.scaled_dot_product_attention(q, q))
    assert len(plan.kernels) == 1
    assert plan.kernels[0].ast.arg.prefix


@verifies("fusion.stages.together")
def test_outputs_of_one_input_are_read_once() -> None:
    x = numbers(64, 64)
    plan = plan_of(x.sum(1), x.max(1), (x * 2).min(1))
    assert arguments(plan) == [4]


@verifies("fusion.stages.together")
def test_what_reads_nothing_is_stored_together() -> None:
    x = numbers(8, 6)
    same = [x * 2, Tensor.full((8, 6), 3.0), x < x, Tensor.full((8, 6), 5, dtype="int32")]
    other = [Tensor.zeros(4, 6), x.sum()]
    plan = plan_of(*same, *other)
    assert sorted(kernel.stages for kernel in plan.kernels) == [1, 1, 4]
    Tensor.realize(*same, *other)
    with Context(FUSE=0):
        apart = numbers(8, 6) * 2
        assert same[0].tolist() == apart.tolist()
    assert [each.tolist()[7][5] for each in same[1:]] == [3.0, False, 5]
    assert other[0].tolist() == [[0.0] * 6] * 4


@verifies("fusion.stages.feeding")
def test_what_is_made_for_one_stage_is_in_its_kernel() -> None:
    """Two small stages that read nothing in common; the large one reads both."""
    def scaled() -> Tensor:
        scales = numbers(64, 8).exp().exp().reshape(64, 8, 1)
        return (numbers(64, 8, 32) * scales).sum((1, 2))
    made = scaled() * scaled()
    assert [kernel.stages for kernel in plan_of(made).kernels] == [3]
    found = made.numpy()
    with Context(FUSE=0):
        np.testing.assert_allclose(found, (scaled() * scaled()).numpy(), rtol=1e-5)


@verifies("fusion.stages.feeding")
def test_what_is_as_large_as_its_reader_is_apart() -> None:
    def repeated() -> Tensor:
        return numbers(64, 512).exp().exp().reshape(64, 512, 1).expand(64, 512, 4)
    one, two = repeated(), repeated()
    assert sorted(kernel.stages for kernel in plan_of((one * two).sum(2)).kernels) == [1, 2]


@verifies("fusion.cut.same")
def test_a_mark_of_no_gradient_changes_nothing() -> None:
    weight, other, rows = numbers(32, 24), numbers(16, 32), numbers(4, 24)

    def layer() -> Tensor:
        x = rows * (rows * rows).mean(1, keepdim=True).rsqrt()
        hidden = (x.reshape(4, 1, 3, 8) * weight.reshape(32, 3, 8)).sum((2, 3)).silu()
        return (hidden.reshape(4, 1, 4, 8) * other.reshape(16, 4, 8)).sum((2, 3))

    def cheap() -> Tensor:
        value = rows
        for _ in range(5):
            value = value * 2 + 1
        return value + value.flip(0) * 3
    for make in (layer, cheap):
        with_gradients = make()
        with no_grad():
            without = make()
        both = [[(kernel.name, kernel.stages) for kernel in plan_of(made).kernels]
                for made in (with_gradients, without)]
        assert both[0] == both[1]
        np.testing.assert_array_equal(with_gradients.numpy(), without.numpy())
    value = cheap()  # what is asked for by two names is stored once
    assert [kernel.stages for kernel in plan_of(value, value.detach()).kernels] == [1]


@verifies("fusion.cut.same")
@pytest.mark.parametrize("limits", [FusionLimits(stage_operations=8), FusionLimits(arguments=5)])
def test_marks_count_for_no_limit(limits: FusionLimits) -> None:
    """Neither for the length of a stage nor for what a kernel may read."""
    rows = [numbers(4, 6 + place) for place in range(9)]

    def long() -> Tensor:
        value = rows[0]
        for other in rows:
            value = (value + other[:, :6].exp()) * 2
        return value.sum(1, keepdim=True) + value
    plain = long()
    with no_grad():
        marked = long()
    both = [[(kernel.name, kernel.stages) for kernel in plan_of(made, limits=limits).kernels]
            for made in (plain, marked)]
    assert both[0] == both[1] and len(both[0]) > 1


@verifies("fusion.cut.same")
def test_a_detached_value_in_memory_keeps_its_own() -> None:
    """What is asked for is the memory of its source only where nobody else has that."""
    x = numbers(4)
    before = x.numpy()
    kept = x.detach().reshape(2, 2).detach().realize()
    x += 1
    np.testing.assert_array_equal(x.numpy(), before + np.float32(1))
    np.testing.assert_array_equal(kept.numpy().reshape(4), before)


# Values


@verifies("fusion.value.equal")
@verifies("fusion.switch.meaning")
@each_program
def test_fused_and_unfused_agree(make: Callable[[], tuple[Tensor, ...]]) -> None:
    tensors = make()
    Tensor.realize(*tensors)
    fused = [tensor.numpy() for tensor in tensors]
    with Context(FUSE=0):
        tensors = make()
        Tensor.realize(*tensors)
        unfused = [tensor.numpy() for tensor in tensors]
    for one, other in zip(fused, unfused, strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-5, atol=1e-6)


@verifies("fusion.switch.meaning")
@each_program
def test_unfused_kernels_do_one_thing(make: Callable[[], tuple[Tensor, ...]]) -> None:
    effects = collect([tensor.uop for tensor in make()])
    cuts = choose_cuts(effects.roots, effects.nodes, FusionLimits(), False)
    for stage in StageGraph(cuts.reasons, cuts.alias, Place("REFERENCE")).build().stages:
        assert stage.form.operations <= 1
    plan = plan_of(*make(), fuse=False)
    assert all(kernel.stages == 1 for kernel in plan.kernels)


# Cuts


@verifies("fusion.cut.once")
@each_program
def test_no_reduction_is_repeated(make: Callable[[], tuple[Tensor, ...]]) -> None:
    """The kernels combine no more elements than the reductions of the program have."""
    tensors = make()
    effects = collect([tensor.uop for tensor in tensors])
    wanted = sum(int(np.prod(node.src[0].shape or ())) for node in effects.nodes
                 if node.op is Ops.REDUCE)
    done = sum(sum(reductions(kernel.ast).values()) for kernel in plan_of(*tensors).kernels)
    assert done <= wanted


@verifies("fusion.cut.once")
def test_a_reduction_with_two_users_is_cut() -> None:
    x = numbers(8, 4)
    s = x.sum(1, keepdim=True)
    row, places = s.reshape(8), Tensor([0, 3, 3, 0, 7] * 4).realize()
    for values in [(s * 2, s.exp()), (x / s,), (s.permute(1, 0) + 1, s - 1), (s + s.flip(0),),
                   (row.unfold(0, 3) + 1,), (row[places] * 2,)]:
        kernels = plan_of(*values).kernels
        assert sum(sum(reductions(kernel.ast).values()) for kernel in kernels) == 32


@verifies("fusion.cut.own")
def test_contiguous_is_storage_of_its_own() -> None:
    x = numbers(8, 4)
    kept = (x * 2).contiguous()
    user = kept + 1
    effects = collect([user.uop])
    cuts = choose_cuts(effects.roots, effects.nodes, FusionLimits(), True)
    assert cuts.reasons[kept.uop].startswith("contiguous")
    stages = StageGraph(cuts.reasons, cuts.alias, Place("REFERENCE")).build().stages
    assert [stage.form.operations for stage in stages] == [1, 1]
    flipped = (x.permute(1, 0)).contiguous()
    kernels = plan_of(flipped).kernels
    assert len(kernels) == 1
    assert arguments(plan_of(flipped)) == [2]


@verifies("fusion.cut.device+2")
def test_another_device_gets_a_copy() -> None:
    x = numbers(8, 4)
    there = (x + 1).to("CPU") * 3
    plan = plan_of(there)
    kinds = [(kernel.task is not None, kernel.device) for kernel in plan.kernels]
    assert kinds == [(False, "REFERENCE"), (True, "CPU"), (False, "CPU")]
    reasons = [reason for *_, reason in plan.boundaries]
    assert all(reason.startswith("device: ") for reason in reasons)
    assert [len(kernel.arguments) for kernel in plan.kernels] == [2, 2, 2]


@verifies("fusion.cut.again+2")
def test_what_is_dear_is_stored_and_what_is_cheap_is_not() -> None:
    x = numbers(8, 4)

    def cut(*tensors: Tensor) -> int:
        effects = collect([tensor.uop for tensor in tensors])
        return len(choose_cuts(effects.roots, effects.nodes, FusionLimits(), True).reasons)

    cheap, dear = x + 1, x.exp()
    assert cut(cheap * 2, cheap * 3) == 2
    assert cut(dear * 2, dear * 3) == 3
    assert cut(dear * 2) == 1
    row, dear_row = numbers(1, 4) + 1, (numbers(1, 4)).exp()
    assert cut(x * row.expand(8, 4)) == 1
    assert cut(x * dear_row.expand(8, 4)) == 2


@verifies("fusion.cut.again+2")
def test_wider_whole_numbers_and_other_bits_cost_nothing() -> None:
    """A half of two bytes by which the numbers behind them are scaled, as in packed weights."""
    blocks = Tensor(np.arange(8 * 4 * 34, dtype=np.uint8).reshape(8, 4, 34)).realize()
    low, high = (blocks[..., place].cast(dtypes.uint16) for place in (0, 1))
    scale = (low | (high << 8)).bitcast(dtypes.float16).float()
    plan = plan_of((scale.unsqueeze(-1) * blocks[..., 2:].float()).sum((1, 2)))
    assert [kernel.stages for kernel in plan.kernels] == [1]


@verifies("fusion.cut.again+2")
def test_what_no_cache_keeps_is_computed_again() -> None:
    """Rows that a kernel keeps are stored, and so is what fits a cache, or has a third user."""
    def cut(limits: FusionLimits, more: bool = False) -> int:
        x = numbers(4, 1024)
        power = x.exp()
        found = [power * power.sum(1, keepdim=True), *([power + 1] if more else [])]
        effects = collect([tensor.uop for tensor in found])
        return len(choose_cuts(effects.roots, effects.nodes, limits, True).reasons)

    assert cut(FusionLimits(cached_bytes=1 << 13, local_bytes=1 << 11)) == 2
    assert cut(FusionLimits(cached_bytes=1 << 13, local_bytes=1 << 12)) == 3
    assert cut(FusionLimits(cached_bytes=1 << 14, local_bytes=1 << 11)) == 3
    assert cut(FusionLimits(cached_bytes=1 << 13, local_bytes=1 << 11), more=True) == 4


@verifies("fusion.cut.again+2")
def test_parts_are_not_computed_again() -> None:
    """Users of different parts; parts that overlap are, as is what lies around padding."""
    x = numbers(8, 6).exp()

    def cut(*tensors: Tensor) -> int:
        effects = collect([tensor.uop for tensor in tensors])
        return len(choose_cuts(effects.roots, effects.nodes, FusionLimits(), True).reasons)

    assert cut(x[:, :3] * x[:, 3:]) == 1
    assert cut(x[:, :5] * x[:, 1:]) == 2
    assert cut(x[:, :3].pad(((0, 0), (1, 0))) + 1) == 1
    assert cut(x.pad(((0, 0), (6, 0))) + 1) == 2


@verifies("fusion.cut.again+2")
def test_the_gradient_of_a_pool_stores_no_windows() -> None:
    x = numbers(1, 2, 8, 8)
    x.requires_grad = True
    for size, step in ((3, 1), (3, 2)):
        (kernel,) = plan_of(x.max_pool2d(size, step, padding=1).sum().gradient(x)[0]).kernels
        assert kernel.stages == 3  # the maxima, the shares, the sums


@verifies("fusion.cut.again+2")
def test_a_scalar_costs_nothing() -> None:
    """It is computed outside all loops, so it is neither stored nor computed for each element."""
    rate = (Tensor(0.5).contiguous().realize().exp() + 1).reshape(())
    plan = plan_of((numbers(8, 4) * rate + rate).relu() * rate)
    assert [kernel.stages for kernel in plan.kernels] == [1]


# Groups


OPERATIONS: list[Callable[[Tensor, Tensor], Tensor]] = [
    lambda a, b: a + b, lambda a, b: a @ b, lambda a, b: a.softmax(1) - b,
    lambda a, b: a.permute(1, 0).exp() * b, lambda a, b: a.sum(0, keepdim=True) + b,
    lambda a, b: (a + b).contiguous()]


def written_by_earlier_kernels(plan: Plan) -> None:
    """Every version that a kernel reads or replaces comes from memory or a kernel before it."""
    writers: dict[tuple[int, int], list[int]] = defaultdict(list)
    for kernel, (_, writes) in enumerate(plan.accesses):
        for touch in writes:
            writers[touch.storage, touch.version].append(kernel)
    for kernel, (reads, writes) in enumerate(plan.accesses):
        needed = {(t.storage, t.version) for t in reads}
        needed |= {(t.storage, t.version - 1) for t in writes}
        for storage, version in needed:
            if version > 0:
                assert writers[storage, version], f"nobody writes version {version} of {storage}"
                assert max(writers[storage, version]) <= kernel
            if (storage, version) in {(t.storage, t.version) for t in reads} and version > 0:
                assert max(writers[storage, version]) < kernel, \
                    f"kernel {kernel} reads what kernel {writers[storage, version]} writes"


@verifies("fusion.group.acyclic")
def test_random_graphs_have_no_circle() -> None:
    """Kernels come in a legal order: every dependence goes forward."""
    chosen = random.Random(7)
    for _ in range(60):
        pool = [numbers(4, 4), numbers(4, 4) + 1]
        for _ in range(12):
            a, b = chosen.choice(pool), chosen.choice(pool)
            pool.append(chosen.choice(OPERATIONS)(a, b))
        plan = plan_of(*chosen.sample(pool, 3), limits=FusionLimits(
            stages=chosen.choice([2, 3, 32]), small_kernel=0, parallel=2))
        written_by_earlier_kernels(plan)
        assert sorted(plan.order) == list(range(len(plan.kernels)))


@verifies("fusion.group.acyclic")
def test_three_stages_in_a_circle() -> None:
    """C needs A and B, B needs A and may not share A's kernel: {A, C} and {B} would wait."""
    x = numbers(64, 64)
    first = x.exp()
    middle = first.sum((0, 1), keepdim=True)
    last = x * 3 + middle.expand(64, 64)  # reads what the first kernel reads
    limits = FusionLimits(small_kernel=0, parallel=16)
    plan = plan_of(first, middle, last, limits=limits)
    assert len(plan.kernels) == 3
    written_by_earlier_kernels(plan)


def written_before_read(kernel: UOp) -> None:
    """What a kernel reads of its own writing is of the same iteration; what it reads of memory is
    not written before, nor by another iteration."""
    writer: dict[tuple[Buffer, int], set[int]] = defaultdict(set)
    seen = list(events(kernel))
    for event in seen:
        if event.writes:
            writer[event.buffer, event.place].add(event.iteration)
    done: set[tuple[Buffer, int, int]] = set()
    for event in seen:
        key = event.buffer, event.place, event.iteration
        if event.writes:
            done.add(key)
        elif event.buffer[0] is Ops.LOCAL:
            assert key in done, f"{event} reads what its iteration has not written"
        else:
            others = writer[event.buffer, event.place] - {event.iteration}
            assert not others, f"{event} reads what iterations {others} write"
            assert key not in done, f"{event} reads memory after the kernel has written it"


@verifies("fusion.group.legal")
@each_program
def test_stages_exchange_within_one_iteration(make: Callable[[], tuple[Tensor, ...]]) -> None:
    for kernel in plan_of(*make()).kernels:
        written_before_read(kernel.ast)
        targets: dict[Any, set[int]] = defaultdict(set)
        for stage, store in enumerate(kernel.ast.src):
            targets[store.src[0].src[0]].add(stage)
        assert all(len(stages) == 1 for stages in targets.values())


@verifies("fusion.group.legal")
@pytest.mark.parametrize("limits", [FusionLimits(small_kernel=0, parallel=1),
                                    FusionLimits(small_kernel=1 << 30, parallel=1)])
def test_whatever_the_prices_are(limits: FusionLimits) -> None:
    for make in PROGRAMS.values():
        for kernel in plan_of(*make(), limits=limits).kernels:
            written_before_read(kernel.ast)


@verifies("fusion.group.legal")
def test_writes_of_parts_are_kernels_of_their_own() -> None:
    x = numbers(6)
    reader = x * 2
    x[:3] = x[3:] + 1
    x[4:] = x[:2]
    after = x * 3
    plan = plan_of(x, reader, after)
    for kernel in plan.kernels:
        written_before_read(kernel.ast)
    assert len(plan.kernels) > 1
    assert any("memory" in reason for *_, reason in plan.boundaries)


# Limits


def crowds() -> list[tuple[str, tuple[Tensor, ...]]]:
    """Programs with more inputs than one kernel takes, in every way to come by them."""
    many = leaves(110, 4, 4)
    sums = [total(leaves(15, 4, 4)).sum(1) for _ in range(6)]
    state = numbers(8, 4)
    state[:4] = total(many[:29]).permute(1, 0)
    costly = [t.exp().sin() for t in many[:25]]
    return [("one sum", (total(many),)),
            ("views", (total(many[:25]).permute(1, 0) + total(many[25:50]).permute(1, 0),)),
            ("reductions", (total(sums),)),
            ("a reduction of many", ((total(many[:25]).sum(1, keepdim=True)
                                      + total(many[25:50])).contiguous(),)),
            ("a view write", (state,)),
            ("shared", (total([a + b for a, b in zip(many, costly, strict=False)]),
                        total([b * 2 for b in costly]))),
            ("several", tuple(t + 1 for t in many[:40])),
            ("pairs", tuple(a * b for a, b in itertools.pairwise(many[:40])))]


@verifies("fusion.limit.device")
@pytest.mark.parametrize("limit", [4, 30])
def test_no_kernel_has_too_many_arguments(limit: int) -> None:
    for name, tensors in crowds():
        plan = plan_of(*tensors, limits=FusionLimits(arguments=limit))
        assert max(arguments(plan)) <= limit, name


@verifies("fusion.limit.device")
def test_a_crowd_is_cut_into_few_kernels() -> None:
    plan = plan_of(total(leaves(100, 4)), limits=FusionLimits(arguments=31))
    assert len(plan.kernels) == 4
    pairs: list[Tensor] = leaves(128, 4)
    while len(pairs) > 1:  # a balanced tree of additions
        pairs = [a + b for a, b in zip(pairs[::2], pairs[1::2], strict=True)]
    assert len(plan_of(pairs[0], limits=FusionLimits(arguments=33)).kernels) <= 8


@verifies("fusion.limit.device")
@verifies("fusion.value.equal")
def test_a_crowd_has_the_right_sum() -> None:
    for name, tensors in crowds():
        expected = [t.uop for t in tensors]
        with Context(FUSE=0):
            plain = [Tensor(uop.replace(tag="again")) for uop in expected]
            values = [p.numpy() for p in plain]
        for tensor, value in zip(tensors, values, strict=True):
            np.testing.assert_allclose(tensor.numpy(), value, rtol=1e-5, err_msg=name)


@verifies("fusion.limit.least+2")
def test_a_dropout_is_no_crowd() -> None:
    x, w = numbers(8, 16, 32), numbers(32, 32)
    w.requires_grad = True
    with Tensor.train():
        once = (x + x @ w).dropout(0.1)
        loss = (once + once @ w).dropout(0.1).square().mean()
    loss.backward()
    assert w.grad is not None
    plan = plan_of(loss, w.grad, limits=FusionLimits(arguments=20))
    assert not [why for *_, why in plan.boundaries if why.startswith("argument limit")]


@verifies("fusion.limit.least+2")
def test_a_product_of_crowds_is_cut_below_its_expansion() -> None:
    left, right = total(leaves(3, 40)), total(leaves(3, 50))
    plan = plan_of(left.reshape(40, 1) * right.reshape(1, 50), limits=FusionLimits(arguments=6))
    assert max(arguments(plan)) <= 6
    assert [storage.size for storage in plan.storages.values()].count(2000) == 1


@verifies("fusion.limit.device")
def test_local_memory_is_not_exceeded() -> None:
    x = numbers(32, 64)
    values = normalised(x.exp())
    for allowed in (64, 300, 600, 1 << 16):  # a row is 256 bytes
        plan = plan_of(values, limits=FusionLimits(local_bytes=allowed))
        for kernel in plan.kernels:
            sizes = {node: node.arg[1] * node.dtype.itemsize for node in kernel.ast.toposort()
                     if node.op is Ops.LOCAL}
            assert sum(sizes.values()) <= allowed
    assert len(plan_of(values, limits=FusionLimits(local_bytes=64)).kernels) > 1
    assert len(plan_of(values, limits=FusionLimits(local_bytes=1 << 16)).kernels) == 1
    said = [why for *_, why in plan_of(values, limits=FusionLimits(local_bytes=64)).boundaries]
    assert any(why.startswith("local memory: ") for why in said)


@verifies("fusion.limit.parallel+2")
def test_large_kernels_keep_something_to_share() -> None:
    flat = Tensor(np.zeros(1 << 16, np.float32))
    for value in (flat.softmax(0), flat / flat.sum(), flat / flat.sum(0, keepdim=True)):
        kernels = plan_of(value).kernels
        assert len(kernels) > 1
        last = kernels[-1].ast.arg.prefix
        assert [int(loop.src[0].arg) for loop in last] == [1 << 16]


# Reasons


def replaced(plan: Plan, old: Touch, version: int) -> bool:
    """Whether a later version, up to the given one, overwrites all bytes of a write."""
    return any(new.storage == old.storage and old.version < new.version <= version
               and new.start <= old.start and old.stop <= new.stop
               for _, writes in plan.accesses for new in writes)


@verifies("fusion.boundary.reason")
@each_program
def test_what_crosses_memory_has_a_reason(make: Callable[[], tuple[Tensor, ...]]) -> None:
    for limits, fuse in ((FusionLimits(), True), (FusionLimits(), False),
                         (FusionLimits(small_kernel=0, local_bytes=32), True)):
        plan = plan_of(*make(), limits=limits, fuse=fuse)
        crossing = set()
        for after, (reads, _) in enumerate(plan.accesses):
            for before, (_, writes) in enumerate(plan.accesses):
                crossing |= {(before, after, w.storage) for w in writes for r in reads
                             if before != after and w.storage == r.storage and w.overlaps(r)
                             and w.version <= r.version and not replaced(plan, w, r.version)}
        given = {(b, a, s) for b, a, s, why in plan.boundaries if why.strip()}
        assert crossing <= given


# Assembling


@verifies("fusion.kernel.canonical+2")
@each_program
def test_equal_work_is_one_kernel(make: Callable[[], tuple[Tensor, ...]]) -> None:
    one, other = plan_of(*make()), plan_of(*make())
    assert [k.ast for k in one.kernels] == [k.ast for k in other.kernels]
    first = make()[0].schedule()
    run_schedule(first)
    assert all(item.ast.op is Ops.SINK for item in first if item.program is not None)


# The tests themselves


# What is kept in memory


PLENTY, SCARCE = (FusionLimits(small_kernel=0, memory_worth=worth) for worth in (1 << 60, 0))


def forward_and_back(size: int = 24, layers: int = 3, change: bool = False,
                     ) -> tuple[Tensor, ...]:
    """Layers that mix all rows, and what gradients of them need in the opposite order.

    With `change`, a factor that all layers have used is overwritten between the two halves.
    """
    hidden, factor = numbers(size, size), numbers(size)
    weights = [(numbers(size, size) * 0.1 + i).realize() for i in range(layers)]
    kept = []
    for weight in weights:
        mixed = weight @ hidden
        gate = (mixed * factor).sigmoid()
        kept.append((hidden, mixed, gate))
        hidden = (mixed * gate).T  # the next layer walks over it in another direction
    if change:
        factor.assign(factor + hidden.sum(0))
    back, found = hidden * factor, [factor]
    for weight, (before, mixed, gate) in zip(weights[::-1], kept[::-1], strict=True):
        slope = back.T * (gate + mixed * (gate - gate * gate))
        back = weight.T @ slope
        found.append(weight.assign(weight - slope @ before.T))
    return *found, back


def crossing_bytes(plan: Plan) -> int:
    return sum(memory.lower_bound for memory in plan.memories.values())


@verifies("fusion.late.chosen")
def test_what_follows_from_others_is_not_kept() -> None:
    kept = crossing_bytes(plan_of(*forward_and_back(), limits=PLENTY))
    assert crossing_bytes(plan_of(*forward_and_back(), limits=SCARCE)) < kept


def reduces(plan: Plan) -> int:
    """How many reductions the kernels of a plan have."""
    return sum(len(reductions(kernel.ast)) for kernel in plan.kernels)


def stages(plan: Plan) -> int:
    return sum(kernel.stages for kernel in plan.kernels)


@verifies("fusion.late.chosen")
def test_only_what_is_cheap_is_computed_again() -> None:
    plenty, scarce = (plan_of(*forward_and_back(), limits=each) for each in (PLENTY, SCARCE))
    assert stages(scarce) > stages(plenty)
    assert reduces(scarce) == reduces(plenty)  # none is done twice
    dear = plan_of(*forward_and_back(), limits=replace(SCARCE, late=0))
    assert stages(dear) == stages(plenty)


@verifies("fusion.switch.meaning")
def test_small_programs_can_be_planned_like_large_ones() -> None:
    expected = [each.numpy() for each in forward_and_back()]
    counts = []
    for scarce in (0, 1):
        with Context(SCARCE=scarce, POISON=1):
            found = forward_and_back()
            document = Tensor.schedule_document(*found)
            counts.append(sum(kernel["stages"] for kernel in document["kernels"]))
            for one, other in zip(found, expected, strict=True):
                np.testing.assert_allclose(one.numpy(), other, rtol=1e-4, atol=1e-4)
    assert counts[0] < counts[1]


@verifies("fusion.switch.meaning")
def test_what_is_computed_again_comes_before_its_readers() -> None:
    """Also among several stages of one kernel."""
    def both() -> list[Any]:
        x = Tensor(np.arange(64, dtype=np.float32).reshape(8, 8) / 64)
        w = Tensor(np.cos(np.arange(64, dtype=np.float32)).reshape(8, 8))
        a = (x * 0.5 + 1).tanh()
        h = (a @ w).relu()
        results = [(a * h).sum(1), (a.softmax(1) * h.softmax(0)).sum()]
        total = sum(((each * each).sum() for each in results), start=Tensor(0.0))
        results += total.gradient(x, w)
        Tensor.realize(*results)
        return [each.numpy() for each in results]

    with Context(FUSE=0):
        expected = both()
    with Context(SCARCE=1, POISON=1):
        for one, other in zip(both(), expected, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


@verifies("fusion.late.same")
def test_nothing_is_computed_again_where_that_is_not_wanted() -> None:
    counts = []
    for wanted in (1, 0):
        with tight_limits(), Context(REMATERIALIZE=wanted):
            document = Tensor.schedule_document(*forward_and_back())
            counts.append(sum(kernel["stages"] for kernel in document["kernels"]))
    assert counts[0] > counts[1] == stages(plan_of(*forward_and_back(), limits=PLENTY))


@verifies("fusion.late.same")
def test_what_is_computed_again_has_its_value() -> None:
    """With every value that can be made again made again, and every kernel cut that can be."""
    for change in (True, False):
        expected = [each.numpy() for each in forward_and_back(change=change)]
        with tight_limits():
            for seed in (-1, 0, 1, 2):
                with Context(ORDER_SEED=seed, POISON=1):
                    found = forward_and_back(change=change)
                    Tensor.realize(*found)
                    for one, other in zip(found, expected, strict=True):
                        np.testing.assert_allclose(one.numpy(), other, rtol=2e-5, atol=1e-5)


@contextmanager
def tight_limits() -> Iterator[None]:
    """Let memory count as scarce for programs of every size."""
    schedule_cache.clear()
    limits = partial(FusionLimits, memory_worth=0, small_kernel=0)
    with patch("impl.realize.environment.FusionLimits", limits):
        yield
    schedule_cache.clear()


@verifies("fusion.split.product")
def test_a_large_product_has_one_result() -> None:
    x, g, w, m = numbers(256, 64), numbers(256, 64) * 1, numbers(64, 64), numbers(64, 64) * 1
    momentum = m * 0.9 + x.T @ g
    plan = plan_of(momentum, w - momentum * 0.01)
    assert [kernel.ast.arg.name for kernel in plan.kernels] == ["reduce_64_64", "map_64_64"]
    assert [why for *_, why in plan.boundaries if why.startswith("product: ")]


@verifies("fusion.split.product")
def test_a_small_product_or_one_of_rows_stays_where_it_is_used() -> None:
    few = numbers(8, 4) @ numbers(4, 8)  # soon done
    assert len(plan_of(few + 1, few * 2).kernels) == 1
    for size, inner in ((127, 16), (128, 4)):  # a sum of sixteen; of four, to be stored in memory
        short = numbers(size, inner) @ numbers(inner, size)
        assert len(plan_of(short + 1, short * 2).kernels) == 1
    long = numbers(128, 5) @ numbers(5, 128)
    assert len(plan_of(long + 1, long * 2).kernels) == 2
    column = (numbers(512, 512) * numbers(512)).sum(1)  # no columns
    assert len(plan_of(column + 1, column * 2).kernels) == 1
    scores = numbers(64, 64) @ numbers(64, 64)  # its rows are the kernel's loops
    assert len(plan_of(scores.softmax(1)).kernels) == 1


@verifies("fusion.stages.product")
def test_a_convolution_is_not_joined_where_it_has_no_tile() -> None:
    """Nor a depthwise one; a product whose rows are the loops of the kernel is."""
    image, window, row = numbers(2, 16, 12, 12), numbers(16, 16, 3, 3), numbers(16, 1, 5, 5)
    for made in (image.conv2d(window), image.conv2d(row, groups=16)):
        plan = plan_of(made.softmax(1))  # per pixel: the channels are loops of their own
        assert [len(kernel.ast.src) > 1 for kernel in plan.kernels] == [False, True]
        assert [why for *_, why in plan.boundaries if why.startswith("product: ")]
    signal = numbers(2, 32, 60)  # the places lie side by side, and share the weights
    plan = plan_of((signal - signal.mean(1, keepdim=True)).conv1d(numbers(48, 32, 1)))
    assert len(plan.kernels[-1].ast.src) == 1 < len(plan.kernels)
    layer = numbers(64, 64) @ numbers(64, 64)
    assert len(plan_of((layer - layer.mean(1, keepdim=True)) @ numbers(64, 64)).kernels) == 1
    small = numbers(2, 3, 5, 5).conv2d(numbers(3, 3, 3, 3))
    assert len(plan_of(small.softmax(1)).kernels) == 1


@verifies("fusion.split.pays+2")
def test_a_kernel_is_cut_where_it_needs_too_much_memory_at_once() -> None:
    def branches() -> list[Tensor]:
        """Six values from one input, made in one kernel; each is used up by a product."""
        x = numbers(24, 24)
        return [(x * (i + 2)).contiguous().T @ (x + i).contiguous() for i in range(6)]

    whole = plan_of(*branches(), limits=replace(SCARCE, memory_rounds=0))
    cut = plan_of(*branches(), limits=SCARCE)
    assert crossing_bytes(cut) < crossing_bytes(whole)
    assert len(cut.kernels) > len(whole.kernels)


@verifies("schedule.cost.linear")
def test_many_writes_of_one_buffer_are_looked_at_once_each() -> None:
    def looks(rows: int) -> int:
        seen = 0

        def counted(past: Any, kernel: int, storage: int) -> Any:
            nonlocal seen
            found = original(past, kernel, storage)
            seen += 1 + len(found)
            return found

        state = numbers(rows, 4)
        for row in range(rows):
            state[row] = float(row)
        with patch.object(History, "_of", staticmethod(counted)):
            plan_of(state, state.sum())
        return seen

    original = History._of
    few, many = looks(20), looks(200)
    assert 0 < few and many <= 12 * few


@verifies("fusion.stages.product")
def test_elements_lie_side_by_side_along_the_last_axis_that_has_several() -> None:
    rows, columns = new_range(4, RangeKind.LOOP, 0), new_range(8, RangeKind.LOOP, 1)
    zero = UOp.const(dtypes.index, 0)
    assert columns in innermost(Pattern((4, 8, 1), (rows, columns, zero)))
    assert rows not in innermost(Pattern((4, 8, 1), (rows, columns, zero)))
    assert not innermost(Pattern((1, 1), (zero, zero)))


@verifies("fusion.stages.strips")
@pytest.mark.parametrize("first", [0, 1])
def test_a_small_stage_does_not_turn_a_large_one(first: int) -> None:
    x, y, b = numbers(4, 256), numbers(4, 256), numbers(256).realize()
    w = numbers(256, 256).realize()
    gradient = y.T @ (x + b).relu()
    made = w.assign(w - gradient), b.assign(b * 0.5)
    plan = plan_of(made[first], made[1 - first])
    assert {kernel.ast.arg.name for kernel in plan.kernels} == {"reduce_256_256", "map_256"}
    # What the small stage makes is read by the large one: the same.
    scale = (numbers(256) * 2 + 1).sin().exp().sin().exp()
    plan = plan_of(numbers(256, 256) * scale + scale.sqrt(), limits=FusionLimits(recompute=0))
    assert [kernel.ast.arg.name for kernel in plan.kernels] == ["map_256", "map_256_256"]
    assert {why for *_, why in plan.boundaries} == {
        "order: a large stage would be computed in narrow strips"}


@verifies("fusion.stages.strips")
def test_what_is_small_or_has_rows_of_its_own_is_joined() -> None:
    b, w = numbers(127).realize(), numbers(128, 127).realize()  # less than 64 KiB
    plan = plan_of(w.assign(w - b), b.assign(b * 0.5))
    assert len(plan.kernels) == 1
    b, w = numbers(256).realize(), numbers(256, 256).realize()  # a number for each row
    plan = plan_of(w.assign(w - b.reshape(256, 1)), b.assign(b * 0.5))
    assert len(plan.kernels) == 1
    x = numbers(256, 64)  # both stages have as much to do
    assert len(plan_of(x / x.sum(0)).kernels) == 1
