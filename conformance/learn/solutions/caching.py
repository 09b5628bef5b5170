"""A solution of the lesson caching: python -m conformance.learn solution caching"""
# mypy: ignore-errors


def key(nodes, roots, held):
    place, slots, rows = {}, {}, []
    for node in nodes:
        place[node] = len(place)
        if node.op == "buffer":
            slot = slots.setdefault(node.buffer, len(slots))
            rows.append(("buffer", slot, node.dtype, node.shape))
        else:
            sources = [place[source] for source in node.src]
            rows.append((node.op, node.dtype, node.shape, exact(node.arg), *sources))
    kept = sorted(slots[buffer] for buffer in set(held) if buffer in slots)
    return (tuple(rows), tuple(place[root] for root in roots), tuple(kept)), list(slots)


def exact(arg):
    return arg.hex() if isinstance(arg, float) else arg
