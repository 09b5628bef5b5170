"""Kernels for a processor that this machine has not: compiled for it, run by an emulator.

    python -m conformance.kernels.crossed --seed 0 --count 200
    python -m conformance.kernels.crossed --compiler aarch64-linux-gnu-gcc --emulator qemu-aarch64

The kernels of random programs get the steps that are chosen for such a processor. One program in C
holds a few of them, reads what each of them is given, runs them one after the other, and writes
what they stored. It has to be what the reference device stores.
"""
from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from argparse import ArgumentParser
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from conformance.kernels import step_lists
from conformance.kernels.step_lists import Case
from impl.cpu import FLAGS
from impl.dialects import C
from impl.kernel import DeviceLimits
from impl.render import SourceText, render
from impl.searching import optimize

COMPILER, EMULATOR, TARGET = "aarch64-linux-gnu-gcc", "qemu-aarch64", "armv8-a"
#: NEON: 32 registers of 16 bytes.
LIMITS = DeviceLimits(vector_bytes=16, vector_registers=32)
#: Kernels in one program.
_TOGETHER = 20

#: The program reads numbers: kernels, and of each its blocks of memory, arguments and values.
_MAIN = """
#include <stdio.h>
#include <stdlib.h>
static long number(void) { long n; if (fread(&n, 8, 1, stdin) != 1) exit(3); return n; }
int main(void) {
  for (int kernel = 0; kernel < KERNELS; kernel++) {
    long count = number(), sizes[64], values[16];
    void *blocks[64], *arguments[80];
    for (long i = 0; i < count; i++) {
      sizes[i] = number();
      blocks[i] = aligned_alloc(64, (sizes[i] + 127) / 64 * 64);
      if (fread(blocks[i], 1, sizes[i], stdin) != sizes[i]) return 3;
    }
    long given = number();
    for (long i = 0; i < given; i++) {
      long block = number();
      arguments[i] = (char *)blocks[block] + number();
    }
    long variables = number();
    for (long i = 0; i < variables; i++) {
      values[i] = number();
      arguments[given + i] = &values[i];
    }
    run(kernel, arguments);
    for (long i = 0; i < count; i++) fwrite(blocks[i], 1, sizes[i], stdout);
  }
  return 0;
}
"""


def missing(compiler: str = COMPILER, emulator: str = EMULATOR) -> str:
    """What has to be installed; empty if nothing has."""
    names = [name for name in (compiler, emulator) if not shutil.which(name)]
    return f"{' and '.join(names)} cannot be found" if names else ""


@dataclass
class Given:
    """A kernel with its steps as text, and what it was drawn as."""

    seed: int
    case: Case
    source: SourceText
    steps: tuple[str, ...]


def drawn(seed: int, threads: int = 1) -> Iterator[Given]:
    """The kernels of a seed with the steps that are chosen for the processor."""
    for case in step_lists.cases(seed):
        limits = LIMITS if threads == 1 else DeviceLimits(
            vector_bytes=LIMITS.vector_bytes, vector_registers=LIMITS.vector_registers,
            threads=threads)
        made = optimize(case.ast, limits)
        yield Given(seed, case, render(made, C()), made.arg.steps)


def text_of(kernels: Sequence[Given]) -> str:
    """A program in C with these kernels, all chunks of a phase one after the other."""
    definitions = dict.fromkeys(each for given in kernels for each in given.source.definitions)
    parts, calls = [*definitions], list[str]()
    for place, given in enumerate(kernels):
        source = given.source
        parts.append(f"{source.signature.format(name=f'kernel{place}')} {source.body}")
        phases = [f"for (long i = 0; i < {source.threads if shared else 1}; i++) "
                  f"kernel{place}(arguments, i, {phase}, scratch);"
                  for phase, shared in enumerate(source.phases)] or [f"kernel{place}(arguments);"]
        calls.append(f"  if (kernel == {place}) {{ " + " ".join(phases) + " }")
    scratch = max([64, *(given.source.scratch + given.source.own for given in kernels)])
    parts += [f"static char scratch[{scratch}] __attribute__((aligned(64)));",
              "static void run(int kernel, void **arguments) {", *calls, "}",
              _MAIN.replace("KERNELS", str(len(kernels)))]
    return "\n".join(parts)


def sizes_of(case: Case) -> list[int]:
    """The bytes of each block of memory that its arguments lie in."""
    sizes: dict[int, int] = {}
    for each in case.arguments:
        sizes[each.block] = max(sizes.get(each.block, 1), each.offset + each.before.nbytes)
    return [sizes[block] for block in sorted(sizes)]


def input_of(case: Case) -> bytes:
    """What the program reads for a kernel."""
    def numbers(*given: int) -> bytes:
        return np.array(given, np.int64).tobytes()
    sizes = sizes_of(case)
    blocks = [np.zeros(size, np.uint8) for size in sizes]
    for each in case.arguments:
        end = each.offset + each.before.nbytes
        blocks[each.block][each.offset:end] = each.before.view(np.uint8)
    return b"".join([
        numbers(len(blocks)), *(numbers(block.nbytes) + block.tobytes() for block in blocks),
        numbers(len(case.arguments), *(word for each in case.arguments
                                       for word in (each.block, each.offset))),
        numbers(len(case.values), *case.values)])


def problems(given: Given, blocks: Sequence[np.ndarray]) -> str:
    """How what a kernel stored differs from what is right; empty if it does not."""
    for position, each in enumerate(given.case.arguments):
        stored = blocks[each.block][each.offset:each.offset + each.before.nbytes]
        wrong = step_lists.difference(each.after, stored.view(each.before.dtype), each.dtype)
        if wrong:
            return (f"seed {given.seed}, {given.case.name}, steps {' '.join(given.steps)}: "
                    f"argument {position}: {wrong}")
    return ""


def check(kernels: Sequence[Given], compiler: str = COMPILER, emulator: str = EMULATOR,
          target: str = TARGET) -> list[str]:
    """Run some kernels; what is wrong, a line for each."""
    with tempfile.TemporaryDirectory(prefix="crossed-") as folder:
        source, program = Path(folder, "kernels.c"), Path(folder, "kernels")
        source.write_text(text_of(kernels), encoding="utf-8")
        flags = [flag for flag in FLAGS if flag != "-fPIC"]
        made = subprocess.run([compiler, f"-march={target}", *flags, "-static", str(source), "-o",
                               str(program), "-lm"], capture_output=True, text=True, check=False)
        if made.returncode:
            return [f"{compiler} refused the kernels of seeds {kernels[0].seed} to "
                    f"{kernels[-1].seed}: {made.stderr[:2000]}"]
        ran = subprocess.run([emulator, str(program)], capture_output=True, check=False,
                             input=b"".join(input_of(given.case) for given in kernels))
    stored, place, wrong = np.frombuffer(ran.stdout, np.uint8), 0, list[str]()
    for given in kernels:
        blocks = []
        for size in sizes_of(given.case):
            blocks.append(stored[place:place + size])
            place += size
        if place > stored.size:
            return [*wrong, f"seed {given.seed}, {given.case.name}: the program ended with status "
                    f"{ran.returncode} in this kernel: {ran.stderr.decode()[:500]}"]
        problem = problems(given, blocks)
        wrong += [problem] if problem else []
    return wrong


def main(arguments: Sequence[str]) -> int:
    """Run the kernels of some seeds. The status is 0 if nothing was wrong."""
    parser = ArgumentParser(prog="python -m conformance.kernels.crossed", description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=100, help="kernels")
    parser.add_argument("--threads", type=int, default=1, help="that the kernels are made for")
    parser.add_argument("--compiler", default=COMPILER)
    parser.add_argument("--emulator", default=EMULATOR)
    parser.add_argument("--target", default=TARGET, help="what -march= takes")
    options = parser.parse_args(arguments)
    problem = missing(options.compiler, options.emulator)
    if problem:
        print(problem)
        return 1
    done, wrong, seed = 0, list[str](), options.seed
    while done < options.count:
        kernels: list[Given] = []
        while len(kernels) < min(_TOGETHER, options.count - done):
            kernels += drawn(seed, options.threads)
            seed += 1
        found = check(kernels, options.compiler, options.emulator, options.target)
        done, wrong = done + len(kernels), wrong + found
        print("\n".join([*found, f"{done} kernels, {len(wrong)} wrong"]), flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
