"""Windows that are added up again, against their definition. See spec/gradient.md."""
from __future__ import annotations

import itertools

import numpy as np
import pytest

from conformance.trace import verifies
from impl import Tensor
from impl.ir import Ops
from impl.kernel import estimate

RANDOM = np.random.default_rng(5)


def added(taps: np.ndarray, stride: int, dilation: int, pad: int, size: int) -> np.ndarray:
    """taps[n, c, y, x, i, j] added at (y * stride + i * dilation, ...); the padding is cut off."""
    batch, channels, rows, columns, high, wide = taps.shape
    out = np.zeros((batch, channels, size + 2 * pad, size + 2 * pad))
    for y, x, i, j in itertools.product(*map(range, (rows, columns, high, wide))):
        out[:, :, y * stride + i * dilation, x * stride + j * dilation] += taps[:, :, y, x, i, j]
    return out[:, :, pad:pad + size, pad:pad + size]


@verifies("gradient.window.sum+4")
@pytest.mark.parametrize("kernel,stride,dilation,pad,groups", [
    (3, 1, 1, 1, 1), (3, 2, 1, 1, 1), (2, 2, 1, 0, 1), (1, 2, 1, 0, 1), (3, 3, 1, 2, 2),
    (4, 3, 1, 1, 1), (3, 1, 2, 2, 2), (3, 2, 2, 1, 1), (1, 1, 1, 0, 3)])
def test_the_input_of_a_convolution_gets_what_it_gave(kernel: int, stride: int, dilation: int,
                                                      pad: int, groups: int) -> None:
    channels, outputs, size = 2 * groups, 3 * groups, 9
    x = Tensor(RANDOM.normal(size=(2, channels, size, size)), requires_grad=True)
    w = RANDOM.normal(size=(outputs, 2, kernel, kernel))
    y = x.conv2d(Tensor(w), stride=stride, dilation=dilation, padding=pad, groups=groups)
    upstream = RANDOM.normal(size=y.shape)
    gradient = (y * Tensor(upstream)).sum().gradient(x)[0].numpy()
    parts = upstream.reshape(2, groups, 3, *y.shape[2:])
    taps = np.einsum("ngoyx,gocij->ngcyxij", parts, w.reshape(groups, 3, 2, kernel, kernel))
    expected = added(taps.reshape(2, channels, *taps.shape[3:]), stride, dilation, pad, size)
    np.testing.assert_allclose(gradient, expected, rtol=1e-9, atol=1e-9)
    again = Tensor(upstream).conv_transpose2d(
        Tensor(w), stride=stride, dilation=dilation, padding=pad, groups=groups,
        output_padding=size - ((y.shape[2] - 1) * stride - 2 * pad + dilation * (kernel - 1) + 1))
    np.testing.assert_allclose(again.numpy(), expected, rtol=1e-9, atol=1e-9)


@verifies("gradient.window.sum+4")
@pytest.mark.parametrize("size,step,pad", [(2, 2, 0), (3, 2, 1), (3, 1, 1), (2, 3, 0), (5, 2, 2)])
def test_the_windows_of_a_pool_are_added_up_without_a_loop(size: int, step: int,
                                                           pad: int) -> None:
    x = Tensor(RANDOM.normal(size=(1, 2, 11, 11)), requires_grad=True)
    y = x.avg_pool2d(size, step, padding=pad)
    upstream = RANDOM.normal(size=y.shape)
    gradient = (y * Tensor(upstream)).sum().gradient(x)[0]
    assert not [node for node in gradient.uop.toposort() if node.op is Ops.FOLD]
    taps = np.broadcast_to(upstream[..., None, None] / size**2, (*y.shape, size, size))
    expected = added(taps, step, 1, pad, 11)
    np.testing.assert_allclose(gradient.numpy(), expected, rtol=1e-9, atol=1e-9)


@verifies("gradient.window.sum+4")
@pytest.mark.parametrize("stride,more", [(1, 1.1), (2, 2.2)])
def test_it_costs_what_the_convolution_costs(stride: int, more: float) -> None:
    x = Tensor.ones(2, 8, 16, 16).contiguous().realize()
    x.requires_grad = True
    w = Tensor.ones(8, 8, 3, 3).contiguous().realize()
    y = x.conv2d(w, padding=1, stride=stride)
    gradient = (y * Tensor.ones(*y.shape).contiguous().realize()).sum().gradient(x)[0]
    assert not [node for node in gradient.uop.toposort() if node.op is Ops.FOLD]
    once, again = (sum(estimate(kernel.ast).operations for kernel in each.schedule())
                   for each in (y, gradient))
    assert again < more * once


@verifies("gradient.window.sum+4")
def test_its_own_gradient_costs_what_the_taps_cost() -> None:
    x = Tensor.ones(2, 8, 9, 9).contiguous().realize()
    w = Tensor.ones(8, 8, 3, 3).contiguous().realize()
    x.requires_grad = w.requires_grad = True
    y = x.conv_transpose2d(w, stride=2, padding=1)
    parts = (y * Tensor.ones(*y.shape).contiguous().realize()).sum().gradient(x, w)
    products = 2 * 2 * 8 * 8 * 9 * 9 * 3 * 3
    for part in parts:
        costs = [estimate(kernel.ast).operations for kernel in part.schedule()]
        assert max(costs) < 1.3 * products and sum(costs) < 1.5 * products


@verifies("gradient.window.sum+4")
def test_one_window_alone_is_added_to_nothing() -> None:
    x = Tensor.ones(4, 8, 1, 1).contiguous().realize()
    w = Tensor.ones(8, 8, 5, 5).contiguous().realize()
    w.requires_grad = True
    y = x.conv_transpose2d(w, stride=2, padding=1)
    part = (y * Tensor.ones(*y.shape).contiguous().realize()).sum().gradient(w)[0]
    for each in (y, part):
        cost = sum(estimate(kernel.ast).operations for kernel in each.schedule())
        assert cost < 1.3 * 2 * 4 * 8 * 8 * 5 * 5
