"""tinygrad 0.14.0, CPU. A floor division of integers by zero in data ends the whole process with
SIGFPE; NumPy gives zero and a warning, torch an error. -128 // -1 and the like do the same in 32
bits.
"""
import subprocess
import sys

PROGRAM = "from tinygrad import Tensor; print((Tensor([7, 7]) // Tensor([2, 0])).tolist())"
run = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True)
expected, found = 0, run.returncode

print(f"expected {expected}, found {found}")
raise SystemExit(found == expected)  # 0 while the library does this
