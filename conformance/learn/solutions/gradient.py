"""A solution of the lesson gradient: python -m conformance.learn solution gradient"""
# mypy: ignore-errors
# ruff: noqa: B905

SLOPES = {"exp": lambda x, y: y, "log": lambda x, y: 1 / x, "sin": lambda x, y: x.cos(),
          "cos": lambda x, y: -x.sin(), "tanh": lambda x, y: 1 - y * y,
          "sqrt": lambda x, y: 0.5 / y, "reciprocal": lambda x, y: -(y * y)}


def parts(operation, argument, sources, result, gradient):
    if operation in SLOPES:
        return (gradient * SLOPES[operation](sources[0], result),)
    if operation in ("add", "sub", "mul", "div"):
        both = of_two(operation, *sources, result, gradient)
        return tuple(fitted(part, source) for part, source in zip(both, sources))
    return (of_one(operation, argument, sources[0], result, gradient),)


def of_two(operation, a, b, result, gradient):
    if operation == "add":
        return gradient, gradient
    if operation == "sub":
        return gradient, -gradient
    if operation == "mul":
        return gradient * b, gradient * a
    share = gradient / b
    return share, -(share * result)


def fitted(part, source):
    """A number was used for all elements, so it gets the sum of all parts."""
    return part.sum() if source.shape == () != part.shape else part


def of_one(operation, argument, source, result, gradient):
    shape = source.shape
    if operation == "neg":
        return -gradient
    if operation == "sum":
        return gradient.expand(shape)
    if operation == "max":
        chosen = source.equals(result.expand(shape))
        return chosen * (gradient / chosen.sum(argument)).expand(shape)
    if operation == "expand":
        return gradient.sum([k for k, size in enumerate(shape) if size != argument[k]])
    if operation == "reshape":
        return gradient.reshape(shape)
    if operation == "permute":
        return gradient.permute([argument.index(k) for k in range(len(argument))])
    if operation == "flip":
        return gradient.flip(argument)
    if operation == "pad":
        return gradient.shrink([(before, before + size)
                                for size, (before, _) in zip(shape, argument)])
    return gradient.pad([(start, size - stop)
                         for size, (start, stop) in zip(shape, argument)])
