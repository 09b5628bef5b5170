"""Nodes as a person writes them. Chapter: spec/rewrite.md."""
from __future__ import annotations

from impl.ir import Ops, UOp

_SIGNS = {Ops.ADD: "+", Ops.SUB: "-", Ops.MUL: "*", Ops.DIV: "/", Ops.FLOORDIV: "//",
          Ops.FLOORMOD: "mod", Ops.CMPLT: "<", Ops.CMPLE: "<=", Ops.CMPEQ: "==", Ops.CMPNE: "!=",
          Ops.AND: "&", Ops.OR: "|", Ops.XOR: "^", Ops.SHL: "<<", Ops.SHR: ">>"}
_REDUCTIONS = {Ops.ADD: "sum", Ops.MUL: "product", Ops.MAXIMUM: "max", Ops.MINIMUM: "min"}
#: No text of a node gets longer.
_MOST = 400


def written_tree(node: UOp) -> str:
    """An expression or a kernel: loops are r0, r1, ..., arguments p0, p1, ..., buffers m0, ...

    A kernel has a line for each store. What is too long is cut.
    """
    done: dict[UOp, str] = {}
    for part in node.toposort():
        text = _written(part, [done[source] for source in part.src])
        done[part] = text if part.op is Ops.SINK or len(text) <= _MOST else text[:_MOST - 3] + "..."
    return done[node]


def _written(node: UOp, given: list[str]) -> str:
    """One node, given the texts of its sources."""
    op = node.op
    if op in _SIGNS:
        return f" {_SIGNS[op]} ".join(_in_brackets(s, t) for s, t in zip(node.src, given,
                                                                        strict=True))
    if op is Ops.CONST:
        return str(node.arg)
    if op is Ops.NEG:
        return "-" + _in_brackets(node.src[0], given[0])
    if op is Ops.CAST:
        return f"{node.dtype.name}({given[0]})"
    if op is Ops.SINK:
        return "\n".join(given)
    return _of_kernel(node, given) or f"{op.name.lower()}({', '.join(given)})"


def _of_kernel(node: UOp, given: list[str]) -> str:
    """A node that stands in kernels only; empty for another one."""
    op = node.op
    if op in (Ops.PARAM, Ops.LOCAL, Ops.RANGE):
        number = node.arg if op is Ops.PARAM else node.arg[0]
        return f"{ {Ops.PARAM: 'p', Ops.LOCAL: 'm', Ops.RANGE: 'r'}[op] }{number}"
    if op is Ops.DEFINE_VAR:
        return str(node.arg[0])
    if op is Ops.INDEX:
        pointer, place, valid = given
        return f"{pointer}[{place}]" + ("" if valid == "True" else f" if {valid}")
    if op is Ops.LOAD:
        return given[0] if node.src[0].src[2].op is Ops.CONST else f"({given[0]})"
    if op is Ops.STORE and len(node.src) >= 2:
        return f"{given[0]} = {given[1]}{_loops(node.src[2:], given[2:])}"
    if op is Ops.REDUCE and isinstance(node.arg, Ops):
        return f"{_REDUCTIONS[node.arg]}({given[0]}{_loops(node.src[1:], given[1:])})"
    return ""


def _loops(loops: tuple[UOp, ...], names: list[str]) -> str:
    said = [f"{name} < {loop.src[0].arg}" if loop.src[0].op is Ops.CONST else name
            for loop, name in zip(loops, names, strict=True)]
    return f" for {', '.join(said)}" if said else ""


def _in_brackets(node: UOp, text: str) -> str:
    return f"({text})" if node.op in _SIGNS else text
