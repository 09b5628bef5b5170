"""What each device of a mesh has of a value: what is asked for, and what is left open.

Where a program lays a value with `shard` or `shard_like` it is known how it lies, and stays known
after writes.  How a computed value lies is an implementation's affair, but what it says about that
has to be what the devices have.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from conformance import oracle, protocol
from conformance.oracle import Expected
from conformance.protocol import Laid, Program, Statement, shapes
from conformance.protocol.shapes import Kinds, Mesh

Cut = dict[str, int]


@dataclass(frozen=True)
class Expectation:
    """A value of which it is asked what the devices have; `cut` is None where that is open."""

    expected: Expected
    mesh: Mesh
    cut: Cut | None
    written: bool


def laid(program: Program) -> list[Expectation]:
    """What each `shards` of a program asks about, in the order in which it is asked."""
    asked = list(_asked(program["statements"], {}, {}, set()))
    values = oracle.run({**program, "statements": _observing(program["statements"])})
    return [Expectation(value, *how) for value, how in zip(values, asked, strict=True)]


def _observing(statements: Sequence[Statement]) -> list[Statement]:
    """The statements with each `shards` an `observe`, and without the others of these."""
    return [{**each, "do": "observe"} if each["do"] == "shards" else
            {**each, "statements": _observing(each["statements"])} if "statements" in each else each
            for each in statements if each["do"] != "observe"]


def _asked(statements: Sequence[Statement], kinds: Kinds, cuts: dict[str, Cut],
           written: set[str]) -> Iterator[tuple[Mesh, Cut | None, bool]]:
    """The mesh and the cut of each value that is asked about."""
    for statement in statements:
        do, name = statement["do"], statement.get("to", "")
        if do in protocol.REPETITIONS:
            for body in protocol.calls(statement):
                yield from _asked(body, kinds, cuts, written)
            continue
        known = cuts.get(statement["from"][1]) if do == "shard_like" else None
        shapes.step(statement, kinds)
        if do == "shards":
            for each in statement["names"]:
                place = kinds[each].device
                assert isinstance(place, Mesh)
                yield place, cuts.get(each), each in written
        if "target" in statement:
            written.add(statement["target"])
        if name:
            cuts.pop(name, None)
            written.discard(name)
        if do == "shard":
            cuts[name] = real(shapes.mesh_of(statement), statement["cut"])
        elif known is not None:
            cuts[name] = known


def real(mesh: Mesh, cut: Cut) -> Cut:
    """A cut without the axes of the mesh that have one device: they cut nothing."""
    sizes = dict(mesh.axes)
    return {name: axis for name, axis in sorted(cut.items()) if sizes.get(name, 1) > 1}


def differences(program: Program, seen: Sequence[Laid]) -> list[str]:
    """Everything that is wrong with what the devices are said to have."""
    expected = laid(program)
    if len(seen) != len(expected):
        return [f"the devices of {len(seen)} values were reported, not of {len(expected)}"]
    return [wrong for want, found in zip(expected, seen, strict=True)
            for wrong in _wrong(want, found)]


def _wrong(want: Expectation, found: Laid) -> Iterator[str]:
    name, value = want.expected.name, want.expected
    mesh = Mesh(found.devices, found.axes)
    if found.name != name:
        yield f"{found.name} was reported where {name} is asked about"
    elif mesh != want.mesh:
        yield f"{name} lies on {mesh}, not on {want.mesh}"
    elif want.cut is not None and real(mesh, found.cut) != want.cut:
        how = "was laid and written to" if want.written else "was laid"
        yield f"{name} {how} with {want.cut}, and lies with {found.cut}"
    elif len(found.shards) != len(mesh.devices):
        yield f"{len(found.shards)} devices of {len(mesh.devices)} say what they have of {name}"
    else:
        parts = shapes.parts(mesh, found.cut, value.value.shape)
        first: dict[str, tuple[int, str]] = {}
        for device, part, shard in zip(mesh.devices, parts, found.shards, strict=True):
            wrong = oracle.difference(
                Expected(name, value.value[part], value.error[part]), replace(shard, name=name))
            if wrong:
                yield f"on device {device} {wrong}"
            other, data = first.setdefault(str(part), (device, shard.data))
            if data != shard.data:
                yield f"devices {other} and {device} have other bits of the same part of {name}"
