"""numexpr 2.14.2. The one quotient of 64-bit integers that overflows ends the process with
SIGFPE; numexpr guards against division by zero and not against this.
"""
import subprocess
import sys

PROGRAM = """
import numexpr, numpy
a, b = numpy.array([-2**63]), numpy.array([-1])
print(numexpr.evaluate("a // b"))"""
run = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True)
expected, found = 0, run.returncode

print(f"expected {expected}, found {found}")
raise SystemExit(found == expected)  # 0 while the library does this
