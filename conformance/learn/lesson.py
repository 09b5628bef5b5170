"""What a lesson is, and what it says about code that breaks a rule."""
from __future__ import annotations

import importlib.util
import sys
import traceback
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType


@dataclass(frozen=True)
class Counterexample:
    """The rule that is broken, how, and a picture of the problem on which it is."""

    rule: str
    message: str
    picture: str = ""

    def __str__(self) -> str:
        indented = "\n".join(f"    {line}" for line in self.picture.splitlines())
        return f"{self.rule}: {self.message}" + (f"\n\n{indented}\n" if indented else "")


class Undecided(TypeError):
    """A question, such as an `if`, about what is not known while a graph or a kernel is made."""


def nothing(module: ModuleType) -> Iterator[str]:
    """The score of a lesson that has none."""
    return iter(())


@dataclass(frozen=True)
class Lesson:
    """A chapter that can be learned by writing a part of it.

    `module` is the part of the implementation that the reader's file goes into, if it has another
    name than the lesson; `chapters` are those whose tests judge it. `heads` is what the file begins
    with, where the functions are not found in that part; then `install` puts them to use there.
    `score` is what is said when all rules are green; `number` is its place in the course. A `late`
    file is run when a function of it is called first: it may import all of `impl`.
    """

    functions: tuple[str, ...]
    names: str  # what the functions are given and give back, as a comment of the reader's file
    rules: tuple[str, ...]
    hints: tuple[str, ...]
    counterexamples: Callable[[ModuleType], Iterator[Counterexample]]
    number: int
    module: str = ""
    chapters: tuple[str, ...] = ()
    heads: str = ""
    install: Callable[[ModuleType], None] | None = None
    score: Callable[[ModuleType], Iterator[str]] = nothing
    late: bool = False


#: The reader's files, as tracebacks name them.
READERS: set[str] = set()


def error_text(error: BaseException) -> str:
    """An error with its type, and with the last line of the reader's file on the way to it."""
    text = f"{type(error).__name__}: {error}".rstrip(": ")
    lines = [line for frame, line in traceback.walk_tb(error.__traceback__)
             if frame.f_code.co_filename in READERS]
    return f"{text} (line {lines[-1]})" if lines else text


def raised(error: Exception, picture: str) -> Counterexample:
    """What is said of code that raises."""
    more = ": a small problem does not need so much memory" * isinstance(error, MemoryError)
    return Counterexample("raised", f"your code raised {error_text(error)}{more}", picture)


def first_of_each(judged: Iterable[Iterable[Counterexample]],
                  last: Collection[str] = ("raised",)) -> Iterator[Counterexample]:
    """The first counterexample to each rule, of what is said of one problem after the other; no
    further problem is looked at when one of the `last` rules is broken.
    """
    met: set[str] = set()
    for found in judged:
        for each in found:
            if each.rule not in met:
                met.add(each.rule)
                yield each
        if not met.isdisjoint(last):
            return


def is_whole(value: object) -> bool:
    """Whether it is a whole number, and no truth value."""
    return isinstance(value, int) and not isinstance(value, bool)


def times(count: int) -> str:
    """How often something is done, in words."""
    return f"{count} time" + "s" * (count != 1)


def published(module: ModuleType) -> ModuleType:
    """A part of the implementation as it is without the reader's code."""
    assert module.__file__ is not None
    name = f"published_{Path(module.__file__).stem}"
    spec = importlib.util.spec_from_file_location(name, module.__file__)
    assert spec is not None and spec.loader is not None
    found = sys.modules[name] = importlib.util.module_from_spec(spec)  # dataclasses look there
    spec.loader.exec_module(found)
    return found
