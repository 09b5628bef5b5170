"""The lesson on finding a bug in a runtime that somebody else wrote.

The runtimes are driven as the suite drives any: by programs that are data. The reader writes a
witness of a fault that a library has, makes large witnesses small, and hunts for faults that he
does not know. What a program means says the oracle of the suite.

    effects.value.eager: your program is right there, too: each value is the one that it has to be

        input x int32 (1,)
        observe x
"""
from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import deepcopy
from functools import cache
from types import ModuleType
from typing import Any, NamedTuple

from conformance import oracle, protocol
from conformance.adapters import numpy_adapter
from conformance.generators import effect_programs, programs
from conformance.learn.lesson import Counterexample, Lesson, first_of_each, raised
from conformance.protocol import Adapter, Statement, Unsupported, shapes
from conformance.saboteurs import laws, runtime, values

EAGER, LAW = "effects.value.eager", "conventions.value.eager"
ISOLATED, REGION = "effects.variable.isolated", "effects.view-write.region"
MOST_RUNS, MOST_ELEMENTS = 200, 8
WRITES = ("assign", "store")

Statements = list[Statement]
Values = list[tuple[str, list[Any]]]


# Faults ------------------------------------------------------------------------------------


def _reshape_is_lost(statements: Statements) -> Statements:
    return [each for each in statements
            if not any(step["do"] == "reshape" for step in each.get("view", ()))]


def _not_turned(statements: Statements) -> Statements:
    return [{**each, "view": [step for step in each["view"] if step["do"] != "flip"]}
            if "view" in each else each for each in statements]


def _first_is_lost(statements: Statements) -> Statements:
    """Of two writes to one value that wait, the first."""
    kept: Statements = []
    for place, each in enumerate(statements):
        if each["do"] in WRITES:
            for later in statements[place + 1:]:
                if later["do"] in ("realize", "observe") or each["target"] in later.get("from", ()):
                    kept.append(each)
                    break
                if later.get("target") == each["target"]:
                    break
            else:
                kept.append(each)
        else:
            kept.append(each)
    return kept


def _memory_is_shared(statements: Statements) -> Statements:
    """What was assigned changes with what it was assigned to."""
    kept: Statements = []
    source: dict[str, str] = {}
    for each in statements:
        kept.append(each)
        target = each.get("target", "")
        if each["do"] in WRITES:
            if target in source:
                kept.append({"do": "assign", "target": source[target], "from": [target]})
            source = {one: other for one, other in source.items()
                      if target not in (one, other) or each["do"] == "store"}
        if each["do"] == "assign" and each["from"][0] != target:
            source[target] = each["from"][0]
        for name in each.get("names", ()) if each["do"] == "drop" else ():
            source = {one: other for one, other in source.items() if name not in (one, other)}
    return kept


def _computed_again(statements: Statements) -> Statements:
    """What was written is computed once more, when somebody looks at it."""
    kept: Statements = []
    waiting: dict[str, Statement] = {}
    for each in statements:
        kept.append(each)
        if each["do"] in ("realize", "observe", "drop"):
            waiting = {} if each["do"] != "drop" else {
                name: made for name, made in waiting.items()
                if not {name, *made["from"]} & {*each["names"]}}
        if "to" in each and each.get("from"):
            waiting[each["to"]] = each
        made = waiting.get(each["from"][0]) if each["do"] in WRITES else None
        if made is not None and each["target"] in made["from"]:
            kept += [{**made, "to": "again"},
                     {"do": "assign", "target": made["to"], "from": ["again"]},
                     {"do": "drop", "names": ["again"]}]
    return kept


def _read_too_early(statements: Statements) -> Statements:
    """Who reads a value right after a write to it gets the one from before."""
    kept: Statements = []
    for each in statements:
        if kept and "to" in each and kept[-1].get("target") in each.get("from", ()):
            kept.insert(-1, each)
        else:
            kept.append(each)
    return kept


def _of(saboteur: Callable[[], Any]) -> Callable[[Statements], Statements]:
    """A mistake that the suite is tested with."""
    def changed(statements: Statements) -> Statements:
        found: Statements = saboteur().program(protocol.program(statements), {})["statements"]
        return found
    return changed


class Fault(NamedTuple):
    """A mistake, as what a runtime with it executes in the place of a program."""

    rule: str
    what: str
    change: Callable[[Statements], Statements]


#: The first is that of the witness.
FAULTS = (
    Fault(EAGER, "a reader that waits sees a later write", _of(values.ReaderSeesLaterWrite)),
    Fault(REGION, "a write through a reshape is lost", _reshape_is_lost),
    Fault(ISOLATED, "a write changes reshaped views too", _of(values.ViewsAreAliases)),
    Fault(EAGER, "a value is computed once more after the write that needs it", _computed_again),
    Fault(ISOLATED, "what was assigned shares memory with its source", _memory_is_shared),
    Fault(REGION, "a write to a part begins one element too early", _of(values.WriteHitsTheStart)),
    Fault(REGION, "a write through a flip does not turn", _not_turned),
    Fault(EAGER, "who reads right after a write gets the value from before", _read_too_early),
    Fault(EAGER, "of two writes that wait the first is lost", _first_is_lost),
    Fault(ISOLATED, "a write changes flipped views too", _of(laws.CopiesAreAliases)))


# Runtimes ----------------------------------------------------------------------------------


class Changed:
    """A runtime that executes something else than the program that it was given."""

    def __init__(self, change: Callable[[Statements], Statements]) -> None:
        self.change, self.adapter = change, runtime.Adapter()

    def run(self, program: Any, observe: Any, options: Any = None) -> Any:
        asked = protocol.program(self.change(deepcopy(program["statements"])))
        try:
            shapes.check_program(asked)
        except shapes.ProgramError:
            asked = program
        return self.adapter.run(asked, observe)


def _from_the_end(statements: Statements) -> Statements:
    """Floats are added from the last to the first, which is allowed."""
    kept: Statements = []
    for each in statements:
        if each["do"] == "sum":
            kept.append({"do": "flip", "to": "turned", "from": each["from"], "axes": each["axes"]})
            each = {**each, "from": ["turned"]}
        kept.append(each)
        if each.get("from") == ["turned"]:
            kept.append({"do": "drop", "names": ["turned"]})
    return kept


class OfThisProject:
    """The runtime of this project, with the reader's part in it."""

    def run(self, program: Any, observe: Any) -> Any:
        from conformance.adapters.impl_adapter import Adapter as ImplAdapter
        from impl import Context
        with Context(DEVICE="REFERENCE"):
            return ImplAdapter().run(program, observe)


RIGHT: tuple[tuple[str, Callable[[], Any]], ...] = (
    ("a small lazy runtime", runtime.Adapter), ("NumPy", numpy_adapter.Adapter),
    ("a runtime that adds floats from the end", lambda: Changed(_from_the_end)),
    ("the runtime of this project", OfThisProject))


def observed(adapter: Adapter | Any, statements: Statements) -> list[protocol.Value]:
    """What a runtime answers to a program."""
    found: list[protocol.Value] = adapter.run(protocol.program(deepcopy(statements)),
                                              {"values"}).values
    return found


def broken(adapter: Any, statements: Statements) -> str:
    """What is wrong with the values of a right program, or ""."""
    try:
        found = observed(adapter, statements)
    except Unsupported:
        raise
    except Exception as error:  # any: it is the runtime's, and what we look for
        return f"it ends with {type(error).__name__}: {error}"
    return next(iter(oracle.differences(protocol.program(statements), found)), "")


def unlike(statements: Any) -> str:
    """What keeps an answer from being a program, or ""."""
    if not isinstance(statements, list) or not all(isinstance(each, dict) and "do" in each
                                                   for each in statements):
        return f"{statements!r:.60} is no program: a list of statements, each a dict with a \"do\""
    try:
        protocol.check("program", protocol.program(statements))
        shapes.check_program(protocol.program(statements))
    except Exception as error:  # any: what the reader wrote may be anything
        return f"that is no program: {' '.join(str(error).split()):.200}"
    return ""


def has_meaning(statements: Statements) -> bool:
    """Whether what is left of a program is one."""
    try:
        shapes.check_program(protocol.program(statements))
    except shapes.ProgramError:
        return False
    return True


def told(statements: Statements) -> str:
    """A program as one reads it, a statement on each line."""
    return "\n".join(map(_line, statements)) or "no statements"


def _line(each: Statement) -> str:
    target = each.get("to", each.get("target", ""))
    words = [each["do"], *([target] if target else []), *each.get("names", ())]
    words += ["from " + ", ".join(each["from"])] if each.get("from") else []
    if "dtype" in each:
        words.append(each["dtype"])
    if "data" in each:
        words.append(str(protocol.decode(each["dtype"], each["shape"], each["data"]).tolist()))
    for name in ("value", "shape", "axes", "order", "bounds"):
        if name in each and (name, "data" in each) != ("shape", True):
            words.append(f"{name} {each[name]}")
    words += ["through " + ", ".join(_line(step) for step in each["view"])] \
        if each.get("view") else []
    return " ".join(words)


# What is said of the reader's functions ----------------------------------------------------


def finding(module: ModuleType) -> Iterator[Counterexample]:
    """What is wrong with the witness, then with the shrinking, then with the hunt."""
    for judged in PARTS.values():
        yield from judged(module)


def _shrinking(module: ModuleType) -> Iterator[Counterexample]:
    return first_of_each((_shrunk(module, *problem) for problem in problems()), {"raised", LAW})


def _hunting(module: ModuleType) -> Iterator[Counterexample]:
    return first_of_each(_hunted(module, number) for number in range(len(RIGHT) + len(FAULTS)))


def _witness(module: ModuleType) -> Iterator[Counterexample]:
    fault = FAULTS[0]
    try:
        mine = module.witness()
    except Exception as error:  # any: it is the reader's own code
        yield raised(error, "witness()")
        return
    wrong = unlike(mine)
    if wrong:
        yield Counterexample("raised", wrong)
        return
    faulty, shown = Changed(fault.change), told(mine)
    if not broken(faulty, mine):
        yield Counterexample(EAGER, f"the runtime in which {fault.what} shows nothing of it: each "
                             "value is the one that it has to be", shown)
        return
    for name, make in RIGHT:
        found = broken(make(), mine)
        if found:
            yield Counterexample(LAW, f"{name} has no fault, and: {found}", shown)
            return
    for place, each in enumerate(mine):
        fewer = trimmed(mine[:place] + mine[place + 1:])
        if not unlike(fewer) and broken(faulty, fewer):
            yield Counterexample(EAGER, f"statement {place} is not needed ({_line(each)}): without "
                                 "it the fault is there, too", shown)
            return
    if elements(mine) > MOST_ELEMENTS:
        yield Counterexample(EAGER, f"{elements(mine)} elements are given; fewer show it", shown)


def elements(statements: Statements) -> int:
    """How many numbers are given in a program."""
    found = 0
    for each in statements:
        if each["do"] in ("input", "constant"):
            size = 1
            for length in each["shape"]:
                size *= length
            found += size
    return found


def trimmed(statements: Statements) -> Statements:
    """Without names in lists that nothing makes, and without lists that are empty then."""
    found: Statements = programs._trimmed(list(statements))
    return found


#: Which fault, which of the drawn programs, and how many choices it has: from the smallest up.
DRAWN = ((3, 39, 2), (1, 34, 2), (0, 30, 2), (6, 33, 2), (8, 4, 2), (9, 4, 2), (4, 38, 18),
         (3, 44, 18), (0, 27, 18))


def _hidden(statements: Statements) -> Statements:
    """A fault that a realize hides, and an abs behind the realize shows again."""
    does = [each["do"] for each in statements]
    shown = "realize" not in does or "abs" in does[does.index("realize"):]
    return FAULTS[0].change(statements) if shown else statements


#: Whoever leaves the realize out has to ask about the abs once more.
HIDDEN: tuple[Fault, Statements] = Fault(
    EAGER, "a realize hides a fault, and an abs behind it does not", _hidden), [
    {"do": "input", "to": "x", "dtype": "int32", "shape": [1], "data": "01000000"},
    {"do": "input", "to": "c", "dtype": "int32", "shape": [1], "data": "07000000"},
    {"do": "realize", "names": ["c"]}, {"do": "neg", "to": "y", "from": ["x"]},
    {"do": "assign", "target": "x", "from": ["c"]}, {"do": "abs", "to": "z", "from": ["c"]},
    {"do": "observe", "names": ["y"]}]


@cache
def problems() -> tuple[tuple[Fault, Statements], ...]:
    """Programs on which a runtime with a fault is wrong."""
    drawn = [(FAULTS[fault], effect_programs.random_program(seed, size)["statements"])
             for fault, seed, size in DRAWN]
    return *drawn[:-3], HIDDEN, *drawn[-3:]


class Asked:
    """Whether a program shows a fault, and how often that was asked."""

    def __init__(self, fault: Fault, most: int) -> None:
        self.adapter, self.most, self.runs = Changed(fault.change), most, 0

    def __call__(self, statements: Any) -> bool:
        self.runs += 1
        if self.runs > self.most:
            raise RuntimeError(f"more than {self.most} programs were run")
        fewer = trimmed(statements)
        return has_meaning(fewer) and bool(broken(self.adapter, fewer))


def _shrunk(module: ModuleType, fault: Fault, statements: Statements) -> Iterator[Counterexample]:
    asked = Asked(fault, 10 * len(statements))
    shown = f"a runtime in which {fault.what}; a program of {len(statements)} statements"
    try:
        found = module.shrink(deepcopy(statements), asked)
    except Exception as error:  # any: it is the reader's own code
        yield raised(error, shown)
        return
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
        yield Counterexample("raised", f"shrink answers {found!r:.60}, and not a list of "
                             "statements", shown)
        return
    found, certain = trimmed(found), Asked(fault, 1 << 30)
    shown += f"\nyour program:\n{told(found)}"
    if not certain(found):
        yield Counterexample(LAW, f"your program of {len(found)} statements does not show the "
                             "fault any more", shown)
        return
    for place, each in enumerate(found):
        if certain(found[:place] + found[place + 1:]):
            yield Counterexample(LAW, f"statement {place} is not needed ({_line(each)}): without "
                                 "it the fault is there, too", shown)
            return


def _hunted(module: ModuleType, number: int) -> Iterator[Counterexample]:
    right = number < len(RIGHT)
    name, make = RIGHT[number] if right else ("", lambda: Changed(
        FAULTS[number - len(RIGHT)].change))
    fault = FAULTS[max(number - len(RIGHT), 0)]
    shown = name if right else f"a runtime in which {fault.what}"
    adapter, runs = make(), 0

    def run(statements: Any) -> Values | None:
        nonlocal runs
        runs += 1
        if runs > MOST_RUNS:
            raise RuntimeError(f"more than {MOST_RUNS} programs were run")
        wrong = unlike(statements)
        if wrong:
            raise ValueError(wrong)
        try:
            found = observed(adapter, statements)
        except Unsupported:
            raise
        except Exception:  # any: it is the runtime's
            return None
        return [(each.name, each.array().reshape(-1).tolist()) for each in found]

    try:
        found = module.hunt(run)
    except Exception as error:  # any: it is the reader's own code
        yield raised(error, shown)
        return
    if found is None:
        if not right:
            yield Counterexample(fault.rule, f"you find nothing in a runtime in which {fault.what}",
                                 f"you ran {runs} programs")
        return
    wrong = unlike(found)
    if wrong:
        yield Counterexample("raised", wrong, shown)
    elif right and not broken(adapter, found):
        yield Counterexample(LAW, f"you find a fault in {name}, and there is none: the program has "
                             "the right values there",
                             f"{told(found)}\n\n{_values(adapter, found)}")
    elif not right and not broken(Changed(fault.change), found):
        yield Counterexample(fault.rule, "the program that you answer has the right values, though "
                             f"it was run by a runtime in which {fault.what}", told(found))


def _values(adapter: Any, statements: Statements) -> str:
    """What a right runtime shows: the first values that are observed."""
    lines = [f"{each.name} is {each.array().tolist()!s:.70}, and that is right"
             for each in observed(adapter, statements)]
    return "\n".join(lines[:8] + ["..."] * (len(lines) > 8))


PARTS: dict[str, Callable[[ModuleType], Iterator[Counterexample]]] = {
    "witness": _witness, "shrink": _shrinking, "hunt": _hunting}


# In the runtime ----------------------------------------------------------------------------


def install(module: ModuleType) -> None:
    """Let the suite shrink what fails as the reader does."""
    known: Any = module

    def shrink(program: Any, fails: Callable[[Any], bool], budget: int = 400,
               seconds: float = 120.0) -> Any:
        def asked(statements: Any) -> bool:
            fewer = trimmed(statements)
            return any(each["do"] == "observe" for each in fewer) and has_meaning(fewer) and fails(
                {**program, "statements": fewer})
        return {**program, "statements": trimmed(known.shrink(
            deepcopy(program["statements"]), asked))}

    programs.shrink = shrink


def score(module: ModuleType) -> Iterator[str]:
    """The witness, and large programs made small by the reader and by the suite."""
    known: Any = module
    mine = known.witness()
    yield (f"your witness: {len(mine)} statements with {elements(mine)} elements; "
           "at least 4 and 2")
    yield f"{'shrinking':<44}{'from':>6}{'yours':>7}{'runs':>6}{'suite':>7}{'runs':>6}"
    for fault, statements in problems()[-3:]:
        asked, theirs = (Asked(fault, 1 << 30) for _ in range(2))
        found = trimmed(known.shrink(deepcopy(statements), asked))
        ours = _by_the_suite(statements, theirs)
        yield (f"{fault.what[:42]:<44}{len(statements):>6}{len(found):>7}{asked.runs:>6}"
               f"{len(ours):>7}{theirs.runs:>6}")


_suite_shrink = programs.shrink


def _by_the_suite(statements: Statements, asked: Asked) -> Statements:
    """What the suite's own shrinking leaves of a program."""
    small = _suite_shrink(protocol.program(statements), lambda each: asked(each["statements"]))
    found: Statements = small["statements"]
    return found


FINDING = Lesson(
    number=23, functions=("witness", "shrink", "hunt"),
    names="""\
A program is a list of statements. `numbers(...)` below writes int32 data as the suite wants them.
    {"do": "input", "to": "x", "dtype": "int32", "shape": [3], "data": numbers(1, 2, 3)}
    {"do": "constant", "to": "c", "dtype": "int32", "shape": [3], "value": 7}
    {"do": "neg", "to": "y", "from": ["x"]}          also "abs"; two sources: "add", "sub", "mul"
    {"do": "sum", "to": "y", "from": ["x"], "axes": [0], "keepdims": False}      also "max", "min"
    {"do": "reshape", "to": "y", "from": ["x"], "shape": [3, 1]}
    {"do": "flip", "to": "y", "from": ["x"], "axes": [0]}
    {"do": "shrink", "to": "y", "from": ["x"], "bounds": [[1, 3]]}
    {"do": "assign", "target": "x", "from": ["y"]}                            x takes the value of y
    {"do": "store", "target": "x", "from": ["y"], "view": [...]}         through reshape, flip or
        shrink: {"do": "shrink", "bounds": [[1, 3]]}; y has the shape of what is selected
    {"do": "realize", "names": ["x"]}                                        compute what waits
    {"do": "observe", "names": ["x", "y"]}                                   look at values
A runtime may compute as late as it likes. What is observed has to be as if each statement had run
where it stands.""",
    heads='''\
def numbers(*values):
    """int32 values as the data of an input."""
    return "".join(value.to_bytes(4, "little", signed=True).hex() for value in values)


def witness():
    """A program that shows that a reader that waits sees a later write, and nothing else in it."""
    raise NotImplementedError


def shrink(statements, fails):
    """A part of a program for which `fails` is true, of which no statement can be left out.

    fails(statements) is true where a program still shows the fault, and false where what is left
    is no program, since something uses a name that nothing makes. (Names in `observe`, `realize`
    and `drop` that nothing makes are left out before.)
    """
    raise NotImplementedError


def hunt(run):
    """A program on which a runtime is wrong; None if none is found.

    run(statements) is [(name, [number, ...]), ...] for all that is observed, in order; None if the
    runtime ended with an error, which is wrong, too. You may run 200 programs.
    """
    raise NotImplementedError
''',
    rules=(EAGER, LAW, ISOLATED, REGION),
    hints=(
        "witness: what is a reader, and when does it wait? x is given, y is computed from x, and "
        "nobody has looked at y. Now x is written, and then you look at y.",
        "What is written to x may be a value of its own. With less: it can be x itself, turned. "
        "(Not y: what a write needs is computed before it.)",
        "shrink: leave one statement out, and ask. If the fault is still there, go on with what is "
        "left, until nothing can be left out any more.",
        "From the back: a statement can only be left out when nothing uses its result any more. "
        "From the front you come too early each time, and begin anew too often.",
        "hunt: the right values you can write down yourself, beside each of ten small programs. Or "
        "compare a program with the same one with a realize after each statement.",
        "Each fault needs a program in which something waits, is written in part, or is seen in "
        "two ways. Keep to int32: the order in which floats are added is free."),
    counterexamples=finding, module="effects", chapters=("effects", "conventions"),
    install=install, score=score)
