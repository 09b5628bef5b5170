"""Memory that holds a value, and what is known of it. Chapter: spec/effects.md."""
from __future__ import annotations

import itertools
import math
import weakref
from collections.abc import Callable, Sequence
from typing import Any

from impl.dtypes import DType
from impl.errors import GraphError, TraceError
from impl.ir import Shape, UOp, leaf_node
from impl.places import ANYWHERE, Place
from impl.symbolic import plain

_numbers = itertools.count()
#: The bits of the set that tells quickly which buffers a graph may read.
_BITS = tuple(1 << place for place in range(192))
_NO_SHARDINGS: dict[Shape, Any] = {}


class Buffer:
    """Memory of `size` elements on one device, and the version of its content.

    `host` holds data that has not been copied to the device yet; `memory` what the device
    allocated. `nodes` are the expressions whose value was computed into this buffer.
    """

    __slots__ = ("number", "bit", "device", "dtype", "size", "host", "memory", "version", "nodes",
                 "spoiled", "told", "shardings", "leaves", "weak", "__weakref__")

    def __init__(self, device: Place, dtype: DType, size: int,
                 host: Any = None) -> None:
        self.number = number = next(_numbers)
        self.bit = _BITS[number % 192]
        self.device = device
        self.dtype = dtype
        self.size = size
        self.host = host
        self.memory: Any = None
        self.version = 0
        self.spoiled = False  # whether a run that did not end may have left anything in it
        self.told = -1  # the version whose leaf was told what it was computed from
        self.nodes: Sequence[weakref.ref[UOp]] = ()
        self.leaves: Sequence[weakref.ref[UOp]] = ()  # those that name this buffer
        self.weak: weakref.ref[Buffer] | None = None  # to this buffer, once somebody has asked
        #: On a mesh: how a value of each shape that is seen here lies there.
        self.shardings: dict[Shape, Any] = _NO_SHARDINGS

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        return self.size * self.dtype.itemsize

    def leaf(self, shape: Shape) -> UOp:
        """The node that denotes the present content, seen with this shape."""
        return leaf_node(self.dtype, (self, self.version, shape))

    def reference(self) -> weakref.ref[Buffer]:
        """A weak reference to this buffer, the same each time."""
        if self.weak is None:
            self.weak = weakref.ref(self)
        return self.weak

    def alike(self, size: int | None = None) -> Buffer:
        """A new buffer of the same form, of another size perhaps."""
        found = Buffer(self.device, self.dtype, self.size if size is None else size)
        found.shardings = dict(self.shardings)
        return found

    def lie(self, shape: Shape, sharding: Any) -> None:
        """Note how a value of this shape lies on the mesh."""
        if not self.shardings:
            self.shardings = {}
        self.shardings[shape] = sharding

    def sharding(self, shape: Shape) -> Any:
        """How a value of this shape lies on the mesh; None in memory of one device.

        Sizes that depend on variables are others in each call; the axes that are cut are not.
        """
        found = self.shardings.get(shape)
        if found is None and self.shardings:
            alike = {one for known, one in self.shardings.items() if len(known) == len(shape)}
            if len(alike) != 1:
                raise GraphError("read", f"{self} lies on a mesh, and nothing says how a value of "
                                 f"shape {shape} lies there", "report this: a result was lost")
            found, = alike
        return found

    def __repr__(self) -> str:
        return f"<Buffer {self.number} {self.dtype.name}[{self.size}] on {self.device}>"


def born_again(buffer: str, name: Callable[[Any], str]) -> str:
    """The words that give a buffer the number of one that is made now; its bit stays: that is in
    its leaf. `name` tells what an object is called.
    """
    return f"{buffer}.number = {name(next)}({name(_numbers)})"


#: What holds no value that can be read: spoiled buffers, and placeholders.
unreadable: weakref.WeakSet[Buffer] = weakref.WeakSet()


class Placeholder(Buffer):
    """What a function is traced on: it stands for values that are not there yet.

    Whoever asks for them gets an error that says which `operation` traces.
    """

    __slots__ = ("operation",)

    def __init__(self, device: Place | None, dtype: DType, shape: Shape,
                 operation: str = "gradient") -> None:
        super().__init__(device or ANYWHERE, dtype, plain(math.prod(shape)))
        self.operation = operation
        unreadable.add(self)

    @property
    def memory(self) -> Any:
        """None: there is none, whatever was put here."""

    @memory.setter
    def memory(self, value: Any) -> None:
        """Nothing: whoever puts memory here is about to ask for the data."""

    @property
    def host(self) -> Any:
        """Raises: there is nothing to be copied to a device."""
        # r[impl transforms.trace.values]
        raise TraceError(self.operation, "a value is asked for inside a function that is traced: "
                         "it is not known, there are many of it or none yet",
                         "compute with the tensor (.where for a choice), or ask outside; a tensor "
                         "that was made inside must not be used after the function has returned")

    @host.setter
    def host(self, value: Any) -> None:
        """Nothing: there is no data."""


def new_buffer_node(device: Place, dtype: DType, shape: Shape,
                    host: Any = None, sharding: Any = None) -> UOp:
    """A leaf for fresh memory; `host` data are copied on first use: an array (C order,
    dtype.numpy), or what makes one.

    On a mesh each device holds the part that the `sharding` says.
    """
    local = shape if sharding is None else sharding.local(shape)
    buffer = Buffer(device, dtype, plain(math.prod(local)), host)
    if sharding is not None:
        buffer.lie(shape, sharding)
    return buffer.leaf(shape)
