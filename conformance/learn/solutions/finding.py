"""A solution of the lesson finding: python -m conformance.learn solution finding"""
# mypy: ignore-errors


def numbers(*values):
    """int32 values as the data of an input."""
    return "".join(value.to_bytes(4, "little", signed=True).hex() for value in values)


def given(name, *values):
    return {"do": "input", "to": name, "dtype": "int32", "shape": [len(values)],
            "data": numbers(*values)}


def made(do, name, *sources, **more):
    return {"do": do, "to": name, "from": [*sources], **more}


def stored(target, value, *view):
    return {"do": "store", "target": target, "from": [value], "view": [*view]}


def assigned(target, value):
    return {"do": "assign", "target": target, "from": [value]}


def observed(*names):
    return {"do": "observe", "names": [*names]}


FLIP = {"do": "flip", "axes": [0]}
LAST = {"do": "shrink", "bounds": [[1, 3]]}


def witness():
    return [given("x", 1, 2), made("neg", "y", "x"), stored("x", "x", FLIP), observed("y")]


def shrink(statements, fails):
    smaller = True
    while smaller:
        smaller = False
        for size in (8, 4, 2, 1):
            for place in range(len(statements) - size, -1, -1):
                rest = statements[:place] + statements[place + size:]
                if len(rest) < len(statements) and fails(rest):
                    statements, smaller = rest, True
    return statements


def known():
    """Programs, and what they mean."""
    x, c = given("x", 1, 2, 3), given("c", 7, 8, 9)
    pair, row = given("c", 7, 8), {"do": "reshape", "shape": [1, 3]}
    yield [x, c, made("neg", "y", "x"), assigned("x", "c"), observed("y", "x")], [
        [-1, -2, -3], [7, 8, 9]]
    yield [x, made("neg", "y", "x"), assigned("x", "y"), observed("x", "y")], [[-1, -2, -3]] * 2
    yield [x, c, assigned("x", "c"), made("neg", "y", "x"), observed("y")], [[-7, -8, -9]]
    yield [x, pair, stored("x", "c", LAST), observed("x")], [[1, 7, 8]]
    yield [x, made("reshape", "c", "x", shape=[1, 3]), made("neg", "d", "c"),
           stored("x", "d", row), observed("x")], [[-1, -2, -3]]
    yield [x, c, stored("x", "c", FLIP), observed("x")], [[9, 8, 7]]
    for move in ({"do": "flip", "axes": [0]}, {"do": "reshape", "shape": [3, 1]}):
        yield [x, c, {**move, "to": "y", "from": ["x"]}, assigned("x", "c"), observed("y")], [
            [3, 2, 1] if move["do"] == "flip" else [1, 2, 3]]
    yield [x, c, given("p", 5, 6), assigned("x", "c"), stored("x", "p", LAST),
           observed("c", "x")], [[7, 8, 9], [7, 5, 6]]
    first = {"do": "shrink", "bounds": [[0, 2]]}
    yield [x, pair, given("p", 5, 6), stored("x", "c", first), stored("x", "p", LAST),
           observed("x")], [[7, 5, 6]]


def hunt(run):
    for program, right in known():
        found = run(program)
        if found is None or [values for name, values in found] != right:
            return program
    return None
