"""The name of the transforms in PyTorch: `from impl.func import vmap`."""
import sys

from impl import transforms

sys.modules[__name__] = transforms
