"""Prints a lowered kernel in a dialect. Chapter: spec/render.md."""
from __future__ import annotations

import itertools
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from impl import symbolic
from impl.dtypes import DType, Scalar, dtypes
from impl.ir import TRUE, Ops, RangeKind, UOp
from impl.render.lower import (
    Access,
    Begin,
    Block,
    Define,
    Finish,
    Loop,
    Lowered,
    Step,
    Write,
    lower,
)


# --8<-- [start:source]
@dataclass(frozen=True)
class Source:
    """A kernel's text: `body` is the function without its name, `definitions` what it needs."""

    name: str
    body: str
    definitions: tuple[str, ...]
    signature: str
    conditional: bool = False  # whether what it loads or passes on depends on a condition
    moves_in_place: bool = False  # whether it loads what it overwrites, but at other places

    @property
    def prelude(self) -> str:
        """The definitions that the body refers to, each after those that it needs."""
        return "".join(definition + "\n" for definition in self.definitions)

    @property
    def text(self) -> str:
        """The complete text of a compilation unit with this kernel alone."""
        return f"{self.prelude}\n{self.signature.format(name=self.name)} {self.body}"
# --8<-- [end:source]


#: A text, and whether it is a whole vector (or one number for all of its elements).
Operand = tuple[str, bool]


# --8<-- [start:dialect]
class Dialect(Protocol):
    """How a language writes a kernel. One class per language; the printer does the rest."""

    name: str
    signature: str        # of a kernel, with {name}
    widest_inline: int    # longest expression that gets no variable of its own
    widest_again: int     # the same for conditions and indices that differ between vector lanes

    def begin(self) -> None:
        """Forget the declarations that the last kernel needed."""

    def definitions(self) -> tuple[str, ...]:
        """The declarations that the printed kernel needs, in an order that depends on it alone."""

    def type_of(self, dtype: DType) -> str:
        """The type of a variable with a value of this dtype."""

    def vector_type(self, dtype: DType, count: int) -> str:
        """The type of a variable with `count` such values."""

    def vector_of(self, dtype: DType, count: int, element: str) -> str:
        """A vector whose element number `l` is given by an expression in `l`."""

    def vector_operation(self, op: Ops, dtype: DType, count: int,
                         given: Sequence[Operand]) -> str | None:
        """An operation on whole vectors (and numbers), if the language has it for them."""

    def vector_fused(self, dtype: DType, count: int, given: Sequence[Operand]) -> str | None:
        """first * second + third on whole vectors; the product may stay unrounded."""

    def vector_fold(self, op: Ops, dtype: DType, count: int, value: str) -> str | None:
        """All elements of a vector combined, if the language has it for this type."""

    def broadcast(self, dtype: DType, count: int, value: str) -> str:
        """A vector with one number in all elements."""

    def literal(self, value: Scalar, dtype: DType) -> str:
        """A number."""

    def operation(self, node: UOp, given: Sequence[str], plain: bool) -> str:
        """An operation on values; `plain`: no operand is negative and no divisor is 0."""

    def combine(self, op: Ops, dtype: DType, first: str, second: str) -> str:
        """One step of a reduction, in the accumulator's precision."""

    def fused(self, dtype: DType, first: str, second: str, third: str) -> str:
        """first * second + third; the product may stay unrounded."""

    def finish(self, dtype: DType, value: str) -> str:
        """An accumulator rounded to the dtype of its reduction."""

    def argument(self, name: str, param: UOp, written: bool) -> str:
        """Declare a pointer argument."""

    def variable(self, name: str, position: int) -> str:
        """Declare a run-time integer; `position` counts pointers and variables together."""

    def local(self, name: str, dtype: DType, size: int, total: int) -> str:
        """Declare a stage buffer; `total` are the bytes of all of them."""

    def load(self, pointer: str, index: str, dtype: DType) -> str:
        """The value in memory."""

    def load_vector(self, pointer: str, index: str, dtype: DType, count: int) -> str | None:
        """Neighbouring values in memory as a vector, if the language can."""

    def store(self, pointer: str, index: str, dtype: DType, value: str) -> str:
        """A statement that writes a value to memory."""

    def store_vector(self, pointer: str, index: str, dtype: DType, count: int,
                     value: str) -> str | None:
        """A statement that writes a vector to neighbouring places, if the language can."""

    def guarded(self, pointer: str, name: str, dtype: DType) -> str:
        """Declare the pointer through which one conditional load reads."""

    def loop(self, name: str, extent: str, independent: bool, guarded: bool) -> list[str]:
        """The lines that open a loop; `guarded`: it has conditional loads."""
# --8<-- [end:dialect]


_LANE = "l"
Texts = list[str]


def identifier(name: str) -> str:
    """A name that every C-like language accepts."""
    # r[impl render.name.plain]
    plain = re.sub(r"\W", "_", name, flags=re.ASCII)
    return plain if plain and not plain[0].isdigit() else f"k_{plain}"


def render(ast: UOp, dialect: Dialect) -> Source:
    """The text of a kernel. Equal kernels give equal text.

    Raises:
        GraphError: the graph is no kernel.
    """
    # r[impl render.text.deterministic]
    return _Printer(lower(ast), dialect).run()


class _Printer:
    """Names values in order of appearance and writes one line for each."""

    def __init__(self, low: Lowered, dialect: Dialect) -> None:
        self.low, self.known, self.dialect = low, low.known, dialect
        self.lines: list[str] = []
        self.indent = 1
        self.names: dict[UOp, str] = {}     # loops, pointers, variables
        self.texts: dict[UOp, Texts] = {}   # values: one text for each combination of lanes
        self.wholes: dict[UOp, Texts] = {}  # the same for whole vectors, where that is known
        self.factors: dict[UOp, tuple[UOp, UOp]] = {}
        self.sums: dict[UOp, Texts] = {}
        self.numbers = itertools.count()    # of values
        self.top: Texts = []                # declarations of pointers for conditional loads
        self.loops = itertools.count()
        self.places: dict[tuple[int, int], list[int]] = {}

    # --8<-- [start:run]
    def run(self) -> Source:
        """Print the whole kernel."""
        self.dialect.begin()
        self._declare()
        below = len(self.lines)
        stack = [iter(self.low.root.items)]  # r[impl render.depth.unlimited]
        while stack:
            item = next(stack[-1], None)
            if item is None:
                stack.pop()
                if stack:
                    self.indent -= 1
                    self._line("}")
            elif isinstance(item, Loop):
                self._open(item.block)
                stack.append(iter(item.block.items))
            else:
                self._item(item)
        self.lines[below:below] = self.top
        body = "{\n" + "\n".join(self.lines) + "\n}\n"
        conditional = any(node.op is Ops.WHERE or node.op is Ops.INDEX and node.src[2] is not TRUE
                          for node in self.known.order)
        return Source(identifier(self.known.info.name), body, self.dialect.definitions(),
                      self.dialect.signature, conditional, self._moves_in_place())
    # --8<-- [end:run]

    def _moves_in_place(self) -> bool:
        """Whether it loads from an argument that it stores to, at other places."""
        loaded, stored = ({node.src[0] for node in self.known.order if node.op is op}
                          for op in (Ops.LOAD, Ops.STORE))
        overwritten = {place.src[0] for place in stored if place.src[0].op is Ops.PARAM}
        return any(place.src[0] in overwritten for place in loaded - stored)

    def _line(self, text: str) -> None:
        self.lines.append("  " * self.indent + text)

    def _item(self, item: Define | Begin | Step | Finish | Write | Loop) -> None:
        if isinstance(item, Define):
            self._define(item.node)
        elif isinstance(item, Begin):
            for node in item.nodes:
                self._begin(node)
        elif isinstance(item, Step):
            for node in item.nodes:
                self._step(node)
        elif isinstance(item, Finish):
            for node in item.nodes:
                self._finish(node)
        elif isinstance(item, Write):
            self._write(item.store)

    def _declare(self) -> None:
        """Pointers, variables and stage buffers, at the top of the function."""
        params = sorted((n for n in self.known.order if n.op is Ops.PARAM),
                        key=lambda n: (n.arg, n.dtype.rank))
        seen: set[int] = set()
        for param in params:
            name = f"p{param.arg}" + (f"_{param.dtype.name}" if param.arg in seen else "")
            seen.add(param.arg)
            self.names[param] = name
            written = (Ops.PARAM, param.arg) in self.known.stored
            self._line(self.dialect.argument(name, param, written))
        # r[impl render.argument.order]
        for place, variable in enumerate(self.known.info.variables):
            self.names[variable] = f"n{place}"
            self._line(self.dialect.variable(f"n{place}", self.known.params + place))
        buffers = [n for n in self.known.order if n.op is Ops.LOCAL]
        total = sum(n.arg[1] * n.dtype.itemsize for n in buffers)
        for place, buffer in enumerate(buffers):
            self.names[buffer] = f"m{place}"
            self._line(self.dialect.local(f"m{place}", buffer.dtype, buffer.arg[1], total))

    def _open(self, block: Block) -> None:
        loop = block.loop
        assert loop is not None
        name = f"i{next(self.loops)}"
        self.names[loop] = name
        innermost = not any(isinstance(item, Loop) for item in block.items)
        parallel = loop.arg[1] in (RangeKind.GLOBAL, RangeKind.LOOP)
        shares = any(buffer[0] is Ops.LOCAL for buffer in self.known.stored)
        independent = parallel and innermost and not (shares and loop in self.known.info.prefix)
        extent = self._text(loop.src[0], (), [])[0]
        guarded = any(isinstance(item, Define) and item.node.op is Ops.LOAD
                      and item.node.src[0].src[2] is not TRUE for item in block.items)
        for line in self.dialect.loop(name, extent, independent, guarded):
            self._line(line)
        self.indent += 1

    # --8<-- [start:lanes]
    def _wide(self, node: UOp) -> tuple[UOp, ...]:
        """The lanes of a value that are written out, one variable each."""
        vector = self.low.vector.get(node)
        return tuple(lane for lane in self.low.lanes(node) if lane is not vector)

    def _combinations(self, lanes: tuple[UOp, ...]) -> list[tuple[int, ...]]:
        return list(itertools.product(*(range(lane.src[0].arg) for lane in lanes)))

    def _text(self, node: UOp, wide: tuple[UOp, ...], at: list[tuple[int, ...]],
              vector: UOp | None = None) -> Texts:
        """The value's text for each combination `at` of the lanes `wide`.

        If `vector` is a lane of the value, its element number `l` is taken.
        """
        count = max(len(at), 1)
        if node.op is Ops.CONST:
            return [self.dialect.literal(node.arg, node.dtype)] * count
        if node.op is Ops.RANGE and node.arg[1] in (RangeKind.UPCAST, RangeKind.UNROLL):
            if node is vector:
                return [_LANE] * count
            place = wide.index(node)
            return [str(values[place]) for values in at]
        if node in self.names:
            return [self.names[node]] * count
        return self._spread(self.texts[node], node, wide, at)

    def _spread(self, texts: Texts, node: UOp, wide: tuple[UOp, ...],
                at: list[tuple[int, ...]]) -> Texts:
        """A value's texts, each where its combination of lanes occurs in `at`."""
        own = self._wide(node)
        if own and own != wide:
            return [texts[i] for i in self._project(own, wide, at)]
        return texts * len(at) if not own and len(at) > 1 else texts

    def _operands(self, node: UOp, wide: tuple[UOp, ...], at: list[tuple[int, ...]],
                  vector: UOp) -> list[Operand] | None:
        """Like `_text`, but whole vectors; None if the value is known by its elements only."""
        if node is vector:
            return None
        if self.low.vector.get(node) is not vector:
            return [(text, False) for text in self._text(node, wide, at)]
        if node not in self.wholes:
            return None
        return [(text, True) for text in self._spread(self.wholes[node], node, wide, at)]

    def _project(self, own: tuple[UOp, ...], wide: tuple[UOp, ...],
                 at: list[tuple[int, ...]]) -> list[int]:
        """For each combination of `wide`, the number of the combination of `own` in it."""
        key = (self.known.mask(own), self.known.mask(wide))
        found = self.places.get(key)
        if found is None or len(found) != len(at):
            where = [wide.index(lane) for lane in own]
            sizes = [lane.src[0].arg for lane in own]
            found = []
            for values in at:
                place = 0
                for position, size in zip(where, sizes, strict=True):
                    place = place * size + values[position]
                found.append(place)
            self.places[key] = found
        return found
    # --8<-- [end:lanes]

    # --8<-- [start:define]
    def _define(self, node: UOp) -> None:
        """A variable (one for each combination of lanes) with the value; or remember its text."""
        wide = self._wide(node)
        at = self._combinations(wide)
        vector = self.low.vector.get(node)
        if node.op is Ops.LOAD:
            self._load(node, wide, at, vector)
            return
        if node.op is Ops.REDUCE:
            self._reduce_lanes(node, wide, at, vector)
            return
        if self._is_fused_product(node):
            self.factors[node] = (node.src[0], node.src[1])
            return
        given = [self._text(source, wide, at, vector) for source in node.src]
        plain = node.op in (Ops.FLOORDIV, Ops.FLOORMOD) and _plain(node)
        texts = [self.dialect.operation(node, operands, plain)
                 for operands in zip(*given, strict=True)]
        wholes = self._whole_operation(node, wide, at, vector) if vector is not None else None
        again = vector is not None and node.dtype in (dtypes.bool, dtypes.index) \
            and node not in self.low.apart
        limit = self.dialect.widest_again if again else self.dialect.widest_inline
        if (again or node in self.low.inline) and len(texts[0]) <= limit:
            self.texts[node] = texts  # a vector of bools has another width than what it selects
            if wholes is not None:
                self.wholes[node] = wholes
            return
        self.low.inline.discard(node)
        self._assign(node, node.dtype, texts, vector, wholes)

    def _whole_operation(self, node: UOp, wide: tuple[UOp, ...], at: list[tuple[int, ...]],
                         vector: UOp) -> Texts | None:
        """The operation on whole vectors, if all its operands and the language allow that."""
        given = [self._operands(source, wide, at, vector) for source in node.src]
        found: list[str | None] = []
        if not any(operands is None for operands in given):
            found = [self.dialect.vector_operation(node.op, node.dtype, _extent(vector), operands)
                     for operands in zip(*(g for g in given if g is not None), strict=True)]
        texts = [text for text in found if text is not None]
        return texts if texts and len(texts) == len(found) else None

    def _assign(self, node: UOp, dtype: DType, texts: Texts, vector: UOp | None,
                wholes: Texts | None = None) -> None:
        """Declare variables with these values, and remember their names."""
        names = self._fresh("v", len(texts))
        for place, name in enumerate(names):
            if vector is None:
                self._line(f"const {self.dialect.type_of(dtype)} {name} = {texts[place]};")
            else:
                whole = wholes[place] if wholes is not None else \
                    self.dialect.vector_of(dtype, _extent(vector), texts[place])
                kind = self.dialect.vector_type(dtype, _extent(vector))
                self._line(f"const {kind} {name} = {whole};")
        self._remember(node, names, vector)

    def _remember(self, node: UOp, names: Texts, vector: UOp | None) -> None:
        """Variables hold the value from now on."""
        self.texts[node] = names if vector is None else [f"{name}[{_LANE}]" for name in names]
        if vector is not None:
            self.wholes[node] = names

    def _lanes(self, size: int) -> str:
        return f"for (long {_LANE} = 0; {_LANE} < {size}; {_LANE}++)"

    def _fresh(self, letter: str, count: int) -> Texts:
        number = next(self.numbers)
        if count == 1:
            return [f"{letter}{number}"]
        return [f"{letter}{number}_{i}" for i in range(count)]
    # --8<-- [end:define]

    def _is_fused_product(self, node: UOp) -> bool:
        """Whether the product goes into nothing but one sum: it is multiplied and added at once."""
        low = self.low
        if node.op is not Ops.MUL or node not in low.inline:
            return False  # r[impl render.reduce.contract]
        user = low.single[node]
        return (user.op is Ops.REDUCE and user.arg is Ops.ADD and bool(user.src[1:])
                and node.dtype in (dtypes.float32, dtypes.float64)
                and any(loop.arg[1] not in (RangeKind.UPCAST, RangeKind.UNROLL)
                        for loop in user.src[1:]))

    # --8<-- [start:memory]
    def _index(self, access: Access, wide: tuple[UOp, ...], at: list[tuple[int, ...]],
               vector: UOp | None) -> tuple[Texts, int | None]:
        """The address for each combination without the vector lane, and its step along that.

        The step is None if the address contains the lane `l` already.
        """
        bases = self._text(access.base, wide, at, vector)
        steps = [(wide.index(lane), step) for lane, step in access.steps.items()
                 if lane is not vector]
        texts = []
        for base, values in zip(bases, at, strict=True):
            offset = sum(step * values[place] for place, step in steps)
            texts.append(f"{base} + {offset}" if offset else base)
        inside = vector is not None and self.low.vector.get(access.base) is vector
        return texts, None if inside else access.steps.get(vector, 0) if vector else 0

    def _load(self, node: UOp, wide: tuple[UOp, ...], at: list[tuple[int, ...]],
              vector: UOp | None) -> None:
        index = node.src[0]
        pointer, dtype = self.names[index.src[0]], index.src[0].dtype
        access, valid = self.low.access[index], index.src[2]
        addresses, step = self._index(access, wide, at, vector)
        guards = self._text(valid, wide, at, vector) if valid is not TRUE else None
        wholes: Texts = []
        if vector is not None and step == 1 and guards is None:
            found = [self.dialect.load_vector(pointer, a, dtype, _extent(vector))
                     for a in addresses]
            wholes = [text for text in found if text is not None]
        addresses = [_stepped(a, step) for a in addresses]
        pointers = [pointer] * len(addresses)
        if guards is not None and vector is None:
            pointers = [self._guarded(pointer, dtype) for _ in addresses]
        texts = [self.dialect.load(p, a, dtype) for p, a in zip(pointers, addresses, strict=True)]
        if guards is not None:  # r[impl kernel.load.gated]
            nothing = self.dialect.literal(dtype.numpy.type(0).item() if dtype.kind != "f" else 0.0,
                                           dtype)
            texts = [f"({g} ? {t} : {nothing})" for g, t in zip(guards, texts, strict=True)]
        self._assign(node, node.dtype, texts, vector, wholes or None)

    def _guarded(self, pointer: str, dtype: DType) -> str:
        """The pointer for one conditional load, declared at the top of the function."""
        name = f"q{len(self.top)}"
        self.top.append("  " + self.dialect.guarded(pointer, name, dtype))
        return name

    def _write(self, store: UOp) -> None:
        index, value = store.src[0], store.src[1]
        lanes = self.low.lanes(store)
        vector = self.low.vector.get(store)
        wide = tuple(lane for lane in lanes if lane is not vector)
        at = self._combinations(wide)
        pointer, dtype = self.names[index.src[0]], index.src[0].dtype
        addresses, step = self._index(self.low.access[index], wide, at, vector)
        guards = self._text(index.src[2], wide, at, vector) if index.src[2] is not TRUE else None
        whole = None
        if vector is not None and step == 1 and guards is None:
            whole = self._operands(value, wide, at, vector)
        values = self._text(value, wide, at, vector)
        for place, address in enumerate(addresses):
            if whole is not None and vector is not None:
                text, is_vector = whole[place]
                if not is_vector:
                    text = self.dialect.broadcast(dtype, _extent(vector), text)
                line = self.dialect.store_vector(pointer, address, dtype, _extent(vector), text)
                if line is not None:
                    self._line(line)
                    continue
            line = self.dialect.store(pointer, _stepped(address, step), dtype, values[place])
            # r[impl kernel.store.gated]
            guard = f"if ({guards[place]}) " if guards is not None else ""
            around = f"{self._lanes(_extent(vector))} " if vector is not None else ""
            self._line(around + guard + line)
    # --8<-- [end:memory]

    # --8<-- [start:reduce]
    def _begin(self, node: UOp) -> None:
        """Accumulators, one for each combination of the reduction's own lanes."""
        dtype, vector = _accumulator(node.dtype), self.low.vector.get(node)
        names = self._fresh("a", len(self._combinations(self._wide(node))))
        start = self.dialect.literal(_identity(node.arg, node.dtype), dtype)
        self.sums[node] = names
        for name in names:
            if vector is None:
                self._line(f"{self.dialect.type_of(dtype)} {name} = {start};")
            else:
                kind = self.dialect.vector_type(dtype, _extent(vector))
                whole = self.dialect.broadcast(dtype, _extent(vector), start)
                self._line(f"{kind} {name} = {whole};")

    def _step(self, node: UOp) -> None:
        """Take in the elements of one iteration, in increasing order of the reduced lanes."""
        value = node.src[0]
        dtype, vector = _accumulator(node.dtype), self.low.vector.get(node)
        reduced = [r for r in node.src[1:] if r.arg[1] in (RangeKind.UPCAST, RangeKind.UNROLL)]
        kept = self._wide(node)
        inner = tuple(reduced)
        wide = kept + inner
        inside = self._combinations(inner)
        at = [a + b for a in self._combinations(kept) for b in inside]
        names = [name for name in self.sums[node] for _ in inside]
        parts = self.factors.get(value, (value,))
        if vector is not None and self._step_whole(node, parts, names, wide, at, vector):
            return
        given = [self._elements(part, wide, at, vector) for part in parts]
        for name, *operands in zip(names, *given, strict=True):
            target = f"{name}[{_LANE}]" if vector is not None else name
            if len(operands) == 2:
                text = self.dialect.fused(dtype, operands[0], operands[1], target)
            else:
                text = self.dialect.combine(node.arg, dtype, operands[0], target)
            if vector is not None:
                text = self.dialect.vector_of(dtype, _extent(vector), text)
            self._line(f"{name} = {text};")

    def _step_whole(self, node: UOp, parts: Sequence[UOp], names: Texts, wide: tuple[UOp, ...],
                    at: list[tuple[int, ...]], vector: UOp) -> bool:
        """The step on whole vectors, if all operands are known as such; else False."""
        given = [self._operands(part, wide, at, vector) for part in parts]
        dtype, lines = _accumulator(node.dtype), []
        if any(operands is None for operands in given) or node.dtype is not dtype:
            return False
        for name, *operands in zip(names, *(g for g in given if g is not None), strict=True):
            three = [*operands, (name, True)]
            text = self.dialect.vector_fused(dtype, _extent(vector), three) if len(three) == 3 \
                else self.dialect.vector_operation(node.arg, dtype, _extent(vector), three)
            if text is None:
                return False
            lines.append(f"{name} = {text};")
        for line in lines:
            self._line(line)
        return True

    def _elements(self, node: UOp, wide: tuple[UOp, ...], at: list[tuple[int, ...]],
                  vector: UOp | None) -> Texts:
        """Like `_text`, where the value's vector lane may be one of the written out lanes."""
        own = self.low.vector.get(node)
        if own is None or own is vector or node.op is Ops.RANGE:
            return self._text(node, wide, at, vector)
        place = wide.index(own)
        names = self._spread(self.wholes[node], node, wide, at)
        return [f"{name}[{values[place]}]" for name, values in zip(names, at, strict=True)]

    def _finish(self, node: UOp) -> None:
        """The accumulators become the values, rounded if they were wider."""
        dtype, vector = node.dtype, self.low.vector.get(node)
        if _accumulator(dtype) is dtype:
            self._remember(node, self.sums[node], vector)
            return
        suffix = f"[{_LANE}]" if vector is not None else ""
        texts = [self.dialect.finish(dtype, name + suffix) for name in self.sums[node]]
        self._assign(node, dtype, texts, vector)

    def _reduce_lanes(self, node: UOp, wide: tuple[UOp, ...], at: list[tuple[int, ...]],
                      vector: UOp | None) -> None:
        """A reduction over lanes alone: a tree of operations, no loop."""
        dtype = _accumulator(node.dtype)
        inner = node.src[1:]
        if self._fold(node, wide, at, inner):
            return
        lanes = wide + inner
        inside = self._combinations(inner)
        both = [a + b for a in at for b in inside]
        whole = self._operands(node.src[0], lanes, both, vector) if vector is not None else None
        elements = self._elements(node.src[0], lanes, both, vector) if whole is None \
            else [text for text, _ in whole]
        texts = []
        for start in range(0, len(elements), len(inside)):
            parts = elements[start:start + len(inside)]
            while len(parts) > 1:
                half = len(parts) // 2
                rest = parts[2 * half:]
                parts = [self._pair(node.arg, dtype, pair, vector, whole is not None)
                         for pair in zip(parts[:half], parts[half:2 * half], strict=True)] + rest
            texts.append(parts[0] if whole is not None else
                         self.dialect.finish(node.dtype, parts[0]))
        if whole is not None and node.dtype is dtype:
            self._remember(node, texts, vector)
        elif whole is not None:
            self._assign(node, node.dtype, [self.dialect.finish(node.dtype, f"{text}[{_LANE}]")
                                            for text in texts], vector)
        else:
            self._assign(node, node.dtype, texts, vector)

    def _fold(self, node: UOp, wide: tuple[UOp, ...], at: list[tuple[int, ...]],
              inner: tuple[UOp, ...]) -> bool:
        """Combine the elements of vectors with each other, if that is all there is to do."""
        if len(inner) != 1 or self.low.vector.get(node.src[0]) is not inner[0]:
            return False
        given = self._operands(node.src[0], wide, at, inner[0])
        if given is None or _accumulator(node.dtype) is not node.dtype:
            return False
        found = [self.dialect.vector_fold(node.arg, node.dtype, _extent(inner[0]), text)
                 for text, _ in given]
        texts = [text for text in found if text is not None]
        if len(texts) == len(at):
            self._assign(node, node.dtype, texts, None)
        return len(texts) == len(at)

    def _pair(self, op: Ops, dtype: DType, pair: tuple[str, str], vector: UOp | None,
              whole: bool) -> str:
        """Combine two partial results in a variable; the answer is its text."""
        name = self._fresh("t", 1)[0]
        if vector is None:
            text = self.dialect.combine(op, dtype, *pair)
            self._line(f"const {self.dialect.type_of(dtype)} {name} = {text};")
            return name
        one, two = pair if not whole else (f"{text}[{_LANE}]" for text in pair)
        found = self.dialect.vector_operation(op, dtype, _extent(vector),
                                              [(text, True) for text in pair]) if whole else None
        found = found or self.dialect.vector_of(dtype, _extent(vector),
                                                self.dialect.combine(op, dtype, one, two))
        self._line(f"const {self.dialect.vector_type(dtype, _extent(vector))} {name} = {found};")
        return name if whole else f"{name}[{_LANE}]"
    # --8<-- [end:reduce]


def _extent(vector: UOp) -> int:
    """The number of elements of a vector lane."""
    size: int = vector.src[0].arg
    return size


def _stepped(address: str, step: int | None) -> str:
    """The address of element `l` of a vector."""
    if not step:
        return address
    return f"{address} + {_LANE}" if step == 1 else f"{address} + {step}*{_LANE}"


def _plain(node: UOp) -> bool:
    """Whether a quotient or remainder is C's: nothing negative, no zero divisor."""
    return symbolic.bounds(node.src[0])[0] >= 0 and symbolic.bounds(node.src[1])[0] > 0


def _accumulator(dtype: DType) -> DType:
    """Half types are accumulated in float32 and rounded once."""
    # r[impl kernel.reduce.half]
    return dtypes.float32 if dtype in (dtypes.float16, dtypes.bfloat16) else dtype


def _identity(op: Ops, dtype: DType) -> Scalar:
    """What a reduction of nothing gives."""
    # r[impl kernel.reduce.empty]
    if op is Ops.ADD:
        return 0.0 if dtype.kind == "f" else 0
    if op is Ops.MUL:
        return 1.0 if dtype.kind == "f" else 1
    found = dtype.min if op is Ops.MAXIMUM else dtype.max
    return -math.inf if dtype.kind == "f" and op is Ops.MAXIMUM else found
