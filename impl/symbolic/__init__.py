"""Index arithmetic that simplifies when a node is made. Chapter: spec/symbolic.md.

An index is a `UOp` of type `dtypes.index`, built from loop variables, run-time variables, loads and
numbers. The functions below build one in a canonical form: a sum of *terms* (a number times an
*atom*) and a constant. An atom is whatever is not a sum: a RANGE, a DEFINE_VAR, a cast, a product
of atoms, a quotient or a remainder. Division and remainder round down (r[symbolic.floor.exact]).
Values are whole numbers without a limit: 64 bits hold every index of a tensor that fits memory.
"""
from __future__ import annotations

from impl.symbolic.arithmetic import add, as_node, floordiv, mod, mul, sub, total, weighted_sum
from impl.symbolic.bounds import Bounds, Index, bounds, const
from impl.symbolic.comparison import conjuncts, equal, less_equal, less_than, logical_and
from impl.symbolic.evaluate import evaluate, evaluate_in_order, text
from impl.symbolic.rebuild import assuming, bounds_assuming, rebuild, rebuilt
from impl.symbolic.size import (
    Extent,
    Size,
    actual,
    as_size,
    binds_in,
    common_size,
    element_count,
    extent,
    extent_of,
    greatest,
    identical,
    is_number,
    is_symbolic,
    map_sizes,
    node_of,
    plain,
    present,
    size_in_plan,
    sizes_in,
    unbound,
    watching,
    without_values,
)
from impl.symbolic.variable import Variable

__all__ = ["Bounds", "Extent", "Index", "Size", "Variable", "actual", "add", "as_node", "as_size",
           "assuming", "binds_in", "bounds", "bounds_assuming", "common_size", "conjuncts", "const",
           "element_count", "equal",
           "evaluate", "evaluate_in_order", "extent", "extent_of", "floordiv", "greatest",
           "identical", "is_number", "is_symbolic", "less_equal", "less_than", "logical_and",
           "map_sizes", "mod", "mul", "node_of", "plain", "present", "rebuild", "rebuilt",
           "size_in_plan",
           "sizes_in", "sub", "text", "total", "unbound", "watching", "weighted_sum",
           "without_values"]
