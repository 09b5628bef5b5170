"""The playground: its examples, and the archive with the scheduler that a page loads."""
from __future__ import annotations

import io
import zipfile
from pathlib import Path
from typing import Any

from conformance import trace

HERE = Path(__file__).parent
#: Python for pages. The version says which Python it is; a test takes the same from npm.
PYODIDE = "314.0.7"
#: Where a published page finds it.
HOST = f"https://cdn.jsdelivr.net/pyodide/v{PYODIDE}/full/"
#: What needs packages that a page has not.
_WITHOUT = ("onnx", "models", "__main__.py", "torch.py", "array_api")

EXAMPLES: dict[str, str] = {
    "Softmax": """\
x = Tensor.empty(64, 128)
x.softmax(1)
""",
    "Attention": """\
queries, keys, values = (Tensor.empty(2, 16, 32) for _ in range(3))
scores = queries @ keys.transpose(1, 2) / 32 ** 0.5
scores.softmax(-1) @ values
""",
    "A training step": """\
x, labels = Tensor.empty(32, 64), Tensor.empty(32, dtype=dtypes.int32)
first = Tensor.empty(64, 48, requires_grad=True)
second = Tensor.empty(48, 10, requires_grad=True)

loss = ((x @ first).relu() @ second).cross_entropy(labels)
loss.backward()
for weight in (first, second):
    weight.assign(weight.detach() - 0.1 * weight.grad)
loss, first, second
""",
    "Writing in place": """\
x = Tensor.empty(4, 8)
before = x.sum(1)  # of x as it is now
x[0] = 1.0  # overwrites a part of it
x += before.reshape(4, 1)
before, x
""",
    "Too large for one kernel": """\
x = Tensor.empty(256, 256)
y = (x @ x).softmax(1)
y / y.sum(0)
""",
    "An error": """\
a, b = Tensor.empty(4, 3), Tensor.empty(4, 5)
a @ b
""",
}


def archive() -> bytes:
    """The scheduler and the playground's half in Python, as a zip of source files."""
    root, found = trace.ROOT, io.BytesIO()
    paths = [path for pattern in ("*.py", "*.js", "*.c") for path in (root / "impl").rglob(pattern)
             if path.relative_to(root / "impl").parts[0] not in _WITHOUT]
    names = {path.relative_to(root).as_posix(): path for path in paths}
    names["playground_page.py"] = HERE / "playground_page.py"
    with zipfile.ZipFile(found, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as made:
        for name in sorted(names):  # without their dates: one text is one archive
            made.writestr(zipfile.ZipInfo(name), names[name].read_bytes(), zipfile.ZIP_DEFLATED)
    return found.getvalue()


def files() -> dict[str, bytes]:
    """What lies beside the playground's script."""
    return {"playground.zip": archive()}


def data(host: str = HOST) -> dict[str, Any]:
    """What the playground's script is told: where Python for pages lies, and the examples."""
    return {"host": host, "examples": [{"name": name, "program": program}
                                       for name, program in EXAMPLES.items()]}
