"""What somebody meant who asks `nn` for a name that it does not have. Chapter: spec/errors.md."""
from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, NoReturn

from impl.errors import NameMissingError, name_missing, nearest
from impl.tensor import Tensor

#: What has another name here than its own.
_MEANT = {"autocast": "model.bfloat16(), or nothing: no dtype is changed unasked",
          **dict.fromkeys(("modules", "container"), "nn: all layers are there"),
          "crossmaplrn2d": "nn.LocalResponseNorm", "nllloss2d": "nn.NLLLoss",
          **dict.fromkeys(("uninitializedparameter", "uninitializedbuffer"),
                          "nn.LazyLinear and other lazy layers"),
          **dict.fromkeys(("qat", "quantizable", "quantized", "intrinsic"),
                          "float8_e4m3fn, float8_e5m2, int4 or int8 and a scale of your own"),
          **dict.fromkeys(("common_types", "factory_kwargs", "linearcrossentropyoptions"),
                          "nothing in its place: it is about PyTorch itself"),
          "parallel": "shard(...) on the parameters and the batch: one program for a mesh",
          "dataparallel": "shard(...) on the parameters and the batch: one program for a mesh",
          "distributeddataparallel": "impl.distributed, and shard(...) on the parameters"}


#: What the modules below `nn` offer: each says it when it is imported.
_PARTS: dict[str, Sequence[str]] = {}


def publish(part: str, names: Sequence[str]) -> None:
    """Let errors know what a module below `nn` offers: `publish("optim", __all__)`."""
    _PARTS[part] = names


def missing(name: str, own: Iterable[str], module: str = "nn") -> NameMissingError:
    """The error for a name that is not there: with the nearest of all names that are."""
    return NameMissingError(module, f"there is no {name}", _remedy(name.lower(), own, module))


def _remedy(given: str, own: Iterable[str], module: str) -> str:
    """A class of another spelling, a method of tensors, or the name that looks most like it."""
    known = {each.lower(): f"nn.{each}" for each in own}
    known |= {each.lower(): f"nn.{part}.{each}" for part, names in _PARTS.items()
              for each in names}
    if given in known:
        return f"did you mean {known[given]}?"
    if given in _MEANT and _is_there(_MEANT[given]):
        return f"use {_MEANT[given]}"
    methods = {each.replace("_", ""): each for each in dir(Tensor)
               if not each.startswith("_") and not each.endswith("_")}
    for spelled in (given, given.removesuffix("loss")):
        if spelled in methods:
            return f"use the method of tensors, x.{methods[spelled]}()"
    near = nearest(given, known)
    mine = sorted(each for each in known.values() if each.startswith(f"{module}."))
    return f"did you mean {known[near]}?" if near else \
        "use one of " + ", ".join(mine) if mine else f"look for it among dir({module})"


def _is_there(remedy: str) -> bool:
    """Whether the methods that a remedy names exist."""
    return all(hasattr(Tensor, each) for each in re.findall(r"(?:x|Tensor)\.(\w+)", remedy))


class Part(SimpleNamespace):
    """A part of a library of which the most used names are here; for others it says so."""

    def __init__(self, path: str, meant: Mapping[str, str], **members: Any) -> None:
        super().__init__(__name__=path, **members)
        self.__dict__["_meant"] = meant

    def __getattr__(self, name: str) -> NoReturn:
        # r[impl errors.name.missing]
        known = [each for each in vars(self) if each[0] != "_"]
        raise name_missing(self.__name__, name, known, self.__dict__.get("_meant"))
