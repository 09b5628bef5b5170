"""Mistakes of several processes: what they send, and whom they wait for.

The processes of a job are started by `mpiexec` and import `impl` anew. So a mistake is written into
a copy of the package, which stands first on their path.
"""
from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar

from conformance.saboteurs.impl_patches import ImplPatch
from conformance.trace import ROOT

#: The tests of processes start them with this path, where it is set.
PATH = "TENSOR_SCHEDULE_TESTED"


class Copied(ImplPatch):
    """One mistake: in a copy of `file`, the text `new` stands where `old` does."""

    file: ClassVar[str] = ""
    old: ClassVar[str] = ""
    new: ClassVar[str] = ""

    @contextmanager
    def mistake(self) -> Iterator[None]:
        with tempfile.TemporaryDirectory() as folder:
            shutil.copytree(ROOT / "impl", Path(folder, "impl"),
                            ignore=shutil.ignore_patterns("__pycache__"))
            path = Path(folder, self.file)
            text = path.read_text(encoding="utf-8")
            if text.count(self.old) != 1:
                raise TypeError(f"{self.file} does not have {self.old!r} once")
            path.write_text(text.replace(self.old, self.new), encoding="utf-8")
            os.environ[PATH] = folder
            try:
                yield
            finally:
                del os.environ[PATH]


class KeepsItsOwnSum(Copied):
    rule = "distributed.value.equal"
    description = "what a process has is taken for what all have"
    file = "impl/distributed/device.py"
    old = "if not group.sum(given, transfer.op, dtype):"
    new = "if transfer.op is None:"


class BlamesItself(Copied):
    rule = "distributed.late.named"
    description = "the error names the rank that waits"
    file = "impl/distributed/engine.py"
    old = "who = \", \".join(str(self.members[place]) for place in late)"
    new = "who = str(rank())"


class ComparesNothing(Copied):
    rule = "distributed.other.named"
    description = "a process takes part in whatever another one does"
    file = "impl/distributed/engine.py"
    old = "if theirs.split(\"\\n\")[:2] != _read(note).split(\"\\n\")[:2]:"
    new = "if not theirs:"


class TakesAnySize(Copied):
    rule = "distributed.mesh.size"
    description = "a mesh may have more places than there are processes"
    file = "impl/distributed/device.py"
    old = "    if count != ranks():"
    new = "    if count < 1:"
