"""A solution of the lesson ranks: python -m conformance.learn solution ranks"""
# mypy: ignore-errors


def play(programs):
    positions = [0] * len(programs)
    moved = True
    while moved:
        moved = False
        for rank in range(len(programs)):
            event = at(programs, positions, rank)
            if event and event[0] and all(at(programs, positions, other) == event
                                          for other in event[0]):
                for other in event[0]:
                    positions[other] += 1
                moved = True
    return positions


def at(programs, positions, rank):
    """The event that a rank has come to; None at its end."""
    return programs[rank][positions[rank]] if positions[rank] < len(programs[rank]) else None


def differing(whats, place):
    most = max(whats, key=whats.count)
    if 2 * whats.count(most) <= len(whats):
        most = whats[place]
    return [number for number, what in enumerate(whats) if what != most]


def blamed(programs, positions):
    waits = {}
    for rank in range(len(programs)):
        event = at(programs, positions, rank)
        group = event[0] if event else ()
        waits[rank] = [other for other in group
                       if (at(programs, positions, other) or (None,))[0] != group]
    wanted = {other for others in waits.values() for other in others}
    guilty = [rank for rank in sorted(wanted) if not waits[rank]]
    if guilty or not wanted:
        return guilty
    way = [min(wanted)]
    while way[-1] not in way[:-1]:
        way.append(waits[way[-1]][0])
    return way[way.index(way[-1]):-1]
