"""Tensors on several devices. Chapter: spec/multi.md."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

from impl.dtypes import as_dtype
from impl.effects import new_buffer_node
from impl.errors import ArgumentError, ShapeError
from impl.host import np
from impl.ir import Ops, UOp
from impl.multi import PLAIN_AXIS, LocalForm, Mesh, Sharding, Wish, sharding_of
from impl.tensor.base import TensorBase
from impl.tensor.parameters import note_parameter


@dataclass(frozen=True)
class Shard:
    """What a device has of a tensor: the elements at `index`, as an array."""

    device: str
    index: tuple[slice, ...]
    data: np.ndarray


class Shards(TensorBase):
    """`shard` and what belongs to it."""

    __slots__ = ()

    def shard(self, devices: Any, axis: int | None = None, *, wish: int | None = False,
              **axes: int | None) -> Self:
        """The same value on several devices: an axis cut among them, or copies.

        `devices` are names, and `axis` is cut into as many parts, the last perhaps smaller; with
        None each device has all. Or they are a `Mesh`, and `axes` says for each of its axes which
        axis of the tensor is cut along it: `x.shard(mesh, data=0, model=1)`. With `wish` a value
        that is on the mesh stays as it lies, if that sends less.

        Raises:
            ArgumentError: no devices, or an axis that the mesh has not.
            AxisError: the tensor has no such axis.
        """
        mesh = self._mesh(devices)
        found = sharding_of(mesh, self.shape, _cuts(mesh, devices, axis, axes))
        return self._laid(Wish(mesh, found.axes) if wish else found)

    @classmethod
    def from_local(cls, local: Any, devices: Any, axis: int | None = None, *,
                   shape: Sequence[int] | None = None, **axes: int | None) -> Self:
        """A tensor on several devices, made of what this process has of it. Nothing is sent.

        `local` is a list of arrays or tensors, one for each device of this process; or one of them,
        if that is all that this process has: the piece of its device or, where it has all devices,
        the whole value. The other arguments are those of `shard`, which says which piece a device
        has. `shape` is that of the whole value; it is found from the pieces if it is not given.
        Of several processes all have to come. With SPEC=1 pieces that are to be copies are
        compared.

        Raises:
            ShapeError: the pieces are not those of one value that is cut so.
            DTypeError: they differ in dtype.
            ArgumentError: there is not one for each device, one requires a gradient, or copies
                differ; or as for `shard`.
            AxisError: the value has no such axis.
            DistributedError: another process does not come.
        """
        mesh = cls._mesh(devices)
        numbers, cuts = cls.runtime.present(mesh), _cuts(mesh, devices, axis, axes)
        several = isinstance(local, (list, tuple)) and all(
            isinstance(part, (np.ndarray, TensorBase)) for part in local)
        if not several and len(numbers) > 1:
            whole: Any = local if isinstance(local, TensorBase) else cls(local)
            if shape is not None and tuple(shape) != whole.shape:
                raise ShapeError("from_local", f"this process has all devices of {mesh!r}, and is "
                                 f"given shape {whole.shape} of {tuple(shape)}",
                                 "give all of the value, or a list with a piece for each device")
            found: Any = whole.detach().shard(mesh, **cuts)
            return found
        parts = [part if isinstance(part, TensorBase) else cls(part)
                 for part in (local if several else [local])]
        return cls._of_parts(dict(zip(numbers, parts, strict=False)), len(parts), mesh, cuts, shape)

    @classmethod
    def _of_parts(cls, parts: dict[int, Any], count: int, mesh: Mesh, cuts: dict[str, int | None],
                  shape: Sequence[int] | None) -> Self:
        """The tensor of which these are the pieces, by the numbers of their devices."""
        numbers = cls.runtime.present(mesh)
        if count != len(numbers):
            raise ArgumentError("from_local", f"{count} pieces for the {len(numbers)} devices "
                                f"{', '.join(mesh.devices[i] for i in numbers)}",
                                "give one for each, in this order")
        if any(part.requires_grad for part in parts.values()):
            raise ArgumentError("from_local", "a piece requires a gradient, and would get none",
                                "pass piece.detach(), and set requires_grad on the result")
        flat = {number: cls.runtime.read(part) for number, part in parts.items()}
        form = LocalForm.of_all(mesh, cuts, {
            number: (part.shape, part.dtype.name, flat[number]) for number, part in parts.items()},
            None if shape is None else tuple(shape), cls.runtime.told)
        dtype, local = parts[numbers[0]].dtype, form.sharding.local(form.shape)
        blocks = []
        for number, part in parts.items():
            # Elements past the end of the value are there, and mean nothing.
            block = np.zeros(local, flat[number].dtype)
            block[tuple(map(slice, part.shape))] = flat[number].reshape(part.shape)
            blocks.append(block.reshape(-1))
        found = cls._made(new_buffer_node(mesh, dtype, form.shape, sharding=form.sharding), mesh)
        cls.runtime.put_pieces(found, blocks)
        return found

    def shard_(self, devices: Any, axis: int | None = None, **axes: int | None) -> Self:
        """This tensor itself, on several devices from now on; see `shard`."""
        return self._lying_as(self.shard(devices, axis, **axes))

    def to_(self, device: Any) -> Self:
        """This tensor itself, on another device, or as copies on several, from now on; see `to`."""
        return self._lying_as(self.to(device))

    def _lying_as(self, placed: Self) -> Self:
        """This tensor itself, with the value of another one, and where that lies."""
        self.uop, self.device = placed.uop, placed.device
        if self._parameter:
            note_parameter(self._own_memory().uop)
        return self

    def shard_like(self, other: Self) -> Self:
        """On the same devices as another tensor of this shape, and cut in the same way."""
        if not isinstance(other.device, Mesh):
            return self.to(other.device)
        found = other.sharding
        return self._laid(sharding_of(found.mesh, self.shape, found.cut))

    def _laid(self, sharding: Sharding) -> Self:
        """The value in a sharding."""
        node = UOp(Ops.SHARD, self.dtype, (self.uop,), sharding)
        result = self._wrap(node)
        result.device = sharding.mesh
        return result

    @classmethod
    def _mesh(cls, devices: Any) -> Mesh:
        """Devices as a mesh of one axis, each by its full name."""
        if isinstance(devices, Mesh):
            return devices
        if isinstance(devices, str) or not isinstance(devices, (tuple, list)):
            raise ArgumentError("shard", f"devices is {devices!r:.60}",
                                "give a tuple of names, such as ('CPU:0', 'CPU:1'), or a Mesh")
        found = cls._device(tuple(devices))
        assert isinstance(found, Mesh)
        return found

    @property
    def sharding(self) -> Any:
        """How the value lies on its mesh; None for a tensor of one device."""
        found = self.runtime.sharding(self)
        if found is None and isinstance(self.device, Mesh):  # constants: each device has them all
            return Sharding.copies(self.device, len(self.shape))
        return found

    @property
    def shards(self) -> list[Self]:
        """The shards of the value, in the order of the devices: tensors of one device each."""
        found = self.sharding
        if found is None:
            return [self]
        whole: Any = self
        return [whole[tuple(slice(*bounds) for bounds in part)].to(device)
                for part, device in zip(found.parts(self.shape), found.mesh.devices, strict=True)]

    @property
    def addressable_shards(self) -> list[Shard]:
        """The shards on the devices of this process. Nothing is sent for it.

        In one process these are all devices of the mesh; of a mesh of several processes, one.
        """
        if not self.dtype.plain:
            return self.cast(as_dtype(self.dtype.host)).addressable_shards
        found = self.sharding
        if found is None:
            return [Shard(self.device, (slice(None),) * len(self.shape), self.numpy())]
        parts, local, result = found.parts(self.shape), found.local(self.shape), list[Shard]()
        for number, elements in self.runtime.pieces(self):
            held = tuple(slice(0, stop - start) for start, stop in parts[number])
            result.append(Shard(found.mesh.devices[number],
                                tuple(slice(*bounds) for bounds in parts[number]),
                                elements.reshape(local)[held]))
        return result


def _cuts(mesh: Mesh, devices: Any, axis: int | None,
          axes: dict[str, int | None]) -> dict[str, int | None]:
    """For each axis of the mesh which axis of a tensor is cut along it, as `shard` is told."""
    if not isinstance(devices, Mesh):
        return {PLAIN_AXIS: axis}
    if axis is not None and len(mesh.axes) == 1:
        return {next(iter(mesh.axes)): axis}
    if axis is not None:  # r[impl multi.mesh.axis+2]
        raise ArgumentError("shard", f"axis {axis} of {mesh!r} with several axes",
                            f"name them: shard(mesh, {next(iter(mesh.axes))}={axis})")
    return axes
