"""Exported functions in JavaScript: by Node, and by a browser. Chapter: spec/export.md."""
from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from conformance.chapters.export.browser import CHROMIUM, NODE, in_chromium, in_node
from conformance.chapters.export.programs import LENGTH, WORDS, Language, pictures
from conformance.trace import verifies
from impl import Context, Tensor, Variable, dtypes
from impl.__main__ import Trainer
from impl.errors import DTypeError
from impl.export import export
from impl.export.names import unique_name
from impl.ir import TRANSCENDENTAL

needs_node = pytest.mark.skipif(not NODE, reason="there is no node")
needs_chromium = pytest.mark.skipif(not CHROMIUM, reason="there is no chromium")

#: Three steps of training, and a text word by word.
_BOTH = """
const losses = [], words = [], scores = [];
for (let i = 0; i < 3; i++)
  losses.push((await digits.run({x: new Float32Array(given.x),
                                 y: new Int32Array(given.y)})).output[0]);
for (let position = 0, word = 1; position < given.length; position++) {
  const {output} = await gpt.run({word: new Int32Array([word]), position});
  scores.push(...output);
  words.push(word = output.indexOf(Math.max(...output)));
}
"""


def exported(folder: Path, target: str) -> tuple[dict[str, Any], list[float], np.ndarray]:
    """Two modules in a folder; what they are given; the losses and scores that they should find."""
    demo, (x, y) = Trainer(None), pictures()
    model, place = Language(), Variable("position", 0, LENGTH - 1)
    word = Tensor(np.array([1], np.int32)).realize()
    export(demo.step, (x, y), folder, target=target, name="digits")
    export(model.next_word, (word, place.bind(3)), folder, target=target, name="gpt")
    losses, scores, now = [demo.step(x, y).item() for _ in range(3)], list[np.ndarray](), 1
    for position in range(LENGTH):
        given = Tensor(np.array([now], np.int32))
        scores.append(model.next_word(given, place.bind(position)).numpy())
        now = int(scores[-1].argmax())
    given_all = {"x": x.numpy().reshape(-1).tolist(), "y": y.numpy().tolist(), "length": LENGTH}
    return given_all, losses, np.concatenate(scores)


@needs_node
@verifies("export.js.values")
def test_training_and_writing_in_javascript(tmp_path: Path) -> None:
    with Context(DEVICE="CPU", NOOPT=1):
        given, losses, scores = exported(tmp_path, "js")
    found = in_node(tmp_path, f"""
import * as digits from "./digits.mjs";
import * as gpt from "./gpt.mjs";
await digits.load(file("digits.safetensors"));
await gpt.load(file("gpt.safetensors"));
const given = {json.dumps(given)};
{_BOTH}
console.log(JSON.stringify({{losses, scores, names: Object.keys(await digits.save())}}));
""")
    assert np.allclose(found["losses"], losses, rtol=1e-5)
    assert np.allclose(found["scores"], scores, rtol=1e-3, atol=1e-5)
    assert len(found["scores"]) == LENGTH * WORDS
    assert "model.hidden.weight" in found["names"]


def _integers(a: Tensor, b: Tensor) -> dict[str, Tensor]:
    """All that integers have."""
    return {"add": a + b, "sub": a - b, "mul": a * b, "div": a // b, "mod": a % b, "neg": -a,
            "chain": (a * b + a) // 3,
            "max": a.maximum(b), "min": a.minimum(b), "and": a & b, "or": a | b, "xor": a ^ b,
            "less": a < b, "same": a == b, "power": a ** (b & 7), "sum": a.sum(dtype=a.dtype),
            "left": a << 3, "right": a >> 2}


def _floats(a: Tensor, b: Tensor) -> dict[str, Tensor]:
    """What is rounded as the type says, and so is exact."""
    return {"add": a + b, "mul": a * b, "div": a / b, "root": a.abs().sqrt(), "max": a.maximum(b),
            "chain": (a + 2 ** 24) - 2 ** 24,
            "cut": a.cast(dtypes.int32), "small": a.cast(dtypes.uint8), "half": a.cast("float16"),
            "brain": a.cast("bfloat16").cast("float32"), "bits": a.bitcast(dtypes.int32),
            "whole": a.floor(), "wide": a.cast("float64") / 3, "chosen": (a < b).where(a, b),
            "unsigned": a.abs().cast(dtypes.uint32)}


def _functions(a: Tensor, b: Tensor) -> dict[str, Tensor]:
    """What is right within some units."""
    found = {name: function(a.abs() if "log" in name else a)
             for name, function in _TRANSCENDENTAL.items()}
    return {**found, "power": a.abs() ** b}


_TRANSCENDENTAL: dict[str, Callable[[Tensor], Tensor]] = {
    op.name.lower(): getattr(Tensor, op.name.lower()) for op in sorted(TRANSCENDENTAL)}


#: Pairs of numbers at the ends of types, and between.
NUMBERS: dict[str, tuple[Callable[[Tensor, Tensor], dict[str, Tensor]], Any, Any]] = {
    "int8": (_integers, [-128, -1, 0, 7, 127, -128], [3, -1, 5, 0, 127, -1]),
    "uint8": (_integers, [255, 1, 0, 200], [3, 0, 255, 100]),
    "int16": (_integers, [-32768, 32767, 9], [7, 32767, -4]),
    "int32": (_integers, [-2 ** 31, 2 ** 31 - 1, 123456789, -7, 5],
              [-1, 2 ** 31 - 1, 987654321, 2, 0]),
    "uint32": (_integers, [2 ** 32 - 1, 3000000000, 0, 17], [2 ** 32 - 1, 3, 1, 0]),
    "bool": (lambda a, b: {"and": a & b, "or": a | b, "not": ~a, "sum": a.sum(),
                           "number": a.cast("float32") * 2}, [0, 1, 1], [1, 1, 0]),
    "float32": (_floats, [1.1, -2.7, 300.5, 3e9, np.nan, -0.0, 1e-41],
                [3.0, 0.1, -1.7, 7.0, 1.0, 1.0, 1.0]),
    "functions": (_functions, [0.5, -2.7, 30.5, 1e-3, 1.0], [3.0, 0.1, -1.7, 2.0, 0.0]),
}


@needs_node
@verifies("export.js.values")
def test_operations_in_javascript(tmp_path: Path) -> None:
    wanted: dict[str, dict[str, np.ndarray]] = {}
    lines = ["const found = {};"]
    with Context(DEVICE="REFERENCE"):
        for name, (function, one, two) in NUMBERS.items():
            kind = np.dtype(name if name != "functions" else "float32")
            a, b = (Tensor(np.array(each, kind)).realize() for each in (one, two))
            export(function, (a, b), tmp_path, target="js", name=f"of_{name}")
            wanted[name] = {key: value.numpy() for key, value in function(a, b).items()}
            text = "[" + ",".join("NaN" if v != v else repr(float(v)) for v in one) + "]"
            other = "[" + ",".join(repr(float(v)) for v in two) + "]"
            array = "Uint8Array" if name == "bool" else f"{kind.name.capitalize()}Array"
            lines.append(f'found["{name}"] = await (await import("./of_{name}.mjs")).run('
                         f"{{a: new {array}({text}), b: new {array}({other})}});")
    lines.append("console.log(JSON.stringify(found, (key, value) => ArrayBuffer.isView(value) ? "
                 "[...new Uint8Array(value.buffer)] : value));")
    found = in_node(tmp_path, "\n".join(lines))
    for name, values in wanted.items():
        for key, value in values.items():
            mine = np.array(found[name][unique_name(key)], np.uint8).view(value.dtype)
            exact = name != "functions"
            assert np.allclose(mine, value.reshape(-1), 0 if exact else 1e-6, 0, True), (
                name, key, mine, value)


@verifies("export.js.values")
def test_a_type_that_pages_lack_is_refused(tmp_path: Path) -> None:
    with Context(DEVICE="REFERENCE"):
        wide = Tensor(np.array([1, 2], np.int64)).realize()
        for target in ("js", "webgpu"):
            with pytest.raises(DTypeError, match="int64.*cast to int32"):
                export(lambda x: x * 3, (wide,), tmp_path, target=target)


@needs_node
@verifies("export.page.checked")
def test_what_a_page_gives_is_checked(tmp_path: Path) -> None:
    size = Variable("n", 2, 4)
    with Context(DEVICE="REFERENCE"):
        x, weight = Tensor([1.0, 2.0]).realize(), Tensor([3.0, 4.0]).realize()
        export(lambda x, n: x * weight * n, (x, size.bind(3)), tmp_path, target="js", name="f")
    found = in_node(tmp_path, """
import * as f from "./f.mjs";
const x = new Float32Array([1, 2]), said = [];
const tried = async (given) => { try { said.push([...(await f.run(given)).output]); }
                                 catch (error) { said.push(`${error}`); } };
await tried({x, n: 3});
try { await f.load(new Uint8Array([2, 0, 0, 0, 0, 0, 0, 0, 123, 125]).buffer); }
catch (error) { said.push(`${error}`); }
await f.load(file("f.safetensors"));
for (const given of [{x, n: 3}, {x, n: 5}, {x, n: 2.5}, {x: [1, 2], n: 3}, {x, n: 3, y: 1},
                     {x: new Float32Array(3), n: 3}]) await tried(given);
console.log(JSON.stringify(said));
""")
    for text, words in zip(found, (
            "nothing was loaded", "not of this program", [9, 24], "n = 5", "n = 2.5",
            "no Float32Array", "no argument y", "3 elements, not 2"), strict=True):
        assert text == words or isinstance(words, str) and words in text


def _watched(x: Tensor) -> Tensor:
    """Two kernels: what the first one makes lies in the arena."""
    return (x * 2).contiguous().sum() + x


@needs_node
@verifies("export.page.fallback")
@verifies("export.page.watched")
def test_a_page_without_a_device_says_so_and_goes_on(tmp_path: Path) -> None:
    with Context(DEVICE="REFERENCE", FUSE=0):
        export(_watched, (Tensor([1.0, 2.0]).realize(),), tmp_path, target="page", name="f")
    found = in_node(tmp_path, """
import {run, runner} from "./f.mjs";
const told = [], x = new Float32Array([3, 5]);
const {output} = await run({x}, ({number, kernel, memory}) => told.push([number, kernel,
  memory.map(({spot, bytes}) => [...spot, ...new Float32Array(bytes.buffer)]),
  memory.flatMap(({written}, place) => written ? [place] : [])]));
console.log(JSON.stringify({...await runner(), output: [...output], told}));
""")
    assert found["target"] == "js" and "no WebGPU adapter" in found["reason"]
    assert found["output"] == [19, 21]
    document = json.loads((tmp_path / "f.json").read_text())
    for place, (number, kernel, memory, written) in enumerate(found["told"]):
        call = document["calls"][place]
        assert number == place and kernel.startswith(call["kernel"])
        assert [each[:2] for each in memory] == call["memory"] and written == call["writes"]
    seen = [sorted(each[2:] for each in memory) for _, _, memory, _ in found["told"]]
    assert seen[0] == [[3, 5], [6, 10]] and [[6, 10], [16]] in seen and [19, 21] in seen[-1]
    results = [memory[place][2:] for _, _, memory, written in found["told"] for place in written]
    assert results[0] == [6, 10] and [16] in results and results[-1] == [19, 21]


@needs_chromium
@verifies("export.gpu.values")
@verifies("export.page.fallback")
@verifies("export.page.watched")
def test_training_and_writing_in_a_browser(tmp_path: Path) -> None:
    with Context(DEVICE="CPU", NOOPT=1):
        given, losses, scores = exported(tmp_path, "page")
    said = in_chromium(tmp_path, f"""
const digits = await import("./digits.mjs"), gpt = await import("./gpt.mjs");
await digits.load("digits.safetensors");
await gpt.load("gpt.safetensors");
const given = {json.dumps(given)};
{_BOTH}
const saved = await digits.save(), told = [];
const again = await gpt.run({{word: new Int32Array([1]), position: 0}},
                            (kernel) => told.push(kernel));
return {{losses, scores, weights: [...saved["model.scores.bias"]], ...await digits.runner(),
         numbers: told.map(({{number}}) => number), again: [...again.output],
         last: told.at(-1).memory.filter(({{spot}}) => spot[0] === "output").map(
           ({{bytes}}) => [...new Float32Array(bytes.buffer)])}};
""")
    if len(said) < 1 or said == ["no adapter"]:
        pytest.skip("chromium has no WebGPU adapter here" if said else "chromium does not start")
    assert len(said) == 2 and "error" not in said[1], said
    assert np.allclose(said[1]["losses"], losses, rtol=1e-5)
    assert np.allclose(said[1]["scores"], scores, rtol=1e-3, atol=1e-5)
    assert len(said[1]["weights"]) == 10 and any(said[1]["weights"])
    assert said[1]["target"] == "webgpu" and said[1]["reason"] == ""
    calls = json.loads((tmp_path / "gpt.json").read_text())["calls"]
    assert said[1]["numbers"] == [*range(len(calls))]
    assert said[1]["last"] == [said[1]["again"]]


@verifies("export.gpu.values")
def test_arrays_and_counters_have_names_of_their_own(tmp_path: Path) -> None:
    with Context(DEVICE="REFERENCE"):
        weight = Tensor.zeros(10, 256).contiguous().realize()
        export(lambda x: weight @ x, (Tensor.zeros(256).contiguous().realize(),), tmp_path,
               target="webgpu", name="f")
    text = (tmp_path / "f.mjs").read_text()
    arrays = {*re.findall(r"var<storage, read_write> (\w+):", text)}
    assert arrays and not arrays & {*re.findall(r"(?:let|var) (\w+):", text)}
