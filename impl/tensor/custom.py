"""Kernels of one's own, as functions of tensors. Chapter: spec/custom.md."""
from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Self

from impl.custom import CustomKernel, KernelMemory, KernelStore, KernelStores, KernelText
from impl.custom.notation import covers, sink_of
from impl.custom.texts import sink_of_text
from impl.errors import ArgumentError, DeviceError, ShapeError
from impl.gradient import Custom, nodes
from impl.gradient.custom import with_gradient
from impl.ir import Ops, UOp, toposort
from impl.multi import Mesh
from impl.places import Place, device_kind
from impl.rewrite import verify
from impl.symbolic import is_symbolic
from impl.tensor.interop import Interop

Written = KernelStores | KernelStore | KernelText
Gradient = Callable[[list[Any], list[Any], list[Any]], Sequence[Any]]


class CustomKernels(Interop):
    """What a user can add to the operations of tensors."""

    __slots__ = ()

    def custom_kernel(self, *tensors: Self, fxn: Callable[..., Written],
                      grad_fxn: Gradient | None = None) -> list[Self]:
        """The tensors after a kernel of one's own: `Tensor.custom_kernel(out, x, fxn=f)`.

        Args:
            tensors: what the kernel gets, all on one device. `Tensor.empty(...)` is memory in
                which nothing stands before.
            fxn: is called once, with a `KernelMemory` for each tensor, of its shape and
                dtype, and returns what is stored: `out[i].store(x[i] * 2).end(i).sink()`; or a
                `KernelText`, in the language of the device.
            grad_fxn: is called with three lists: the gradients of the results (None for a tensor
                that is not stored), the tensors that were given, and the results. It returns a
                gradient, or None, for each tensor, linear in the gradients that it gets: it is
                called for each result alone, with zeros for the others, and what it returns is
                added. Without it the results have no gradient.

        Returns:
            For each tensor what it is after the kernel: itself, if the kernel does not store it.
            The tensors that were given keep their values, and these are what the kernel loads.

        Raises:
            ArgumentError: the function returned something else than stores into its arguments.
            ShapeError: a tensor has no elements, or a size that is symbolic.
            DeviceError: the tensors lie on different devices.
            GraphError: what the function wrote is no kernel.
        """
        given = [self, *tensors]
        call = _Call(type(self), *_written(given, fxn), grad_fxn,
                     tuple(tensor.uop for tensor in given), self.device)
        results = list(given)
        for place, node in call.results().items():
            results[place] = self._wrap(node)
        return results


@dataclass(frozen=True, eq=False)
class _Call:
    """A kernel with what it was given: nodes and no tensors, for a gradient that is asked for later
    must not keep those alive.
    """

    tensor: type[CustomKernels]
    custom: CustomKernel
    sources: tuple[UOp, ...]
    used: list[int]  # which of the tensors each argument is
    grad_fxn: Gradient | None
    given: tuple[UOp, ...]
    device: Place

    def results(self) -> dict[int, UOp]:
        """What the kernel stores, by tensor, with its gradient."""
        found = {}
        for position in self.custom.stored:
            place = self.used[position]
            node = UOp(Ops.CUSTOM, self.given[place].dtype, self.sources,
                       replace(self.custom, position=position))
            if self.grad_fxn is not None and node.dtype.kind == "f":
                node = with_gradient(node, Custom(self.given, partial(self._pull, place)))
            found[place] = node
        return found

    def _pull(self, mine: int, gradient: UOp) -> list[UOp | None]:
        """What the user's function makes of the gradient of one result, for each tensor."""
        results, seeds = list(self.given), list[Any]([None] * len(self.given))
        for place, node in self.results().items():
            results[place] = node
            if node.dtype.kind == "f":
                seeds[place] = self._holding(
                    gradient if place == mine else nodes.full_like(node, 0))
        assert self.grad_fxn is not None
        # r[impl custom.gradient.given+2]
        found = list(self.grad_fxn(seeds, [*map(self._holding, self.given)],
                                   [*map(self._holding, results)]))
        if len(found) != len(results):  # r[impl custom.arguments.refused]
            raise ArgumentError("custom_kernel", f"grad_fxn returned {len(found)} gradients for "
                                f"{len(results)} tensors", "return one for each, or None")
        return [None if part is None or part.dtype.kind != "f" else part.uop for part in found]

    def _holding(self, node: UOp) -> Any:
        return self.tensor._holding(node, self.device)


def _written(given: Sequence[Any], fxn: Callable[..., Any],
             ) -> tuple[CustomKernel, tuple[UOp, ...], list[int]]:
    """The kernel that a function writes, its sources, and which tensor each argument is."""
    _refuse(given)
    pointers = [UOp(Ops.PARAM, tensor.dtype, (), number) for number, tensor in enumerate(given)]
    memories = [KernelMemory(pointer, tensor.shape)
                for pointer, tensor in zip(pointers, given, strict=True)]
    made = fxn(*memories)
    if isinstance(made, KernelText):
        return _of_text(given, fxn, made, memories)
    kernel = KernelStores((made,)) if isinstance(made, KernelStore) else made
    if not isinstance(kernel, KernelStores):  # r[impl custom.arguments.refused]
        raise ArgumentError("custom_kernel", f"the function returned {type(made).__name__}, and "
                            "not what is stored", "return out[i].store(value).end(i).sink()")
    name = getattr(fxn, "__name__", "custom")
    ast = sink_of(kernel, name)
    order = toposort((ast,))
    loads = [node.src[0] for node in order if node.op is Ops.LOAD]
    stores = [node for node in order if node.op is Ops.STORE]
    loaded, stored = ([n for n, pointer in enumerate(pointers) if any(
        place.src[0] is pointer for place in places)]
        for places in (loads, [store.src[0] for store in stores]))
    if not stored:  # r[impl custom.arguments.refused]
        raise ArgumentError("custom_kernel", "the function stores nothing in its arguments",
                            "return out[i].store(value).end(i).sink()")
    kept = [n for n in stored if not _is_fresh(given[n]) and not any(
        store.src[0].src[0] is pointers[n] and covers(store, ast.arg.prefix, given[n].shape)
        for store in stores)]
    read = list(dict.fromkeys((*loaded, *kept))) or stored[:1]  # which say where it runs
    used = [*stored, *loaded]
    # r[impl custom.value.equal]: to load and to store are two arguments
    outputs = {pointers[n]: pointers[n].replace(arg=place) for place, n in enumerate(stored)}
    inputs = {pointers[n]: pointers[n].replace(arg=len(stored) + place)
              for place, n in enumerate(loaded)}
    ast = _numbered(order, outputs, inputs)
    verify(ast, "kernel")
    sources = tuple(read.index(n) if n in kept or place >= len(stored) else None
                    for place, n in enumerate(used))
    arguments = tuple((given[n].shape, given[n].dtype) for n in used)
    return (CustomKernel(ast, arguments, sources, tuple(range(len(stored))), 0),
            tuple(given[n].uop for n in read), used)


def _of_text(given: Sequence[Any], fxn: Callable[..., Any], made: KernelText,
             memories: Sequence[KernelMemory]) -> tuple[CustomKernel, tuple[UOp, ...], list[int]]:
    """The same of a function that gives a text."""
    place = given[0].device
    device = place.devices[0] if isinstance(place, Mesh) else place
    ast, stored, loaded = sink_of_text(made, memories, _names(fxn, len(given)),
                                       device_kind(device),
                                       getattr(fxn, "__name__", "custom"))
    verify(ast, "kernel")
    # r[impl custom.value.equal]: what it stores into begins as what was given
    kept = [n for n in stored if n in loaded or not _is_fresh(given[n])]
    read = list(dict.fromkeys((*loaded, *kept))) or stored[:1]
    used = [*stored, *(n for n in loaded if n not in stored)]
    sources = tuple(read.index(n) if n in kept or n not in stored else None for n in used)
    arguments = tuple((given[n].shape, given[n].dtype) for n in used)
    return (CustomKernel(ast, arguments, sources, tuple(range(len(stored))), 0),
            tuple(given[n].uop for n in read), used)


def _names(fxn: Callable[..., Any], count: int) -> list[str]:
    """What a function calls its arguments; those of *xs are xs0, xs1, ..."""
    found: list[str] = []
    for name, parameter in inspect.signature(fxn).parameters.items():
        if parameter.kind is parameter.VAR_POSITIONAL:
            found += [f"{name}{n}" for n in range(count - len(found))]
        elif len(found) < count:
            found.append(name)
    return found


def _numbered(order: Sequence[UOp], outputs: dict[UOp, UOp], inputs: dict[UOp, UOp]) -> UOp:
    """The kernel with one argument to load from and another to store into."""
    made: dict[UOp, UOp] = {}
    for node in order:
        sources = tuple(made[source] for source in node.src)
        place = node.src[0] if node.op in (Ops.LOAD, Ops.STORE) else None
        if place is not None and place.src[0].op is Ops.PARAM:
            pointer = (inputs if node.op is Ops.LOAD else outputs)[place.src[0]]
            sources = sources[0].replace(src=(pointer, *sources[0].src[1:])), *sources[1:]
        made[node] = node.replace(src=sources)
    return made[order[-1]]


def _refuse(given: Sequence[Any]) -> None:
    # r[impl custom.arguments.refused]
    for tensor in given:
        if any(is_symbolic(size) for size in tensor.shape) or 0 in tensor.shape:
            raise ShapeError("custom_kernel", f"a kernel is written for sizes from 1 up, and one "
                             f"tensor has the shape {tensor.shape}", "give it tensors of fixed "
                             "sizes that have elements")
    places = {str(tensor.device) for tensor in given}
    if len(places) > 1:
        raise DeviceError("custom_kernel", f"tensors are on {' and '.join(sorted(places))}",
                          "move them to one device with .to()")


def _is_fresh(tensor: Any) -> bool:
    """Whether nothing stands in a tensor's memory yet."""
    node = tensor.uop
    if node.op is not Ops.BUFFER or not isinstance(tensor.device, str):
        return False
    buffer, version, _ = node.arg
    return version == 0 and buffer.host is None and buffer.memory is None
