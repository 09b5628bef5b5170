"""What Python's own functions and those of libraries do: which read only what they are given.

Whatever stands in none of these lists may do anything (a clock, a file, a generator of random
numbers), and a function that calls it is not replayed blindly.
"""
from __future__ import annotations

import builtins
import collections
import dataclasses
import functools
import itertools
import math
import operator
import os
import reprlib
import sys
import types
from typing import Any

from impl.errors import is_library
from impl.host import has_numpy, np

_PYTHON = os.path.dirname(os.__file__) + os.sep


@functools.cache
def plain_types() -> tuple[type, ...]:
    """Numbers, texts and the like: what they are never changes, and two that are equal are one."""
    numpy = (np.dtype, np.generic) if has_numpy() else ()
    return (bool, int, float, complex, str, bytes, type(None), type(...), type(NotImplemented),
            *numpy, range)


@functools.cache
def memory_types() -> tuple[type, ...]:
    """Memory that is compared by its content."""
    return (*((np.ndarray,) if has_numpy() else ()), bytearray, memoryview)


#: Containers of Python, read item by item.
CONTAINERS: tuple[Any, ...] = (
    list, dict, tuple, set, frozenset, collections.OrderedDict, collections.defaultdict,
    collections.deque, types.MappingProxyType,
    type({}.keys()), type({}.values()), type({}.items()))
#: Objects of Python in which nothing is that changes, or that are looked at elsewhere.
CLOSED = (types.FunctionType, types.BuiltinFunctionType, types.ModuleType, types.MethodType,
          types.CodeType, types.CellType, types.MethodWrapperType, types.MethodDescriptorType,
          types.WrapperDescriptorType, types.GetSetDescriptorType, types.MemberDescriptorType,
          types.ClassMethodDescriptorType, types.GenericAlias, types.UnionType, slice, property,
          staticmethod, classmethod, super, type)
#: The attributes that containers of Python, and what goes through them, have.
METHODS = dict.fromkeys(name for kind in (
    *CONTAINERS, slice, types.GeneratorType, bytearray) for name in dir(kind))
#: Code of Python around a `__repr__`, that of data classes too, which only stops at a repetition.
REPEATING = frozenset(function.__code__ for function in (
    reprlib.recursive_repr()(repr),
    getattr(dataclasses, "_recursive_repr", reprlib.recursive_repr())(repr)))


def shown_once(function: types.FunctionType) -> types.FunctionType:
    """The `__repr__` around which such code stands; not every version says `__wrapped__`."""
    place = function.__code__.co_freevars.index("user_function")
    assert function.__closure__ is not None
    found: types.FunctionType = function.__closure__[place].cell_contents
    return found


#: What finds a part of a named tuple by its name.
TUPLE_GETTER: type = type(vars(collections.namedtuple("Pair", "left"))["left"])
#: Their methods that change them.
CHANGING = frozenset((
    "append", "extend", "insert", "remove", "pop", "clear", "sort", "reverse", "update", "add",
    "discard", "setdefault", "popitem", "move_to_end", "appendleft", "popleft", "extendleft",
    "rotate", "difference_update", "intersection_update", "symmetric_difference_update",
    "__setitem__", "__delitem__", "__iadd__", "__ior__", "__setattr__",
    # those of arrays
    "fill", "itemset", "partition", "put", "resize", "setfield", "setflags", "byteswap", "tofile",
    "dump", "dumps", "__setstate__"))

_NAMES = (
    "abs all any ascii bin bool bytes callable chr complex dict divmod enumerate filter float "
    "format frozenset hash hex id int isinstance issubclass iter len list map max min next object "
    "oct ord pow range repr reversed round set slice sorted str sum tuple zip "
    "NotImplemented Ellipsis")
_TYPES = (collections.OrderedDict, collections.defaultdict, collections.deque, functools.partial,
          types.SimpleNamespace,
          *(kind for kind in vars(itertools).values() if isinstance(kind, type)))
_PURE: set[int] = {id(getattr(builtins, name)) for name in _NAMES.split()}
_PURE |= {id(kind) for kind in _TYPES}
_PURE |= {id(functools.reduce), id(functools.cmp_to_key)}
_PURE |= {id(each) for module in (math, operator) for each in vars(module).values()
          if callable(each) and not isinstance(each, type)}
_PURE -= {id(getattr(operator, name)) for name in ("setitem", "delitem", *(
    name for name in operator.__all__ if f"__{name}__" in vars(operator) and name[0] == "i"
    and name not in ("index", "inv", "invert", "is_", "is_not", "indexOf")))}
_PURE |= {id(operator.itemgetter)}
_PURE |= {id(tuple.__new__), id(object.__new__), id(object.__init__)}

#: Functions of NumPy that read or write more than their arguments.
_STATEFUL = frozenset((
    "load", "save", "savez", "savez_compressed", "loadtxt", "savetxt", "genfromtxt", "fromfile",
    "fromregex", "memmap", "copyto", "put", "put_along_axis", "place", "putmask", "fill_diagonal",
    "seterr", "setbufsize", "set_printoptions", "errstate", "geterr", "get_printoptions", "empty",
    "empty_like", "vectorize", "fromiter", "frompyfunc", "nditer", "info", "show_config"))
_MODULES = ("numpy", "math", "operator", "itertools", "functools", "impl", "builtins", "types",
            "numpy.linalg", "numpy.fft", "collections", "enum", "typing", "cmath")


@functools.cache
def _pure_of_numpy() -> frozenset[int]:
    """The classes of NumPy that only hold what they are given."""
    kinds = vars(np).values() if has_numpy() else ()
    return frozenset(id(kind) for kind in kinds if isinstance(kind, type)
                     and (kind in (np.ndarray, np.dtype) or issubclass(kind, np.generic)))


def is_pure(function: Any) -> bool:
    """Whether a callable that is not followed depends on its arguments only, and changes none."""
    if id(function) in _PURE or id(function) in _pure_of_numpy():
        return True
    kind = type(function)
    if kind is np.ufunc:
        return not all("O" in each for each in function.types)  # one made of a Python function
    home, name = getattr(function, "__module__", None), getattr(function, "__name__", "")
    if home in ("numpy", "numpy.linalg", "numpy.fft", "cmath") and not is_open(kind):
        return name not in _STATEFUL and not isinstance(function, type)
    return isinstance(function, type) and issubclass(function, BaseException)


def is_of_numpy(function: Any) -> bool:
    """Whether NumPy has it: a function, a ufunc or a class."""
    home = getattr(function, "__module__", None) or type(function).__module__
    return home.partition(".")[0] == "numpy"


def is_plain(value: Any) -> bool:
    """Whether a value is a number, a text or the like, of no class of a user."""
    return isinstance(value, plain_types()) and not isinstance(value, np.void) \
        and not is_open(type(value))


def is_open(kind: type) -> bool:
    """Whether what a class has, and which classes it comes from, can be changed."""
    return bool(kind.__flags__ & 1 << 9) and not kind.__flags__ & 1 << 8


def is_fixed(module: str) -> bool:
    """Whether what a module holds is taken as it is where nobody names it: Python's own, NumPy and
    this library, but for its layers.
    """
    return module in _MODULES or module.startswith("impl.") and not module.startswith("impl.nn")


def home_of(kind: type) -> str:
    """The module that a class is of: nothing where that module does not have this very class by
    its name. What users make can say any module of itself, as the data classes that are made by
    a function do.
    """
    # r[impl following.homes.held]
    home = kind.__module__
    return "" if is_open(kind) and held_by_name(home, kind.__qualname__) is not kind else home


def held_by_name(home: str, name: str) -> Any:
    """What a module holds by a qualified name; None if it holds nothing, or is not imported."""
    held: Any = sys.modules.get(home)
    for part in name.split("."):
        held = getattr(held, "__dict__", {}).get(part)
    return held


def module_of(function: types.FunctionType) -> str:
    """The module whose names a function reads, whatever it says of itself: a decorator gives it
    the name of another one.
    """
    # r[impl following.homes.held]
    home = function.__globals__.get("__name__", "")
    return home if getattr(sys.modules.get(home), "__dict__", None) is function.__globals__ else ""


def is_fixed_module(module: types.ModuleType) -> bool:
    """Whether a module is one of those that are taken as they are, and not only called so."""
    name = getattr(module, "__name__", "")
    return sys.modules.get(name) is module and is_fixed(name)


def is_followed(code: types.CodeType) -> bool:
    """Whether the code of a function is looked through, as that of a user: not so our own, but for
    the layers and optimisers, which stand on top of all chapters.
    """
    name = code.co_filename
    if not is_library(name) or name.startswith("<frozen "):  # `os` is frozen into Python
        return f"{np.__path__[0]}/" not in name
    return "/impl/nn/" in name.replace("\\", "/")


def is_of_library(filename: str) -> bool:
    """Whether a file is of this library, or of Python's own."""
    return is_library(filename) or is_of_python(filename)


def is_of_python(filename: str) -> bool:
    """Whether a file is of Python's own modules, some of which are frozen into it."""
    return filename.startswith("<frozen ") or filename.startswith(_PYTHON) \
        and "site-packages" not in filename


def is_own(kind: type) -> bool:
    """Whether a class is of this library, and not of its layers and optimisers."""
    home = kind.__module__
    return (home == "impl" or home.startswith("impl.")) and not home.startswith("impl.nn") \
        and home_of(kind) == home

