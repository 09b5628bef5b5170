"""`python -m conformance.peers.onnx_nodes`: the node tests of ONNX, asked of runtimes.

The package `onnx` has, for each operator, small models with inputs and the outputs that the
standard demands. They are given to `impl`, to onnxruntime and to tinygrad, each in a process of its
own that is started again where a test ends it or takes too long. Values have to be those of the
test within its bounds, shapes and element types the same. What does not apply is listed with the
reason: it never counts as passed, for nobody.
"""
from __future__ import annotations

import ctypes
import importlib
import importlib.metadata
import json
import queue
import subprocess
import sys
import tempfile
import threading
import warnings
from argparse import SUPPRESS, ArgumentParser
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from conformance.runner.fuzz import commit

#: Where the committed report is.
REPORT = Path(__file__).parents[1] / "reports" / "onnx-nodes.json"
#: Operators that have no meaning for dense tensors of numbers, and why.
APART: dict[str, str] = {
    **dict.fromkeys(("StringConcat", "StringSplit", "StringNormalizer", "RegexFullMatch",
                     "TfIdfVectorizer", "LabelEncoder"), "texts"),
    **dict.fromkeys(("ArrayFeatureExtractor", "Binarizer", "TreeEnsemble"),
                    "classical machine learning: the domain ai.onnx.ml"),
    **dict.fromkeys(("Adagrad", "Adam", "Momentum"),
                    "a preview of training: the domain ai.onnx.preview.training"),
    "ImageDecoder": "reads files of pictures",
    **dict.fromkeys(("Bernoulli", "RandomUniformLike"), "random numbers"),
}
#: What `impl` does not pass, and why.
KNOWN: dict[str, str] = {
    **dict.fromkeys(("test_attention_4d_causal_fp16", "test_attention_4d_causal_fp16_expanded"),
                    "float16 is rounded at other places: two of 192 numbers are two ulp away"),
    **dict.fromkeys(("test_dft_inverse", "test_dft_inverse_opset19"),
                    "zeros that the test wants to be 1.9e-7, the rounding of its own transform"),
}
#: Element types that are no numbers of one part.
_NO_NUMBERS = {8: "texts", 14: "complex numbers", 15: "complex numbers"}
#: What a runtime is: from the bytes of a model, a function of arrays.
Runtime = Callable[[bytes], Callable[[Sequence[Any]], Sequence[Any]]]


def cases(names: Sequence[str] = (), modules: Sequence[str] = ()) -> list[Any]:
    """The node tests, all or those with these names or of these operators, in the order of their
    names. With `modules` only those of the package, `softmax`, are read, which takes less time.
    """
    import onnx.backend.test.case.node as known

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if modules:
            for name in modules:
                importlib.import_module(f"{known.__name__}.{name}")
        else:
            known.collect_testcases(None)
    found = {case.name: case for case in known._NodeTestCases}
    return [case for name, case in sorted(found.items())
            if not names or name in names or set(names) & _operators(case.model.graph)]


def _operators(graph: Any) -> set[str]:
    found = set()
    for node in graph.node:
        found.add(node.op_type)
        for each in node.attribute:
            if each.HasField("g"):
                found |= _operators(each.g)
    return found


def _element_types(case: Any) -> Iterator[int]:
    for each in (*case.model.graph.input, *case.model.graph.output, *case.model.graph.value_info):
        kind = each.type
        for part in ("optional_type", "sequence_type"):
            if kind.HasField(part):
                kind = getattr(kind, part).elem_type
        yield kind.tensor_type.elem_type
    for node in case.model.graph.node:
        if node.op_type in ("Cast", "BitCast"):
            yield from (each.i for each in node.attribute if each.name == "to")


def apart(case: Any) -> str | None:
    """Why a test does not apply to dense tensors of numbers; None if it does."""
    for name in sorted(_operators(case.model.graph)):
        if name in APART:
            return APART[name]
    for number in _element_types(case):
        if number in _NO_NUMBERS:
            return _NO_NUMBERS[number]
    if case.name.startswith("test_training_dropout") and "zero_ratio" not in case.name:
        return APART["Bernoulli"]
    return None


# Runtimes


def _of_impl(content: bytes) -> Callable[[Sequence[Any]], Sequence[Any]]:
    import impl.onnx
    from impl import Tensor

    model = impl.onnx.load(content)

    def host(value: Any) -> Any:
        if isinstance(value, list):
            return [host(each) for each in value]
        return value.numpy() if isinstance(value, Tensor) else value

    def run(given: Sequence[Any]) -> Sequence[Any]:
        found = model(*given)
        return [host(each) for each in (found if isinstance(found, tuple) else (found,))]
    return run


def _of_onnxruntime(content: bytes) -> Callable[[Sequence[Any]], Sequence[Any]]:
    import onnxruntime

    onnxruntime.set_default_logger_severity(4)
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    named = [each.name for each in session.get_inputs()]

    plain = all(_NARROW.isdisjoint(each.type.replace(")", "(").split("("))
                for each in (*session.get_inputs(), *session.get_outputs()))

    def run(given: Sequence[Any]) -> Sequence[Any]:
        fed = dict(zip(named, given, strict=False))
        if plain:
            found: Sequence[Any] = session.run(None, fed)
            return found
        # NumPy has no such dtypes: their bytes are given and taken.
        values = {name: _with_type(each, onnxruntime.OrtValue) for name, each in fed.items()
                  if each is not None}
        return [_by_bytes(each) for each in session.run_with_ort_values(None, values)]
    return run


#: Element types of onnxruntime that NumPy does not have.
_NARROW = frozenset("bfloat16 float8e4m3fn float8e4m3fnuz float8e5m2 float8e5m2fnuz float8e8m0 "
                    "float4e2m1 int4 uint4 int2 uint2".split())


def _with_type(array: np.ndarray, kind: Any) -> Any:
    """An array as a value of onnxruntime: several narrow numbers are in one byte."""
    if array.dtype.isbuiltin == 1:
        return kind.ortvalue_from_numpy(array)
    from onnx import numpy_helper

    proto = numpy_helper.from_array(array)
    room = np.zeros(array.nbytes, np.uint8)
    room[:len(proto.raw_data)] = np.frombuffer(proto.raw_data, np.uint8)
    wide = np.uint16 if array.dtype.itemsize == 2 else np.uint8
    return kind.ortvalue_from_numpy_with_onnx_type(
        room.view(wide).reshape(array.shape), proto.data_type)


def _by_bytes(value: Any) -> np.ndarray:
    """A value of onnxruntime as an array."""
    from onnx import TensorProto, numpy_helper

    content = ctypes.string_at(value.data_ptr(), value.tensor_size_in_bytes())
    proto = TensorProto(dims=value.shape(), data_type=value.element_type(), raw_data=content)
    array: np.ndarray = numpy_helper.to_array(proto)
    return array


def _of_tinygrad(content: bytes) -> Callable[[Sequence[Any]], Sequence[Any]]:
    from tinygrad import Tensor
    from tinygrad.nn.onnx import OnnxRunner

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        path.write_bytes(content)
        runner = OnnxRunner(path)

    def host(value: Any) -> Any:
        if isinstance(value, (list, tuple)):
            return [host(each) for each in value]
        return value.numpy() if isinstance(value, Tensor) else value

    def run(given: Sequence[Any]) -> Sequence[Any]:
        named = dict(zip(runner.graph_inputs, given, strict=False))
        return [host(each) for each in runner(named).values()]
    return run


RUNTIMES: dict[str, Runtime] = {
    "impl": _of_impl, "onnxruntime": _of_onnxruntime, "tinygrad": _of_tinygrad}


# Judging


def judge(case: Any, runtime: Runtime) -> str:
    """Empty if a runtime passes a test, and else what is wrong."""
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            run = runtime(case.model.SerializeToString())
            for given, wanted in case.data_sets:
                found = run([_plain(each) for each in given])
                _compare(found, [_plain(each) for each in wanted], case.rtol, case.atol)
    except Exception as error:  # noqa: BLE001  (which is what is told)
        return f"{type(error).__name__}: {error}".replace("\n", " ")[:300]
    return ""


def _plain(value: Any) -> Any:
    """A value of a test as arrays."""
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    if hasattr(value, "SerializeToString"):
        from onnx import numpy_helper

        return numpy_helper.to_array(value)
    return value if value is None else np.asarray(value)


def _compare(found: Any, wanted: Any, rtol: float, atol: float) -> None:
    """Raise AssertionError if results are not those of the test."""
    if isinstance(wanted, list):
        if not isinstance(found, (list, tuple)) or len(found) != len(wanted):
            raise AssertionError(f"{found!r:.60} in place of {len(wanted)} results")
        for one, two in zip(found, wanted, strict=True):
            _compare(one, two, rtol, atol)
        return
    if wanted is None:
        assert found is None, f"{found!r:.60} in place of nothing"
        return
    found = np.asarray(found)
    if found.shape != wanted.shape:
        raise AssertionError(f"shape {found.shape} in place of {wanted.shape}")
    if wanted.dtype.isbuiltin != 1:  # a narrow type: runtimes hold it in a wider one
        rtol = max(rtol, 2 ** -6) if wanted.dtype.name == "bfloat16" else rtol
        wanted = wanted.astype(np.float32)
    elif found.dtype != wanted.dtype:
        raise AssertionError(f"{found.dtype} in place of {wanted.dtype}")
    np.testing.assert_allclose(found.astype(wanted.dtype), wanted, rtol, atol)


# Processes


def work(name: str, after: str) -> None:
    """Judge the tests behind one by name, and print a line of JSON for each."""
    runtime = RUNTIMES[name]
    for case in cases():
        if case.name > after and not apart(case):
            told = judge(case, runtime)
            print(json.dumps([case.name, told]), flush=True)


def ask(name: str, wanted: Sequence[str], seconds: float) -> dict[str, str]:
    """What a runtime answers to tests, in the order of their names: empty where it passes."""
    found: dict[str, str] = {}
    while len(found) < len(wanted):
        after = wanted[len(found) - 1] if found else ""
        process = subprocess.Popen(
            [sys.executable, "-m", __spec__.name if __spec__ else __name__, "--work", name,
             "--after", after], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        lines: queue.Queue[str] = queue.Queue()
        threading.Thread(target=_pass_on, args=(process, lines), daemon=True).start()
        first = True
        while len(found) < len(wanted):
            try:
                line = lines.get(timeout=seconds + 120 * first)
            except queue.Empty:
                found[wanted[len(found)]] = f"took more than {seconds:g} s"
                break
            if not line:
                found[wanted[len(found)]] = f"ended its process ({process.wait()})"
                break
            if line.startswith("["):
                test, told = json.loads(line)
                found[test] = told
                first = False
        process.kill()
        process.wait()
    return found


def _pass_on(process: subprocess.Popen[str], lines: queue.Queue[str]) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        lines.put(line)
    lines.put("")


def report_of(answers: dict[str, dict[str, str]], left_out: dict[str, str]) -> dict[str, Any]:
    """The report, with the reason for each test that is not passed."""
    return {
        "commit": commit(),
        "command": " ".join(("python -m conformance.peers.onnx_nodes", *sys.argv[1:])),
        "versions": {name: importlib.metadata.version(name)
                     for name in ("onnx", *answers) if name != "impl"},
        "apply": len(next(iter(answers.values()))),
        "apart": dict(sorted(Counter(left_out.values()).items())),
        "passed": {name: sum(not told for told in each.values())
                   for name, each in answers.items()},
        "known": KNOWN,
        "failed": {name: {test: _short(told) for test, told in each.items() if told}
                   for name, each in answers.items()}}


def _short(told: str) -> str:
    return " ".join(told.split("; at ")[0].split())[:100]


def main(arguments: Sequence[str] | None = None) -> int:
    """Print what fails, and the sums. The status is 1 if `impl` passes less than 98 %."""
    parser = ArgumentParser(prog="python -m conformance.peers.onnx_nodes")
    parser.add_argument("names", nargs="*", help="only tests with these names, or of these "
                        "operators, asked of impl in this process")
    parser.add_argument("--runtimes", default=",".join(RUNTIMES), help="who is asked")
    parser.add_argument("--seconds", type=float, default=20, help="how long one test may take")
    parser.add_argument("--report", action="store_true", help=f"write {REPORT.name}")
    parser.add_argument("--work", help=SUPPRESS)
    parser.add_argument("--after", default="", help=SUPPRESS)
    options = parser.parse_args(arguments)
    if options.work:
        work(options.work, options.after)
        return 0
    chosen = cases(options.names)
    left_out = {case.name: why for case in chosen if (why := apart(case)) is not None}
    wanted = [case.name for case in chosen if case.name not in left_out]
    if options.names:
        answers = {"impl": {case.name: judge(case, _of_impl) for case in chosen
                            if case.name not in left_out}}
    else:
        answers = {name: ask(name, wanted, options.seconds)
                   for name in options.runtimes.split(",")}
    for name, each in answers.items():
        for test, told in each.items():
            if told and name == "impl":
                print(f"fails  {test:50} {told[:300]}")
        good = sum(not told for told in each.values())
        print(f"{name} passes {good} of {len(wanted)} ({100 * good / max(len(wanted), 1):.1f} %); "
              f"{len(left_out)} do not apply")
    if options.report:
        REPORT.write_text(json.dumps(report_of(answers, left_out), indent=1) + "\n",
                          encoding="utf-8")
    mine = answers.get("impl", {})
    return 0 if sum(not told for told in mine.values()) >= 0.98 * len(mine) else 1


if __name__ == "__main__":
    sys.exit(main())
