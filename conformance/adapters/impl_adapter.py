"""This implementation as the suite drives it: `--impl conformance.adapters.impl_adapter:Adapter`.

A program's variables become tensors and its statements become calls of the public API; nothing
here knows how a schedule is made. Programs have value semantics: a variable is no view of another
one, so each is held in a tensor of its own.
"""
from __future__ import annotations

import gc
import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

import impl
from conformance.adapters.checked import watch
from conformance.adapters.library import Outside, unwrapped, wrapped
from conformance.kernels.sanitized import guard
from conformance.protocol import (
    REPETITIONS,
    Info,
    Laid,
    Observation,
    Value,
    calls,
    decode,
    number,
)
from impl import Context, Mesh, Tensor, TinyJit
from impl.errors import DeviceError
from impl.schedule import schedule_cache

Statement = Mapping[str, Any]
Variables = dict[str, Tensor]

TIERS = ("values", "schedule", "order", "memory", "cache", "replay", "errors",
         "gradient", "sharded", "multi")
#: The tiers of which a schedule says nothing.
PLAIN = {"values", "replay", "errors", "gradient", "multi", "sharded"}
#: The most devices that a mesh is made of.
MESH = 6
SETTINGS = ("FUSE", "NOOPT", "NO_MEMORY_PLANNER", "POISON", "SCACHE",
            "SCARCE", "SHARE_SIZES", "SPEC")

UNARY: dict[str, Callable[[Tensor], Tensor]] = {
    "neg": lambda x: -x, "abs": Tensor.abs, "relu": Tensor.relu, "not": lambda x: ~x,
    "exp": Tensor.exp, "log": Tensor.log, "sqrt": Tensor.sqrt, "sin": Tensor.sin,
    "tanh": Tensor.tanh, "reciprocal": Tensor.reciprocal, "contiguous": Tensor.contiguous,
    "copy": Tensor.clone,
}
BINARY: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b, "floordiv": lambda a, b: a // b, "mod": lambda a, b: a % b,
    "pow": lambda a, b: a ** b, "maximum": Tensor.maximum, "minimum": Tensor.minimum,
    "less": lambda a, b: a < b, "less_equal": lambda a, b: a <= b, "equal": lambda a, b: a == b,
    "and": lambda a, b: a & b, "or": lambda a, b: a | b, "xor": lambda a, b: a ^ b,
    "matmul": lambda a, b: a @ b, "gather": lambda a, b: a[b],
}
REDUCTIONS: dict[str, Callable[..., Tensor]] = {
    "sum": Tensor.sum, "prod": Tensor.prod, "max": Tensor.max,
    "min": Tensor.min, "mean": Tensor.mean,
}
#: Operations whose result this API may give in a wider dtype than a program asks for.
WIDENING = ("sum", "prod", "mean", "cumsum", "matmul", "softmax")


class Adapter:
    """Runs programs; see `conformance.protocol.Adapter` for what its methods promise."""

    def __init__(self) -> None:
        watch()
        guard()

    def info(self) -> Info:
        devices = _devices()
        return Info("tensor-schedule", impl.__version__, settings=SETTINGS, devices=devices,
                    meshes=_members(),
                    observes=TIERS if len(devices) > 1 else TIERS[:-1],
                    # A replay that might be wrong is refused: r[replay.rebound.error].
                    choices={"refuses": ["ReplayError"],
                             "frugal": ["memory", "order"], "kept": "CACHE_FOLDER",
                             "across": ["SCACHE", "SHARE_SIZES"]})

    def run(self, program: Mapping[str, Any], observe: Collection[str],
            options: Mapping[str, Any] | None = None) -> Observation:
        """Execute a program.

        Raises:
            TensorScheduleError: what the public API raises.
        """
        options = options or {}
        settings = dict(options.get("settings", {}))
        if "order_seed" in options:
            settings["ORDER_SEED"] = options["order_seed"]
        if options.get("poison"):
            settings["POISON"] = 1
        with Context(**settings):
            return _Run(set(observe)).all(program["statements"])

    def prepare(self, runs: Iterable[tuple[Mapping[str, Any], Mapping[str, Any]]]) -> None:
        """Compile together what programs with these options will need: a compiler starts slowly.

        The kernels are those of the plans that the programs leave behind when they are run on
        REFERENCE. What is wrong there is left for the run that counts.
        """
        alike: dict[tuple[Any, ...], list[tuple[Mapping[str, Any], Mapping[str, Any]]]] = {}
        for program, options in runs:
            settings = {"DEVICE": impl.Device.DEFAULT, **options.get("settings", {})}
            if settings["DEVICE"] != "REFERENCE":
                alike.setdefault(tuple(sorted(settings.items())), []).append((program, options))
        for pairs, some in alike.items():
            self._compile_together(dict(pairs), some)

    def _compile_together(self, settings: Mapping[str, Any], runs: Iterable[
            tuple[Mapping[str, Any], Mapping[str, Any]]]) -> None:
        schedule_cache.clear()
        for program, options in runs:
            with suppress(Exception):
                self.run(program, {"values", "replay"}, {
                    **options, "settings": {**settings, "DEVICE": "REFERENCE"}})
        kernels = dict.fromkeys(kernel.ast for plan in schedule_cache.plans.values()
                                for kernel in plan.kernels if not kernel.task)
        with suppress(Exception), Context(**settings):
            impl.Device[settings["DEVICE"]].compile(list(kernels))

    def reset(self) -> None:
        gc.collect()  # tensors of earlier programs that only cycles keep alive
        schedule_cache.clear()


def _devices() -> tuple[str, ...]:
    """The default device, where inputs lie, and what else there is: its second, the processor."""
    default = impl.Device.DEFAULT
    kind, _, number = default.partition(":")
    # On the processor there are as many as anybody names: with memory and programs of their own.
    others = (f"{kind}:{int(number or 0) + 1}", *(() if kind in ("CPU", "REFERENCE") else ("CPU",)))
    return (default, *filter(_is_there, others))


def _is_there(name: str) -> bool:
    """Whether a device can be used."""
    try:
        return bool(impl.Device[name])
    except DeviceError:
        return False


def _members() -> tuple[str, ...]:
    """The devices that a mesh may be made of: those of the default device's kind."""
    kind = impl.Device.DEFAULT.partition(":")[0]
    return tuple(filter(_is_there, (f"{kind}:{i}" if i else kind for i in range(MESH))))


def _laid(name: str, tensor: Tensor) -> Laid:
    """How a tensor lies on its mesh, and what each device has of it."""
    found, members = tensor.sharding, _members()
    mesh: Mesh = found.mesh
    shards = [Value.of(name, np.asarray(each.numpy()).reshape(each.shape))
              for each in tensor.shards]
    return Laid(name, tuple(map(members.index, mesh.devices)), tuple(mesh.axes.items()),
                found.cut, shards)


class _Run:
    """One run of one program: its variables and what has been observed."""

    def __init__(self, observe: set[str]) -> None:
        self.tiers = observe
        self.variables: Variables = {}
        self.seen = Observation()
        self.later: set[str] = set()  # the names that statements behind the present one use
        #: By what they do: captured bodies, with the places outside that they read.
        self.captured: dict[str, tuple[Step, Variables, Outside]] = {}

    def all(self, statements: Sequence[Statement]) -> Observation:
        targets = {each["from"][1] for each in _whole(statements) if each["do"] == "gradient"}
        for place, statement in enumerate(statements):
            if statement["do"] in REPETITIONS:
                self.later = _used(statements[place + 1:])
            self.execute(statement)
            if statement.get("to") in targets and statement["do"] == "input":
                self.variables[statement["to"]].requires_grad = True
        return self.seen

    def execute(self, statement: Statement) -> None:
        do = statement["do"]
        if do in REPETITIONS:
            self.repeat(statement)
        elif do == "realize":
            self.realize(statement["names"])
        elif do == "observe":
            self.realize(statement["names"])
            self.report((name, self.variables[name]) for name in statement["names"])
        elif do == "shards":
            self.realize(statement["names"])
            self.seen.laid += [_laid(name, self.variables[name]) for name in statement["names"]]
        elif do == "drop":
            for name in statement["names"]:
                del self.variables[name]
        else:
            perform(statement, self.variables)

    def realize(self, names: Sequence[str]) -> None:
        """Compute variables in one schedule, and keep its document if that is asked for."""
        tensors = [self.variables[name] for name in names]
        if not tensors:
            return
        if self.tiers - PLAIN:
            document = Tensor.schedule_document(*tensors, rounds=True)
            if document["kernels"]:
                self.seen.schedule.append(document)
                self.seen.order.append(list(document["order"]))
        Tensor.realize(*tensors)

    def report(self, tensors: Iterable[tuple[str, Tensor]]) -> None:
        for name, tensor in tensors:
            array = np.asarray(tensor.numpy()).reshape(tensor.shape)
            self.seen.values.append(Value.of(name, array))

    # Repetition

    def repeat(self, statement: Statement) -> None:
        """Execute the body several times: as it is, or captured once and replayed."""
        if "replay" not in self.tiers:
            for each in calls(statement):
                self.all(each)
            return
        body = statement["statements"]
        made, asked = {each.get("to") for each in body}, _asked_first(body)
        carried = [name for name in self.variables if name in made & asked]
        # No others: an argument that the body also has by another name is another case.
        outer = {name: self.variables[name] for name in sorted(_used(body))
                 if name in self.variables and name not in made}
        several = statement.get("given", [{}] * statement.get("count", 0))
        names = [*carried, *dict.fromkeys(name for given in several for name in given)]
        step, place = self.step(statement, outer, self.later | {*carried}, names)
        held: list[tuple[str, Tensor]] = []
        for given in several:
            arguments = place.without({
                name: self.variables[value] if isinstance(value, str) else value
                for name, value in given.items()})
            results, observed = step({name: self.variables[name] for name in carried}, arguments)
            self.variables.update(results)
            held += observed
        self.report(held)  # after the last call: outputs stay what they were

    def step(self, statement: Statement, outer: Variables, wanted: set[str],
             names: Sequence[str]) -> tuple[Step, Outside]:
        """The body of a repetition as a captured function, and the places outside that it reads.

        What stands in a program once more is the same function, called again.
        """
        body, nested = statement["statements"], statement.get("nested", 0)
        key = json.dumps([body, nested, statement.get("outside"), [*outer], [*names], sorted(
            wanted & {each.get("to", "") for each in body})])
        if key not in self.captured:
            place = Outside(statement.get("outside"))
            known = dict(outer)
            self.captured[key] = (_captured(body, known, place, wanted, names, nested), known,
                                  place)
        step, known, place = self.captured[key]
        known.update(outer)
        return step, place


Body = Callable[[Variables, list[Any]], None]
Shown = tuple[Variables, list[tuple[str, Tensor]]]
Step = Callable[[Variables, dict[str, Any]], Shown]


def _captured(body: Sequence[Statement], outer: Variables, place: Outside, wanted: set[str],
              names: Sequence[str], nested: int) -> Step:
    """A body as a function that is captured, to be called with the variables that it redefines and
    its arguments, which have these names.

    Without containers it is one as people write them: it is given its tensors one by one, and
    returns what is `wanted` afterwards, one tensor or several, or nothing.
    """
    execute = written(body)
    if nested or place.kind is not None:
        whole = TinyJit(lambda given, arguments: body_of(
            body, execute, outer, given, {**unwrapped(arguments), **place.read()}))
        return lambda given, arguments: whole(given, wrapped(arguments, nested))
    made = dict.fromkeys(each["to"] for each in body if "to" in each)
    kept = [name for name in made if name in wanted]
    shown = [name for each in body if each["do"] == "observe" for name in each["names"]]

    def called(*values: Any) -> Any:
        made, observed = body_of(body, execute, outer, dict(zip(names, values, strict=True)), {})
        results = [*(made[name] for name in kept), *(tensor for _, tensor in observed)]
        return results[0] if len(results) == 1 else results or None

    step = TinyJit(called)

    def call(given: Variables, arguments: dict[str, Any]) -> Shown:
        returned = step(*({**given, **arguments}[name] for name in names))
        results = returned if isinstance(returned, list) else [returned] * (returned is not None)
        return (dict(zip(kept, results, strict=False)),
                list(zip(shown, results[len(kept):], strict=True)))
    return call


def body_of(body: Sequence[Statement], execute: Body, outer: Variables, given: Variables,
            arguments: Variables) -> tuple[Variables, list[Any]]:
    """The body as a function: from the variables that it redefines to what it makes.

    States that it assigns or stores to are not returned: it changes them in place.
    """
    variables = {**outer, **given, **arguments}
    observed: list[Any] = []
    execute(variables, observed)
    made = {each["to"]: variables[each["to"]] for each in body if "to" in each}
    return made, observed


def written(body: Sequence[Statement]) -> Body:
    """The body as a user writes it: a line for each statement. It is followed as fast as read."""
    known: dict[str, Any] = {"Tensor": Tensor, "evaluate": evaluate}
    lines = ["def body(variables, observed):", "    pass"]  # it may have no statement at all
    for place, statement in enumerate(body):
        lines += [f"    {line}" for line in _lines(statement, str(place), known)]
    exec("\n".join(lines), known)  # its text is made of names and numbers of ours
    found: Body = known["body"]
    return found


def _lines(statement: Statement, label: str, known: dict[str, Any]) -> list[str]:
    """The lines of a statement; what they name besides variables becomes known."""
    do = statement["do"]
    if do == "observe":  # it is handed out: what is stored later must not change it
        return [f"observed.append(({name!r}, Tensor(variables[{name!r}]).clone()))"
                for name in statement["names"]]
    if do == "realize":
        return [f"Tensor.realize({_operands(statement['names'])})"]
    if do in ("assign", "store"):
        view = f"variables[{statement['target']!r}]"
        for place, step in enumerate(statement.get("view", ())):
            view = _call(step, f"{label}_{place}", view, known)
        return [f"{view}.assign({_operands(statement['from'])})"]
    made = _call(statement, label, _operands(statement.get("from", ())), known)
    cast = f".cast(variables[{statement['from'][0]!r}].dtype)" if do in WIDENING else ""
    return [f"variables[{statement['to']!r}] = Tensor({made}{cast})"]


def _call(statement: Statement, label: str, given: str, known: dict[str, Any]) -> str:
    """The call of an operation; its function and its parameters become known."""
    do, parameters = statement["do"], ""
    operation: Callable[..., Tensor] | None = UNARY.get(do) or BINARY.get(do)
    if "device" in statement:
        operation = None
    elif do in REDUCTIONS:
        operation = REDUCTIONS[do]
        parameters = f", axis={tuple(statement['axes'])}, keepdim={statement['keepdims']}"
    elif do in ARGUMENTS:
        operation = METHODS[do]
        parameters = f", {tuple(map(_plain, statement[ARGUMENTS[do]]))}"
    elif do in ("cast", "bitcast"):
        operation, parameters = METHODS[do], f", {statement['dtype']!r}"
    elif do in ("softmax", "cumsum"):
        operation, parameters = METHODS[do], f", {statement['axis']}"
    elif do == "stride":
        return f"{given}[{', '.join(f'::{step}' for step in statement['steps'])}]"
    elif do == "shard":
        known[f"mesh_{label}"] = _mesh(statement)
        operation, parameters = Tensor.shard, f", mesh_{label}, **{statement['cut']}"
    elif do == "shard_like":
        operation = Tensor.shard_like
    if operation is None:
        known[f"statement_{label}"] = statement
        return f"evaluate(statement_{label}, variables)"
    known[f"operation_{label}"] = operation
    return f"operation_{label}({given}{parameters})"


def _operands(names: Sequence[str]) -> str:
    return ", ".join(f"variables[{name!r}]" for name in names)


def _whole(statements: Sequence[Statement]) -> list[Statement]:
    """Statements, with those of the bodies among them."""
    return [each for outer in statements for each in (outer, *outer.get("statements", ()))]


def _asked_first(body: Sequence[Statement]) -> set[str]:
    """The names that a body reads or writes before it makes a variable of that name."""
    made, asked = set[str](), set[str]()
    for statement in body:
        asked |= _used([statement]) - made
        made.add(statement.get("to", ""))
    return asked


def _used(statements: Sequence[Statement]) -> set[str]:
    """The names that statements read or write."""
    return {name for each in _whole(statements) for name in (
        *each.get("from", ()), *each.get("names", ()), each.get("target", ""),
        *(value for given in each.get("given", ()) for value in given.values()
          if isinstance(value, str)))}


def perform(statement: Statement, variables: Variables) -> None:
    """Execute an expression, an assignment or a store."""
    if statement["do"] in ("assign", "store"):
        target = variables[statement["target"]]
        view = target
        for step in statement.get("view", ()):
            view = move(step, view)
        view.assign(variables[statement["from"][0]])
    else:
        # A tensor of its own: not a view, through which a store would reach its source.
        variables[statement["to"]] = Tensor(evaluate(statement, variables))


def evaluate(statement: Statement, variables: Variables) -> Tensor:
    """The tensor that an expression statement denotes."""
    do = statement["do"]
    if do == "input":
        return Tensor(decode(statement["dtype"], statement["shape"], statement["data"]))
    if do == "constant":
        value = statement["value"]
        if isinstance(value, dict):  # one of the arguments
            value = variables[value["given"]]
        return Tensor.full(tuple(statement["shape"]), number(value), dtype=statement["dtype"])
    sources = [variables[name] for name in statement["from"]]
    result = _operation(statement, sources)
    return result.cast(sources[0].dtype) if do in WIDENING else result


def _operation(statement: Statement, sources: Sequence[Tensor]) -> Tensor:
    do, first = statement["do"], sources[0]
    if do == "shard":
        return first.shard(_mesh(statement), **statement["cut"])
    if do == "shard_like":
        return first.shard_like(sources[1])
    if "device" in statement:
        return _moved(first, statement["device"])
    if do in UNARY:
        return UNARY[do](first)
    if do in BINARY:
        return BINARY[do](*sources)
    if do in REDUCTIONS:
        return REDUCTIONS[do](first, axis=tuple(statement["axes"]), keepdim=statement["keepdims"])
    if do == "gradient":
        return first.gradient(sources[1])[0]
    if do == "where":
        return first.where(*sources[1:])
    if do in ("cast", "bitcast"):
        return METHODS[do](first, statement["dtype"])
    if do in ("softmax", "cumsum"):
        return METHODS[do](first, statement["axis"])
    return move(statement, first)


def _mesh(statement: Statement) -> Mesh:
    """The mesh that a statement names."""
    members = _members()
    return Mesh([members[i] for i in statement["devices"]], dict(statement["axes"]))


#: The parameter of a movement, and the methods by their names: a captured body calls them.
ARGUMENTS = {"reshape": "shape", "expand": "shape", "permute": "order", "pad": "widths",
             "shrink": "bounds", "flip": "axes"}
METHODS: dict[str, Callable[..., Tensor]] = {
    name: getattr(Tensor, name) for name in (*ARGUMENTS, "cast", "bitcast", "softmax", "cumsum")}


def _moved(tensor: Tensor, number: int) -> Tensor:
    """A copy on the device with this number, modulo how many there are."""
    devices = _devices()
    target = devices[number % len(devices)]
    return tensor.clone() if tensor.device == target else tensor.to(target)


def move(step: Statement, tensor: Tensor) -> Tensor:
    """One movement, as a view."""
    do = step["do"]
    if do == "stride":
        return tensor[tuple(slice(None, None, each) for each in step["steps"])]
    return METHODS[do](tensor, tuple(map(_plain, step[ARGUMENTS[do]])))


def _plain(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
