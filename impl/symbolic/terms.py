"""A sum of terms, each a number times an atom. Chapter: spec/symbolic.md."""
from __future__ import annotations

from typing import Any

from impl.dtypes import dtypes
from impl.ir import Ops, UOp
from impl.symbolic.bounds import Bounds, bounds, const

#: A sum without its constant: atom -> its factor, never 0, in the order in which it is written.
Terms = dict[UOp, int]

# Reading a member of an enum is slow enough to matter in functions called for every index.
_CONST, _ADD, _MUL = Ops.CONST, Ops.ADD, Ops.MUL
_RANGE, _DEFINE_VAR = Ops.RANGE, Ops.DEFINE_VAR
_index = dtypes.index


def terms_of(node: UOp) -> tuple[Terms, int]:
    """The terms and the constant of a canonical sum."""
    terms: Terms = {}
    constant = 0
    if node.op is _ADD:
        pieces = []
        while node.op is _ADD:
            pieces.append(node.src[1])
            node = node.src[0]
        pieces.append(node)
        for piece in reversed(pieces):
            if piece.op is _CONST:
                constant += piece.arg
            elif piece.op is _MUL and piece.src[1].op is _CONST:
                accumulate(terms, piece.src[0], piece.src[1].arg)
            else:
                accumulate(terms, piece, 1)
    elif node.op is _CONST:
        constant = node.arg
    elif node.op is _MUL and node.src[1].op is _CONST:
        terms[node.src[0]] = node.src[1].arg
    else:
        terms[node] = 1
    return terms, constant


def accumulate(terms: Terms, atom: UOp, factor: int) -> None:
    total = terms.get(atom, 0) + factor
    if total:
        terms[atom] = total
    elif atom in terms:
        del terms[atom]


def term_order(term: tuple[UOp, int]) -> tuple[int, Any]:
    """Where a term stands in a sum: variables by name, loops by number, others as they came."""
    atom = term[0]
    if atom.op is _RANGE:
        return 1, atom.arg[0]
    if atom.op is Ops.BIND:
        atom = atom.src[0]
    return (0, atom.arg[0]) if atom.op is _DEFINE_VAR else (2, 0)


def sum_of(terms: Terms, constant: int) -> UOp:
    """The canonical node of a sum (r[symbolic.sum.canonical])."""
    if not terms:
        return const(constant)
    # r[impl symbolic.sum.canonical]: the order depends on the program, never on addresses.
    items = sorted(terms.items(), key=term_order) if len(terms) > 1 else terms.items()
    node: UOp | None = None
    for atom, factor in items:
        term = atom if factor == 1 else UOp(_MUL, _index, (atom, const(factor)))
        node = term if node is None else UOp(_ADD, _index, (node, term))
    assert node is not None
    return node if constant == 0 else UOp(_ADD, _index, (node, const(constant)))


def span_of(terms: Terms, constant: int) -> Bounds:
    """The bounds of a sum."""
    low = high = constant
    for atom, factor in terms.items():
        least, most = atom.bounds or bounds(atom)
        if factor > 0:
            low += factor * least
            high += factor * most
        else:
            low += factor * most
            high += factor * least
    return low, high
