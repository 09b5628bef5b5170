"""The guides for users of other libraries: each line of a table runs, and says what theirs says.

What a line of another library gives is asked of that library where it is installed. The lines of
`impl` are always run.
"""
from __future__ import annotations

import importlib
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from conformance.house.test_examples import run_text
from conformance.trace import ROOT
from impl import Context, Tensor

_ROW = re.compile(r"^\| `([^`]+)` \| `([^`]+)` \|$", re.MULTILINE)
_SETUP = re.compile(r"```python\n(.*?)```", re.DOTALL)
_A, _B = [[1.0, -2.0, 3.0], [4.0, 5.0, -6.0]], [[2.0, 2.0, 0.5], [1.0, 3.0, 1.0]]
_V = [3.0, 1.0, 2.0]


def _of_numpy() -> dict[str, Any]:
    return {"np": np, "a": np.array(_A), "b": np.array(_B), "v": np.array(_V),
            "i": np.array([2, 0])}


def _of_torch() -> dict[str, Any]:
    torch = importlib.import_module("torch")
    return {"torch": torch, "F": torch.nn.functional, "nn": torch.nn, "a": torch.tensor(_A),
            "b": torch.tensor(_B), "v": torch.tensor(_V), "i": torch.tensor([2, 0])}


def _of_jax() -> dict[str, Any]:
    jax = importlib.import_module("jax")
    jnp = jax.numpy
    return {"jax": jax, "jnp": jnp, "a": jnp.array(_A), "b": jnp.array(_B), "v": jnp.array(_V),
            "i": jnp.array([1, 0]), "f": lambda x: (x * x * x).sum(),
            "step": lambda total, x: (total + x, total * x)}


def _nothing() -> dict[str, Any]:
    raise ImportError


#: Guides: how many lines their tables have at least, and what makes the other library's names.
GUIDES: dict[str, tuple[int, Callable[[], dict[str, Any]]]] = {
    "from-numpy": (75, _of_numpy), "from-pytorch": (50, _of_torch), "from-jax": (40, _of_jax),
    "from-tinygrad": (25, _nothing)}


def done(line: str, names: dict[str, Any]) -> Any:
    """What a line gives; of a statement, what `a` is after it."""
    try:
        code = compile(line, line, "eval")
    except SyntaxError:
        exec(compile(line, line, "exec"), names)  # noqa: S102  (a line of our own guide)
        return names.get("a")
    found = eval(code, names)  # noqa: S307
    changes = ".fill" in line or "put_along" in line or "scatter_(" in line
    return names["a"] if changes else found


def plain(value: Any) -> Any:
    """A value as an array, if it is one."""
    if hasattr(value, "detach"):
        value = value.detach()
    if isinstance(value, Tensor):
        value = value.float() if value.dtype.name == "bfloat16" else value
        return value.numpy()
    if str(getattr(value, "dtype", "")) == "bfloat16":
        value = value.astype(np.float32)
    return np.asarray(value) if isinstance(value, (int, float, bool, list, tuple)) \
        or hasattr(value, "__array__") else value


def rows(name: str) -> tuple[str, list[tuple[str, str]]]:
    """The first block of code of a guide, and the lines of its tables."""
    text = (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8")
    setup = _SETUP.search(text)
    assert setup is not None
    return setup[1], _ROW.findall(text)


@pytest.mark.parametrize("name", GUIDES)
def test_each_line_of_a_guide_gives_what_theirs_gives(name: str) -> None:
    setup, lines = rows(name)
    least, make = GUIDES[name]
    assert len(lines) >= least
    try:
        make()
        known = True
    except ImportError:
        known = False
    wrong = []
    with Context(DEVICE="REFERENCE"):
        for theirs, ours in lines:
            for line in [ours] + [theirs] * (name == "from-pytorch"):
                names: dict[str, Any] = {"importlib": importlib}
                exec(setup, names)  # noqa: S102
                try:
                    found = plain(done(line, names))
                    if known and not theirs.startswith("from "):
                        compare(found, plain(done(theirs, make())), "rand" in theirs)
                except Exception as error:  # noqa: BLE001  (all lines are told at once)
                    wrong.append(f"{theirs}  |  {line}: {type(error).__name__}: {error}"[:300])
    assert not wrong, "\n".join(wrong)


def compare(found: Any, wanted: Any, drawn: bool) -> None:
    """Raise if shapes differ, or values that are not drawn by chance."""
    if not isinstance(wanted, np.ndarray):
        return
    assert isinstance(found, np.ndarray), f"{found!r:.80} in place of an array"
    assert found.shape == wanted.shape, f"shape {found.shape} in place of {wanted.shape}"
    if not drawn:
        np.testing.assert_allclose(found.astype(float), wanted.astype(float), 1e-3, 1e-5)


@pytest.mark.parametrize(("name", "blocks"), [
    ("from-numpy", 1), ("from-pytorch", 2), ("from-jax", 2), ("from-tinygrad", 1),
    ("saving", 6), ("training", 7)])
def test_the_examples_of_a_guide_run(name: str, blocks: int) -> None:
    page = ROOT / "docs" / f"{name}.md"
    with Context(DEVICE="REFERENCE"):
        assert run_text(page.read_text(encoding="utf-8"), str(page)) == blocks
