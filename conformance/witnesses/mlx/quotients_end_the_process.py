"""MLX 0.32.4, CPU. The least integer by -1 ends the process with SIGFPE, in `//` and in `%`, of 32
and of 64 bits. NumPy and JAX give the least integer again, and 0.
"""
import subprocess
import sys

code = """
import mlx.core as mx
mx.set_default_device(mx.cpu)
print((mx.array([-2**31], mx.int32) // mx.array([-1], mx.int32)).tolist())
"""
run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
expected, found = "[-2147483648]", run.stdout.strip() or f"the end of the process, {run.returncode}"

print(f"expected {expected}, found {found}")
raise SystemExit(found == expected)  # 0 while the library does this
