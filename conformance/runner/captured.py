"""Random captured functions whose bodies read what changes between their calls.

    python -m conformance.runner.captured --count 20000 -n 2

A body is drawn from statements that read numbers, flags, texts, containers, attributes, closures,
globals, state of modules, arrays, tensors, clocks and random generators. Two worlds are made of its
text: in one it is called as it is, in the other it is captured. The same things are changed in both
between the same calls. Each result, and all that can be seen of each world at the end, has to be
the same. The status is 0 if nothing differed and enough calls were replayed.

    python -m conformance.runner.captured --known

plays bodies as users write them (`bodies`, `loops`), and ways in which a change may be hidden
(`changed`, `hidden`).
"""
from __future__ import annotations

import gc
import json
import os
import random
import sys
import types
from argparse import ArgumentParser
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np

from conformance.runner.fuzz import commit

#: What each world has: the same text, run once for each of them.
WORLD = '''
import collections, contextlib, enum, functools, itertools, math, random, types
from dataclasses import dataclass
import numpy as np
from impl import Tensor, dtypes, nn

class Mode(enum.Enum):
    UP = 1
    DOWN = 2

@dataclass
class Settings:
    rate: float = 2.0
    name: str = "a"

@dataclass(frozen=True)
class Pair:
    left: int
    right: float

class Base:
    shared = 2.0
    table = {"one": 1.0, "two": 2.0}
    def base(self, x):
        return x + self.shared

class Child(Base):
    def __init__(self, k):
        self.k, self.flag = k, True
    @property
    def twice(self):
        return self.k * 2
    @staticmethod
    def still(x):
        return x - G
    @classmethod
    def classy(cls, x):
        return x * cls.shared
    def method(self, x, by=2.0):
        return x * self.k + by if self.flag else x - self.k
    def __call__(self, x):
        return self.base(x) * self.twice
    def __len__(self):
        return int(self.k)
    def __getitem__(self, place):
        return [self.k, self.shared][place]

class Slotted:
    __slots__ = ("value",)

class Lazy:
    def __getattr__(self, name):
        return G if name == "missing" else 1.0

def made(value):
    def get():
        return value
    def put(new):
        nonlocal value
        value = new
    return get, put

def helper(x, scale=2.0, *rest, more=1.0):
    return x * scale + sum(rest) + more

class Bits(enum.IntFlag):
    A = 1
    B = 2

@contextlib.contextmanager
def scaled(by):
    before = o.n
    yield by * o.k + before

def chosen(x, which):
    return functions[which](x)

G, FLAG, NAME, COUNT = 1.0, True, "relu", 2
o = types.SimpleNamespace(k=1.0, flag=True, mode="a", none=None, n=2)
child, other, slotted, lazy = Child(1.0), Child(2.0), Slotted(), Lazy()
slotted.value = 1.0
o.child = child
get, put = made(1.0)
numbers, nested = [1.0, 2.0, 3.0], {"a": {"b": [1.0, 2.0]}, "c": (1, 2)}
settings, pair, kind = Settings(), Pair(1, 2.0), Mode.UP
words, empty = {"x", "y"}, []
array, small = np.array([1.0, 2.0], np.float32), np.float32(2.0)
functions = {"neg": lambda x: -x, "abs": lambda x: abs(x), "same": lambda x: x}
half = functools.partial(helper, scale=0.5)
order = ["neg", "abs"]
table, queue, bits = collections.defaultdict(float, one=1.0), collections.deque([1.0, 2.0]), Bits.A
module = types.ModuleType("module")
module.k, module.f = 1.0, helper
w, v = Tensor([1.0, 2.0]).realize(), Tensor([3.0, 4.0]).realize()
tensors, held = [Tensor([1.0, 1.0]).realize(), Tensor([2.0, 2.0]).realize()], {"w": w}
layer = nn.LayerNorm(2)
norm = nn.BatchNorm(2)
layers = [Child(1.0), Child(2.0)]
dice, ticks, log, total = random.Random(1), itertools.count(), [], [0.0]
size = types.SimpleNamespace(dtype=dtypes.float32, shape=(2,))
'''

#: Statements of bodies; `y` is what is computed.
FOLLOWED = '''
y = y * o.k
y = y + G
y = y * 2 if o.flag else y - 1
y = y * 2 if FLAG else y - 1
y = y + numbers[0]
y = y + sum(numbers)
y = y + len(numbers)
y = y + numbers[COUNT - 1]
y = y * nested["a"]["b"][0]
y = y + nested["c"][1]
y = y + max(nested["a"]["b"])
y = y + child.k
y = child.method(y)
y = child.method(y, by=G)
y = child(y)
y = other.base(y)
y = Child.classy(y)
y = Child.still(y)
y = y + child.twice
y = y + Base.table["one"]
y = y + Child.shared
y = y + get()
y = helper(y)
y = helper(y, o.k, *numbers)
y = helper(y, **{"more": G})
y = half(y)
y = getattr(y, NAME)()
y = y + getattr(o, "k")
y = y + getattr(o, o.mode, 3.0)
y = y + (5.0 if hasattr(o, "extra") else 6.0)
y = y + settings.rate
y = y * 2 if settings.name == "a" else y
y = y + pair.right
y = y + (1.0 if kind is Mode.UP else 2.0)
y = y + kind.value
y = y + (1.0 if "x" in words else 2.0)
y = y + len(words)
y = y + Tensor(array)
y = y * float(array.sum())
y = y * float(small)
y = y + array
y = chosen(y, order[0])
for name in order: y = functions[name](y)
for number in numbers: y = y + number
for each in layers: y = each.method(y)
y = y + [each.k for each in layers][0]
y = y + sum(each.k for each in layers)
y = y + max(layers, key=lambda each: each.k).k
y = y + module.k
y = module.f(y)
y = y + slotted.value
y = y + lazy.missing
y = y * w
y = y + tensors[0]
y = y + sum(tensors[1:], tensors[0])
y = y + held["w"]
y = y.cast(size.dtype)
y = y.reshape(size.shape)
y = layer(y)
y = norm(y.reshape(1, 2)).reshape(2)
y = y.dropout(0.5) if Tensor.training and False else y
y = y + (1.0 if Tensor.training else 2.0)
y = y + (1.0 if o.none is None else o.none)
y = y + (math.sqrt(G * G) if G > 0 else math.pi)
y = y + len(child)
y = y + child[0]
y = y + float(f"{G:.1f}")
y = y + (lambda z: z * o.k)(1.0)
y = (lambda z: z * G)(y)
y = y + functools.reduce(lambda a, b: a + b, numbers)
y = y + sorted(numbers)[0]
y = y + dict(zip("ab", numbers))["a"]
y = y + vars(o)["k"]
y = y + o.child.k
w.assign(w * 0.5 + y)
v.assign(v + o.k)
v[0:1] = v[0:1] + G
a, b = numbers[:2]; y = y + a - b
first, *rest = numbers; y = y + first * len(rest)
y = y if empty else y + 1
out = []; [out.append(each.k) for each in layers]; y = y + out[-1]
match o.mode:
        case "a": y = y + 1
        case "b": y = y + 2
try: y = y + nested["z"]
    except KeyError: y = y - 1
while len(empty) > 1: y = y + 1; break
y = y + {**settings.__dict__}["rate"]
y = y + table["one"]
y = y + table.get("two", 3.0) + len(table)
y = y + queue[0] + sum(queue)
for number in queue: y = y + number
y = y * 2 if bits & Bits.A else y - 1
y = y + (1.0 if Bits.B in bits else 2.0)
with scaled(G) as by: y = y * by
o.mode = "a"; y = y + (1.0 if o.mode == "a" else 2.0)
o.flag = True
layer.eval(); y = layer(y) + (1.0 if layer.training else 2.0)
norm.train(); y = norm(y.reshape(1, 2)).reshape(2)
d = collections.defaultdict(list); d["a"].append(o); y = y + d["a"][0].k
q = collections.deque(layers); y = y + q.popleft().k
global FLAG; FLAG = True
y = y + o.k if o.n > 2 else y + o.n
y = (y.sum() + y) if o.n == 2 else y.max() + y
'''
#: Statements that nobody can follow, or that a replay would not do again.
TRACED = '''
y = y + dice.random()
y = y + next(ticks)
y = y + y.sum().item()
log.append(o.k)
total[0] = total[0] + 1.0; y = y + total[0]
o.k = o.k + 1.0
y = y + hash(id(o)) * 0
y = y + random.random() * 0
global G; G = G + 1.0; y = y + G
'''
#: Changes between calls, among few values, so that what was captured comes again.
CHANGES = '''
o.k = {n}
o.flag = not o.flag
o.mode = {t}
o.none = {m}
o.n = {i}
o.extra = 1
vars(o).pop("extra", None)
G = {n}
FLAG = not FLAG
NAME = {r}
COUNT = {i}
numbers[0] = {n}
numbers.append({n})
numbers[:] = [{n}, 2.0, 3.0]
nested["a"]["b"][0] = {n}
nested["c"] = (1, {i})
nested["z"] = {n}
nested.pop("z", None)
child.k = {n}
child.flag = not child.flag
other.shared = {n}
Base.shared = {n}
Child.shared = {n}
Base.table["one"] = {n}
put({n})
helper.__defaults__ = ({n},)
helper.__kwdefaults__["more"] = {n}
half = functools.partial(helper, scale={n})
settings.rate = {n}
settings.name = {t}
pair = Pair({i}, {n})
kind = Mode({k})
words ^= {{"x"}}
array[0] = {n}
array = np.array([{n}, 2.0], np.float32)
small = np.float32({n})
order.reverse()
order[:] = ["same"]
functions["neg"] = lambda x: x * {n}
layers[0].k = {n}
layers.append(Child({n}))
layers.reverse()
module.k = {n}
module.f = {f}
slotted.value = {n}
w.assign(w * {n})
w = Tensor([{n}, 2.0]).realize()
tensors.append(Tensor([{n}, 1.0]).realize())
tensors[0] = Tensor([{n}, 1.0]).realize()
tensors[0].assign(tensors[0] + {n})
held["w"] = {s}
layer.eps = {n}
norm.momentum = {n}
Tensor.training = not Tensor.training
empty.append(1)
empty.clear()
o.child = {c}
Child.twice = property(lambda self: self.k * {n})
Child.method = lambda self, x, by=1.0: x + by * {n}
lazy.missing = {n}
child.method = lambda x, by={n}: x * by
table["one"] = {n}
table["two"] = {n}
table.pop("two", None)
queue.append({n})
queue[0] = {n}
bits = Bits({i})
layer.train()
norm.eval()
'''
_MATCH = ("match", "try")
_VALUES = {"n": ("1.0", "0.5", "2.0", "-0.0", "0.0"), "t": ('"a"', '"b"', '"k"'),
           "m": ("None", "2.0"), "i": ("1", "2", "3"), "r": ('"relu"', '"exp2"', '"neg"'),
           "k": ("1", "2"), "f": ("helper", "half"), "s": ("w", "v"), "c": ("child", "other")}


def _statements(text: str) -> list[str]:
    """The statements of a text; lines that begin with spaces continue one."""
    found: list[str] = []
    for line in text.strip("\n").split("\n"):
        if line.startswith(" "):
            found[-1] += "\n" + line
        else:
            found.append(line)
    return found


_FOLLOWED, _TRACED, _CHANGES = map(_statements, (FOLLOWED, TRACED, CHANGES))
_WORLD = compile(WORLD, "<world>", "exec")


@dataclass
class Drawn:
    """A random program: the body, and what is changed before each call."""

    body: str
    changes: list[list[str]]

    def text(self) -> str:
        """The program as one reads it."""
        lines = [f"before call {number}: {'; '.join(each)}"
                 for number, each in enumerate(self.changes) if each]
        return "\n".join([self.body, *lines])


def drawn(number: int, calls: int = 9) -> Drawn:
    """The random program of a number."""
    dice = random.Random(number)
    lines = dice.choices(_FOLLOWED, k=dice.randint(1, 5))
    if dice.random() < 0.06:
        lines.insert(dice.randrange(len(lines) + 1), dice.choice(_TRACED))
    first = dict.fromkeys(line for line in lines if line.startswith("global"))  # each once, on top
    lines = [*first, *(line for line in lines if line not in first)]
    body = "def body(x):\n    y = x + 1\n" + "".join(f"    {line}\n" for line in lines) \
        + f"    return {dice.choice(('y', 'y', '[y, o.k]', '(y * 2, y)', 'dict(y=y)'))}\n"
    relevant = [each for each in _CHANGES if any(
        word in body for word in [each.split(" =")[0].split("[")[0].split(".")[0].split("(")[0]])]
    changes: list[list[str]] = []
    for _ in range(calls):
        count = dice.choice((0, 0, 1, 1, 2)) if changes else 0
        pool = relevant if relevant and dice.random() < 0.8 else _CHANGES
        changes.append([each.format(**{
            name: dice.choice(values) for name, values in _VALUES.items()})
            for each in dice.choices(pool, k=count)])
    return Drawn(body, changes)


def shown(value: Any) -> Any:
    """A value as plain data, with its types."""
    from impl import Tensor
    if isinstance(value, Tensor):
        return ("Tensor", value.dtype.name, value.numpy().tobytes())
    if isinstance(value, (list, tuple)):
        return (type(value).__name__, [shown(each) for each in value])
    if isinstance(value, dict):
        return ("dict", [(key, shown(each)) for key, each in value.items()])
    if isinstance(value, (float, np.floating)):
        return (type(value).__name__, repr(value))
    if is_dataclass(value) and not isinstance(value, type):
        return (type(value).__name__, [shown(getattr(value, f.name)) for f in fields(value)])
    if isinstance(value, types.SimpleNamespace) or type(value).__name__ in ("Child", "Settings"):
        own = {key: each for key, each in vars(value).items() if key != "child"}
        return (type(value).__name__, shown(own))
    return value if isinstance(value, (int, str, bytes, type(None))) else type(value).__name__


_SEEN = ("o", "child", "other", "numbers", "nested", "w", "v", "tensors", "G", "FLAG", "log",
         "total", "settings", "norm", "table", "bits")


def played(program: Drawn, captured: Callable[[Any], Any]) -> tuple[list[Any], Any]:
    """Run a program in a new world; what each call gave, and the function."""
    from impl import Tensor
    Tensor.manual_seed(7)
    random.seed(7)
    before = Tensor.training
    module = sys.modules["captured_world"] = types.ModuleType("captured_world")
    world = vars(module)
    exec(_WORLD, world)
    exec(compile(program.body, "<body>", "exec"), world)
    step, found = captured(world["body"]), list[Any]()
    try:
        for number, changes in enumerate(program.changes):
            for change in changes:
                exec(change, world)
            x = Tensor([float(number % 3), 1.0])
            try:
                found.append(shown(step(x)))
            except Exception as error:
                found.append((type(error).__name__, str(error).split(";")[0][:60]))
        found.append([shown(world[name]) for name in _SEEN])
        found.append(shown([world["norm"].running_mean, world["norm"].running_var]))
    finally:
        Tensor.training = before
    return found, step


@dataclass
class Tally:
    """What came of some programs."""

    programs: int = 0
    calls: int = 0
    replayed: int = 0
    traced: int = 0
    captured: int = 0
    blind: int = 0  # programs of which at least one call was replayed
    wrong: list[str] = field(default_factory=list)
    reasons: Counter[str] = field(default_factory=Counter)

    def add(self, other: Tally) -> None:
        """Count what another one has counted."""
        for name in ("programs", "calls", "replayed", "traced", "captured", "blind"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.wrong += other.wrong
        self.reasons += other.reasons

    @property
    def share(self) -> float:
        """The share of calls that were replayed, among those that were replayed or traced."""
        return self.replayed / max(1, self.replayed + self.traced)

    def line(self) -> str:
        """The counts as a line."""
        return (f"{self.programs} programs, {self.calls} calls: {self.replayed} replayed, "
                f"{self.captured} captured, {self.traced} traced; {self.share:.1%} of those that "
                f"could be were replayed; {len(self.wrong)} silent differences")


def tried(numbers: Sequence[int]) -> Tally:
    """Try the programs of these numbers."""
    from impl import Context, TinyJit
    tally = Tally()
    gc.collect()
    gc.freeze()
    with Context(JIT_ENTRIES=32):
        for number in numbers:
            program = drawn(number)
            wanted, _ = played(program, lambda function: function)
            found, step = played(program, TinyJit)
            tally.programs += 1
            tally.calls += step.calls
            tally.replayed += step.replays
            tally.traced += step.traces
            tally.captured += step.calls - step.replays - step.traces
            tally.blind += step.replays > 0
            for reason in step._reasons:
                tally.reasons[reason.does] += 1
            if wanted != found:
                place = next(n for n, pair in enumerate(zip(wanted, found, strict=True))
                             if pair[0] != pair[1])
                tally.wrong.append(f"program {number}, call {place}: {wanted[place]} became "
                                   f"{found[place]}\n{program.text()}")
            step.cache_clear()
    return tally


def known(part: str = "") -> int:
    """Play the programs that are written down; how many came out otherwise than their bodies."""
    from conformance.chapters.following import bodies, loops
    from conformance.runner import changed, hidden
    from impl import Context, TinyJit
    programs: list[tuple[str, Any, Any, str]] = [
        (make.__name__, make, bodies.played, make().why)
        for make in [*bodies.BODIES, *loops.LOOPS]]
    programs += [(each.name, each, changed.played, "") for each in (
        *changed.PROGRAMS, *(each for part in hidden.PROGRAMS.values() for each in part))]
    wrong = replayed = count = 0
    for name, program, play, why in programs:
        if part not in name:
            continue
        with Context(DEVICE="REFERENCE"):
            wanted, _ = play(program, lambda function: function)
            found, step = play(program, TinyJit)
        differs = wanted != found or bool(why) and why not in step.explain()
        wrong, replayed, count = wrong + differs, replayed + (step.replays > 2), count + 1
        reasons = "" if step.replays > 2 else "; ".join(f"{each.does}" for each in step._reasons)
        print(f"{name:46} {'DIFFERS' if differs else 'same':8} {step.calls:3} calls "
              f"{step.replays:3} replayed {step.traces:3} traced  {reasons[:90]}")
    print(f"{count} programs, {replayed} of them replayed, {wrong} silent differences")
    return wrong


def report(tally: Tally, seed: int) -> dict[str, Any]:
    """What came of programs from a number on, as data."""
    return {"format": "tensor-captured/1", "commit": commit(), "seed": seed,
            "programs": tally.programs, "calls": tally.calls, "replayed": tally.replayed,
            "captured": tally.captured, "traced": tally.traced, "share": round(tally.share, 4),
            "differences": tally.wrong, "reasons": dict(tally.reasons.most_common())}


def command(arguments: Sequence[str]) -> int:
    """Try many programs, and say what came of them."""
    parser = ArgumentParser("python -m conformance.runner.captured")
    parser.add_argument("--count", type=int, default=20_000, help="how many programs")
    parser.add_argument("--seed", type=int, default=0, help="the number of the first one")
    parser.add_argument("-n", "--processes", type=int, default=1)
    parser.add_argument("--reasons", action="store_true", help="why calls were traced")
    parser.add_argument("--json", metavar="FILE", help="write what came of them as a report")
    parser.add_argument("--known", nargs="?", const="", metavar="NAME",
                        help="play the programs that are written down instead")
    options = parser.parse_args(arguments)
    if options.known is not None:
        return 1 if known(options.known) else 0
    os.environ.setdefault("DEVICE", "REFERENCE")
    whole, step = Tally(), 100
    parts = [range(start, min(start + step, options.seed + options.count))
             for start in range(options.seed, options.seed + options.count, step)]
    if options.processes == 1:
        for part in parts:
            whole.add(tried(part))
    else:
        with ProcessPoolExecutor(options.processes, max_tasks_per_child=None) as pool:
            for tally in pool.map(tried, parts):
                whole.add(tally)
    print("\n\n".join(whole.wrong[:10]))
    if options.reasons:
        for reason, count in whole.reasons.most_common(40):
            print(f"{count:6} {reason}")
    print(whole.line())
    if options.json:
        Path(options.json).write_text(json.dumps(report(whole, options.seed), indent=1) + "\n")
    return 0 if not whole.wrong and whole.share >= 0.9 else 1


if __name__ == "__main__":
    sys.exit(command(sys.argv[1:]))
