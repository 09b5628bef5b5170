"""`python -m conformance.bench ranks`: data parallel training by one and by two processes.

The small GPT step on the same batch, by one process on one core and by two with a core each; and
the same with PyTorch's DistributedDataParallel over Gloo. All jobs are alive during the whole run
and have their turns; a job that has none waits. The first process of a job times its steps, and
the others go along.
"""
from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

WORKLOAD = "gpt_step"
Step = Callable[[], float]


def add_arguments(parser: ArgumentParser) -> None:
    """The options."""
    parser.add_argument("--rounds", type=int, default=9, help="how often each job has its turn")
    parser.add_argument("--steps", type=int, default=20, help="that are timed in a turn")
    parser.add_argument("--against", default="torch", choices=("torch", "none"))


def main(options: Namespace) -> int:
    """Run the jobs in turns; print medians, their spread and ratios."""
    launcher = shutil.which("mpiexec", path=os.pathsep.join(
        [str(Path(sys.executable).parent), os.environ.get("PATH", "")]))
    if launcher is None:
        print("there is no mpiexec. Remedy: pip install -e '.[mpi]'")
        return 2
    libraries = ["impl"] + [name for name in [options.against] if name != "none"]
    with tempfile.TemporaryDirectory() as folder:
        jobs = {(library, count): Turns(launcher, library, count, options, Path(folder))
                for library in libraries for count in (1, 2)}
        for _ in range(options.rounds):
            for job in jobs.values():
                job.turn()
        for job in jobs.values():
            job.close()
    for (library, count), job in jobs.items():
        low, middle, high = (1e3 * q for q in statistics.quantiles(job.times, n=4))
        print(f"{library:6} {count} x 1 core   {middle:8.2f} ms a step   "
              f"({low:.2f} to {high:.2f}), first loss {job.loss:.5f}")
    for library in libraries:
        one, two = (statistics.median(jobs[library, count].times) for count in (1, 2))
        print(f"{library:6} two processes are {one / two:.2f} times as fast as one")
    if "torch" in libraries:
        ours, theirs = (statistics.median(jobs[name, 2].times) for name in ("impl", "torch"))
        print(f"ours takes {ours / theirs:.2f} times what torch.distributed with Gloo takes")
    losses = [job.loss for job in jobs.values()]
    if max(losses) - min(losses) > 1e-4 * abs(losses[0]):
        print(f"the losses differ: {losses}")
        return 1
    return 0


class Turns:
    """A job that does steps when it is told to."""

    def __init__(self, launcher: str, library: str, count: int, options: Namespace,
                 folder: Path) -> None:
        words = [sys.executable, "-m", "conformance.bench.ranks", library,
                 str(options.rounds), str(options.steps), str(folder / f"{library}{count}")]
        if count > 1:
            words = [launcher, "-n", str(count), *words]
        self.times: list[float] = []
        self.process = subprocess.Popen(
            words, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            env={**os.environ, "DISTRIBUTED_SECONDS": "3600", "OMP_NUM_THREADS": "1",
                 "CPU_COUNT": "1"})
        self.loss = self._answer()["loss"]  # it is ready; of the first step

    def _answer(self) -> Any:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"a job has ended with status {self.process.wait()}")
        return json.loads(line)

    def turn(self) -> None:
        """Some steps, timed."""
        assert self.process.stdin is not None
        self.process.stdin.write("go\n")
        self.process.stdin.flush()
        self.times += self._answer()["times"]

    def close(self) -> None:
        """Let it come to its end."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()


# ---------------------------------------------------------------- in the processes

def place() -> tuple[int, int]:
    """The number of this process, and how many there are; it keeps to a core of its own."""
    rank, count = (int(os.environ.get(name, default))
                   for name, default in (("PMI_RANK", "0"), ("PMI_SIZE", "1")))
    if hasattr(os, "sched_setaffinity"):
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cores[rank % len(cores)]})
    return rank, count


def ours(rank: int, count: int, meeting: str) -> Step:
    """A step of this library; it answers the loss."""
    from conformance.bench.peers.impl_peer import ImplPeer
    from conformance.bench.peers.lazy import graph
    from conformance.bench.suite import workload
    from impl import Tensor, TinyJit, distributed
    work = workload(WORKLOAD)
    p = {name: Tensor(array) for name, array in work.inputs.items()}
    if count > 1:
        mesh = distributed.mesh(data=count)
        p = {name: tensor.shard(mesh) if name in work.parameters else tensor.shard(mesh, data=0)
             for name, tensor in p.items()}
    Tensor.realize(*p.values())

    def step() -> Tensor:
        made = graph(work, p, ImplPeer.words)
        Tensor.realize(*made)
        loss: Tensor = made[0]
        return loss
    captured = TinyJit(step)
    return lambda: float(captured().item())


def torchs(rank: int, count: int, meeting: str) -> Step:
    """A step of PyTorch; with several processes its usual way for data parallel training."""
    torch: Any = import_module("torch")
    from conformance.bench.peers.torch_peer import TorchWords
    from conformance.bench.suite import workload
    from conformance.bench.workloads import RATE
    torch.set_num_threads(1)
    work, words = workload(WORKLOAD), TorchWords(torch)
    given = {name: torch.from_numpy(array.copy()) for name, array in work.inputs.items()}
    data = {name: one.long().chunk(count)[rank] for name, one in given.items()
            if name not in work.parameters}

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.p = torch.nn.ParameterDict(
                {name.replace(".", "_"): given[name] for name in work.parameters})

        def forward(self) -> Any:
            own = {name: self.p[name.replace(".", "_")] for name in work.parameters}
            return work.compute({**data, **own}, words)

    model = whole = Model()
    if count > 1:
        torch.distributed.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank,
                                             world_size=count)
        whole = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)

    def step() -> float:
        optimizer.zero_grad()
        loss = whole()
        loss.backward()
        optimizer.step()
        if count == 1:
            return float(loss.item())
        total = loss.detach().clone()
        torch.distributed.all_reduce(total)
        return float(total.item()) / count
    return step


def serve(library: str, rounds: int, steps: int, meeting: str) -> None:
    """Do the steps of all turns; the first process waits for each turn, and times it."""
    rank, count = place()
    step = (ours if library == "impl" else torchs)(rank, count, meeting)
    first = [step() for _ in range(3)][0]
    if rank == 0:
        print(json.dumps({"loss": first}), flush=True)
    for _ in range(rounds):
        if rank == 0:
            sys.stdin.readline()
        step()  # others were on this core
        times = []
        for _ in range(steps):
            start = time.perf_counter()
            step()
            times.append(time.perf_counter() - start)
        if rank == 0:
            print(json.dumps({"times": times}), flush=True)


if __name__ == "__main__":
    serve(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
