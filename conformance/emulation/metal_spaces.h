// Metal for clang, only to be looked at and never run: each address space is a type of its own.
//
// What is caught: a pointer to one space where another is due, a write to `constant`, `double`, a
// function that Metal does not have, wrong types and counts of arguments.
#pragma once

#define INFINITY __builtin_inff()
#define NAN __builtin_nanf("")
#define MAXFLOAT 3.40282347e38f
#define FLT_MAX 3.40282347e38f
#define M_PI_F 3.14159265358979323846f
#define M_E_F 2.71828182845904523536f
#define M_LOG2E_F 1.44269504088896340736f
#define M_LN2_F 0.693147180559945309417f

#define DEVICE __attribute__((address_space(1)))
#define CONSTANT const __attribute__((address_space(2)))
#define THREADGROUP __attribute__((address_space(3)))

typedef _Float16 half;
typedef __fp16 bfloat;  // the only other type of 16 bits that counts like float
typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned int uint;
typedef unsigned long ulong;
typedef unsigned long size_t;
typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef unsigned int uint32_t;
typedef unsigned long uint64_t;
typedef signed char int8_t;
typedef short int16_t;
typedef int int32_t;
typedef long int64_t;
constexpr half operator""h(long double value) { return (half)value; }
constexpr half operator""H(long double value) { return (half)value; }
constexpr bfloat operator""bf(long double value) { return (bfloat)value; }

#define VECTORS(type) VECTORS_OF(type, type)
#define VECTORS_OF(type, element) \
    typedef element type##2 __attribute__((ext_vector_type(2))); \
    typedef element type##3 __attribute__((ext_vector_type(3))); \
    typedef element type##4 __attribute__((ext_vector_type(4))); \
    type##2 make_##type##2(type); type##2 make_##type##2(type, type); \
    type##3 make_##type##3(type); type##3 make_##type##3(type, type, type); \
    type##3 make_##type##3(type##2, type); \
    type##4 make_##type##4(type); type##4 make_##type##4(type, type, type, type); \
    type##4 make_##type##4(type##2, type##2); type##4 make_##type##4(type##3, type); \
    template <class V> type##2 make_##type##2(V); \
    template <class V> type##3 make_##type##3(V); template <class V> type##4 make_##type##4(V); \
    namespace metal { \
    template <> struct vec_of<type, 2> { typedef type##2 of; }; \
    template <> struct vec_of<type, 3> { typedef type##3 of; }; \
    template <> struct vec_of<type, 4> { typedef type##4 of; }; }
namespace metal {
template <class T, int N> struct vec_of;
template <class T, int N> using vec = typename vec_of<T, N>::of;
}
// A comparison of vectors gives a vector of whole numbers here.
VECTORS_OF(bool, int) VECTORS(char) VECTORS(uchar) VECTORS(short) VECTORS(ushort) VECTORS(int)
VECTORS(uint) VECTORS(long) VECTORS(ulong) VECTORS(half) VECTORS(bfloat) VECTORS(float)

namespace metal {
template <class To, class From> To as_type(From);

// Functions of floating numbers and of vectors of them; whole numbers are refused.
template <class T> struct Real { static const bool yes = false; };
#define REAL(type) template <> struct Real<type> { static const bool yes = true; };
#define REALS(type) REAL(type) REAL(type##2) REAL(type##3) REAL(type##4)
REALS(float) REALS(half) REALS(bfloat)
template <bool, class T> struct If {};
template <class T> struct If<true, T> { typedef T type; };
#define ONE(name) template <class T> typename If<Real<T>::yes, T>::type name(T);
#define TWO(name) template <class T> typename If<Real<T>::yes, T>::type name(T, T);
#define THREE(name) template <class T> typename If<Real<T>::yes, T>::type name(T, T, T);
#define REAL_FUNCTIONS \
    ONE(exp) ONE(exp2) ONE(exp10) ONE(log) ONE(log2) ONE(log10) ONE(sin) ONE(cos) ONE(tan) \
    ONE(asin) ONE(acos) ONE(atan) ONE(sinh) ONE(cosh) ONE(tanh) ONE(asinh) ONE(acosh) ONE(atanh) \
    ONE(sinpi) ONE(cospi) ONE(sqrt) ONE(rsqrt) ONE(fabs) ONE(floor) ONE(ceil) ONE(trunc) \
    ONE(round) ONE(rint) ONE(fract) ONE(sign) ONE(saturate) TWO(fmax) TWO(fmin) TWO(pow) \
    TWO(powr) TWO(fmod) TWO(atan2) TWO(copysign) TWO(step) THREE(fma) THREE(mix)
REAL_FUNCTIONS
namespace precise { REAL_FUNCTIONS }
namespace fast { REAL_FUNCTIONS }
template <class T> T abs(T);
template <class T> T max(T, T);
template <class T> T min(T, T);
template <class T> T clamp(T, T, T);
template <class T, class C> T select(T, T, C);
template <class T> T popcount(T);
template <class T> T clz(T);
template <class T> T ctz(T);
template <class T> T mulhi(T, T);
float dot(float2, float2); float dot(float3, float3); float dot(float4, float4);
half dot(half2, half2); half dot(half3, half3); half dot(half4, half4);
#define CHECKS(name) \
    bool name(float); bool2 name(float2); bool3 name(float3); bool4 name(float4); \
    bool name(half); bool2 name(half2); bool3 name(half3); bool4 name(half4); bool name(bfloat);
CHECKS(isnan) CHECKS(isinf) CHECKS(isfinite) CHECKS(signbit)
template <class T> bool all(T);
template <class T> bool any(T);

enum class mem_flags { mem_none = 0, mem_device = 1, mem_threadgroup = 2, mem_texture = 4 };
mem_flags operator|(mem_flags, mem_flags);
void threadgroup_barrier(mem_flags);
void simdgroup_barrier(mem_flags);
#define SIMD(name) template <class T> T name(T);
SIMD(simd_sum) SIMD(simd_product) SIMD(simd_min) SIMD(simd_max) SIMD(simd_and) SIMD(simd_or)
SIMD(simd_xor) SIMD(simd_broadcast_first) SIMD(simd_prefix_inclusive_sum)
SIMD(simd_prefix_exclusive_sum)
bool simd_all(bool);
bool simd_any(bool);
#define SHUFFLE(name) template <class T> T name(T, ushort);
SHUFFLE(simd_shuffle) SHUFFLE(simd_broadcast) SHUFFLE(simd_shuffle_xor) SHUFFLE(simd_shuffle_down)
SHUFFLE(simd_shuffle_up)

template <class T, int R, int C> struct simdgroup_matrix {
    static_assert(R == 8 && C == 8, "8 x 8 only");
    simdgroup_matrix() = default;
    explicit simdgroup_matrix(T);
    vec<T, 2> &thread_elements();
};
typedef simdgroup_matrix<float, 8, 8> simdgroup_float8x8;
typedef simdgroup_matrix<half, 8, 8> simdgroup_half8x8;
typedef simdgroup_matrix<bfloat, 8, 8> simdgroup_bfloat8x8;
template <class T, int R, int C> simdgroup_matrix<T, R, C> make_filled_simdgroup_matrix(T);
#define MATRIX(space) \
    template <class T> void simdgroup_load(simdgroup_matrix<T, 8, 8> &, const space T *, \
                                           ulong = 8, ulong2 = 0, bool = false); \
    template <class T> void simdgroup_store(simdgroup_matrix<T, 8, 8>, space T *, ulong = 8, \
                                            ulong2 = 0, bool = false);
MATRIX(DEVICE) MATRIX(THREADGROUP)
template <class D, class A, class B, class C>
void simdgroup_multiply_accumulate(simdgroup_matrix<D, 8, 8> &, simdgroup_matrix<A, 8, 8>,
                                   simdgroup_matrix<B, 8, 8>, simdgroup_matrix<C, 8, 8>);
template <class D, class A, class B>
void simdgroup_multiply(simdgroup_matrix<D, 8, 8> &, simdgroup_matrix<A, 8, 8>,
                        simdgroup_matrix<B, 8, 8>);

enum memory_order { memory_order_relaxed };
template <class T> struct atomic { T value; };
typedef atomic<int> atomic_int;
typedef atomic<uint> atomic_uint;
typedef atomic<float> atomic_float;
template <class T> struct Same { typedef T type; };
#define ATOMIC(space, name) \
    template <class T> \
    T atomic_##name##_explicit(volatile space atomic<T> *, typename Same<T>::type, memory_order);
#define ATOMICS(space) \
    ATOMIC(space, exchange) ATOMIC(space, fetch_add) ATOMIC(space, fetch_sub) \
    ATOMIC(space, fetch_max) ATOMIC(space, fetch_min) ATOMIC(space, fetch_and) \
    ATOMIC(space, fetch_or) ATOMIC(space, fetch_xor) \
    template <class T> \
    void atomic_store_explicit(volatile space atomic<T> *, typename Same<T>::type, memory_order); \
    template <class T> T atomic_load_explicit(const volatile space atomic<T> *, memory_order); \
    template <class T> bool atomic_compare_exchange_weak_explicit(volatile space atomic<T> *, T *, \
        typename Same<T>::type, memory_order, memory_order);
ATOMICS(DEVICE) ATOMICS(THREADGROUP)
}  // namespace metal

#define device DEVICE
#define constant CONSTANT
#define threadgroup THREADGROUP
#define thread
#define kernel
// A packed vector is aligned as one element is.
#define PACKED(name, element) typedef name packed_##name __attribute__((aligned(sizeof(element))));
PACKED(char2, char) PACKED(char4, char)
PACKED(uchar2, uchar) PACKED(uchar4, uchar)
PACKED(short2, short) PACKED(short4, short)
PACKED(ushort2, ushort) PACKED(ushort4, ushort)
PACKED(int2, int) PACKED(int4, int)
PACKED(uint2, uint) PACKED(uint4, uint)
PACKED(long2, long) PACKED(long4, long)
PACKED(ulong2, ulong) PACKED(ulong4, ulong)
PACKED(half2, half) PACKED(half4, half)
PACKED(float2, float) PACKED(float4, float)
#define packed_char2(...) make_char2(__VA_ARGS__)
#define packed_char4(...) make_char4(__VA_ARGS__)
#define packed_uchar2(...) make_uchar2(__VA_ARGS__)
#define packed_uchar4(...) make_uchar4(__VA_ARGS__)
#define packed_short2(...) make_short2(__VA_ARGS__)
#define packed_short4(...) make_short4(__VA_ARGS__)
#define packed_ushort2(...) make_ushort2(__VA_ARGS__)
#define packed_ushort4(...) make_ushort4(__VA_ARGS__)
#define packed_int2(...) make_int2(__VA_ARGS__)
#define packed_int4(...) make_int4(__VA_ARGS__)
#define packed_uint2(...) make_uint2(__VA_ARGS__)
#define packed_uint4(...) make_uint4(__VA_ARGS__)
#define packed_long2(...) make_long2(__VA_ARGS__)
#define packed_long4(...) make_long4(__VA_ARGS__)
#define packed_ulong2(...) make_ulong2(__VA_ARGS__)
#define packed_ulong4(...) make_ulong4(__VA_ARGS__)
#define packed_half2(...) make_half2(__VA_ARGS__)
#define packed_half4(...) make_half4(__VA_ARGS__)
#define packed_float2(...) make_float2(__VA_ARGS__)
#define packed_float4(...) make_float4(__VA_ARGS__)
// A vector is made by a call of its name, which C++ does not have.
#define bool2(...) make_bool2(__VA_ARGS__)
#define bool3(...) make_bool3(__VA_ARGS__)
#define bool4(...) make_bool4(__VA_ARGS__)
#define int2(...) make_int2(__VA_ARGS__)
#define int3(...) make_int3(__VA_ARGS__)
#define int4(...) make_int4(__VA_ARGS__)
#define uint2(...) make_uint2(__VA_ARGS__)
#define uint3(...) make_uint3(__VA_ARGS__)
#define uint4(...) make_uint4(__VA_ARGS__)
#define char2(...) make_char2(__VA_ARGS__)
#define char4(...) make_char4(__VA_ARGS__)
#define uchar2(...) make_uchar2(__VA_ARGS__)
#define uchar4(...) make_uchar4(__VA_ARGS__)
#define short2(...) make_short2(__VA_ARGS__)
#define short4(...) make_short4(__VA_ARGS__)
#define ushort2(...) make_ushort2(__VA_ARGS__)
#define ushort4(...) make_ushort4(__VA_ARGS__)
#define long2(...) make_long2(__VA_ARGS__)
#define long4(...) make_long4(__VA_ARGS__)
#define ulong2(...) make_ulong2(__VA_ARGS__)
#define ulong4(...) make_ulong4(__VA_ARGS__)
#define half2(...) make_half2(__VA_ARGS__)
#define half3(...) make_half3(__VA_ARGS__)
#define half4(...) make_half4(__VA_ARGS__)
#define bfloat2(...) make_bfloat2(__VA_ARGS__)
#define bfloat3(...) make_bfloat3(__VA_ARGS__)
#define bfloat4(...) make_bfloat4(__VA_ARGS__)
#define float2(...) make_float2(__VA_ARGS__)
#define float3(...) make_float3(__VA_ARGS__)
#define float4(...) make_float4(__VA_ARGS__)
#pragma GCC poison double
