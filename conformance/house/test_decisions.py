"""Each decision has one module: who decides the same elsewhere is found here.

Who has to wait and how long a value is needed: conformance/chapters/dependencies/test_one_place.py.
"""
from __future__ import annotations

import ast
import functools

import pytest

from conformance.trace import ROOT

pytestmark = pytest.mark.skipif(not (ROOT / "spec").is_dir(), reason="needs a source checkout")

#: The module of a decision, and the calls that nobody else makes.
DECISIONS = {"what a copy is": ("impl/places.py", "UOp(Ops.COPY"),
             "what a holder is given": ("impl/places.py", "def named"),
             "where a value is computed": ("impl/places.py", "def home"),
             "what stands at the places of a call": ("impl/realize/prepared.py", "set_memory("),
             "what a call makes": ("impl/realize/prepared.py", "backend.allocate(")}


@functools.cache
def written(path: str) -> set[str]:
    """The calls and the functions of a module, as they are written there."""
    found = set()
    for node in ast.walk(ast.parse((ROOT / path).read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            first = ast.unparse(node.args[0]) if node.args else ""
            found |= {f"{called}({first}", f"{called.rpartition('.')[2]}(",
                      f"{'.'.join(called.split('.')[-2:])}("}
            if called == "UOp" and first in ("_COPY", "Ops.COPY"):
                found.add("UOp(Ops.COPY")
        elif isinstance(node, ast.FunctionDef):
            found.add(f"def {node.name}")
    return found


@pytest.mark.parametrize("decision", DECISIONS)
def test_one_module_decides(decision: str) -> None:
    decides, call = DECISIONS[decision]
    assert call in written(decides), "the test looks for what is not there"
    others = [path.relative_to(ROOT).as_posix() for path in sorted((ROOT / "impl").rglob("*.py"))
              if path != ROOT / decides]
    # A table of a device gives its parent what it is given.
    others = [path for path in others if call != "set_memory(" or "Table(" not in
              (ROOT / path).read_text(encoding="utf-8")]
    found = [path for path in others if call in written(path)]
    assert not found, f"these decide {decision} too: {found}"
