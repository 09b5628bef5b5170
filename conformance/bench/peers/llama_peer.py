"""llama.cpp, as `llama-cpp-python` has it: it reads a file of GGUF and writes on."""
from __future__ import annotations

import os
import time
from collections.abc import Sequence
from typing import Any

import llama_cpp

from conformance.bench.peers import NotMeasured, Numbers, Ready
from conformance.bench.workloads import Workload


def make() -> LlamaPeer:
    """The adapter."""
    return LlamaPeer()


class LlamaPeer:
    """Each token is one evaluation; which one would follow is not asked, only computed."""

    model: Any = None

    def version(self) -> str:
        return str(llama_cpp.__version__)

    def ready(self, workload: Workload) -> Ready:
        raise NotMeasured("it computes language models alone")

    def open_model(self, file: str, places: int) -> Numbers:
        """Read a file; `seconds`."""
        threads, start = len(os.sched_getaffinity(0)), time.perf_counter()
        self.model = llama_cpp.Llama(file, n_ctx=places, n_batch=places, n_threads=threads,
                                     n_threads_batch=threads, verbose=False)
        return {"seconds": time.perf_counter() - start}

    def write(self, prompt: Sequence[int], count: int) -> dict[str, list[float]]:
        """The `times` of a prompt and of so many tokens behind it."""
        self.model.reset()
        times = []
        for tokens in (prompt, *([one] for one in prompt[:count])):
            start = time.perf_counter()
            self.model.eval(tokens)
            times.append(time.perf_counter() - start)
        return {"times": times}
