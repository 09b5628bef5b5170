"""What the adapters of array libraries share: the walk over the statements of a program.

An adapter fills two tables of functions and says how arrays go in and come out:

    class Adapter(LibraryAdapter[np.ndarray]):
        functions = {"add": np.add, ...}                 # called with the sources
        shaped = {"sum": lambda s, x: np.sum(x, tuple(s["axes"]), keepdims=s["keepdims"]), ...}

`shaped` functions are given the statement too.  What is in neither table is not declared, and
nothing here makes it up.
"""
from __future__ import annotations

import types
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np

from conformance import protocol
from conformance.protocol import (
    Array,
    Info,
    Laid,
    Observation,
    Options,
    Program,
    Statement,
    Unsupported,
    Value,
)

T = TypeVar("T")
Variables = dict[str, T]
Function = Callable[..., Any]


class LibraryAdapter(Generic[T]):
    """Executes programs one statement after the other.  `T` is the library's type of an array."""

    functions: ClassVar[Mapping[str, Function]] = {}
    shaped: ClassVar[Mapping[str, Function]] = {}
    effects: ClassVar[Sequence[str]] = ("realize", "drop", "observe", *protocol.REPETITIONS)

    def __init__(self, name: str, version: str, **declared: Any) -> None:
        statements = ("input", "constant", *self.functions, *self.shaped, *self.effects)
        self.declared = Info(name, version, statements=statements, **declared)
        self.tiers: Collection[str] = ()
        self.seen = Observation()

    def info(self) -> Info:
        return self.declared

    def run(self, program: Program, observe: Collection[str],
            options: Options | None = None) -> Observation:
        """Execute a program; exceptions are those of the library."""
        statements, dtypes = protocol.needs(program)
        missing = [*sorted(statements - set(self.declared.statements)),
                   *sorted(dtypes - set(self.declared.dtypes))]
        if missing:
            raise Unsupported(", ".join(missing))
        self.tiers, self.seen = observe, Observation()
        self.execute(program["statements"], {})
        return self.seen

    def reset(self) -> None:
        """Nothing is kept from one program to the next."""

    # What an adapter says of its library

    def array(self, elements: Array) -> T:
        """A tensor with these elements, in memory of its own."""
        raise NotImplementedError

    def elements(self, tensor: T) -> Array:
        """The elements of a tensor, now."""
        raise NotImplementedError

    def full(self, dtype: str, shape: Sequence[int], value: Any) -> T:
        """A tensor full of one number."""
        return self.array(np.full(tuple(shape), value, dtype))

    def write(self, target: T, view: Sequence[Statement], value: T) -> T:
        """The target with the region that the view selects overwritten: in place if it can."""
        raise Unsupported("store")

    def realize(self, tensors: Sequence[T]) -> None:
        """Compute these tensors now, in one go, where the library has waited with that."""

    def captured(self, function: Function) -> Function:
        """The function as the library captures it: traced, compiled or recorded."""
        return function

    def laid(self, name: str, tensor: T) -> Laid:
        """How a tensor lies on its mesh, and what each device has of it."""
        raise Unsupported("shards")

    def held(self, tensor: T) -> T:
        """A value handed out from inside a captured function."""
        return tensor

    # The walk

    def execute(self, statements: Sequence[Statement], variables: Variables[T]) -> None:
        for statement in statements:
            do = statement["do"]
            if do in protocol.REPETITIONS:
                self.repeat(statement, variables)
            elif do in ("realize", "observe"):
                self.realize([variables[name] for name in statement["names"]])
                if do == "observe":
                    self.report([(name, variables[name]) for name in statement["names"]])
            elif do == "shards":
                self.realize([variables[name] for name in statement["names"]])
                self.seen.laid += [self.laid(name, variables[name]) for name in statement["names"]]
            elif do == "drop":
                for name in statement["names"]:
                    del variables[name]
            else:
                self.perform(statement, variables)

    def perform(self, statement: Statement, variables: Variables[T]) -> None:
        """An expression, an assignment or a store."""
        if statement["do"] in ("assign", "store"):
            target = statement["target"]
            variables[target] = self.write(variables[target], statement.get("view", ()),
                                           variables[statement["from"][0]])
        else:
            sources = [variables[name] for name in statement.get("from", ())]
            variables[statement["to"]] = self.evaluate(statement, sources)

    def evaluate(self, statement: Statement, sources: Sequence[T]) -> T:
        """The value of an expression."""
        do = statement["do"]
        if do == "input":
            return self.array(protocol.decode(statement["dtype"], statement["shape"],
                                              statement["data"]))
        if do == "constant":
            return self.full(statement["dtype"], statement["shape"],
                             protocol.number(statement["value"]))
        found: T = (self.functions[do](*sources) if do in self.functions
                    else self.shaped[do](statement, *sources))
        return found

    def report(self, named: Sequence[tuple[str, T]]) -> None:
        self.seen.values += [Value.of(name, self.elements(tensor)) for name, tensor in named]

    # Repetitions: as they are, or captured once and replayed

    def repeat(self, statement: Statement, variables: Variables[T]) -> None:
        if "replay" not in self.tiers:
            for each in protocol.calls(statement):
                self.execute(each, variables)
            return
        body, held = statement["statements"], list[tuple[str, T]]()
        changed = {each.get("to") for each in body}
        carried = [name for name in variables if name in changed]
        place = Outside(statement.get("outside"))
        step = self.captured(self.function_of(body, variables, place))
        for given in statement.get("given", [{}] * statement.get("count", 0)):
            arguments = place.without({name: variables[value] if isinstance(value, str) else value
                                       for name, value in given.items()})
            made, observed = step({name: variables[name] for name in carried},
                                  wrapped(arguments, statement.get("nested", 0)))
            variables.update(made)
            held += zip(observed_names(body), observed, strict=True)
        self.report(held)  # after the last call: what was handed out stays what it was

    def function_of(self, body: Sequence[Statement], outer: Variables[T],
                    place: Outside) -> Function:
        """The body as a function of the variables that it redefines, and of its arguments.

        It returns what it defines and what it observes; other variables it changes in place.
        """
        def function(given: Variables[T], containers: Any) -> tuple[Variables[T], list[T]]:
            arguments = {**unwrapped(containers), **place.read()}
            variables = {**outer, **given, **arguments}
            observed: list[T] = []  # compilers look at these lines too: the plainest words
            for statement in body:
                if isinstance(statement.get("value"), dict):
                    statement = {**statement, "value": arguments[statement["value"]["given"]]}
                if statement["do"] == "observe":
                    observed += [self.held(variables[name]) for name in statement["names"]]
                elif statement["do"] == "realize":
                    self.realize([variables[name] for name in statement["names"]])
                else:
                    self.perform(statement, variables)
            return {each["to"]: variables[each["to"]] for each in body if "to" in each}, observed
        return function


class CompilingAdapter(LibraryAdapter[T]):
    """What stands between two boundaries is compiled as one function, by `captured`."""

    #: Where one compiled function ends and the next one begins.
    boundaries: ClassVar[Sequence[str]] = ("realize", "observe", "drop", "input",
                                           *protocol.REPETITIONS)

    def execute(self, statements: Sequence[Statement], variables: Variables[T]) -> None:
        waiting: list[Statement] = []
        for statement in statements:
            if statement["do"] in self.boundaries:
                self.together(waiting, variables)
                waiting = []
                super().execute([statement], variables)
            else:
                waiting.append(statement)
        self.together(waiting, variables)

    def together(self, statements: Sequence[Statement], variables: Variables[T]) -> None:
        """Compile these statements as one function of the variables, and call it."""
        if not statements:
            return

        def function(given: Variables[T]) -> Variables[T]:
            known = dict(given)
            for statement in statements:
                self.perform(statement, known)
            return known

        variables.update(self.captured(function)(variables))


class Outside:
    """Numbers that a body reads from around it, where `calls` says so: from an item of a mapping,
    an attribute of an object, or a variable of the function around.
    """

    def __init__(self, kind: str | None) -> None:
        self.kind, self.read, self.write = kind, *reader(kind)

    def without(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """The arguments without their numbers, which are put outside."""
        if self.kind is None:
            return arguments
        self.write({name: value for name, value in arguments.items()
                    if isinstance(value, (int, float))})
        return {name: value for name, value in arguments.items()
                if not isinstance(value, (int, float))}


def reader(kind: str | None) -> tuple[Callable[[], dict[str, Any]],
                                      Callable[[dict[str, Any]], None]]:
    """What reads the numbers outside, and what writes them."""
    if kind is None:
        return dict, lambda numbers: None
    cell: dict[str, Any] = {}
    table: dict[str, dict[str, Any]] = {"numbers": {}}
    space = types.SimpleNamespace()

    def write(numbers: dict[str, Any]) -> None:
        nonlocal cell
        cell = numbers
        table["numbers"].clear()
        table["numbers"].update(numbers)
        vars(space).clear()
        vars(space).update(numbers)
    if kind == "item":
        return lambda: dict(table["numbers"]), write
    if kind == "attribute":
        return lambda: {**vars(space)}, write
    return lambda: cell, write


def observed_names(body: Sequence[Statement]) -> list[str]:
    """The names that a body observes, in order."""
    return [name for each in body if each["do"] == "observe" for name in each["names"]]


def wrapped(arguments: Any, nested: int) -> Any:
    """Arguments inside so many containers, lists and mappings in turn."""
    for depth in range(nested):
        arguments = [arguments] if depth % 2 == 0 else {"inner": arguments}
    return arguments


def unwrapped(arguments: Any) -> dict[str, Any]:
    """The arguments that `wrapped` put into containers."""
    while isinstance(arguments, list) or "inner" in arguments:
        arguments = arguments[0] if isinstance(arguments, list) else arguments["inner"]
    found: dict[str, Any] = arguments
    return found


def slices(statement: Statement) -> tuple[slice, ...]:
    """What `shrink` and `stride` select, as an index."""
    if statement["do"] == "shrink":
        return tuple(slice(start, stop) for start, stop in statement["bounds"])
    return tuple(slice(None, None, step) for step in statement["steps"])


def selection(statement: Statement, rank: int) -> tuple[slice, ...]:
    """What `shrink`, `stride` and `flip` select of an array with so many axes."""
    if statement["do"] != "flip":
        return slices(statement)
    return tuple(slice(None, None, -1 if axis in statement["axes"] else 1) for axis in range(rank))
