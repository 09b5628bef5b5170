"""One program in several processes, over MPI. Chapter: spec/distributed.md.

    ranks    which process this is, and what it waits for
    engine   collectives as calls of MPI, with a limit of time
    monitor  what the processes know of each other, and how they wait
    cliques  GPUs of NVIDIA, and NCCL between them
    device   a mesh of which each process has one device

`mpiexec -n 4 python train.py` starts four processes. Each runs the same script and makes the same
`mesh(data=4)`; without mpiexec it is a mesh of devices of one process.
"""
from impl.distributed.device import RankDevice, mesh
from impl.distributed.engine import all_gather
from impl.distributed.ranks import rank, ranks

__all__ = ["RankDevice", "all_gather", "mesh", "rank", "ranks"]
