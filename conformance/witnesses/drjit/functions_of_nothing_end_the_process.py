"""Dr.Jit 1.5.0, LLVM backend. `dr.exp` of an array without elements ends the process, and so do
other functions of floats, and `dr.select`; the sum of two such arrays has no elements.
"""
import subprocess
import sys

code = """
import drjit as dr
from drjit.llvm import Float
print(len(dr.exp(Float())))
"""
run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
expected, found = "0", run.stdout.strip() or f"the end of the process, {run.returncode}"

print(f"expected {expected}, found {found}")
raise SystemExit(found == expected)  # 0 while the library does this
