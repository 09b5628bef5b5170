"""Other names of methods: those that PyTorch and NumPy also have for them.

And methods of one line that say nothing new. Chapter: spec/tensor.md.
"""
from __future__ import annotations

from typing import Any, Self

from impl.dtypes import dtypes
from impl.errors import DeviceError
from impl.gradient import nodes
from impl.ir import UOp
from impl.places import device_kind, device_number
from impl.tensor.autograd import Autograd


class Aliases(Autograd):
    """Methods under a second name."""

    __slots__ = ()

    # Arithmetic and comparisons
    absolute = Autograd.abs
    negative = Autograd.neg
    subtract = Autograd.sub
    multiply = Autograd.mul
    divide = Autograd.div
    remainder = Autograd.mod
    sgn = Autograd.sign
    fix = Autograd.trunc
    arcsin = Autograd.asin
    arccos = Autograd.acos
    arctan = Autograd.atan
    arctan2 = Autograd.atan2
    arcsinh = Autograd.asinh
    arccosh = Autograd.acosh
    arctanh = Autograd.atanh
    greater = Autograd.gt
    greater_equal = Autograd.ge
    less = Autograd.lt
    less_equal = Autograd.le
    not_equal = Autograd.ne
    expit = Autograd.sigmoid
    log_sigmoid = Autograd.logsigmoid
    bitwise_left_shift = Autograd.lshift
    bitwise_right_shift = Autograd.rshift

    # Shape and order
    ravel = Autograd.flatten
    swapaxes = Autograd.transpose
    swapdims = Autograd.transpose
    moveaxis = Autograd.movedim
    expand_dims = Autograd.unsqueeze
    view_as = Autograd.reshape_as
    unsafe_chunk = Autograd.chunk
    unsafe_split = Autograd.split
    unsafe_split_with_sizes = Autograd.split_with_sizes
    narrow_copy = Autograd.narrow
    concat = Autograd.cat
    concatenate = Autograd.cat
    row_stack = Autograd.vstack

    # Other
    astype = Autograd.cast
    copy = Autograd.clone
    nelement = Autograd.numel
    ndimension = Autograd.dim

    @property
    def H(self) -> Self:  # noqa: N802
        """The last two axes exchanged: of real numbers."""
        return self.mT

    mH = H  # noqa: N815

    @property
    def is_leaf(self) -> bool:
        """Whether it is no result of an operation on a tensor that requires a gradient."""
        return bool(self._parameter) or not self.requires_grad

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return self.dtype.itemsize

    @property
    def is_cuda(self) -> bool:
        """Whether it is on a CUDA device."""
        return self.device.startswith("CUDA")

    def t(self) -> Self:
        """The transpose of a matrix; a vector stays."""
        return self.T if len(self.shape) > 1 else self._another()

    def positive(self) -> Self:
        """+self"""
        return +self

    def true_divide(self, other: Any) -> Self:
        """self / other"""
        return self / other

    def floor_divide(self, other: Any) -> Self:
        """self // other"""
        return self // other

    def rsub(self, other: Any, alpha: float = 1) -> Self:
        """other - alpha * self"""
        return other - (self if alpha == 1 else self * alpha)

    def clamp_min(self, min: Any) -> Self:  # noqa: A002
        """The elements, but none below `min`."""
        return self.clip(min=min)

    def clamp_max(self, max: Any) -> Self:  # noqa: A002
        """The elements, but none above `max`."""
        return self.clip(max=max)

    def is_nonzero(self) -> bool:
        """Whether the one element is not zero."""
        return bool(self)

    def is_complex(self) -> bool:
        """False: complex numbers are an `impl.complex.Complex`."""
        return False

    def is_signed(self) -> bool:
        """Whether the dtype has negative numbers."""
        return self.dtype.kind in "if"

    def is_contiguous(self) -> bool:
        """True: a tensor has no strides of its own."""
        return True

    def is_same_size(self, other: Self) -> bool:
        """Whether the shapes are equal."""
        return self.shape == other.shape

    def isreal(self) -> Self:
        """True everywhere: complex numbers are an `impl.complex.Complex`."""
        return self._wrap(nodes.full(UOp.const(dtypes.bool, True), self.shape))

    def __contains__(self, value: Any) -> bool:
        """Whether an element equals a number, or that of a tensor beside it: `5 in x`."""
        return bool((self == value).any().item())

    def type_as(self, other: Self) -> Self:
        """The elements in the dtype of another tensor."""
        return self.cast(other.dtype)

    def byte(self) -> Self:
        """As uint8."""
        return self.cast(dtypes.uint8)

    def char(self) -> Self:
        """As int8."""
        return self.cast(dtypes.int8)

    def short(self) -> Self:
        """As int16."""
        return self.cast(dtypes.int16)

    def cuda(self, device: int = 0) -> Self:
        """On a CUDA device."""
        return self.to(f"CUDA:{device}" if device else "CUDA")

    def get_device(self) -> int:
        """The number of the device.

        Raises:
            DeviceError: it is no CUDA device.
        """
        if device_kind(self.device) != "CUDA":
            raise DeviceError("get_device", f"{self.device} has no number", "use x.device")
        return device_number(self.device)

    def sum_to_size(self, *size: Any) -> Self:
        """Summed over the axes that would be broadcast from this shape."""
        wanted = size[0] if len(size) == 1 and isinstance(size[0], (tuple, list)) else size
        front = len(self.shape) - len(wanted)
        axes = (*range(front), *(front + axis for axis, one in enumerate(wanted)
                                 if one == 1 != self.shape[front + axis]))
        return (self.sum(axes, keepdim=True) if axes else self).reshape(tuple(wanted))

    # Tensors of the same kind as this one

    def new_tensor(self, data: Any, dtype: Any = None) -> Self:
        """Values as a tensor of this dtype and device."""
        return self.__class__(data, self.device, self.dtype if dtype is None else dtype)

    def new_zeros(self, *size: Any, dtype: Any = None) -> Self:
        """Zeros in this dtype, on this device."""
        return self.zeros(*size, dtype=self.dtype if dtype is None else dtype, device=self.device)

    def new_ones(self, *size: Any, dtype: Any = None) -> Self:
        """Ones in this dtype, on this device."""
        return self.ones(*size, dtype=self.dtype if dtype is None else dtype, device=self.device)

    def new_full(self, size: Any, fill_value: Any, dtype: Any = None) -> Self:
        """One number in this dtype, on this device."""
        wanted = self.dtype if dtype is None else dtype
        return self.full(size, fill_value, wanted, self.device)

    def new_empty(self, *size: Any, dtype: Any = None) -> Self:
        """Memory in this dtype, on this device."""
        return self.empty(*size, dtype=self.dtype if dtype is None else dtype, device=self.device)
