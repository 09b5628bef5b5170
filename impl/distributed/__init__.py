"""One program in several processes, over MPI. Chapter: spec/distributed.md.

    ranks    which process this is, and what it waits for
    engine   collectives as calls of MPI, with a limit of time
    device   a mesh of which each process has one device

`mpiexec -n 4 python train.py` starts four processes. Each runs the same script and makes the same
`mesh(data=4)`; without mpiexec it is a mesh of devices of one process.
"""
from impl.distributed.device import RankDevice, mesh
from impl.distributed.ranks import rank, ranks

__all__ = ["RankDevice", "mesh", "rank", "ranks"]
