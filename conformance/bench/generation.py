"""`python -m conformance.bench generation`: how fast a language model of a file of GGUF writes.

    python -m conformance.bench generation model-Q8_0.gguf model-Q4_K_M.gguf --threads 1,2

Ours and llama.cpp (`pip install llama-cpp-python`) read the same file, each in a process of its
own with as many cores as threads. In turns they read a prompt and write some tokens behind it;
whoever has no turn stands still. Shown is the median over the turns, of a prompt and of a token,
with the least and the greatest turn, and the ratio: above 1, ours is faster. `of memory` is the
time in which the file would be read once at the speed of memory, by the time of a token.
"""
from __future__ import annotations

import statistics
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from pathlib import Path

from conformance.bench.limits import measure
from conformance.bench.peers import TITLES
from conformance.bench.processes import Worker

#: A process that takes longer for one answer is ended, in seconds.
_LIMIT = 600
#: What is written first is not timed: kernels are compiled, and a step is captured.
_FIRST = 4


def add_arguments(parser: ArgumentParser) -> None:
    """The options."""
    parser.add_argument("files", nargs="+", type=Path, help="files of GGUF, of Llama's form")
    parser.add_argument("--threads", default="1,2", help="numbers of threads, with commas")
    parser.add_argument("--against", default="llama.cpp", choices=("llama.cpp", "none"))
    parser.add_argument("--prompt", type=int, default=128, help="tokens of the prompt")
    parser.add_argument("--tokens", type=int, default=16, help="that are written in a turn")
    parser.add_argument("--repeats", type=int, default=5, help="turns of each library")


def main(options: Namespace) -> int:
    """Print a line for each file, number of threads and library; 1 if a library has failed."""
    libraries = ["impl"] + [name for name in [options.against] if name != "none"]
    status = 0
    for threads in map(int, options.threads.split(",")):
        reading = measure(threads).speeds[-1].read
        for file in options.files:
            found = times(libraries, file.resolve(), threads, options)
            for name, said in found.items():
                title = f"{file.name}, {threads} threads, {TITLES.get(name, name)}"
                if isinstance(said, str):
                    print(f"{title}: {said}", flush=True)
                    status = 1
                    continue
                prompt, token = said
                part = file.stat().st_size / reading / statistics.median(token)
                print(f"{title}: prompt {_spread(prompt)}, token {_spread(token)}, "
                      f"{part:.0%} of memory{_ratio(found, name)}", flush=True)
    return status


Turns = tuple[list[float], list[float]]


def times(libraries: Sequence[str], file: Path, threads: int,
          options: Namespace) -> dict[str, Turns | str]:
    """For each library the seconds of the prompt and of a token, turn by turn; or what failed."""
    workers = {name: Worker(name, threads) for name in libraries}
    found: dict[str, Turns | str] = {}
    prompt = [1 + place * 7 % 16 for place in range(options.prompt)]
    places = options.prompt + options.tokens + 1
    try:
        for name, worker in workers.items():
            said = worker.ask("open_model", {"file": str(file), "places": places}, _LIMIT)
            if "seconds" in said:
                said = worker.ask("write", {"prompt": prompt, "count": _FIRST}, _LIMIT)
            found[name] = ([], []) if "times" in said else \
                str(said.get("missing") or said.get("error") or said)
        for _ in range(options.repeats):
            for name, worker in workers.items():
                turns = found[name]
                if not isinstance(turns, str):
                    said = worker.ask("write", {"prompt": prompt, "count": options.tokens}, _LIMIT)
                    first, *others = said["times"]
                    turns[0].append(first)
                    turns[1].append(statistics.median(others))
    finally:
        for worker in workers.values():
            worker.close()
    return found


def _spread(turns: Sequence[float]) -> str:
    return f"{1e3 * statistics.median(turns):.1f} ms " \
        f"({1e3 * min(turns):.1f} to {1e3 * max(turns):.1f})"


def _ratio(found: dict[str, Turns | str], name: str) -> str:
    ours, theirs = found["impl"], found[name]
    if name == "impl" or isinstance(ours, str) or isinstance(theirs, str):
        return ""
    prompt, token = (statistics.median(theirs[which]) / statistics.median(ours[which])
                     for which in (0, 1))
    return f"; ratios {prompt:.2f} and {token:.2f}"
