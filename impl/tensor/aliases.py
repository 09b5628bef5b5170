"""Other names of methods: those that PyTorch and NumPy also have for them.

And methods of one line that say nothing new. Chapter: spec/tensor.md.
"""
from __future__ import annotations

import math
from typing import Any, Self

from impl.dtypes import dtypes
from impl.errors import DeviceError, ShapeError
from impl.gradient import nodes
from impl.host import np
from impl.ir import UOp
from impl.places import device_kind, device_number
from impl.tensor.autograd import Autograd
from impl.tensor.special import SIGNED


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

    def adjoint(self) -> Self:
        """The last two axes exchanged: of real numbers."""
        return self.mT

    @property
    def real(self) -> Self:
        """The tensor itself: its numbers are real."""
        return self

    def angle(self) -> Self:
        """0, or pi where a number is negative; NaN of NaN."""
        x = self.cast(self._result_float())
        return x.isnan().where(x, (x < 0).where(math.pi, x * 0))

    def conj(self) -> Self:
        """The tensor itself: its numbers are real."""
        return self

    def conj_physical(self) -> Self:
        """The tensor itself: its numbers are real."""
        return self

    resolve_conj = resolve_neg = conj

    def is_conj(self) -> bool:
        """False: nothing is put off."""
        return False

    is_neg = is_inference = is_conj

    @property
    def is_sparse(self) -> bool:
        """False: all tensors are dense."""
        return False

    is_sparse_csr = is_quantized = is_meta = is_nested = is_mkldnn = is_sparse

    def to_dense(self) -> Self:
        """The tensor itself: all are dense."""
        return self

    @property
    def is_cpu(self) -> bool:
        """Whether it is on the CPU."""
        return self.device.startswith(("CPU", "REFERENCE"))

    def pin_memory(self, device: Any = None) -> Self:
        """The tensor itself: memory is the runtime's business."""
        return self

    def share_memory_(self) -> Self:
        """The tensor itself: other processes have their own."""
        return self

    def is_pinned(self, device: Any = None) -> bool:
        """False."""
        return False

    is_shared = is_pinned

    def stride(self, dim: int | None = None) -> Any:
        """How many elements apart neighbours are, as the elements are counted: row by row."""
        found = tuple(math.prod(self.shape[axis + 1:]) for axis in range(len(self.shape)))
        return found if dim is None else found[self._axis(dim, "stride")]

    def storage_offset(self) -> int:
        """0: a tensor has its elements for itself."""
        return 0

    def as_strided(self, size: Any, stride: Any, storage_offset: int = 0) -> Self:
        """The elements at sums of multiples of steps, the elements being counted row by row.

        It is a value of its own: what is written to it is not written to this tensor.

        Raises:
            ShapeError: there are not as many steps as sizes, or one would leave the tensor.
        """
        if len(size) != len(stride):
            raise ShapeError("as_strided", f"sizes {tuple(size)} and steps {tuple(stride)}",
                             "give a step for each size")
        last = storage_offset + sum((n - 1) * step for n, step in zip(size, stride, strict=True))
        if 0 in size:
            return self.new_empty(*size)
        if not 0 <= last < self.numel() or min((0, *stride)) < 0 or storage_offset < 0:
            raise ShapeError("as_strided", f"sizes {tuple(size)} and steps {tuple(stride)} from "
                             f"{storage_offset} on leave a tensor of {self.numel()} elements",
                             "count the elements row by row")
        places = np.full(tuple(size), storage_offset, np.int32)
        for axis, (n, step) in enumerate(zip(size, stride, strict=True)):
            places += (np.arange(n, dtype=np.int32) * step).reshape(
                -1, *(1,) * (len(size) - axis - 1))
        return self.flatten()[self.__class__(places, self.device)]

    def nextafter(self, other: Any) -> Self:
        """The next number of the dtype in the direction of `other`."""
        first, second = self.broadcast_tensors(self._tensor(other))
        second = second.cast(first.dtype)
        bits = SIGNED[first.dtype.itemsize]
        pattern = first.bitcast(bits)
        grown = ((first > 0) == (second > first)).where(pattern + 1, pattern - 1)
        from_zero = (second > 0).where(1, grown.full_like(int(bits.min) + 1))
        first, second = first.detach(), second.detach()
        moved = first.eq(0).where(from_zero, grown).bitcast(first.dtype)
        found = first.eq(second).where(second, moved)
        return (first.isnan() | second.isnan()).where(math.nan, found)

    as_strided_copy = as_strided

    def fill(self, value: Any) -> Self:
        """One number, or that of a tensor, everywhere."""
        return self._wrap(nodes.broadcast(self._value_for(value, self.shape), self.shape))

    def frobenius_norm(self, dim: Any = None, keepdim: bool = False) -> Self:
        """The root of the sum of squares."""
        return self.norm(2, dim, keepdim)

    def nuclear_norm(self, dim: Any = (-2, -1), keepdim: bool = False) -> Self:
        """The sum of the singular values."""
        return self.matrix_norm("nuc", dim, keepdim)

    def retain_grad(self) -> None:
        """Let `backward` fill `grad` of this tensor, too."""
        self.requires_grad_()

    def binomial(self, prob: Any) -> Self:
        """How many of so many tries succeed, by chance."""
        most = int(self.max().known("binomial", "a count that is a number").item())
        chance = self.rand((most, *self.shape), device=self.device)
        number = self.__class__(np.arange(most), self.device)
        counted = number.reshape(most, *(1,) * len(self.shape)) < self
        return ((chance < prob) & counted).sum(0).cast(self.dtype)

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

    @property
    def is_mps(self) -> bool:
        """Whether it is on the GPU of a Mac."""
        return self.device.startswith("METAL")

    @property
    def is_xpu(self) -> bool:
        """False: no device here is one of PyTorch's other kinds."""
        return False

    is_ipu = is_maia = is_mtia = is_vulkan = is_xla = is_xpu

    def dim_order(self) -> tuple[int, ...]:
        """The axes in their order: there are no strides."""
        return tuple(range(len(self.shape)))

    def stft(self, n_fft: int, *given: Any, **named: Any) -> Any:
        """`impl.fft.stft`: complex numbers"""
        return self.runtime.fourier("stft", self, n_fft, *given, **named)

    def istft(self, n_fft: int, *given: Any, **named: Any) -> Any:
        """`impl.fft.istft` of a last axis of both parts"""
        return self.runtime.fourier("istft", self, n_fft, *given, **named)

    def new(self, *given: Any, dtype: Any = None, device: Any = None) -> Self:
        """new_tensor of a list or an array, new_empty of sizes"""
        if len(given) == 1 and not isinstance(given[0], int):
            return self.new_tensor(given[0], dtype, device)
        return self.new_empty(*(given or (0,)), dtype=dtype, device=device)

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
        if not wanted:
            return self.sum()
        front = len(self.shape) - len(wanted)
        axes = (*range(front), *(front + axis for axis, one in enumerate(wanted)
                                 if one == 1 != self.shape[front + axis]))
        return (self.sum(axes, keepdim=True) if axes else self).reshape(tuple(wanted))

    # Tensors of the same kind as this one

    def new_tensor(self, data: Any, dtype: Any = None, device: Any = None,
                   requires_grad: bool = False) -> Self:
        """Values as a tensor of this dtype and device."""
        made = self.__class__(data, self.device, self.dtype if dtype is None else dtype)
        return made._as_asked(device, requires_grad)

    def new_zeros(self, *size: Any, dtype: Any = None, device: Any = None,
                  requires_grad: bool = False) -> Self:
        """Zeros in this dtype, on this device."""
        return self.zeros(*size, dtype=self.dtype if dtype is None else dtype,
                          device=device or self.device, requires_grad=requires_grad)

    def new_ones(self, *size: Any, dtype: Any = None, device: Any = None,
                 requires_grad: bool = False) -> Self:
        """Ones in this dtype, on this device."""
        return self.ones(*size, dtype=self.dtype if dtype is None else dtype,
                         device=device or self.device, requires_grad=requires_grad)

    def new_full(self, size: Any, fill_value: Any, dtype: Any = None, device: Any = None,
                 requires_grad: bool = False) -> Self:
        """One number in this dtype, on this device."""
        wanted = self.dtype if dtype is None else dtype
        return self.full(size, fill_value, wanted, device or self.device, requires_grad)

    def new_empty(self, *size: Any, dtype: Any = None, device: Any = None,
                  requires_grad: bool = False) -> Self:
        """Memory in this dtype, on this device."""
        return self.empty(*size, dtype=self.dtype if dtype is None else dtype,
                          device=device or self.device, requires_grad=requires_grad)
