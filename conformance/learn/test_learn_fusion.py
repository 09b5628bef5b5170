"""The lesson on fusion lets a right partitioner pass, and no wrong one."""
from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from math import prod
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

import impl.fusion
from conformance import learn
from conformance.learn import lesson_fusion
from conformance.learn.lesson_fusion import Edge, Kernel, Limits, Stage, best, moved, problems
from conformance.learn.lessons import LESSONS
from conformance.learn.solutions.fusion import partition as right
from impl import Context, Tensor
from impl.schedule import passes, schedule_cache

Partition = Callable[[list[Stage], list[Edge], Any], Any]


def apart(stages: list[Stage], edges: list[Edge], limits: Any) -> list[Kernel]:
    """One kernel for each stage."""
    return [Kernel([stage.number], list(stage.loops)) for stage in stages]


def module_of(partition: Partition) -> Any:
    return SimpleNamespace(partition=partition, group_stages=impl.fusion.group_stages,
                           Group=impl.fusion.Group, Grouping=impl.fusion.Grouping,
                           Member=impl.fusion.Member)


def blind(stages: list[Stage], edges: list[Edge], limits: Any) -> list[Kernel]:
    """Looks at shapes, and not at edges."""
    bare = [edge._replace(loops=frozenset(stages[edge.after].loops)) for edge in edges]
    return right(stages, bare, limits)


def anywhere(stages: list[Stage], edges: list[Edge], limits: Any) -> list[Kernel]:
    """Takes no notice of what memory forbids."""
    return right(stages, [edge._replace(inside=True) for edge in edges], limits)


def backwards(stages: list[Stage], edges: list[Edge], limits: Any) -> list[Kernel]:
    return apart(stages, edges, limits)[::-1]


def greedy(stages: list[Stage], edges: list[Edge], limits: Any) -> list[Kernel]:
    """Takes no notice of what is left for the cores to share."""
    return right(stages, edges, Limits(1, 1 << 60))


def one_edge(stages: list[Stage], edges: list[Edge], limits: Any) -> list[Kernel]:
    """Of two edges into a kernel it looks at the one that says more is alike."""
    most = {after: max((edge.loops for edge in edges if edge.after == after), key=len)
            for after in {edge.after for edge in edges}}
    return right(stages, [edge._replace(loops=most[edge.after]) for edge in edges], limits)


def keeps_loops(stages: list[Stage], edges: list[Edge], limits: Any) -> list[Kernel]:
    """A kernel keeps the loops with which it began."""
    return [Kernel(kernel.stages, list(stages[kernel.stages[0]].loops))
            for kernel in right(stages, edges, limits)]


def with_the_alone(stages: list[Stage], edges: list[Edge], limits: Any) -> list[Kernel]:
    return right([stage._replace(alone=False) for stage in stages], edges, limits)


def any_that_fits(stages: list[Stage], edges: list[Edge], limits: Any) -> list[Kernel]:
    """The first kernel with which a stage has all in common, however early it is."""
    kernels: list[Kernel] = []
    for stage in stages:
        for at, kernel in enumerate(kernels):
            mine = [edge for edge in edges if edge.after == stage.number
                    and edge.before in kernel.stages]
            if mine and not stage.alone and not stages[kernel.stages[0]].alone and all(
                    edge.inside and set(kernel.loops) <= edge.loops for edge in mine):
                kernels[at] = Kernel([*kernel.stages, stage.number], kernel.loops)
                break
        else:
            kernels.append(Kernel([stage.number], list(stage.loops)))
    return kernels


# Right, in other ways than the solution


def of_the_course(latest: bool = False, readers: bool = True, cautious: bool = False) -> Partition:
    """By what the page says: `latest` kernels are tried first, `readers` of one value join,
    and `cautious` keeps all the iterations that the limit asks for.
    """
    def joined(stages: list[Stage], kernel: Kernel, stage: Stage, inner: list[Edge],
               limits: Any) -> Any:
        mine = [stages[number] for number in kernel.stages]
        alike = any(set(each.reads) & set(stage.reads) for each in mine)
        if stage.alone or mine[0].alone or not (inner or readers and alike) or not all(
                edge.inside for edge in inner):
            return None
        loops = [name for name in kernel.loops if name in stage.loops
                 and all(name in edge.loops for edge in inner)]
        mine.append(stage)
        if sum(each.work for each in mine) > limits.small_kernel:
            most = max(prod(each.loops.values()) for each in mine)
            left = prod(stage.loops[name] for name in loops)
            if not loops or left < (limits.parallel if cautious else min(limits.parallel, most)):
                return None
        return Kernel([*kernel.stages, stage.number], loops)

    def partition(stages: list[Stage], edges: list[Edge], limits: Any) -> list[Kernel]:
        kernels: list[Kernel] = []
        home: dict[int, int] = {}
        for stage in stages:
            needs = [edge for edge in edges if edge.after == stage.number]
            places = list(range(max((home[edge.before] for edge in needs), default=0),
                                len(kernels)))
            for at in places[::-1] if latest else places:
                inner = [edge for edge in needs if home[edge.before] == at]
                kernel = joined(stages, kernels[at], stage, inner, limits)
                if kernel is not None:
                    kernels[at], home[stage.number] = kernel, at
                    break
            else:
                home[stage.number] = len(kernels)
                kernels.append(Kernel([stage.number], list(stage.loops)))
        return kernels

    return partition


def unwritten(stages: list[Stage], edges: list[Edge], limits: Any) -> list[Kernel]:
    raise NotImplementedError


WRONG: list[tuple[Partition, str]] = [
    (apart, "fusion.stages.together: 512 bytes are moved, where 256 are enough with the kernels "
            "[[0, 1]]"),
    (blind, "fusion.group.legal: kernel 0 runs over i, j, but stage 1 reads other iterations of "
            "stage 0"),
    (anywhere, "fusion.group.legal: stage 1 needs stage 0 and may not be in one kernel with it"),
    (one_edge, "fusion.group.legal: kernel 0 runs over i, j, but stage 2 reads other iterations"),
    (keeps_loops, "fusion.group.legal: kernel 0 runs over i, j, but stage 1 reads other"),
    (with_the_alone, "raised: kernel 0 has a stage that is to be alone"),
    (any_that_fits, "fusion.group.acyclic: stage 2 needs stage 1, whose kernel 1 runs after"),
    (backwards, "fusion.group.acyclic: stage 1 needs stage 0, whose kernel 1 runs after kernel 0"),
    (greedy, "fusion.limit.parallel: kernel 0 does 65536 iterations of work and shares out 1"),
    (unwritten, "raised: your code raised NotImplementedError\n"),
    (lambda *given: None, "raised: partition answers None, and not a list of Kernel(stages, "
                          "loops)"),
    (lambda stages, *given: [([each.number], list(each.loops)) for each in stages],
     "raised: partition answers [([0], ['i', 'j'])], and not a list of Kernel(stages, loops)"),
    (lambda *given: [], "raised: your kernels have the stages []; each stage is to be in "
                        "one kernel"),
    (lambda *given: [Kernel([0, 0], [])], "raised: your kernels have the stages [0, 0]"),
    (lambda *given: [Kernel([0], ["k"])], "raised: kernel 0 runs over k; stage 0 has not all"),
    (lambda stages, *given: [Kernel(range(len(stages))[::-1], [])], "kernel 0 are not in order"),
]


@pytest.mark.parametrize(("partition", "said"), WRONG, ids=[said[:44] for _, said in WRONG])
def test_a_wrong_partitioner_is_shown_the_smallest_counterexample(partition: Partition,
                                                                  said: str) -> None:
    found = "\n".join(map(str, lesson_fusion.fusion(module_of(partition))))
    assert said in found and "\n    stage 0: v0[" in found


@pytest.mark.parametrize("partition", [
    right, of_the_course(), of_the_course(latest=True), of_the_course(readers=False),
    of_the_course(cautious=True)])
def test_a_right_one_is_shown_none(partition: Partition) -> None:
    assert list(lesson_fusion.fusion(module_of(partition))) == []


def test_problems_come_from_the_smallest_up() -> None:
    sizes = [len(each.stages) for each in islice(problems(), 60)]
    assert sizes == sorted(sizes) and sizes[0] == 1


def test_nothing_moves_less_than_the_bound() -> None:
    """The best of all answers is between the bound and one kernel for each stage."""
    for problem in islice(problems(), 0, None, 7):
        least, answer = best(problem, Limits())
        assert lesson_fusion.bound(problem) <= least == moved(problem, answer)
        assert least <= moved(problem, apart(problem.stages, problem.edges, None))


# With the runtime around it


@contextmanager
def partitioned_by(partition: Partition) -> Iterator[Any]:
    module = module_of(partition)
    lesson_fusion.install(module)
    schedule_cache.clear()
    with patch.object(passes, "group_stages", module.group_stages), Context(DEVICE="REFERENCE"):
        yield module
    schedule_cache.clear()


def numbers(*shape: int) -> Tensor:
    values = np.random.default_rng(prod(shape)).normal(size=shape).astype(np.float32)
    return Tensor(values).realize()


def moving(x: Tensor) -> Tensor:
    x[1:3] = x[0:2] + 1
    x.assign(x * 2)
    x[0:2] = x[2:4]
    return x


def turned(x: Tensor) -> Tensor:
    e = x.exp().sin()
    return e + e.T


PROGRAMS: dict[str, tuple[int, Callable[[], Tensor]]] = {
    "softmax": (1, lambda: numbers(4, 6).softmax(1)),
    "columns": (1, lambda: numbers(4, 6).softmax(0)),
    "turned": (1, lambda: turned(numbers(4, 4))),
    "large part": (2, lambda: numbers(200, 100) / numbers(200, 100).sum()),
    "in place": (3, lambda: moving(numbers(4, 6))),
}


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("partition", [right, apart])
def test_the_runtime_makes_the_kernels_of_the_answer(name: str, partition: Partition) -> None:
    count, make = PROGRAMS[name]
    with Context(DEVICE="REFERENCE", FUSE=0):
        expected = make().numpy()
    with partitioned_by(partition):
        document = make().schedule_document()
        np.testing.assert_allclose(make().numpy(), expected, rtol=1e-5)
    kernels = len(document["kernels"])
    assert kernels == count if partition is right else kernels >= count


def test_a_wrong_answer_is_not_put_right() -> None:
    """What the reader has decided is what is run: each element is added to itself."""
    with partitioned_by(blind):
        found = turned(numbers(4, 4)).numpy()
    np.testing.assert_allclose(found, 2 * np.sin(np.exp(numbers(4, 4).numpy())), rtol=1e-5)


def test_an_answer_that_is_none_is_told() -> None:
    with partitioned_by(lambda *given: []), pytest.raises(Exception, match="your kernels have"):
        numbers(4, 6).softmax(1).schedule_document()


def test_a_score_compares_with_ours() -> None:
    with partitioned_by(apart) as module:
        head, *rows = lesson_fusion.score(module)
    assert head.split() == ["kernels", "ours", "bytes", "moved", "ours", "at", "least"]
    for row in rows:
        kernels, ours, mine, theirs, least = map(int, row.split()[-5:])
        assert kernels >= ours and mine >= theirs >= least
    assert any(int(row.split()[-5]) > int(row.split()[-4]) for row in rows)


def test_a_file_of_its_own_names_is_put_to_use(tmp_path: Path) -> None:
    """What the file calls Kernel is not what the module calls so."""
    mine = tmp_path / "my_fusion.py"
    mine.write_text("from conformance.learn.lesson_fusion import Kernel\n"
                    "def partition(stages, edges, limits):\n    return []\n", encoding="utf-8")
    module = ModuleType("impl.fusion")
    learn.Overlay("fusion", mine).exec_module(module)
    assert module.partition([], [], None) == [] and module.Kernel is impl.fusion.Kernel
    assert module.group_stages is not impl.fusion.group_stages


def test_a_file_is_begun_with_the_head(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mine = tmp_path / "my_fusion.py"
    assert learn.main(["start", "fusion", "--mine", str(mine)]) == 0
    text = mine.read_text(encoding="utf-8")
    assert text.count("raise NotImplementedError") == 1 and "def partition(stages" in text
    assert "all 5 rules of this lesson are red" in capsys.readouterr().out
    compile(text, str(mine), "exec")


def test_there_are_as_many_hints_as_the_page_says() -> None:
    page = (learn.ROOT / "docs" / "course" / "fusion.md").read_text(encoding="utf-8")
    words = ("six", "seven", "eight")
    assert f"the next of {words[len(LESSONS['fusion'].hints) - 6]} hints" in page
