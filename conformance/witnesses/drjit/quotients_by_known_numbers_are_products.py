"""Dr.Jit 1.5.0, LLVM backend. A division by a number that is known is a product with its
reciprocal, which rounds twice, also without fast math.
"""
import drjit as dr
from drjit.llvm import Float

dr.set_flag(dr.JitFlag.FastMath, False)
x = Float([-8.028369, -8.028369])
expected = str((x / dr.opaque(Float, 3)).numpy()[0])
found = str((x / 3).numpy()[0])

print(f"expected {expected}, found {found}")
raise SystemExit(found == expected)  # 0 while the library does this
