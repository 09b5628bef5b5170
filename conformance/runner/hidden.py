"""Bodies that read what their code does not name: Python itself asks for it.

    python -m conformance.runner.captured --known

The programs have the form of those of `changed`. They are sorted by the rule of `following` that
they are about. A name that ends in `(traced)` says that the body runs at each call.
"""
from __future__ import annotations

from conformance.runner.changed import parsed

_EXCEPTION = """
class E(Exception):
    def __str__(self): return "a" * int(now["k"])
    def __bool__(self): return now["k"] == 2.0
    def __eq__(self, other): return now["k"] == 2.0
    def __len__(self): return int(now["k"])
    def __getitem__(self, place): return now["k"]
    @property
    def k(self): return now["k"]
    def read(self): return now["k"]
"""

_TEXTS = {"following.checks.class": '''
# a class is registered, and a pattern asks for it
class Shape(abc.ABC): pass
class Mine: pass
mine = Mine()
-
match mine:
    case Shape(): return x * 2
return x * 3
-
Shape.register(Mine)

# what a metaclass says of a pattern
flag = [False]
class M(type):
    def __instancecheck__(cls, thing): return flag[0]
class Odd(metaclass=M): pass
-
match 5:
    case Odd(): return x * 2
return x * 3
-
flag[0] = True
M.__instancecheck__ = lambda cls, thing: False

# a class is registered, which is one of a union
class Shape(abc.ABC): pass
class Mine: pass
mine, known = Mine(), Shape | int
optional = typing.Optional[Shape]
-
return x * ((2 if isinstance(mine, known) else 3) + isinstance(mine, (str, optional)))
-
Shape.register(Mine)

# a class is registered, and the union is made in the body
class Shape(abc.ABC): pass
class Mine: pass
mine = Mine()
-
return x * (2 if isinstance(mine, int | str | Shape) else 3)
-
Shape.register(Mine)

# what a metaclass says in a union
flag = [False]
class M(type):
    def __instancecheck__(cls, thing): return flag[0]
class Odd(metaclass=M): pass
known = Odd | int
-
return x * (2 if isinstance("a", known) else 3)
-
flag[0] = True

# a metaclass of abstract classes that checks
flag = [False]
class M(abc.ABCMeta):
    def __subclasscheck__(cls, kind): return flag[0]
class Odd(metaclass=M): pass
-
return x * (2 if issubclass(int, Odd) else 3)
-
flag[0] = True

# a metaclass is given a check
class M(type): pass
class Odd(metaclass=M): pass
-
return x * (2 if isinstance(5, Odd) else 3)
-
M.__instancecheck__ = lambda cls, thing: True

# an object that says another class
now = {"k": 2.0}
class A: pass
class B: pass
class C:
    @property
    def __class__(self): return A if now["k"] == 2.0 else B
c = C()
-
match c:
    case A(): return x * 5
return x * (7 if isinstance(c, B) else 8)
-
now["k"] = 3.0

# a hook of an abstract class (traced)
now = {"k": 2.0}
class Shape(abc.ABC):
    @classmethod
    def __subclasshook__(cls, kind): return now["k"] == 2.0
class Mine: pass
mine = Mine()
-
return x * (2 if isinstance(mine, Shape) else 3)
-
now["k"] = 3.0; Shape._abc_caches_clear()

# isinstance is given to another function (traced)
class Shape(abc.ABC): pass
class Mine: pass
many = [Mine()]
-
return x * (1 + sum(map(isinstance, many, [Shape])))
-
Shape.register(Mine)

# a class is registered as one of sequences
class C:
    def __len__(self): return 1
    def __getitem__(self, place): return [5.0][place]
c = C()
-
match c:
    case [a]: return x * a
return x * 2
-
collections.abc.Sequence.register(C)
''', "following.patterns.read": '''
# the names that a pattern lists
class Mine:
    __match_args__ = ("a", "b")
    a, b = 2.0, 3.0
class Sub(Mine):
    __match_args__ = ("a", "b")
sub = Sub()
-
match sub:
    case Mine(k, _): return x * k
-
Mine.__match_args__ = ("b", "a")

# the names that the class in a pattern is given
class Mine: a = 2.0
mine = Mine()
-
try:
    match mine:
        case Mine(k): return x * k
except TypeError:
    return x * 50
-
Mine.__match_args__ = ("a",)
Mine.a = 7.0

# how a mapping is asked for a key
got = [2.0]
class Map(collections.abc.Mapping):
    def __getitem__(self, key): return 1.0
    def __iter__(self): return iter("k")
    def __len__(self): return 1
    def get(self, key, default=None): return got[0]
mapping = Map()
-
match mapping:
    case {"k": v}: return x * v
-
got[0] = 7.0

# the rest of a mapping
given = {"a": 1.0, "b": 5.0}
class Map(collections.abc.Mapping):
    def __getitem__(self, key): return given[key]
    def __iter__(self): return iter(given)
    def __len__(self): return 2
mapping = Map()
-
match mapping:
    case {"a": v, **rest}: return x * v * rest["b"]
-
given["b"] = 8.0
given["a"] = 3.0

# a property that a pattern reads
now = {"k": 2.0}
class C:
    @property
    def k(self): return now["k"]
c = C()
-
match c:
    case C(k=2.0): return x * 5
    case C(k=v): return x * v
-
now["k"] = 9.0

# the keys of what is no dict
names = ["a"]
class Map:
    def __getitem__(self, key): return {"a": 2.0, "b": 3.0}[key]
    def keys(self): return names
mapping = Map()
-
more = {}
more.update(mapping)
return x * (sum({**mapping}.values()) + sum(dict(mapping).values()) + sum(more.values()))
-
names[0] = "b"
names.append("a")
''', "following.exceptions.methods": f'''
# the property of an exception that is caught
now = {{"k": 2.0}}{_EXCEPTION.rstrip()}
-
try: raise E()
except E as error: return x * error.k
-
now["k"] = 5.0

# the method of an exception that is caught
now = {{"k": 2.0}}{_EXCEPTION.rstrip()}
def fail(): raise E
-
try: fail()
except E as error: return x * error.read() * len(str(error)) * error[0]
-
now["k"] = 5.0
E.read = lambda self: 11.0

# what operators call of an exception
now = {{"k": 2.0}}{_EXCEPTION.rstrip()}
error = E()
-
return x * (2 if error else 3) * (5 if error == 1 else 7) * len(error) * error[0]
-
now["k"] = 5.0

# what an exception that is thrown into a generator has
now = {{"k": 2.0}}{_EXCEPTION.rstrip()}
def given():
    try: yield 1
    except E as error: yield error.k
-
running = given()
next(running)
return x * running.throw(E)
-
now["k"] = 5.0

# what an exception from outside carries
class E(Exception): pass
error = E("ab")
-
return x * len(str(error))
-
error.args = ("abcd",)
E.__str__ = lambda self: "a"
''', "following.special.class": '''
# a block asks the class
class F:
    def __enter__(self): return 2.0
    def __exit__(self, *what): return False
f = F()
f.__enter__ = lambda: 99.0
-
with f as k: return x * k
-
F.__enter__ = lambda self: 7.0

# a block of a class asks its metaclass
now = {"k": 2.0}
class M(type):
    def __enter__(cls): return now["k"]
    def __exit__(cls, *what): return False
class F(metaclass=M):
    def __enter__(self): return 100.0
-
with F as k: return x * k
-
now["k"] = 5.0
M.__enter__ = lambda cls: 9.0

# a special method that is an object
now = {"k": True}
class Asked:
    def __call__(self): return now["k"]
class C: __bool__ = Asked()
c = C()
-
return x * (2 if c else 3)
-
now["k"] = False

# a special method of a static sort, of a class, and computed
now = {"k": 2}
class C:
    @staticmethod
    def __len__(): return now["k"]
    @classmethod
    def __int__(cls): return now["k"]
    @property
    def __bool__(self): return lambda: now["k"] == 2
c = C()
-
return x * len(c) * int(c) * (2 if c else 3)
-
now["k"] = 5

# an object that makes what a class makes
now = {"k": 2.0}
class Maker:
    def __get__(self, owner, kind): return lambda: setattr(owner, "k", now["k"])
class C: __init__ = Maker()
-
return x * C().k
-
now["k"] = 5.0

# what an object does when it goes (traced)
seen = []
class C:
    def __del__(self): seen.append(1)
def made(): C()
-
made()
return x * len(seen)
-
pass

# what an enumeration gives for a value that no member has
now = {"k": True}
class E(enum.Enum):
    A, B = 2.0, 3.0
    @classmethod
    def _missing_(cls, value): return cls.A if now["k"] else cls.B
-
return x * E(9.0).value
-
now["k"] = False

# what a generator sends on
got = [2.0]
class Asked:
    def __iter__(self): return self
    def __next__(self): return 1.0
    def send(self, value): return got[0]
def sent(): yield from Asked()
-
running = sent()
next(running)
return x * running.send(3.0)
-
got[0] = 5.0
''', "following.descriptors.get": '''
# a property of another sort (traced)
now = {"k": 2.0}
class scaled(property):
    def __get__(self, owner, kind=None): return super().__get__(owner, kind) * now["k"]
class C: k = scaled(lambda self: 3.0)
c = C()
-
return x * c.k
-
now["k"] = 5.0

# a static method of another sort
now = {"k": 2.0}
class static(staticmethod):
    def __get__(self, owner, kind=None): return lambda a: a * now["k"]
class named(classmethod):
    def __get__(self, owner, kind=None): return lambda a: a * now["k"]
class C:
    s = static(lambda a: a)
    n = named(lambda cls, a: a)
c = C()
-
return c.s(x) + c.n(x)
-
now["k"] = 5.0

# a property of another sort is given a way
class plain(property): pass
class C:
    @plain
    def k(self): return 2.0
c = C()
-
return x * c.k
-
plain.__get__ = lambda self, owner, kind=None: 11.0

# how an attribute of what is made here is set
now = {"k": 2.0, "j": 2.0}
class Field:
    def __get__(self, owner, kind): return owner.__dict__["q"]
    def __set__(self, owner, value): owner.__dict__["q"] = value * now["k"]
class C:
    f = Field()
    @property
    def p(self): return self.r
    @p.setter
    def p(self, value): self.r = value * now["j"]
-
a, b, c = C(), C(), C()
a.f = 3.0
setattr(b, "p", 3.0)
object.__setattr__(c, "p", 4.0)
return x * (a.f + b.p + c.p)
-
now["k"] = 5.0
now["j"] = 5.0

# how an attribute of what is made here is deleted
now = {"k": 2.0}
class C:
    kept = 1.0
    @property
    def p(self): return 1.0
    @p.deleter
    def p(self): self.kept = now["k"]
class D:
    kept = 1.0
    def __delattr__(self, name): object.__setattr__(self, "kept", now["k"])
-
c, d = C(), D()
del c.p
del d.q
return x * c.kept * d.kept
-
now["k"] = 5.0

# a descriptor is read of the class
now = {"k": 2.0}
class Field:
    def __get__(self, owner, kind): return now["k"] if owner is None else 100.0
class C: k = Field()
-
return x * C.k
-
now["k"] = 5.0
''', "following.hooks.later": '''
# a class is given what it says of missing names
class C: pass
c = C()
-
return x * getattr(c, "z", 1) * (2 if hasattr(c, "y") else 3) * getattr(C(), "w", 5)
-
C.__getattr__ = lambda self, name: 7.0
C.__getattr__ = lambda self, name: 8.0
del C.__getattr__

# a module is given what it says of missing names
m = types.ModuleType("m")
-
return x * getattr(m, "z", 1) * (2 if hasattr(m, "y") else 3)
-
m.__getattr__ = lambda name: 5.0

# a class is given a way to look for names
class B:
    def k(self): return 2.0
b = B()
-
return x * b.k()
-
B.__getattribute__ = lambda s, n: (lambda: 7.0) if n == "k" else object.__getattribute__(s, n)

# a class is given a way to set attributes
class C: pass
c = C()
c.k = 2.0
-
c.k = 3.0
y = x * c.k
c.k = 2.0
return y
-
C.__setattr__ = lambda self, name, value: object.__setattr__(self, name, 5.0)

# the class of what is made here is given a way to set attributes
class C: pass
-
c, d = C(), C()
c.k = 3.0
d.q = 4.0
return x * c.k * len(vars(d))
-
C.q = property(lambda self: 1.0, lambda self, value: None)
C.__setattr__ = lambda self, name, value: object.__setattr__(self, name, 9.0)

# a metaclass looks for names (traced)
now = {}
class M(type):
    def __getattribute__(cls, name):
        return now[name] if name in now else type.__getattribute__(cls, name)
class C(metaclass=M): k = 2.0
-
return x * C.k
-
now["k"] = 5.0

# a metaclass is given names
class M(type): pass
class C(metaclass=M): k = 2.0
-
return x * C.k * getattr(C, "z", 1.0)
-
M.__getattr__ = lambda cls, name: 3.0
M.k = property(lambda cls: 5.0)
M.__getattribute__ = lambda c, n: 7.0 if n == "k" else type.__getattribute__(c, n)

# what is said instead of a property that raises
now = {"k": 7.0}
class C:
    @property
    def k(self): raise AttributeError("k")
    def __getattr__(self, name): return now["k"]
class D:
    @property
    def k(self): raise AttributeError("k")
c, d = C(), D()
-
return x * c.k * getattr(d, "k", 3.0)
-
now["k"] = 9.0
D.__getattr__ = lambda self, name: 11.0

# what is said of missing names by an object
now = {"k": 7.0}
class Asked:
    def __call__(self, name): return now["k"]
class C: __getattr__ = Asked()
class D:
    @staticmethod
    def __getattr__(name): return now["k"]
c, d = C(), D()
-
return x * c.k * d.k
-
now["k"] = 9.0
''', "following.homes.held": '''
# a class that is made by a function
C = dataclasses.make_dataclass("C", [("a", int)], namespace={"k": 2.0, "m": lambda self: self.k})
c = C(1)
-
return x * c.k * c.m() * (2 if c else 3)
-
C.k = 7.0
C.m = lambda self: 9.0
C.__bool__ = lambda self: False

# a function that says another module
@functools.wraps(math.sqrt)
def root(x, k=2.0): return x * k
@functools.wraps(Tensor.relu)
def act(x, k=2.0): return x * k
@functools.wraps(np.sum)
def total(x, k=2.0): return x * k
-
return root(x) + act(x) + total(x)
-
root.__defaults__ = (7.0,)
act.__defaults__ = (8.0,)
total.__code__ = (lambda x, k=2.0: x * k * 10).__code__

# an object that says another module
now = {"k": 2.0}
class Wrapped:
    def __init__(self, function): functools.update_wrapper(self, function)
    def __call__(self, x): return x * now["k"]
wrapped = Wrapped(np.sin)
-
return wrapped(x)
-
now["k"] = 5.0

# classes that say another module
now = {"k": True}
class A:
    __module__ = "builtins"
    k = 2.0
class B:
    __module__ = "impl.tensor"
    k = 2.0
    def m(self): return self.k
class C:
    __module__ = "enum"
    def __bool__(self): return now["k"]
a, b, c = A(), B(), C()
-
return x * a.k * b.m() * B.k * (2 if c else 3)
-
A.k = 5.0
B.k = 7.0
B.m = lambda self: 9.0
now["k"] = False

# a module that is called like another one
m = types.ModuleType("math")
m.k = 2.0
-
return x * m.k
-
m.k = 5.0
m.__getattr__ = lambda name: 7.0; del m.k
''', "following.given.returned": '''
# the way back of a gradient of one's own
from impl import func
now = {"k": 2.0}
@func.custom_gradient
def square(x): return x * x, lambda g: g * now["k"]
-
return func.grad(lambda v: square(v).sum())(x)
-
now["k"] = 7.0

# the way back that an object gives, and is
from impl import func
class Way:
    k = 2.0
    def __call__(self, g): return g * self.k
class Square:
    def __call__(self, x): return x * x, way
way = Way()
square = func.custom_gradient(Square())
-
return func.grad(lambda v: square(v).sum())(x)
-
way.k = 7.0
Way.__call__ = lambda self, g: g * 11.0

# an object that a branch calls
from impl import func
class Way:
    k = 2.0
    def __call__(self, v): return v * self.k
way = Way()
-
return func.cond(x.sum() > 0, way, way, x)
-
way.k = 7.0
''', "following.given.inherited": '''
# what a function of one's own has
from impl import func
from impl.torch import autograd
now = {"k": 2.0}
class F(autograd.Function):
    @staticmethod
    def forward(ctx, x): return x * x
    @staticmethod
    def backward(ctx, g): return g * now["k"]
-
return func.grad(lambda v: F.apply(v).sum())(x)
-
now["k"] = 7.0
F.backward = staticmethod(lambda ctx, g: g * 11.0)

# what a function of one's own has from another one
from impl import func
from impl.torch import autograd
class Base(autograd.Function):
    k = 2.0
    @staticmethod
    def forward(ctx, x): return x * x
    @classmethod
    def backward(cls, ctx, g): return g * cls.k
class F(Base): pass
-
return func.grad(lambda v: F.apply(v).sum())(x)
-
Base.k = 7.0
F.k = 11.0
''', "following.traced.reason": '''
# where the random numbers are (traced)
-
return x + Tensor.get_rng_state().cast(dtypes.float32).sum()
-
Tensor.rand(3).realize()

# where the random numbers are, by another name (traced)
from impl import torch
-
return x + torch.get_rng_state().cast(dtypes.float32).sum() + torch.initial_seed()
-
Tensor.rand(3).realize()
'''}

#: By rule.
PROGRAMS = {rule: parsed(text) for rule, text in _TEXTS.items()}
