"""What layers share that are one method of tensors: activations, pooling, padding, resizing."""
from __future__ import annotations

from typing import Any, ClassVar

from impl.nn.module import Module
from impl.tensor import Tensor


class Method(Module):
    """A method of tensors, whose keywords are the attributes of the layer.

    With `inplace=True` the input gets the value of the output, as in PyTorch: whoever reads it
    afterwards reads that.
    """

    #: The method.
    method: ClassVar[str]

    def settings(self) -> dict[str, Any]:
        """The keywords that the method gets."""
        return {name: value for name, value in vars(self).items()
                if not name.startswith("_") and name != "inplace"}

    def forward(self, input: Tensor, *given: Any) -> Any:
        return self.written(input, getattr(input, self.method)(*given, **self.settings()))

    def written(self, input: Tensor, output: Any) -> Any:
        """The output, which is the input itself if that is to change."""
        return input.assign(output) if vars(self).get("inplace") else output
