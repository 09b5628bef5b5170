"""The simulator: its formulas against the rounds of collectives, its bytes against documents."""
from __future__ import annotations

import numpy as np
import pytest

from conformance.bench.scaling import (
    Cluster,
    Cost,
    Link,
    Model,
    Way,
    best,
    layer_counts,
    simulated,
    table,
    ways,
)
from impl import Context, GlobalCounters, Tensor
from impl.collectives import ALGORITHMS
from impl.collectives.steps import permuted, predicted

SMALL = Model(layers=4, width=256, keys=256, hidden=512, words=64, tokens=128, sequences=16)


def test_links_take_as_long_as_the_rounds_of_collectives() -> None:
    link = Link(1e-5, 1e9)
    for count in (2, 4, 8, 16):
        for size in (count, 1 << 20):
            took = {(kind, name): predicted(found(size, count), 4, link.latency, 1e-9)
                    for kind, known in ALGORITHMS.items() for name, found in known.items()}
            nbytes = 4 * size
            assert link.all_reduce(nbytes, count) == pytest.approx(
                min(took["all-reduce", "ring"], took["all-reduce", "tree"]))
            for kind in ("all-gather", "reduce-scatter"):
                assert link.all_gather(nbytes * count, count) == pytest.approx(took[kind, "ring"])
            assert link.send(nbytes) == pytest.approx(
                predicted(permuted(size, count, 1), 4, link.latency, 1e-9))


def test_a_model_of_70_billion_parameters_needs_no_memory_here() -> None:
    model, before = Model(), GlobalCounters.allocated
    operations, working = layer_counts(model)
    assert GlobalCounters.allocated - before < 1 << 20
    assert 68e9 < model.parameters < 72e9
    # Six for each parameter and token, and attention.
    dense = 6 * model.layer_parameters * model.tokens
    assert dense < operations < 1.3 * dense
    assert working > 4 * model.tokens * model.hidden


def test_bytes_are_those_of_the_documents() -> None:
    """Of all-reduces of gradients, and of activations between spread products."""
    devices = ("REFERENCE", "REFERENCE:1", "REFERENCE:2", "REFERENCE:3")
    with Context(DEVICE="REFERENCE"):
        x = Tensor.empty(8, 16).shard(devices, 0)
        weights = [Tensor.empty(16, 16, requires_grad=True).shard_(devices) for _ in range(3)]
        hidden = x
        for w in weights:
            hidden = (hidden @ w).relu()
        hidden.sum().backward()
        rows = Tensor.schedule_document(*[w.grad for w in weights if w.grad is not None])["kernels"]
        sent = sum(row.get("sent", 0) for row in rows if row["name"].startswith("all-reduce"))
        assert sent == 3 * 2 * 3 * 16 * 16 * 4 // 4
    bare = Model(layers=3, width=16, keys=0, hidden=0, words=0, tokens=1, sequences=4, itemsize=4)
    found = _cost(bare, Way("", data=4))
    assert found.sent == 2 * 3 / 4 * bare.parameters * 4


def _cost(model: Model, way: Way) -> Cost:
    from unittest.mock import patch
    with patch("conformance.bench.scaling.layer_counts", lambda model: (1, 1)):
        return simulated(model, way, Cluster())


def test_more_devices_do_what_they_are_for() -> None:
    cluster = Cluster()
    one = simulated(SMALL, Way("one"), cluster)
    assert one.sent == one.overlap == 0 and one.seconds == one.computing
    data, spread = (simulated(SMALL, Way("", data=8, spread=s), cluster) for s in (False, True))
    assert data.computing == pytest.approx(one.computing / 8)
    assert spread.peak < data.peak and spread.sent > data.sent
    piped = simulated(SMALL, Way("", pipeline=4), cluster)
    assert piped.computing == pytest.approx(one.computing / 4 * (16 + 3) / 16)
    for way in (Way("", tensor=4), Way("", sequence=4), Way("", pipeline=4)):
        assert simulated(SMALL, way, cluster).peak < one.peak
    slow = Cluster(inside=Link(1e-3, 1e6), between=Link(1e-3, 1e6))
    assert simulated(SMALL, Way("", tensor=4), slow).seconds > 10 * one.seconds
    micro, cost = best(SMALL, Way("", data=4, spread=True), cluster)
    assert micro > 1 and cost.seconds < simulated(
        SMALL, Way("", data=4, spread=True), cluster).seconds


def test_a_table_has_all_ways_that_the_batch_allows() -> None:
    for count in (8, 64, 65536):
        for way in ways(count, Model()):
            assert way.devices == count and way.data <= Model().sequences
    lines = list(table(SMALL, Cluster(), [8]))
    assert len(lines) == 1 + len(list(ways(8, SMALL)))
    assert all(np.isfinite(float(line.split()[-4])) for line in lines[1:] if "not" not in line)
