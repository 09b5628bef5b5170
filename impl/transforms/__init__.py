"""Functions of functions: derivatives, examples, loops.

Chapter: spec/transforms.md.

    reverse      grad, value_and_grad, vjp, stop_gradient
    forward      jvp, linearize, jacrev, jacfwd, hessian, hvp
    batching     vmap
    custom       custom_gradient, checkpoint
    control      scan, cond, while_loop
    tracing      calling a function on stand-ins
    trees        arguments and results as trees of tensors
"""
from typing import NoReturn

from impl.errors import name_missing
from impl.transforms.batching import vmap
from impl.transforms.control import cond, scan, while_loop
from impl.transforms.custom import (
    Policies,
    checkpoint,
    checkpoint_name,
    checkpoint_within,
    custom_gradient,
)
from impl.transforms.forward import hessian, hvp, jacfwd, jacrev, jvp, linearize
from impl.transforms.reverse import grad, stop_gradient, value_and_grad, vjp

__all__ = ["Policies", "checkpoint", "checkpoint_name", "checkpoint_within", "cond",
           "custom_gradient", "grad", "hessian", "hvp", "jacfwd", "jacrev", "jvp", "linearize",
           "scan", "stop_gradient", "value_and_grad", "vjp", "vmap", "while_loop"]

#: What JAX and `torch.func` have under other names.
_MEANT = {"pmap": "shard(...) on the arguments: one program for a mesh", "jacobian": "func.jacrev",
          "jit": "TinyJit(function)", "grad_and_value": "func.value_and_grad",
          "functional_call": "nn.state.functional_call",
          "stack_module_state": "nn.state.stack_module_state",
          "fori_loop": "func.scan", "map": "func.vmap, or func.scan", "switch": "func.cond",
          "remat": "func.checkpoint", "custom_vjp": "func.custom_gradient"}


def __getattr__(name: str) -> NoReturn:
    raise name_missing("func", name, __all__, _MEANT)  # r[impl errors.name.missing]
