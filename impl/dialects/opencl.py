"""The OpenCL C dialect. Chapter: spec/opencl.md."""
from __future__ import annotations

from collections.abc import Sequence

from impl.dialects.gpu import Gpu
from impl.dtypes import DType, dtypes
from impl.ir import UOp


class OpenCL(Gpu):
    """OpenCL C 1.2. A pointer comes as a buffer and a byte in it: buffers cannot start anywhere."""

    name = "OPENCL"
    header = "#pragma OPENCL FP_CONTRACT OFF"
    own = {
        "bits_f32": "#define bits_f32(x) as_int(x)",
        "unbits_f32": "#define unbits_f32(x) as_float(x)",
    }

    def __init__(self, double: bool = True) -> None:
        super().__init__()
        self.lacks = frozenset(() if double else (dtypes.float64,))

    def signature(self, phased: bool) -> str:
        """A kernel with its parameters, known once it is printed; and with the phase, and memory
        that all groups share.
        """
        size = "" if phased else f"__attribute__((reqd_work_group_size({self.lanes}, 1, 1))) "
        more = ["const int phase", "__global char *scratch"] if phased else []
        return f"__kernel {size}void {{name}}({', '.join([*self.given, *more])})"

    def argument(self, name: str, param: UOp, written: bool) -> str:
        """Two parameters, and the pointer that they stand for."""
        # r[impl opencl.launch.reach]
        self.parameters.append(param.arg)
        kind = ("" if written else "const ") + self.storage_of(param.dtype)
        self.given += [f"__global char *b{name}", f"const long o{name}"]
        return f"__global {kind} *{name} = (__global {kind} *)(b{name} + o{name});"

    def variable(self, name: str, position: int, dtype: DType) -> str:
        """A parameter."""
        self.given.append(f"const long {name}")
        return ""

    def ids(self, variables: int) -> str:
        """The numbers of this lane."""
        return (f"const {self.index} group = get_group_id(0), lane = get_local_id(0), "
                "thread = get_global_id(0), threads = get_global_size(0);")

    def wide_type(self, dtype: DType, count: int) -> str:
        """A vector."""
        kind = self.storage_of(dtype).replace("unsigned ", "u").replace("signed ", "")
        return f"{kind}{count}"

    def wide_value(self, pointer: str, index: str, dtype: DType, count: int, local: bool) -> str:
        """vload wants no more alignment than an element has."""
        return f"vload{count}(0, {self._wide_place(pointer, index, dtype, local)})"

    def _wide_place(self, pointer: str, index: str, dtype: DType, local: bool) -> str:
        """An address; of signed bytes, which are `char` to vload and vstore."""
        place = f"{pointer} + {index}"
        space = "__local" if local else "__global"
        return f"({space} char *)({place})" if dtype is dtypes.int8 else place

    def wide_zero(self, dtype: DType, count: int) -> str:
        """All elements zero."""
        return f"({self.wide_type(dtype, count)})(0)"

    def wide_part(self, name: str, place: int) -> str:
        """An element."""
        return f"{name}.s{place:x}"

    def wide_write(self, pointer: str, index: str, dtype: DType, values: Sequence[str],
                   local: bool) -> str:
        """A vector of the values."""
        kind = self.wide_type(dtype, len(values))
        parts = ", ".join(f"({self.storage_of(dtype)})({value})" for value in values)
        place = self._wide_place(pointer, index, dtype, local)
        return f"vstore{len(values)}(({kind})({parts}), 0, {place});"

    def group_local(self, name: str, dtype: DType, size: int) -> str:
        """An array that the lanes of a group share."""
        return f"__local {self.storage_of(dtype)} {name}[{max(size, 1)}];"

    def shared(self, name: str, dtype: DType, offset: int) -> str:
        """An array in the memory that all groups share."""
        kind = self.storage_of(dtype)
        return f"__global {kind} *{name} = (__global {kind} *)(scratch + {offset});"

    def wait(self) -> str:
        """All lanes of a group get here before one goes on."""
        return "barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);"
