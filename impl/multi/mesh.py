"""Meshes, and how a value lies on one. Chapter: spec/multi.md."""
from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from impl.errors import ArgumentError, AxisError, ShapeError
from impl.ir import Shape
from impl.places import Place, spelled
from impl.symbolic import is_symbolic

#: The axis of a mesh that was given as a list of devices.
PLAIN_AXIS = "shard"


#: All meshes by name. While there is none, nothing has to be asked about them.
meshes: dict[str, Mesh] = {}


class Mesh(Place):
    """A block of devices with named axes. It is a place: its name stands where a device's does.

    `devices` are in row-major order of `axes`, a size for each name. Equal meshes have one name.

    Raises:
        ArgumentError: a device is named twice, or the sizes do not give the number of devices.
    """

    devices: tuple[str, ...]
    axes: dict[str, int]

    def __new__(cls, devices: Sequence[str], axes: Mapping[str, int] | None = None) -> Mesh:
        names = tuple(map(spelled, devices))  # r[impl multi.mesh.devices]
        sizes = {PLAIN_AXIS: len(names)} if axes is None else dict(axes)
        if not names or len(set(names)) != len(names):
            raise ArgumentError("Mesh", f"the devices are {', '.join(names) or 'none'}",
                                "name at least one device, each once")
        if math.prod(sizes.values()) != len(names):
            raise ArgumentError("Mesh", f"axes {sizes} make {math.prod(sizes.values())} places "
                                f"for {len(names)} devices", "let the product be their number")
        for name in sizes:
            if not name.isidentifier():
                raise ArgumentError("Mesh", f"{name!r} is not a name for an axis",
                                    "use letters and digits, as in data=2")
        label = ",".join(names) + "".join(f";{name}={size}" for name, size in sizes.items())
        mesh = super().__new__(cls, f"mesh({label})")
        mesh.devices, mesh.axes = names, sizes
        return meshes.setdefault(str(mesh), mesh)

    def __getnewargs__(self) -> tuple[tuple[str, ...], dict[str, int]]:  # type: ignore[override]
        return self.devices, self.axes

    def __eq__(self, other: object) -> bool:
        """A mesh of one axis is its devices, too."""
        if isinstance(other, tuple):
            return len(self.axes) == 1 and self.devices == tuple(map(spelled, map(str, other)))
        return str.__eq__(self, other) if isinstance(other, str) else NotImplemented

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = str.__hash__

    def __repr__(self) -> str:
        axes = "" if list(self.axes) == [PLAIN_AXIS] else f", {self.axes}"
        return f"Mesh({self.devices}{axes})"

    def members(self) -> tuple[Place, ...]:
        """The devices, each by itself, in their order."""
        return tuple(map(Place, self.devices))

    @functools.cached_property
    def coordinates(self) -> list[dict[str, int]]:
        """Where each device stands along every axis."""
        places = itertools.product(*(range(size) for size in self.axes.values()))
        return [dict(zip(self.axes, place, strict=True)) for place in places]

    def groups(self, axis: str) -> list[list[int]]:
        """The devices, by number, that differ only along an axis; each group in its order."""
        found: dict[tuple[int, ...], list[int]] = {}
        for number, place in enumerate(self.coordinates):
            rest = tuple(where for name, where in place.items() if name != axis)
            found.setdefault(rest, []).append(number)
        return list(found.values())


@dataclass(frozen=True)
class Sharding:
    """How a value lies on a mesh: along which axis of the mesh each of its own axes is cut.

    `axes[i]` names the mesh's axis, or is None where every device has the whole axis i. A device
    holds `ceil(size / count)` elements of an axis that is cut; those past the end of the value
    are there, and mean nothing.
    """

    mesh: Mesh
    axes: tuple[str | None, ...]

    @staticmethod
    def copies(mesh: Mesh, rank: int) -> Sharding:
        """The whole value on every device."""
        return Sharding(mesh, (None,) * rank)

    @property
    def target(self) -> Mesh:
        """Where a value of this sharding lies."""
        return self.mesh

    @property
    def is_copies(self) -> bool:
        """Whether every device has the whole value."""
        return not any(self.axes)

    def count(self, axis: int) -> int:
        """Into how many pieces an axis of the value is cut."""
        name = self.axes[axis]
        return 1 if name is None else self.mesh.axes[name]

    def local(self, shape: Shape) -> Shape:
        """The shape that each device holds of a value."""
        return tuple(size if name is None else piece(size, self.mesh.axes[name])
                     for size, name in zip(shape, self.axes, strict=True))

    def parts(self, shape: Shape) -> list[tuple[tuple[int, int], ...]]:
        """For each device from where to where its part of a value reaches, along every axis."""
        found = []
        for place in self.mesh.coordinates:
            bounds = []
            for axis, (size, name) in enumerate(zip(shape, self.axes, strict=True)):
                width = piece(size, self.count(axis))  # r[impl multi.shard.parts]
                start = 0 if name is None else min(place[name] * width, size)
                bounds.append((start, min(start + width, size)))
            found.append(tuple(bounds))
        return found

    def __repr__(self) -> str:
        cut = ", ".join(f"axis {i} over {name!r}" for i, name in enumerate(self.axes) if name)
        return f"Sharding({cut or 'copies'} on {self.mesh!r})"


def piece(size: int, count: int) -> int:
    """How many elements of an axis each device holds."""
    return size if count == 1 else -(-size // count)


def sharding_of(mesh: Mesh, shape: Shape, cut: Mapping[str, int | None]) -> Sharding:
    """The sharding that cuts axis `cut[name]` of a value along the mesh's axis `name`.

    Raises:
        ArgumentError: the mesh has no such axis.
        AxisError: the value has no such axis, or one is cut twice.
        ShapeError: the size of an axis to be cut is a variable.
    """
    axes: list[str | None] = [None] * len(shape)
    for name, axis in cut.items():
        if name not in mesh.axes:  # r[impl multi.mesh.axis]
            raise ArgumentError("shard", f"{mesh!r} has no axis {name!r}",
                                f"use {', '.join(mesh.axes)}")
        if axis is None:
            continue
        if not isinstance(axis, int) or isinstance(axis, bool) \
                or not -len(shape) <= axis < len(shape):
            raise AxisError("shard", f"axis {axis!r} is out of range for shape {shape}",
                            "name an axis of the tensor, or None for copies")
        axis %= len(shape)
        if axes[axis] is not None:
            raise AxisError("shard", f"axis {axis} is cut along {axes[axis]!r} and {name!r}",
                            "cut each axis of the tensor along one axis of the mesh")
        if is_symbolic(shape[axis]):
            raise ShapeError("shard", f"axis {axis} of shape {shape} has a symbolic size",
                             "cut another axis, or give the size as a number")
        if mesh.axes[name] > 1:
            axes[axis] = name
    return Sharding(mesh, tuple(axes))
