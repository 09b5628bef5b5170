"""A solution of the lesson ir: python -m conformance.learn solution ir"""
# mypy: ignore-errors


def walk(roots, gate):
    found, seen = [], set()
    stack = [(root, False) for root in reversed(roots)]
    while stack:
        node, done = stack.pop()
        if done:
            found.append(node)
        elif node not in seen:
            seen.add(node)
            stack.append((node, True))
            if gate(node):
                stack += [(source, False) for source in reversed(node.src)]
    return found


def replaced(root, new):
    became = dict(new)
    for node in walk([root], lambda node: node not in new):
        if node not in became:
            sources = node.src
            others = tuple(became[source] for source in sources)
            same = all(one is other for one, other in zip(sources, others, strict=True))
            became[node] = node if same else node.replace(src=others)
    return became[root]


def key(op, src, arg):
    return op, src, type(arg).__name__, repr(arg)
