"""A function of one example becomes one of many. Chapter: spec/transforms.md.

The function is traced on placeholders of the shape of one example. A walk over the graph then gives
every node that depends on them an axis more, in front; what does not depend on them stays as it is.
"""
from __future__ import annotations

import functools
import itertools
import math
from collections import ChainMap
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import replace
from typing import Any

from impl.dtypes import dtypes
from impl.effects import Placeholder
from impl.errors import ArgumentError, AxisError, GraphError, ShapeError
from impl.gradient import Custom, below, nodes
from impl.gradient.custom import with_gradient
from impl.gradient.loops import params_of, stored
from impl.gradient.nodes import shape_of, where
from impl.gradient.substitution import overwritten, substituted
from impl.host import np
from impl.ir import ELEMENTWISE, MOVEMENT, Ops, UOp, bound_parts, give_origin
from impl.loops import LoopInfo, body, on_host, outputs, param
from impl.symbolic import greatest
from impl.tensor import Tensor
from impl.tensor.random import generator
from impl.transforms.tracing import call_on_placeholders, placeholder
from impl.transforms.trees import Tree, of_function, refuse_no_function, spread_prefix


class Batch:
    """Gives nodes an axis for the examples, in front.

    `known` are the nodes that have one, each with what stands for it; `count` is how many examples
    there are. `draws` says which random numbers the function draws: from where, and how many.
    `within` is a batch whose nodes are known besides; it gets none of those that are made here.
    """

    def __init__(self, known: Mapping[UOp, UOp], count: int, draws: tuple[int, int] = (0, 0),
                 within: Batch | None = None) -> None:
        self.known: MutableMapping[UOp, UOp] = dict(known)
        if within is not None:
            self.known = ChainMap(self.known, within.known)
        self.count, self.draws = count, draws
        self.loops: dict[UOp, list[UOp]] = {}  # what comes out of a LOOP, by output
        self.through: int = 0 if within is None else within.through
        for node in known:
            self.through |= node.reads
        if draws[1] or not self.through:
            self.through = -1  # random numbers read no memory

    def of(self, roots: Sequence[UOp]) -> list[UOp | None]:
        """The roots with an axis more; None for one that is the same for all examples."""
        known = self.known
        for node in below(roots, self.through):
            if node in known or node.op is Ops.BUFFER:
                continue
            if self._draws(node):
                made: UOp | None = self._drawn(node)
            elif node.op is Ops.DETACH and node.tag is not None:
                made = self._custom(node)
            elif any(source in known for source in node.src) or \
                    node.op is Ops.AFTER and node.src[1].src[1] in known:
                made = self._made(node)
            else:
                continue
            if made is not None:
                known[node] = made
                if made.origin is None and node.origin is not None:
                    give_origin(made, node.origin)
        return [known.get(root) for root in roots]

    def whole(self, node: UOp) -> UOp:
        """A node with the axis, repeated along it where it is the same for all."""
        found = self.known.get(node)
        if found is not None:
            return found
        shape = shape_of(node)
        return nodes.expand(nodes.reshape(node, (1, *shape)), (self.count, *shape))

    def _made(self, node: UOp) -> UOp | None:
        op = node.op
        if op in ELEMENTWISE:
            return self._elementwise(node)
        if op is Ops.STORE:
            return None  # its AFTER looks at it
        rule = _RULES.get(op)
        if rule is None:
            raise GraphError("vmap", f"{op.name} has no rule for many examples", "report this")
        # r[impl transforms.batch.loop]
        return rule(self, node)

    def _elementwise(self, node: UOp) -> UOp:
        shape, sources = shape_of(node), []
        for source in node.src:
            mine, own = self.known.get(source), shape_of(source)
            if mine is None:
                # A number stands next to any shape, and stays one.
                sources.append(source if own == () else self.whole(source))
            elif own == () != shape:
                ones = nodes.reshape(mine, (self.count, *(1 for _ in shape)))
                sources.append(nodes.expand(ones, (self.count, *shape)))
            else:
                sources.append(mine)
        return UOp(node.op, node.dtype, tuple(sources), node.arg)

    def _custom(self, node: UOp) -> UOp | None:
        """A value with a gradient of its own: the gradient of many is that of each."""
        custom: Custom = node.tag
        if node.src[0] not in self.known and not any(i in self.known for i in custom.inputs):
            return None
        each_its_own = [each in self.known for each in custom.inputs]  # now: more become known

        def pull(gradient: UOp) -> list[UOp | None]:
            shape = shape_of(gradient)[1:]
            place = Placeholder(None, gradient.dtype, shape).leaf(shape)
            batch = Batch({place: gradient}, self.count, self.draws, self)
            found = custom.pull(place)
            made = iter(batch.of([part for part in found if part is not None]))
            whole = [None if part is None else (next(made), part) for part in found]
            parts = [None if each is None else batch.whole(each[1]) for each in whole]
            # What all examples have in common gets the sum of what each says.
            return [part if part is None or own else nodes.reshape(
                nodes.reduce(Ops.ADD, part, (0,)), shape_of(each))
                for part, each, own in zip(parts, custom.inputs, each_its_own, strict=True)]
        inputs = tuple(self.known.get(each, each) for each in custom.inputs)
        return with_gradient(self.whole(node.src[0]), Custom(inputs, pull))

    # Random numbers

    def _draws(self, node: UOp) -> bool:
        """Whether it is the place from which the function draws random numbers."""
        start, count = self.draws
        if not count or node.op is not Ops.CAST or node.src[0].op is not Ops.BIND:
            return False
        variable, value = bound_parts(node.src[0])
        return str(variable.arg[0]).startswith("random#") and start <= value < start + count

    def _drawn(self, node: UOp) -> UOp:
        """Each example draws behind those that the one before it draws, as in a loop."""
        # r[impl transforms.batch.random]
        along = nodes.cast(nodes.iota(self.count), node.dtype)
        return nodes.add(nodes.scale(along, self.draws[1]), node)

    # Operations

    def again(self, node: UOp, arg: Any) -> UOp:
        """The same operation on the first source, with another argument."""
        return UOp(node.op, node.dtype, (self.known[node.src[0]],), arg, node.tag)

    def moved(self, node: UOp) -> UOp:
        """A movement of the other axes."""
        op, arg, count = node.op, node.arg, self.count
        values = self.loops.get(node.src[0])
        if values is not None and op is Ops.SHRINK:
            loop: LoopInfo = node.src[0].arg
            for position, value in enumerate(values):
                if arg == ((loop.offsets[position], loop.offsets[position + 1]),):
                    return nodes.reshape(value, (count, math.prod(shape_of(value)[1:])))
        if op in (Ops.RESHAPE, Ops.EXPAND):
            arg = (count, *arg)
        elif op is Ops.PERMUTE:
            arg = (0, *(axis + 1 for axis in arg))
        elif op is Ops.PAD:
            arg = ((0, 0), *arg)
        elif op is Ops.SHRINK:
            arg = ((0, count), *arg)
        elif op is Ops.FLIP:
            arg = tuple(axis + 1 for axis in arg)
        else:
            arg = (arg[0] + 1, *arg[1:])
        if node.tag is not None or op is Ops.FOLD:
            return self.again(node, arg)
        return nodes.move(self.known[node.src[0]], op, arg)

    def scan(self, node: UOp) -> UOp:
        """Running results along another axis than the examples."""
        op, axis, *keys = node.arg
        return UOp(Ops.SCAN, node.dtype, tuple(map(self.whole, node.src)), (op, axis + 1, *keys))

    def gather(self, node: UOp) -> UOp:
        """Rows by their numbers: of one table, or of one for each example."""
        values, index = node.src
        rank = len(shape_of(index))
        if values not in self.known:
            return UOp(Ops.GATHER, node.dtype, (values, self.known[index]))
        table = self.known[values]
        if index not in self.known:
            found = UOp(Ops.GATHER, node.dtype, (_behind_first(table), index))
            order = (rank, *range(rank), *range(rank + 1, len(shape_of(found))))
            return nodes.permute(found, order)
        count, rows, *rest = shape_of(table)
        flat = nodes.reshape(table, (count * rows, *rest))
        return UOp(Ops.GATHER, node.dtype, (flat, self._rows(self.known[index], rows)))

    def _rows(self, index: UOp, rows: int) -> UOp:
        """Row numbers of each example's table, in all tables behind each other."""
        shape = shape_of(index)
        wide = dtypes.int64 if index.dtype.itemsize == 8 or index.dtype is dtypes.uint32 \
            or greatest(self.count * rows) > dtypes.int32.max else dtypes.int32
        index = nodes.cast(index, wide)
        along = nodes.cast(nodes.iota_along(self.count, 0, len(shape)), wide)
        first = nodes.mul(nodes.expand(along, shape), nodes.scalar(wide, rows))
        inside = UOp(Ops.AND, dtypes.bool, (
            UOp(Ops.CMPLE, dtypes.bool, (UOp.const(wide, 0), index)),
            UOp(Ops.CMPLT, dtypes.bool, (index, nodes.scalar(wide, rows)))))
        return where(inside, nodes.add(index, first), UOp.const(wide, -1))

    def scatter(self, node: UOp) -> UOp:
        """Rows that are written by number: in one table, or in one for each example."""
        base, index, values = node.src
        if index not in self.known:
            parts = _behind_first(self.whole(base)), index, _behind_first(self.whole(values))
            return _behind_first(UOp(Ops.SCATTER, node.dtype, parts, node.arg))
        tables = self.whole(base)
        count, rows, *rest = shape_of(tables)
        many = count * shape_of(index)[0]
        made = UOp(Ops.SCATTER, node.dtype, (
            nodes.reshape(tables, (count * rows, *rest)),
            nodes.reshape(self._rows(self.known[index], rows), (many,)),
            nodes.reshape(self.whole(values), (many, *rest))), node.arg)
        return nodes.reshape(made, shape_of(tables))

    def shard(self, node: UOp) -> UOp:
        """The examples are on every device of the mesh; other axes are cut as they were."""
        return self.again(node, replace(node.arg, axes=(None, *node.arg.axes)))

    def loop(self, node: UOp) -> UOp:
        """All examples run together. A choice for each of them becomes a choice of values."""
        loop: LoopInfo = node.arg
        if loop.kind == "host":
            values = self._hosted(node, loop)
        elif loop.kind == "cond" and node.src[0] in self.known:
            values = self._chosen(node, loop)
        else:
            values = self._looped(node, loop)
        self.loops[node] = values
        rows = [nodes.reshape(value, (self.count, math.prod(shape_of(value)[1:])))
                for value in values]
        return _side_by_side(rows)

    def _hosted(self, node: UOp, loop: LoopInfo) -> list[UOp]:
        """A function of NumPy gets the matrices of all examples."""
        forms = [(root.dtype, (self.count, *shape_of(root))) for root in loop.roots]
        made = on_host(loop.call, [stored(self.whole(source)) for source in node.src], forms)
        return [made[root] for root in loop.outputs]

    def _chosen(self, node: UOp, loop: LoopInfo) -> list[UOp]:
        """Both bodies, and of each example the one that it asks for."""
        params = params_of(loop, node.src)
        replaced = dict(zip(params, node.src, strict=True))
        both = [[graph.src[root] for root in loop.outputs] for graph in loop.bodies]
        made = substituted([*both[0], *both[1]], replaced)
        self.of([*made])
        count = len(loop.outputs)
        found = []
        for first, second in zip(made[:count], made[count:], strict=True):
            one, other = self.whole(first), self.whole(second)
            ones = nodes.reshape(self.known[node.src[0]], (self.count, *(
                1 for _ in shape_of(one)[1:])))
            found.append(where(nodes.expand(ones, shape_of(one)), one, other))
        return found

    def _looped(self, node: UOp, loop: LoopInfo) -> list[UOp]:
        """The loop with bodies of many examples: first it is found out which carries differ."""
        sources, params = node.src, params_of(loop, node.src)
        many = {slot for slot, source in enumerate(sources) if source in self.known}
        rows = range(loop.carries, loop.carries + loop.sequences)
        own = loop.carries if loop.kind == "while" else 0
        while True:
            marks = {slot: mark_of(self.count, params[slot]) for slot in many}
            inner = Batch({params[slot]: marks[slot] for slot in many}, self.count)
            inner.through = -1
            inner.of([root for graph in loop.bodies for root in graph.src])
            asks = loop.bodies[0].src[0]
            some = {slot for slot in range(loop.carries) if loop.roots[slot] in inner.known}
            if own and asks in inner.known:  # those that have ended stay as they are
                some = set(range(loop.carries))
            if some <= many:
                break
            many |= some
        bodies = [list(graph.src) for graph in loop.bodies]
        differs = [root in inner.known or root_number < loop.carries and root_number in many
                   for root_number, root in enumerate(loop.roots)]
        if loop.kind == "cond":
            differs = [any(graph.src[n] in inner.known for graph in loop.bodies)
                       for n in range(len(loop.roots))]
        made = [[inner.whole(root) if differs[n] else root for n, root in enumerate(roots)]
                for roots in bodies]
        if own:
            made[0] = [asks]
            if asks in inner.known:
                made[0], made[1] = self._until_all(inner, asks, made[1], marks)
        into = []
        for slot, source in enumerate(sources):
            if slot not in many:
                into.append(stored(source))
            elif slot in rows:  # rows in front, examples behind
                into.append(stored(_behind_first(self.whole(source))))
            else:
                into.append(stored(self.whole(source)))
        renamed = {marks.get(slot, params[slot]): param(slot, marks.get(slot, params[slot]))
                   for slot in range(len(sources))}
        graphs = tuple(body(substituted(roots, renamed)) for roots in made)
        values = outputs(replace(loop, bodies=graphs), into, loop.outputs)
        found = []
        for root in loop.outputs:
            value = values[root]
            if not differs[root]:
                shape = shape_of(value)
                value = nodes.expand(nodes.reshape(value, (1, *shape)), (self.count, *shape))
            elif loop.kind == "scan" and root >= loop.carries:
                value = _behind_first(value)
            found.append(value)
        return found

    def _until_all(self, inner: Batch, asks: UOp, following: list[UOp],
                   marks: Mapping[int, UOp]) -> tuple[list[UOp], list[UOp]]:
        """A loop that goes on as long as one example does, which alone goes on then."""
        goes = inner.known[asks]
        chosen = []
        for slot, value in enumerate(following):
            ones = nodes.reshape(goes, (self.count, *(1 for _ in shape_of(value)[1:])))
            chosen.append(where(nodes.expand(ones, shape_of(value)), value, marks[slot]))
        some = nodes.reduce(Ops.MAXIMUM, nodes.cast(goes, dtypes.uint8), (0,))
        return [nodes.reshape(nodes.cast(some, dtypes.bool), ())], chosen

    def after(self, node: UOp) -> UOp:
        """A write: a choice of the region, of each example. No memory is written."""
        base, (view, value) = node.src[0], node.src[1].src
        if base not in self.known:
            # The way of the view is that of one example.
            self.known[base] = self.whole(base)
        path, walk = [], view
        while walk is not base:
            path.append(walk)
            walk = walk.src[0]
        own = Batch({base: self.known[base]}, self.count)
        own.through = -1
        for step in reversed(path):
            own.known[step] = own.moved(step)
        return overwritten(own.known[base], own.known[view], own.known[base], self.whole(value))


def mark_of(count: int, like: UOp) -> UOp:
    """What stands in a body for a value that every example has for itself."""
    return param(next(_marks), None, like.dtype, (count, *shape_of(like)))


_marks = itertools.count(1 << 62)


def _side_by_side(rows: Sequence[UOp]) -> UOp:
    """Rows of all examples, joined along the second axis."""
    total = sum(shape_of(row)[1] for row in rows)
    joined, start = rows[0], shape_of(rows[0])[1]
    for row in rows[1:]:
        width = shape_of(row)[1]
        left = nodes.pad(joined, ((0, 0), (0, width)))
        right = nodes.pad(row, ((0, 0), (start, 0)))
        place = nodes.expand(nodes.iota_along(start + width, 1, 2), shape_of(left))
        first = UOp(Ops.CMPLT, dtypes.bool, (place, UOp.const(place.dtype, start)))
        joined, start = where(first, left, right), start + width
    assert start == total
    return joined


def _behind_first(x: UOp) -> UOp:
    """The first two axes change places."""
    return nodes.permute(x, (1, 0, *range(2, len(shape_of(x)))))


Rule = Callable[[Batch, UOp], UOp]
_RULES: dict[Ops, Rule] = {
    **{Ops(op): Batch.moved for op in MOVEMENT}, Ops.FOLD: Batch.moved,
    Ops.REDUCE: lambda batch, node: batch.again(
        node, (node.arg[0], tuple(axis + 1 for axis in node.arg[1]))),
    Ops.SCAN: Batch.scan, Ops.GATHER: Batch.gather, Ops.SCATTER: Batch.scatter,
    Ops.CONTIGUOUS: lambda batch, node: batch.again(node, None),
    Ops.COPY: lambda batch, node: batch.again(node, node.arg),
    Ops.SHARD: Batch.shard, Ops.AFTER: Batch.after, Ops.LOOP: Batch.loop,
}


def vmap(function: Callable[..., Any], in_axes: Any = 0, out_axes: Any = 0,
         randomness: str = "different", axis_size: int | None = None, *,
         in_dims: Any = None, out_dims: Any = None) -> Callable[..., Any]:
    """The function of many examples, from that of one.

    Args:
        function: is called once, on tensors of the shape of one example.
        in_axes: which axis of each argument has the examples; None where all have the same, as with
            a number. An array is a tensor. One for all arguments, or a tuple with one for each; of
            a container, one for all tensors that are in it, or the same containers.
        out_axes: where the results have that axis.
        randomness: "different": every example draws random numbers of its own, those that it
            would draw in a loop. "same": all draw the same. "error": none may be drawn.
        axis_size: how many examples there are, where no argument has them.
        in_dims: another name of in_axes.
        out_dims: another name of out_axes.

    Raises:
        ArgumentError: the axes do not fit the arguments, or no argument has examples.
        ShapeError: arguments have different numbers of examples.
        TraceError: the function asks for a value of one example.
    """
    given_axes = in_axes if in_dims is None else in_dims
    result_axes = out_axes if out_dims is None else out_dims
    if randomness not in ("different", "same", "error"):
        raise ArgumentError("vmap", f"randomness is {randomness!r}",
                            'use "different", "same" or "error"')

    refuse_no_function("vmap", function)

    @functools.wraps(function)
    def mapped_function(*args: Any, **kwargs: Any) -> Any:
        tree, named = Tree(list(args), arrays=True), Tree(kwargs, arrays=True)
        axes = [*_axes_of(given_axes, tree.filled(tree.leaves)), *(0 for _ in named.leaves)]
        leaves = tree.leaves + named.leaves
        places = [None if axis is None else _axis(leaf, axis)
                  for leaf, axis in zip(leaves, axes, strict=True)]
        count = _count(leaves, places, axis_size, function)
        stand_ins, known = [], {}
        for leaf, place in zip(leaves, places, strict=True):
            if place is None:
                stand_ins.append(leaf)
                continue
            shape = leaf.shape[:place] + leaf.shape[place + 1:]
            stand_in = placeholder(leaf, shape, "vmap")
            order = (place, *(a for a in range(len(leaf.shape)) if a != place))
            known[stand_in.uop] = nodes.permute(leaf.uop, order)
            stand_ins.append(stand_in)
        start = generator.counter
        cut = len(tree.leaves)
        returned = call_on_placeholders("vmap", known.keys(), function,
                                        *tree.filled(stand_ins[:cut]),
                                        **named.filled(stand_ins[cut:]))
        drawn = generator.counter - start
        if drawn and randomness == "error":
            raise ArgumentError("vmap", f"{of_function(function)} draws random numbers",
                                'say randomness="different" or randomness="same"')
        if randomness == "same":
            drawn = 0
        generator.reserve(drawn * (int(count) - 1) if count else 0)
        results = Tree(returned, numbers=True)
        batch = Batch(known, count, (start, drawn))
        batch.of([leaf.uop for leaf in results.leaves])
        made = []
        where_to = spread_prefix(result_axes, results.filled(results.leaves), "vmap")
        for leaf, axis in itertools.zip_longest(results.leaves, where_to):
            made.append(_laid(leaf, batch, axis))
        return results.filled(made)
    return mapped_function


def _axes_of(axes: Any, args: list[Any]) -> list[Any]:
    if isinstance(axes, (list, tuple)) and len(axes) != len(args):
        # r[impl transforms.arguments.refused+2]
        raise ArgumentError("vmap", f"in_axes is {axes!r}, and the call has {len(args)} arguments",
                            "give one axis for all, or one for each")
    for number, given in enumerate(args):
        axis = axes[number] if isinstance(axes, (list, tuple)) else axes
        if isinstance(given, (bool, int, float, np.generic)) and axis is not None:
            raise ArgumentError("vmap", f"axis {axis!r} is said of the number {given!r}",
                                "say None in in_axes where all examples have the same")
    return list(spread_prefix(axes, args, "vmap"))


def _axis(leaf: Tensor, axis: Any) -> int:
    rank = len(leaf.shape)
    if not isinstance(axis, int) or isinstance(axis, bool) or not -rank <= axis < rank:
        raise AxisError("vmap", f"axis {axis!r} of an argument of shape {leaf.shape}",
                        "name the axis of the examples in in_axes, or None where all have the same")
    return axis % rank


def _count(leaves: Sequence[Tensor], places: Sequence[int | None], asked: int | None,
           function: Callable[..., Any]) -> int:
    """How many examples there are."""
    sizes = [leaf.shape[place] for leaf, place in zip(leaves, places, strict=True)
             if place is not None]
    if asked is not None:
        sizes.append(asked)
    if not sizes:
        raise ArgumentError("vmap", f"no argument of {of_function(function)} has examples",
                            "say which axis has them: in_axes=, or how many: axis_size=")
    for size in sizes[1:]:
        if size != sizes[0]:
            raise ShapeError("vmap", f"arguments have {sizes[0]} and {size} examples",
                             "give as many in each, and None in in_axes where all have the same")
    return sizes[0]


def _laid(leaf: Tensor, batch: Batch, axis: Any) -> Tensor:
    """A result with the axis of the examples where it was asked for."""
    if axis is None:
        if leaf.uop in batch.known:
            raise ArgumentError("vmap", "out_axes is None for a result that differs from example "
                                "to example", "give it an axis")
        return leaf
    node = batch.whole(leaf.uop)
    rank = len(shape_of(node))
    if not isinstance(axis, int) or not -rank <= axis < rank:
        raise AxisError("vmap", f"out_axes is {axis!r} for a result of {rank} axes",
                        f"use -{rank} to {rank - 1}")
    order = list(range(1, rank))
    order.insert(axis % rank, 0)
    return leaf._wrap(nodes.permute(node, tuple(order)))
