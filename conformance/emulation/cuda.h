// CUDA C++ as NVRTC understands it, as far as generated kernels use it, over the emulator.
#pragma once
#include "narrow.h"
#include <stdio.h>

#define __global__
#define __device__
#define __host__
#define __constant__ static
#define __shared__ EMULATION_SHARED
#define __forceinline__ inline
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __grid_constant__
#define __builtin_assume(condition)

typedef EmulationIndex uint3;
struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
    dim3(uint3 other) : x(other.x), y(other.y), z(other.z) {}
};
#define threadIdx emulation_lane
#define blockIdx emulation_group
#define blockDim emulation_lanes
#define gridDim emulation_groups
#define warpSize 32

typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned int uint;
typedef unsigned long ulong;
typedef long long longlong;
typedef unsigned long long ulonglong;

// Vector types: plain structures, aligned as the hardware loads them.
#define EMULATION_VECTOR(type, element, bytes2, bytes4) \
    struct type##1 { element x; }; \
    struct __align__(bytes2) type##2 { element x, y; }; \
    struct __align__(bytes4) type##4 { element x, y, z, w; }; \
    inline type##1 make_##type##1(element x) { return {x}; } \
    inline type##2 make_##type##2(element x, element y) { return {x, y}; } \
    inline type##4 make_##type##4(element x, element y, element z, element w) { \
        return {x, y, z, w}; }
#define EMULATION_VECTOR3(type, element) \
    struct type##3 { element x, y, z; }; \
    inline type##3 make_##type##3(element x, element y, element z) { return {x, y, z}; }
EMULATION_VECTOR(char, signed char, 2, 4) EMULATION_VECTOR3(char, signed char)
EMULATION_VECTOR(uchar, unsigned char, 2, 4) EMULATION_VECTOR3(uchar, unsigned char)
EMULATION_VECTOR(short, short, 4, 8) EMULATION_VECTOR3(short, short)
EMULATION_VECTOR(ushort, unsigned short, 4, 8) EMULATION_VECTOR3(ushort, unsigned short)
EMULATION_VECTOR(int, int, 8, 16) EMULATION_VECTOR3(int, int)
EMULATION_VECTOR(uint, unsigned, 8, 16)
EMULATION_VECTOR(long, long, 16, 16) EMULATION_VECTOR3(long, long)
EMULATION_VECTOR(ulong, unsigned long, 16, 16) EMULATION_VECTOR3(ulong, unsigned long)
EMULATION_VECTOR(longlong, long long, 16, 16) EMULATION_VECTOR3(longlong, long long)
EMULATION_VECTOR(ulonglong, unsigned long long, 16, 16)
EMULATION_VECTOR3(ulonglong, unsigned long long)
EMULATION_VECTOR(float, float, 8, 16) EMULATION_VECTOR3(float, float)
EMULATION_VECTOR(double, double, 16, 16) EMULATION_VECTOR3(double, double)
inline uint3 make_uint3(unsigned x, unsigned y, unsigned z) { return {x, y, z}; }

// Half and bfloat16, as their headers name them.
typedef emulation::Half __half, half, __nv_half, nv_half;
typedef emulation::Brain __nv_bfloat16, nv_bfloat16;
struct __align__(4) __half2 { __half x, y; };
struct __align__(4) __nv_bfloat162 { __nv_bfloat16 x, y; };
typedef __half2 half2;
typedef __nv_bfloat162 nv_bfloat162;

inline __half __float2half(float a) { return a; }
inline __half __float2half_rn(float a) { return a; }
inline __half __double2half(double a) { return a; }
inline float __half2float(__half a) { return a; }
inline __nv_bfloat16 __float2bfloat16(float a) { return a; }
inline __nv_bfloat16 __float2bfloat16_rn(float a) { return a; }
inline float __bfloat162float(__nv_bfloat16 a) { return a; }
inline unsigned short __half_as_ushort(__half a) { return a.data; }
inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 a) { return a.data; }
inline __half __ushort_as_half(unsigned short a) { return __half::from_bits(a); }
inline __nv_bfloat16 __ushort_as_bfloat16(unsigned short a) { return __nv_bfloat16::from_bits(a); }
#define EMULATION_NARROW_FUNCTIONS(pair, name, widen, from_floats, from_two) \
    inline pair from_floats(float x, float y) { return {x, y}; } \
    inline pair from_two(name x, name y) { return {x, y}; } \
    inline pair make_##widen(name x, name y) { return {x, y}; } \
    inline name __hadd(name a, name b) { return a + b; } \
    inline name __hsub(name a, name b) { return a - b; } \
    inline name __hmul(name a, name b) { return a * b; } \
    inline name __hdiv(name a, name b) { return a / b; } \
    inline name __hneg(name a) { return -a; } \
    inline name __habs(name a) { return name::from_bits(a.data & 0x7fff); } \
    inline name __hmax(name a, name b) { return fmaxf(a, b); } \
    inline name __hmin(name a, name b) { return fminf(a, b); } \
    inline name __hfma(name a, name b, name c) { return (double)(float)a * (float)b + (float)c; } \
    inline bool __hisnan(name a) { return a != a; } \
    inline name hexp(name a) { return expf(a); } \
    inline name hexp2(name a) { return exp2f(a); } \
    inline name hlog(name a) { return logf(a); } \
    inline name hlog2(name a) { return log2f(a); } \
    inline name hsqrt(name a) { return sqrtf(a); } \
    inline name hrsqrt(name a) { return 1 / sqrtf(a); } \
    inline name hrcp(name a) { return 1 / (float)a; } \
    inline name hsin(name a) { return sinf(a); } \
    inline name hcos(name a) { return cosf(a); } \
    inline pair operator+(pair a, pair b) { return {a.x + b.x, a.y + b.y}; } \
    inline pair operator-(pair a, pair b) { return {a.x - b.x, a.y - b.y}; } \
    inline pair operator*(pair a, pair b) { return {a.x * b.x, a.y * b.y}; } \
    inline pair operator/(pair a, pair b) { return {a.x / b.x, a.y / b.y}; } \
    inline pair __hadd2(pair a, pair b) { return {a.x + b.x, a.y + b.y}; } \
    inline pair __hmul2(pair a, pair b) { return {a.x * b.x, a.y * b.y}; } \
    inline pair __hfma2(pair a, pair b, pair c) { \
        return {__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y)}; }
EMULATION_NARROW_FUNCTIONS(__half2, __half, half2, __floats2half2_rn, __halves2half2)
EMULATION_NARROW_FUNCTIONS(__nv_bfloat162, __nv_bfloat16, bfloat162, __floats2bfloat162_rn,
                           __halves2bfloat162)
inline float2 __half22float2(__half2 a) { return {a.x, a.y}; }
inline float2 __bfloat1622float2(__nv_bfloat162 a) { return {a.x, a.y}; }
inline __half __low2half(__half2 a) { return a.x; }
inline __half __high2half(__half2 a) { return a.y; }

// Arithmetic.
#define EMULATION_PAIR(type) \
    inline type max(type a, type b) { return a < b ? b : a; } \
    inline type min(type a, type b) { return b < a ? b : a; }
EMULATION_PAIR(int) EMULATION_PAIR(unsigned) EMULATION_PAIR(long) EMULATION_PAIR(unsigned long)
EMULATION_PAIR(long long) EMULATION_PAIR(unsigned long long)
inline unsigned max(int a, unsigned b) { return max((unsigned)a, b); }
inline unsigned max(unsigned a, int b) { return max(a, (unsigned)b); }
inline unsigned min(int a, unsigned b) { return min((unsigned)a, b); }
inline unsigned min(unsigned a, int b) { return min(a, (unsigned)b); }
inline float max(float a, float b) { return fmaxf(a, b); }
inline float min(float a, float b) { return fminf(a, b); }
inline double max(double a, double b) { return fmax(a, b); }
inline double min(double a, double b) { return fmin(a, b); }
inline float rsqrtf(float a) { return (float)(1 / sqrt((double)a)); }
inline double rsqrt(double a) { return 1 / sqrt(a); }
inline float fdividef(float a, float b) { return a / b; }
inline float sinpif(float a) { return (float)sin(M_PI * fmod(a, 2)); }
inline float cospif(float a) { return (float)cos(M_PI * fmod(a, 2)); }
inline float normcdff(float a) { return (float)(erfc(-a * M_SQRT1_2) / 2); }
inline float __saturatef(float a) { return a > 0 ? (a < 1 ? a : 1) : 0; }
inline float __fdividef(float a, float b) { return a / b; }
inline float __expf(float a) { return expf(a); }
inline float __exp10f(float a) { return (float)pow(10, a); }
inline float exp10f(float a) { return (float)pow(10, a); }
inline float __logf(float a) { return logf(a); }
inline float __log2f(float a) { return log2f(a); }
inline float __log10f(float a) { return log10f(a); }
inline float __sinf(float a) { return sinf(a); }
inline float __cosf(float a) { return cosf(a); }
inline float __tanf(float a) { return tanf(a); }
inline float __powf(float a, float b) { return powf(a, b); }
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __fsqrt_rn(float a) { return sqrtf(a); }
inline float __frcp_rn(float a) { return 1 / a; }
inline float __frsqrt_rn(float a) { return rsqrtf(a); }
inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
inline double __dadd_rn(double a, double b) { return a + b; }
inline double __dmul_rn(double a, double b) { return a * b; }
inline double __fma_rn(double a, double b, double c) { return fma(a, b, c); }
inline int __float_as_int(float a) { return emulation::bits<int>(a); }
inline unsigned __float_as_uint(float a) { return emulation::bits<unsigned>(a); }
inline float __int_as_float(int a) { return emulation::bits<float>(a); }
inline float __uint_as_float(unsigned a) { return emulation::bits<float>(a); }
inline long long __double_as_longlong(double a) { return emulation::bits<long long>(a); }
inline double __longlong_as_double(long long a) { return emulation::bits<double>(a); }
inline int __float2int_rn(float a) { return (int)rintf(a); }
inline int __float2int_rz(float a) { return (int)a; }
inline int __float2int_rd(float a) { return (int)floorf(a); }
inline unsigned __float2uint_rz(float a) { return (unsigned)a; }
inline float __int2float_rn(int a) { return (float)a; }
inline int __popc(unsigned a) { return __builtin_popcount(a); }
inline int __popcll(unsigned long long a) { return __builtin_popcountll(a); }
inline int __clz(int a) { return a ? __builtin_clz((unsigned)a) : 32; }
inline int __clzll(long long a) { return a ? __builtin_clzll((unsigned long long)a) : 64; }
inline int __ffs(int a) { return __builtin_ffs(a); }
inline unsigned __umulhi(unsigned a, unsigned b) { return (unsigned)((uint64_t)a * b >> 32); }
inline int __mulhi(int a, int b) { return (int)((int64_t)a * b >> 32); }
inline unsigned __brev(unsigned a) {
    unsigned reversed = 0;
    for (int bit = 0; bit < 32; bit++) reversed |= (a >> bit & 1) << (31 - bit);
    return reversed;
}

// Memory.
template <class T> inline T __ldg(const T *at) { return *at; }
template <class T> inline T __ldcs(const T *at) { return *at; }
template <class T> inline T __ldcg(const T *at) { return *at; }
template <class T> inline void __stcs(T *at, typename emulation::Plain<T>::type value) {
    *at = value; }
template <class T> inline void __stcg(T *at, typename emulation::Plain<T>::type value) {
    *at = value; }
inline void __threadfence() {}
inline void __threadfence_block() {}
inline void __threadfence_system() {}

// One lane runs at a time: plain code is atomic.
#define EMULATION_ATOMIC(name, changed) \
    template <class T> inline T name(T *at, typename emulation::Plain<T>::type value) { \
        T old = *at; *at = T(changed); return old; }
EMULATION_ATOMIC(atomicAdd, old + value) EMULATION_ATOMIC(atomicSub, old - value)
EMULATION_ATOMIC(atomicMax, old < value ? value : old)
EMULATION_ATOMIC(atomicMin, value < old ? value : old)
EMULATION_ATOMIC(atomicExch, value) EMULATION_ATOMIC(atomicAnd, old & value)
EMULATION_ATOMIC(atomicOr, old | value) EMULATION_ATOMIC(atomicXor, old ^ value)
EMULATION_ATOMIC(atomicInc, old >= value ? 0 : old + 1)
EMULATION_ATOMIC(atomicDec, old == 0 || old > value ? value : old - 1)
template <class T> inline T atomicCAS(T *at, typename emulation::Plain<T>::type expected,
                                      typename emulation::Plain<T>::type value) {
    T old = *at;
    if (old == expected) *at = value;
    return old;
}

// Barriers.
#define EMULATION_LINE int line = __builtin_LINE()
inline void __syncthreads(EMULATION_LINE) { emulation_barrier("__syncthreads", line, 0); }
inline int __syncthreads_count(int predicate, EMULATION_LINE) {
    return (int)emulation_barrier("__syncthreads_count", line, predicate != 0);
}
inline int __syncthreads_or(int predicate, EMULATION_LINE) {
    return emulation_barrier("__syncthreads_or", line, predicate != 0) != 0;
}
inline int __syncthreads_and(int predicate, EMULATION_LINE) {
    return emulation_barrier("__syncthreads_and", line, predicate != 0) == emulation_count();
}
inline void __syncwarp(unsigned mask = 0xffffffff, EMULATION_LINE) {
    emulation_meet("__syncwarp", line, mask, &mask, emulation::no_result);
}

// Warps.
namespace emulation {
inline int lane_id() { return (int)(emulation_number() % WARP); }
// A source outside the own part of `width` lanes means the lane itself.
inline int inside(int source, int width) {
    int first = lane_id() & -width;
    return source < first || source >= first + width ? lane_id() : source;
}
}  // namespace emulation
template <class T>
inline T __shfl_sync(unsigned mask, T value, int source, int width = 32, EMULATION_LINE) {
    int first = emulation::lane_id() & -width;
    return emulation::exchange("__shfl_sync", line, mask, value, first + (source & (width - 1)));
}
template <class T>
inline T __shfl_up_sync(unsigned mask, T value, unsigned by, int width = 32, EMULATION_LINE) {
    return emulation::exchange("__shfl_up_sync", line, mask, value,
                               emulation::inside(emulation::lane_id() - (int)by, width));
}
template <class T>
inline T __shfl_down_sync(unsigned mask, T value, unsigned by, int width = 32, EMULATION_LINE) {
    return emulation::exchange("__shfl_down_sync", line, mask, value,
                               emulation::inside(emulation::lane_id() + (int)by, width));
}
template <class T>
inline T __shfl_xor_sync(unsigned mask, T value, int by, int width = 32, EMULATION_LINE) {
    return emulation::exchange("__shfl_xor_sync", line, mask, value,
                               emulation::inside(emulation::lane_id() ^ by, width));
}
inline unsigned __ballot_sync(unsigned mask, int predicate, EMULATION_LINE) {
    unsigned mine = predicate ? 1u << emulation::lane_id() : 0;
    return emulation::reduce<emulation::Or>("__ballot_sync", line, mask, mine);
}
inline int __any_sync(unsigned mask, int predicate, EMULATION_LINE) {
    return emulation::reduce<emulation::Or>("__any_sync", line, mask, predicate != 0 ? 1 : 0);
}
inline int __all_sync(unsigned mask, int predicate, EMULATION_LINE) {
    return emulation::reduce<emulation::And>("__all_sync", line, mask, predicate != 0 ? 1 : 0);
}
#define EMULATION_REDUCE(name, combine) \
    template <class T> inline T name(unsigned mask, T value, EMULATION_LINE) { \
        return emulation::reduce<emulation::combine>(#name, line, mask, value); }
EMULATION_REDUCE(__reduce_add_sync, Add) EMULATION_REDUCE(__reduce_min_sync, Least)
EMULATION_REDUCE(__reduce_max_sync, Greatest) EMULATION_REDUCE(__reduce_and_sync, And)
EMULATION_REDUCE(__reduce_or_sync, Or) EMULATION_REDUCE(__reduce_xor_sync, Xor)

inline void __trap(EMULATION_LINE) { emulation_fail(line, "__trap"); }
#undef assert
#define assert(condition) \
    ((condition) ? (void)0 : emulation_fail(__LINE__, "assertion failed: " #condition))

// How a launch calls a kernel: `arguments[i]` is where the value of argument i lies.
namespace emulation {
template <class... T, int... I>
inline void call(void (*kernel)(T...), void **arguments, Numbers<I...>) {
    kernel(*(typename Plain<T>::type *)arguments[I]...);
}
template <class... T> inline void call(void (*kernel)(T...), void **arguments) {
    call(kernel, arguments, typename Count<sizeof...(T)>::type());
}
template <class F> struct Signature;
template <class... T> struct Signature<void (*)(T...)> {
    static const int count = sizeof...(T);
    template <int... I> static const EmulationParameter *table(Numbers<I...>) {
        static const EmulationParameter parameters[] = {
            {(unsigned)sizeof(T), (unsigned)alignof(T), Kind<T>::value, I}..., {0, 0, 0, 0}};
        return parameters;
    }
    static const EmulationParameter *parameters() {
        return table(typename Count<sizeof...(T)>::type());
    }
};
}  // namespace emulation
#define EMULATION_KERNEL(name) \
    {#name, [](void **arguments) { emulation::call(&name, arguments); }, \
     emulation::Signature<decltype(&name)>::count, \
     emulation::Signature<decltype(&name)>::parameters()}
