"""Dr.Jit 1.5.0, LLVM backend. x + 0 is replaced by x, which is another number where x is -0.0: 1 /
(x + 0) changes its sign. Fast math, which is documented for a * 0 alone, is off here.
"""
import drjit as dr
from drjit.llvm import Float

dr.set_flag(dr.JitFlag.FastMath, False)
x = Float([-0.0, -0.0])
expected = str((x + dr.opaque(Float, 0)).numpy()[0])
found = str((x + 0).numpy()[0])

print(f"expected {expected}, found {found}")
raise SystemExit(found == expected)  # 0 while the library does this
