"""Whole numbers that are known only at run time. Chapter: spec/symbolic.md."""
from __future__ import annotations

from typing import Any, NoReturn

from impl.dtypes import dtypes
from impl.errors import VariableError
from impl.ir import Ops, UOp
from impl.symbolic.bounds import const

_DEFINE_VAR, _index = Ops.DEFINE_VAR, dtypes.index


class Variable:
    """A whole number known only at run time, from `minimum` to `maximum`, both included.

    A program that uses a variable is scheduled and compiled once for all its values.

    Raises:
        VariableError: the interval is empty (r[symbolic.variable.refused]) or its bounds are no
            whole numbers (r[symbolic.variable.refused]), the name is one of those that the random
            numbers use (r[symbolic.variable.refused]), or the variable is taken for a number before
            it is bound (r[symbolic.variable.refused]).
    """

    __slots__ = ("name", "minimum", "maximum", "uop")

    def __init__(self, name: str, minimum: int, maximum: int) -> None:
        minimum, maximum = _whole(minimum, "Variable"), _whole(maximum, "Variable")
        if minimum > maximum:  # r[impl symbolic.variable.refused]
            raise VariableError("Variable", f"{name!r} goes from {minimum} to {maximum}",
                                "give the smaller bound first")
        if "#" in name:  # r[impl symbolic.variable.refused]
            raise VariableError("Variable", f"the name {name!r} has a '#', which stands in names "
                                "of variables that this package makes", "take another name")
        self.name, self.minimum, self.maximum = name, minimum, maximum
        self.uop = UOp(_DEFINE_VAR, _index, (), (name, self.minimum, self.maximum))

    def bind(self, value: int) -> UOp:
        """The variable with its value, as a node that tensor expressions accept.

        Raises:
            VariableError: the value is outside the interval (r[symbolic.variable.refused]), or no
                whole number (r[symbolic.variable.refused]).
        """
        value = _whole(value, "bind")
        if not self.minimum <= value <= self.maximum:  # r[impl symbolic.variable.refused]
            raise VariableError("bind", f"{self.name} = {value} is not from {self.minimum} "
                                f"to {self.maximum}", "bind a value in the interval, or widen it")
        return UOp(Ops.BIND, _index, (self.uop, const(value)))

    @staticmethod
    def unbind(node: UOp) -> tuple[Variable, int]:
        """The variable and the value that `bind` put together."""
        variable, value = node.unbind()
        return Variable(*variable.arg), value

    def _no_value(self, *_: object) -> NoReturn:
        """Not a number: what is computed from a variable is computed from a bound one."""
        # r[impl symbolic.variable.refused]
        raise VariableError("Variable", f"{self.name} has no value yet",
                            f"bind it first: {self.name}.bind({self.minimum})")

    __index__ = __int__ = __float__ = __bool__ = __lt__ = __le__ = __gt__ = __ge__ = _no_value
    __neg__ = __pos__ = __abs__ = __invert__ = __round__ = __trunc__ = _no_value
    __floor__ = __ceil__ = _no_value
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __pow__ = __rpow__ = _no_value
    __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = __truediv__ = __rtruediv__ = _no_value
    __divmod__ = __rdivmod__ = __lshift__ = __rlshift__ = __rshift__ = __rrshift__ = _no_value
    __and__ = __rand__ = __or__ = __ror__ = __xor__ = __rxor__ = _no_value

    def __eq__(self, other: object) -> bool:
        if hasattr(other, "__sub__") and not isinstance(other, Variable):  # a number or a tensor
            self._no_value()
        return self is other

    __hash__ = object.__hash__

    def __repr__(self) -> str:
        return f"Variable({self.name!r}, {self.minimum}, {self.maximum})"


def _whole(value: Any, operation: str) -> int:
    """A value or a bound as an int; 7.5 is not taken for 7."""
    if not hasattr(value, "__index__"):  # r[impl symbolic.variable.refused]
        raise VariableError(operation, f"{value!r} is no whole number", "give an int")
    return int(value)  # not operator.index, which a size would not notice
