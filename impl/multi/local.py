"""The form of a value, from those of its pieces. Chapter: spec/multi.md."""
from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from impl import settings
from impl.errors import ArgumentError, DTypeError, ShapeError
from impl.host import np
from impl.ir import Shape
from impl.multi.mesh import Mesh, Sharding, sharding_of
from impl.multi.pieces import in_words

#: What processes tell each other: who, with what purpose, tells what; answers what each has told.
Tell = Callable[[Mesh, str, bytes], list[bytes]]


@dataclass(frozen=True)
class LocalForm:
    """The shape of a value, and how it lies, where each device has brought its piece."""

    sharding: Sharding
    shape: Shape

    @staticmethod
    def of_all(mesh: Mesh, cuts: Mapping[str, int | None],
               own: Mapping[int, tuple[Shape, str, np.ndarray]], shape: Shape | None,
               tell: Tell) -> LocalForm:
        """What the pieces of all processes make; `own` are the shape, the dtype and the elements
        of those of this one, by the numbers of their devices.

        Raises:
            ShapeError, DTypeError: they are not those of one value. All processes raise it.
            ArgumentError: what should be copies differs, with SPEC=1.
        """
        compared = bool(settings.get("SPEC"))
        mine = {number: (list(size), dtype, hashlib.blake2b(elements.tobytes(), digest_size=8)
                         .hexdigest() if compared else "")
                for number, (size, dtype, elements) in own.items()}
        told = [json.loads(each) for each in tell(
            mesh, "Tensor.from_local", json.dumps([shape, mine]).encode())]
        pieces = {int(number): (tuple(size), dtype, digest) for _, each in told
                  for number, (size, dtype, digest) in each.items()}
        names = mesh.devices
        # r[impl multi.local.whole]
        if len({dtype for _, dtype, _ in pieces.values()}) > 1:
            raise DTypeError("from_local", "the pieces have dtypes " + ", ".join(
                f"{dtype} on {names[number]}" for number, (_, dtype, _) in sorted(pieces.items())),
                "cast them to one")
        ranks = {len(size) for size, *_ in pieces.values()}
        wholes = {tuple(whole) for whole, _ in told if whole is not None}
        sizes = ", ".join(f"{size} on {names[number]}"
                          for number, (size, *_) in sorted(pieces.items()))
        if len(ranks | {len(whole) for whole in wholes}) > 1 or len(wholes) > 1:
            raise ShapeError("from_local", f"the pieces have shapes {sizes}" + "".join(
                f", and shape is {whole}" for whole in sorted(wholes)),
                "give all as many axes, and one shape")
        sharding = sharding_of(mesh, pieces[min(pieces)][0], cuts)
        whole = wholes.pop() if wholes else _whole(sharding, {
            number: size for number, (size, *_) in pieces.items()})
        found = LocalForm(sharding, whole)
        found._check(pieces, compared)
        return found

    def _check(self, pieces: Mapping[int, tuple[Shape, str, str]], compared: bool) -> None:
        """Raise unless each device has the piece that is its own."""
        names, first = self.sharding.mesh.devices, dict[object, tuple[int, str]]()
        for number, bounds in enumerate(self.sharding.parts(self.shape)):
            size, _, digest = pieces[number]
            wanted = tuple(stop - start for start, stop in bounds)
            if size != wanted:
                raise ShapeError(
                    "from_local", f"the piece of {names[number]} has shape {size}; of a value of "
                    f"shape {self.shape} that lies {in_words(self.sharding.axes)} it has {wanted}",
                    "give each device as much of an axis that is cut, the last ones less, and all "
                    "of the others; shape= says what all make")
            other, same = first.setdefault(bounds, (number, digest))
            if compared and same != digest:
                raise ArgumentError(
                    "from_local", f"{names[other]} and {names[number]} have the same piece of a "
                    f"value that lies {in_words(self.sharding.axes)}, and other elements",
                    "give both the same, or cut an axis between them")


def _whole(sharding: Sharding, pieces: Mapping[int, Shape]) -> Shape:
    """The shape that pieces make, one behind the other where an axis is cut."""
    mesh, found = sharding.mesh, list(pieces[min(pieces)])
    for axis, name in enumerate(sharding.axes):
        if name is not None:
            each = {mesh.number(number, name): size[axis] for number, size in pieces.items()}
            found[axis] = sum(each.values())
    return tuple(found)
