"""Which method is meant by the name of an operator of torch, and which operators do not apply."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from impl import Tensor, nn

_RANDOM = ("normal", "multinomial", "bernoulli", "rand_like", "randn_like", "randint_like",
           "randint", "randn", "uniform", "cauchy", "exponential", "geometric", "log_normal",
           "nn.functional.dropout*", "nn.functional.alpha_*", "nn.functional.feature_alpha*",
           "nn.functional.rrelu", "nn.functional.fractional_*", "svd_lowrank", "pca_lowrank",
           "nn.functional.multi_head_attention_forward")
_INSIDE = ("as_strided*", "is_contiguous", "sparse.*", "to_sparse", "resize_*", "_chunk_cat",
           "_segment_reduce", "segment_reduce", "_upsample*", "_native_batch*", "native_*",
           "_batch_norm*", "_softmax_backward*", "_unsafe_*", "_refs*", "item", "hash_tensor",
           "torch.ops.aten.*", "slice", "zero_", "fill", "max_pool2d_with_indices_backward",
           "grid_sampler_2d", "grid_sampler_3d", "nextafter", "alias_copy", "diagonal_copy",
           "expand_copy", "permute_copy", "select_copy", "split_with_sizes_copy", "squeeze_copy",
           "t_copy", "transpose_copy", "unbind_copy", "unfold_copy", "unsqueeze_copy", "view_copy",
           "detach_copy", "split_copy", "narrow_copy", "nn.functional.linear_cross_entropy*",
           "nn.functional.scaled*mm")
_FACTORS = ("geqrf", "ormqr", "linalg.householder_product", "linalg.ldl_*", "lu_unpack", "lu",
            "lu_solve", "linalg.lu_factor*", "linalg.lu_solve", "linalg.*_ex", "linalg.cholesky_ex",
            "linalg.inv_ex", "linalg.solve_ex", "linalg.tensorsolve", "linalg.tensorinv",
            "triangular_solve")
_PHYSICS = ("special.airy*", "special.bessel*", "special.modified*", "special.scaled*",
            "special.spherical*", "special.chebyshev*", "special.hermite*", "special.laguerre*",
            "special.legendre*", "special.shifted*", "igamma", "igammac", "special.zeta")
#: Operators, or with a * all whose names begin so, and why they are not asked.
APART: dict[str, str] = {
    **dict.fromkeys(_RANDOM, "random numbers are not torch's"),
    **dict.fromkeys(("empty", "empty_like", "new_empty", "empty_permuted", "new_empty_strided",
                     "empty_strided"), "the values are those of memory"),
    **dict.fromkeys(_INSIDE, "about storage, or inside of torch"),
    **dict.fromkeys(_FACTORS, "packed factors of LAPACK"),
    **dict.fromkeys(_PHYSICS, "special functions of physics: SciPy has them"),
    **dict.fromkeys(("complex", "polar", "view_as_complex", "real", "imag", "angle", "conj*",
                     "resolve_*", "cfloat", "cdouble", "chalf", "view_as_real", "istft",
                     "linalg.eig", "linalg.eigvals", "isreal", "fft.*", "stft"),
                    "complex numbers"),
    **dict.fromkeys(("max.reduction_with_dim", "min.reduction_with_dim", "cummax", "cummin"),
                    "values only, as in NumPy; the places are those of argmax"),
    "gradient": "x.gradient(y) is that of a loss",
    **dict.fromkeys(("signal.windows.cosine", "signal.windows.exponential",
                     "signal.windows.gaussian", "signal.windows.general_*",
                     "signal.windows.bartlett", "signal.windows.kaiser", "histogramdd"),
                    "SciPy or NumPy has it"),
    "bfloat16": "NumPy cannot compare it", "sgn": "torch's gradient is no array",
    "linalg.lstsq": "the residuals are those of a driver",
    **dict.fromkeys(("linalg.lstsq.grad_oriented", "linalg.pinv.singular"),
                    "a function of torch's tests"),
    "nn.functional.ctc_loss": "torch's gradient is that of what log_softmax was given",
    "masked.*": "of torch.masked", "jiterator*": "CUDA only", "nn.functional.grouped_mm": "CUDA",
}
#: Operators that may give any of several places: the values alone are compared.
TIES = ("sort", "argsort", "topk", "kthvalue", "mode", "median", "nanmedian", "msort",
        "nn.functional.max_pool1d", "nn.functional.max_pool2d", "nn.functional.max_pool3d",
        "nn.functional.adaptive_max_pool1d", "nn.functional.adaptive_max_pool2d",
        "nn.functional.adaptive_max_pool3d", "argmax", "argmin")


def _rms_norm(x: Any, shape: Any, weight: Any = None, eps: Any = None) -> Any:
    known = 1.1920928955078125e-07 if eps is None else eps
    found = x.rms_norm(tuple(range(-len(shape), 0)), known)
    return found if weight is None else found * weight


def _window(terms: tuple[float, ...]) -> Callable[..., Any]:
    def build(length: Any, *, sym: bool = True, dtype: Any = None, **named: Any) -> Any:
        return Tensor._cosine_window(named.get("a", terms), length, not sym, dtype, None)
    return build


#: Operators of which some samples fail, and why. They count as failed all the same.
KNOWN: dict[str, str] = {
    **dict.fromkeys(("nn.functional.max_unpool1d", "nn.functional.max_unpool2d",
                     "nn.functional.max_unpool3d"),
                    "a place that is told twice: torch gives its gradient also to what lost"),
    "logcumsumexp": "torch's gradient is 2e-3 away from that in float64, this one 4e-7",
    "linalg.pinv.hermitian": "the samples are not symmetric, as they are said to be: for such a "
                             "matrix both have no derivative; of a symmetric one the same part",
    "linalg.eigh": "a vector of the other sign is one too",
    "nn.functional.batch_norm": "one axis, and so no channels: torch takes it where it is empty"}


#: What is called by another name, or in another way.
OURS: dict[str, Callable[..., Any]] = {
    "where": lambda x, condition, y: condition.where(x, y),
    "__radd__": lambda x, y: y + x, "__rmul__": lambda x, y: y * x,
    "__rsub__": lambda x, y: y - x, "__rdiv__": lambda x, y: y / x, "__rmod__": lambda x, y: y % x,
    "__rpow__": lambda x, y: y ** x, "__rmatmul__": lambda x, y: y @ x,
    "__rand__": lambda x, y: y & x, "__ror__": lambda x, y: y | x, "__rxor__": lambda x, y: y ^ x,
    "__getitem__": lambda x, *given: x[given[0] if len(given) == 1 else given],
    "T": lambda x: x.T, "H": lambda x: x.H, "mT": lambda x: x.mT, "mH": lambda x: x.mH,
    "einsum": lambda tensors, formula: Tensor.einsum(formula, tensors),
    "nn.functional.rms_norm": _rms_norm,
    "nn.functional.embedding": lambda weight, index, **_: weight.embedding(index),
    "nn.functional.embedding_bag": lambda weight, index, **named: nn.functional.embedding_bag(
        index, weight, **named),
    "polygamma": lambda x, n: x.polygamma(n), "special.polygamma": lambda x, n: x.polygamma(n),
    "signal.windows.hann": _window((0.5, 0.5)), "signal.windows.hamming": _window((0.54, 0.46)),
    "signal.windows.blackman": _window((0.42, 0.5, 0.08)),
    "signal.windows.nuttall": _window((0.3635819, 0.4891775, 0.1365995, 0.0106411)),
    "nn.functional.triplet_margin_with_distance_loss": lambda *given, distance_function=None,
        **named: Tensor.triplet_margin_with_distance_loss(*given, **named),
    "linalg.vander": lambda x, *, N=None: x.vander(N, increasing=True),
    "linalg.svd": lambda x, full_matrices=True: Tensor.linalg.svd(x, full_matrices),
    "nn.functional.pairwise_distance": lambda x, y, **named: x.pairwise_distance(y, **named),
    "special.logit": lambda x, eps=None: x.logit(eps), "special.psi": lambda x: x.digamma(),
    "special.gammaln": lambda x: x.lgamma(), "cholesky_solve": lambda b, u, upper=False:
        b.cholesky_solve(u, upper),
}
