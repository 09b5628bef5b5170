"""Ways in which what a body reads is changed where a guard might not look.

    python -m conformance.runner.captured --known

Each program is a name, what stands outside, the body, and changes: after each of them the captured
function is called twice. It has to show what the body shows, whether it is replayed or traced.
"""
from __future__ import annotations

import builtins
import math
import random
import sys
import time
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from conformance.runner.captured import shown

#: What each program may use.
_NAMES = """
import abc, collections, dataclasses, enum, functools, gc, math, operator, os, random, sys
import threading, time, types, typing, weakref
import numpy as np
from impl import Context, Tensor, TinyJit, dtypes, nn
MAX, SQRT, NPSQRT = max, math.sqrt, np.sqrt
"""


class Changed(NamedTuple):
    """A program: what stands outside, the body of `body(x)`, and changes, one on each line."""

    name: str
    world: str
    body: str
    changes: str


def parsed(text: str) -> list[Changed]:
    """The programs of a text: parts are parted by lines of one dash, programs by an empty line."""
    found: list[Changed] = []
    for block in text.strip("\n").split("\n\n"):
        name, _, rest = block.partition("\n")
        world, body, changes = (part.strip("\n") for part in f"\n{rest}\n".split("\n-\n"))
        found.append(Changed(name.lstrip("# "), world, body, changes))
    return found


@contextmanager
def _put_back() -> Iterator[None]:
    """What a program replaces in libraries is put back after it."""
    from impl import Tensor
    from impl.nn import functional
    owners: tuple[Any, ...] = (builtins, math, np, time, functional, Tensor)
    before = [dict(vars(owner)) for owner in owners]
    try:
        yield
    finally:
        for owner, names in zip(owners, before, strict=True):
            for name in {**names, **vars(owner)}:
                if name not in names:
                    delattr(owner, name)
                elif vars(owner).get(name) is not names[name] and not name.startswith("__w"):
                    setattr(owner, name, names[name])


def played(program: Changed, captured: Callable[[Any], Any]) -> tuple[list[Any], Any]:
    """Run a program in a new world; what each call gave, and the function."""
    from impl import Tensor
    Tensor.manual_seed(7)
    random.seed(7)
    np.random.seed(7)
    module = sys.modules["changed_world"] = types.ModuleType("changed_world")
    world, found = vars(module), list[Any]()
    body = "".join(f"    {line}\n" for line in program.body.split("\n"))
    with _put_back():
        exec(_NAMES + program.world, world)
        exec(compile(f"def body(x):\n{body}", f"<{program.name}>", "exec"), world)
        step = captured(world["body"])
        for change in ("", *program.changes.split("\n")):
            exec(change, world)
            for _ in range(2 if change else 4):
                x = Tensor([float(len(found) % 3) + 1, 2.0])
                try:
                    found.append(shown(step(x)))
                except Exception as error:
                    found.append((type(error).__name__, str(error)))
    return found, step


PROGRAMS = parsed('''
# a descriptor of one's own
class Scaled:
    def __init__(self, by): self.by = by
    def __get__(self, owner, kind): return owner.k * self.by if owner else self
scaled = Scaled(2.0)
class C:
    k = 1.0
    twice = scaled
c = C()
-
return x * c.twice
-
scaled.by = 3.0
C.k = 5.0
c.k = 7.0
c.__dict__["twice"] = 1.0
C.twice = 4.0

# a data descriptor with state by object
class Field:
    def __init__(self): self.of = {}
    def __get__(self, owner, kind): return self.of.get(id(owner), 1.0)
    def __set__(self, owner, value): self.of[id(owner)] = value
class C:
    value = Field()
c = C()
-
return x * c.value
-
c.value = 3.0
c.__dict__["value"] = 9.0
c.value = -0.0

# __getattr__ over a dict
class C:
    def __init__(self): self.data = {"k": 2.0}
    def __getattr__(self, name):
        if name.startswith("_") or name == "data": raise AttributeError(name)
        return self.data[name]
c = C()
-
return x * c.k
-
c.data["k"] = 3.0
c.data = {"k": 4.0}
C.k = 6.0
c.k = 5.0

# __getattribute__ of one's own
class C:
    k = 1.0
    def __getattribute__(self, name):
        return 2.0 * G if name == "k" else object.__getattribute__(self, name)
G = 1.0
c = C()
-
return x * c.k
-
G = 4.0

# __class_getitem__
class C:
    table = {"a": 2.0}
    def __class_getitem__(cls, key): return cls.table[key]
-
return x * C["a"]
-
C.table["a"] = 3.0
C.table = {"a": 5.0}

# a weak reference
class O: pass
a, b = O(), O()
a.k, b.k = 1.0, 2.0
r = weakref.ref(a)
-
o = r()
return x * (o.k if o is not None else 9.0)
-
a.k = 3.0
r = weakref.ref(b)
b = None; gc.collect()

# a weak dictionary
class O: pass
a, b = O(), O()
d = weakref.WeakValueDictionary(a=a, b=b)
-
return x * len(d)
-
b = None; gc.collect()
a = None; gc.collect()

# arrays that share memory
base = np.arange(4, dtype=np.float32)
view = base[1:3]
-
return x + Tensor(view)
-
base[1] = 9.0
base[2] += 1
view.flags.writeable = False; base[1] = 4.0
view = base[::2]

# an array of another dtype over the same bytes
base = np.arange(2, dtype=np.float32)
-
return x + float(base[0]) + base.dtype.itemsize
-
base.dtype = np.int32
base = base.view(np.float32); base[0] = 7.0

# memory behind a memoryview
data = bytearray(b"\\x01\\x02")
view = memoryview(data)
-
return x * view[0]
-
data[0] = 5

# an array that a library filled
import array as arrays
a = arrays.array("f", [1.0, 2.0])
-
return x * a[0]
-
a[0] = 5.0

# lists in lists
rows = [[1.0, [2.0]], [3.0]]
-
return x * rows[0][1][0] + sum(map(sum, [r[:1] for r in rows]))
-
rows[0][1][0] = 5.0
rows[1][0] = 4.0
rows[1].append(1.0)
rows[0][1] = [7.0]
rows.reverse(); rows[0].append([1.0]); rows[1][0] = 2.0

# a name that is deleted
k = 2.0
-
try: return x * k
except NameError: return x
-
del k
k = 3.0

# an attribute that is deleted
class C: k = 5.0
c = C(); c.k = 2.0
-
return x * c.k
-
del c.k
del C.k; C.k = 6.0

# an item that is deleted
d = {"a": 1.0, "b": 2.0}
-
return x * len(d) + d.get("a", 7.0)
-
del d["a"]
d["a"] = 3.0
d.clear()

# a builtin that is replaced
import builtins
-
return x * max(1.0, 2.0)
-
builtins.max = lambda *a: 7.0
del builtins.max; builtins.max = sys.modules["operator"].add
builtins.max = MAX

# a builtin hidden by a global
-
return x * len([1, 2])
-
len = lambda a: 5.0
del len

# a function of a library that is replaced
-
return x * math.sqrt(4.0)
-
math.sqrt = lambda a: 9.0
math.sqrt = SQRT

# a function of NumPy that is replaced
-
return x * float(np.sqrt(4.0))
-
np.sqrt = lambda a: 9.0
np.sqrt = NPSQRT

# a function of functional that is replaced
import impl.nn.functional as F
relu = F.relu
-
return F.relu(x)
-
F.relu = lambda t: t * 3
F.relu = relu

# a method that a user adds to Tensor
k = 2.0
Tensor.scaled_by_k = lambda self: self * k
-
return x.scaled_by_k()
-
k = 3.0
Tensor.scaled_by_k = lambda self: self * (k + 1)
del Tensor.scaled_by_k; Tensor.scaled_by_k = lambda self: self

# a method of Tensor that is replaced
-
return x.relu() + 1
-
was = Tensor.relu; Tensor.relu = lambda self: self * 5
Tensor.relu = was

# an operator of Tensor that is replaced
-
return x * 2
-
was = Tensor.__mul__; Tensor.__mul__ = lambda self, other: self + other
Tensor.__mul__ = was

# a class derived from Tensor
class Mine(Tensor):
    __slots__ = ()
    def scaled(self): return self * k
k = 2.0
w = Mine([1.0, 2.0]).realize()
-
return x + w.scaled()
-
k = 3.0
Mine.scaled = lambda self: self * 7

# the code of a function
def f(y): return y * 2
def g(y): return y * 3
-
return f(x)
-
f.__code__ = g.__code__

# the defaults of a function
def f(y, a=2.0, *, b=1.0): return y * a + b
-
return f(x)
-
f.__defaults__ = (3.0,)
f.__kwdefaults__ = {"b": 5.0}
f.__kwdefaults__["b"] = 6.0
f.__defaults__ = ([4.0][0],)

# a default that is a list
def f(y, a=[2.0]): return y * sum(a)
-
return f(x)
-
f.__defaults__[0].append(3.0)
f.__defaults__[0][0] = 1.0

# a closure that is rebound
def made(v):
    def get(): return v
    def put(n):
        nonlocal v
        v = n
    return get, put
get, put = made(1.0)
-
return x * get()
-
put(2.0)
get.__closure__[0].cell_contents = 3.0
get, put = made(9.0)

# a closure that holds a list
def made():
    v = [1.0]
    return lambda: v[-1], v
get, v = made()
-
return x * get()
-
v.append(2.0)
v[-1] = 3.0

# an attribute of a function
def f(y): return y * f.k
f.k = 2.0
-
return f(x)
-
f.k = 3.0
del f.k; f.k = 4.0

# a metaclass
class M(type):
    k = 2.0
    @property
    def twice(cls): return cls.k * 2
    def __len__(cls): return int(cls.k)
    def __call__(cls, *a): return type.__call__(cls)
class C(metaclass=M): pass
-
return x * C.twice + len(C)
-
M.k = 3.0
C.k = 5.0
M.twice = property(lambda cls: 1.0)
M.__len__ = lambda cls: 9

# bases of a class that change
class A: k = 1.0
class B: k = 2.0
class C(A): pass
c = C()
-
return x * c.k
-
C.__bases__ = (B,)
B.k = 4.0
c.__class__ = A

# a generator kept outside
def count():
    n = 1.0
    while True:
        yield n
        n += 1
g = count()
-
return x * next(g)
-
pass

# an iterator kept outside
it = iter([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0])
-
for v in it: return x * v
return x
-
pass

# a context variable
import contextvars
v = contextvars.ContextVar("v", default=1.0)
-
return x * v.get()
-
v.set(2.0)

# a variable of the environment
os.environ["CAPTURED"] = "2"
-
return x * float(os.environ["CAPTURED"])
-
os.environ["CAPTURED"] = "3"
os.environ.pop("CAPTURED"); os.environ["CAPTURED"] = "4"

# os.getenv
os.environ["CAPTURED"] = "2"
-
return x * float(os.getenv("CAPTURED", "1"))
-
os.environ["CAPTURED"] = "3"
del os.environ["CAPTURED"]

# random numbers of Python
random.seed(1)
-
return x * random.random()
-
random.seed(2)

# random numbers of NumPy
np.random.seed(1)
-
return x * float(np.random.rand())
-
np.random.seed(2)

# a generator of NumPy
rng = np.random.default_rng(1)
-
return x * float(rng.normal())
-
pass

# random numbers of Tensor
-
return x * Tensor.rand(2)
-
Tensor.manual_seed(3)
Tensor.manual_seed(3)

# a seed inside
seed = 1
-
Tensor.manual_seed(seed)
return x * Tensor.rand(2)
-
seed = 2

# the time
now = [0.0]
time_of = time.monotonic
time.monotonic = lambda: now[0]
-
return x * time.monotonic()
-
now[0] = 1.0
time.monotonic = time_of; time.monotonic = lambda: 5.0

# a thread writes
o = types.SimpleNamespace(k=1.0)
def other(v):
    t = threading.Thread(target=lambda: setattr(o, "k", v)); t.start(); t.join()
-
return x * o.k
-
other(2.0)
other(3.0)

# a variable of a thread
local = threading.local()
local.k = 1.0
-
return x * local.k
-
local.k = 2.0

# a default argument that the function changes
def f(y, seen=[]):
    seen.append(1)
    return y * len(seen)
-
return f(x)
-
pass

# a cached function
table = {"a": 1.0}
@functools.lru_cache
def f(name): return table[name]
-
return x * f("a")
-
table["a"] = 2.0
f.cache_clear()

# a cached property
class C:
    k = 2.0
    @functools.cached_property
    def twice(self): return self.k * 2
c = C()
-
return x * c.twice
-
C.k = 3.0
del c.twice
c.twice = 1.0

# a dispatched function
@functools.singledispatch
def f(v): return 1.0
@f.register
def _(v: int): return 2.0
o = types.SimpleNamespace(v=1)
-
return x * f(o.v)
-
o.v = 1.5
f.register(float)(lambda v: 7.0)

# a shape of a tensor outside
w = Tensor([1.0, 2.0]).realize()
-
return x * w.shape[0] + w.sum()
-
w = Tensor([1.0, 2.0, 3.0]).realize()
w = Tensor([[1.0, 2.0]]).realize()

# a dtype of a tensor outside
w = Tensor([1.0, 2.0]).realize()
-
return x * (2 if w.dtype == dtypes.float32 else 3) + w.cast(dtypes.float32)
-
w = w.cast(dtypes.float64).realize()
w = w.cast(dtypes.int32).realize()

# a tensor that is replaced in place
w = Tensor([1.0, 2.0]).realize()
-
return x + w
-
w.replace(Tensor([3.0, 4.0]))
w.assign(w + 1)
w[0] = 9.0
w.replace(Tensor([5.0, 4.0]).realize())

# requires_grad of a tensor outside
w = Tensor([1.0, 2.0]).realize()
-
if w.requires_grad: return x * 2
return x + w
-
w.requires_grad = True
w.requires_grad = False

# a gradient outside
w = Tensor([1.0, 2.0]).realize()
-
return x if w.grad is None else x + w.grad
-
w.grad = Tensor([3.0, 4.0]).realize()
w.grad = Tensor([5.0, 4.0])
w.grad = None

# two names for one tensor
w = Tensor([1.0, 2.0]).realize(); v = w
-
w.assign(w + x)
return v * 2
-
v = Tensor([7.0, 7.0]).realize()
w = v
w = Tensor([0.0, 0.0]).realize()

# a list of the same tensor
w = Tensor([1.0, 2.0]).realize(); ws = [w, w]
-
return x + ws[0] * ws[1]
-
ws[1] = Tensor([5.0, 5.0]).realize()
ws[0].assign(ws[0] * 2)
ws.append(w)

# a view of a tensor outside
w = Tensor([[1.0, 2.0], [3.0, 4.0]]).realize(); row = w[0]
-
return x + row
-
w[0, 0] = 9.0
row.assign(row * 2)
w.assign(w + 1)
row = w[1]

# objects made anew at the same place
class O:
    def __init__(self, k): self.k = k
o = O(1.0)
-
return x * o.k
-
o = None; o = O(2.0)
k = id(o); o = None; gc.collect(); o = O(3.0)
o.__dict__ = {"k": 4.0}
vars(o)["k"] = 5.0

# a member of an enumeration
class E(enum.Enum):
    A = 1.0
    B = 2.0
e = E.A
-
return x * e.value
-
e = E.B
E.B._value_ = 5.0

# an enumeration made anew
class E(enum.IntEnum):
    A = 1
    B = 2
e = E.A
-
return x * e + len(E)
-
e = E.B
class E(enum.IntEnum): A = 4
e = E.A

# what an exception carries
class Stop(Exception):
    def __init__(self, o): self.o = o
class O: k = 1.0
o = O()
-
try: raise Stop(o)
except Stop as stop: return x * stop.o.k * stop.args[0].k
-
o.k = 2.0

# what an exception of Python carries
class O: k = 1.0
o = O()
def f(): raise ValueError(o)
-
try: f()
except ValueError as e: return x * e.args[0].k
-
o.k = 2.0

# what a generator returns
class O: k = 1.0
o = O()
def g():
    yield 1.0
    return o
def f():
    found = yield from g()
    yield found.k
-
return x * sum(f())
-
o.k = 2.0

# what StopIteration carries
class O: k = 1.0
o = O()
def g():
    return o
    yield
-
try: next(g())
except StopIteration as e: return x * e.value.k
-
o.k = 2.0

# what a generator is sent
class O: k = 1.0
o = O()
def g():
    found = yield 1.0
    yield found.k
-
found = g()
next(found)
return x * found.send(o)
-
o.k = 2.0

# what an error of a lookup carries
class O: k = 1.0
o, d = O(), {}
-
try: return x * d[o]
except KeyError as e: return x * e.args[0].k
-
o.k = 2.0
d[o] = 5.0

# the object of an error
class O: k = 1.0
o = O()
-
try: return x * o.none
except AttributeError as e: return x * e.obj.k
-
o.k = 2.0
o.none = 5.0

# what a context manager is told
class O: k = 1.0
o = O()
class C:
    def __enter__(self): return 1.0
    def __exit__(self, kind, error, trace):
        self.k = error.args[0].k
        return True
-
c = C()
with c: raise ValueError(o)
return x * c.k
-
o.k = 2.0

# a context manager that swallows
class C:
    k = 1.0
    def __enter__(self): return self
    def __exit__(self, *a): return self.k > 1
c = C()
-
y = x
try:
    with c: raise ValueError
    y = y * 5
except ValueError: y = y * 3
return y
-
c.k = 2.0
C.__exit__ = lambda self, *a: False

# an import inside
import impl.nn.functional as F
mod = types.ModuleType("captured_module"); mod.k = 1.0
sys.modules["captured_module"] = mod
-
import captured_module
from captured_module import k
return x * captured_module.k + k
-
mod.k = 2.0
other = types.ModuleType("captured_module"); other.k = 7.0; sys.modules["captured_module"] = other

# a setting of the library
-
from impl import settings
return x * float(settings.get("BEAM") + 1)
-
Context(BEAM=0).__enter__()

# training of Tensor
-
return x * (2 if Tensor.training else 1)
-
Tensor.training = True
Tensor.training = False

# a flag of a module
m = nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.999)); m.eval()
-
return m(x)
-
m[1].p = 0.0
m.train()
m[1].training = False
m[1] = nn.Identity()

# a property that is replaced by a value
class C:
    @property
    def k(self): return 2.0
c = C()
-
return x * c.k
-
C.k = 3.0
c.k = 4.0
C.k = property(lambda self: 5.0)

# slots
class C: __slots__ = ("k", "d")
c = C(); c.k = 1.0; c.d = [1.0]
-
return x * c.k + sum(c.d)
-
c.k = 2.0
c.d.append(3.0)
del c.k; c.k = 5.0

# a named tuple
P = collections.namedtuple("P", "a b")
p = P(1.0, [2.0])
-
return x * p.a + p.b[0]
-
p.b[0] = 3.0
p = p._replace(a=4.0)
P.a = property(lambda self: 9.0)

# a named tuple made inside
P = collections.namedtuple("P", "a b", defaults=(2.0,))
class O: k = 1.0
o = O()
-
p = P(o)
return x * p.a.k + p.b * p._replace(b=o.k).b
-
o.k = 3.0
P.__new__.__defaults__ = (5.0,)

# the class of an object made inside
class C: k = 1.0
-
return x * C().__class__.k
-
C.k = 2.0

# a data class that is not frozen
@dataclasses.dataclass
class D:
    a: float = 1.0
    b: list = dataclasses.field(default_factory=lambda: [2.0])
d = D()
-
e = dataclasses.replace(d, a=d.a + 1)
return x * e.a + d.b[0]
-
d.a = 3.0
d.b.append(1.0); d.b[0] = 4.0
D.a = 8.0; del d.a

# a dict with a default
d = collections.defaultdict(lambda: k, a=2.0)
k = 1.0
-
return x * d["a"]
-
d["a"] = 3.0
k = 4.0; del d["a"]

# a counter
c = collections.Counter(a=2)
-
return x * c["a"] + c["b"]
-
c["a"] += 1
c.update("b")

# a chain of maps
a, b = {"k": 1.0}, {"k": 2.0, "m": 3.0}
m = collections.ChainMap(a, b)
-
return x * m["k"] + m["m"]
-
a["k"] = 5.0
b["m"] = 4.0
del a["k"]

# a deque
d = collections.deque([1.0, 2.0])
-
return x * d[0] + len(d)
-
d.appendleft(3.0)
d.rotate(1)

# a dict in order
d = {"a": 1.0, "b": 2.0}
-
y = x
for n, (k, v) in enumerate(d.items()): y = y * v + n
return y
-
d["a"] = d.pop("a")
d["b"] = 5.0

# a set
s = {1.0, 2.0}
-
return x * sum(s) + (1 if 3.0 in s else 0)
-
s.add(3.0)
s.discard(1.0)

# numbers that are equal but differ
v = 1
-
return x / v + (1 if isinstance(v, bool) else 0) + Tensor([v]).dtype.itemsize
-
v = True
v = 1.0
v = np.float64(1.0)
v = np.float32(1.0)

# zeros with a sign
v = 0.0
-
return x * 0 + math.copysign(1.0, v)
-
v = -0.0
v = (0.0,)[0]

# a number that is none
v = float("nan")
-
return x + (1 if v == v else 2)
-
v = 1.0
v = float("nan")

# numbers of a class of one's own
class F(float):
    def __rmul__(self, other): return other + G
G = 1.0
v = F(2.0)
-
return x * v
-
G = 5.0
F.__rmul__ = lambda self, other: other

# comparison of a class of one's own
class V:
    def __init__(self, n): self.n = n
    def __eq__(self, other): return self.n == G
    def __hash__(self): return 1
    def __bool__(self): return self.n > 1
G = 1.0
a = V(1.0)
-
return x * (2 if a == 3 else 4) + (1 if a else 0)
-
G = 2.0
a.n = 2.0
V.__eq__ = lambda self, other: False
del V.__bool__

# keys that compare by their own rule
class K:
    def __init__(self, n): self.n = n
    def __eq__(self, other): return self.n == other.n
    def __hash__(self): return hash(self.n)
a = K(1)
d = {a: 2.0, K(2): 3.0}
b = K(1)
-
return x * d.get(b, 7.0)
-
b.n = 2
b.n = 3
a.n = 3

# sorting by a key outside
class R:
    def __init__(self, k): self.k = k
    def __lt__(self, other): return self.k < other.k
rs = [R(2.0), R(1.0)]
-
return x * sorted(rs)[0].k + min(rs, key=lambda r: -r.k).k
-
rs[0].k = 0.5
R.__lt__ = lambda self, other: self.k > other.k

# a text made of an object
class T:
    k = 1.0
    def __str__(self): return str(self.k)
    def __format__(self, spec): return str(self.k * 2)
t = T()
-
return x * float(str(t)) + float(f"{t}") + float("{0.k}".format(t))
-
t.k = 2.0
T.__str__ = lambda self: "7.0"
T.__format__ = lambda self, spec: "8.0"

# a function found by its name
def scale(y): return y * 2
def shift(y): return y + 2
name = "scale"
-
return globals()[name](x)
-
name = "shift"
scale = shift; name = "scale"

# an attribute found by its name
o = types.SimpleNamespace(a=1.0, b=2.0, which="a")
-
return x * getattr(o, o.which) + getattr(o, "z", 0.0)
-
o.which = "b"
o.b = 3.0
o.z = 1.0

# operator.attrgetter
o = types.SimpleNamespace(a=types.SimpleNamespace(b=1.0))
get = operator.attrgetter("a.b")
-
return x * get(o)
-
o.a.b = 2.0
get = operator.attrgetter("a.c"); o.a.c = 5.0

# operator.methodcaller
class O:
    k = 1.0
    def f(self): return self.k
o, call = O(), operator.methodcaller("f")
-
return x * call(o)
-
o.k = 2.0
O.f = lambda self: 3.0

# a bound method kept outside
class O:
    def __init__(self, k): self.k = k
    def f(self, y): return y * self.k
o = O(1.0); f = o.f
-
return f(x)
-
o.k = 2.0
O.f = lambda self, y: y
f = O(4.0).f

# objects that a method of Tensor calls
class L:
    k = 2.0
    def __call__(self, y): return y * self.k
ls = [L(), Tensor.relu]
-
return x.sequential(ls)
-
ls[0].k = 3.0
L.k = 5.0
ls[0] = L()
L.__call__ = lambda self, y: y + 1

# what a function given to a method of Tensor returns
class O: k = 2.0
o = O()
-
return x * x.sequential([lambda y: o]).k
-
o.k = 3.0

# a callable with state
class C:
    def __init__(self): self.n = 0
    def __call__(self, y):
        self.n += 1
        return y * self.n
c = C()
-
return c(x)
-
pass

# code run from a text
k = 1.0
-
return x * eval("k")
-
k = 2.0

# globals()
k = 1.0
-
return x * globals()["k"]
-
k = 2.0

# what is in a file
import tempfile
path = tempfile.mktemp()
open(path, "w").write("2.0")
-
return x * float(open(path).read())
-
open(path, "w").write("3.0")

# the order of arguments
def f(**kw): return list(kw)[0] == "a"
-
return x * (2 if f(**d) else 3)
-
d = {"b": 1, "a": 1}
d = {"a": 1, "b": 1}

# a partial that is changed
def f(y, a=1.0): return y * a
p = functools.partial(f, a=2.0)
-
return p(x)
-
p.keywords["a"] = 3.0
p.__setstate__((f, (), {"a": 4.0}, None))

# a static method that is replaced
class C:
    @staticmethod
    def f(y): return y * 2
    @classmethod
    def g(cls, y): return y * cls.k
    k = 1.0
-
return C.f(x) + C.g(x)
-
C.k = 2.0
C.f = staticmethod(lambda y: y * 9)
C.g = classmethod(lambda cls, y: y)

# super
class A:
    k = 1.0
    def f(self, y): return y * self.k
class B(A):
    def f(self, y): return super().f(y) + 1
b = B()
-
return b.f(x)
-
A.f = lambda self, y: y * 5
B.k = 3.0
A.k = 4.0

# isinstance by registration
class P(abc.ABC): pass
class C: pass
c = C()
-
return x * (2 if isinstance(c, P) else 1)
-
P.register(C)

# abstract attributes by protocol
@typing.runtime_checkable
class P(typing.Protocol):
    def f(self): ...
class C: pass
c = C()
-
return x * (2 if isinstance(c, P) else 1)
-
C.f = lambda self: 1

# an object that changes itself
class C:
    def __init__(self): self.n = 1.0
    @property
    def k(self):
        self.n += 1.0
        return self.n
c = C()
-
return x * c.k
-
c.n = 0.0

# a list that the body changes and restores
l = [1.0, 2.0]
-
l.append(3.0)
y = x * sum(l)
l.pop()
return y
-
l[0] = 5.0

# an attribute that the body sets again
o = types.SimpleNamespace(mode="a", table={"a": 1.0, "b": 2.0})
-
o.mode = "b"
return x * o.table[o.mode]
-
o.table["b"] = 5.0
o.mode = "a"

# an attribute that the body sets to what is elsewhere
o = types.SimpleNamespace(v=1.0, w=1.0)
-
o.v = o.w
return x * o.v
-
o.w = 2.0
o.v = 7.0

# a global that the body sets again
k = 1.0
m = 2.0
-
global k
k = m
return x * k
-
m = 3.0
k = 9.0

# a dict that the body fills once
cache = {}
w = Tensor([1.0, 2.0]).realize()
-
if "w" not in cache: cache["w"] = w.sum().item()
return x * cache["w"]
-
cache["w"] = 5.0
cache.clear(); w.assign(w * 2)

# a module that makes its weights late
class Lazy:
    w = None
    def __call__(self, y):
        if self.w is None: self.w = Tensor([2.0, 3.0]).realize()
        return y * self.w
m = Lazy()
-
return m(x)
-
m.w.assign(m.w * 2)
m.w = Tensor([7.0, 7.0]).realize()
m.w = None

# the recursion of a tree
class N:
    def __init__(self, k, *c): self.k, self.c = k, list(c)
    def total(self): return self.k + sum(n.total() for n in self.c)
t = N(1.0, N(2.0), N(3.0, N(4.0)))
-
return x * t.total()
-
t.c[1].c[0].k = 9.0
t.c[0].c.append(N(5.0))
t.c.pop()

# a list that holds itself
l = [1.0]; l.append(l)
-
return x * l[1][1][0]
-
l[0] = 2.0

# a range and a slice outside
r, s, l = range(3), slice(0, 2), [1.0, 2.0, 3.0, 4.0]
-
return x * sum(l[s]) + sum(r)
-
r = range(5)
s = slice(1, 4)
s = slice(0, 4, 2)

# a complex default
def f(y, *, opts=types.SimpleNamespace(k=1.0)): return y * opts.k
-
return f(x)
-
f.__kwdefaults__["opts"].k = 2.0

# global numbers by another module
mod = types.ModuleType("captured_other"); mod.__dict__["k"] = 1.0
exec("def f(y): return y * k", mod.__dict__)
-
return mod.f(x)
-
mod.k = 2.0
exec("def f(y): return y + k", mod.__dict__)

# __getattr__ of a module
mod = types.ModuleType("captured_third")
mod.hidden = 1.0
mod.__getattr__ = lambda name: mod.hidden
-
return x * mod.k
-
mod.hidden = 2.0
mod.k = 3.0

# a class made by a function
def make(v):
    class C:
        k = v
        def f(self, y): return y * v + self.k
    return C
c = make(1.0)()
-
return c.f(x)
-
c = make(2.0)()
type(c).k = 5.0

# an object made inside
class Config:
    base = 2.0
    def __init__(self, k): self.k = k * self.base
-
c = Config(3.0)
c.extra = c.k + 1
return x * c.k + c.extra
-
Config.base = 3.0
Config.__init__ = lambda self, k: setattr(self, "k", k)

# a frozen set of names
skip = frozenset({"a"})
params = {"a": 1.0, "b": 2.0}
-
return x * sum(v for n, v in params.items() if n not in skip)
-
skip = frozenset()
params["c"] = 5.0

# recursion by a global name
def f(y, n): return y if n == 0 else f(y * 2, n - 1)
depth = 2
-
return f(x, depth)
-
depth = 3
g = f; f = lambda y, n: g(y, 0)

# an optimiser of one's own
w = Tensor([1.0, 2.0]).realize(); w.requires_grad = True
group = {"lr": 0.1, "params": [w]}
-
for p in group["params"]:
    p.grad = None
(w * x).sum().backward()
for p in group["params"]:
    p.assign(p.detach() - group["lr"] * p.grad)
return w.detach() + 0
-
group["lr"] = 0.5
group["params"].clear()

# tensors made by numpy outside
a = np.array([1.0, 2.0], np.float32)
t = Tensor(a)
-
return x + t
-
a[0] = 9.0
t = Tensor(a)

# hooks of a layer added later
m = nn.Linear(2, 2)
for p in m.parameters(): p.assign(p * 0 + 0.5).realize()
class Wrapped(nn.Module):
    def __init__(self): self.inner = m; self.post = []
    def forward(self, x):
        y = self.inner(x.reshape(1, 2)).reshape(2)
        for hook in self.post: y = hook(self, y)
        return y
M = Wrapped()
-
return M(x)
-
M.post.append(lambda s, y: y * 3)
M.forward = lambda x: x * 7
del M.forward
Wrapped.forward = lambda self, x: x * 9
Wrapped.__call__ = lambda self, x: x * 11

# a call of a class that is replaced
class C:
    def __call__(self, x): return x * 2
c = C()
-
return c(x)
-
c.__call__ = lambda x: x * 5
C.__call__ = lambda self, x: x * 3
c.__class__ = type("D", (C,), {"__call__": lambda self, x: x - 1})

# weights frozen and thawed
w = Tensor([1.0, 2.0], requires_grad=True).realize()
-
w.grad = None
y = (x * w).sum()
(y * 2).backward() if w.requires_grad else None
return [y, w.grad if w.grad is not None else 0]
-
w.requires_grad = False
w.requires_grad = True

# groups of an optimiser that change
w = Tensor([1.0, 2.0], requires_grad=True).realize()
v = Tensor([3.0, 2.0], requires_grad=True).realize()
opt = nn.optim.SGD([w], lr=0.5, momentum=0.9)
-
opt.zero_grad()
((x * w).sum() + (v * x).sum()).backward()
v.grad = None if len(opt.param_groups) == 1 else v.grad
opt.step()
return [w * 1, v * 1]
-
opt.param_groups[0]["lr"] = 0.1
opt.param_groups[0]["weight_decay"] = 0.5
opt.param_groups[0]["momentum"] = 0.0
opt.param_groups[0]["nesterov"] = False
opt.param_groups[0]["maximize"] = True
opt.add_param_group({"params": [v], "lr": 0.25})
opt.param_groups.reverse()
opt.lr = 0.7
opt.param_groups.pop()
opt.state_dict()["param_groups"][0]["lr"] = 9.0
opt.load_state_dict(opt.state_dict())

# state of an optimiser that is loaded
w = Tensor([1.0, 2.0], requires_grad=True).realize()
opt = nn.optim.Adam([w], lr=0.5)
first = {}
-
opt.zero_grad(); (x * w).sum().backward(); opt.step()
return w * 1
-
first.update(opt.state_dict())
opt.load_state_dict(first)
opt.param_groups[0].states[0]["exp_avg"] = Tensor([5.0, 5.0]).realize()
opt.param_groups[0].states[0]["exp_avg"].assign(Tensor([1.0, 5.0])).realize()
w.replace(Tensor([4.0, 4.0]))

# in place writes of NumPy through a view
a = np.array([[1.0, 2.0], [3.0, 4.0]], np.float32)
row = a[0]
-
return x * Tensor(row) + float(a[1].sum())
-
a[0, 1] = 7.0
a[1] *= 2
a.flags.writeable = False
row = a[1]
a = np.asfortranarray(a)

# an array given to a method
a = np.array([1.0, 2.0], np.float32)
-
return x.maximum(a) + x * a.max() + a.tolist()[0] + a.dtype.itemsize + a.strides[0]
-
a[0] = 9.0
a = a.astype(np.float64)
a = a[::-1]

# default dtype
from impl.dtypes import dtypes as dt
-
return [Tensor([1.5, 2.0]) * x, Tensor(2), Tensor(True) + x]
-
dt.default_float = dt.float64
dt.default_float = dt.float32
dt.default_int = dt.int64
dt.default_int = dt.int32

# the environment in other words
os.environ["CAPTURED"] = "2"
-
x = x * float(os.environ.get("CAPTURED", "1")) + (1 if "CAPTURED_2" in os.environ else 0)
return x + len(os.getenv("CAPTURED", "abc"))
-
os.environ["CAPTURED"] = "33"
os.environ["CAPTURED_2"] = "1"
del os.environ["CAPTURED_2"]
del os.environ["CAPTURED"]

# deleted attributes with a class attribute below
class C: k = 5.0
c = C(); c.k = 2.0
-
return x * c.k
-
del c.k
c.k = 7.0
del C.k
del c.k; C.k = 1.0

# bases with a slot of the same name
class A: k = 1.0
class B(A): pass
b = B()
-
return x * b.k
-
B.k = 2.0
del B.k
A.k = property(lambda s: 9.0)
b.__dict__["k"] = 4.0
B.__bases__ = (type("Z", (), {"k": 6.0}),)

# __init_subclass__ and class variables through type
class A:
    registry = []
    def __init_subclass__(cls, **k): A.registry.append(cls)
class B(A): by = 2.0
-
for each in A.registry: x = x * each.by
return x
-
class C(A): by = 5.0
A.registry[0].by = 3.0
del A.registry[0]

# functions in a dict under a changing default
d = {"f": lambda x, k=2.0: x * k}
-
return d["f"](x) + d.get("g", lambda x: x)(x)
-
d["f"].__defaults__ = (4.0,)
d["g"] = lambda x: x * 100
d["f"].__code__ = (lambda x, k=2.0: x - k).__code__

# kw defaults of a nested function
def outer(k):
    def inner(x, *, by=k): return x * by
    return inner
f = outer(3.0)
-
return f(x)
-
f.__kwdefaults__["by"] = 5.0
f.__kwdefaults__ = {"by": 6.0}
f.__kwdefaults__ = None; f = outer(1.0)

# wraps
def scaled(fn):
    @functools.wraps(fn)
    def run(*a, **k): return fn(*a, **k) * run.by
    run.by = 2.0
    return run
@scaled
def f(x, k=1.0): return x + k
-
return f(x)
-
f.by = 4.0
f.__wrapped__.__defaults__ = (10.0,)
f.__dict__.update(by=1.0)

# patterns of a match
class C:
    def go(self, v, x):
        match v:
            case int(): return x * 1
            case float() if v > 2: return x * 2
            case str(name): return x * len(name)
            case [a, *rest]: return x * a + len(rest)
            case {"k": k}: return x * k
            case None: return x
        return -x
c = C(); v = 1
-
return c.go(v, x)
-
v = 3.0
v = "abcd"
v = [2, 3, 4]
v = {"k": 5.0}
v["k"] = 6.0
v = None
v = True

# global of another module that is changed
mod = types.ModuleType("helper_mod"); sys.modules["helper_mod"] = mod
exec("K = 2.0; f = lambda x: x * K", mod.__dict__)
-
import helper_mod
from helper_mod import f
return f(x) + helper_mod.K
-
mod.K = 5.0
exec("def f(x): return x - K", mod.__dict__)
sys.modules["helper_mod"] = types.SimpleNamespace(f=lambda x: x * 3, K=1.0)

# a module deleted and imported again
mod = types.ModuleType("hm2"); sys.modules["hm2"] = mod; mod.K = 2.0
-
import hm2
return x * hm2.K
-
sys.modules["hm2"] = types.ModuleType("hm2"); sys.modules["hm2"].K = 9.0

# a tensor outside under two names which part
w = Tensor([1.0, 2.0]).realize(); v = w
-
w.assign(w + x)
return [w + v, v is w]
-
v = Tensor([5.0, 5.0]).realize()
w = v
v = w + 0

# a dict subclass with missing
class D(dict):
    def __missing__(self, key): return extra[key]
d = D(a=1.0); extra = {"b": 2.0}
-
return x * d["a"] + d["b"]
-
extra["b"] = 4.0
d["b"] = 7.0
D.__missing__ = lambda s, k: 100.0
del d["b"]

# an object with eq and bool
class C:
    def __init__(self, v): self.v = v
    def __eq__(self, o): return self.v == o.v
    def __bool__(self): return self.v > 1
    def __hash__(self): return 1
a, b = C(1), C(2)
-
y = x * 2 if a == b else x * 3
y = y + 1 if a else y - 1
return y * 5 if a in {b} else y
-
a.v = 2
b.v = 3
C.__bool__ = lambda s: False
C.__eq__ = lambda s, o: True

# numbers that come from a generator function with state
class G:
    def __init__(self): self.parts = [1.0, 2.0]
    def __iter__(self):
        for p in self.parts: yield p * self.by
    by = 1.0
g = G()
-
for v in g: x = x * v
a, b = g
return x + a - b
-
g.by = 2.0
g.parts[0] = 5.0
G.__iter__ = lambda self: iter([3.0, 4.0])

# a static method put on an instance
class C:
    @staticmethod
    def f(x): return x * 2
    @classmethod
    def g(cls, x): return x * cls.k
    k = 3.0
c = C()
-
return c.f(x) + C.g(x) + c.g(x)
-
c.f = lambda x: x * 7
C.f = staticmethod(lambda x: x * 9)
C.k = 1.0
C.g = classmethod(lambda cls, x: x)
c.g = lambda x: -x

# layers in a dict of lists, moved
net = {"enc": [nn.Linear(2, 2, bias=False)], "dec": [nn.Linear(2, 2, bias=False)]}
for n, l in enumerate([*net["enc"], *net["dec"]]): l.weight.assign(l.weight * 0 + n + 1).realize()
-
for part in net:
    for l in net[part]: x = l(x.reshape(1, 2)).reshape(2)
return x
-
net["enc"].append(net["dec"][0])
net["dec"], net["enc"] = net["enc"], net["dec"]
net["enc"][0].weight = Tensor([[1.0, 0.0], [0.0, 1.0]]).realize()
net["enc"][0].bias = Tensor([1.0, 1.0]).realize()
net["x"] = [lambda x: x * 3]

# what a nested captured function reads
inner_k = [2.0]
inner = TinyJit(lambda x: x * inner_k[0])
-
return inner(x) + 1
-
inner_k[0] = 5.0
inner.function = lambda x: x - 1
inner = TinyJit(lambda x: x * 8)

# a data class that is frozen and written
@dataclasses.dataclass(frozen=True)
class P:
    k: float = 1.0
    def scale(self, x): return x * self.k
p = P()
-
return p.scale(x) + dataclasses.replace(p, k=2.0).k
-
object.__setattr__(p, "k", 7.0)
p = P(3.0)
P.scale = lambda self, x: x

# a property with a setter outside
class C:
    def __init__(self): self._k = 1.0
    @property
    def k(self): return self._k
    @k.setter
    def k(self, v): self._k = v * 2
c = C()
-
c.k = 3.0
return x * c.k
-
c._k = 10.0
C.k = 1.0
C.k = property(lambda s: 4.0, lambda s, v: None)

# format specs
spec = ".1f"; v = 2.345
-
x = x * float(f"{v:{spec}}") + float("%.2f" % v)
return x + float("{:.1f}".format(v)) + float(format(v, spec))
-
spec = ".2f"
v = 7.891
v = np.float32(1.234)

# no_grad around and inside
from impl.torch import no_grad, enable_grad
w = Tensor([1.0, 2.0], requires_grad=True).realize()
use = [True]
-
with no_grad():
    y = x * w
z = y + (w * 2 if use[0] else w.detach())
return [z, z.requires_grad]
-
use[0] = False
w.requires_grad = False

# a gradient kept between calls
w = Tensor([1.0, 2.0], requires_grad=True).realize()
-
(x * w).sum().backward()
return w.grad * 1
-
w.grad = None
w.grad = Tensor([5.0, 5.0]).realize()
w.grad.assign(w.grad * 2).realize()
w.grad = w.grad * 3

# the default of a dataclass field
@dataclasses.dataclass
class S:
    k: float = 2.0
    l: list = dataclasses.field(default_factory=lambda: [1.0, base[0]])
base = [3.0]
-
s = S()
s.l.append(s.k)
return x * sum(s.l)
-
base[0] = 7.0
S.__init__.__defaults__ = (9.0, *S.__init__.__defaults__[1:])
S.k = 100.0

# the attributes of an object are another dict
class C: k = 3.0
class E: pass
o, e = C(), E()
e.k = 2.0
-
return x * (o.k + vars(e)["k"] + e.__dict__["k"])
-
e.k = 5.0
e.__dict__ = {"k": 7.0}
o.__dict__ = {"k": 9.0}

# how a descriptor is got
class D:
    def __get__(self, owner, kind): return owner.q * 2
class C: k = D()
o = C()
o.q = 2.0
-
return x * o.k
-
o.q = 5.0
D.__get__ = lambda self, owner, kind: owner.q * 7
D.__set__ = lambda self, owner, value: None
o.__dict__["k"] = 100.0

# how an object is made
class A: k = 2.0
-
return x * A().k
-
A.k = 3.0
A.__new__ = staticmethod(lambda kind: types.SimpleNamespace(k=7.0))

# what a class of exceptions has
class E(Exception): k = 2.0
def f():
    try:
        raise E
    except E as error:
        return error.k
-
return x * f()
-
E.k = 7.0
E.k = 2.0

# which tensor an argument is
w = Tensor([3.0, 4.0]).realize()
held = [w]
def f(y): return y * 2 if y is w else y * 5
-
return f(x) + f(held[0])
-
held[0] = Tensor([1.0, 1.0]).realize()
held[0] = w
''')
