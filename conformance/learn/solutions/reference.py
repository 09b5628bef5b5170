"""A solution of the lesson reference: python -m conformance.learn solution reference"""
# mypy: ignore-errors
import numpy as np

PLAIN = {"neg": np.negative, "floor": np.floor, "trunc": np.trunc, "add": np.add,
         "sub": np.subtract, "mul": np.multiply, "maximum": np.maximum, "minimum": np.minimum,
         "div": np.true_divide, "floordiv": np.floor_divide, "floormod": np.remainder,
         "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor, "cmplt": np.less,
         "cmple": np.less_equal, "cmpeq": np.equal, "cmpne": np.not_equal, "where": np.where}
FUNCTIONS = {"exp": np.exp, "log": np.log, "sin": np.sin, "cos": np.cos, "tanh": np.tanh,
             "sqrt": np.sqrt, "reciprocal": lambda x: 1 / x}


def calculate(op, dtype, given):
    if op == "cast":
        return given[0] != 0 if dtype.kind == "b" else given[0].astype(dtype)
    if op in FUNCTIONS:
        return np.asarray(FUNCTIONS[op](given[0].astype(np.float64))).astype(dtype)
    if op in ("floor", "trunc") and dtype.kind != "f":
        return given[0].copy()
    if dtype.kind == "b" and op not in ("cmplt", "cmple", "cmpeq", "cmpne", "where"):
        return np.asarray(PLAIN[op](*(x.astype(np.int32) for x in given)) != 0)
    return np.asarray(PLAIN[op](*given)).astype(dtype, copy=False)


def run(statements):
    values, shown = {}, []
    for kind, name, *rest in statements:
        if kind == "make":
            values[name] = np.array(rest[0])
        elif kind == "let":
            op, (one, other) = rest
            values[name] = calculate(op, values[one].dtype, [values[one], values[other]])
        elif kind == "view":
            values[name] = values[rest[0]][slice(*rest[1])].copy()
        elif kind == "turned":
            values[name] = values[rest[0]][::-1].copy()
        elif kind == "same":
            values[name] = values[rest[0]].copy()
        elif kind == "write":
            values[name][slice(*rest[0])] = values[rest[1]].copy()
        else:
            shown.append(values[name].tolist())
    return shown
