"""The layers and losses under torch.nn's names, compared with PyTorch on the same weights."""
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from conformance.trace import verifies
from impl import Context, Tensor, TinyJit, nn
from impl.errors import ShapeError

random = np.random.default_rng(7)


def drawn(*shape: int) -> np.ndarray:
    return random.standard_normal(shape).astype(np.float32)


LINE, PICTURE, BODY = drawn(2, 4, 9), drawn(2, 4, 6, 6), drawn(2, 4, 4, 4, 4)

#: Layers without weights: name, arguments, input.
PLAIN = [
    *((name, (), {}, LINE) for name in (
        "ReLU", "ReLU6", "SELU", "SiLU", "Mish", "Hardswish", "Hardsigmoid", "Sigmoid", "Tanh",
        "LogSigmoid", "Softsign", "Tanhshrink", "ELU", "CELU", "GELU", "LeakyReLU", "Hardtanh",
        "Hardshrink", "Softshrink", "Softplus", "RReLU", "Identity", "Flatten", "Dropout")),
    ("GELU", ("tanh",), {}, LINE), ("GLU", (1,), {}, LINE), ("Threshold", (.1, 20.), {}, LINE),
    ("Softplus", (2., .5), {}, LINE), ("ELU", (.5,), {"inplace": True}, LINE),
    ("Softmax", (), {"dim": 1}, LINE), ("Softmin", (), {"dim": -1}, LINE),
    ("LogSoftmax", (2,), {}, LINE), ("Softmax2d", (), {}, PICTURE),
    ("Unflatten", (1, (2, 2)), {}, LINE),
    ("MaxPool1d", (3, 2, 1), {}, LINE), ("MaxPool2d", (3,), {"stride": 2, "padding": 1}, PICTURE),
    ("MaxPool2d", (2, 3), {"ceil_mode": True, "dilation": 2}, PICTURE),
    ("MaxPool3d", (2,), {}, BODY),
    ("AvgPool1d", (3, 2, 1), {}, LINE), ("AvgPool2d", (3, 2, 1, True, False), {}, PICTURE),
    ("AvgPool3d", (2,), {"divisor_override": 3}, BODY), ("LPPool2d", (2, 3), {}, PICTURE),
    ("AdaptiveAvgPool1d", (4,), {}, LINE), ("AdaptiveAvgPool2d", ((None, 4),), {}, PICTURE),
    ("AdaptiveMaxPool2d", (4,), {}, PICTURE), ("AdaptiveAvgPool3d", (1,), {}, BODY),
    ("ZeroPad2d", ((1, 2, 0, 3),), {}, PICTURE), ("ConstantPad1d", (2, 3.5), {}, LINE),
    ("ReflectionPad2d", (2,), {}, PICTURE), ("ReplicationPad3d", (1,), {}, BODY),
    ("CircularPad1d", ((1, 2),), {}, LINE),
    ("Upsample", (), {"scale_factor": 2, "mode": "bilinear", "align_corners": True}, PICTURE),
    ("Upsample", ((5, 7),), {}, PICTURE), ("UpsamplingNearest2d", (), {"scale_factor": 2}, PICTURE),
    ("UpsamplingBilinear2d", (), {"size": (4, 9)}, PICTURE),
    ("PixelShuffle", (2,), {}, PICTURE), ("PixelUnshuffle", (3,), {}, PICTURE),
    ("ChannelShuffle", (2,), {}, PICTURE), ("Unfold", (2,), {"stride": 2, "padding": 1}, PICTURE),
    ("Fold", ((6, 8), 2), {}, drawn(2, 12, 35)), ("LocalResponseNorm", (3,), {"k": 2.}, PICTURE),
]
#: Layers with weights, which are given to both.
WEIGHTED = [
    ("Linear", (9, 5), {}, LINE), ("PReLU", (4,), {}, LINE),
    ("Conv1d", (4, 6, 3), {"stride": 2, "padding": 1}, LINE),
    ("Conv1d", (4, 6, 3), {"padding": 1}, LINE[0]),
    ("Conv2d", (4, 6, (3, 2)), {"padding": "same", "groups": 2}, PICTURE),
    ("Conv2d", (4, 6, 3), {"padding": (2, 1), "padding_mode": "reflect"}, PICTURE),
    ("Conv2d", (4, 6, 3), {"padding": "same", "padding_mode": "circular", "dilation": 2}, PICTURE),
    ("Conv3d", (4, 2, 2), {"bias": False}, BODY),
    ("ConvTranspose1d", (4, 3, 4), {"stride": 2}, LINE),
    ("ConvTranspose2d", (4, 6, 3, 2, 1, 1), {"groups": 2}, PICTURE),
    ("ConvTranspose3d", (4, 2, 2), {}, BODY),
    ("LayerNorm", ((6, 6),), {}, PICTURE), ("GroupNorm", (2, 4), {}, PICTURE),
    ("RMSNorm", ((6, 6),), {"eps": None}, PICTURE),
    ("InstanceNorm2d", (4,), {"affine": True}, PICTURE), ("InstanceNorm1d", (4,), {}, LINE),
    ("InstanceNorm3d", (4,), {"track_running_stats": True}, BODY),
    ("BatchNorm2d", (4, 1e-3, .2), {}, PICTURE), ("BatchNorm1d", (4,), {"momentum": None}, LINE),
]


def both(name: str, given: Any, named: Any) -> tuple[Any, Any]:
    """The layer here and there, with PyTorch's weights; both learn."""
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    theirs = getattr(torch.nn, name)(*given, **named)
    own = getattr(nn, name)(*given, **named)
    own.load_state_dict({key: value.detach() for key, value in theirs.state_dict().items()})
    return own, theirs


def compare(own: Any, theirs: Any, *inputs: np.ndarray) -> None:
    """The same outputs, and gradients of the first input and of each weight."""
    torch = pytest.importorskip("torch")
    mine = [Tensor(one, requires_grad=one.dtype == np.float32) for one in inputs]
    other = [torch.tensor(one, requires_grad=one.dtype == np.float32) for one in inputs]
    found, wanted = own(*(one * 1 for one in mine)), theirs(*(one * 1 for one in other))
    assert found.shape == tuple(wanted.shape)
    assert np.allclose(found.numpy(), wanted.detach().numpy(), atol=2e-5, rtol=1e-4)
    if not wanted.requires_grad:
        return
    weight = drawn(*found.shape)
    (found * Tensor(weight)).sum().backward()
    (wanted * torch.tensor(weight)).sum().backward()
    pairs = [(one.grad, two.grad) for one, two in zip(mine, other, strict=True)]
    learned = dict(own.named_parameters())
    pairs += [(learned[name].grad, two.grad) for name, two in theirs.named_parameters()]
    for gradient, expected in pairs:
        if expected is not None:
            assert gradient is not None
            assert np.allclose(gradient.numpy(), expected.numpy(), atol=1e-4, rtol=1e-3)


@pytest.mark.parametrize("name, given, named, x", PLAIN, ids=lambda one: str(one)[:20])
def test_a_layer_is_as_in_pytorch(name: str, given: Any, named: Any, x: np.ndarray) -> None:
    own, theirs = both(name, given, named)
    torch = pytest.importorskip("torch")
    found, wanted = own.eval()(Tensor(x)), theirs.eval()(torch.tensor(x))
    assert found.shape == tuple(wanted.shape)
    assert np.allclose(found.numpy(), wanted.numpy(), atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize("name, given, named, x", WEIGHTED, ids=lambda one: str(one)[:20])
def test_a_layer_with_weights_is_as_in_pytorch(name: str, given: Any, named: Any,
                                               x: np.ndarray) -> None:
    own, theirs = both(name, given, named)
    compare(own.train(), theirs.train(), x)
    for key, value in theirs.state_dict().items():
        if "running" in key:
            assert np.allclose(own.state_dict()[key].numpy(), value.numpy(), atol=1e-5)
    compare(own.eval(), theirs.eval(), x)


#: Losses: name, arguments, inputs.
X, CLASSES = drawn(5, 4), np.array([1, 3, 0, 2, 3], np.int32)
CHANCE, SIGN = random.random((5, 4)).astype(np.float32), np.sign(drawn(5, 4))
WEIGHT = np.array([1, 2, .5, 3], np.float32)
LOSSES = [
    ("CrossEntropyLoss", {"label_smoothing": .1, "ignore_index": 2}, (X, CLASSES)),
    ("CrossEntropyLoss", {"weight": WEIGHT, "reduction": "sum"}, (X, CLASSES)),
    ("CrossEntropyLoss", {}, (X, CHANCE)),
    ("NLLLoss", {"weight": WEIGHT, "ignore_index": 3}, (X, CLASSES)),
    ("BCELoss", {"weight": WEIGHT}, (CHANCE, CHANCE.round())),
    ("BCEWithLogitsLoss", {"pos_weight": WEIGHT, "reduction": "none"}, (X, CHANCE)),
    ("MSELoss", {"reduction": "sum"}, (X, CHANCE)), ("L1Loss", {}, (X, CHANCE)),
    ("SmoothL1Loss", {"beta": .3}, (X, CHANCE)), ("HuberLoss", {"delta": .3}, (X, CHANCE)),
    ("KLDivLoss", {"reduction": "batchmean", "log_target": True}, (X, X[::-1].copy())),
    ("HingeEmbeddingLoss", {"margin": .5}, (X, SIGN)), ("SoftMarginLoss", {}, (X, SIGN)),
    ("MarginRankingLoss", {"margin": .2}, (X, CHANCE, SIGN)),
    ("MultiMarginLoss", {"p": 2, "weight": WEIGHT}, (X, CLASSES)),
    ("MultiLabelMarginLoss", {}, (X[:2], np.array([[3, 0, -1, 1], [2, -1, 0, 0]], np.int32))),
    ("MultiLabelSoftMarginLoss", {"weight": WEIGHT}, (X, CHANCE.round())),
    ("CosineEmbeddingLoss", {"margin": .1}, (X, CHANCE, SIGN[:, 0].copy())),
    ("TripletMarginLoss", {"swap": True, "p": 1.}, (X, CHANCE, X[::-1].copy())),
    ("PoissonNLLLoss", {"full": True}, (X, CHANCE * 3)),
    ("GaussianNLLLoss", {"full": True, "reduction": "none"}, (X, CHANCE, CHANCE + .1)),
    ("CosineSimilarity", {"dim": 1}, (X, CHANCE)), ("PairwiseDistance", {"p": 1.}, (X, CHANCE)),
]


@pytest.mark.parametrize("name, named, inputs", LOSSES, ids=lambda one: str(one)[:20])
def test_a_loss_is_as_in_pytorch(name: str, named: Any, inputs: Any) -> None:
    torch = pytest.importorskip("torch")
    here, there = ({key: make(value) if isinstance(value, np.ndarray) else value
                    for key, value in named.items()} for make in (Tensor, torch.tensor))
    wanted = getattr(torch.nn, name)(**there)(*(
        torch.tensor(one).long() if one.dtype == np.int32 else torch.tensor(one)
        for one in inputs))
    found = getattr(nn, name)(**here)(*map(Tensor, inputs))
    assert found.shape == tuple(wanted.shape)
    assert np.allclose(found.numpy(), wanted.numpy(), atol=1e-5, rtol=1e-4)


def test_ctc_loss_and_its_gradient() -> None:
    torch = pytest.importorskip("torch")
    x = drawn(9, 3, 5)
    targets = np.array([[1, 2, 2, 4], [3, 3, 0, 0], [1, 4, 4, 4]], np.int32)
    times, lengths = [9, 7, 4], [4, 2, 4]  # the last does not fit
    mine, other = Tensor(x, requires_grad=True), torch.tensor(x, requires_grad=True)
    for reduction in ("mean", "sum", "none"):
        found = nn.CTCLoss(reduction=reduction, zero_infinity=True)(
            mine.log_softmax(2), Tensor(targets), times, lengths)
        wanted = torch.nn.CTCLoss(reduction=reduction, zero_infinity=True)(
            other.log_softmax(2), torch.tensor(targets).long(), times, lengths)
        assert np.allclose(found.numpy(), wanted.detach().numpy(), atol=1e-4)
        if reduction == "mean":
            found.backward()
            wanted.backward()
            assert mine.grad is not None and other.grad is not None
            assert np.allclose(mine.grad.numpy(), other.grad.numpy(), atol=1e-4)
    line = np.concatenate([row[:count] for row, count in zip(targets, lengths, strict=True)])
    found = nn.CTCLoss(reduction="none")(mine.log_softmax(2), Tensor(line), times, lengths)
    assert np.allclose(found.numpy()[:2], wanted.detach().numpy()[:2], atol=1e-4)
    with pytest.raises(ShapeError, match="10 letters together, and targets has 9"):
        nn.CTCLoss()(mine.log_softmax(2), Tensor(line[:9]), times, lengths)


RECURRENT = [
    ("RNN", (3, 4), {"nonlinearity": "relu"}), ("GRU", (3, 4, 2), {"batch_first": True}),
    ("LSTM", (3, 4), {"num_layers": 2, "bidirectional": True, "bias": False}),
    ("LSTM", (3, 4), {"proj_size": 2, "batch_first": True}), ("GRU", (3, 4), {"single": True})]


@pytest.mark.parametrize("name, given, named", RECURRENT, ids=lambda one: str(one)[:20])
def test_sequences_are_as_in_pytorch(name: str, given: Any, named: Any) -> None:
    torch = pytest.importorskip("torch")
    single = named.pop("single", False)
    own, theirs = both(name, given, named)
    x = drawn(5, 3) if single else drawn(5, 2, 3)
    found, states = own(Tensor(x))
    wanted, last = theirs(torch.tensor(x))
    pairs = [(found, wanted), *(zip(states, last, strict=True) if name == "LSTM"
                                else [(states, last)])]
    for one, two in pairs:
        assert one.shape == tuple(two.shape)
        assert np.allclose(one.numpy(), two.detach().numpy(), atol=1e-5)
    again = own(Tensor(x), states)[0]
    assert np.allclose(again.numpy(), theirs(torch.tensor(x), last)[0].detach().numpy(), atol=1e-5)
    found.sum().backward()
    wanted.sum().backward()
    first = next(iter(dict(theirs.named_parameters())))
    assert np.allclose(dict(own.named_parameters())[first].grad.numpy(),
                       dict(theirs.named_parameters())[first].grad.numpy(), atol=1e-4)


@pytest.mark.parametrize("name", ["RNNCell", "GRUCell", "LSTMCell"])
def test_one_step_is_as_in_pytorch(name: str) -> None:
    torch = pytest.importorskip("torch")
    own, theirs = both(name, (3, 4), {})
    x = drawn(2, 3)
    found, wanted = own(Tensor(x)), theirs(torch.tensor(x))
    for _ in range(2):
        found, wanted = own(Tensor(x), found), theirs(torch.tensor(x), wanted)
    for one, two in zip(*((both if name == "LSTMCell" else (both,)) for both in (found, wanted)),
                        strict=True):
        assert np.allclose(one.numpy(), two.detach().numpy(), atol=1e-5)


@pytest.mark.parametrize("named", [
    {"batch_first": True}, {"kdim": 6, "vdim": 10, "bias": False},
    {"add_bias_kv": True, "add_zero_attn": True}], ids=str)
def test_attention_is_as_in_pytorch(named: Any) -> None:
    torch = pytest.importorskip("torch")
    own, theirs = both("MultiheadAttention", (8, 2), named)
    rows = (2, 5) if named.get("batch_first") else (5, 2)
    query = drawn(*rows, 8)
    key, value = drawn(*rows, named.get("kdim", 8)), drawn(*rows, named.get("vdim", 8))
    unseen = np.array([[0, 0, 0, 1, 1], [0, 0, 0, 0, 0]], bool)
    later = np.triu(np.ones((5, 5), bool), 1)
    for more in ({}, {"key_padding_mask": unseen, "average_attn_weights": False},
                 {"attn_mask": later, "need_weights": False}):
        here, there = ({key: make(one) if isinstance(one, np.ndarray) else one
                        for key, one in more.items()} for make in (Tensor, torch.tensor))
        found, weights = own(Tensor(query), Tensor(key), Tensor(value), **here)
        wanted, other = theirs(*map(torch.tensor, (query, key, value)), **there)
        assert np.allclose(found.numpy(), wanted.detach().numpy(), atol=1e-5)
        assert (weights is None) == (other is None)
        if other is not None:
            assert np.allclose(weights.numpy(), other.detach().numpy(), atol=1e-5)


@pytest.mark.parametrize("named", [{}, {"norm_first": True, "activation": "gelu"}], ids=str)
def test_a_transformer_is_as_in_pytorch(named: Any) -> None:
    torch = pytest.importorskip("torch")
    own, theirs = both("Transformer", (8, 2, 1, 2, 16), {"batch_first": True, **named})
    source, target = drawn(2, 4, 8), drawn(2, 3, 8)
    mask = torch.nn.Transformer.generate_square_subsequent_mask(3)
    found = own.eval()(Tensor(source), Tensor(target),
                       tgt_mask=nn.Transformer.generate_square_subsequent_mask(3))
    wanted = theirs.eval()(torch.tensor(source), torch.tensor(target), tgt_mask=mask)
    assert np.allclose(found.numpy(), wanted.detach().numpy(), atol=1e-4)


class Net(nn.Module):
    """A network as PyTorch's users write it."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Dropout(.9))
        self.heads = nn.ModuleDict({"a": nn.Linear(4, 2), "b": nn.Linear(4, 1)})
        self.scale = nn.Parameter(Tensor([2.0]))
        self.register_buffer("kept", Tensor([1.0]))
        self.register_buffer("gone", Tensor([1.0]), persistent=False)

    def forward(self, x: Tensor) -> Any:
        return self.heads["a"](self.body(x)) * self.scale


def test_a_module_has_the_methods_that_users_know() -> None:
    net = Net()
    learned = ["scale", "body.0.weight", "body.0.bias", "body.1.weight", "body.1.bias",
               "heads.a.weight", "heads.a.bias", "heads.b.weight", "heads.b.bias"]
    assert [name for name, _ in net.named_parameters()] == learned
    assert set(net.state_dict()) == {*learned, "body.1.running_mean", "body.1.running_var", "kept"}
    assert [name for name, _ in net.named_children()] == ["body", "heads"]
    assert repr(net).startswith("Net(\n  (body): Sequential(\n    (0): Linear(in_features=3")
    other = Net()
    other.load_state_dict(net.state_dict())
    x = Tensor(drawn(5, 3))
    assert np.allclose(net.eval()(x).numpy(), other.eval()(x).numpy(), atol=1e-6)
    assert not np.allclose(net.train()(x).numpy(), other(x).numpy(), atol=1e-3)
    assert net.body[3].training and not other.body[3].training
    net.requires_grad_(False).half()
    assert net.scale.dtype.name in ("half", "float16") and len(net.body[:2]) == 2
    assert not any(one.requires_grad for one in net.parameters())


def test_without_a_mode_a_layer_follows_the_block() -> None:
    layer, ones = nn.Dropout(.5), Tensor.ones(64)
    assert layer(ones).numpy().min() == 1
    with Tensor.train():
        assert layer(ones).numpy().min() == 0 and layer.eval()(ones).numpy().min() == 1


def test_lists_of_layers_change() -> None:
    layers = nn.ModuleList([nn.Identity(), nn.ReLU()])
    layers.insert(0, nn.Tanh())
    layers.append(nn.Sigmoid())
    del layers[1]
    assert [type(one).__name__ for one in layers] == ["Tanh", "ReLU", "Sigmoid"]
    assert isinstance(layers[-1], nn.Sigmoid) and list(dict(layers.named_children())) == [*"012"]


def test_an_activation_in_place_changes_its_input() -> None:
    x = Tensor([-1.0, 2.0])
    assert nn.ReLU(inplace=True)(x).tolist() == x.tolist() == [0, 2]


def test_an_embedding_does_not_learn_its_padding() -> None:
    layer = nn.Embedding(4, 2, padding_idx=-3)
    assert layer.padding_idx == 1 and not layer.weight.numpy()[1].any()
    layer(Tensor([[1, 2], [2, 0]])).sum().backward()
    assert layer.weight.grad is not None
    assert layer.weight.grad.tolist() == [[1, 1], [0, 0], [2, 2], [0, 0]]
    bags = nn.EmbeddingBag(4, 2, mode="sum")
    assert np.allclose(bags(Tensor([[1, 2], [2, 0]])).numpy(),
                       bags.weight.numpy()[[[1, 2], [2, 0]]].sum(1))


def test_long_rows_are_cut_in_the_matrix_where_they_are_used() -> None:
    short = nn.Embedding(4, 2, max_norm=.1)
    before = short.weight.numpy()
    found = short(Tensor([0, 1]))
    found.sum().backward()
    cut = before[:2] * .1 / np.linalg.norm(before[:2], axis=1, keepdims=True)
    assert np.allclose(found.numpy(), cut, atol=1e-5)
    assert np.allclose(short.weight.numpy(), [*cut, *before[2:]], atol=1e-5)
    assert short.weight.grad is not None  # nothing of how they were cut
    assert short.weight.grad.tolist() == [[1, 1], [1, 1], [0, 0], [0, 0]]


def test_first_values() -> None:
    for name, low, high, deviation in (
            ("xavier_uniform_", -.245, .245, .1414), ("kaiming_uniform_", -.347, .347, .2),
            ("trunc_normal_", -2, 2, .8796), ("xavier_normal_", -1, 1, .1414),
            ("kaiming_normal_", -1.2, 1.2, .2), ("uniform_", 0, 1, .2887), ("normal_", -6, 6, 1)):
        found = getattr(nn.init, name)(Tensor.empty(50, 50)).numpy()
        assert low <= found.min() and found.max() <= high, name
        assert abs(found.std() - deviation) < .06 * deviation, name
    basis = nn.init.orthogonal_(Tensor.empty(3, 2, 4), gain=2).numpy().reshape(3, 8)
    assert np.allclose(basis @ basis.T, 4 * np.eye(3), atol=1e-4)
    x = drawn(1, 4, 6)
    kernel = nn.init.dirac_(Tensor.empty(4, 2, 3), groups=2)
    assert np.allclose(Tensor(x).conv1d(kernel, padding=1, groups=2).numpy(), x)
    assert (nn.init.sparse_(Tensor.empty(10, 4), .3).numpy() == 0).sum(0).tolist() == [3] * 4
    assert nn.init.eye_(Tensor.empty(2, 3)).tolist() == [[1, 0, 0], [0, 1, 0]]
    assert nn.init.calculate_gain("leaky_relu", 1) == 1


def test_functions_have_the_order_of_pytorch() -> None:
    functional = nn.functional
    x, kernel = Tensor(drawn(1, 2, 5, 5)), Tensor(drawn(2, 2, 3, 3))
    assert np.allclose(functional.conv2d(x, kernel, None, 2, 1).numpy(),
                       x.conv2d(kernel, stride=2, padding=1).numpy(), atol=1e-5)
    assert functional.gelu(x).shape == x.shape
    assert functional.max_pool2d(x, 3, 2, 1).tolist() == x.max_pool2d(3, 2, padding=1).tolist()


@pytest.mark.slow
@pytest.mark.parametrize(("layer", "arguments", "shape"), [
    ("LSTM", (4, 4), (3, 2, 4)), ("GRU", (4, 4), (3, 2, 4)), ("RNN", (4, 4), (3, 2, 4)),
    ("Linear", (4, 4), (2, 4)), ("Conv2d", (1, 1, 2), (1, 1, 3, 3)), ("LayerNorm", (4,), (2, 4)),
    ("BatchNorm1d", (4,), (2, 4)), ("TransformerEncoderLayer", (4, 2, 4, 0.0), (2, 3, 4))])
def test_captured_layers_are_replayed(layer: str, arguments: Any, shape: tuple[int, ...]) -> None:
    """Nothing in a layer is beyond what a capture can follow."""
    with Context(DEVICE="REFERENCE"):
        made, x = getattr(nn, layer)(*arguments), Tensor(drawn(*shape)).realize()

        def first() -> Tensor:
            found = made(x)
            return found[0] if isinstance(found, tuple) else found

        step = TinyJit(first)
        for _ in range(4):
            step()
        assert step.replays >= 2, step.explain()


@verifies("errors.argument.refused")
def test_ctc_lengths_that_are_known_are_looked_at() -> None:
    scores = Tensor(np.zeros((5, 2, 4), np.float32)).log_softmax(2)
    letters = Tensor([[1, 2], [1, 3]])
    for times, lengths, wrong in (([9, 5], [2, 2], "input_lengths is 9, and there are 5"),
                                  (np.array([5, -1]), [2, 2], "input_lengths is -1"),
                                  ((5, 5), [3, 2], "target_lengths is 3, and there are 2")):
        with pytest.raises(ShapeError, match=wrong):
            nn.functional.ctc_loss(scores, letters, times, lengths)
    assert nn.CTCLoss()(scores, letters, [5, 4], (2, 1)).shape == ()
