"""Memory that another library sees, and memory of another library. Chapter: spec/device.md.

Nothing is written to either: whoever overwrites a value takes new memory for it first.
"""
from __future__ import annotations

import weakref
from typing import Any

from impl.device import Memory
from impl.dtypes import DType
from impl.errors import DeviceError
from impl.host import np


class _Loan:
    """What all arrays hold that show one memory, which it keeps."""

    def __init__(self, memory: Memory) -> None:
        self.memory = memory  # r[impl device.lent.kept]


class _Elements:
    """What an array of NumPy stands on."""

    def __init__(self, loan: _Loan, dtype: DType, count: int, offset: int) -> None:
        self.loan = loan
        self.__array_interface__ = {
            "version": 3, "shape": (count,), "typestr": dtype.numpy.str,
            "data": (loan.memory.address + offset, True)}


#: Memory that others see, with its loan; None for what is theirs.
lent: weakref.WeakKeyDictionary[Memory, weakref.ref[_Loan] | None] = weakref.WeakKeyDictionary()


def lent_elements(memory: Memory, dtype: DType, count: int, offset: int = 0) -> np.ndarray:
    """Elements of a memory of the host where they lie, as an array that cannot be written to.

    The memory is given back once the array, and all that was made of it, is gone.
    """
    theirs, known = memory in lent and lent[memory] is None, lent.get(memory)
    loan = (known and known()) or _Loan(memory)
    if not theirs:
        lent[memory] = weakref.ref(loan)
    return np.asarray(_Elements(loan, dtype, count, offset))


def adopted(device: Any, array: np.ndarray) -> Memory:
    """The memory of an array, which is kept as long as anybody has what is returned.

    Raises:
        DeviceError: the elements have gaps or another order, or do not start where one may.
    """
    if not array.flags.c_contiguous or not array.flags.aligned or not array.dtype.isnative:
        raise DeviceError("from_dlpack", f"an array of strides {array.strides} cannot be shared",
                          "leave out copy=False")
    data = array.reshape(-1).view(np.uint8)
    memory = Memory(device, data, 0, data.nbytes, array)
    lent[memory] = None  # r[impl device.lent.kept]
    return memory


def is_seen(memory: Memory) -> bool:
    """Whether another library sees this memory now, or it is another library's."""
    if memory not in lent:
        return False
    holder = lent[memory]
    return holder is None or holder() is not None
