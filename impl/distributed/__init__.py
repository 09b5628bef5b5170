"""One program in several processes, over MPI. Chapter: spec/distributed.md.

    ranks    which process this is, and what it waits for
    engine   collectives as calls of MPI, with a limit of time
    monitor  what the processes know of each other, and how they wait
    cliques  GPUs of NVIDIA, and NCCL between them
    device   a mesh of which each process has one device

`mpiexec -n 4 python train.py` starts four processes. Each runs the same script and makes the same
`mesh(data=4)`; without mpiexec it is a mesh of devices of one process.
"""
from typing import NoReturn

from impl.distributed.device import RankDevice, mesh
from impl.distributed.engine import all_gather
from impl.distributed.ranks import rank, ranks
from impl.errors import name_missing

__all__ = ["RankDevice", "all_gather", "mesh", "rank", "ranks"]

#: What `torch.distributed` and JAX have under other names.
_MEANT = {
    "get_rank": "distributed.rank()", "get_world_size": "distributed.ranks()",
    **dict.fromkeys(("process_index", "process_id"), "distributed.rank()"),
    "process_count": "distributed.ranks()",
    **dict.fromkeys(("init_process_group", "initialize", "init_device_mesh", "new_group",
                     "DeviceMesh", "is_initialized", "is_available"),
                    "distributed.mesh(data=n): nothing has to be opened or closed"),
    **dict.fromkeys(("destroy_process_group", "shutdown"),
                    "nothing: a job is closed when its processes end"),
    **dict.fromkeys(("all_reduce", "reduce", "reduce_scatter", "reduce_scatter_tensor"),
                    "x.sum(0) of a tensor that is cut: what has to be sent follows"),
    **dict.fromkeys(("all_gather_into_tensor", "gather", "all_gather_tensor"),
                    "x.shard(mesh), which gives every device all of it, or x.numpy()"),
    **dict.fromkeys(("broadcast", "scatter", "distribute_tensor", "distribute_module"),
                    "x.shard(mesh, data=0), or x.shard(mesh) for copies"),
    **dict.fromkeys(("make_array_from_process_local_data", "make_array_from_single_device_arrays",
                     "from_local", "host_local_array_to_global_array"),
                    "Tensor.from_local(piece, mesh, data=0)"),
    **dict.fromkeys(("all_to_all", "all_to_all_single"), "x.shard(mesh, data=1) of what is cut"),
    **dict.fromkeys(("send", "recv", "isend", "irecv"), "x.roll(rows, 0) of what is cut by rows"),
    **dict.fromkeys(("barrier", "sync_global_devices"),
                    "nothing: who needs something of another process waits for it"),
    **dict.fromkeys(("DistributedDataParallel", "FullyShardedDataParallel", "fsdp", "tensor"),
                    "p.shard_(mesh) on each parameter, and x.shard(mesh, data=0) on the batch"),
}


def __getattr__(name: str) -> NoReturn:
    # r[impl errors.name.missing]
    raise name_missing("distributed", name, __all__, _MEANT)
