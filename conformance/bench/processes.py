"""The processes that are measured: started with pinned threads, asked, and ended at a limit.

A process runs while it is asked and stands still otherwise: the threads of some libraries look for
more work for a tenth of a second after a call, on a core that another library is measured on.
"""
from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from typing import Any

from conformance.trace import ROOT

#: What libraries read to know how many threads they may use.
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NPROC",
           "NUM_CPU_THREADS", "TORCHINDUCTOR_COMPILE_THREADS")

#: Schedules are measured without the caches that keep whole graphs on disk.
UNCACHED = {"TORCHINDUCTOR_FX_GRAPH_CACHE": "0", "TORCHINDUCTOR_AUTOGRAD_CACHE": "0"}

#: Memory that the C library has given once it keeps, and asks for in great pages. Otherwise what is
#: timed in the peers is how the system clears pages. Ours runs as its users run it.
KEPT = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(1 << 40),
        "MALLOC_TOP_PAD_": str(1 << 26), "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}

Answer = dict[str, Any]


class Worker:
    """One library in a process; started again after it had to be ended."""

    def __init__(self, name: str, threads: int, environment: dict[str, str] | None = None) -> None:
        self.name, self.threads = name, threads
        self.environment = environment or {}
        self.process: subprocess.Popen[bytes] | None = None
        self.rest = b""

    def start(self, limit: float = 120) -> Answer:
        """Import the library; its version, or what is missing."""
        environment = {**os.environ, **dict.fromkeys(THREADS, str(self.threads)),
                       "PYTHONPATH": str(ROOT), "PYTHONHASHSEED": "0",
                       "XLA_FLAGS": _xla_flags(self.threads), **UNCACHED, **self.environment}
        if self.name != "impl":
            environment = {**KEPT, **environment}
        self.rest = b""
        self.process = subprocess.Popen(
            [sys.executable, "-m", "conformance.bench.worker", self.name, str(self.threads)],
            cwd=ROOT, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, process_group=0)
        return self._answer(limit)

    def ask(self, method: str, arguments: dict[str, Any], limit: float) -> Answer:
        """One question. A process that takes longer than the limit (in seconds) is ended."""
        if self.process is None:
            said = self.start()
            if "version" not in said:
                return said
        assert self.process is not None and self.process.stdin is not None
        question = json.dumps({"method": method, "arguments": arguments})
        self._signal("SIGCONT")
        try:
            self.process.stdin.write(question.encode() + b"\n")
            self.process.stdin.flush()
        except BrokenPipeError:  # it died since its last answer
            return self._ended()
        return self._answer(limit)

    def _answer(self, limit: float) -> Answer:
        """Read an answer, and let the process and what it started stand still until it is asked.

        They are a group in the session of this process. When this process ends, however that
        happens, the system ends groups that stand still.
        """
        said = self._read(limit)
        self._signal("SIGSTOP")
        if self.process is not None and hasattr(os, "waitid"):
            # Until it stands: only then does the system end it should we be ended now.
            os.waitid(os.P_PID, self.process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        return said

    def _signal(self, name: str) -> None:
        """Send a signal to the process and what it started, where the system has such a signal."""
        if self.process is not None and hasattr(signal, name):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, getattr(signal, name))

    def _read(self, limit: float) -> Answer:
        assert self.process is not None and self.process.stdout is not None
        ends = time.monotonic() + limit
        while b"\n" not in self.rest:
            left = ends - time.monotonic()
            if left <= 0 or not select.select([self.process.stdout], [], [], left)[0]:
                self.close()
                return {"missing": f"over the limit of {limit:.0f} s", "over": True}
            part = os.read(self.process.stdout.fileno(), 65536)
            if not part:
                return self._ended()
            self.rest += part
        line, self.rest = self.rest.split(b"\n", 1)
        answer: Answer = json.loads(line)
        return answer

    def _ended(self) -> Answer:
        assert self.process is not None
        status = self.process.wait()
        self.close()
        return {"error": f"its process ended with status {status}"}

    def close(self) -> None:
        """End the process and what it started."""
        if self.process is None:
            return
        self._signal("SIGKILL")
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):  # what was not sent yet
                    pipe.close()
        self.process = None


def _xla_flags(threads: int) -> str:
    own = "" if threads > 1 else "--xla_cpu_multi_thread_eigen=false"
    return f"{os.environ.get('XLA_FLAGS', '')} {own}".strip()
