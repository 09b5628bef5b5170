"""The command line of the benchmark.

    python -m conformance.bench run --against tinygrad,torch,torch.compile,jax,onnxruntime,numpy
    python -m conformance.bench schedule --against tinygrad,jax,torch.compile --json FILE
    python -m conformance.bench table FILE
    python -m conformance.bench accuracy --every 256 exp sin
    python -m conformance.bench record
    python -m conformance.bench devices
    python -m conformance.bench memory --csv FOLDER
    python -m conformance.bench ranks --against torch
    python -m conformance.bench generation model.gguf --against llama.cpp
    python -m conformance.bench checkpoint --layers 8
"""
from __future__ import annotations

import sys
from argparse import ArgumentParser
from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType

#: Subcommands: each is a module with `add_arguments(parser)` and `main(options) -> int`.
COMMANDS = {
    "run": "what generated code takes to run, here, in other libraries, and at the limit",
    "schedule": "what schedules cost, here and in other libraries",
    "devices": "what planning costs on meshes",
    "memory": "how tight memory is planned, on problems from files",
    "networks": "each kernel of common networks beside its roofline",
    "ranks": "data parallel training by one and by two processes, here and in PyTorch",
    "generation": "how fast a language model of a file writes, here and in llama.cpp",
    "checkpoint": "a training step of a GPT in half the memory, and what it costs",
    "table": "print the table of a result",
    "accuracy": "how far functions are from the real results",
    "record": "note the figures that the tests hold",
}


def commands() -> dict[str, ModuleType]:
    """The subcommands that are there."""
    names = {name: f"conformance.bench.{name}" for name in COMMANDS}
    return {name: import_module(module) for name, module in names.items() if find_spec(module)}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a subcommand; its status."""
    top = ArgumentParser(prog="python -m conformance.bench", description=__doc__.split("\n")[0])
    choices, known = top.add_subparsers(dest="command", required=True), commands()
    for name, module in known.items():
        module.add_arguments(choices.add_parser(name, help=COMMANDS[name]))
    options = top.parse_args(arguments)
    status: int = known[options.command].main(options)
    return status


if __name__ == "__main__":
    sys.exit(main())
