"""Meshes, and how a value lies on one. Chapter: spec/multi.md."""
from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from impl.errors import ArgumentError, AxisError, ShapeError
from impl.ir import Shape
from impl.places import Place, spelled
from impl.symbolic import is_symbolic

#: The axis of a mesh that was given as a list of devices.
PLAIN_AXIS = "shard"


#: Between the names of axes of a mesh that cut one axis of a value together.
TOGETHER = "."

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
        if isinstance(devices, str) or not isinstance(devices, Sequence):
            raise ArgumentError("Mesh", f"devices is {devices!r:.60}",
                                "give a tuple of names, such as ('CPU:0', 'CPU:1')")
        names = tuple(map(spelled, devices))  # r[impl multi.mesh.devices+2]
        sizes = {PLAIN_AXIS: len(names)} if axes is None else _axes(axes)
        if not names or len(set(names)) != len(names):
            raise ArgumentError("Mesh", f"the devices are {', '.join(names) or 'none'}",
                                "name at least one device, each once")
        if math.prod(sizes.values()) != len(names):
            raise ArgumentError("Mesh", f"axes {sizes} make {math.prod(sizes.values())} places "
                                f"for {len(names)} devices", "let the product be their number")
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

    def __len__(self) -> int:
        """How many devices there are: in a loop, and by number, a mesh is its devices."""
        return len(self.devices)

    def __iter__(self) -> Iterator[str]:
        return iter(self.devices)

    def __getitem__(self, number: Any) -> Any:
        return self.devices[number]

    def __repr__(self) -> str:
        axes = "" if list(self.axes) == [PLAIN_AXIS] else f", {self.axes}"
        return f"Mesh({self.devices}{axes})"

    @property
    def is_of_processes(self) -> bool:
        """Whether its devices belong to several processes, each of which has one."""
        return "@" in self.devices[0]

    def members(self) -> tuple[Place, ...]:
        """The devices, each by itself, in their order."""
        return tuple(map(Place, self.devices))

    @functools.cached_property
    def coordinates(self) -> list[dict[str, int]]:
        """Where each device stands along every axis."""
        places = itertools.product(*(range(size) for size in self.axes.values()))
        return [dict(zip(self.axes, place, strict=True)) for place in places]

    def extent(self, name: str) -> int:
        """How many devices there are along an axis, or along several together."""
        found = self.axes.get(name)
        return math.prod(self.axes[one] for one in name.split(TOGETHER)) if found is None else found

    def number(self, device: int, name: str) -> int:
        """Where a device stands along an axis, or along several: the first one is the slowest."""
        found = 0
        for one in name.split(TOGETHER):
            found = found * self.axes[one] + self.coordinates[device][one]
        return found

    def groups(self, name: str) -> list[list[int]]:
        """The devices, by number, that differ only along an axis; each group in its order."""
        axes = name.split(TOGETHER)
        found: dict[tuple[int, ...], list[int]] = {}
        for number, place in enumerate(self.coordinates):
            rest = tuple(where for axis, where in place.items() if axis not in axes)
            found.setdefault(rest, []).append(number)
        return list(found.values())


@dataclass(frozen=True)
class Sharding:
    """How a value lies on a mesh: along which axis of the mesh each of its own axes is cut.

    `axes[i]` names the mesh's axis, or is None where every device has the whole axis i. Axes of the
    mesh that cut one axis together stand there in their order, as in "data.model". A device holds
    `ceil(size / count)` elements of an axis that is cut; those past the end of the value are there,
    and mean nothing.
    """

    mesh: Mesh
    axes: tuple[str | None, ...]

    @staticmethod
    def copies(mesh: Mesh, rank: int) -> Sharding:
        """The whole value on every device."""
        return _known(mesh, (None,) * rank)

    def along(self, axes: tuple[str | None, ...]) -> Sharding:
        """The sharding on the same mesh that cuts a value so; itself, if it does."""
        return self if axes == self.axes else _known(self.mesh, axes)

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
        return 1 if name is None else self.mesh.extent(name)

    @property
    def cut(self) -> dict[str, int]:
        """For the axes of the mesh that cut one, which axis of the value that is."""
        found = {one: axis for axis, name in enumerate(self.axes) if name is not None
                 for one in name.split(TOGETHER)}
        return {name: found[name] for name in self.mesh.axes if name in found}

    def local(self, shape: Shape) -> Shape:
        """The shape that each device holds of a value."""
        if self.is_copies:
            return shape
        return tuple([size if name is None else piece(size, self.mesh.extent(name))
                      for size, name in zip(shape, self.axes, strict=True)])

    def parts(self, shape: Shape) -> list[tuple[tuple[int, int], ...]]:
        """For each device from where to where its part of a value reaches, along every axis."""
        found = []
        for device in range(len(self.mesh.devices)):
            bounds = []
            for axis, (size, name) in enumerate(zip(shape, self.axes, strict=True)):
                width = piece(size, self.count(axis))  # r[impl multi.shard.parts+2]
                start = 0 if name is None else min(self.mesh.number(device, name) * width, size)
                bounds.append((start, min(start + width, size)))
            found.append(tuple(bounds))
        return found

    def __repr__(self) -> str:
        cut = ", ".join(f"axis {i} over {' and '.join(map(repr, name.split(TOGETHER)))}"
                        for i, name in enumerate(self.axes) if name)
        return f"Sharding({cut or 'copies'} on {self.mesh!r})"


@functools.lru_cache(4096)
def _known(mesh: Mesh, axes: tuple[str | None, ...]) -> Sharding:
    """One object for each sharding, so that most are seen to be equal at once."""
    return Sharding(mesh, axes)


@dataclass(frozen=True)
class Wish(Sharding):
    """How a value would best lie on its mesh, if nothing more is sent for it."""


def piece(size: int, count: int) -> int:
    """How many elements of an axis each device holds."""
    return size if count == 1 else -(-size // count)


def together(names: Iterable[str | None]) -> set[str]:
    """The axes of the mesh, each by itself, that cut something."""
    return {one for name in names if name is not None for one in name.split(TOGETHER)}


def _axes(given: object) -> dict[str, int]:
    """The axes of a mesh, if they are names and sizes."""
    if not isinstance(given, Mapping):
        raise ArgumentError("Mesh", f"axes is {given!r:.60}", "give sizes by name, as in "
                            "{'data': 2, 'model': 2}")
    for name, size in given.items():
        if not isinstance(name, str) or not name.isidentifier():
            raise ArgumentError("Mesh", f"{name!r} is not a name for an axis",
                                "use letters and digits, as in data=2")
        if not isinstance(size, int) or isinstance(size, bool) or size < 1:
            raise ArgumentError("Mesh", f"axis {name!r} has the size {size!r}",
                                "give a number of devices, 1 or more")
    return dict(given)


def sharding_of(mesh: Mesh, shape: Shape, cut: Mapping[str, int | None]) -> Sharding:
    """The sharding that cuts axis `cut[name]` of a value along the mesh's axis `name`.

    Where several axes of the mesh cut one axis, the mesh's first one is the slowest.

    Raises:
        ArgumentError: the mesh has no such axis.
        AxisError: the value has no such axis.
        ShapeError: the size of an axis to be cut is a variable.
    """
    for name, axis in cut.items():
        if name not in mesh.axes:  # r[impl multi.mesh.axis+2]
            raise ArgumentError("shard", f"{mesh!r} has no axis {name!r}",
                                f"use {', '.join(mesh.axes)}")
        if axis is None:
            continue
        if not isinstance(axis, int) or isinstance(axis, bool) \
                or not -len(shape) <= axis < len(shape):
            raise AxisError("shard", f"axis {axis!r} is out of range for shape {shape}",
                            "name an axis of the tensor, or None for copies")
        if is_symbolic(shape[axis]):
            raise ShapeError("shard", f"axis {axis} of shape {shape} has a symbolic size",
                             "cut another axis, or give the size as a number")
    names: list[list[str]] = [[] for _ in shape]  # r[impl multi.shard.asked+2]
    for name, size in mesh.axes.items():
        wanted = cut.get(name)
        if wanted is not None and size > 1:
            names[wanted].append(name)
    return Sharding(mesh, tuple(TOGETHER.join(some) if some else None for some in names))
