"""The lesson on fusion: stages that are to become kernels, and what is said of an answer.

A stage is a loop nest that writes one value. Where a stage reads what another one has written,
there is an edge, which names the loops in which both walk alike. The reader's `partition` says
which stages are one kernel, and over which loops that kernel runs.

    fusion.group.legal: kernel 0 runs over i, j, but stage 1 reads other iterations of stage 0

        stage 0: v0[i, j] from x, over i 64, j 512
        stage 1: v1[i, j] from v0, over i 64, j 512
        edge 0 -> 1: alike in nothing
"""
from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, product
from math import prod
from types import ModuleType
from typing import Any, NamedTuple

from conformance.learn.lesson import Counterexample, Lesson, raised


class Stage(NamedTuple):
    """A loop nest that writes one value. `work`: how often its innermost statement runs."""

    number: int
    loops: Mapping[str, int]  # the loops over what it writes, and their iterations
    reads: tuple[str, ...]
    writes: str
    work: int
    alone: bool = False       # it has to be a kernel of its own


class Edge(NamedTuple):
    """Stage `after` needs stage `before`; in `loops`, an iteration needs only its counterpart."""

    before: int
    after: int
    loops: frozenset[str]
    inside: bool = True       # whether the two may be in one kernel at all


class Kernel(NamedTuple):
    """Stages that are run together, in each iteration of the loops that they share."""

    stages: Sequence[int]
    loops: Sequence[str]


class Limits(NamedTuple):
    """A kernel of more than `small_kernel` work is to keep `parallel` independent iterations."""

    parallel: int = 16
    small_kernel: int = 1 << 14


class Problem(NamedTuple):
    """Stages, their edges, and the bytes of every value."""

    stages: list[Stage]
    edges: list[Edge]
    nbytes: dict[str, int]

    @property
    def outputs(self) -> set[str]:
        """What no stage reads was asked for."""
        read = {name for stage in self.stages for name in stage.reads}
        return {stage.writes for stage in self.stages} - read


Answer = Sequence[Kernel]
ITEM = 4  # bytes of an element
EXTENTS = {"i": 64, "j": 512}
FEW = {"i": 4, "j": 8}
NEAR = 1.2  # how many times the least bytes an answer may move, on the average of all problems


# Problems ----------------------------------------------------------------------------------

class _Plan(NamedTuple):
    """A stage to be: over which loops, from which sources (-1: the input), and how it reads."""

    loops: str
    sources: tuple[int, ...]
    turned: bool = False  # it reads its sources along the other axis
    apart: bool = False   # memory forbids it to be where its sources are
    alone: bool = False
    crossed: tuple[int, ...] = ()  # of these alone it reads the other axis


def built(plans: Sequence[_Plan], extents: Mapping[str, int]) -> Problem:
    """The problem of some plans; the input is a matrix."""
    sizes = {"x": ITEM * prod(extents.values())}
    walks = {-1: set("ij")}
    stages, edges = [], []
    for number, plan in enumerate(plans):
        loops = {name: extents[name] for name in plan.loops}
        walks[number] = set(plan.loops)
        around = walks[number].union(*(walks[source] for source in plan.sources))
        names = tuple("x" if source < 0 else f"v{source}" for source in plan.sources)
        stages.append(Stage(number, loops, names, f"v{number}",
                          prod(extents[name] for name in around), plan.alone))
        sizes[f"v{number}"] = ITEM * prod(loops.values())
        edges += [Edge(source, number,
                       frozenset() if plan.turned or source in plan.crossed
                       else frozenset(walks[source] & set(loops)),
                       not plan.apart) for source in plan.sources if source >= 0]
    return Problem(stages, edges, sizes)


def problems() -> Iterator[Problem]:
    """Small problems from the smallest up: all chains of two stages, then some larger ones."""
    shapes = ("ij", "i", "j", "")
    for extents in (FEW, EXTENTS):
        yield built([_Plan("ij", (-1,))], extents)
        for one, other, turned, apart in product(shapes, shapes, (False, True), (False, True)):
            yield built([_Plan(one, (-1,)), _Plan(other, (0,), turned, apart)], extents)
    yield built([_Plan("ij", (-1,)), _Plan("ij", ()), _Plan("i", ())], FEW)  # numbers are stored
    for extents, crossed in product((FEW, EXTENTS), (0, 1)):  # e + f.T, and e.T + f
        yield built([_Plan("ij", (-1,)), _Plan("ij", (0,)),
                     _Plan("ij", (0, 1), crossed=(crossed,))], extents)
    chooser = random.Random(0)
    for count in (3, 3, 4, 5):
        for _ in range(120):
            plans = []
            for number in range(count):
                several = chooser.sample(range(-1, number), min(number + 1, chooser.choice((1, 2))))
                loops = chooser.choice(("ij", "ij", *shapes))
                turned, apart, alone = (chooser.random() < 0.1 for _ in range(3))
                plans.append(_Plan(loops, tuple(sorted(several)), turned, apart, alone))
            yield built(plans, chooser.choice((FEW, EXTENTS, EXTENTS)))


# The judge ---------------------------------------------------------------------------------

def moved(problem: Problem, answer: Answer) -> int:
    """The bytes that all kernels read and write: each value once for each kernel."""
    total = 0
    for kernel in answer:
        mine = [problem.stages[number] for number in kernel.stages]
        made = {stage.writes for stage in mine}
        elsewhere = {name for stage in problem.stages if stage.number not in kernel.stages
                     for name in stage.reads}
        names = {name for stage in mine for name in stage.reads} - made
        names |= made & (problem.outputs | elsewhere)
        total += sum(problem.nbytes[name] for name in names)
    return total


def bound(problem: Problem) -> int:
    """What no answer can do without: read each input once, write each output once."""
    made = {stage.writes for stage in problem.stages}
    read = {name for stage in problem.stages for name in stage.reads}
    return sum(problem.nbytes[name] for name in (read - made) | problem.outputs)


def findings(problem: Problem, answer: Answer, limits: Limits) -> Iterator[tuple[str, str]]:
    """The rules that an answer breaks, each with what is wrong."""
    home = {number: at for at, kernel in enumerate(answer) for number in kernel.stages}
    for edge in problem.edges:
        before, after = home[edge.before], home[edge.after]
        names = f"stage {edge.after} needs stage {edge.before}"
        if before > after:
            yield ("fusion.group.acyclic",
                   f"{names}, whose kernel {before} runs after kernel {after}")
        elif before == after and not edge.inside:
            yield "fusion.group.legal", f"{names} and may not be in one kernel with it"
        elif before == after and not set(answer[after].loops) <= edge.loops:
            yield "fusion.group.legal", (
                f"kernel {after} runs over {listed(answer[after].loops)}, but stage {edge.after} "
                f"reads other iterations of stage {edge.before}")
    for at, kernel in enumerate(answer):
        mine = [problem.stages[number] for number in kernel.stages]
        extents = mine[0].loops
        least = min(limits.parallel, max(prod(stage.loops.values()) for stage in mine))
        kept, work = prod(extents[name] for name in kernel.loops), sum(s.work for s in mine)
        if work > limits.small_kernel and kept < least:
            yield "fusion.limit.parallel", (f"kernel {at} does {work} iterations of work and "
                                            f"shares out {kept} of them")


def best(problem: Problem, limits: Limits) -> tuple[int, Answer]:
    """The bytes of the best right answer, and that answer: all are tried."""
    found = [(moved(problem, answer), len(answer), answer) for answer in answers(problem)
             if not any(True for _ in findings(problem, answer, limits))]
    least, _, answer = min(found, key=lambda one: one[:2])
    return least, answer


def answers(problem: Problem) -> Iterator[Answer]:
    """All ways to share the stages out, each kernel over as many loops as it may have."""
    for groups in _shared_out(len(problem.stages)):
        if all(len(group) == 1 or not any(problem.stages[number].alone for number in group)
               for group in groups):
            yield [Kernel(group, most_loops(problem, group)) for group in groups]


def _shared_out(count: int) -> list[list[list[int]]]:
    """All partitions of 0 to count - 1; kernels are in the order of their first stages."""
    found: list[list[list[int]]] = [[]]
    for number in range(count):
        found = list(chain.from_iterable(
            [[*groups[:at], [*groups[at], number], *groups[at + 1:]] for at in range(len(groups))]
            + [[*groups, [number]]] for groups in found))
    return found


def most_loops(problem: Problem, group: Sequence[int]) -> list[str]:
    """The loops that all stages have and in which all edges between them are alike."""
    kept = set(problem.stages[group[0]].loops)
    for number in group[1:]:
        kept &= set(problem.stages[number].loops)
    for edge in problem.edges:
        if edge.before in group and edge.after in group:
            kept &= edge.loops
    return sorted(kept)


# What is said ------------------------------------------------------------------------------

def listed(names: Sequence[str]) -> str:
    return ", ".join(names) or "nothing"


def picture(problem: Problem, answer: Answer = ()) -> str:
    """The stages, the edges, and who is with whom."""
    lines = []
    for stage in problem.stages:
        over = ", ".join(f"{name} {count}" for name, count in stage.loops.items()) or "nothing"
        lines.append(f"stage {stage.number}: {stage.writes}[{', '.join(stage.loops)}] from "
                     f"{', '.join(stage.reads)}, over {over}" + ", alone" * stage.alone)
    for edge in problem.edges:
        lines.append(f"edge {edge.before} -> {edge.after}: alike in {listed(sorted(edge.loops))}"
                     + ("" if edge.inside else "; not in one kernel"))
    for at, kernel in enumerate(answer):
        stages = ", ".join(map(str, kernel.stages))
        lines.append(f"kernel {at}, over {listed(kernel.loops)}: stages {stages}")
    return "\n".join(lines)


def fusion(module: ModuleType) -> Iterator[Counterexample]:
    """The first problem that breaks each rule of the lesson on fusion.

    Bytes are judged over all problems: there are knots that only trying everything unties.
    """
    met: set[str] = set()
    ratios, first = [], None
    for problem in problems():
        answer, found = _judged(module, problem)
        for each in found:
            if each.rule not in met:
                met.add(each.rule)
                yield each
        if "raised" in met:
            return
        if not found:
            (least, other), mine = best(problem, Limits()), moved(problem, answer)
            ratios.append(mine / least)
            if first is None and 2 * mine > 3 * least:
                first = Counterexample("fusion.stages.together", (
                    f"{mine} bytes are moved, where {least} are enough with the kernels "
                    f"{[list(kernel.stages) for kernel in other]}"), picture(problem, answer))
    if first is not None and sum(ratios) > NEAR * len(ratios):
        yield first


def _judged(module: ModuleType, problem: Problem) -> tuple[Answer, list[Counterexample]]:
    try:
        answer = module.partition(problem.stages, problem.edges, Limits())
        unlike = wrong_answer(problem.stages, answer)
    except Exception as error:  # any: it is the reader's own code
        return [], [raised(error, picture(problem))]
    if unlike:
        return [], [Counterexample("raised", unlike, picture(problem))]
    return answer, [Counterexample(rule, message, picture(problem, answer))
                    for rule, message in findings(problem, answer, Limits())]


def wrong_answer(stages: Sequence[Stage], answer: Any) -> str:
    """What keeps an answer from being one at all, or ""."""
    if not isinstance(answer, list) or not all(isinstance(each, tuple) and hasattr(each, "stages")
                                               and hasattr(each, "loops") for each in answer):
        return f"partition answers {answer!r:.60}, and not a list of Kernel(stages, loops)"
    named = [number for each in answer for number in each[0]]
    if sorted(named) != list(range(len(stages))) or not all(each[0] for each in answer):
        return f"your kernels have the stages {named}; each stage is to be in one kernel"
    for at, (numbers, loops) in enumerate(answer):
        if list(numbers) != sorted(numbers):
            return f"the stages {list(numbers)} of kernel {at} are not in order"
        if len(numbers) > 1 and any(stages[number].alone for number in numbers):
            return f"kernel {at} has a stage that is to be alone"
        lacking = [number for number in numbers if not set(loops) <= set(stages[number].loops)]
        if lacking:
            return f"kernel {at} runs over {listed(loops)}; stage {lacking[0]} has not all of them"
    return ""


# With the whole runtime --------------------------------------------------------------------

class _Names:
    """One name for loops that walk alike, in whatever stages they are."""

    def __init__(self, planned: Sequence[Any]) -> None:
        self.name = {(at, loop): (at, number) for at, one in enumerate(planned)
                     for number, loop in enumerate(one.loops)}
        self.members = {name: {key} for key, name in self.name.items()}

    def same(self, one: tuple[int, Any], other: tuple[int, Any]) -> None:
        """Give both loops one name, unless two loops of a stage would then have it."""
        kept, gone = self.name[one], self.name[other]
        mine, theirs = self.members[kept], self.members[gone]
        if kept == gone or {at for at, _ in mine} & {at for at, _ in theirs}:
            return
        mine |= theirs
        for key in self.members.pop(gone):
            self.name[key] = kept

    def of(self, at: int, loop: Any) -> str:
        at_stage, number = self.name[at, loop]
        return f"loop{number} of {at_stage}"


def install(module: ModuleType) -> None:
    """Let the runtime make its kernels by the `partition` of the module."""
    from impl.fusion.groups import match_loops
    from impl.symbolic import extent

    ours = module.group_stages

    def walks_alike(one: Any, theirs: Any, other: Any, mine: Any) -> list[tuple[Any, Any]]:
        member = module.Member(one, one.form.independent)
        return [(member.prefix[at], loop) for at, loop in match_loops(member, theirs, other, mine)]

    def group_stages(placement: Any, limits: Any, fuse: bool) -> Any:
        planned, storage_of = placement.stages, placement.storage
        if not fuse or not planned:
            return ours(placement, limits, fuse)
        devices = [placement.values[storage_of[one.write.value]].device for one in planned]
        stages, edges, loops = described(planned, storage_of, devices, walks_alike, extent)
        answer = module.partition(stages, edges, limits)
        unlike = wrong_answer(stages, answer)
        if unlike:
            raise ValueError(unlike)
        groups = []
        for number, kernel in enumerate(answer):
            mine = [planned[at] for at in kernel.stages]
            order = [name for name in loops[kernel.stages[0]] if name in kernel.loops]
            members = [module.Member(planned[at], [loops[at][name] for name in order])
                       for at in kernel.stages]
            places = {devices[at] for at in kernel.stages}
            if len(places) > 1:
                raise ValueError(f"the stages {list(kernel.stages)} are on several devices")
            storages = {storage_of[a.value] for one in mine for a in (*one.reads, one.write)}
            groups.append(module.Group(
                number, places.pop(), members, [extent(loop) for loop in members[0].prefix],
                sum(one.form.operations for one in mine), arguments=storages))
        return module.Grouping(groups, [])

    module.__dict__["group_stages"] = group_stages


def _filled(planned: Sequence[Any], devices: Sequence[Any],
            extent: Any) -> Iterator[tuple[int, int, tuple[Any, Any]]]:
    """Pairs of loops of a stage that reads nothing and of the last one with loops as long."""
    latest: dict[Any, int] = {}
    for at, one in enumerate(planned):
        mine = one.form.independent
        key = devices[at], *[extent(loop) for loop in mine]
        if not one.reads and key in latest:
            before = latest[key]
            yield from ((before, at, pair) for pair in zip(
                planned[before].form.independent, mine, strict=True))
        latest[key] = at


def described(planned: Sequence[Any], storage_of: Sequence[int], devices: Sequence[Any],
              walks_alike: Any,
              extent: Any) -> tuple[list[Stage], list[Edge], list[dict[str, Any]]]:
    """The runtime's stages for the reader, their edges, and the loops of each by name."""
    names = _Names(planned)
    alike: dict[tuple[int, int], list[list[tuple[Any, Any]]]] = defaultdict(list)
    apart: set[tuple[int, int]] = set()
    writers: dict[int, list[tuple[int, Any]]] = defaultdict(list)
    readers: dict[int, list[tuple[int, Any]]] = defaultdict(list)
    shared = []
    for at, one in enumerate(planned):
        touched = [(access, past) for access in one.reads
                   for past in writers[storage_of[access.value]]]
        target = storage_of[one.write.value]
        touched += [(one.write, past) for past in (*writers[target], *readers[target])]
        for mine, (before, theirs) in touched:
            alike[before, at].append(walks_alike(planned[before], theirs, one, mine))
            writes = theirs is planned[before].write
            if writes and (mine is one.write or not planned[before].whole):
                apart.add((before, at))
        for mine in one.reads:
            past = readers[storage_of[mine.value]]
            shared += [(before, at, pair) for before, theirs in past[-1:]
                       for pair in walks_alike(planned[before], theirs, one, mine)]
            past.append((at, mine))
        writers[target].append((at, one.write))
    pairs = [(before, at, pair) for (before, at), found in alike.items()
             for several in found for pair in several]
    for before, at, (one, other) in (*pairs, *shared, *_filled(planned, devices, extent)):
        names.same((before, one), (at, other))
    loops = [{names.of(at, loop): loop for loop in one.form.independent}
             for at, one in enumerate(planned)]
    edges = [Edge(before, at, frozenset.intersection(*(
        frozenset(names.of(at, other) for one, other in several
                  if names.of(before, one) == names.of(at, other)) for several in found)),
        (before, at) not in apart) for (before, at), found in alike.items()]
    stages = [Stage(at, {name: extent(loop) for name, loop in loops[at].items()},
                    tuple(dict.fromkeys(f"m{storage_of[a.value]}" for a in one.reads)),
                    f"m{storage_of[one.write.value]}", one.form.iterations, one.alone)
             for at, one in enumerate(planned)]
    return stages, edges, loops


def score(module: ModuleType) -> Iterator[str]:
    """Kernels and bytes of a few programs, with the reader's kernels and with ours."""
    from impl import Context, Tensor
    from impl.fusion.groups import group_stages as ours
    from impl.schedule import passes, schedule_cache

    mine = passes.group_stages
    yield f"{'':<17}{'kernels':>8}{'ours':>6}{'bytes moved':>13}{'ours':>9}{'at least':>10}"
    for name, make in _programs(Tensor).items():
        found = []
        for chosen in (mine, ours):
            passes.group_stages = chosen
            schedule_cache.clear()
            with Context(DEVICE="REFERENCE"):
                found.append(Tensor.schedule_document(*make()))
        passes.group_stages = mine
        kernels = [len(each["kernels"]) for each in found]
        nbytes = [sum(kernel["bytes"] for kernel in each["kernels"]) for each in found]
        least = sum(each["bytes"] for each in found[1]["buffers"]
                    if each["kind"] in ("input", "output"))
        yield (f"{name:<17}{kernels[0]:>8}{kernels[1]:>6}{nbytes[0]:>13}{nbytes[1]:>9}{least:>10}")


def _programs(tensor: Any) -> dict[str, Any]:
    """What the score is taken on."""
    def numbers(*shape: int) -> Any:
        return tensor.zeros(*shape).contiguous().realize()

    x, w, q, square = (numbers(512, 64), numbers(64, 64), numbers(2, 128, 16), numbers(192, 192))
    e = square.exp().sin()
    return {
        "chain": lambda: [((x * 2 + 1).exp() - x).relu()],
        "softmax": lambda: [x.softmax(1)],
        "softmax, columns": lambda: [x.softmax(0)],
        "mean, variance": lambda: [x.mean(1), x.var(1)],
        "part of the sum": lambda: [x / x.sum()],
        "two ways": lambda: [x.exp().sum(0), x.exp().sum(1)],
        "turned": lambda: [e + e.T],
        "product, softmax": lambda: [(x @ w).relu().softmax(1)],
        "attention": lambda: [(q @ q.transpose(1, 2) * 0.25).softmax(-1) @ q],
        "rows, columns": lambda: [(square / square.sum(1, keepdim=True)).max(0)],
    }


HEADS = '''\
from conformance.learn.lesson_fusion import Edge, Kernel, Stage


def partition(stages: list[Stage], edges: list[Edge], limits) -> list[Kernel]:
    """Which stages are one kernel, over which loops; the kernels in the order in which they run."""
    raise NotImplementedError
'''

FUSION = Lesson(
    functions=("partition",),
    names="""\
A stage is a loop nest that writes one value:
    stage.number, stage.loops {name: iterations}, stage.reads, stage.writes, stage.work, stage.alone
An edge says that one stage needs another, and in which loops both walk alike:
    edge.before, edge.after, edge.loops (a frozenset), edge.inside
A kernel is
    Kernel(stages, loops)
with the numbers of its stages, rising, and the names of the loops that it runs over. The limits
are limits.parallel and limits.small_kernel.""",
    rules=("fusion.group.acyclic", "fusion.group.legal",
           "fusion.limit.parallel", "fusion.stages.together", "fusion.value.equal"),
    hints=(
        "Begin with one kernel for each stage, over all its loops: Kernel([n], list(stage.loops)). "
        "That keeps every rule but fusion.stages.together.",
        "Take the stages in order. A stage may join the kernel of the latest stage that it needs, "
        "or a later one. Never an earlier one: that is how circles come about.",
        "The loops of a kernel are those that all its stages have, and in which all edges between "
        "them are alike. When a stage joins, the kernel may lose loops, and never gains any.",
        "A stage that is alone joins nobody, and nobody joins it. An edge that is not `inside` "
        "keeps its two stages apart.",
        "Before a stage joins, count: the product of the loops that would be left. If it is below "
        "limits.parallel, the stage joins only if all the work together is at most "
        "limits.small_kernel, or if no stage of the kernel has more iterations of its own.",
        "Two stages with no edge between them may still read one value. Let a stage join a kernel "
        "that reads what it reads, if both keep all their loops. A stage that reads nothing (it "
        "stores a number everywhere) joins a kernel with the loops that it has.",
        "A kernel that a stage joins has to come after all that the stage needs: compare the "
        "places of kernels, not the numbers of stages."),
    counterexamples=fusion, number=8, heads=HEADS, install=install, score=score)
