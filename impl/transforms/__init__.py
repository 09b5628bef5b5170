"""Functions of functions: derivatives, examples, loops. Chapter: spec/transforms.md.

    reverse      grad, value_and_grad, vjp, stop_gradient
    forward      jvp, linearize, jacrev, jacfwd, hessian, hvp
    batching     vmap
    custom       custom_gradient, checkpoint
    control      scan, cond, while_loop
    tracing      calling a function on stand-ins
    trees        arguments and results as trees of tensors
"""
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
