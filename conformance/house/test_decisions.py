"""Each decision has one module: who decides the same elsewhere is found here.

That all who ask do ask that module: conformance/chapters/dependencies/test_one_place.py.
"""
from __future__ import annotations

import ast
import functools
from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest

from conformance.trace import ROOT

pytestmark = pytest.mark.skipif(not (ROOT / "spec").is_dir(), reason="needs a source checkout")

Finder = Callable[[ast.AST], bool]


class Decision(NamedTuple):
    """Where something is decided, how that is seen in a text, and how a second place might look."""

    rooms: tuple[str, ...]
    finder: Finder
    plants: tuple[str, ...]


def called(node: ast.AST) -> str:
    """The function that a node calls; of a constructor with its first argument."""
    return _called(node) if isinstance(node, ast.Call) else ""


@functools.cache
def _called(node: ast.Call) -> str:
    name = ast.unparse(node.func)
    first = ast.unparse(node.args[0]) if node.args else ""
    return f"{name}({first.replace('_COPY', 'Ops.COPY')}" if name == "UOp" else name


def makes_copies(node: ast.AST) -> bool:
    return called(node) == "UOp(Ops.COPY" or isinstance(node, ast.Call) and any(
        each.arg == "op" and ast.unparse(each.value).endswith("COPY") for each in node.keywords)


def names_devices(node: ast.AST) -> bool:
    return isinstance(node, ast.FunctionDef) and node.name in ("named", "home")


def reads_names(node: ast.AST) -> bool:
    """Takes a device's name apart."""
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) \
        and node.func.attr in ("split", "partition", "rpartition") and bool(node.args) \
        and isinstance(node.args[0], ast.Constant) and node.args[0].value == ":"


def launches(node: ast.AST) -> bool:
    """Starts what has memory: a program, a table of launches, what a plan or a call is made of."""
    if not isinstance(node, ast.Call):
        return False
    function = ast.unparse(node.func)
    name, _, method = function.rpartition(".")
    started = ("launch", "segment", "segments", "table", "beside", "stretch", "turns")
    return function.split(".")[-1].split("[")[0] in ("program", "programs") and len(node.args) > 1 \
        or method in ("run", "replay") and name.split(".")[-1].split("(")[0] in started \
        or method in ("transferred", "run_loop", "run_watched") \
        or function in ("transferred", "run_loop", "run_watched", "start")


def tells_of_failures(node: ast.AST) -> bool:
    """Says what cannot be read any more."""
    return called(node).rpartition(".")[2].partition("(")[0] == "spoil"


def places_memory(node: ast.AST) -> bool:
    return called(node).endswith(".set_memory")


def makes_results(node: ast.AST) -> bool:
    return called(node) == "backend.allocate"


def decides_hazards(node: ast.AST) -> bool:
    """Names their kinds, compares ranges, or looks for what is in two sets of accesses."""
    if isinstance(node, ast.Constant):
        return node.value in ("RAW", "WAR", "WAW")
    if isinstance(node, ast.Compare) and isinstance(node.left, ast.Attribute) \
            and isinstance(other := node.comparators[0], ast.Attribute):
        return {node.left.attr, other.attr} == {"start", "stop"} and \
            ast.unparse(node.left.value) != ast.unparse(other.value)
    meets = isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitAnd) or \
        called(node).rpartition(".")[2] in ("isdisjoint", "intersection")
    text = ast.unparse(node).lower() if meets else ""
    writes = sum(text.count(word) for word in ("write", "written", "stored"))
    return writes > 1 or writes == 1 and any(word in text for word in ("read", "loaded"))


def notes_lives(node: ast.AST) -> bool:
    """Notes for each storage a position in an order, in a loop over what each kernel touches."""
    if not isinstance(node, ast.For) or called(node.iter) != "enumerate" \
            or not isinstance(node.target, ast.Tuple) or not any(
                word in ast.unparse(node.iter) for word in ("order", "touch", "access", "kernel")):
        return False
    step = ast.unparse(node.target.elts[0])
    for inner in (each for part in node.body for each in ast.walk(part)):
        for each in ast.walk(inner) if isinstance(inner, ast.For) else ():
            if isinstance(each, ast.Assign) and isinstance(each.targets[0], ast.Subscript) \
                    and ast.unparse(each.value) == step:
                return True
            if called(each).endswith(".setdefault") and step in map(
                    ast.unparse, each.args):  # type: ignore[attr-defined]
                return True
    return False


DECISIONS = {
    "what a copy is": Decision(("impl/places.py",), makes_copies, (
        "copied = UOp(Ops.COPY, dtype, (value,), 'CPU:1')",
        "copied = UOp(_COPY, dtype, (value,), place)",
        "copied = value.replace(op=Ops.COPY, arg=place)")),
    "what a holder is given, and where a value is computed": Decision(
        ("impl/places.py",), names_devices, ("def home(node): return 'CPU'",
                                             "class A:\n    def named(self, value): ...")),
    "which device a name means": Decision(
        # Names of torch's devices are torch's, and compilers name files like that.
        ("impl/places.py", "impl/torch.py", "impl/device/__init__.py", "impl/custom/texts.py"),
        reads_names, (
            "number = int(name.partition(':')[2] or 0)", "kind, *_ = device.split(':')")),
    "what stands at the places of a call": Decision(
        ("impl/realize/prepared.py",), places_memory, ("table.set_memory(0, 1, memory)",)),
    "how kernels are launched": Decision(
        # A loop is launched, and launches its body; devices have tables of their own, a mesh the
        # devices; a search measures kernels on memory of its own.
        ("impl/realize/prepared.py", "impl/realize/launching.py", "impl/realize/looping.py",
         "impl/realize/watched.py", "impl/device/", "impl/collectives/", "impl/distributed/",
         "impl/searching/"), launches, (
            "program(memories, values)", "self.program(memories, item.values)",
            "programs[number](given, ())",
            "self.launch.run(memories)", "for segment in self.segments: segment.run()",
            "table.replay()", "stretch(run, mesh, numbers, given).run(spans)",
            "transferred(copy, target, source, nbytes, dtype)")),
    "what is lost if a launch fails": Decision(
        ("impl/realize/prepared.py",), tells_of_failures, (
            "spoil(run.touched())", "effects.spoil(now[buffer] for buffer in written)")),
    "what a call makes": Decision(
        ("impl/realize/prepared.py",), makes_results, ("memory = backend.allocate(nbytes)",)),
    "who has to wait for whom": Decision(
        # Some show the kinds, one looks whether what was decided is right, and one forgets values
        # that it has computed.
        ("impl/dependencies/", "impl/inspect/", "impl/schedule/checks.py", "impl/reference.py"),
        decides_hazards, (
            "kind = 'RAW'", "meet = one.start < other.stop and other.start < one.stop",
            "waits = bool(writes & (read | written))", "waits = not stored.isdisjoint(loaded)",
            "waits = set(mine.writes).intersection(theirs.reads)")),
    "how long a value is needed": Decision(("impl/dependencies/",), notes_lives, (
        "for step, kernel in enumerate(order):\n    for storage in touched[kernel]:\n"
        "        last[storage] = step",
        "for n, (reads, writes) in enumerate(accesses):\n    for touch in (*reads, *writes):\n"
        "        first.setdefault(touch.storage, n)"))}


@functools.cache
def nodes_of(text: str) -> list[ast.AST]:
    return [*ast.walk(ast.parse(text))]


def found_in(text: str, finder: Finder) -> Iterator[int]:
    """The lines in which something is decided."""
    return (getattr(node, "lineno", 0) for node in nodes_of(text) if finder(node))


@pytest.mark.slow
@pytest.mark.parametrize("name", DECISIONS)
def test_one_module_decides(name: str) -> None:
    rooms, finder, _ = DECISIONS[name]
    modules = [path.relative_to(ROOT).as_posix() for path in sorted((ROOT / "impl").rglob("*.py"))]
    # A table of a device gives its parent what it is given.
    texts = {path: (ROOT / path).read_text(encoding="utf-8") for path in modules}
    found = [f"{path}:{line}" for path, text in texts.items() if not path.startswith(rooms)
             and not (finder is places_memory and "Table(" in text)
             for line in found_in(text, finder)]
    own = [path for path, text in texts.items()
           if path.startswith(rooms[0]) and any(found_in(text, finder))]
    assert own, "the test looks for what is not there"
    assert not found, f"these decide {name} too: {found}; ask {rooms[0]}"


@pytest.mark.parametrize(("name", "plant"), [
    (name, plant) for name, decision in DECISIONS.items() for plant in decision.plants])
def test_a_second_place_would_be_found(name: str, plant: str) -> None:
    assert any(found_in(plant, DECISIONS[name].finder))
