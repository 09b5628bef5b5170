"""Derivatives of what is repeated or chosen when it runs. Chapter: spec/loops.md.

The derivative of a LOOP is a LOOP, whose body is the derivative of the body. Backwards it runs from
the last step to the first, on the carries that every step began with.
"""
from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from math import prod

from impl.effects import constant_of
from impl.errors import GraphError
from impl.gradient import compute_gradients, nodes
from impl.gradient.forward import FORWARD, Change, push_forward
from impl.gradient.nodes import add
from impl.gradient.rules import loop_rules
from impl.gradient.substitution import substituted
from impl.ir import Ops, UOp, toposort
from impl.loops import LoopInfo, body, output_of, outputs, param
from impl.symbolic import greatest, is_symbolic

Parts = Iterator[tuple[UOp, UOp]]


def is_float(node: UOp) -> bool:
    """Whether there is a derivative with respect to it."""
    return node.dtype.kind == "f"


@dataclass
class Steps:
    """A scan in the making: what goes in, each with what stands for it in the body."""

    carries: list[tuple[UOp, UOp]]    # PARAM and source
    sequences: list[tuple[UOp, UOp]]
    constants: list[tuple[UOp, UOp]]

    def made(self, following: Sequence[UOp], stacked: Sequence[UOp], count: int,
             reverse: bool) -> tuple[LoopInfo, list[UOp]]:
        """The loop and its sources. Behind what is stacked stand products, and the carries before
        each step: a derivative asks for them.
        """
        every = [*self.carries, *self.sequences, *self.constants]
        renamed = {old: param(slot, old) for slot, (old, _) in enumerate(every)}
        before = [mark for mark, _ in self.carries]
        kept = self._products([*following, *stacked])
        roots = substituted([*following, *stacked, *kept, *before], renamed)
        loop = LoopInfo("scan", (body(roots),), (), len(self.carries), len(self.sequences), count,
                    reverse)
        return loop, [stored(source) for _, source in every]


    def _products(self, roots: Sequence[UOp]) -> list[UOp]:
        """The sums of products in a step that are few numbers and change with its carries."""
        # r[impl loops.gradient.kept]
        depends = {mark for mark, _ in self.carries}
        most = _MOST_KEPT * sum(_elements(mark) for mark in depends)
        found = []
        for node in toposort(roots):
            if any([source in depends for source in node.src]):
                depends.add(node)
                if node.op is Ops.REDUCE and node.arg[0] is Ops.ADD and is_float(node) \
                        and node.src[0].op is Ops.MUL and node not in roots \
                        and _LEAST_SUM * _elements(node) <= _elements(node.src[0]) \
                        and not any(map(is_symbolic, node.shape or ())):
                    found.append(node)
        return found if sum(map(_elements, found)) <= most else []


#: Sums of fewer products are computed again.
_LEAST_SUM = 16
#: So many times the elements of the carries may be kept of a step besides.
_MOST_KEPT = 4


def stored(source: UOp) -> UOp:
    """What goes into a loop, such that it has memory: a number has none of its own."""
    number = constant_of(source) is not None
    return UOp(Ops.CONTIGUOUS, source.dtype, (source,)) if number else source


_marks = iter(range(1 << 40, 1 << 62))


def mark(like: UOp, row: bool = False) -> UOp:
    """A PARAM that no body has: it gets its number when the loop is made. Of a sequence, for a row.
    """
    shape = (like.shape or ())[1:] if row else like.shape or ()
    return param(next(_marks), None, like.dtype, shape)


def params_of(loop: LoopInfo, sources: Sequence[UOp]) -> list[UOp]:
    """What stands for each source in the bodies."""
    rows = range(loop.carries, loop.carries + loop.sequences)
    return [param(slot, None, source.dtype, (source.shape or ())[1:] if slot in rows
                  else source.shape or ()) for slot, source in enumerate(sources)]


def gradient_pieces(loop: LoopInfo, flat: UOp) -> dict[int, UOp]:
    """The gradient of a loop's value, cut as that is: by root. A root that has none is left out.

    It is a sum of what belongs to one root each, with zeros around; the zeros are not looked at.
    """
    terms, waiting = list[UOp](), [flat]
    while waiting:
        term = waiting.pop()
        if term.op is Ops.ADD:
            waiting += term.src[::-1]
        else:
            terms.append(term)
    found: dict[int, UOp] = {}
    for position, root in enumerate(loop.outputs):
        first, last = loop.offsets[position:position + 2]
        for term in terms:
            low, high = 0, loop.offsets[-1]
            if term.op is Ops.PAD:
                low, high = term.arg[0][0], high - term.arg[0][1]
            if high <= first or last <= low:
                continue
            row = term.src[0] if (low, high) == (first, last) and term.op is Ops.PAD \
                else nodes.shrink(term, ((first, last),))
            row = nodes.reshape(row, loop.root_shape(root))
            found[root] = row if root not in found else add(found[root], row)
    return found


def loop_gradient(node: UOp, gradient: UOp, leads: Set[UOp]) -> Parts:
    """The gradient of a LOOP, for each source that leads to a target."""
    loop: LoopInfo = node.arg
    if loop.kind == "while":
        raise GraphError("gradient", "a while_loop has no gradient: how often it runs is not known",
                         "use scan with a fixed number of iterations, or jvp")
    if loop.kind == "host":
        return  # what comes from the host says its own gradient, or has none
    rule = _scan_gradient if loop.kind == "scan" else _cond_gradient
    yield from rule(node, loop, gradient_pieces(loop, gradient), leads)


def _seeds(roots: Sequence[UOp], given: dict[int, UOp]) -> dict[UOp, UOp]:
    seeds: dict[UOp, UOp] = {}
    for number, gradient in given.items():
        root = roots[number]
        seeds[root] = gradient if root not in seeds else add(seeds[root], gradient)
    return seeds


# r[impl loops.gradient.reverse+2]
def _scan_gradient(node: UOp, loop: LoopInfo, given: dict[int, UOp], leads: Set[UOp]) -> Parts:
    """A scan the other way round, whose carries are the gradients of the carries, and sums."""
    sources, roots, carries = node.src, loop.roots, loop.carries
    params = params_of(loop, sources)
    behind = carries + loop.sequences
    floats = [slot for slot in range(carries) if is_float(params[slot])]
    wanted = [slot for slot in range(carries, len(sources))
              if sources[slot] in leads and is_float(params[slot])]
    back = {slot: mark(params[slot]) for slot in floats}
    along = {root: mark(part, row=True) for root, part in given.items() if root >= carries}
    found = compute_gradients(_seeds(roots, {**back, **along}),
                              [params[slot] for slot in (*floats, *wanted)])
    there = _stacked(node, loop)
    instead = {root: mark(root) for root in there}
    found = dict(zip(found, substituted(list(found.values()), instead), strict=True))

    def of(slot: int) -> UOp:
        return found.get(params[slot], nodes.full_like(params[slot], 0))
    rows = [slot for slot in wanted if slot < behind]
    later = _Later([*params[:behind], *along.values(), *instead.values()],
                   [of(slot) for slot in rows])
    for slot in sorted(wanted[len(rows):], key=lambda slot: -_elements(params[slot])):
        later.take(slot, of(slot))
    whole = [slot for slot in wanted[len(rows):] if slot not in later.sums]
    sums = {slot: mark(params[slot]) for slot in whole}
    following = [of(slot) for slot in floats] + [add(sums[slot], of(slot)) for slot in whole]
    needed = set(toposort([*following, *later.stacked]))
    saved = _saved(node, loop, [s for s in range(carries) if params[s] in needed | later.read])
    begun = [given.get(slot, nodes.full_like(params[slot], 0)) for slot in floats]
    begun += [nodes.full_like(params[slot], 0) for slot in whole]
    known = {**{params[slot]: before for slot, before in saved.items()},
             **{params[slot]: sources[slot] for slot in range(carries, behind)},
             **{along[root]: given[root] for root in along},
             **{instead[root]: there[root] for root in instead}}
    steps = Steps(
        list(zip([*back.values(), *sums.values()], begun, strict=True)),
        [(own, rows_of) for own, rows_of in known.items() if own in needed],
        [(params[slot], sources[slot]) for slot in range(behind, len(sources))
         if params[slot] in needed])
    made, into = steps.made(following, later.stacked, loop.count, not loop.reverse)
    asked = {number: slot for number, slot in enumerate([*floats, *whole, *rows])
             if sources[slot] in leads}
    kept = range(len(following), len(following) + len(later.stacked))
    values = outputs(made, into, sorted({*asked, *kept}))
    for number, slot in asked.items():
        yield sources[slot], values[number]
    known.update(zip(later.stacked, [values[each] for each in kept], strict=True))
    for slot, products in later.sums.items():
        terms = [product.summed(known, loop.count) for product in products]
        yield sources[slot], functools.reduce(add, terms)


class _Later:
    """Sums over all steps that are taken after the loop: the gradient of a matrix by which every
    step multiplies is then one product, of the rows of all steps.

    `rows` stand for what has a row for each step before the backward loop; `stacked` is what that
    loop stacks, and `read` which of the rows are read afterwards.
    """

    def __init__(self, rows: Iterable[UOp], stacked: Sequence[UOp]) -> None:
        self.rows, self.stacked = set(rows), list(stacked)
        self.read: set[UOp] = set()
        self.sums: dict[int, list[_Product]] = {}

    # r[impl loops.gradient.product]
    def take(self, slot: int, gradient: UOp) -> None:
        """Note the gradient of what all steps read, if what has to be stacked for it is smaller
        than what the loop would write in each step otherwise.
        """
        known, terms = self.rows | set(self.stacked), [gradient]
        while (first := terms[0]).op is Ops.ADD and first not in known:
            terms[:1] = first.src
        products = [_Product(term) for term in terms]
        leaves = {leaf for product in products for leaf in product.leaves}
        more = leaves - known
        if sum(map(_elements, more)) < _elements(gradient):
            self.sums[slot] = products
            self.stacked += dict.fromkeys(leaf for product in products for leaf in product.leaves
                                          if leaf in more)
            self.read |= leaves & self.rows


class _Product:
    """A term of a gradient: a product of values that are repeated and moved, summed and moved."""

    def __init__(self, term: UOp) -> None:
        self.outer, inner = _unmoved(term, (Ops.RESHAPE, Ops.PERMUTE, Ops.CAST))
        self.axes: tuple[int, ...] = ()
        self.inner = inner
        if inner.op is Ops.REDUCE and inner.arg[0] is Ops.ADD:
            self.axes, inner = inner.arg[1], inner.src[0]
        self.wide = inner.dtype
        if inner.op is Ops.CAST:
            inner = inner.src[0]
        spread = (Ops.RESHAPE, Ops.PERMUTE, Ops.CAST, Ops.EXPAND)
        self.factors = [_unmoved(part, spread) for part in inner.src] \
            if inner.op is Ops.MUL and inner.src[0].shape == inner.src[1].shape else []
        # A product of two values as large as itself is a value like any other.
        if sum(_elements(leaf) for _, leaf in self.factors) >= _elements(inner) \
                or not self.factors:
            self.factors = [_unmoved(inner, spread)]
        self.leaves = [leaf for _, leaf in self.factors]

    def summed(self, values: Mapping[UOp, UOp], count: int) -> UOp:
        """The sum over all steps, from what has a row for each."""
        factors = [_moved(values[leaf], path, (count,)) for path, leaf in self.factors]
        product = factors[0] if len(factors) == 1 else nodes.mul(*factors)
        axes = (0, *(axis + 1 for axis in self.axes))
        made = nodes.reduce(Ops.ADD, nodes.cast(product, self.wide), axes)
        return _moved(nodes.reshape(made, nodes.shape_of(self.inner)), self.outer)


def _elements(node: UOp) -> int:
    """How many elements it has, at most."""
    return prod(map(greatest, node.shape or ()))


def _unmoved(node: UOp, through: Sequence[Ops]) -> tuple[list[UOp], UOp]:
    """The value that a node repeats or moves, and the movements, the first one first."""
    path: list[UOp] = []
    while node.op in through and node.tag is None and node.src[0].dtype.kind == "f":
        path.insert(0, node)
        node = node.src[0]
    return path, node


def _moved(node: UOp, path: Sequence[UOp], front: tuple[int, ...] = ()) -> UOp:
    """The same movements of another value, which has some axes more in front."""
    for above in path:
        if above.op is Ops.CAST:
            node = nodes.cast(node, above.dtype)
        elif above.op is Ops.PERMUTE:
            more = len(front)
            node = nodes.permute(node, (*range(more), *(axis + more for axis in above.arg)))
        else:
            node = nodes.move(node, above.op, (*front, *above.arg))
    return node


def _saved(node: UOp, loop: LoopInfo, slots: Sequence[int]) -> dict[int, UOp]:
    """The carries that each step began with: from the node itself, if it has kept them."""
    first = len(loop.roots) - loop.carries
    have = {slot: output_of(node, loop.outputs.index(first + slot)) for slot in slots
            if first + slot in loop.outputs}
    more = outputs(loop, node.src, [first + slot for slot in slots if slot not in have])
    return {slot: have[slot] if slot in have else more[first + slot] for slot in slots}


def _stacked(node: UOp, loop: LoopInfo) -> dict[UOp, UOp]:
    """What a loop has computed in each step and stacked: the roots, and the rows of each."""
    # r[impl loops.gradient.kept]
    return {loop.roots[root]: output_of(node, place) for place, root in enumerate(loop.outputs)
            if root >= loop.carries and loop.roots[root].op not in (Ops.PARAM, Ops.CONST)}


def _cond_gradient(node: UOp, loop: LoopInfo, given: dict[int, UOp], leads: Set[UOp]) -> Parts:
    """A choice between the gradients."""
    sources, params = node.src, params_of(loop, node.src)
    wanted = [slot for slot, source in enumerate(sources) if source in leads and is_float(source)]
    coming = {root: param(len(sources) + number, part)
              for number, (root, part) in enumerate(given.items())}
    bodies = []
    for graph in loop.bodies:
        found = compute_gradients(_seeds(graph.src, coming), [params[slot] for slot in wanted])
        bodies.append(body([found.get(params[slot], nodes.full_like(params[slot], 0))
                            for slot in wanted]))
    made = LoopInfo("cond", tuple(bodies), ())
    values = outputs(made, [*sources, *(stored(part) for part in given.values())],
                     range(len(wanted)))
    for number, slot in enumerate(wanted):
        yield sources[slot], values[number]


def loop_change(node: UOp, given: Sequence[Change]) -> Change:
    """How the value of a LOOP changes with its sources: a loop that carries the changes too."""
    loop: LoopInfo = node.arg
    if not is_float(node) or loop.kind == "host":
        return None
    # r[impl loops.gradient.forward]
    sources, params = node.src, params_of(loop, node.src)
    changing = {slot: change for slot, change in enumerate(given) if change is not None}
    if loop.kind != "cond":
        for slot in range(loop.carries):
            if is_float(sources[slot]):
                changing.setdefault(slot, nodes.full_like(sources[slot], 0))
    rows = range(loop.carries, loop.carries + loop.sequences)
    marks = {slot: mark(params[slot]) for slot in changing}

    def changes(roots: Sequence[UOp]) -> list[UOp]:
        found = push_forward(roots, {params[slot]: marks[slot] for slot in changing})
        return [nodes.full_like(root, 0) if change is None else change
                for root, change in zip(roots, found, strict=True)]
    every = list(enumerate(sources))
    pairs = [(params[slot], source) for slot, source in every]
    more = [(slot, (marks[slot], changing[slot])) for slot in changing]
    if loop.kind == "cond":
        bodies = [changes([graph.src[root] for root in loop.outputs]) for graph in loop.bodies]
        return _joined("cond", bodies, [*pairs, *(pair for _, pair in more)])
    carried = [*pairs[:loop.carries], *(pair for slot, pair in more if slot < loop.carries)]
    floats = [slot for slot in changing if slot < loop.carries]
    behind = loop.carries + loop.sequences
    constants = [*pairs[behind:], *(pair for slot, pair in more if slot >= behind)]
    if loop.kind == "while":
        following = [*loop.roots, *changes([loop.roots[slot] for slot in floats])]
        made = renamed_loop("while", [[loop.bodies[0].src[0]], following], [*carried, *constants],
                        len(carried))
        places = [loop.carries + floats.index(root) for root in loop.outputs]
    else:
        kept = [root for root in loop.outputs if root >= loop.carries]
        following = [*loop.roots[:loop.carries], *changes([loop.roots[slot] for slot in floats])]
        stacked = changes([loop.roots[root] for root in kept])
        made = Steps(carried, [*(pairs[slot] for slot in rows),
                               *(pair for slot, pair in more if slot in rows)],
                     constants).made(following, stacked, loop.count, loop.reverse)
        places = [loop.carries + floats.index(root) if root < loop.carries
                  else len(following) + kept.index(root) for root in loop.outputs]
    return UOp(Ops.LOOP, node.dtype, tuple(made[1]), replace(made[0], outputs=tuple(places)))


def renamed_loop(kind: str, bodies: Sequence[Sequence[UOp]], pairs: Sequence[tuple[UOp, UOp]],
             carries: int) -> tuple[LoopInfo, list[UOp]]:
    """A loop whose bodies are on these pairs of what stands for a source and the source."""
    renamed = {old: param(slot, old) for slot, (old, _) in enumerate(pairs)}
    made = tuple(body(substituted(roots, renamed)) for roots in bodies)
    return LoopInfo(kind, made, (), carries), [stored(source) for _, source in pairs]


def _joined(kind: str, bodies: Sequence[Sequence[UOp]], pairs: Sequence[tuple[UOp, UOp]]) -> UOp:
    loop, sources = renamed_loop(kind, bodies, pairs, 0)
    wanted = tuple(range(len(bodies[0])))
    return UOp(Ops.LOOP, bodies[0][0].dtype, tuple(sources), replace(loop, outputs=wanted))


loop_rules.append(loop_gradient)
FORWARD[Ops.LOOP] = loop_change
