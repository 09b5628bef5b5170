"""A mesh as one device, and what its devices send each other.

Chapter: spec/collectives.md.

    steps    the algorithms: who sends which part to whom, in which round
    running  the steps carried out on memories
    device   the mesh as a device: memory, programs, copies
    lanes    devices that compute while they send each other something
"""
from impl.collectives.device import MeshDevice, MeshMemory, transferred
from impl.collectives.lanes import Computed, Sent, Span, Stretch, pays
from impl.collectives.running import Peers
from impl.collectives.steps import ALGORITHMS, Move, rounds

__all__ = ["ALGORITHMS", "Peers", "Computed", "MeshDevice", "MeshMemory", "Move", "Sent", "Span",
           "Stretch", "pays", "rounds", "transferred"]
