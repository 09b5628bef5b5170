"""A solution of the lesson placement: python -m conformance.learn solution placement"""
# mypy: ignore-errors


def order(stages, chosen):
    maker = {stage.writes: stage.number for stage in stages}
    reads = {stage.number: set(stage.reads) for stage in stages}
    before = {stage.number: set() for stage in stages}
    for stage in stages:
        if stage.overwrites is not None and not stage.whole and stage.number not in chosen:
            reads[stage.number].add(stage.overwrites)        # the rest is copied
    for stage in stages:
        needed = set(reads[stage.number])
        if stage.overwrites is not None and stage.number in chosen:
            needed.add(stage.overwrites)
            before[stage.number].update(other for other in reads if other != stage.number
                                        and stage.overwrites in reads[other])
        before[stage.number].update(maker[value] for value in needed if value in maker)
    done = []
    while len(done) < len(stages):
        ready = [number for number in before
                 if number not in done and before[number].issubset(done)]
        if not ready:
            return None
        done.append(ready[0])
    return done


def place(stages, held):
    chosen, taken = [], set()
    for stage in stages:
        old = stage.overwrites
        if old is None or old in held or old in stage.crossed or old in taken:
            continue
        if order(stages, [*chosen, stage.number]) is not None:
            chosen.append(stage.number)
            taken.add(old)
    return chosen
