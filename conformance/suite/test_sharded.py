"""Meshes: a value that is laid on several devices is the value of one, and lies as it was asked.

The tier `sharded`.  Its rules stand in the chapters statements, multi and collectives.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count, product
from random import Random
from typing import Any

import numpy as np

from conformance import oracle, protocol
from conformance.generators import programs, sharded_programs
from conformance.generators.programs import Draft
from conformance.oracle import checker, laying
from conformance.protocol import Array, Program, Statement
from conformance.protocol.shapes import Limits, Mesh, mesh_of
from conformance.runner.subject import PROFILES, Failure, Refused, Subject
from conformance.suite import after, verifies

Cut = dict[str, int]


def _input(draft: Draft, array: Array) -> str:
    return draft.add("input", dtype=array.dtype.name, shape=list(array.shape),
                     data=protocol.encode(array))


def _shard(draft: Draft, source: str, mesh: Mesh, cut: Cut) -> str:
    return draft.add("shard", source, devices=list(mesh.devices),
                     axes=[list(axis) for axis in mesh.axes], cut=cut)


def _meshes(limits: Limits) -> Iterator[Mesh]:
    """Meshes of one axis and of two, of the first devices and of the last."""
    for sizes in ((2,), (3,), (1,), (2, 2), (2, 3), (4,), (6,)):
        devices = int(np.prod(sizes))
        if devices <= limits.devices and len(sizes) <= limits.axes:
            axes = tuple(zip(("rows", "columns"), sizes, strict=False))
            yield Mesh(tuple(range(devices)), axes)
            if devices > 1:
                yield Mesh(tuple(range(limits.devices))[::-1][:devices], axes)


def _some(subject: Subject, programs_: Iterator[Program], one_of: int) -> Iterator[Program]:
    """One of so many of the programs that are listed; all of them in the profile `long`."""
    step = 1 if subject.deep else one_of
    return (each for number, each in enumerate(programs_) if number % step == 0)


def _cuts(mesh: Mesh, shape: tuple[int, ...], limits: Limits) -> Iterator[Cut]:
    """Every way in which axes of a mesh cut a value of this shape."""
    names = [name for name, _ in mesh.axes]
    for axes in product((None, *range(len(shape))), repeat=len(names)):
        cut = {name: axis for name, axis in zip(names, axes, strict=True) if axis is not None}
        if limits.allow(mesh, cut, shape):
            yield cut


def _apart(subject: Subject) -> Limits:
    subject.require("sharded")
    return Limits.of(subject.info)


# Values ------------------------------------------------------------------------------------


def _values_only(subject: Subject, program: Program, *tiers: str) -> None:
    """Only the values: how they lie is a matter of other rules."""
    wrong = oracle.differences(program, subject.run(program, *tiers).values)
    if wrong:
        raise Failure("; ".join(wrong[:4]), program)


def _for_laid(subject: Subject, make: Callable[[int, int, Limits], Program],
              check: Callable[[Program], None], share: float = 1.0) -> None:
    """Apply a check to generated programs on meshes that an implementation can have."""
    limits, profile = _apart(subject), PROFILES[subject.profile]
    wanted = max(1, int(profile.examples * share))
    for number in count(subject.seed * 1_000_000):
        if not wanted or number > subject.seed * 1_000_000 + 100 * profile.examples:
            return
        program = make(number, profile.size, limits)
        if sharded_programs.shardings(program) and subject.supports(program):
            wanted -= 1
            try:
                subject.check_smallest(program, check)
            except Refused:
                continue


@verifies("multi.value.equal", observe="sharded")
@after("effects.value.eager")
def test_programs_on_meshes_have_the_values_of_one_device(subject: Subject) -> None:
    def check(program: Program) -> None:
        _values_only(subject, program)

    _apart(subject)
    for program in _some(subject, _reduced(subject), 7):
        subject.check_smallest(program, check)
    _for_laid(subject, sharded_programs.random_program, check)


def _reduced(subject: Subject) -> Iterator[Program]:
    """Sums, extremes and products along axes that are cut, where that divides and where not."""
    limits = Limits.of(subject.info)
    for mesh, length in product(_meshes(limits), (6, 5)):
        array = np.arange(1, length * length + 1, dtype=np.float32).reshape(length, length)
        for cut in _cuts(mesh, array.shape, limits):
            draft = Draft()
            laid = _shard(draft, _input(draft, array), mesh, cut)
            names = [draft.add(do, laid, axes=[0], keepdims=False) for do in ("sum", "min")]
            names += [draft.add("sum", draft.add("neg", laid), axes=[0, 1], keepdims=True),
                      draft.add("max", draft.add("neg", laid), axes=[1], keepdims=False),
                      draft.add("matmul", laid, draft.add("permute", laid, order=[1, 0])),
                      draft.add("flip", laid, axes=[0]), draft.add("cumsum", laid, axis=0)]
            draft.append({"do": "observe", "names": names})
            program = protocol.program(draft.statements)
            if subject.supports(program):
                yield program


@verifies("multi.value.equal", observe="sharded")
@after("effects.value.eager", "replay.state.eager")
def test_what_is_captured_on_a_mesh_is_replayed_there(subject: Subject) -> None:
    subject.require("replay")

    def check(program: Program) -> None:
        _values_only(subject, program, "replay")

    _for_laid(subject, sharded_programs.replayed_program, check)


# Where it lies -----------------------------------------------------------------------------


def _lies(subject: Subject, program: Program) -> None:
    """What the devices have is what they have to have."""
    wrong = laying.differences(program, subject.run(program).laid)
    if wrong:
        raise Failure("; ".join(wrong[:4]), program)


@verifies("multi.shard.asked+2", observe="sharded")
@verifies("multi.shard.parts+2", observe="sharded")
@verifies("statements.shard.bits", observe="sharded")
@verifies("statements.shards.order", observe="sharded")
def test_a_value_lies_as_it_was_laid(subject: Subject) -> None:
    """On every sort of mesh, cut in every way: evenly, with a smaller last part, with none."""
    def check(program: Program) -> None:
        seen = subject.run(program)
        wrong = laying.differences(program, seen.laid)
        data = program["statements"][0]["data"]
        if any(value.data != data for value in seen.values):
            wrong.append("a value that was laid on a mesh has other bits")
        if wrong:
            raise Failure("; ".join(wrong[:4]), program)

    for program in _some(subject, _laid_in_all_ways(_apart(subject)), 5):
        subject.check_smallest(program, check)


def _laid_in_all_ways(limits: Limits) -> Iterator[Program]:
    for shape, mesh in product(((6, 4), (5, 3), (12,), (1,), (0, 2), ()), _meshes(limits)):
        array = programs.pattern("float32", shape, 3)
        if array.size:
            array.reshape(-1)[-1] = -0.0
        for cut in _cuts(mesh, shape, limits):
            draft = Draft()
            laid = _shard(draft, _input(draft, array), mesh, cut)
            other = _shard(draft, _input(draft, array), mesh, {})
            like = draft.add("shard_like", other, laid)
            draft.append({"do": "shards", "names": [laid, other, like]})
            draft.append({"do": "observe", "names": [laid, draft.add("copy", like, device=0)]})
            yield protocol.program(draft.statements)


@verifies("multi.write.kept", observe="sharded")
@after("multi.shard.asked")
def test_what_is_written_to_lies_as_it_lay(subject: Subject) -> None:
    limits, random = _apart(subject), Random(0)
    views: list[list[Statement]] = [[], [{"do": "shrink", "bounds": [[0, 4], [1, 3]]}],
                                    [{"do": "flip", "axes": [0]}]]
    for number, (mesh, view, realized) in enumerate(
            product(_meshes(limits), views, (True, False))):
        if not subject.deep and number % 3:
            continue
        cuts = list(_cuts(mesh, (4, 6), limits))
        draft = Draft()
        target = _shard(draft, _input(draft, np.ones((4, 6), np.float32)), mesh,
                        random.choice(cuts))
        if realized:
            draft.append({"do": "realize", "names": [target]})
        value = _shard(draft, _input(draft, np.arange(24, dtype=np.float32).reshape(4, 6)), mesh,
                       random.choice(cuts))
        for step in view:
            value = draft.add(step["do"], value, **{key: step[key] for key in step if key != "do"})
        draft.append({"do": "store", "target": target, "view": view, "from": [value]})
        draft.append({"do": "shards", "names": [target]})
        program = protocol.program(draft.statements)
        if subject.supports(program):
            subject.check_smallest(program, lambda each: _lies(subject, each))
        else:
            subject.skipped += 1


@verifies("multi.shards.held+2", observe="sharded")
@after("multi.shard.asked")
def test_the_devices_have_what_they_are_said_to_have(subject: Subject) -> None:
    """Of computed values too, for which an implementation chooses how they lie."""
    _for_laid(subject, sharded_programs.random_program, lambda each: _lies(subject, each))


@verifies("collectives.reduce.equal+2", observe="sharded")
def test_the_same_part_has_the_same_bits_everywhere(subject: Subject) -> None:
    """Numbers whose sum is another one in each order, added up along the axis that is cut."""
    limits = _apart(subject)
    random = np.random.default_rng(0)
    array = (random.standard_normal((12, 5)) * 10.0 ** random.integers(-6, 7, (12, 5)))
    for mesh in _meshes(limits):
        cut = {mesh.axes[0][0]: 0}
        if not limits.allow(mesh, cut, (12, 5)):
            continue
        draft = Draft()
        laid = _shard(draft, _input(draft, array.astype(np.float32)), mesh, cut)
        total = draft.add("sum", laid, axes=[0], keepdims=False)
        copies = _shard(draft, total, mesh, {})
        draft.append({"do": "shards", "names": [total, copies]})
        program = protocol.program(draft.statements)
        if not subject.supports(program):
            subject.skipped += 1
            continue
        wrong = [each for each in laying.differences(program, subject.run(program).laid)
                 if "other bits" in each]
        if wrong:
            raise Failure("; ".join(wrong), program)


# Schedules ---------------------------------------------------------------------------------


@verifies("collectives.order.same", observe="sharded")
@after("schedule.document.schema")
def test_two_processes_send_the_same_in_the_same_order(subject: Subject) -> None:
    """Two fresh processes, whose hashes of strings differ, where there is such a thing."""
    subject.require("schedule")
    chosen = [each for each in (*_sent_beside(_apart(subject)),
                                *_some(subject, _reduced(subject), 7)) if subject.supports(each)]
    seen = []
    for hash_seed in ("1", "2"):
        other = subject.elsewhere(PYTHONHASHSEED=hash_seed)
        try:
            seen.append([other.documents(program) for program in chosen])
        finally:
            other.close()
        subject.examples += other.examples
    subject.met(sum("transfer" in kernel for documents in seen[0] for document in documents
                    for kernel in document["kernels"]), "no program made a transfer")
    for program, *both in zip(chosen, *seen, strict=True):
        wrong = [str(each) for pair in zip(*both, strict=True)
                 for each in checker.check_together(pair)]
        if wrong:
            raise Failure("; ".join(wrong[:4]), program)


@verifies("collectives.transfer.untouched+2", observe="sharded")
@after("schedule.document.schema")
def test_nobody_touches_what_is_being_sent(subject: Subject) -> None:
    """What a transfer reads and writes, as long as it may be under way."""
    subject.require("schedule")
    times = 0

    def check(program: Program) -> None:
        nonlocal times
        for document in subject.documents(program):
            times += sum("until" in each for each in document["kernels"])
            wrong = [str(each) for each in checker.check(document)
                     if each.rule == "collectives.transfer.untouched"]
            if wrong:
                raise Failure("; ".join(wrong[:4]), program)

    for program in (*_sent_beside(_apart(subject)), *_some(subject, _reduced(subject), 29)):
        if subject.supports(program):
            subject.check_smallest(program, check)
    subject.met(times, "no schedule says of a transfer until when it may be under way")


@verifies("collectives.rounds.matched+2", observe="sharded")
@verifies("collectives.rounds.complete+2", observe="sharded")
@after("schedule.document.schema")
def test_rounds_come_to_their_end_with_what_they_have_to_bring(subject: Subject) -> None:
    """Where a schedule lists what each device sends and receives in a transfer."""
    subject.require("schedule")
    kinds = set[str]()

    def check(program: Program) -> None:
        for document in subject.documents(program):
            kinds.update(each["collective"]["kind"] for each in document["kernels"]
                         if "rounds" in each.get("collective", {}))
            wrong = [str(each) for each in checker.check(document)
                     if each.rule.startswith("collectives.rounds.")]
            if wrong:
                raise Failure("; ".join(wrong[:4]), program)

    for program in (*_sent_beside(_apart(subject)), *_some(subject, _reduced(subject), 29)):
        if subject.supports(program):
            subject.check_smallest(program, check)
    subject.met(len(kinds), "no schedule lists the rounds of a transfer")


def _sent_beside(limits: Limits) -> Iterator[Program]:
    """Sums that are sent, beside work that needs nothing of them; then all are put together."""
    for mesh in _meshes(limits):
        cut = {mesh.axes[0][0]: 0}
        if not limits.allow(mesh, cut, (12, 12)):
            continue
        draft = Draft()
        values = [_shard(draft, _input(draft, programs.pattern("float32", (12, 12), seed)), mesh,
                         cut) for seed in (1, 2)]
        draft.append({"do": "realize", "names": values})
        sent = draft.add("contiguous", draft.add("sum", values[0], axes=[0], keepdims=False))
        beside = draft.add("contiguous", draft.add("mul", values[1], values[1]))
        total = draft.add("sum", draft.add("add", beside, values[1]), axes=[0], keepdims=False)
        draft.append({"do": "observe", "names": [draft.add("add", sent, total), beside]})
        yield protocol.program(draft.statements)


# Meshes that are none ----------------------------------------------------------------------


def _refused(subject: Subject, **changed: Any) -> None:
    """A program that lays a value on such a mesh is answered with an error."""
    draft = Draft()
    source = _input(draft, np.ones((4, 4), np.float32))
    program = protocol.program([
        *draft.statements,
        {"do": "shard", "to": "laid", "from": [source], "devices": [0, 1], "axes": [["rows", 2]],
         "cut": {"rows": 0}, **changed}, {"do": "observe", "names": ["laid"]}])
    subject.examples += 1
    try:
        subject.adapter.run(program, {"values"}, {})
    except protocol.ProtocolError:
        raise
    except Exception:  # whatever it is: what it says is its own affair
        return
    raise Failure(f"there is no such mesh: {mesh_of(program['statements'][1])}", program)


@verifies("multi.mesh.devices+2", observe="sharded")
def test_a_block_of_devices_that_is_none_is_refused(subject: Subject) -> None:
    subject.require("sharded", "errors")
    _refused(subject, devices=[1, 1])
    _refused(subject, axes=[["rows", 3]])


@verifies("multi.mesh.axis+2", observe="sharded")
def test_a_cut_along_an_axis_that_is_none_is_refused(subject: Subject) -> None:
    subject.require("sharded", "errors")
    _refused(subject, cut={"columns": 0})
