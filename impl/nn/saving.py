"""`save` and `load`: nested dicts and lists with tensors, numbers and texts, in one file.

A file whose name ends in .pt or .pth is one of PyTorch: `torch.load` reads it. Any other is one of
safetensors. Its tensors have their paths as names, and its metadata say, as JSON, what the dicts
and lists around them were. So nothing in a file is ever run, and other programs read the tensors.
`load` reads the files of others, too: which kind it is, its first bytes say.
"""
from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from impl.errors import ArgumentError, DTypeError
from impl.host import np
from impl.nn import arrays, checkpoints, pickling
from impl.nn.files import open_file, replace, safe_load, safe_metadata, safe_save
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

    What was saved under this name stays until all is written. If the name ends in .pt or .pth,
    `torch.load` reads the file, and tensors on a mesh are written whole.

    Raises:
        DTypeError: something of another kind is in it, such as a whole model.
    """
    if Path(f).suffix in (".pt", ".pth"):
        replace(Path(f), lambda beside: _write_torch(obj, beside))
        return
    tensors: dict[str, Tensor] = {}
    tree = _tree(obj, "", tensors, 0)
    safe_save(tensors, f, {"format": _FORMAT, "tree": json.dumps(tree)})


def _write_torch(obj: Any, path: Path) -> None:
    with open_file("save", path, "wb") as file:
        pickling.write_torch(obj, file)
        file.flush()
        os.fsync(file.fileno())


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
        return arrays.numpy_load(path) if arrays.is_of_numpy(path, start) \
            else checkpoints.torch_load(path)
    if start[:1] == b"\x80" and start[2:4] == b"\x8a\n":
        raise DTypeError("load", f"{path} is of PyTorch before version 1.6",
                         "load it with torch, and torch.save it again")
    if int.from_bytes(start, "little") > path.stat().st_size or len(start) < 8:
        raise DTypeError("load", f"{path} is none of the files that are read, or empty",
                         "give a file of PyTorch (.pt), NumPy (.npz, .npy), GGUF or safetensors")
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


def _moved(obj: Any, device: str) -> Any:
    """The same with its tensors on a device."""
    if isinstance(obj, Tensor):
        return obj.to(device)
    if isinstance(obj, dict):
        return {key: _moved(one, device) for key, one in obj.items()}
    if isinstance(obj, (list, tuple)):
        return type(obj)(_moved(one, device) for one in obj)
    return obj
