"""What a tensor is: a Python variable that holds a node. Chapter: spec/tensor.md.

A node denotes a value for ever. A `Tensor` is a variable: operations make new tensors, `assign`
gives this one another node. Nothing is computed before somebody asks for values.
"""
from __future__ import annotations

import os
import pathlib
import weakref
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, Self

from impl.dtypes import DType, as_dtype, dtypes, from_bits, promoted, to_bits
from impl.effects import constant_of, lock, new_buffer_node, register, register_line, write
from impl.errors import (
    ArgumentError,
    AxisError,
    DeviceError,
    DTypeError,
    ShapeError,
    VariableError,
    nearest,
)
from impl.gradient import nodes
from impl.host import has_numpy, np
from impl.ir import Ops, Shape, UOp, in_memory, note_late
from impl.multi import Mesh, Sharding
from impl.places import Place, copied_to, is_free
from impl.symbolic import as_size, is_symbolic
from impl.tensor.broadcasting import bits_as, broadcast_pair, converted, weak_dtype
from impl.tensor.host import (
    Listed,
    as_array,
    as_cast,
    dtype_of_number,
    of_others,
    refuse_outside,
    refuse_tensors,
)
from impl.tensor.names import Named, either, missing
from impl.tensor.origins import note_origin
from impl.tensor.packed import (
    bytes_of,
    bytes_of_numbers,
    cut_to_four,
    halves_on_host,
    is_packable,
    realize_packed,
    seen_apart,
)
from impl.tensor.parameters import (
    as_written,
    dependent_bits,
    freeze_parameter,
    is_shared,
    mode,
    needs_gradient,
    note_parameter,
    register_parameter,
    tell,
    wants_gradient,
)
from impl.tensor.runtime import Runtime
from impl.tensor.views import Path, as_memory, follow, has_memory, written_through

#: Of larger tensors `print` shows the form alone.
_MOST_SHOWN, _MOST_COUNTED = 1000, 1 << 20


_new = object.__new__


#: What a tensor is made from.
_OF_A_TENSOR = ("data", "device", "dtype", "requires_grad")


class TensorBase(metaclass=Named):
    """The variable itself: creation from data, the values, devices, assignment."""

    __slots__ = ("uop", "device", "grad", "_ancestors", "_history", "_hooks", "_parameter",
                 "_written", "__weakref__")

    runtime: ClassVar[Runtime]
    uop: UOp
    device: Place
    grad: Self | None
    #: Living tensors of which this one is a view, each with the way from there to here.
    _ancestors: tuple[tuple[weakref.ref[Any], Path], ...]
    #: The expression that was realized, kept so that gradients still flow through it.
    _history: UOp | None
    #: What is called with its gradient, and with itself after that; there if anything is.
    _hooks: tuple[list[Any], list[Any]]
    #: Whether it requires a gradient; None if nobody has said anything.
    _parameter: bool | None
    #: What this view, and the tensors it was taken from, held after its last assignment.
    _written: tuple[tuple[weakref.ref[Any], weakref.ref[UOp]], ...]

    if not TYPE_CHECKING:
        def __getattr__(self, name: str) -> NoReturn:
            missing(type(self), name)  # r[impl errors.name.missing]

    def __init__(self, data: Any, device: str | None = None, dtype: Any = None,
                 requires_grad: bool = False, **other: Any) -> None:
        """A tensor from a number, nested lists, a NumPy array, another tensor or a node.

        Raises:
            DTypeError: the data are of no supported dtype, or do not fit the one that is chosen.
            ArgumentError: the device is no text: sizes were given, or several values.
        """
        if other:  # r[impl errors.argument.refused]
            name = next(iter(other))
            near = nearest(name, _OF_A_TENSOR)
            raise ArgumentError("Tensor", f"there is no argument {name}", f"did you mean {near}?"
                                if near else f"it takes {', '.join(_OF_A_TENSOR)}")
        # r[impl errors.argument.refused]
        if device is not None and not isinstance(device, (str, tuple)):
            raise ArgumentError("Tensor", f"device is {device!r:.60}", "give values as one list, "
                                "Tensor([1, 2]), and sizes to Tensor.zeros(2, 3)")
        wanted = None if dtype is None else as_dtype(dtype)
        if isinstance(data, TensorBase):
            self.uop, self.device = data.uop, data.device
        elif isinstance(data, UOp):
            self.uop = data
            self.device = nodes.device_of(data) or self._device(device)
        else:
            self.device = self._device(device)
            self.uop = self._from_host(data, wanted)
            if self.uop.reads and isinstance(self.device, Mesh):
                copies = Sharding.copies(self.device, len(self.shape))
                self.uop = UOp(Ops.SHARD, self.dtype, (self.uop,), copies)
        if wanted is not None:
            self.uop = converted(self.uop, wanted)
        self._ancestors, self._parameter, self.grad, self._history = (), None, None, None
        self._written = ()
        if device is not None and self._device(device) != self.device:
            self.device = self._device(device)
            self.uop = copied_to(self.uop, self.device)
        register(self)
        if requires_grad:
            self.requires_grad = True

    @classmethod
    def _device(cls, device: Any) -> Place:
        runtime = cls.runtime
        if isinstance(device, (tuple, list)):
            for name in device:
                if not isinstance(name, str):  # r[impl errors.argument.raw]
                    raise ArgumentError("Tensor", f"{name!r:.60} is no device",
                                        'give names: ("CPU:0", "CPU:1")')
            return Mesh([runtime.usable_device(name) for name in device])
        return runtime.default_device if device is None else runtime.usable_device(device)

    def _from_host(self, data: Any, dtype: DType | None) -> UOp:
        if isinstance(data, np.generic) and data.dtype.kind in "biuf":
            return UOp.const(dtype or as_dtype(data.dtype), data.item())
        if isinstance(data, (bool, int, float)):
            if isinstance(data, int):
                refuse_outside("Tensor", data, data, dtype)
            return UOp.const(dtype or dtype_of_number(data), data)
        if not isinstance(data, (list, tuple)):
            data, dtype = of_others(data, dtype)
        elif not has_numpy():
            refuse_tensors(data)
            given = Listed(data, dtype)  # r[impl host.numpy.without]
            if given.dtype.bits == 4 and is_packable(given.shape, self.device):
                held = self.__class__(bytes_of_numbers(given.numbers), self.device,
                                      dtype=dtypes.uint8)
                return seen_apart(held, given.dtype, given.shape)
            return new_buffer_node(self.device.members()[0], given.dtype, given.shape, given)
        array = as_array(data, dtype)
        if dtype is None and isinstance(data, (list, tuple)) and array.dtype.kind == "f":
            dtype = dtypes.default_float
        if dtype is not None:
            coded = dtype.host is not dtype.numpy
            with np.errstate(invalid="ignore", over="ignore"):
                array = to_bits(array.astype(np.float32), dtype) if coded \
                    else as_cast(array, dtype).astype(dtype.numpy)
        chosen = dtype or as_dtype(array.dtype)
        if chosen.bits == 4:
            array = cut_to_four(array, chosen)
        if chosen.bits == 4 and is_packable(array.shape, self.device):
            pairs = np.resize(array & 15, (array.size + 1) // 2 * 2).astype(np.uint8)
            held = self.__class__(pairs[::2] | pairs[1::2] << 4, self.device)
            return seen_apart(held, chosen, array.shape)
        # The caller may write to the array later; this tensor keeps its value.
        host = np.array(array, order="C", copy=True)  # r[impl tensor.create.copy]
        return new_buffer_node(self.device.members()[0], chosen, host.shape, host)

    def _wrap(self, node: UOp) -> Self:
        """The tensor that an operation on this one returns."""
        if not mode.gradients:
            node = nodes.without_gradient(node)  # r[impl gradient.mode.stops]
        if node.origin is None:
            note_origin(node)
        return self.__class__._holding(node, self.device)

    @classmethod
    def _holding(cls, node: UOp, device: Place) -> Self:
        """A new tensor that holds a node whose device is known."""
        result: Self = _new(cls)
        result.uop = node
        result.device = device
        result._ancestors = result._written = ()
        result.grad = result._history = result._parameter = None
        register(result)
        return result

    @classmethod
    def _holding_lines(cls, node: str, device: Place, name: Callable[[Any], str]) -> list[str]:
        """The words of `_holding`, for a function that is written for one kind of call; `name`
        tells what an object is called. The tensor is `tensor`.
        """
        return [f"tensor = {name(_new)}({name(cls)})",
                f"tensor.uop = {node}", f"tensor.device = {name(device)}",
                "tensor._ancestors = tensor._written = ()",
                "tensor.grad = tensor._history = tensor._parameter = None",
                register_line("tensor", name)]

    @classmethod
    def _made(cls, node: UOp, device: str | None = None, requires_grad: bool = False) -> Self:
        """The tensor that a creation function returns."""
        if node.origin is None:
            note_origin(node)
        result = cls._holding(node, cls._device(device))
        if requires_grad:
            result.requires_grad = True
        return result

    # Form

    @property
    def shape(self) -> Shape:
        """The sizes of the axes."""
        return self.uop.shape  # type: ignore[return-value]

    @property
    def dtype(self) -> DType:
        """The type of the elements."""
        return self.uop.dtype

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    def dim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    def size(self, axis: int | None = None, dim: int | None = None) -> Any:
        """The shape, or the size of one axis."""
        axis = either(axis, dim)
        return self.shape if axis is None else self.shape[self._axis(axis, "size")]

    def numel(self) -> int:
        """The number of elements."""
        count = 1
        for size in self.shape:
            count *= size
        return count

    def element_size(self) -> int:
        """Bytes of one element."""
        return self.dtype.itemsize

    def nbytes(self) -> int:
        """Bytes of all elements."""
        return -(-self.numel() * self.dtype.bits // 8)

    def is_floating_point(self) -> bool:
        """Whether the dtype is a floating type."""
        return self.dtype.kind == "f"

    def __len__(self) -> int:
        if not self.shape:
            raise AxisError("len", "the tensor has no axes", "use .item() for its one value")
        return int(self.shape[0])  # r[impl symbolic.size.watched]: `len` takes it out

    def __repr__(self) -> str:
        """The form of the tensor, and its elements if they are known and few."""
        elements = self._known_elements()
        if elements is None:
            return f"<Tensor {self._form()}>"
        shown = np.array2string(elements, separator=", ")
        return f"<Tensor {self._form()}:" + ("\n" if "\n" in shown else " ") + f"{shown}>"

    def _repr_html_(self) -> str:
        """What a notebook shows: the form, and if they are known a table and a histogram."""
        from impl.tensor.notebook import as_html
        return as_html(self._form(), self._known_elements(_MOST_COUNTED))

    def _form(self) -> str:
        """Dtype, shape and device in words, and whether it has to be computed."""
        known = constant_of(self.uop) is not None or self.uop.op is Ops.BUFFER \
            or self.uop.realized is not None or bytes_of(self.uop) is not None
        return f"{self.dtype.name} {self.shape} on {self.device}{'' if known else ', lazy'}"

    def _known_elements(self, most: int = _MOST_SHOWN) -> np.ndarray | None:
        """The elements, if they are few and nothing has to be computed for them."""
        if any(is_symbolic(size) for size in self.shape) or self.numel() > most \
                or not has_numpy():
            return None
        constant = constant_of(self.uop)
        if constant is not None:
            return np.full(self.shape, constant.arg, self.dtype.host)
        held = bytes_of(self.uop)
        elements = self.runtime.peek(self if held is None else held)
        if elements is None:
            return None
        if held is not None:
            elements = halves_on_host(elements, self.dtype)[:self.numel()]
        elif self.dtype.host is not self.dtype.numpy:
            elements = from_bits(elements, self.dtype)
        return elements.reshape(self.shape)  # r[impl tensor.print.nothing+3]

    def __format__(self, specification: str) -> str:
        # r[impl tensor.item.format]
        return format(self.item(), specification) if specification else str(self)

    __hash__ = object.__hash__  # not by what `==` compares

    def _axis(self, axis: int, operation: str, extra: int = 0) -> int:
        """The axis counted from the front; `extra` more are allowed."""
        rank = len(self.shape) + extra
        if not isinstance(axis, int) or isinstance(axis, bool):
            raise AxisError(operation, f"{axis!r} is not an axis", "give an int")
        if not -rank <= axis < rank:  # r[impl tensor.arguments.refused+2]
            raise AxisError(operation, f"axis {axis} is out of range for shape {self.shape}",
                            f"use -{rank} to {rank - 1}" if rank else "the tensor has no axes")
        return axis + rank if axis < 0 else axis

    def _axes(self, axis: Any, operation: str) -> tuple[int, ...]:
        """Axes in increasing order; None means all."""
        if axis is None:
            return tuple(range(len(self.shape)))
        given = axis if isinstance(axis, (tuple, list)) else (axis,)
        if not self.shape and all(one in (0, -1) for one in given):
            return ()  # r[impl tensor.axis.scalar]
        axes = tuple(sorted(self._axis(one, operation) for one in given))
        if len(set(axes)) != len(axes):
            raise AxisError(operation, f"axes {tuple(given)} name one axis twice",
                            "name each axis once")
        return axes

    # Operands

    def _operand(self, other: Any, operation: str = "operand") -> UOp | None:
        """The node of the other operand; None if it is nothing that a tensor works with."""
        if isinstance(other, TensorBase):
            if other.device != self.device:  # r[impl tensor.arguments.refused+2]
                spread = isinstance(other.device, Mesh) and not isinstance(self.device, Mesh)
                target = other.device if spread else self.device  # parameters stay where they are
                raise DeviceError(operation, f"one tensor is on {self.device}, the other on "
                                  f"{other.device}", f"move one with .to({target!r})")
            return other.uop
        if isinstance(other, np.generic):
            other = other.item()
        if is_symbolic(other):
            return self._bound(other.expression)
        if isinstance(other, (bool, int, float)):
            return UOp.const(weak_dtype(self.uop.dtype, other), other)
        if isinstance(other, np.ndarray):
            return None if other.dtype.kind == "c" else self.__class__(other, self.device).uop
        if isinstance(other, UOp):
            return self._bound(other)
        as_size(other)  # which refuses a variable without a value
        return None

    def _bound(self, variable: UOp) -> UOp:
        """A bound variable as a number in this tensor's dtype."""
        if variable.shape != ():
            raise VariableError("operand", f"{variable} has no value", "bind it: v.bind(3)")
        dtype = self.uop.dtype
        return nodes.cast(variable, dtype if dtype.kind != "b" else dtypes.default_int)

    def _pair(self, other: UOp, operation: str) -> tuple[UOp, UOp]:
        """Both operands in one dtype and one shape (or `()`)."""
        a, b = self.uop, other
        if a.dtype is not b.dtype:
            common = promoted(a.dtype, b.dtype)
            a, b = nodes.cast(a, common), nodes.cast(b, common)
        return broadcast_pair(a, b, operation)

    # Values

    # r[impl tensor.lazy.nothing+2]: these four, and what calls them, are all that computes.
    def realize(self, *others: Self) -> Self:
        """Compute the values of this tensor (and others, in one schedule) into memory."""
        tensors = [self, *others]
        if dependent_bits[0] or mode.keeping:
            for tensor in tensors:
                tensor._remember()
        if others or self.uop.dtype.bits == 4:
            realize_packed(tensors, self.runtime)
        else:
            self.runtime.realize(tensors)
        tell(tensors)
        return self

    def hold(self, node: UOp, leaf: UOp, unasked: bool = False) -> None:
        """Hold the value from now on where it is in memory; gradients flow to what it was. If the
        handler of a signal has assigned to the tensor, the value is another one, and stays.

        What is computed `unasked`, since others wait for it, keeps its expression in any case.

        If a node only gives another name to what is in memory, the name stays where a gradient
        needs it.
        """
        if self.uop is not node:
            return
        if self._history is not node:
            self._remember(unasked)
        value = nodes.named_value(node)
        if value is node or self._history is not node and (
                node.tag is not None or in_memory(value) is not leaf):
            if self.uop is node:  # r[impl realize.nested.later]
                self.uop = leaf
        else:
            self._history = None
        if self._history is not None:
            self._tell()
        elif self._parameter:
            note_parameter(self.uop)  # it may lie elsewhere now

    def _tell(self) -> None:
        """Note what the value in memory was computed from, for gradients.

        If that surely depends on a parameter, the leaf itself knows it: what is computed from it
        may live longer than this tensor. So do values that it held before it was assigned to.
        """
        node, leaf = self._history, self.uop
        assert node is not None
        dependent_bits[0] |= leaf.reads
        shown = nodes.shown_value(node)
        if leaf.op is Ops.BUFFER and leaf.late is None and in_memory(node) is leaf \
                and in_memory(shown) is not (leaf if shown is not node else None):
            needed = needs_gradient(node)
            if needed or mode.keeping:
                parts = node.op, node.dtype, node.src, node.arg, node.tag
                note_late(leaf, (as_written, needed, weakref.ref(leaf), *parts))

    def _remember(self, always: bool = False) -> None:
        """Keep the expression, if its value may depend on a parameter."""
        node = self.uop
        known = node.op is Ops.BUFFER or node.op is Ops.DETACH and node.tag is None
        if not known and node.dtype.kind == "f" and not self._parameter \
                and (always or mode.keeping or needs_gradient(node)):
            self._history = node
            for kept in mode.keeping:
                kept.append(node)

    def schedule(self, *others: Self) -> list[Any]:
        """The kernels that compute this tensor and the others, in the order they would run."""
        return self.runtime.schedule([self, *others])

    def schedule_document(self, *others: Self, rounds: bool = False) -> dict[str, Any]:
        """The schedule of this tensor and the others as a document; with `rounds` it says of each
        collective what every device sends and receives.
        """
        return self.runtime.document([self, *others], rounds=rounds)

    def report(self, path: str | os.PathLike[str], *others: Self,
               machine: bool = False) -> pathlib.Path:
        """Write a page that shows the schedule of this tensor and the others: what runs, why it is
        cut and joined like this, memory, source, and what it would be without fusion. Buffers
        have the names of the user's variables. It is one file, to be opened in a browser. With
        `machine` it has the machine code of kernels for CPU, too, which objdump prints.

        Returns:
            The path.

        Raises:
            ArgumentError: the path is none.
        """
        if not isinstance(path, (str, os.PathLike)):  # r[impl errors.argument.raw]
            raise ArgumentError("report", f"{path!r:.60} is no path",
                                'give the name of a file, such as "report.html"')
        return self.runtime.report([self, *others], path, machine)

    def explain(self, *others: Self) -> str:
        """The schedule in sentences: kernels, fusions, boundaries with their reasons, memory."""
        return self.runtime.explain([self, *others])

    def numpy(self) -> np.ndarray:
        """The elements as a NumPy array; a float that NumPy has not becomes float32."""
        for kept in mode.keeping:  # what is made of the values may have to be told from a tensor
            kept.append(self.uop)
        if not self.dtype.plain:
            return self._wrap(nodes.cast(self.uop, as_dtype(self.dtype.host))).numpy()
        part = self.runtime.read_part(self)
        if part is None:
            self.realize()
            part = self.runtime.read(self)
        return part.reshape(self.shape)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        array = self.numpy()
        return array if dtype is None else array.astype(dtype)

    def known(self, operation: str, remedy: str,
              why: str = "the size of the result depends on values") -> np.ndarray:
        """The elements, for an operation the size of whose result depends on them; or `why` else.

        Raises:
            ReplayError: a function is captured, which would have this size in every later call.
        """
        # r[impl tensor.size.values+3]
        self.runtime.look(self, operation, remedy, why)
        return self.numpy()

    def tolist(self) -> Any:
        """The elements as nested lists of Python numbers."""
        return self.numpy().tolist()

    def data(self) -> memoryview:
        """The elements as a memoryview of the tensor's shape."""
        return np.ascontiguousarray(self.numpy()).data

    def item(self) -> Any:
        """The only element as a Python number.

        Raises:
            ShapeError: there is not exactly one element (r[tensor.arguments.refused]).
        """
        if self.numel() != 1:  # r[impl tensor.arguments.refused+2]
            raise ShapeError("item", f"a tensor of shape {self.shape} has {self.numel()} elements",
                             "reduce it first, or use .tolist()")
        return self.numpy().reshape(-1)[0].item()

    def __bool__(self) -> bool:
        if self.numel() != 1:
            raise ShapeError("bool", f"the truth of a tensor of shape {self.shape} is ambiguous",
                             "use .any() or .all(), or compare with `is` when you mean identity")
        return bool(self.item())

    def __float__(self) -> float:
        return float(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __index__(self) -> int:
        if self.dtype.kind == "f":
            raise DTypeError("index", f"a {self.dtype.name} is not an index", "use .int()")
        return int(self.item())

    def __iter__(self) -> Iterator[Self]:
        for row in range(len(self)):
            yield self[row]  # type: ignore[index]

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        result = self._wrap(self.uop)
        result._parameter = self._parameter and None
        if self._parameter:
            result.uop = nodes.detach(result.uop)
            result._own_memory()
            result.requires_grad = True
        memo[id(self)] = result
        return result

    def __copy__(self) -> Self:
        """Another variable with the same value, through which gradients flow."""
        return self.__deepcopy__({})

    # Dtypes and devices

    def cast(self, dtype: Any) -> Self:
        """The elements converted to another dtype (chapter dtypes).

        Raises:
            DTypeError: there is no such dtype.
        """
        wanted = self._named_dtype(dtype, "cast")
        return self if wanted is self.uop.dtype else self._wrap(converted(self.uop, wanted))

    def _named_dtype(self, dtype: Any, operation: str) -> DType:
        """A dtype that has to be given: NumPy takes None for float64."""
        if dtype is None:  # r[impl tensor.arguments.refused+2]
            raise DTypeError(operation, "None is not an element type",
                             f"name one, such as {self.dtype!r}")
        return as_dtype(dtype)

    def bitcast(self, dtype: Any) -> Self:
        """The same bits read as another dtype: a view, where the elements are as wide.

        Narrower elements make the last axis longer, wider ones shorter, lowest byte first.

        Raises:
            ShapeError: the last axis holds no whole number of wider elements.
        """
        wanted = self._named_dtype(dtype, "bitcast")
        if wanted.bits != self.dtype.bits:  # r[impl dtypes.bitcast.size+2]
            return self._wrap(bits_as(self.uop, wanted))
        view: Callable[..., Self] = self._viewed  # type: ignore[attr-defined]  # of Movement
        if wanted is self.dtype:
            return view(self.uop, ())
        return view(UOp(Ops.BITCAST, wanted, (self.uop,)), ((Ops.BITCAST, wanted),))

    def to(self, device_or_dtype: Any = None, dtype: Any = None, non_blocking: bool = False,
           copy: bool = False) -> Self:
        """The tensor on another device, or in another dtype, or both; those of another tensor.

        Values have no place in common that `copy` could separate, and nothing blocks.
        """
        if isinstance(device_or_dtype, TensorBase):
            return self.to(device_or_dtype.device).to(device_or_dtype.dtype)
        if dtype is not None and not isinstance(dtype, bool):
            moved: Self = self.to(device_or_dtype)
            return moved.cast(dtype)
        wanted = device_or_dtype
        if isinstance(wanted, (tuple, list)):
            placed: Self = self.shard(wanted)  # type: ignore[attr-defined]  # of Placement
            return placed
        if isinstance(wanted, str) and not isinstance(getattr(dtypes, wanted, None), DType):
            device = self._device(wanted)
            if device == self.device:
                return self
            # r[impl device.several.equal]
            source = self.uop
            if is_free(source) and source.op not in (Ops.COPY, Ops.CONTIGUOUS):
                # Constants are equal nodes: others there must not read this one's memory here.
                source = UOp(Ops.CONTIGUOUS, source.dtype, (source,))
            result = self._wrap(copied_to(source, device))
            result.device = device
            return result
        return self if wanted is None else self.cast(wanted)

    def cpu(self) -> Self:
        """The tensor on the CPU device."""
        return self.to("CPU")

    # Boundaries

    def contiguous(self) -> Self:
        """The same values in memory of their own: a boundary that no fusion crosses."""
        if self.uop.op in (Ops.BUFFER, Ops.CONTIGUOUS):
            return self._wrap(self.uop)
        return self._wrap(UOp(Ops.CONTIGUOUS, self.uop.dtype, (self.uop,)))

    def clone(self) -> Self:
        """A copy: a tensor of its own with the same value."""
        return self._wrap(UOp(Ops.CONTIGUOUS, self.uop.dtype, (self.uop,)))

    def _another(self) -> Self:
        """The result of a method that had nothing to do: another variable with the same value."""
        result = self._wrap(self.uop)  # r[impl effects.view-write.copies+3]
        result._history = self._history  # r[impl gradient.realized.keeps+2]
        return result

    def detach(self) -> Self:
        """The same value, through which no gradient flows."""
        return self._wrap(nodes.detach(self.uop))

    # Assignment

    def assign(self, value: Any) -> Self:
        """Give this tensor a new value of the same dtype, which is spread to its shape.

        Tensors computed from the old value keep it. If this tensor is a view (`t[1:3]`), the
        tensor it was taken from gets a new value too, with that region replaced.

        Raises:
            ShapeError: the value does not spread to the shape (r[tensor.assign.shape]), or the
                view repeats elements.
            DTypeError: the dtypes differ (r[tensor.arguments.refused]).
        """
        node = self._operand(value)
        if node is None:
            node = self.__class__(value, self.device, self.dtype).uop
        if node.dtype is not self.dtype:  # r[impl tensor.arguments.refused+2]
            raise DTypeError("assign", f"a {node.dtype.name} value does not fit a tensor of "
                             f"{self.dtype.name}", f"convert it: .cast({self.dtype!r})")
        self._store(self._spread(node, self.shape, "assign", "a tensor"))
        return self

    def _spread(self, node: UOp, shape: Shape, operation: str, target: str) -> UOp:
        """A value spread over what it is assigned to, as NumPy does: 1s in front do not count.

        Raises:
            ShapeError: it does not spread to this shape.
        """
        own = nodes.shape_of(node)
        while len(own) > len(shape) and own[0] == 1:
            own = own[1:]
        if len(own) > len(shape) or any(  # r[impl tensor.assign.shape+3]
                a not in (1, b) for a, b in zip(own[::-1], shape[::-1], strict=False)):
            raise ShapeError(operation, f"a value of shape {node.shape} does not fit {target} of "
                             f"shape {shape}", "give a value that broadcasts to it")
        return nodes.broadcast(nodes.reshape(node, own), shape)

    def _store(self, value: UOp) -> None:
        """The new value, for this tensor and for every living tensor it is a view of."""
        with lock:  # r[impl replay.thread.isolated+2]: before another thread's capture, or after it
            self._store_alone(value)

    def _store_alone(self, value: UOp) -> None:
        living = [(tensor, path) for tensor, path in
                  ((reference(), path) for reference, path in self._ancestors)
                  if tensor is not None]
        if (living[-1][0] if living else self)._parameter and needs_gradient(value):
            value = nodes.detach(value)  # r[impl gradient.parameter.end+2]
        if not living:
            self._replace(value)
            return
        root, path = living[-1]  # r[impl tensor.assign.view+3]
        if root.device != self.device:  # it was laid elsewhere since this view was taken
            value, self.device = copied_to(value, root.device), root.device
        before = root.uop
        memory = as_memory(before)
        root.uop = written_through(memory, path, value)
        self.uop = follow(root.uop, path)
        for between, rest in living[:-1]:
            way = next((way for reference, way in between._ancestors if reference() is root), None)
            if way is not None and between.uop is follow(before, way):
                between.uop = follow(root.uop, way)
            else:  # the root was given another value since this view was taken
                memory = as_memory(between.uop)
                between.uop = written_through(
                    memory, rest, nodes.detach(value) if between._parameter else value)
        self._written = tuple((weakref.ref(tensor), weakref.ref(tensor.uop))
                              for tensor in (self, *(tensor for tensor, _ in living)))

    def _already_in(self, base: Any, path: Path) -> bool:
        """Whether this tensor is `base[path]`, was assigned to, and all still is as it was then.

        So it is in the second half of `base[...] += x`: Python sets the item that has been
        assigned. In `base[...] = base` nothing has been assigned yet.
        """
        if not self._written or not self._ancestors:
            return False
        reference, way = self._ancestors[0]
        return reference() is base and way == path and all(
            tensor is None or tensor.uop is node()
            for tensor, node in ((held(), node) for held, node in self._written))

    def _replace(self, value: UOp) -> None:
        """The new value, of a tensor that is no view: in place where there is memory."""
        # r[impl tensor.assign.value+2]
        if has_memory(self.uop):
            self.uop = write(self.uop, self.uop, value)
            return
        if isinstance(self.device, Mesh):  # r[impl multi.write.kept]
            sharding = self.runtime.sharding(self) or Sharding.copies(self.device, len(self.shape))
            value = UOp(Ops.SHARD, value.dtype, (value,), sharding)
        self.uop = value

    def replace(self, other: Self) -> Self:
        """Let this variable denote what `other` denotes, without writing to memory; but what
        requires a gradient takes memory of its own, where others have the value, too.
        """
        if other.shape != self.shape or other.dtype is not self.dtype:
            raise ShapeError("replace", f"{other.dtype.name} {other.shape} does not fit "
                             f"{self.dtype.name} {self.shape}",
                             "give a tensor of the same shape and dtype")
        self.uop, self.device = other.uop, other.device
        if self._parameter:
            if needs_gradient(self.uop):  # r[impl gradient.parameter.end+2]
                self.uop = nodes.detach(self.uop)
            self._own_variable()
            note_parameter(self.uop)
        return self

    @property
    def requires_grad(self) -> Any:
        """Whether `backward` computes a gradient for this tensor, or goes through it: a result of
        such tensors requires one, too, as in PyTorch.

        Setting it to True makes the tensor a variable of its own: its memory is shared with no
        other tensor, even where another one has the same value (r[tensor.parameter.own+3]).
        """
        if self._parameter is not None:
            return self._parameter
        return wants_gradient(self.uop)

    @requires_grad.setter
    def requires_grad(self, wanted: Any) -> None:
        if not wanted:
            if self._parameter:
                freeze_parameter(self.uop)
            self._parameter = False
            return
        if self.dtype.kind != "f":
            raise DTypeError("requires_grad", f"a tensor of {self.dtype.name} has no gradient",
                             "use a floating dtype: .float()")
        if not self._parameter:
            computed = needs_gradient(self.uop)
            self._own_variable()
            if computed:  # `retain_grad`: gradients flow on to what it was computed from
                self._history = self.uop
            self._parameter = True
            register_parameter(self)

    def requires_grad_(self, wanted: Any = True) -> Self:
        """Set `requires_grad`, and return the tensor."""
        self.requires_grad = wanted
        return self

    def _own_variable(self) -> None:
        """Be one variable, which no other one is, and which stays the same where it is computed."""
        if is_shared(self):
            self._own_memory()

    def _own_memory(self) -> Self:
        """Let the value be stored in memory of this tensor's own."""
        leaf = new_buffer_node(self.device, self.dtype, self.shape,
                               sharding=self.runtime.sharding(self))
        # A gradient of the other one's memory is none of this one's.
        value = nodes.detach(self.uop) if self.uop.op is Ops.BUFFER else self.uop
        self.uop = write(leaf, leaf, value)  # r[impl tensor.parameter.own+3]
        self._ancestors = ()
        return self
