"""The same index on other nodes, simplified again. Chapter: spec/symbolic.md."""
from __future__ import annotations

from collections.abc import Callable, Mapping

from impl.dtypes import dtypes
from impl.ir import Ops, UOp, toposort
from impl.symbolic.arithmetic import add, floordiv, mod, mul, sub
from impl.symbolic.bounds import Bounds, bounds
from impl.symbolic.comparison import (
    conjuncts,
    equal,
    less_equal,
    less_than,
    limit_of,
    logical_and,
)
from impl.symbolic.terms import sum_of, term_order, terms_of

_ADD, _MUL, _AND, _CMPLT, _DEFINE_VAR = Ops.ADD, Ops.MUL, Ops.AND, Ops.CMPLT, Ops.DEFINE_VAR
_index, _bool = dtypes.index, dtypes.bool


_BUILDERS: dict[Ops, Callable[..., UOp]] = {
    Ops.ADD: add, Ops.SUB: sub, Ops.MUL: mul, Ops.FLOORDIV: floordiv, Ops.FLOORMOD: mod,
    Ops.CMPLT: less_than, Ops.CMPLE: less_equal, Ops.CMPEQ: equal}


def rebuild(node: UOp, replacements: Mapping[UOp, UOp] | None = None) -> UOp:
    """The graph with nodes replaced, built again with the functions above, so simplified again.

    Use it to put `outer * 16 + inner` in the place of a loop variable. Nodes that are not index
    arithmetic stay as they are, on new sources (r[symbolic.rewriting.equal]).
    """
    done: dict[UOp, UOp] = dict(replacements or {})  # r[impl symbolic.rewriting.equal]
    for part in toposort((node,), lambda u: u not in done):
        if part not in done:
            done[part] = _rebuilt(part, tuple(done[s] for s in part.src))
    return done[node]


def rebuilt(node: UOp, done: Mapping[UOp, UOp]) -> UOp:
    """A node on what its sources have become; itself if they have become nothing else."""
    sources = tuple([done[source] for source in node.src])
    return node if sources == node.src else _rebuilt(node, sources)


def _rebuilt(node: UOp, sources: tuple[UOp, ...]) -> UOp:
    if sources and sources[0].dtype is _index and node.op in _BUILDERS:
        return _BUILDERS[node.op](*sources)
    if node.op is _AND and node.dtype is _bool:
        return logical_and(*sources)
    return node if sources == node.src else node.replace(src=sources)


def assuming(node: UOp, condition: UOp) -> UOp:
    """An index that equals `node` wherever the condition holds, and may differ elsewhere.

    A padded tensor is read under a condition. Inside it a remainder can often be dropped.
    """
    narrow = _narrowed(node, condition)
    forth = _replacements(narrow)
    if not forth:
        return node
    back = {variable: limited for limited, variable in narrow.items()}
    return rebuild(rebuild(node, forth), back)  # r[impl symbolic.rewriting.equal]


def bounds_assuming(node: UOp, condition: UOp) -> Bounds:
    """The bounds of an index wherever the condition holds."""
    # r[impl symbolic.bounds.sound]
    return bounds(rebuild(node, _replacements(_narrowed(node, condition))))


def _narrowed(node: UOp, condition: UOp) -> dict[UOp, UOp]:
    """What a condition limits, and a variable with just its values; nothing if that says nothing of
    the index, or never holds.
    """
    limits = [limit for limit in map(_limit_of, conjuncts(condition))
              if limit is not None and limit[0].op is not _MUL]
    inside = set(toposort((node,)))
    if not any(limited in inside or limited.op is _ADD
               and not inside.isdisjoint(terms_of(limited)[0]) for limited, _, _ in limits):
        return {}
    narrow: dict[UOp, UOp] = {}
    for limited, below, value in limits:
        low, high = bounds(narrow.get(limited, limited))
        low, high = (max(low, value), high) if below else (low, min(high, value))
        if low > high:
            return {}
        place = narrow[limited].arg[0] if limited in narrow else f"\0assumed {len(narrow)}"
        narrow[limited] = UOp(_DEFINE_VAR, _index, (), (place, low, high))
    return narrow


def _limit_of(condition: UOp) -> tuple[UOp, bool, int] | None:
    """The same as `limit_of`, also where both sides vary: of x < y + 3 that x - y is at most 2."""
    found = limit_of(condition)
    if found is not None or condition.op is not _CMPLT or condition.src[0].dtype is not _index:
        return found
    terms, constant = terms_of(sub(*condition.src))
    if not terms:
        return None
    if terms[min(terms.items(), key=term_order)[0]] > 0:
        return sum_of(terms, 0), False, -constant - 1
    return sum_of({atom: -factor for atom, factor in terms.items()}, 0), True, constant + 1


def _replacements(narrow: Mapping[UOp, UOp]) -> dict[UOp, UOp]:
    """What to put in the place of atoms: of a sum that is limited, one atom is sum minus rest."""
    forth = {limited: variable for limited, variable in narrow.items() if limited.op is not _ADD}
    for limited, variable in narrow.items():
        if limited.op is _ADD:
            terms, _ = terms_of(limited)
            atom = next((atom for atom, factor in terms.items()
                         if factor == 1 and atom not in forth), None)
            if atom is not None:
                forth[atom] = sub(variable, sub(limited, atom))
    return forth
