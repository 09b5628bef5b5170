"""`python -m conformance new my_impl`: an adapter to start from, which passes from the first run.

It knows three operations and declares no others; each line added to a table is one more that the
suite tests.  `--language c` copies the interpreter in C; `go` and `rust` write a small runtime that
speaks the protocol.
"""
from __future__ import annotations

import keyword
from pathlib import Path

#: For each language what is copied, and how it is compiled.
OTHERS = {
    "c": (Path(__file__).parent.parent / "adapters" / "c" / "eager.c",
          "cc -std=gnu11 -O1 -ffp-contract=off -o {0} {0}.c -lm"),
    "go": (Path(__file__).parent / "starters" / "starter.go", "go build -o {0} {0}.go"),
    "rust": (Path(__file__).parent / "starters" / "starter.rs", "rustc -O -o {0} {0}.rs")}
LANGUAGES = ("python", *OTHERS)
TEMPLATE = '''\
"""NAME as the conformance suite drives it.

    python -m conformance --impl MODULE:Adapter
"""
from __future__ import annotations

import importlib.metadata
from collections.abc import Sequence
from typing import Any

import numpy as np  # in place of it: your library

from conformance.adapters.library import LibraryAdapter
from conformance.protocol import Array, Statement

Tensor = Any  # your library's type of an array


class Adapter(LibraryAdapter[Tensor]):
    """Drives NAME.  What is in neither table is not declared, and not tested."""

    # Called with the sources: "from" of the statement.
    functions = {
        "add": lambda a, b: a + b,
        "mul": lambda a, b: a * b,
        "neg": lambda x: -x,
    }
    # Called with the statement and the sources: for what has axes, shapes or a dtype.
    shaped = {
        "reshape": lambda s, x: x.reshape(s["shape"]).copy(),
    }
    # A library whose arrays can be written to adds "assign" and "store", and a method `write`.
    effects = (*LibraryAdapter.effects,)

    def __init__(self) -> None:
        version = importlib.metadata.version("numpy")  # in place of it: your library
        super().__init__("NAME", version, dtypes=("int32", "float32"), observes=("values",))

    def array(self, elements: Array) -> Tensor:
        """A tensor with these elements, in memory of its own."""
        return np.array(elements)

    def elements(self, tensor: Tensor) -> Array:
        """The elements of a tensor, now."""
        return np.asarray(tensor)

    def realize(self, tensors: Sequence[Tensor]) -> None:
        """Compute these tensors now, in one go.  Nothing to do where nothing is lazy."""

    def write(self, target: Tensor, view: Sequence[Statement], value: Tensor) -> Tensor:
        """The target with the region that the view selects overwritten (see the guide)."""
        raise NotImplementedError
'''


def write_starter(name: str, folder: Path, language: str = "python") -> tuple[Path, list[str]]:
    """Write a starting point, and answer where it is and the commands to go on with.

    Raises:
        ValueError: the name is no name of a module, or the file exists.
    """
    if not name.isidentifier() or keyword.iskeyword(name):
        raise ValueError(f"{name!r} is no name of a module; take one such as my_impl")
    suffix = f"{OTHERS[language][0].suffix}" if language in OTHERS else "_adapter.py"
    path = folder / f"{name}{suffix}"
    if path.exists():
        raise ValueError(f"{path} exists; take another name, or remove it")
    if language in OTHERS:
        source, compiled = OTHERS[language]
        text = source.read_text(encoding="utf-8")
        path.write_text(text if language == "c" else text.replace("NAME", name), encoding="utf-8")
        return path, [compiled.format(name), f"python -m conformance run --cmd ./{name}"]
    text = TEMPLATE.replace("NAME", name).replace("MODULE", path.stem)
    path.write_text(text, encoding="utf-8")
    return path, [f"python -m conformance --impl {path.stem}:Adapter"]
