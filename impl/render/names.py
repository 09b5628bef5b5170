"""How kernels are called in a text. Chapter: spec/render.md."""
from __future__ import annotations

import re

#: What the languages have words for, or functions that a kernel may call; and what they keep back.
_C = """auto break case char const continue default do double else enum extern float for
goto if inline int long register restrict return short signed sizeof static struct
switch typedef typeof union unsigned void volatile while asm main"""
_CPP = """alignas alignof and and_eq bitand bitor bool catch char8_t char16_t char32_t class
co_await co_return co_yield compl concept const_cast consteval constexpr constinit
decltype delete dynamic_cast explicit export false friend mutable namespace new
noexcept not not_eq nullptr operator or or_eq private protected public
reinterpret_cast requires static_assert static_cast std template this thread_local
throw true try typeid typename using virtual wchar_t xor xor_eq"""
_GPUS = """access atomic bfloat constant coherent device fragment function global half kernel
local mesh metal object patch_control_point pipe private quad read_only read_write
sampler size_t stage_in texture thread threadgroup threadgroup_imageblock uniform
uchar uint ulong ushort vec vertex visible write_only image1d_t image2d_t image3d_t
event_t sampler_t ptrdiff_t intptr_t uintptr_t blockIdx blockDim gridDim threadIdx
warpSize dim3"""
_FUNCTIONS = """abs acos acosh any all asin asinh atan atan2 atanh barrier cbrt ceil clamp copysign
cos cosh cross degrees distance dot erf erfc exp exp10 exp2 expm1 fabs fdim floor
fma fmax fmin fmod fract frexp hypot ilogb isfinite isinf isnan ldexp length lgamma
log log10 log1p log2 logb mad max memcpy memset min mix modf nan normalize popcount
pow pown powr precise printf radians remainder rint rotate round rsqrt select sign
signbit sin sincos sinh sinpi smoothstep sqrt step tan tanh tgamma trunc vload
vstore"""
_RESERVED = frozenset(" ".join((_C, _CPP, _GPUS, _FUNCTIONS)).split())
#: Types of vectors, `float4` and the like.
_VECTOR = re.compile(r"(packed_)?(bool|u?(char|short|int|long)|u?longlong|half|bfloat|float|double)"
                     r"\d+(x\d+)?")


def identifier(name: str) -> str:
    """A name that every language here accepts, and none has a meaning for."""
    # r[impl render.name.legal]
    plain = re.sub(r"\W", "_", name, flags=re.ASCII)
    meant = plain in _RESERVED or plain.startswith("_") or _VECTOR.fullmatch(plain)
    return f"k_{plain}" if meant or not plain or plain[0].isdigit() else plain
