"""Where the nodes of a graph stand in a drawing: layers from top to bottom, few crossings.

The method is Sugiyama's: a layer for each node, invisible nodes where an edge passes through a
layer, sweeps that order each layer by the mean place of its neighbours, then places that are as
near to the neighbours as the gaps allow. Everything is deterministic.
"""
from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field

Node = Hashable
SWEEPS = 12


@dataclass
class Layout:
    """Centres of nodes, and for each edge the points that it passes through."""

    places: dict[Node, tuple[float, float]] = field(default_factory=dict)
    paths: dict[tuple[Node, Node], list[tuple[float, float]]] = field(default_factory=dict)
    width: float = 0.0
    height: float = 0.0


def layered(layer_of: Mapping[Node, int], widths: Mapping[Node, float],
            edges: Sequence[tuple[Node, Node]], gap: float, row: float) -> Layout:
    """Place nodes in their layers.

    Args:
        layer_of: the layer of each node; an edge goes from a lower layer to a higher one.
        widths: the width of each node.
        gap: the least distance between neighbours.
        row: the distance from one layer to the next.
    """
    graph = _Graph(layer_of, widths, edges)
    graph.order()
    return graph.place(gap, row)


def layers_of(nodes: Sequence[Node], edges: Sequence[tuple[Node, Node]]) -> dict[Node, int]:
    """The length of the longest path that ends at each node; `nodes` stand sources first."""
    before: dict[Node, list[Node]] = {node: [] for node in nodes}
    for source, target in edges:
        before[target].append(source)
    layer: dict[Node, int] = {}
    for node in nodes:
        layer[node] = max((layer[source] + 1 for source in before[node]), default=0)
    return layer


class _Graph:
    """The graph with an invisible node wherever an edge passes through a layer."""

    def __init__(self, layer_of: Mapping[Node, int], widths: Mapping[Node, float],
                 edges: Sequence[tuple[Node, Node]]) -> None:
        count = max(layer_of.values(), default=-1) + 1
        self.layers: list[list[Node]] = [[] for _ in range(count)]
        self.widths = dict(widths)
        self.above: dict[Node, list[Node]] = {}
        self.below: dict[Node, list[Node]] = {}
        self.edges: dict[tuple[Node, Node], list[Node]] = {}
        for node, layer in layer_of.items():
            self.enter(node, layer)
        for edge in dict.fromkeys(edges):
            self.route(edge, layer_of)

    def enter(self, node: Node, layer: int) -> None:
        self.layers[layer].append(node)
        self.above[node], self.below[node] = [], []

    def route(self, edge: tuple[Node, Node], layer_of: Mapping[Node, int]) -> None:
        source, target = edge
        chain: list[Node] = [source]
        for layer in range(layer_of[source] + 1, layer_of[target]):
            passing = (edge, layer)
            self.enter(passing, layer)
            self.widths[passing] = 12.0
            chain.append(passing)
        chain.append(target)
        for upper, lower in zip(chain, chain[1:], strict=False):
            self.below[upper].append(lower)
            self.above[lower].append(upper)
        self.edges[edge] = chain

    def order(self) -> None:
        """Sort each layer by where its neighbours stand, downwards and upwards by turns."""
        for sweep in range(SWEEPS):
            down = sweep % 2 == 0
            neighbours = self.above if down else self.below
            layers = self.layers if down else self.layers[::-1]
            for fixed, moving in zip(layers, layers[1:], strict=False):
                at, own = _fractions(fixed), _fractions(moving)
                mean = {n: _mean([at[m] for m in neighbours[n]], own[n]) for n in moving}
                moving.sort(key=mean.__getitem__)

    def place(self, gap: float, row: float) -> Layout:
        centre: dict[Node, float] = {}
        for layer in self.layers:
            centre.update(self.spread(layer, [0.0] * len(layer), gap))
        for sweep in range(SWEEPS):
            layers = self.layers if sweep % 2 == 0 else self.layers[::-1]
            for layer in layers:
                wanted = [_mean([centre[m] for m in self.above[n] + self.below[n]], centre[n])
                          for n in layer]
                centre.update(self.spread(layer, wanted, gap))
        left = min((centre[n] - self.widths[n] / 2 for n in centre), default=0.0)
        right = max((centre[n] + self.widths[n] / 2 for n in centre), default=0.0)
        at = {node: (centre[node] - left, level * row)
              for level, layer in enumerate(self.layers) for node in layer}
        paths = {edge: [at[node] for node in chain] for edge, chain in self.edges.items()}
        return Layout(at, paths, right - left, max(len(self.layers) - 1, 0) * row)

    def spread(self, layer: Sequence[Node], wanted: Sequence[float],
               gap: float) -> dict[Node, float]:
        """The places nearest to the wanted ones that keep order and gaps: least squares."""
        offsets, total = [], 0.0
        for i, node in enumerate(layer):
            if i:
                total += (self.widths[layer[i - 1]] + self.widths[node]) / 2 + gap
            offsets.append(total)
        # Without the offsets the places only have to be in order: neighbours that are not are
        # replaced by their mean, until none is left.
        pools: list[tuple[float, int]] = []
        for place, offset in zip(wanted, offsets, strict=True):
            pools.append((place - offset, 1))
            while len(pools) > 1 and pools[-2][0] > pools[-1][0]:
                (high, many), (low, few) = pools[-2:]
                pools[-2:] = [((high * many + low * few) / (many + few), many + few)]
        flat = [value for value, count in pools for _ in range(count)]
        return {node: base + offset
                for node, base, offset in zip(layer, flat, offsets, strict=True)}


def _fractions(layer: Sequence[Node]) -> dict[Node, float]:
    """Where each node of a layer stands, from 0 at the left end to 1 at the right end."""
    return {node: i / max(len(layer) - 1, 1) for i, node in enumerate(layer)}


def _mean(values: Sequence[float], otherwise: float) -> float:
    return sum(values) / len(values) if values else otherwise
