"""How a kernel reads and writes memory, as text. Chapter: spec/render.md."""
from __future__ import annotations

import itertools
from collections.abc import Sequence

from impl import symbolic
from impl.dtypes import DType, dtypes, wrap
from impl.ir import TRUE, Ops, RangeKind, UOp
from impl.kernel.analysis import Early, Way
from impl.lowering.lower import Address
from impl.lowering.wrapped import has_short_address
from impl.render.dialect import Operand, Texts
from impl.render.values import Values, width_of

#: Bytes of a line of memory.
_LINE = 64


class Accesses(Values):
    """Loads and stores: one element, a vector, neighbours that are moved at once, squares."""

    def _addresses(self, access: Address, wide: tuple[UOp, ...], at: list[tuple[int, ...]],
                   vector: UOp | None) -> list[Operand]:
        """The address for each combination, and its kind if it differs along the vector lane."""
        steps = [(wide.index(lane), step) for lane, step in access.steps.items()
                 if lane is not vector]
        bases = [(text, "") for text in self._text(access.base, wide, at)] if vector is None \
            else self._operands(access.base, wide, at, vector)
        found = []
        for (base, kind), values in zip(bases, at, strict=True):
            offset = sum(step * values[place] for place, step in steps)
            found.append((f"{base} + {offset}" if offset else base, kind))
        return found

    def _load(self, node: UOp, wide: tuple[UOp, ...], at: list[tuple[int, ...]],
              vector: UOp | None) -> None:
        index = node.src[0]
        valid = index.src[2]
        addresses = self._addresses(self.low.access[index], wide, at, vector)
        if vector is not None and (across := self._across(index, wide, vector)) is not None:
            self._load_turned(node, wide, [text for text, _ in addresses], vector, across)
            return
        if vector is not None:
            guards: list[Operand | None] = [None] * len(at)
            if valid is not TRUE:
                guards = [*self._operands(valid, wide, at, vector)]
            self._assign(node, node.dtype, [
                self._whole_load(node, address, guard, vector)
                for address, guard in zip(addresses, guards, strict=True)])
            if node in self.ahead and self.low.access[index].steps.get(vector) == 1:
                for address, kind in addresses:  # r[impl render.hint.pays+2]
                    self._line("" if kind else self.dialect.fetch(
                        self.names[index.src[0]], f"{address} + {self.ahead[node]}", False))
            return
        pointer, dtype = self.names[index.src[0]], index.src[0].dtype
        if index in self.wide:
            self._load_wide(node, wide, at, addresses)
            return
        texts, copied = [], self._is_copied(node)
        conditions = self._text(valid, wide, at) if valid is not TRUE else [""] * len(at)
        for (address, _), condition in zip(addresses, conditions, strict=True):
            text = self._element(pointer, address, dtype, copied)
            if condition:  # r[impl kernel.access.gated]
                nothing = "0" if copied else self._nothing(dtype)
                text = self.dialect.choice(condition, text, nothing)
            texts.append((text, ""))
        self._read(node, texts)

    def _element(self, pointer: str, address: str, dtype: DType, copied: bool) -> str:
        """An element of memory; one that is only copied is what lies there."""
        if copied and self.groups is not None:
            return self.groups.copied_load(pointer, address, dtype)
        return self.dialect.load(pointer, address, dtype)

    def _across(self, index: UOp, wide: tuple[UOp, ...], vector: UOp) -> UOp | None:
        """The lane along which memory is contiguous, where the vector lane is another one and both
        have as many elements: a square that can be transposed.
        """
        access = self.low.access[index]
        if access.steps.get(vector, 0) in (0, 1) or self.low.vector.get(access.base) is not None:
            return None
        decides = self.known.free[index.src[2]]  # which lines are valid may differ, not what of one
        return next((lane for lane in wide if access.steps.get(lane) == 1
                     and width_of(lane) == width_of(vector)
                     and not decides >> self.known.position[lane] & 1), None)

    def _load_turned(self, node: UOp, wide: tuple[UOp, ...], addresses: Texts, vector: UOp,
                     across: UOp) -> None:
        """Load squares along the lane that is contiguous, and transpose them."""
        # r[impl dialects.vector.memory+2]
        index, place, at = node.src[0], wide.index(across), self._combinations(wide)
        step, count = self.low.access[index].steps[vector], width_of(vector)
        number = {values: i for i, values in enumerate(at)}
        found: list[Operand] = [("", "")] * len(at)
        valid = index.src[2]
        guards = self._operands(valid, wide, at, vector) if valid is not TRUE else []
        for values in (each for each in at if each[place] == 0):
            first = addresses[number[values]]
            conditions = self._conditions(guards[number[values]], count) if guards else ()
            lines, turned = self.dialect.vector_turned(
                self._fresh("q", 1)[0], self.names[index.src[0]],
                [f"{first} + {step * line}" for line in range(count)], index.src[0].dtype,
                conditions)
            for line in lines:
                self._line(line)
            for element, operand in enumerate(turned):
                found[number[(*values[:place], element, *values[place + 1:])]] = operand
        self._assign(node, node.dtype, found)

    def _conditions(self, guard: Operand, count: int) -> Texts:
        """The elements of a guard, a mask or one number for all."""
        text, kind = guard
        if not kind:
            return [text] * count
        name = self._fresh("g", 1)[0]
        self._line(self.dialect.constant(self.dialect.vector_type(kind), name, text))
        return [self.dialect.element(dtypes.bool, (name, kind), place) for place in range(count)]

    def _pieces(self, index: UOp, wide: tuple[UOp, ...], at: list[tuple[int, ...]]
                ) -> list[list[int]]:
        """The combinations whose elements lie side by side, as numbers of `at`."""
        lane, count = self.wide[index]
        place = wide.index(lane)
        found: dict[tuple[int, ...], list[int]] = {}
        for number, values in enumerate(at):
            key = (*values[:place], values[place] // count, *values[place + 1:])
            found.setdefault(key, []).append(number)
        return list(found.values())

    def _load_wide(self, node: UOp, wide: tuple[UOp, ...], at: list[tuple[int, ...]],
                   addresses: list[Operand]) -> None:
        """Load pieces, and then take their elements."""
        index, groups = node.src[0], self.groups
        assert groups is not None
        buffer, valid, copied = index.src[0], index.src[2], self._is_copied(node)
        conditions = self._text(valid, wide, at) if valid is not TRUE else [""] * len(at)
        texts: list[Operand] = [("", "")] * len(at)
        for piece in self._pieces(index, wide, at):
            name = self._fresh("w", 1)[0]
            for line in groups.wide_load(name, self.names[buffer], addresses[piece[0]][0],
                                         buffer.dtype, len(piece), buffer in self.shared,
                                         conditions[piece[0]]):
                self._line(line)
            for place, number in enumerate(piece):
                texts[number] = groups.wide_element(name, place, buffer.dtype, copied), ""
        self._read(node, texts)

    def _read(self, node: UOp, texts: list[Operand]) -> None:
        """Name what was loaded; a number that is only copied keeps the type it has in memory."""
        if self.groups is not None and self._is_copied(node):
            self._declared(node, texts, self.groups.storage_of(node.dtype))
        else:
            self._assign(node, node.dtype, texts)

    def _write_wide(self, store: UOp, wide: tuple[UOp, ...], at: list[tuple[int, ...]],
                    addresses: list[Operand]) -> None:
        """Store pieces."""
        index, groups = store.src[0], self.groups
        assert groups is not None
        buffer, valid = index.src[0], index.src[2]
        conditions = self._text(valid, wide, at) if valid is not TRUE else [""] * len(at)
        values = self._text(store.src[1], wide, at)
        for piece in self._pieces(index, wide, at):
            self._guarded(store, conditions[piece[0]], groups.wide_store(
                self.names[buffer], addresses[piece[0]][0], buffer.dtype,
                [values[number] for number in piece], buffer in self.shared,
                self._is_copied(store.src[1])))

    def _guarded(self, store: UOp, condition: str, line: str) -> None:
        """A statement of a store that happens where a condition is true, if there is one."""
        # r[impl kernel.access.gated]
        self._line(self.dialect.when(self._first(store), self.dialect.when(condition, line)))

    def _goes_ahead(self, load: UOp) -> bool:
        """Whether a load is nothing but the source of a copy that the device makes by itself, while
        the lanes compute: of as many bytes as it can, from an argument to what lanes share.
        """
        # r[impl render.copy.ahead]
        store = self.low.single.get(load)
        if self.groups is None or store is None or store.op is not Ops.STORE \
                or not isinstance(store.arg, Early) or store.src[1] is not load \
                or self.low.users[load] > 1 or load.src[0].src[0].op is not Ops.PARAM \
                or store.src[0].src[0] not in self.shared:
            return False
        count = self.wide[load.src[0]][1] if self._copies_pieces(store) else 1
        return load.dtype.itemsize * count in self.groups.ahead

    def _copies_pieces(self, store: UOp) -> bool:
        """Whether what lies side by side where it comes from does so where it goes to, too."""
        read, stored = (self.wide.get(node.src[0]) for node in (store.src[1], store))
        return read is not None and read == stored

    def _write_ahead(self, store: UOp, wide: tuple[UOp, ...], at: list[tuple[int, ...]],
                     addresses: list[Operand]) -> None:
        """Have the device copy pieces; zeros where the load is not valid."""
        load, groups = store.src[1], self.groups
        assert groups is not None
        to, source = store.src[0], load.src[0]
        guards, conditions = (self._text(index.src[2], wide, at) if index.src[2] is not TRUE
                              else [""] * len(at) for index in (to, source))
        sources = self._addresses(self.low.access[source], wide, at, None)
        pieces = self._pieces(to, wide, at) if self._copies_pieces(store) else \
            [[number] for number in range(len(at))]
        for piece in pieces:
            first = piece[0]
            self._guarded(store, guards[first], groups.copy_ahead(
                (self.names[to.src[0]], addresses[first][0]),
                (self.names[source.src[0]], sources[first][0]), load.dtype, len(piece),
                conditions[first]))

    def _nothing(self, dtype: DType) -> str:
        return self.dialect.literal(wrap(0, dtype), dtype)

    def _whole_load(self, node: UOp, address: Operand, guard: Operand | None,
                    vector: UOp) -> Operand:
        """A load along the vector lane: of neighbours, or of elements that lie anywhere."""
        index, count, dialect = node.src[0], width_of(vector), self.dialect
        pointer, dtype = self.names[index.src[0]], index.src[0].dtype
        step = self.low.access[index].steps.get(vector, 0)
        (text, kind), uniform = address, guard is not None and not guard[1]
        if kind and step:
            places = dialect.vector_steps(count, step)
            text = f"({text} + {dialect.vector_cast(places, dtypes.index, kind)})"
        if kind and self._is_short(node):
            text, kind = dialect.vector_short((text, kind), count)
        mask = guard if not uniform else None
        if step == 1 and not kind:
            found = dialect.vector_load(pointer, text, dtype, count) if mask is None else \
                dialect.vector_masked(pointer, text, dtype, count, mask)
        elif kind:
            few = symbolic.bounds(index.src[1]) == (0, count - 1)
            found = dialect.vector_gather(pointer, (text, kind), dtype, count, mask, few)
        else:
            place = f"({pointer} + {text})"
            stepped = dialect.vector_spread(place, dtype, count, mask) if mask and not step \
                else dialect.vector_stepped(place, step, dtype, count, mask)
            found = stepped or dialect.vector_gather(
                place, dialect.vector_steps(count, step), dtype, count, mask)
        if guard is None or not uniform:
            return found
        return dialect.vector_gated(guard[0], found, dtype, self._nothing(dtype))

    def _is_short(self, load: UOp) -> bool:
        """Whether 32 bits of an address are enough. It is asked for each lane, and found once."""
        # r[impl render.index.wraps]
        if load not in self.short:
            self.short[load] = has_short_address(load)
        return self.short[load]

    def _write(self, store: UOp) -> None:
        index, value = store.src[0], store.src[1]
        lanes, vector = self.low.lanes(store), self.low.vector.get(store)
        wide = tuple(lane for lane in lanes if lane is not vector)
        at = self._combinations(wide)
        addresses = self._addresses(self.low.access[index], wide, at, vector)
        if vector is not None:
            self._write_whole(store, addresses, wide, at, vector)
            return
        if value.op is Ops.LOAD and self._goes_ahead(value):
            self._write_ahead(store, wide, at, addresses)
            return
        if index in self.wide:
            self._write_wide(store, wide, at, addresses)
            return
        pointer, dtype = self.names[index.src[0]], index.src[0].dtype
        conditions = self._text(index.src[2], wide, at) if index.src[2] is not TRUE \
            else [""] * len(at)
        values = self._text(value, wide, at)
        for (address, _), text, condition in zip(addresses, values, conditions, strict=True):
            if self.groups is not None and self._is_copied(value):
                line = self.groups.copied_store(pointer, address, dtype, text)
            else:
                line = self.dialect.store(pointer, address, dtype, text)
            self._guarded(store, condition, line)

    def _fetch(self, store: UOp) -> None:
        """Ask for each line of memory that a store will write in one iteration of its loops."""
        # r[impl lowering.fetch.before+3]
        index, vector = store.src[0], self.low.vector.get(store)
        base = self.low.access[index].base
        if index.src[0].op is not Ops.PARAM or self.low.vector.get(base) is not None:
            return
        lanes = tuple(lane for lane in self.low.lanes(store) if lane is not vector)
        at, steps = self._combinations(lanes), self.low.access[index].steps
        bases = self._text(base, lanes, at)
        line = max(_LINE // index.src[0].dtype.itemsize, 1)
        step, count = (0, 1) if vector is None else (steps.get(vector, 0), width_of(vector))
        within = [step * each for each in range(0, count - 1, max(line // max(step, 1), 1))]
        within.append(step * (count - 1))
        places: dict[str, set[int]] = {}
        for text, values in zip(bases, at, strict=True):
            first = sum(steps.get(lane, 0) * each for lane, each in zip(lanes, values, strict=True))
            places.setdefault(text, set()).update(first + each for each in within)
        for text, found in places.items():
            for place in _apart(sorted(found), line):
                self._line(self.dialect.fetch(self.names[index.src[0]], f"{text} + {place}",
                                              True))

    def _first(self, store: UOp) -> str:
        """What lets the first lane of a warp store alone, where all of them run an iteration."""
        # r[impl lowering.wait.lanes]
        lanes = [loop for loop in store.src[2:] if loop.arg[1] is RangeKind.LANE]
        return self.groups.first(self.warp) if self.groups and lanes and self.warp > 1 else ""

    def _write_whole(self, store: UOp, addresses: list[Operand], wide: tuple[UOp, ...],
                     at: list[tuple[int, ...]], vector: UOp) -> None:
        """A store along the vector lane."""
        index, count, dialect = store.src[0], width_of(vector), self.dialect
        pointer, dtype = self.names[index.src[0]], index.src[0].dtype
        step = self.low.access[index].steps.get(vector, 0)
        guards: list[Operand] = [("", "")] * len(at)
        if index.src[2] is not TRUE:
            guards = self._operands(index.src[2], wide, at, vector)
        values = self._operands(store.src[1], wide, at, vector)
        across = self._across(index, wide, vector) if index.src[2] is TRUE else None
        if across is not None:
            self._write_turned(store, [text for text, _ in addresses], values, wide, across)
            return
        for (address, kind), value, guard in zip(addresses, values, guards, strict=True):
            mask = guard if guard[1] else None
            if step == 1 and not kind:
                line = dialect.vector_store(pointer, address, dtype, count, value, mask,
                                            store.arg is Way.PAST)
            elif kind:
                places = dialect.vector_steps(count, step) if step else None
                where = f"({address} + {dialect.vector_cast(places, dtypes.index, kind)})" \
                    if places is not None else address
                line = dialect.vector_scatter(pointer, "0", (where, kind), dtype, count, value,
                                              mask)
            else:
                line = dialect.vector_scatter(pointer, address, step, dtype, count, value, mask)
            # r[impl kernel.access.gated]
            self._line(dialect.when(guard[0] if mask is None else "", line))

    def _write_turned(self, store: UOp, addresses: Texts, values: list[Operand],
                      wide: tuple[UOp, ...], across: UOp) -> None:
        """Transpose squares, and store them along the lane that is contiguous."""
        # r[impl dialects.vector.memory+2]
        index, place, vector = store.src[0], wide.index(across), self.low.vector[store]
        step, count = self.low.access[index].steps[vector], width_of(vector)
        squares: dict[tuple[int, ...], list[int]] = {}
        for number, combination in enumerate(self._combinations(wide)):
            rest = combination[:place] + combination[place + 1:]
            squares.setdefault(rest, []).append(number)
        for numbers in squares.values():
            indices = [f"{addresses[numbers[0]]} + {step * line}" for line in range(count)]
            for line in self.dialect.vector_store_turned(
                    self._fresh("q", 1)[0], self.names[index.src[0]], indices, index.src[0].dtype,
                    [values[number] for number in numbers], store.arg is Way.PAST):
                self._line(line)


def _apart(places: Sequence[int], line: int) -> list[int]:
    """Of some places in order, so many that none is a line away from those before it, or the last
    of a row: memory need not begin where a line does.
    """
    found: list[int] = []
    for place, after in itertools.zip_longest(places, places[1:]):
        ends = after is None or after - place > line
        if not found or place - found[-1] >= line or ends and place != found[-1]:
            found.append(place)
    return found
