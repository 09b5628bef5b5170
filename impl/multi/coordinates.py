"""Where a device stands on a mesh, as a number that its kernels know. Chapter: spec/multi.md."""
from __future__ import annotations

import zlib

from impl.dtypes import dtypes
from impl.ir import Ops, UOp
from impl.multi.mesh import TOGETHER, Mesh


class Coordinate(int):
    """Where a device stands along an axis of a mesh: a number that each device has for itself.

    As a number it is 0: the first device's.
    """

    mesh: Mesh
    axis: str

    def __new__(cls, mesh: Mesh, axis: str) -> Coordinate:
        found = super().__new__(cls, 0)
        found.mesh, found.axis = mesh, axis
        return found

    def __getnewargs__(self) -> tuple[Mesh, str]:  # type: ignore[override]
        return self.mesh, self.axis

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Coordinate) and (self.mesh, self.axis) == (other.mesh, other.axis)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash((self.mesh, self.axis))

    def of(self, device: int) -> int:
        """The number of one device."""
        return self.mesh.number(device, self.axis)


def coordinate(mesh: Mesh, axis: str) -> UOp:
    """The node of a coordinate, of shape `()`."""
    # Another mesh, and several axes together, have variables of their own.
    name = f"{axis.replace(TOGETHER, '_')}_{zlib.crc32(f'{mesh}{axis}'.encode()):08x}"
    variable = UOp(Ops.DEFINE_VAR, dtypes.int32, (), (name, 0, mesh.extent(axis) - 1))
    return UOp(Ops.BIND, dtypes.int32, (variable, UOp.const(dtypes.int32, 0)),
               Coordinate(mesh, axis))
