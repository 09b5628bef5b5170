"""PyTensor, in its default mode, which compiles with Numba, and interpreted by NumPy.

A variable of a program is a shared variable. What stands between two boundaries is one compiled
function; what it changes are updates of shared variables, which it may carry out in place. A
captured function is compiled once, and its numbers are inputs. Numba has no `float16`, and there
is no bitcast: neither is declared, nor are `floordiv` and `mod`, which leave division by zero
open. `pad` gives floats, of integers too, so padding is a store into zeros. A captured function is
not compiled again for what has changed outside of it.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np
import pytensor
import pytensor.tensor as pt
from pytensor.compile.mode import Mode
from pytensor.compile.sharedvalue import SharedVariable

from conformance.adapters.library import CompilingAdapter, Function, Variables, selection, unwrapped
from conformance.adapters.numpy_adapter import places
from conformance.protocol import Array, Statement

Tensor = Any  # a shared variable, or an expression of such
DTYPES = ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
          "float32", "float64")
KINDS = {bool: "bool", int: "int64", float: "float64"}


def _reduced(function: Callable[..., Tensor], **fields: Any) -> Function:
    return lambda s, x: function(x, axis=tuple(s["axes"]), keepdims=s["keepdims"],
                                 **{name: x.dtype for name in fields})


def _wide(x: Tensor) -> Tensor:
    """Running sums of integers are of 64 bits, whatever their type says."""
    if np.dtype(x.dtype).kind not in "iu":
        return x
    return pt.cast(x, "int64" if np.dtype(x.dtype).kind == "i" else "uint64")


def _padded(s: Statement, x: Tensor) -> Tensor:
    sizes = [before + size + after
             for size, (before, after) in zip(x.type.shape, s["widths"], strict=True)]
    inside = tuple(slice(before, before + size)
                   for size, (before, _) in zip(x.type.shape, s["widths"], strict=True))
    return pt.set_subtensor(pt.zeros(sizes, dtype=x.dtype)[inside], x) if sizes else x


def _indexed(s: Statement, x: Tensor) -> Tensor:
    return x[selection(s, x.ndim)] if x.ndim else x


class Adapter(CompilingAdapter[Tensor]):
    """Drives PyTensor in its default mode."""

    mode: ClassVar[Any] = None
    functions = {
        "neg": pt.neg, "abs": pt.abs, "relu": lambda x: pt.maximum(x, pt.zeros_like(x)),
        "not": pt.invert, "exp": pt.exp, "log": pt.log, "sqrt": pt.sqrt, "sin": pt.sin,
        "tanh": pt.tanh, "reciprocal": pt.reciprocal, "add": pt.add, "sub": pt.sub, "mul": pt.mul,
        "div": pt.true_div, "maximum": pt.maximum, "minimum": pt.minimum, "pow": pt.pow,
        "less": pt.lt, "less_equal": pt.le, "equal": pt.eq, "and": pt.bitwise_and,
        "or": pt.bitwise_or, "xor": pt.bitwise_xor, "where": pt.switch, "matmul": pt.matmul,
        "gather": lambda x, at: x[pt.cast(at, "int64")], "copy": pt.tensor_copy,
        "contiguous": pt.tensor_copy,
    }
    shaped = {
        "reshape": lambda s, x: pt.reshape(x, tuple(s["shape"]), ndim=len(s["shape"])),
        "expand": lambda s, x: pt.broadcast_to(x, tuple(s["shape"])),
        "permute": lambda s, x: x.dimshuffle(s["order"]), "pad": _padded,
        "flip": _indexed, "shrink": _indexed, "stride": _indexed,
        "sum": _reduced(pt.sum, dtype=True), "prod": _reduced(pt.prod, dtype=True),
        "max": _reduced(pt.max), "min": _reduced(pt.min), "mean": _reduced(pt.mean, dtype=True),
        "cast": lambda s, x: pt.cast(x, s["dtype"]),
        "softmax": lambda s, x: pt.special.softmax(x, s["axis"]),
        "cumsum": lambda s, x: pt.cast(pt.cumsum(_wide(x), s["axis"]), x.dtype),
    }
    effects = (*CompilingAdapter.effects, "assign", "store")

    def __init__(self, name: str = "pytensor") -> None:
        super().__init__(name, pytensor.__version__, dtypes=DTYPES,
                         observes=("values", "replay"))

    def array(self, elements: Array) -> Tensor:
        return pytensor.shared(elements, shape=elements.shape)

    def full(self, dtype: str, shape: Sequence[int], value: Any) -> Tensor:
        symbolic = isinstance(value, pt.TensorVariable)
        number = pt.cast(value, dtype) if symbolic else np.array(value, dtype)
        return pt.alloc(number, *shape)

    def elements(self, tensor: Tensor) -> Array:
        found: Array = tensor.get_value()
        return found

    def write(self, target: Tensor, view: Sequence[Statement], value: Tensor) -> Tensor:
        if not view or not target.ndim:
            return pt.tensor_copy(value.reshape(target.type.shape))
        if len(view) == 1 and view[0]["do"] in ("shrink", "stride", "flip"):
            return pt.set_subtensor(target[selection(view[0], target.ndim)], value)
        numbers = places(target.type.shape, view).reshape(-1)
        flat = pt.set_subtensor(target.flatten()[numbers], value.flatten())
        return flat.reshape(target.type.shape)

    def repeat(self, statement: Statement, variables: Variables[Tensor]) -> None:
        """What a body writes to is a result of it, like what it defines."""
        targets = dict.fromkeys(each["target"] for each in statement["statements"]
                                if "target" in each)
        results: list[Statement] = [{"do": "contiguous", "to": name, "from": [name]}
                                    for name in targets]
        if "replay" in self.tiers:
            statement = {**statement, "statements": [*statement["statements"], *results]}
        super().repeat(statement, variables)

    def captured(self, function: Function) -> Function:
        """Compiled for the shared variables that it is given; the arguments are inputs."""
        compiled: dict[Any, Function] = {}

        def step(given: Variables[Tensor], containers: Any = None) -> Any:
            arguments = {} if containers is None else unwrapped(containers)
            key = (*map(id, given.values()), *map(_kind, arguments.values()))
            if key not in compiled:
                compiled[key] = _compiled(function, given, arguments, containers is not None,
                                          self.mode)
            return compiled[key](given, arguments)
        return step


class Interpreted(Adapter):
    """Drives what the same rewrites, in place too, make of a graph; NumPy carries it out.

    Nothing is fused: what is fused would be computed with numbers of Python.
    """

    mode = Mode(linker="py", optimizer="fast_run").excluding("fusion")

    def __init__(self) -> None:
        super().__init__("pytensor interpreted")


def _kind(value: Any) -> tuple[str, tuple[int, ...]]:
    """The dtype and the shape of an argument."""
    if isinstance(value, SharedVariable):
        return value.dtype, value.type.shape
    return KINDS[type(value)], ()


def _compiled(function: Function, given: Variables[Tensor], arguments: dict[str, Any],
              body: bool, mode: Any) -> Function:
    """The body of a repetition observes something; what stands between boundaries does not."""
    symbols = {name: pt.tensor(name, dtype=_kind(value)[0], shape=_kind(value)[1])
               for name, value in arguments.items()}
    made, observed = function(given, symbols) if body else (function(given), [])
    changed = {name: value for name, value in made.items() if value is not given.get(name)}
    kept = {name for name in changed if name in given and _fits(changed[name], given[name])}
    new = [name for name in changed if name not in kept]
    call = pytensor.function(
        list(symbols.values()), [*(changed[name] for name in new), *observed],
        updates={given[name]: changed[name] for name in kept}, on_unused_input="ignore",
        mode=mode)

    def run(given: Variables[Tensor], arguments: dict[str, Any]) -> Any:
        values = [value.get_value() if isinstance(value, SharedVariable) else value
                  for value in arguments.values()]
        results = [_shared(each) for each in call(*values)]
        found = {name: given[name] for name in made if name not in new}
        found.update(zip(new, results, strict=False))
        return (found, results[len(new):]) if body else found
    return run


def _fits(value: Tensor, shared: Tensor) -> bool:
    """Whether a shared variable can hold a value."""
    return value.dtype == shared.dtype and value.type.shape == shared.type.shape


def _shared(result: Any) -> Tensor:
    array = np.asarray(result)
    return pytensor.shared(array, shape=array.shape, borrow=True)
