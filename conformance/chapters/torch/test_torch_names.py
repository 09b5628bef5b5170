"""A program of PyTorch with another import: the same lines, asked of both."""
from __future__ import annotations

import copy
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import impl
from conformance.trace import verifies
from impl import Tensor, nn
from impl import torch as ours
from impl.errors import ArgumentError, DTypeError, NameMissingError, TensorScheduleError
from impl.nn import data
from impl.settings import Context


@pytest.fixture(autouse=True)
def _reference() -> Iterator[None]:
    with Context(DEVICE="REFERENCE"):
        yield


#: Expressions of a program that says `import torch`; a and b are matrices, i is one of numbers.
LINES = """
torch.tensor([[1., 2.], [3., 4.]])
torch.tensor([1, 2], dtype=torch.float32)
torch.as_tensor(2.5)
torch.zeros(2, 3)
torch.ones((2, 3), dtype=torch.int64)
torch.full((2, 2), 7.)
torch.eye(3)
torch.arange(0, 1, 0.25)
torch.linspace(0, 1, steps=5)
torch.zeros_like(a)
torch.cat([a, b], dim=1)
torch.cat((a, b))
torch.stack([a, b], 1)
torch.hstack([a, b])
torch.vstack((a, b))
torch.split(a, 1, dim=0)
torch.chunk(a, 2, dim=1)
torch.unbind(a, 0)
torch.matmul(a, b)
torch.mm(a, b)
torch.bmm(a[None], b[None])
torch.einsum("ij,jk->ik", a, b)
torch.outer(a[0], b[0])
torch.addmm(a, a, b, beta=0.5)
torch.softmax(a, dim=-1)
torch.log_softmax(input=a, dim=1)
torch.sum(a, dim=1, keepdim=True)
torch.mean(a)
torch.std(a, dim=0)
torch.var(a, 0, unbiased=False)
torch.max(a)
torch.max(a, 1)
torch.max(a, dim=0, keepdim=True)
torch.max(a, b)
torch.min(a, 1).indices
torch.max(input=a, dim=1).values
torch.cummax(torch.tensor([1., 3., 3., 2.]), 0)
torch.cummin(a, dim=1)
torch.argmax(a, dim=1)
torch.topk(a, 1)
torch.sort(a, descending=True)
torch.where(a > b, a, b)
torch.where(a > 1, a, 0.)
torch.where(i > 1)
torch.clamp(a, min=0.)
torch.pow(a, 2)
torch.pow(2, i)
torch.sqrt(torch.abs(a))
torch.gather(a, 1, i)
torch.flatten(a)
torch.norm(a, dim=1)
torch.linalg.norm(a)
torch.logsumexp(a, dim=0)
torch.cumsum(a, dim=1)
torch.tril(a)
torch.triu(a, diagonal=1)
a[range(2)]
a[range(1, -1, -1), range(2)]
torch.func.grad_and_value(lambda x: (x * x).sum())(a)
torch.meshgrid(a[0], b[0], indexing="ij")
torch.allclose(a, a + 1e-9)
torch.equal(a, b)
torch.isnan(a)
torch.any(a > 1)
torch.all(a > -9, dim=0)
torch.is_tensor(a)
torch.numel(a)
torch.square(a)
torch.erf(a)
torch.sigmoid(a)
torch.tanh(a)
torch.relu(a)
torch.cdist(a, b)
torch.bincount(i.flatten())
torch.unique(i)
torch.roll(a, 1, 0)
torch.flip(a, [0])
torch.squeeze(torch.unsqueeze(a, 0))
torch.repeat_interleave(a, 2, dim=0)
torch.nn.functional.cross_entropy(a, i[0])
torch.nn.functional.one_hot(i, 4)
torch.nn.functional.mse_loss(a, b)
torch.linalg.inv(a)
torch.linalg.eigh(a @ a.T).eigenvalues
torch.autograd.grad((x * x).sum(), x)
torch.autograd.grad([x * 2, x * x], [x], grad_outputs=[torch.ones(2), torch.tensor([1., 2.])])
torch.LongTensor([1, 2])
torch.float32 == torch.float
torch.randint(3, (4,)).shape
torch.randint(1, 3, size=(2, 2)).shape
torch.normal(0., 1., (2, 3)).shape
torch.normal(a, 1.).shape
torch.randn(2, 3, generator=None).shape
torch.randperm(4).sort().values
torch.device("cuda:1").type, torch.device("cuda", 1).index, torch.device("cpu").type
torch.finfo(torch.float32).eps
torch.utils.data.TensorDataset(a, b)[1]
[len(part) for part in torch.utils.data.random_split(range(10), [7, 3])]
[batch for batch in torch.utils.data.DataLoader(torch.utils.data.TensorDataset(a, i), 1)]
[batch for batch in torch.utils.data.DataLoader([(1., 2), (3., 4), (5., 6)], batch_size=2)]
len(torch.utils.data.DataLoader(range(7), batch_size=2, drop_last=True))
torch.distributions.Normal(a, 2.).log_prob(b)
torch.distributions.Normal(0., torch.tensor([1., 2.])).entropy()
torch.distributions.Categorical(logits=a).log_prob(i[0])
torch.distributions.Categorical(torch.tensor([0.25, 0.75])).entropy()
torch.distributions.Bernoulli(logits=a).log_prob((a > 0).float())
torch.distributions.Uniform(a, a + 2).log_prob(a + 0.5)
""".strip().splitlines()


def plain(value: Any) -> Any:
    """Numbers in lists, whoever made them."""
    if isinstance(value, (list, tuple)):
        return [plain(one) for one in value]
    return np.asarray(value.detach().numpy()) if hasattr(value, "detach") else value


def asked(module: Any) -> list[Any]:
    names = {"torch": module, "a": module.tensor([[1.0, -2.0], [0.5, 4.0]]),
             "b": module.tensor([[0.25, 1.0], [2.0, -1.0]]),
             "i": module.tensor([[0, 1], [1, 1]], dtype=module.int64),
             "x": module.tensor([3.0, -1.0], requires_grad=True)}
    return [plain(eval(line, names)) for line in LINES]


def equal(one: Any, two: Any) -> bool:
    if isinstance(one, list) and isinstance(two, list):
        return len(one) == len(two) and all(map(equal, one, two))
    return np.shape(one) == np.shape(two) and np.allclose(one, two, atol=1e-5) \
        if not isinstance(one, str) else bool(one == two)


def test_lines_of_torch_mean_the_same() -> None:
    torch = pytest.importorskip("torch")
    for line, found, wanted in zip(LINES, asked(ours), asked(torch), strict=True):
        assert equal(found, wanted), (line, found, wanted)


def test_digits_of_doubles_are_kept() -> None:
    for made in (ours.tensor([-1.2], dtype=ours.float64), ours.as_tensor(-1.2, ours.double),
                 ours.tensor([ours.tensor(-1.2, dtype=ours.float64)]),
                 ours.tensor([ours.tensor(1.0), -1.2], dtype=ours.float64)[1:]):
        assert np.array_equal(made.numpy().reshape(-1), [-1.2])
    assert ours.tensor([1.5], dtype=ours.int64).tolist() == [1]


def _pairs(x: Any, y: Any) -> Any:
    return x * y, y.exp()


@pytest.mark.parametrize("line", [
    "jacobian(lambda x: x ** 2 * x.sum(), a)", "jacobian(_pairs, (a, b))",
    "jacobian(lambda x: _pairs(x, x), a)", "hessian(lambda x: (x ** 3).sum(), a)",
    "hessian(lambda x, y: (x * y ** 2 + x.sin()).sum(), (a, b))",
    "vjp(lambda x: x ** 2 * x.sum(), a, b)", "vjp(lambda x: (x ** 3).sum(), a)",
    "vjp(_pairs, (a, b), (b, a))", "jvp(_pairs, (a, b), (b, a))",
    "jvp(lambda x: x ** 2 * x.sum(), a, b)", "hvp(lambda x: (x ** 3).sum(), a, b)",
    "vhp(lambda x, y: (x * y ** 2).sum(), (a, b), (b, a))"])
def test_derivatives_of_functions_are_those_of_torch(line: str) -> None:
    torch = pytest.importorskip("torch")

    def flat(found: Any) -> list[Any]:
        return [each for one in found for each in flat(one)] if isinstance(found, tuple) \
            else [found.detach().numpy()]

    both = [flat(eval(f"library.autograd.functional.{line}", {
        "library": library, "_pairs": _pairs, "a": library.tensor([1.0, -2.0, 0.5]),
        "b": library.tensor([0.25, 3.0, -1.0])})) for library in (ours, torch)]
    assert len(both[0]) == len(both[1])
    assert all(one.shape == other.shape and np.allclose(one, other, atol=1e-5)
               for one, other in zip(*both, strict=True))


def test_the_parts_are_imported_by_their_paths() -> None:
    program = ("import sys, impl; assert 'impl.torch' not in sys.modules\n"
               "import impl.torch as torch, impl.torch.nn as nn, impl.torch.optim as optim\n"
               "import impl.torch.nn.functional as F\n"
               "from impl.torch.utils.data import DataLoader\n"
               "from impl.torch.optim.lr_scheduler import StepLR\n"
               "assert nn.Linear and F.relu and optim.Adam and DataLoader and StepLR\n"
               "assert torch.nn is nn and torch.optim is optim and torch.utils.data.DataLoader\n")
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_the_names_are_those_of_the_whole_module_too() -> None:
    assert impl.float32 is impl.dtypes.float32
    assert impl.zeros(2).tolist() == [0, 0]
    assert impl.load is nn.saving.load


@pytest.mark.parametrize(("name", "remedy"), [
    ("zerox", "did you mean zeros?"), ("jit", "TinyJit(function)"),
    ("multiprocessing", "one program in several"), ("sparse", "all tensors are dense"),
    ("hash_tensor", "x.data()"), ("sparse_coo_tensor", "all tensors are dense"),
    ("quint8", "int8 and a scale"), ("complex32", "torch.complex64"),
    ("float8_e4m3fnuz", "torch.float8_e4m3fn"), ("ByteStorage", "x.data()"),
    ("ScriptDict", "TinyJit"), ("ErrorReport", "about PyTorch itself"), ("AnyType", "leave it out"),
    ("interp", "look for it"), ("get_autocast_dtype", "no dtype is changed"),
    ("mkldnn_convolution", "without this beginning"), ("int3", "torch.int4")])
def test_a_name_that_is_not_there_says_what_to_write(name: str, remedy: str) -> None:
    with pytest.raises(NameMissingError, match=f"^torch: there is no {name}; ") as caught:
        getattr(ours, name)
    assert remedy in caught.value.remedy
    with pytest.raises(NameMissingError):
        getattr(impl, name)


def test_gradients_of_several_are_added_and_come_first() -> None:
    x = ours.tensor([1.0, 2.0], requires_grad=True)
    ours.autograd.backward([(x * 2).sum(), (x * x).sum()])
    assert x.grad is not None and x.grad.tolist() == [4, 6]
    ours.autograd.backward(x * 3, ours.tensor([1.0, 0.0]))
    assert x.grad.tolist() == [7, 6]
    with ours.autograd.inference_mode():
        assert ours.is_inference_mode_enabled()
    both: Any = ours.func.grad_and_value(lambda a: (a * a).sum())(ours.tensor([3.0]))
    assert both[0].tolist() == [6] and both[1].item() == 9


def test_random_numbers_of_a_block_leave_no_trace() -> None:
    with ours.random.fork_rng():
        within = ours.rand(3).tolist()
    assert ours.rand(3).tolist() == within


def test_devices_tell_time_and_memory() -> None:
    first, last = (ours.cuda.Event(enable_timing=True) for _ in range(2))
    first.record()
    held = ours.zeros(1000).contiguous().realize()
    last.record()
    assert last.query() and first.elapsed_time(last) > 0
    assert ours.cuda.memory_allocated() >= held.nbytes()
    ours.cuda.reset_peak_memory_stats()
    assert ours.cuda.max_memory_allocated() == ours.cuda.memory_allocated()
    with pytest.raises(NameMissingError, match="nothing: kernels run in the order"):
        _ = ours.cuda.Stream
    assert ours.cuda.OutOfMemoryError is ours.OutOfMemoryError


def test_a_kernel_that_makes_no_number_is_named() -> None:
    x = ours.tensor([0.0])
    with ours.autograd.detect_anomaly():
        assert ours.is_anomaly_enabled()
        with pytest.raises(TensorScheduleError, match="CHECK_NAN"):
            (x / x).realize()
    assert not ours.is_anomaly_enabled() and (x / x).isnan().item()


def test_a_default_device_is_chosen() -> None:
    with Context(DEVICE="REFERENCE"):
        try:
            ours.set_default_device("reference:1")
            assert ours.zeros(2).device == "REFERENCE:1"
        finally:
            ours.set_default_device("REFERENCE")
        assert ours.get_default_device().type == "reference"


def test_a_system_is_solved_under_the_names_of_torch() -> None:
    upper = ours.tensor([[2.0, 1.0], [0.0, 4.0]])
    assert ours.triangular_solve(upper, upper).solution.tolist() == [[1, 0], [0, 1]]
    assert ours.from_dlpack(ours.tensor([1.0, 2.0])).tolist() == [1, 2]
    assert type(ours.to_dlpack(ours.tensor([1.0]))).__name__ == "PyCapsule"


def test_every_name_that_is_shown_is_there() -> None:
    for name in dir(ours):
        assert name.startswith("__") or getattr(ours, name, ours) is not ours, name


def test_devices_have_the_names_of_both() -> None:
    device = ours.device("cuda" if ours.cuda.is_available() else "cpu")
    assert Tensor([1.0]).to(ours.device("reference")).device == "REFERENCE"
    assert ours.device("cuda:0") == "CUDA" and ours.device("mps").type == "mps"
    assert device.type in ("cpu", "cuda")
    assert nn.Linear(2, 1).to(ours.device("reference")).weight.device == "REFERENCE"


def test_batches_by_chance_have_each_example_once() -> None:
    ours.manual_seed(3)
    numbers = data.TensorDataset(Tensor(np.arange(10)), Tensor(np.arange(10) * 2))
    loader = data.DataLoader(numbers, batch_size=4, shuffle=True)
    found = [list(zip(a.tolist(), b.tolist(), strict=True)) for a, b in loader]
    assert [len(batch) for batch in found] == [4, 4, 2] and len(loader) == 3
    together = sum(found, start=[])
    assert sorted(together) == [(one, 2 * one) for one in range(10)] != together
    ours.manual_seed(3)
    assert found[0] == list(zip(*(part.tolist() for part in next(iter(loader))), strict=True))
    with pytest.raises(ArgumentError, match=r"TensorDataset: lengths \[2, 3\] differ"):
        data.TensorDataset(Tensor([1, 2]), Tensor([1, 2, 3]))
    with pytest.raises(ArgumentError, match="DataLoader: batch_size is 0"):
        data.DataLoader([1], batch_size=0)

    class Squares(data.Dataset):
        def __len__(self) -> int:
            return 3

        def __getitem__(self, index: int) -> dict[str, Any]:
            return {"square": index * index, "name": str(index), "row": np.ones(2) * index}

    batch = next(iter(data.DataLoader(Squares(), batch_size=3)))
    assert batch["square"].tolist() == [0, 1, 4] and batch["name"] == ["0", "1", "2"]
    assert batch["row"].shape == (3, 2)
    parts = data.random_split(Squares(), [0.5, 0.5])
    assert [len(part) for part in parts] == [2, 1] and "row" in parts[1][0]


def test_draws_have_their_distribution() -> None:
    ours.manual_seed(0)
    drawn = ours.distributions.Categorical(Tensor([0.2, 0.8])).sample((2000,))
    assert drawn.shape == (2000,) and abs(drawn.float().mean().item() - 0.8) < 0.05
    low = Tensor([1.0], requires_grad=True)
    ours.distributions.Uniform(low, 3.0).rsample((50,)).sum().backward()
    assert low.grad is not None and 0 < low.grad.item() < 50
    drawn = ours.distributions.Normal(Tensor([1.0, 5.0]), 0.5).sample((500,))
    assert np.allclose(drawn.mean(0).numpy(), [1, 5], atol=0.1)
    assert set(ours.distributions.Bernoulli(Tensor([0.5])).sample((40,)).flatten().tolist()) == {
        0, 1}
    with pytest.raises(ArgumentError, match="Categorical: probs and logits are given, or neither"):
        ours.distributions.Categorical()


def test_an_operation_has_a_gradient_of_its_own() -> None:
    class Tripled(ours.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor, times: int) -> Tensor:
            ctx.save_for_backward(x)
            return x * times

        @staticmethod
        def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
            return gradient * ctx.saved_tensors[0] * 100, None

    class Parts(ours.autograd.Function):
        @staticmethod
        def forward(x: Tensor) -> tuple[Tensor, Tensor]:
            return x * 1, x * 2

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            ctx.factor = 5

        @staticmethod
        def backward(ctx: Any, one: Tensor, two: Tensor) -> Tensor:
            return one + two * ctx.factor

    x = Tensor([1.0, 2.0], requires_grad=True)
    y = Tripled.apply(x, 3)
    assert y.tolist() == [3, 6] and y.sum().gradient(x)[0].tolist() == [100, 200]
    one, two = Parts.apply(x)
    assert (one + two).sum().gradient(x)[0].tolist() == [6, 6]


def test_a_generator_has_numbers_of_its_own() -> None:
    ours.manual_seed(5)
    wanted = Tensor.rand(3).tolist()
    ours.manual_seed(5)
    generator = ours.Generator().manual_seed(7)
    first, second = (ours.rand(2, generator=generator).tolist() for _ in range(2))
    assert Tensor.rand(3).tolist() == wanted and first != second
    again = ours.Generator().manual_seed(7)
    assert ours.rand(2, generator=again).tolist() == first
    loader = data.DataLoader(range(9), 9, shuffle=True, generator=ours.Generator().manual_seed(1))
    other = data.DataLoader(range(9), 9, shuffle=True, generator=ours.Generator().manual_seed(1))
    assert next(iter(loader)).tolist() == next(iter(other)).tolist() != list(range(9))


def test_what_is_written_to_data_is_written_to_the_tensor() -> None:
    weight = Tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    weight.data.fill_(5.0)
    weight.data[0] = 1.0
    weight.data -= 1
    assert weight.tolist() == [[0, 0], [4, 4]] and weight.requires_grad
    weight.data = Tensor([[1.0, 2.0], [3.0, 4.0]])
    assert (weight * weight.data).sum().gradient(weight)[0].tolist() == [[1, 2], [3, 4]]
    assert type(weight.data * 2) is Tensor
    assert weight.data().tolist() == weight.tolist()  # type: ignore[operator]
    weight[1].data.zero_()
    assert weight.tolist() == [[1, 2], [0, 0]]
    nn.init.constant_(weight.data, 7.0)
    assert weight.tolist() == [[7, 7], [7, 7]]
    assert ours.FloatTensor(2, 3).shape == (2, 3)


@verifies("replay.wrapper.attributes")
def test_a_compiled_model_is_trained_like_the_model() -> None:
    ours.manual_seed(3)
    plain = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1)).train()
    compiled = ours.compile(copy.deepcopy(plain), mode="max-autotune")
    x, losses = Tensor([[1.0, -2.0, 3.0], [0.5, 0.25, -1.0]]), []
    for model in (plain, compiled):
        optimizer = ours.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(5):
            optimizer.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    assert losses[:5] == losses[5:] and losses[0] > losses[4]
    assert compiled.replays == 3 and list(compiled.state_dict()) == list(plain.state_dict())
    assert compiled.eval() is compiled.function and not compiled.training
    with pytest.raises(NameMissingError, match="there is no qqq"):
        compiled.qqq  # noqa: B018

    @ours.compile(fullgraph=True)
    def doubled(x: Tensor) -> Tensor:
        return x * 2

    assert [doubled(x[0]).tolist() for _ in range(3)] == [[2, -4, 6]] * 3 and doubled.replays == 1
    assert doubled.__name__ == "doubled"


def test_dtypes_and_functions_by_other_names() -> None:
    try:
        ours.set_default_dtype(ours.float64)
        assert ours.get_default_dtype() is ours.tensor([1.0]).dtype is ours.float64
    finally:
        ours.set_default_dtype(ours.float32)
    kinds = ["bool", "uint8", "int64", "float16"]
    assert [[ours.can_cast(getattr(ours, a), getattr(ours, b)) for b in kinds] for a in kinds] == [
        [True] * 4, [False, True, True, True], [False, True, True, True], [False] * 3 + [True]]
    assert ours.promote_types(ours.int8, ours.uint8) is ours.int16
    assert ours.result_type(ours.tensor([1]), 1.0) is ours.result_type(1, 1.0) is ours.float32
    assert ours.frombuffer(b"\1\0\2\0\3\0", dtype=ours.int16, offset=2).tolist() == [2, 3]
    square = ours.tensor([[1.0, 1.0], [0.0, 1.0]])
    assert ours.chain_matmul(square, square, square).tolist() == [[1, 3], [0, 1]]
    assert ours.special.expit(ours.tensor([0.0])).tolist() == [0.5]
    assert ours.tensor([1.0])[ours.newaxis].shape == (1, 1)
    threads = ours.get_num_threads()
    ours.set_num_threads(1)
    assert ours.get_num_threads() == 1
    ours.set_num_threads(threads)


def test_results_of_what_is_learned_require_gradients() -> None:
    w = ours.zeros(1, requires_grad=True)
    loss = (w - 1).square().sum()
    assert loss.requires_grad and not loss.is_leaf and w.requires_grad and w.is_leaf
    assert not loss.detach().requires_grad and not ours.zeros(1).requires_grad
    assert not ours.argmax(w).requires_grad and (w * 2).realize().requires_grad
    with ours.no_grad():
        assert not (w * 2).requires_grad
    with pytest.raises(DTypeError, match="no parameter"):
        ours.optim.SGD([loss.detach().long()], lr=0.1)


def test_linalg_has_ends_of_its_own() -> None:
    a = np.arange(9, dtype=np.float32).reshape(3, 3)
    b = a[::-1].copy()
    found = ours.linalg.cross(ours.tensor(a), ours.tensor(b)).numpy()
    assert np.array_equal(found, np.cross(a, b, axis=-1))
    found = ours.cross(ours.tensor(a), ours.tensor(b)).numpy()
    assert np.array_equal(found, np.cross(a, b, axis=0))
    cube = np.arange(8, dtype=np.float32).reshape(2, 2, 2)
    assert ours.linalg.diagonal(ours.tensor(cube)).tolist() == [[0, 3], [4, 7]]
    assert ours.linalg.vander(ours.tensor([2.0, 3.0]), N=3).tolist() == [[1, 2, 4], [1, 3, 9]]
    assert ours.vander(ours.tensor([2.0, 3.0]), 3).tolist() == [[4, 2, 1], [9, 3, 1]]


def test_a_histogram_has_all_elements() -> None:
    random = np.random.default_rng(0)
    for _ in range(20):
        x = random.standard_normal(9).astype(np.float32)
        assert ours.histogram(ours.tensor(x), 3)[0].sum().item() == 9


def test_gradients_of_values_on_a_mesh_are_asked_for_as_others() -> None:
    p = Tensor([0.5, -0.5], requires_grad=True).shard_(("REFERENCE:0", "REFERENCE:1"))
    assert ours.autograd.grad((p * p).sum(), [p])[0].tolist() == [1, -1]
    assert ours.autograd.grad([p.sum(), p * 3], p, [None, p.detach()])[0].tolist() == [2.5, -0.5]


def test_a_gradient_of_what_was_not_used_is_asked_for_as_in_pytorch() -> None:
    used, blind, other = (ours.ones(2, requires_grad=True) for _ in range(3))
    total = (used.floor() + blind.detach() + (blind > 0) * used + used).sum()
    grad = ours.autograd.grad
    for inputs, place in ((blind, 0), ([used, other], 1)):
        with pytest.raises(RuntimeError, match=f"nothing was computed from input {place}"):
            grad(total, inputs)
    first, second = grad(total, (used, other), allow_unused=True)
    assert first.tolist() == [2, 2] and second is None
    assert grad(used.floor().sum(), used)[0].tolist() == [0, 0]
    assert [one.tolist() for one in grad(total, (blind, other), materialize_grads=True)] \
        == [[0, 0], [0, 0]]
    assert grad(used.sum(), used, create_graph=True)[0].tolist() == [1, 1]
    with pytest.raises(ArgumentError, match="is_grads_batched"):
        grad(used * 2, used, ours.ones(3, 2), is_grads_batched=True)


def test_what_is_given_as_out_is_assigned() -> None:
    x, kept = Tensor([3.0, 1.0, 2.0]), Tensor([5, 5, 5, 5], dtype="int64")
    assert ours.argmin(x.reshape(1, 3), dim=1, out=kept[1:2]).dtype == kept.dtype
    assert kept.tolist() == [5, 1, 5, 5]
    assert ours.minimum(x, Tensor([2.0, 2.0, 2.0]), out=x) is x and x.tolist() == [2.0, 1.0, 2.0]
    values, places = ours.zeros(3), ours.zeros(3, dtype=ours.int64)
    ours.sort(x, dim=0, out=(values, places))
    assert values.tolist() == [1.0, 2.0, 2.0] and places.tolist()[0] == 1
    with pytest.raises(ArgumentError, match="out"):
        x.sum(out=x)


def test_tensors_are_held_to_be_close() -> None:
    close, x = ours.testing.assert_close, Tensor([1.0, 2.0])
    close(x, x + 1e-6)
    close({"a": [x, 1.5]}, {"a": [x, 1.5]})
    close(Tensor([ours.nan]), Tensor([ours.nan]), equal_nan=True)
    for one, two, what in ((x, x + 1e-3, "2 of 2 elements"), (x, x[:1], "shapes"),
                           (x, x.double(), "dtypes"), ([x], [x, x], "lengths"),
                           ({"a": x}, {"b": x}, "keys"), (Tensor([1]), Tensor([2]), "by 1"),
                           (Tensor([ours.nan]), Tensor([ours.nan]), "1 of 1")):
        with pytest.raises(AssertionError, match=what):
            close(one, two)
    close(x, x.double(), check_dtype=False)


def test_gradients_are_checked_by_steps() -> None:
    x = Tensor(np.array([0.5, 1.5])).requires_grad_()

    def halved(x: Tensor) -> Any:
        return impl.func.custom_gradient(lambda x: (x * x, lambda out: out * x))(x)
    assert ours.autograd.gradcheck(lambda x, y: (x.sin() * y, y.exp().sum()), (x, x * 2))
    assert not ours.autograd.gradcheck(halved, x, raise_exception=False)
    with pytest.raises(AssertionError, match="output 0 by input 0"):
        ours.autograd.gradcheck(halved, (x,))


@pytest.mark.parametrize("name", ["zeros_like", "ones_like", "empty_like", "rand_like",
                                  "randn_like"])
def test_tensors_like_another_are_asked_for_as_there(name: str) -> None:
    x = Tensor([[1, 2, 3]])
    made = getattr(ours, name)(x, dtype=ours.float32, device="cpu", requires_grad=True)
    assert (made.shape, made.dtype.name, made.device) == ((1, 3), "float32", "CPU")
    assert made.requires_grad and made.is_leaf
    again = x.new_full((2,), 3, dtype=ours.float32, device="cpu", requires_grad=True)
    assert (again.dtype.name, again.device, again.requires_grad) == ("float32", "CPU", True)
    assert x.new_zeros(2, device="cpu").device == x.new_tensor([1], device="cpu").device == "CPU"


def test_a_gradient_of_no_elements_is_zeros() -> None:
    x = ours.ones(2, 3).requires_grad_()
    x.gather(1, ours.zeros(2, 0, dtype=ours.int64)).sum().backward()
    assert x.grad.tolist() == [[0.0] * 3] * 2


def test_a_mean_of_small_integers_keeps_their_dtype() -> None:
    values = Tensor([1, 2, 3, -4], dtype="int8")
    found = ours.zeros(2, dtype=ours.int8).scatter_reduce(
        0, Tensor([0, 0, 1, 1]), values, "mean", include_self=False)
    assert (found.dtype.name, found.tolist()) == ("int8", [1, -1])


def test_a_checkpoint_hands_on_keywords() -> None:
    from impl.torch.utils.checkpoint import checkpoint, checkpoint_sequential
    x = ours.tensor([1.0, 2.0], requires_grad=True)
    made = checkpoint(lambda x, *, scale=1.0: (x * x * scale).sum(), x, use_reentrant=False,
                      scale=3.0)
    made.backward()
    assert x.grad is not None and made.item() == 15 and x.grad.tolist() == [6.0, 12.0]
    parts = [nn.Linear(2, 2) for _ in range(5)]
    whole = nn.Sequential(*parts)
    for given in (whole, parts):
        for segments in (1, 2, 5):
            found = checkpoint_sequential(given, segments, x, use_reentrant=False)
            assert np.allclose(found.numpy(), whole(x).numpy())


def test_the_order_of_polygamma_comes_first() -> None:
    x = ours.tensor([1.0])
    assert ours.polygamma(1, x).tolist() == ours.special.polygamma(1, x).tolist() \
        == x.polygamma(1).tolist()
