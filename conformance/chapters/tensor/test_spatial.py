"""Pooling, resizing, sampling and patches of grids, beside loops in NumPy. Chapter: spec/tensor.md.
"""
from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from conformance.trace import verifies
from impl import Tensor, nn
from impl.errors import ShapeError
from impl.ir import Ops, toposort

X = np.random.default_rng(0).standard_normal((2, 3, 5, 6)).astype(np.float32)


def windows(x: np.ndarray, kernel: tuple[int, int], stride: int, pad: int, ceil: bool,
            ) -> dict[tuple[int, ...], tuple[list[tuple[int, ...]], int]]:
    """Of each place the elements in its window, and how many there are with the padding."""
    counts = [(-(-(n + 2 * pad - k) // stride) if ceil else (n + 2 * pad - k) // stride) + 1
              for n, k in zip(x.shape[2:], kernel, strict=True)]
    counts = [c - (ceil and (c - 1) * stride >= n + pad)
              for c, n in zip(counts, x.shape[2:], strict=True)]
    found = {}
    for place in itertools.product(*map(range, counts)):
        lines = [range(p * stride - pad, min(p * stride - pad + k, n + pad))
                 for p, k, n in zip(place, kernel, x.shape[2:], strict=True)]
        inside = [each for each in itertools.product(*lines)
                  if all(0 <= one < n for one, n in zip(each, x.shape[2:], strict=True))]
        found[place] = inside, len(lines[0]) * len(lines[1])
    return found


@verifies("tensor.spatial.value")
@pytest.mark.parametrize("kernel, stride, pad, ceil", [
    ((2, 2), 2, 0, False), ((3, 2), 2, 1, True), ((2, 2), 3, 1, True), ((3, 3), 2, 0, True)])
def test_pools(kernel: tuple[int, int], stride: int, pad: int, ceil: bool) -> None:
    known: dict[str, Any] = {"kernel_size": kernel, "stride": stride, "padding": pad,
                             "ceil_mode": ceil}
    best, where = Tensor(X).max_pool2d(return_indices=True, **known)
    assert np.array_equal(best.numpy(), Tensor(X).max_pool2d(**known).numpy())
    options: list[dict[str, Any]] = [{}, {"count_include_pad": False}, {"divisor_override": 3}]
    whole, inner, third = (Tensor(X).avg_pool2d(**known, **more).numpy() for more in options)
    seen = windows(X, kernel, stride, pad, ceil)
    assert best.shape[2:] == tuple(1 + last for last in max(seen))
    for (i, j), (inside, count) in seen.items():
        values = np.stack([X[:, :, a, b] for a, b in inside], -1)
        assert np.array_equal(best.numpy()[:, :, i, j], values.max(-1))
        flat = np.array([a * X.shape[3] + b for a, b in inside])[values.argmax(-1)]
        assert np.array_equal(where.numpy()[:, :, i, j], flat)
        for found, divisor in ((whole, count), (inner, len(inside)), (third, 3)):
            assert np.allclose(found[:, :, i, j], values.sum(-1) / divisor, atol=1e-6)
    again = best.max_unpool2d(where, kernel, stride, output_size=X.shape).numpy()
    assert set(np.unique(again)) == {0.0, *np.unique(best.numpy())}


@pytest.mark.parametrize("size", [1, (2, 3), (6, 1)])
def test_pools_of_equal_windows_gather_nothing(size: Any) -> None:
    """The pool behind the convolutions of a network has one window, or four."""
    x = Tensor(np.arange(72, dtype=np.float32).reshape(1, 2, 6, 6)).realize()
    for pooled in (x.adaptive_avg_pool2d(size), x.adaptive_max_pool2d(size)):
        assert len(pooled.schedule_document()["kernels"]) == 1
        assert sum(node.op is Ops.MUL for node in toposort([pooled.uop])) <= 1


@verifies("tensor.spatial.value")
@pytest.mark.parametrize("size", [1, (2, 3), (2, 4), (None, 7), (5, 6)])
def test_adaptive_pools(size: Any) -> None:
    mean = Tensor(X).adaptive_avg_pool2d(size).numpy()
    best, where = Tensor(X).adaptive_max_pool2d(size, return_indices=True)
    assert np.array_equal(best.numpy(), Tensor(X).adaptive_max_pool2d(size).numpy())
    for i, j in np.ndindex(mean.shape[2:]):
        lines = [slice(p * n // to, -(-(p + 1) * n // to))
                 for p, n, to in zip((i, j), X.shape[2:], mean.shape[2:], strict=True)]
        part = X[:, :, lines[0], lines[1]]
        assert np.allclose(mean[:, :, i, j], part.mean((2, 3)), atol=1e-6)
        assert np.array_equal(best.numpy()[:, :, i, j], part.max((2, 3)))
    flat = np.take_along_axis(X.reshape(2, 3, -1), where.numpy().reshape(2, 3, -1), 2)
    assert np.array_equal(flat, best.numpy().reshape(2, 3, -1))


@verifies("tensor.spatial.value")
def test_a_slope_stays_a_slope_when_it_is_resized() -> None:
    plane = (2 * np.arange(6.0)[:, None] + 3 * np.arange(9.0)).astype(np.float32)[None, None]
    for mode in ("bilinear", "linear", "bicubic"):
        found = Tensor(plane).interpolate((11, 5), mode=mode, align_corners=True).numpy()[0, 0]
        wanted = 2 * np.linspace(0, 5, 11)[:, None] + 3 * np.linspace(0, 8, 5)
        inner = slice(2, -2) if mode == "bicubic" else slice(None)  # which needs two neighbours
        assert np.allclose(found[inner, 1:-1], wanted[inner, 1:-1], atol=1e-4)
    half = Tensor(plane).interpolate(scale_factor=0.5, mode="area").numpy()[0, 0]
    assert np.allclose(half[:, 0], plane[0, 0].reshape(3, 2, 9)[:, :, :3].mean((1, 2)))
    smooth = Tensor(plane).interpolate((3, 3), mode="bilinear", antialias=True).numpy()[0, 0]
    assert abs(smooth[1, 1] - plane.mean()) < 1e-4


@verifies("tensor.spatial.value")
def test_resizing_to_the_nearest() -> None:
    line = Tensor([[[1.0, 2.0, 3.0]]])
    assert line.interpolate(5).tolist() == [[[1, 1, 2, 2, 3]]]
    assert line.interpolate(5, mode="nearest-exact").tolist() == [[[1, 1, 2, 3, 3]]]
    assert line.interpolate(4, mode="linear").tolist() == [[[1, 1.625, 2.375, 3]]]
    assert line.interpolate(scale_factor=2).tolist() == [[[1, 1, 2, 2, 3, 3]]]


@pytest.mark.slow
@verifies("tensor.spatial.value")
@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
@pytest.mark.parametrize("aligned", [True, False])
def test_sampling_where_the_elements_are(mode: str, aligned: bool) -> None:
    same = Tensor([[[1.0, 0, 0], [0, 1, 0]]] * 2)
    grid = Tensor.affine_grid(same, X.shape, aligned)
    for outside in ("zeros", "border", "reflection"):
        found = Tensor(X).grid_sample(grid, mode, outside, aligned).numpy()
        assert np.allclose(found, X, atol=1e-5)
    far = Tensor.full((2, 1, 1, 2), 3.0)
    assert not Tensor(X).grid_sample(far, mode, "zeros", aligned).numpy().any()
    edge = Tensor(X).grid_sample(far, mode, "border", aligned).numpy()
    assert np.allclose(edge[:, :, 0, 0], X[:, :, -1, -1], atol=1e-5)


@verifies("tensor.spatial.value")
def test_patches_and_back() -> None:
    known: dict[str, Any] = {"dilation": (2, 1), "padding": 1, "stride": (1, 2)}
    found = Tensor(X).unfold((2, 3), **known)
    padded = np.pad(X, ((0, 0), (0, 0), (1, 1), (1, 1)))
    rows, columns = range(5), range(0, 5, 2)
    wanted = np.stack([padded[:, :, i:i + 3:2, j:j + 3].reshape(2, -1)
                       for i in rows for j in columns if j + 3 <= 8], -1)
    assert np.array_equal(found.numpy(), wanted)
    often = Tensor(np.ones_like(X)).unfold((2, 3), **known).fold((5, 6), (2, 3), **known)
    assert np.allclose(found.fold((5, 6), (2, 3), **known).numpy(), X * often.numpy(), atol=1e-5)
    assert np.array_equal(Tensor(X).unfold(3, 2, 2).numpy(), X.reshape(2, 3, 5, 3, 2))


@verifies("tensor.spatial.value")
def test_channels_become_places_and_back() -> None:
    y = np.random.default_rng(1).standard_normal((2, 8, 2, 3)).astype(np.float32)
    large = Tensor(y).pixel_shuffle(2)
    assert large.shape == (2, 2, 4, 6) and np.array_equal(large.pixel_unshuffle(2).numpy(), y)
    assert np.array_equal(large.numpy()[:, :, ::2, ::2], y[:, ::4])
    assert np.array_equal(Tensor(y).channel_shuffle(4).numpy()[:, :2], y[:, [0, 2]])


@verifies("tensor.spatial.value")
def test_a_convolution_as_large_as_its_input() -> None:
    weight = np.random.default_rng(2).standard_normal((4, 3, 2, 3)).astype(np.float32)
    same = Tensor(X).conv2d(Tensor(weight), padding="same").numpy()
    padded = np.pad(X, ((0, 0), (0, 0), (0, 1), (1, 1)))
    wanted = sum(np.einsum("bcij,oc->boij", padded[:, :, a:a + 5, b:b + 6], weight[:, :, a, b])
                 for a in range(2) for b in range(3))
    assert np.allclose(same, wanted, atol=1e-4)
    valid = Tensor(X).conv2d(Tensor(weight), padding="valid")
    assert np.array_equal(valid.numpy(), Tensor(X).conv2d(Tensor(weight)).numpy())
    alone = Tensor(X[0]).conv2d(Tensor(weight))
    assert np.allclose(alone.numpy(), valid.numpy()[0], atol=1e-5)
    with pytest.raises(ShapeError, match="same"):
        Tensor(X).conv2d(Tensor(weight), padding="same", stride=2)


@verifies("tensor.spatial.value")
def test_gradients_of_samples() -> None:
    """A loss that is linear in the picture grows by its gradient times the picture."""
    x = Tensor(X).requires_grad_()
    grid = Tensor(np.random.default_rng(3).uniform(-1, 1, (2, 4, 4, 2)).astype(np.float32))
    for build in (lambda: x.grid_sample(grid), lambda: x.interpolate((3, 8), mode="bicubic"),
                  lambda: x.unfold(2, stride=2).square().sqrt(), lambda: x.adaptive_max_pool2d(2)):
        loss = build().sum()
        slope = loss.gradient(x)[0]
        assert abs((slope * x).sum().item() - loss.item()) < 1e-3


@verifies("tensor.arguments.refused+2")
def test_what_cannot_be_resized_is_refused() -> None:
    for wrong in ({"mode": "bilinear", "size": 3}, {"size": 2, "scale_factor": 2.0}, {},
                  {"size": 0}, {"mode": "cubic", "size": 3}):
        with pytest.raises(ShapeError, match="interpolate"):
            Tensor([[[1.0, 2.0, 3.0]]]).interpolate(**wrong)
    with pytest.raises(ShapeError, match="grid_sample"):
        Tensor(X).grid_sample(Tensor.ones(2, 3, 3, 3))


@verifies("tensor.spatial.value")
def test_the_mean_of_whole_numbers_is_cut_off() -> None:
    x = Tensor(np.array([[[[7, -7], [0, 0]]]]))
    found = x.avg_pool2d((1, 2)), x.avg_pool2d((2, 1)), x.avg_pool2d(2, divisor_override=1)
    assert [each.tolist() for each in found] == [[[[[0], [0]]]], [[[[3, -3]]]], [[[[0]]]]]
    assert found[0].dtype is x.dtype
    patches = nn.functional.unfold(Tensor.ones(0, 1, 5, 5), 2, 1, 1, 1)
    assert patches.shape == (0, 4, 36)
