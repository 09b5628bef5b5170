"""`save` and `load`: nested dicts and lists with tensors, numbers and texts, in one file.

The file is one of safetensors. Its tensors have their paths as names, and its metadata say, as
JSON, what the dicts and lists around them were. So nothing in a file is ever run, and other
programs read the tensors. `load` reads the files of others, too: which kind it is, its first bytes
say.
"""
from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from impl.errors import ArgumentError, DTypeError
from impl.host import np
from impl.nn import checkpoints
from impl.nn.files import open_file, safe_load, safe_metadata, safe_save
from impl.tensor import Tensor

__all__ = ["load", "save"]

#: What the metadata of such a file say.
_FORMAT = "tensor-schedule/tree/1"
_PLAIN = (bool, int, float, str, type(None))
#: So deep may dicts and lists lie in each other.
_DEPTH = 100


def save(obj: Any, f: str | os.PathLike[str]) -> None:
    """Write an object to a file: tensors, numbers, texts, None, and dicts, lists and tuples of
    them, such as the `state_dict()` of a model and of an optimiser.

    What was saved under this name stays until all is written.

    Raises:
        DTypeError: something of another kind is in it, such as a whole model.
    """
    tensors: dict[str, Tensor] = {}
    tree = _tree(obj, "", tensors, 0)
    safe_save(tensors, f, {"format": _FORMAT, "tree": json.dumps(tree)})


def _tree(obj: Any, path: str, tensors: dict[str, Tensor], depth: int) -> Any:
    """What JSON says of an object; its tensors are put beside it."""
    if isinstance(obj, np.generic):
        obj = obj.item()
    if isinstance(obj, _PLAIN):
        return obj
    if isinstance(obj, (Tensor, np.ndarray)):
        name = path or "tensor"
        while name in tensors:  # another key with a dot in it, or another kind of key
            name += "_"
        tensors[name] = obj if isinstance(obj, Tensor) else Tensor(obj)
        return {"tensor": name}
    if depth == _DEPTH or not isinstance(obj, (Mapping, list, tuple)):
        raise DTypeError("save", f"{path or 'the object'} is a {type(obj).__name__}"
                         f"{', too deep' if depth == _DEPTH else ''}",
                         "save tensors, numbers and texts: model.state_dict(), not the model")

    def inner(items: Iterable[tuple[Any, Any]]) -> list[Any]:
        return [_tree(one, f"{path}.{key}" if path else str(key), tensors, depth + 1)
                for key, one in items]

    if isinstance(obj, Mapping):
        if not all(isinstance(key, _PLAIN) for key in obj):
            raise DTypeError("save", f"{path or 'the object'} has a key that is no text or number",
                             "give the dict other keys")
        return {"keys": list(obj), "values": inner(obj.items())}
    return {type(obj).__name__ if type(obj) is tuple else "list": inner(enumerate(obj))}


def load(f: str | os.PathLike[str], map_location: Any = None, *, weights_only: bool = True,
         mmap: bool | None = None) -> Any:
    """What `save` wrote; or a file of PyTorch (.pt), NumPy (.npz, .npy), GGUF, or safetensors.

    Nothing in a file is run, whatever `weights_only` says. `map_location` is the device on which
    the tensors are to be.

    Raises:
        DTypeError: it is none of these files, or damaged.
        ArgumentError: `map_location` is no device.
    """
    if not isinstance(map_location, (str, type(None))):  # r[impl errors.argument.refused]
        raise ArgumentError("load", f"map_location is {map_location!r:.60}",
                            'give the name of a device, "cpu"')
    found = _loaded(Path(f))
    return found if map_location is None else _moved(found, map_location)


def _loaded(path: Path) -> Any:
    with open_file("load", path) as file:
        start = file.read(8)
    if start[:4] == b"GGUF":
        from impl.nn.gguf import gguf_load
        return gguf_load(path)
    if start[:2] == b"PK" or start[:6] == b"\x93NUMPY":
        return _numpy_load(path) if _of_numpy(path, start) else checkpoints.torch_load(path)
    tensors, metadata = safe_load(path), safe_metadata(path)
    if metadata.get("format") != _FORMAT:
        return tensors
    try:
        return _object(json.loads(metadata["tree"]), tensors)
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise DTypeError("load", f"{os.fspath(path)} is damaged ({error})",
                         "give a file of impl.save") from None


def _object(tree: Any, tensors: Mapping[str, Tensor]) -> Any:
    """What a tree of JSON stands for."""
    if isinstance(tree, _PLAIN):
        return tree
    if "tensor" in tree:
        return tensors[tree["tensor"]]
    if "keys" in tree:
        return {key: _object(one, tensors)
                for key, one in zip(tree["keys"], tree["values"], strict=True)}
    kind = tuple if "tuple" in tree else list
    return kind(_object(one, tensors) for one in tree[kind.__name__])


def _of_numpy(path: Path, start: bytes) -> bool:
    if start[:2] != b"PK":
        return True
    try:
        with zipfile.ZipFile(path) as archive:
            return all(name.endswith(".npy") for name in archive.namelist())
    except (zipfile.BadZipFile, ValueError, OSError):
        return False  # the reader of the other kind says what is wrong


def _numpy_load(path: Path) -> Any:
    """A file of `numpy.save` or `numpy.savez`: a tensor, or a dict of them.

    Raises:
        DTypeError: it is damaged, or has Python objects in it.
    """
    try:
        found = np.load(path, allow_pickle=False)
        if isinstance(found, np.ndarray):
            return Tensor(found)
        with found:
            return {name: Tensor(found[name]) for name in found.files}
    # What is damaged may look like anything: each part of NumPy and zipfile has its own errors.
    except (ValueError, OSError, EOFError, zipfile.BadZipFile, SyntaxError, TypeError, KeyError,
            NotImplementedError, OverflowError, MemoryError, RuntimeError) as error:
        if isinstance(error, FileNotFoundError):
            raise
        raise DTypeError("load", f"{os.fspath(path)} is damaged or has other things than arrays "
                         f"of numbers ({error})", "write it with numpy.savez") from None


def _moved(obj: Any, device: str) -> Any:
    """The same with its tensors on a device."""
    if isinstance(obj, Tensor):
        return obj.to(device)
    if isinstance(obj, dict):
        return {key: _moved(one, device) for key, one in obj.items()}
    if isinstance(obj, (list, tuple)):
        return type(obj)(_moved(one, device) for one in obj)
    return obj
