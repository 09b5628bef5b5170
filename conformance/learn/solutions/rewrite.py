"""A solution of the lesson rewrite: python -m conformance.learn solution rewrite"""
# mypy: ignore-errors
# ruff: noqa: B905
from itertools import permutations, product


def match(pattern, node):
    if not pattern.fits(node):
        return []
    own = {} if pattern.name is None else {pattern.name: node}
    if pattern.src is None:
        return [own]
    if len(pattern.src) != len(node.src):
        return []
    found = []
    for sources in permutations(node.src) if pattern.any_order else [node.src]:
        for ways in product(*(match(one, source) for one, source in zip(pattern.src, sources))):
            names = joined([own, *ways])
            if names is not None:
                found.append(names)
    return found


def joined(ways):
    names = {}
    for way in ways:
        for name, node in way.items():
            if names.setdefault(name, node) is not node:
                return None
    return names


def rewrite(root, change, like):
    done, open_nodes = {}, [root]
    built = {}                       # node -> the node with finished sources, and the answer
    while open_nodes:
        node = open_nodes[-1]
        if node in done:
            open_nodes.pop()
            continue
        waiting = [source for source in node.src if source not in done]
        if waiting:
            open_nodes += reversed(waiting)
            continue
        if node not in built:
            sources = [done[source] for source in node.src]
            same = all(one is other for one, other in zip(sources, node.src))
            made = node if same else like(node, sources)
            built[node] = made, change(made)
        made, answer = built[node]
        if answer is None:
            done[node] = done[made] = made
        elif answer in done:
            done[node] = done[answer]
        else:
            open_nodes.append(answer)
    return done[root]
