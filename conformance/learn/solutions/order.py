"""A solution of the lesson order: python -m conformance.learn solution order"""
# mypy: ignore-errors


def peak(order, nbytes, touched):
    first, last = {}, {}
    for position, kernel in enumerate(order):
        for each in touched[kernel]:
            first.setdefault(each, position)
            last[each] = position
    alive = [0] * len(order)
    for each, begin in first.items():
        for position in range(begin, last[each] + 1):
            alive[position] += nbytes[each]
    return max(alive, default=0)


def order(count, pairs, nbytes, touched):
    found = [sparing(count, pairs, nbytes, touched)]
    turned = [(after, before) for before, after in pairs]
    found.append(sparing(count, turned, nbytes, touched)[::-1])
    if all(before < after for before, after in pairs):
        found.append(list(range(count)))
    return min(found, key=lambda each: peak(each, nbytes, touched))


def sparing(count, pairs, nbytes, touched):
    """Of the kernels that may run, always the one after which least is alive."""
    missing, after = [0] * count, [[] for _ in range(count)]
    for one, other in set(pairs):
        missing[other] += 1
        after[one].append(other)
    users = {}
    for one in touched:
        for each in set(one):
            users[each] = users.get(each, 0) + 1
    started, answer = set(), []
    ready = {kernel for kernel in range(count) if missing[kernel] == 0}

    def growth(kernel):
        mine = set(touched[kernel])
        return (sum(nbytes[each] for each in mine if each not in started)
                - sum(nbytes[each] for each in mine if users[each] == 1))

    while ready:
        kernel = min(ready, key=lambda each: (growth(each), each))
        ready.remove(kernel)
        answer.append(kernel)
        started.update(touched[kernel])
        for each in set(touched[kernel]):
            users[each] -= 1
        for other in after[kernel]:
            missing[other] -= 1
            if missing[other] == 0:
                ready.add(other)
    return answer
