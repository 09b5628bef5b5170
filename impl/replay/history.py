"""Which expressions gave the results of a captured call, told again for each replay.

A gradient may be asked for of what a replay returned, though no Python ran that could have written
an expression. So the expressions of the captured call are kept, with *places* for all that a call
brings: its arguments, the tensors from outside, the random numbers. A replay notes beside each
result what stood in these places. Only who asks for a gradient has an expression made of the two.
Chapter: spec/replay.md.
"""
from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from impl.effects import Buffer
from impl.errors import GraphError
from impl.gradient import below, expression_of, leading_to, sources_of
from impl.gradient.custom import Custom, Ruled, lost, with_gradient
from impl.gradient.nodes import shown_value
from impl.gradient.substitution import substituted
from impl.ir import Ops, Shape, UOp, note_late, toposort
from impl.tensor.parameters import (
    dependent_bits,
    is_dependent,
    is_held,
    memory_of,
    needs_gradient,
    note_dependent,
    parameters_of,
    slope_sources,
)
from impl.tensor.random import generator

#: What stood in the places of a call, three entries for each: a weak reference to a buffer, its
#: version and the shape in which it was seen; or a node, or a number of the random counter.
Stood = Sequence[Any]
_CUSTOM = "a gradient of its own (custom_gradient, checkpoint, linalg, a kernel of one's own)"
_INNER = "a value that was computed inside and is not kept"
SIZES = "sizes that depend on a variable"
_GONE = "an argument that nobody holds any more"


class Expression:
    """What gave one result of a captured call: a graph on places, those of a call in the bit set
    `used`.

    The `places` of a call are shared by its results: the bit of each, the place, the list in which
    what stands there is found, and the number in it. `form` is a leaf of the result's shape; `lost`
    says why the graph cannot be told again, if it cannot. `depends`: whether the result depends on
    a parameter.
    """

    __slots__ = ("name", "root", "form", "used", "places", "lost", "depends")

    def __init__(self, name: str, root: UOp, form: UOp, used: int,
                 places: Sequence[tuple[int, UOp, int, int]], lost: str, depends: bool) -> None:
        self.name, self.root, self.form, self.used = name, root, form, used
        self.places, self.lost, self.depends = places, lost, depends

    def __call__(self, *standing: Stood) -> UOp:
        """The expression of one call, given what stood in the places."""
        leaves = {place: leaf for bit, place, part, number in self.places if self.used & bit and (
            leaf := _node(place, *standing[part][3 * number:3 * number + 3])) is not None}
        why = self.lost or (_GONE if len(leaves) < self.used.bit_count() else "")
        if not why:
            return substituted([self.root], leaves)[0]  # r[impl replay.gradient.eager]
        error = GraphError(
            "gradient", f"its way leads through what the captured function {self.name} returned, "
            f"and that has {why}", "take the gradient inside of the captured function, or call "
            f"{self.name}.function(...) there" + (", or keep the arguments in variables"
                                                  if why is _GONE else ""))
        return with_gradient(self.form, lost(tuple(leaves.values()), error, why is _GONE))

    def note(self, leaf: UOp, dependent: bool | int, held: bool, parts: Sequence[Stood],
             anew: bool = False) -> None:
        """A call has filled this leaf: see `Standing`. That of an argument which is returned as it
        is knows already what it was computed from. What the captured call made `anew` knows it of
        stand-ins.
        """
        known = self.root if anew else shown_value(self.root)
        if leaf.late is not None and known.op is Ops.BUFFER:
            return
        note_late(leaf, (self, self.depends, *parts))
        leaf.arg[0].told = leaf.arg[1]
        if dependent:
            note_dependent(leaf)


def _node(place: UOp, held: Any, version: int, shape: Shape) -> UOp | None:
    """What stood in a place; None if its memory is gone."""
    if isinstance(held, UOp):
        return held
    if isinstance(held, int):
        return generator.counters.bind(held)
    buffer = held()
    return None if buffer is None else UOp(Ops.BUFFER, place.dtype, (), (buffer, version, shape))


class Standing(NamedTuple):
    """What stood in the places of one call.

    `dependent`: an argument may depend on a parameter; `held`: something surely does, so that a
    result holds all that its gradient needs.
    """

    dependent: bool
    held: bool
    parts: Sequence[Stood]


class Expressions:
    """The expressions of what one call of a function made, on places for all that it was given.

    What stands in the places of a call is in three lists: for the arguments at `paths`, for
    `states`, leaves from outside, and for `draws`, bound variables of the random numbers. What is
    in `lasting` of these is needed by an expression of which the function overwrites nothing: only
    that is kept in memory for a gradient.
    `dependent`: a result depends on a parameter, of which `own` are the leaves. What parameters
    have become in a call that is not replayed are `current` nodes: they are kept as they are.
    """

    def __init__(self, name: str, leaves: Mapping[str, UOp], before: Iterable[UOp],
                 own: set[UOp], current: set[UOp]) -> None:
        self.name, self.own, self.dependent, self.current = name, own | current, False, current
        self.paths, self.states, self.draws = list[str](), list[UOp](), list[UOp]()
        self.expressions: dict[int, Expression] = {}  # by identity of the tensor
        self.lasting: tuple[list[bool], ...] = [], [], []
        self.given = {leaf: path for path, leaf in reversed([*leaves.items()])}
        self.before = self.given.keys() | set(before)
        self.known = {leaf.arg[0] for leaf in self.before}

    def add(self, roots: Mapping[int, UOp], told: set[int], sources: Mapping[Buffer, int],
            made: set[Buffer], lost: str) -> None:
        """Note the expressions of some tensors, by identity; of those that are not `told` only what
        they depend on, and so where there is something `lost`.

        `sources` are the buffers that a replay finds, and how often a call writes to each; `made`
        those that the call made.
        """
        ends = self.before | self.current
        order = below(roots.values(), ends=ends)
        inputs = _Inputs(order, ends)
        slopes = inputs.those(lambda node: node.dtype.kind == "f")
        own = set(inputs.in_set(slopes & inputs.those(
            lambda node: node in self.own or is_held(node))))
        for node in order:
            if not own.isdisjoint(slope_sources(node)):
                own.add(node)
        found = inputs.those(lambda node: node not in self.current and (
            node in self.given or node.op is Ops.BIND or node.arg[0] in sources))
        written = inputs.those(lambda node: node.op is Ops.BUFFER
                               and bool(sources.get(node.arg[0])))
        leads = leading_to(order, set(inputs.in_set(slopes)))
        reasons, used = self._lost(order, leads, sources, made), dict[int, tuple[int, str]]()
        leads |= own
        for key, root in roots.items():
            needed = inputs.below[root]
            if root.dtype.kind == "f" and root in leads and (key in told or root in own):
                why = lost or ("" if key in told else _INNER) or reasons.get(root, "")
                used[key] = needed & found & (slopes if why else -1), why
                self.dependent = self.dependent or root in own
        every = functools.reduce(operator.or_, [bits for bits, _ in used.values()], 0)
        lasting = functools.reduce(operator.or_, [bits for bits, why in used.values()
                                                  if not (why or bits & written)], 0)
        places = {node: self._place(node, bool(inputs.bits[node] & lasting))
                  for node in inputs.in_set(every)}
        standing = [(inputs.bits[node], *place) for node, place in places.items()]
        told_again = [key for key, (_, why) in used.items() if not why]
        graphs = dict(zip(told_again, substituted(
            [roots[key] for key in told_again], {**{node: node for node in self.current}, **{
                node: place[0] for node, place in places.items()}}, pure=True, anew=True),
            strict=True))
        for key, (bits, why) in used.items():
            root = roots[key]
            memory = memory_of(next(inputs.in_set(inputs.below[root] & slopes)))
            assert memory is not None
            device = memory.arg[0].device
            form = Buffer(device, root.dtype, 0).leaf(root.shape or ())
            self.expressions[key] = Expression(self.name, graphs.get(key, form), form, bits,
                                               standing, why, root in own)

    def _place(self, node: UOp, lasts: bool) -> tuple[UOp, int, int]:
        """The place of what a call brings, in which list it is found, and where in that."""
        part, kept = (0, self.paths) if node in self.given else \
            (2, self.draws) if node.op is Ops.BIND else (1, self.states)
        place = UOp(Ops.DEFINE_VAR, node.dtype, (), (f"draw#{len(kept)}", 0, 1)) if part == 2 \
            else node.arg[0].alike().leaf(node.shape)
        kept.append(self.given[node] if part == 0 else node)  # type: ignore[arg-type]
        self.lasting[part].append(lasts)
        return place, part, len(kept) - 1

    def _lost(self, order: Sequence[UOp], leads: set[UOp], sources: Mapping[Buffer, int],
              made: set[Buffer]) -> dict[UOp, str]:
        """The nodes of an order whose graphs cannot be told again, each with the first reason."""
        found: dict[UOp, str] = {}
        known, kept = made | self.known, self.given.keys() | self.current
        for node in order:
            before = node in self.before or node in self.current
            why = "" if before else next(
                (found[source] for source in sources_of(node) if source in found), "")
            if node.op is Ops.DETACH and node.tag is not None and node in leads \
                    and not isinstance(node.tag, Ruled):
                why = why or _CUSTOM
            elif node.op is Ops.BUFFER and node not in kept and (
                    node.arg[0] not in sources if before else
                    expression_of(node) is node and node.arg[0] in known):
                why = why or _INNER
            if why:
                found[node] = why
        return found

    def done(self) -> None:
        """All has been added: forget the graph of the capture."""
        self.given, self.before, self.known, self.own, self.current = {}, set(), set(), set(), set()

    def standing(self, given: Sequence[tuple[UOp, UOp]],
                 states: Sequence[tuple[UOp, Buffer, int]], begun: int, start: int) -> Standing:
        """What stands in the places of a call.

        Args:
            given: what each argument was, and the leaf that it is now.
            states: of each leaf from outside, the buffer and the version that stand there now.
            begun: where the random numbers of the capture began; `start`: where those of this call
                do.
        """
        # What depends on no parameter is held by nothing: most often no node is made.
        held = self.dependent or any(is_held(leaf) for _, leaf in given) \
            or any(buffer.bit & dependent_bits[0] and is_held(_seen(leaf, buffer, version))
                   for leaf, buffer, version in states) \
            or any(root is not leaf and needs_gradient(root) for root, leaf in given)
        found = [[each for (root, leaf), lasts in zip(given, self.lasting[0], strict=True)
                  for each in self.kept(root, leaf, held, lasts)],
                 [each for number, (_, buffer, version) in enumerate(states)
                  for each in self.of_state(number, buffer, version, held)],
                 self.drawn(begun, start)]
        return Standing(held or any(is_dependent(root) for root, _ in given), held, found)

    def of_state(self, number: int, buffer: Buffer, version: int, held: bool) -> Stood:
        """What stands in the place of a leaf from outside, by its number."""
        if not held:
            return buffer.reference(), version, self.states[number].arg[2]
        leaf = _seen(self.states[number], buffer, version)
        return self.kept(leaf, leaf, held, self.lasting[1][number])

    def kept(self, root: UOp, leaf: UOp, held: bool, lasts: bool) -> Stood:
        """What is kept of what stood in a place: the node; or what tells on which parameters it
        depended; or no more than where it was.
        """
        if held and lasts:
            return root, 0, ()
        buffer, version, shape = leaf.arg
        if root is not leaf:
            if not any(node.late is not None for node in toposort((root,))):
                return root, 0, ()
            buffer.told = version  # but by an expression that would keep all calls before
        if held and (is_held(leaf) if root is leaf else needs_gradient(root)):
            return self.overwritten(root, leaf), 0, ()
        return buffer.reference(), version, shape

    def overwritten(self, root: UOp, leaf: UOp) -> UOp:
        """What stands for a value that a replay overwrites, and nobody can tell again: a gradient
        with respect to a parameter that it depended on is an error.
        """
        # r[impl replay.gradient.eager]
        def pull(gradient: UOp) -> list[UOp | None]:
            raise GraphError(
                "gradient", f"its way leads through a value that the captured function {self.name} "
                "has overwritten", "take the gradient inside of the captured function, or give it, "
                "and keep in it, what is .detach()ed")
        buffer, _, shape = leaf.arg
        gone = buffer.alike()
        form = gone.leaf(shape)
        gone.version += 1  # whoever reads it is told that it was overwritten
        return with_gradient(form, Custom(tuple(parameters_of(root)), pull))

    def drawn(self, begun: int, start: int) -> Stood:
        """What stands in the places of random numbers, in a call that starts there."""
        return [each for bind in self.draws for each in (
            start - begun + int(bind.src[1].arg)
            if bind.src[0].arg[0].startswith("random#") else generator.key, 0, ())]


class _Inputs:
    """What each node of an order, sources first, is computed from: inputs, as a bit set."""

    def __init__(self, order: Sequence[UOp], ends: Container[UOp]) -> None:
        inputs = [node for node in order if node in ends or _is_draw(node)]
        self.bits = {node: 1 << number for number, node in enumerate(inputs)}
        self.below: dict[UOp, int] = {}
        for node in order:
            known = self.bits.get(node)
            self.below[node] = known if known is not None else functools.reduce(
                operator.or_, [self.below[source] for source in sources_of(node)], 0)

    def those(self, test: Callable[[UOp], bool]) -> int:
        """The set of inputs that pass a test."""
        return sum(bit for node, bit in self.bits.items() if test(node))

    def in_set(self, bits: int) -> Iterator[UOp]:
        """The inputs in a set, in their order."""
        return (node for node, bit in self.bits.items() if bits & bit)


def _seen(like: UOp, buffer: Buffer, version: int) -> UOp:
    """The leaf of a buffer that is seen as another one is."""
    return UOp(Ops.BUFFER, like.dtype, (), (buffer, version, like.arg[2]))


def _is_draw(node: UOp) -> bool:
    return node.op is Ops.BIND and str(node.src[0].arg[0]).startswith("random")
