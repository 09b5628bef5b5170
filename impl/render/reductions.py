"""How a kernel reduces, as text. Chapter: spec/render.md."""
from __future__ import annotations

import itertools
from collections.abc import Sequence

from impl.dtypes import DType, dtypes, sum_accumulator
from impl.ir import Ops, RangeKind, UOp, identity
from impl.kernel.analysis import exchanged
from impl.render.accesses import Accesses
from impl.render.dialect import Operand
from impl.render.values import width_of


class Reductions(Accesses):
    """Accumulators, and how lanes are combined."""

    def _begin(self, node: UOp) -> None:
        """Accumulators, one for each combination of the reduction's own lanes."""
        # r[impl kernel.half.wide]
        dtype, vector = sum_accumulator(node.dtype), self.low.vector.get(node)
        names = self._fresh("a", len(self._combinations(self._wide(node))))
        start = self.dialect.literal(identity(node.arg, node.dtype), dtype)
        kind = ""
        if vector is not None:
            start, kind = self.dialect.vector_start(dtype, width_of(vector), start)
        type_name = self.dialect.vector_type(kind) if kind else self.dialect.type_of(dtype)
        self.sums[node] = [(name, kind) for name in names]
        for name in names:
            self._line(self.dialect.changing(type_name, name, start))

    def _step(self, node: UOp) -> None:
        """Take in the elements of one iteration, in increasing order of the reduced lanes."""
        value = node.src[0]
        dtype, vector = sum_accumulator(node.dtype), self.low.vector.get(node)
        kept = self._wide(node)
        inner = tuple(r for r in node.src[1:]
                      if r.arg[1] in (RangeKind.UPCAST, RangeKind.UNROLL))
        wide = kept + inner
        inside = self._combinations(inner)
        at = [a + b for a in self._combinations(kept) for b in inside]
        sums = [operand for operand in self.sums[node] for _ in inside]
        parts = self.factors.get(value, (value,))
        if vector is None:
            given = [self._text(part, wide, at) for part in parts]
            for (name, _), *texts in zip(sums, *given, strict=True):
                text = self.dialect.combine(node.arg, dtype, texts[0], name) \
                    if len(texts) == 1 else self.dialect.dot(texts[0], texts[1], name) \
                    if value.op is Ops.DOT else self.dialect.fused(dtype, texts[0], texts[1], name)
                self._line(self.dialect.assign(name, text))
            return
        wholes = [self._operands(part, wide, at, vector) for part in parts]
        lines: dict[str, list[str]] = {}
        for target, *operands in zip(sums, *wholes, strict=True):
            found = self._whole_step(node.arg, dtype, width_of(vector), operands, target)
            # What shares a number stands together: no tile leaves registers for all of them.
            number = next((text for text, kind in operands if not kind), "") if not inner else ""
            lines.setdefault(number, []).append(
                self.dialect.assign(target[0], self.dialect.vector_cast(found, dtype, target[1])))
        for line in itertools.chain.from_iterable(lines.values()):
            self._line(line)

    def _whole_step(self, op: Ops, dtype: DType, count: int, operands: Sequence[Operand],
                    target: Operand) -> Operand:
        """One combination of vectors, or a product added at once."""
        if len(operands) == 2 and dtype is dtypes.int32:
            return self.dialect.vector_dot(count, (*operands, target))
        if len(operands) == 2:
            return self.dialect.vector_fused(dtype, count, (*operands, target))
        return self.dialect.vector_combine(op, dtype, count, (*operands, target))

    def _finish(self, node: UOp) -> None:
        """The accumulators become the values, rounded if they were wider."""
        dtype, vector = node.dtype, self.low.vector.get(node)
        for loop in exchanged(node):
            self._exchange(node, int(self._extent(loop)))
        if sum_accumulator(dtype) is dtype:
            self._remember(node, self.sums[node])
        elif vector is None:
            self._assign(node, dtype, [(self.dialect.finish(dtype, name), "")
                                       for name, _ in self.sums[node]])
        else:
            self._assign(node, dtype, [self.dialect.vector_finish(dtype, width_of(vector), operand)
                                       for operand in self.sums[node]])

    def _exchange(self, node: UOp, width: int) -> None:
        """Each lane of a warp combines what it has with what another lane has, more and more."""
        # r[impl render.exchange.order]
        assert self.groups is not None
        dtype, distance = sum_accumulator(node.dtype), width // 2
        while distance:
            for name, _ in self.sums[node]:
                other = self._fresh("t", 1)[0]  # a macro may name it twice
                self._line(self.dialect.constant(self.dialect.type_of(dtype), other,
                                                 self.groups.exchange(name, dtype, distance)))
                self._line(self.dialect.assign(
                    name, self.dialect.combine(node.arg, dtype, name, other)))
            distance //= 2

    def _reduce_lanes(self, node: UOp, wide: tuple[UOp, ...], at: list[tuple[int, ...]],
                      vector: UOp | None) -> None:
        """A reduction over lanes alone: a tree of operations, no loop."""
        dtype, inner = sum_accumulator(node.dtype), node.src[1:]
        # A vector lane that is reduced comes last: vectors are combined, then their elements.
        folded = self.low.vector.get(node.src[0])
        if folded not in inner:
            folded = None
        rest = tuple(lane for lane in inner if lane is not folded)
        lanes = wide + rest
        inside = self._combinations(rest)
        both = [a + b for a in at for b in inside]
        along = vector if folded is None else folded
        elements = self._operands(node.src[0], lanes, both, along) if along is not None \
            else [(text, "") for text in self._text(node.src[0], lanes, both)]
        found = []
        for start in range(0, len(elements), len(inside)):
            parts = elements[start:start + len(inside)]
            while len(parts) > 1:
                half = len(parts) // 2
                rest_of = parts[2 * half:]
                parts = [self._pair(node.arg, dtype, pair, along)
                         for pair in zip(parts[:half], parts[half:2 * half], strict=True)] + rest_of
            found.append(self._folded(node, parts[0], folded, vector))
        self._assign(node, node.dtype, found)

    def _folded(self, node: UOp, operand: Operand, folded: UOp | None,
                vector: UOp | None) -> Operand:
        """One result: a vector's elements combined if that is asked for, and rounded."""
        if folded is not None:
            text = self.dialect.vector_fold(node.arg, sum_accumulator(node.dtype), operand)
            return self.dialect.finish(node.dtype, text), ""
        if vector is not None:
            return self.dialect.vector_finish(node.dtype, width_of(vector), operand)
        return self.dialect.finish(node.dtype, operand[0]), ""

    def _pair(self, op: Ops, dtype: DType, pair: tuple[Operand, Operand],
              along: UOp | None) -> Operand:
        """Combine two partial results in a variable."""
        name = self._fresh("t", 1)[0]
        if along is None:
            text, kind = self.dialect.combine(op, dtype, pair[0][0], pair[1][0]), ""
        else:
            text, kind = self.dialect.vector_combine(op, dtype, width_of(along), pair)
        type_name = self.dialect.vector_type(kind) if kind else self.dialect.type_of(dtype)
        self._line(self.dialect.constant(type_name, name, text))
        return name, kind
