"""From values on a mesh to the one program that all its devices run. Chapter: spec/multi.md.

Needs the nodes of a schedule, sources first. Guarantees a graph of pieces: each node is what one
device computes, and COPY nodes with a `Transfer` are all that passes between devices. The number of
devices changes nothing but numbers in it.
"""
from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial

from impl.effects import leaf_of
from impl.gradient import nodes
from impl.ir import (
    ELEMENTWISE,
    MOVEMENT,
    Ops,
    Shape,
    UOp,
    identity,
    intern,
    line_of,
    note_origin,
)
from impl.multi.laying import copied_piece, leaf_piece, placed_piece
from impl.multi.merged import Merger
from impl.multi.mesh import Mesh, Sharding, Wish
from impl.multi.movement import (
    expanded_piece,
    flipped_piece,
    folded_piece,
    padded_piece,
    permuted_piece,
    reshaped_piece,
    shrunk_piece,
    unfolded_piece,
)
from impl.multi.operands import cheapest_sharding, due_price, elementwise_piece, widest
from impl.multi.pieces import (
    Piece,
    before_repeated,
    brought,
    count_brought,
    freed,
    in_words,
    inside,
    lifted,
    price,
    with_sources,
    with_whole,
)
from impl.multi.rolls import roll_of, rolled_pieces
from impl.multi.rows import gathered_rows, scattered_rows
from impl.multi.transfers import Axes, Transfer
from impl.places import copied_to
from impl.symbolic import is_symbolic, present

_CONST = Ops.CONST
_LAID = (Ops.SHARD, Ops.COPY, Ops.AFTER)


class Divider:
    """Finds the pieces of nodes, sources first."""

    def __init__(self) -> None:
        self.pieces: dict[UOp, Piece] = {}
        #: Which axes of values of some shape were gathered along an axis of the mesh, in order.
        self.gathered: dict[tuple[Shape, str], list[int]] = {}
        #: What a person is told: wishes that were not followed.
        self.notes: list[str] = []
        self.merger = Merger(self.pieces)

    def add(self, node: UOp) -> Piece:
        """The piece of a node whose sources have theirs."""
        # r[impl multi.value.equal, multi.program.one+2]
        found = self.pieces.get(node)
        if found is None:
            if node.op in ELEMENTWISE and node.realized is None:
                found = self.merger.known and self._unmerged(node) or self._alike(node)
            found = found or self._piece(node)
            origin = node.origin
            if origin is not None and found.node.origin is None:
                note_origin(found.node, origin)
            self.pieces[node] = found
        return found

    def _unmerged(self, node: UOp) -> Piece | None:
        """A value computed before axes were merged, if nothing is sent for that."""
        found = self.merger.replaced(node, self.add)
        return None if found is None else self.pieces[found]

    def _piece(self, node: UOp) -> Piece:
        op = node.op
        if op is Ops.STORE:
            return Piece(node, node.src[0].shape or ())  # its AFTER looks at it
        leaf = leaf_of(node)
        if leaf is not None:
            return leaf_piece(node, leaf)
        if op is Ops.BIND or not node.src:
            return Piece(node, node.shape or ())
        given = [self.pieces[source] for source in node.src]
        if op in _LAID:
            if op is Ops.AFTER:
                return self._write(node, given[0], self.pieces[node.src[1].src[1]])
            if op is Ops.COPY:
                return self._own_part(node) or copied_piece(node, given[0])
            wanted = node.arg
            return self._wished(node, given[0], wanted) if isinstance(wanted, Wish) \
                else placed_piece(given[0], wanted)
        mesh = _mesh_of(given)
        if mesh is None:
            return Piece(with_sources(node, [one.node for one in given]), node.shape or ())
        other = self._around(node) or self.merger.known and self._unmerged(node)
        if other:
            return other
        if node.op is Ops.SCATTER:
            given = self._rows_as_cut(node, given, mesh)
        if node.op is Ops.REDUCE and node.src[0].op in ELEMENTWISE:
            given = [self._to_be_reduced(node, mesh)]
        given = [one if one.sharding else lifted(one, mesh) for one in given]
        rule = _RULES.get(node.op)
        if rule is None:
            found = elementwise_piece(node, given)
            self._note_gathered(given, found.axes)
            return found
        found = rule(node, given)
        if rule is reshaped_piece and found.cuts < given[0].cuts:
            self.merger.merge(node)  # r[impl multi.reshape.merged]
        return self._as_gathered(found) if rule is _reduce else found

    def _alike(self, node: UOp) -> Piece | None:
        """An elementwise operation whose operands lie in one way, or on no mesh, as most do: there
        is no choice. None for others.
        """
        way, wide, alone, changed = None, False, False, False
        pieces, sources = self.pieces, list[UOp]()
        for source in node.src:  # this is hot
            one = pieces[source]
            local, sharding = one.node, one.sharding
            sources.append(local)
            if local is not source:
                changed = True
            if sharding is way is not None and not one.due or local.op is _CONST:
                continue
            if sharding is None:
                alone = True
            elif one.due:
                return None
            elif way is None or not wide:
                way, wide = sharding, bool(one.shape)
            elif one.shape and sharding.axes != way.axes:
                return None
        if alone and way is not None:
            return None
        found = node
        if changed:  # most often a new one
            found = intern((node.op, node.dtype, tuple(sources), node.arg, node.tag), node.arg)
        return Piece(found, node.shape or (), way)

    def _wished(self, node: UOp, given: Piece, wish: Wish) -> Piece:
        """A value as somebody would like it to lie, or as it lies, if that sends less."""
        if given.sharding is None or given.sharding.mesh != wish.mesh:
            return placed_piece(given, Sharding(wish.mesh, wish.axes))
        more = price(given, wish.axes) - price(given, given.axes)
        if more <= 0:  # r[impl multi.wish.followed]
            return brought(given, wish.axes)
        self.notes.append(f"{line_of(node.origin)}: a value of shape {given.shape} lies "
                          f"{in_words(given.axes)}, and not {in_words(wish.axes)} as was wished: "
                          f"each device would have to send {more} bytes more")
        return given

    def _own_part(self, node: UOp) -> Piece | None:
        """A copy to a device of the part that it has itself: nothing is put together for it."""
        view = node.src[0]
        source, bounds = view, tuple((0, size) for size in view.shape or ())
        if view.op is Ops.SHRINK and view.src[0] in self.pieces:
            source, bounds = view.src[0], view.arg
        whole, device = self.pieces[source], node.arg
        sharding = whole.sharding
        if sharding is None or device not in sharding.mesh.devices or "@" in device \
                or any(map(is_symbolic, whole.shape)):
            return None
        part = sharding.parts(whole.shape)[sharding.mesh.devices.index(device)]
        nothing = 0 in nodes.shape_of(view)  # wherever it is taken from
        if bounds != part and not (nothing and view.shape == tuple(b - a for a, b in part)):
            return None
        # r[impl multi.shards.own+2, multi.shards.held+2]
        here = copied_to(brought(whole, whole.axes).node, Transfer("own", device, sharding.mesh))
        shape = nodes.shape_of(node)
        return Piece(nodes.shrink(here, tuple((0, size) for size in shape)), shape)

    def _around(self, node: UOp) -> Piece | None:
        """A roll along an axis that is cut, if whole pieces go from device to device."""
        found = roll_of(node)
        if found is None:
            return None
        value, axis, shift = found
        one = self.pieces[value]
        if one.sharding is None or one.axes[axis] is None:
            return None
        one = brought(one, one.axes)
        assert one.sharding is not None
        moved = rolled_pieces(one.node, one.shape[axis], axis, shift, one.sharding)
        return None if moved is None else Piece(moved, one.shape, one.sharding)

    def _to_be_reduced(self, node: UOp, mesh: Mesh) -> Piece:
        """The source of a reduction, an elementwise operation, where what becomes due counts."""
        source = node.src[0]
        found = self.pieces[source]
        if leaf_of(source) is not None or present[0] and any(map(is_symbolic, found.shape)):
            return found
        operands = [lifted(self.pieces[each], mesh) for each in source.src]
        lying = tuple([one.axes for one in operands if one.shape])
        if not lying or lying.count(lying[0]) == len(lying):
            return found
        first, choices = found.axes, widest(mesh, lying)
        if choices == [first]:
            return found
        for one in operands:  # that it was brought so is no reason to do it again
            count_brought(one, first, -1)
        axes = cheapest_sharding(operands, choices, partial(due_price, node, mesh))
        if axes == first:
            for one in operands:
                count_brought(one, first, 1)
            return found
        found = elementwise_piece(source, operands, axes)
        self._note_gathered(operands, axes)
        return found

    def _rows_as_cut(self, node: UOp, given: list[Piece], mesh: Mesh) -> list[Piece]:
        """The operands of a scatter. Where its rows were several axes, of which not the first is
        cut, that one goes before the others: so each device combines its own. Rows may come in any
        order, if they are combined.
        """
        if node.arg is None or any(each.op is not Ops.RESHAPE or leaf_of(each) is not None
                                   for each in node.src[1:]):
            return given
        index, rows = (lifted(self.pieces[each.src[0]], mesh) for each in node.src[1:])
        cut = next((a for a, name in enumerate(rows.axes) if name is not None), 0)
        if any(map(is_symbolic, rows.shape)) or cut >= len(index.shape) \
                or rows.shape != (*index.shape, *given[2].shape[1:]) \
                or math.prod(index.shape[:cut]) == 1:
            return given
        found = given[:1]
        for one, each in zip((index, rows), node.src[1:], strict=True):
            order = (cut, *[a for a in range(len(one.shape)) if a != cut])
            turned = nodes.permute(each.src[0], order)  # r[impl multi.scatter.rows]
            found.append(reshaped_piece(nodes.reshape(turned, nodes.shape_of(each)),
                                  [permuted_piece(turned, [one])]))
            count_brought(one, with_whole(one.axes, cut), -1)  # nobody asks for what was gathered
        return found

    def _note_gathered(self, operands: Sequence[Piece], axes: Axes) -> None:
        """Remember which axes of values were put together for an operation, and not before."""
        for one in operands:
            wanted = axes if one.narrow is None else before_repeated(one, axes)
            one = one.narrow or one
            if one.brought_to is None or one.brought_to.get(wanted, (None, None, 0))[2] != 1:
                continue
            for axis, name in enumerate(one.axes):
                if name is not None and name not in wanted:
                    self.gathered.setdefault((one.shape, name), []).append(axis)

    def _as_gathered(self, given: Piece) -> Piece:
        """What is due of a value, where one of its shape was gathered, is scattered as that one
        lay: it is the gradient of it, most often, and gradients come in the opposite order. If it
        is needed as a whole, no more is sent than if it had been combined at once.
        """
        if len(given.due) != 1 or given.sharding is None:
            return given
        name, axes = given.due[0][0], list(given.axes)
        known = self.gathered.get((given.shape, name))
        if not known:
            return given
        axis = known.pop() if len(known) > 1 else known[0]
        if axes[axis] is not None or given.shape[axis] % given.sharding.mesh.extent(name):
            return given
        axes[axis] = name  # r[impl multi.due.gathered+2]
        return brought(given, tuple(axes))

    def _write(self, node: UOp, base: Piece, value: Piece) -> Piece:
        """A write: each device writes what it holds of the region.

        Through a view that cuts an axis that is cut already, the whole value is put together, the
        region is replaced, and each device keeps its part.
        """
        view = node.src[1].src[0]
        if base.sharding is None and value.sharding is None:
            # That the view may have been computed, as a value, says nothing of the place.
            return Piece(_written(base.node, _viewed(base.node, view, node.src[0]), value.node),
                         base.shape)
        mesh = (base.sharding or value.sharding).mesh  # type: ignore[union-attr]
        base, value = lifted(base, mesh), lifted(value, mesh)
        # r[impl multi.write.region]
        region = base if view is node.src[0] else _region(base, view, node.src[0])
        if region is None:
            whole = brought(base, (None,) * len(base.shape))
            copy = UOp(Ops.CONTIGUOUS, whole.node.dtype, (whole.node,))
            seen = _viewed(copy, view, node.src[0])
            given = brought(value, (None,) * len(value.shape)).node
            value = Piece(_written(copy, seen, given), base.shape,
                          Sharding.copies(mesh, len(base.shape)))
            region = base
        given = brought(value, region.axes).node
        return Piece(_written(base.node, region.node, given), base.shape, base.sharding)


def _region(base: Piece, view: UOp, old: UOp) -> Piece | None:
    """What each device has of a view of a value, where it lies; None if something were sent."""
    seen = base
    for step in reversed(_steps(view, old)):
        seen = _RULES[step.op](step, [seen])
    below = seen.node
    while below is not base.node and below.op in MOVEMENT:
        below = below.src[0]
    return seen if below is base.node else None


def _steps(view: UOp, old: UOp) -> list[UOp]:
    """The movement operations of a view, the last one first."""
    found = list[UOp]()
    while view is not old:
        found.append(view)
        view = view.src[0]
    return found


def _written(base: UOp, region: UOp, value: UOp) -> UOp:
    """The next version of a piece."""
    return UOp(Ops.AFTER, base.dtype, (base, UOp(Ops.STORE, base.dtype, (region, value))))


def _viewed(base: UOp, view: UOp, old: UOp) -> UOp:
    """The view of another base."""
    for step in reversed(_steps(view, old)):
        base = UOp(step.op, base.dtype, (base,), step.arg)
    return base


def _mesh_of(given: Sequence[Piece]) -> Mesh | None:
    """The mesh of the first that is on one."""
    for one in given:
        if one.sharding is not None:
            return one.sharding.mesh
    return None


def _reduce(node: UOp, given: list[Piece]) -> Piece:
    """Each device combines what it has; along an axis that is cut, the rest is due."""
    op, axes = node.arg
    one = brought(given[0], given[0].axes)
    assert one.sharding is not None
    source, due = one.node, list[tuple[str, Ops]]()
    for axis in axes:
        name = one.axes[axis]
        if name is None:
            continue
        due.append((name, op))
        mask = inside(one, axis)
        if mask is not None:  # r[impl multi.uneven.masked]
            neutral = nodes.full_like(source, identity(op, source.dtype))
            source = nodes.where(mask, source, neutral)
    kept = tuple(None if axis in axes else name for axis, name in enumerate(one.axes))
    return Piece(UOp(Ops.REDUCE, node.dtype, (source,), node.arg), nodes.shape_of(node),
                 one.sharding.along(kept), tuple(due))


def _same_axes(node: UOp, given: list[Piece]) -> Piece:
    """What changes no axis."""
    one = brought(given[0], given[0].axes)
    return Piece(with_sources(node, [one.node]), one.shape, one.sharding)


def _scan(node: UOp, given: list[Piece]) -> Piece:
    one = freed(given[0], [node.arg[1]])
    others = [brought(other, one.axes).node for other in given[1:]]
    return Piece(with_sources(node, [one.node, *others]), one.shape, one.sharding)


def _whole(node: UOp, given: list[Piece]) -> Piece:
    """Every device runs a loop, or a kernel of the user, on all of what goes in."""
    # r[impl loops.value.equal+2, custom.value.equal]
    whole = [brought(one, (None,) * len(one.shape)) for one in given]
    mesh = next(one.sharding.mesh for one in whole if one.sharding is not None)
    return Piece(with_sources(node, [one.node for one in whole]), nodes.shape_of(node),
                 Sharding.copies(mesh, len(nodes.shape_of(node))))


_RULES: dict[Ops, Callable[[UOp, list[Piece]], Piece]] = {
    Ops.REDUCE: _reduce, Ops.PERMUTE: permuted_piece, Ops.RESHAPE: reshaped_piece,
    Ops.EXPAND: expanded_piece, Ops.PAD: padded_piece, Ops.SHRINK: shrunk_piece,
    Ops.FLIP: flipped_piece, Ops.UNFOLD: unfolded_piece, Ops.FOLD: folded_piece,
    Ops.GATHER: gathered_rows, Ops.SCATTER: scattered_rows, Ops.SCAN: _scan, Ops.LOOP: _whole,
    Ops.CUSTOM: _whole, Ops.CONTIGUOUS: _same_axes,
}
