"""The checkpoint of the lesson on replay lets a right key pass, and no wrong one."""
from __future__ import annotations

import re
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from conformance import learn
from conformance.learn.lesson_replay import (
    Part,
    apart,
    install,
    part_of,
    replay,
    score,
    together,
)
from conformance.learn.solutions.replay import aliases, describe
from conformance.trace import ROOT
from impl import Tensor, Variable
from impl.replay import arguments


def without(*fields: str) -> Callable[[Part], Any]:
    """A key that leaves something of a part out."""
    default: dict[str, Any] = {name: Part._field_defaults.get(name) for name in fields}
    return lambda part: describe(part._replace(**default))


def plainly(part: Part) -> Any:
    """A key with numbers as Python compares them."""
    return (part.type, part.value) if part.kind == "value" else describe(part)


#: Each wrong describe, and what is said about it.
WRONG: dict[str, tuple[Callable[[Part], Any], str]] = {
    "nothing": (lambda part: 0, "replay.arguments.form: the key does not see the value of args[1]: "
                "a replay gives [1, 4]"),
    "objects by their type": (
        lambda part: type(part.value) if part.kind == "object" else describe(part),
        "the key does not see which object args[1] is"),
    "all objects are one": (lambda part: 0 if part.kind == "object" else describe(part),
                            "the key does not see which object args[1] is"),
    "no value": (without("value"), "replay.arguments.form: the key does not see the value"),
    "no type": (lambda part: (part.kind, part.value if part.kind == "value" else describe(part)),
                "replay.arguments.form: the key does not see the type of args[1]"),
    "numbers as they compare": (plainly, "replay.arguments.form: the key does not see the sign"),
    "no shape": (without("shape"), "replay.arguments.form: the key does not see the shape"),
    "no dtype": (without("dtype"), "replay.arguments.form: the key does not see the dtype"),
    "no device": (without("device"), "replay.arguments.form: the key does not see the device"),
    "no name": (without("name"), "replay.arguments.form: the key does not see the name"),
    "no greatest value": (without("high"), "does not see the greatest value of args[1]"),
    "no least value": (without("low"), "does not see the least value of args[1]"),
    "objects by equality": (lambda part: part.value if part.kind == "object" else describe(part),
                            "the key does not see which object args[1] is"),
    "the memory too": (lambda part: (describe(part), part.memory),
                       "the key is another one, though the call is the same but for the memory"),
    "what is bound too": (
        lambda part: (describe(part), part.value if part.kind == "variable" else 0),
        "caching.key.circumstances: the key is another one, though the call is the same but for "
        "the value that args[1] is bound to"),
    "something else each time": (lambda part: object(), "caching.key.renaming: the key is another"),
    "it raises": (lambda part: part.other,  # type: ignore[attr-defined]
                  "raised: your code raised AttributeError"),
}

WRONG_ALIASES: dict[str, tuple[Callable[[dict[str, int]], Any], str]] = {
    "nothing": (lambda memory: 0, "replay.arguments.form: other tensors are one memory"),
    "how many": (lambda memory: len(set(memory.values())), "replay.arguments.form: other tensors"),
    "the numbers": (dict, "caching.key.renaming: the same tensors are one memory"),
    "who is first": (lambda memory: sorted(memory)[:1], "replay.arguments.form: other tensors"),
    "neighbours": (lambda memory: [one == other for one, other in zip(
        memory.values(), [*memory.values()][1:], strict=False)],
        "replay.arguments.form: other tensors are one memory"),
    "whether any two are one": (lambda memory: len({*memory.values()}) < len(memory),
                                "replay.arguments.form: other tensors are one memory"),
    "in the order in which they come": (
        lambda memory: [sorted([*memory.values()]).index(number) for number in memory.values()],
        "caching.key.renaming: the same tensors are one memory"),
    "pairs with the first": (
        lambda memory: {path for path in memory if memory[path] == memory[min(memory)]},
        "replay.arguments.form: other tensors are one memory"),
    "nothing is returned": (lambda memory: None, "replay.arguments.form: other tensors"),
    "the order of paths": (lambda memory: (list(memory), aliases(memory)),
                           "caching.key.renaming: the same tensors are one memory"),
    "it raises": (lambda memory: memory["x"], "raised: your code raised KeyError"),
}


def found(describe: Any, aliases: Any) -> list[str]:
    module: Any = SimpleNamespace(describe=describe, aliases=aliases)
    return [str(each) for each in replay(module)]


# Right, in other ways than the solution ----------------------------------------------------


def with_bits(part: Part) -> Any:
    """Floats by their bits; all else as a dict."""
    if part.kind == "object":
        return hex(id(part.value))
    bits = struct.pack("d", part.value) if part.type == "float" else part.value
    kept = part._replace(memory=0, value=bits if part.kind == "value" else None)
    return [*kept._asdict().items()]


def as_a_text(part: Part) -> str:
    fields = {"tensor": ("shape", "dtype", "device"), "value": ("type", "value"),
              "variable": ("name", "low", "high")}.get(part.kind)
    return f"{part.kind} {[getattr(part, name) for name in fields] if fields else id(part.value)}"


class Same:
    """An object that equals itself alone."""

    def __init__(self, thing: Any) -> None:
        self.thing = thing

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and self.thing is other.thing

    __hash__ = None  # type: ignore[assignment]


def by_first_path(memory: dict[str, int]) -> Any:
    first: dict[int, str] = {}
    for path in sorted(memory):
        first.setdefault(memory[path], path)
    return {path: first[number] for path, number in memory.items()}


def by_pairs(memory: dict[str, int]) -> Any:
    return {frozenset((one, other)) for one in memory for other in memory
            if memory[one] == memory[other]}


def by_numbers(memory: dict[str, int]) -> Any:
    numbers: dict[int, int] = {}
    return [(path, numbers.setdefault(memory[path], len(numbers))) for path in sorted(memory)]


@pytest.mark.parametrize("key", [
    describe, with_bits, as_a_text,
    lambda part: Same(part.value) if part.kind == "object" else describe(part),
    lambda part: repr(part._replace(memory=0, value=None)) if part.kind == "variable"
    else describe(part)])
def test_a_right_key_is_let_pass(key: Any) -> None:
    assert found(key, aliases) == []


@pytest.mark.parametrize("shared", [aliases, by_first_path, by_pairs, by_numbers])
def test_right_aliases_are_let_pass(shared: Any) -> None:
    assert found(describe, shared) == []


def test_the_score_is_that_of_the_page() -> None:
    """More recordings are made with more in the key."""
    right, much = (SimpleNamespace(describe=key, aliases=aliases) for key in (describe, tuple))
    judged: Any = right
    page = (ROOT / "docs" / "course" / "replay.md").read_text(encoding="utf-8")
    assert next(score(judged)) in page
    judged = much
    assert next(score(judged)).startswith("300 calls: 283 recordings with your key, 208 with ours")


# Wrong, as one writes them -----------------------------------------------------------------


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_key_gets_a_stale_value(name: str) -> None:
    wrong, said = WRONG[name]
    first = found(wrong, aliases)[0]
    assert said in first and "captured" in first and "now" in first


@pytest.mark.parametrize("name", WRONG_ALIASES)
def test_wrong_aliases_are_shown(name: str) -> None:
    wrong, said = WRONG_ALIASES[name]
    assert said in found(describe, wrong)[0]


def test_every_pair_differs_in_what_it_says() -> None:
    for case in apart():
        assert [path for path in case.now if case.now[path] is not case.captured[path]] \
            == ["args[1]"]
        assert all(case.shown) and case.shown[1] != case.shown[3]
    assert all(not case.shown[0] for _, case in together())


def test_what_the_runtime_notes_is_taken_for_the_right_part() -> None:
    x, n = Tensor(np.zeros((2, 3), np.float32)).realize(), Variable("n", 1, 9).bind(4)
    thing = object()
    noted = arguments.take_apart([x, n, 3, -0.0, None, "sum", thing, [1]]).signature
    device = x.device
    assert [part_of(noted[f"[{place}]"]) for place in range(7)] == [
        Part("tensor", shape=(2, 3), dtype="float32", device=device),
        Part("variable", name="n", low=1, high=9), Part("value", type="int", value=3),
        Part("value", type="float", value=-0.0), Part("value", type="NoneType"),
        Part("value", type="str", value="sum"), Part("object", value=thing)]
    assert part_of(noted["[7]"]) is None


def test_the_runtime_asks_the_readers_key() -> None:
    """A key that leaves out what a call differs in is not refused; a right one is, by name."""
    one, two = (arguments.take_apart(((given,), {})).signature for given in (2, 3))
    for key, refused in ((describe, True), (without("value"), False)):
        module: Any = SimpleNamespace(describe=key, aliases=aliases, differing=arguments.differing)
        install(module)
        assert not module.differing(one, dict(one))
        said = module.differing(one, two)
        assert ("args[0] was ('int', 2)" in said) is refused and bool(said) is refused
        # containers are not the reader's
        assert "tuple" in module.differing(one, arguments.take_apart(((2, 3), {})).signature)
        leaf = Tensor([1.0]).realize().uop
        assert module.aliases_of({"a": leaf, "b": leaf}) == [["a", "b"]]
        other = Tensor([2.0]).realize().uop  # the key is a list of lists, and no two are one
        assert not module.aliases_of({"a": leaf, "b": other})


def test_the_readers_file_takes_the_place_of_ours(tmp_path: Path,
                                                  capsys: pytest.CaptureFixture[str]) -> None:
    mine = tmp_path / "my_replay.py"
    mine.write_text("def describe(part):\n    return part.kind\n\n"
                    "def aliases(memory):\n    return 0\n", encoding="utf-8")
    ran = subprocess.run([sys.executable, "-m", "conformance.learn", "check", "replay", "--mine",
                          str(mine)], cwd=ROOT, capture_output=True, text=True)
    assert ran.returncode == 1, ran.stderr
    page = (ROOT / "docs" / "course" / "replay.md").read_text(encoding="utf-8")
    shown = "\n".join(ran.stdout.splitlines()[:4]).replace("\n\n\n", "\n\n")
    assert shown in page  # the page shows what is printed
    assert "1 of 5 rules are red on small problems" in ran.stdout
    assert learn.main(["progress", "--mine", str(mine)]) == 0
    said = capsys.readouterr().out.partition("replay: 0 of 5")[2]
    said = re.split(r"\n\S", said)[0]  # up to the next lesson
    assert (said.count("red "), said.count("open ")) == (1, 4)
