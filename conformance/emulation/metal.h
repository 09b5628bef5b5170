// The Metal shading language, as far as generated kernels use it, over the emulator.
#pragma once
// Without C++'s overloads in the global namespace, which would be as near as those of `metal`.
#define _GLIBCXX_INCLUDE_NEXT_C_HEADERS 1
#include "narrow.h"
#undef isnan
#undef isinf
#undef isfinite
#undef signbit

typedef emulation::Half half;
typedef emulation::Brain bfloat;
typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned int uint;
typedef unsigned long ulong;

inline half operator""h(long double value) { return (double)value; }
inline half operator""H(long double value) { return (double)value; }
inline bfloat operator""bf(long double value) { return (double)value; }

#define M_PI_F 3.14159265358979323846f
#define M_E_F 2.71828182845904523536f
#define M_LOG2E_F 1.44269504088896340736f
#define M_LN2_F 0.693147180559945309417f

namespace metal {

// Two or three elements of a vector, as a vector: v.xy
template <class V, class T, int N, int FIRST> struct Part {
    T at[N];
    operator V() const {
        V all;
        for (int i = 0; i < V::size; i++) all[i] = at[FIRST + i];
        return all;
    }
    Part &operator=(const V &all) {
        for (int i = 0; i < V::size; i++) at[FIRST + i] = all[i];
        return *this;
    }
};

template <class T, int N> struct vec;
#define EMULATION_COMMON(n) \
    static const int size = n; \
    vec() = default; \
    vec(T all) { for (int i = 0; i < n; i++) at[i] = all; } \
    template <class U> explicit vec(const vec<U, n> &other) { \
        for (int i = 0; i < n; i++) at[i] = T(other[i]); } \
    T &operator[](int i) { return at[i]; } \
    const T &operator[](int i) const { return at[i]; }
template <class T> struct alignas(2 * sizeof(T)) vec<T, 2> {
    union { struct { T x, y; }; struct { T r, g; }; T at[2]; };
    EMULATION_COMMON(2)
    vec(T x, T y) : x(x), y(y) {}
};
template <class T> struct alignas(4 * sizeof(T)) vec<T, 3> {
    union { struct { T x, y, z; }; struct { T r, g, b; }; T at[3];
            Part<vec<T, 2>, T, 3, 0> xy; Part<vec<T, 2>, T, 3, 1> yz; };
    EMULATION_COMMON(3)
    vec(T x, T y, T z) : x(x), y(y), z(z) {}
    vec(vec<T, 2> xy, T z) : x(xy[0]), y(xy[1]), z(z) {}
};
template <class T> struct alignas(4 * sizeof(T)) vec<T, 4> {
    union { struct { T x, y, z, w; }; struct { T r, g, b, a; }; T at[4];
            Part<vec<T, 2>, T, 4, 0> xy; Part<vec<T, 2>, T, 4, 2> zw;
            Part<vec<T, 3>, T, 4, 0> xyz; };
    EMULATION_COMMON(4)
    vec(T x, T y, T z, T w) : x(x), y(y), z(z), w(w) {}
    vec(vec<T, 2> xy, vec<T, 2> zw) : x(xy[0]), y(xy[1]), z(zw[0]), w(zw[1]) {}
    vec(vec<T, 3> xyz, T w) : x(xyz[0]), y(xyz[1]), z(xyz[2]), w(w) {}
};

template <class T> struct Same { typedef T type; };
#define EMULATION_EACH(op, result) \
    template <class T, int N> inline vec<result, N> operator op(vec<T, N> a, vec<T, N> b) { \
        vec<result, N> all; \
        for (int i = 0; i < N; i++) all[i] = result(a[i] op b[i]); \
        return all; } \
    template <class T, int N> \
    inline vec<result, N> operator op(vec<T, N> a, typename Same<T>::type b) { \
        return a op vec<T, N>(b); } \
    template <class T, int N> \
    inline vec<result, N> operator op(typename Same<T>::type a, vec<T, N> b) { \
        return vec<T, N>(a) op b; }
#define EMULATION_EACH_AND_ASSIGN(op) \
    EMULATION_EACH(op, T) \
    template <class T, int N> inline vec<T, N> &operator op##=(vec<T, N> &a, vec<T, N> b) { \
        return a = a op b; } \
    template <class T, int N> \
    inline vec<T, N> &operator op##=(vec<T, N> &a, typename Same<T>::type b) { \
        return a = a op vec<T, N>(b); }
EMULATION_EACH_AND_ASSIGN(+) EMULATION_EACH_AND_ASSIGN(-) EMULATION_EACH_AND_ASSIGN(*)
EMULATION_EACH_AND_ASSIGN(/) EMULATION_EACH_AND_ASSIGN(%) EMULATION_EACH_AND_ASSIGN(&)
EMULATION_EACH_AND_ASSIGN(|) EMULATION_EACH_AND_ASSIGN(^) EMULATION_EACH_AND_ASSIGN(<<)
EMULATION_EACH_AND_ASSIGN(>>)
EMULATION_EACH(<, bool) EMULATION_EACH(>, bool) EMULATION_EACH(<=, bool)
EMULATION_EACH(>=, bool) EMULATION_EACH(==, bool) EMULATION_EACH(!=, bool)
template <class T, int N> inline vec<T, N> operator-(vec<T, N> a) { return vec<T, N>(T(0)) - a; }

#define EMULATION_NAMES(type) \
    typedef vec<type, 2> type##2; typedef vec<type, 3> type##3; typedef vec<type, 4> type##4;
EMULATION_NAMES(bool) EMULATION_NAMES(char) EMULATION_NAMES(uchar) EMULATION_NAMES(short)
EMULATION_NAMES(ushort) EMULATION_NAMES(int) EMULATION_NAMES(uint) EMULATION_NAMES(long)
EMULATION_NAMES(ulong) EMULATION_NAMES(half) EMULATION_NAMES(bfloat) EMULATION_NAMES(float)

// Packed vectors lie wherever one of their elements may lie.
template <class T, int N> struct packed {
    T at[N];
    packed() = default;
    explicit packed(T all) { for (int i = 0; i < N; i++) at[i] = all; }
    template <class... U> packed(T first, T second, U... rest) : at{first, second, T(rest)...} {}
    T &operator[](int i) { return at[i]; }
    T operator[](int i) const { return at[i]; }
};
#define EMULATION_PACKED(type) \
    typedef packed<type, 2> packed_##type##2; typedef packed<type, 4> packed_##type##4;
EMULATION_PACKED(char) EMULATION_PACKED(uchar) EMULATION_PACKED(short) EMULATION_PACKED(ushort)
EMULATION_PACKED(int) EMULATION_PACKED(uint) EMULATION_PACKED(long) EMULATION_PACKED(ulong)
EMULATION_PACKED(half) EMULATION_PACKED(float)

template <class To, class From> inline To as_type(From from) { return emulation::bits<To>(from); }

// Functions of one or more numbers, for float, for the narrow types by way of float, for vectors.
namespace functions {
#define EMULATION_ONE(name, result, value) \
    inline result name(float a) { return value; } \
    template <class T, int N> inline auto name(vec<T, N> a) -> vec<decltype(name(a[0])), N> { \
        vec<decltype(name(a[0])), N> all; \
        for (int i = 0; i < N; i++) all[i] = name(a[i]); \
        return all; }
#define EMULATION_FUNCTION(name, value) \
    EMULATION_ONE(name, float, value) \
    inline half name(half a) { return name((float)a); } \
    inline bfloat name(bfloat a) { return name((float)a); }
EMULATION_FUNCTION(exp, ::expf(a)) EMULATION_FUNCTION(exp2, ::exp2f(a))
EMULATION_FUNCTION(exp10, (float)::pow(10, a)) EMULATION_FUNCTION(log, ::logf(a))
EMULATION_FUNCTION(log2, ::log2f(a)) EMULATION_FUNCTION(log10, ::log10f(a))
EMULATION_FUNCTION(sin, ::sinf(a)) EMULATION_FUNCTION(cos, ::cosf(a))
EMULATION_FUNCTION(tan, ::tanf(a)) EMULATION_FUNCTION(asin, ::asinf(a))
EMULATION_FUNCTION(acos, ::acosf(a)) EMULATION_FUNCTION(atan, ::atanf(a))
EMULATION_FUNCTION(sinh, ::sinhf(a)) EMULATION_FUNCTION(cosh, ::coshf(a))
EMULATION_FUNCTION(tanh, ::tanhf(a)) EMULATION_FUNCTION(asinh, ::asinhf(a))
EMULATION_FUNCTION(acosh, ::acoshf(a)) EMULATION_FUNCTION(atanh, ::atanhf(a))
EMULATION_FUNCTION(sinpi, (float)::sin(M_PI *::fmod(a, 2)))
EMULATION_FUNCTION(cospi, (float)::cos(M_PI *::fmod(a, 2)))
EMULATION_FUNCTION(sqrt, ::sqrtf(a)) EMULATION_FUNCTION(rsqrt, (float)(1 / ::sqrt((double)a)))
EMULATION_FUNCTION(fabs, ::fabsf(a)) EMULATION_FUNCTION(abs, ::fabsf(a))
EMULATION_FUNCTION(floor, ::floorf(a)) EMULATION_FUNCTION(ceil, ::ceilf(a))
EMULATION_FUNCTION(trunc, ::truncf(a)) EMULATION_FUNCTION(round, ::roundf(a))
EMULATION_FUNCTION(rint, ::rintf(a)) EMULATION_FUNCTION(fract, a - ::floorf(a))
EMULATION_FUNCTION(sign, (float)((a > 0) - (a < 0)))
EMULATION_FUNCTION(saturate, a > 0 ? (a < 1 ? a : 1) : 0)
EMULATION_ONE(isnan, bool, a != a) EMULATION_ONE(isinf, bool, __builtin_isinf(a))
EMULATION_ONE(isfinite, bool, __builtin_isfinite(a)) EMULATION_ONE(signbit, bool,
                                                                   __builtin_signbit(a))
inline int abs(int a) { return a < 0 ? -a : a; }
inline long abs(long a) { return a < 0 ? -a : a; }

template <class T> inline T least(T a, T b) { return b < a ? b : a; }
template <class T> inline T most(T a, T b) { return a < b ? b : a; }
#define EMULATION_TWO(name, value) \
    inline float name(float a, float b) { return value; } \
    inline half name(half a, half b) { return name((float)a, (float)b); } \
    inline bfloat name(bfloat a, bfloat b) { return name((float)a, (float)b); } \
    template <class T, int N> inline vec<T, N> name(vec<T, N> a, vec<T, N> b) { \
        for (int i = 0; i < N; i++) a[i] = name(a[i], b[i]); \
        return a; }
EMULATION_TWO(fmax, ::fmaxf(a, b)) EMULATION_TWO(fmin, ::fminf(a, b))
EMULATION_TWO(max, ::fmaxf(a, b)) EMULATION_TWO(min, ::fminf(a, b))
EMULATION_TWO(pow, ::powf(a, b)) EMULATION_TWO(powr, ::powf(a, b))
EMULATION_TWO(fmod, ::fmodf(a, b)) EMULATION_TWO(atan2, ::atan2f(a, b))
EMULATION_TWO(copysign, ::copysignf(a, b)) EMULATION_TWO(step, b < a ? 0.0f : 1.0f)
#define EMULATION_WHOLE(type) \
    inline type max(type a, type b) { return most(a, b); } \
    inline type min(type a, type b) { return least(a, b); } \
    inline type clamp(type a, type low, type high) { return least(most(a, low), high); }
EMULATION_WHOLE(char) EMULATION_WHOLE(signed char) EMULATION_WHOLE(uchar) EMULATION_WHOLE(short)
EMULATION_WHOLE(ushort) EMULATION_WHOLE(int) EMULATION_WHOLE(uint) EMULATION_WHOLE(long)
EMULATION_WHOLE(ulong)
#define EMULATION_THREE(name, value) \
    inline float name(float a, float b, float c) { return value; } \
    inline half name(half a, half b, half c) { return name((float)a, (float)b, (float)c); } \
    inline bfloat name(bfloat a, bfloat b, bfloat c) { \
        return name((float)a, (float)b, (float)c); } \
    template <class T, int N> \
    inline vec<T, N> name(vec<T, N> a, vec<T, N> b, vec<T, N> c) { \
        for (int i = 0; i < N; i++) a[i] = name(a[i], b[i], c[i]); \
        return a; }
EMULATION_THREE(fma, ::fmaf(a, b, c)) EMULATION_THREE(mix, a + (b - a) * c)
EMULATION_THREE(clamp, ::fminf(::fmaxf(a, b), c))
template <class T> inline T select(T a, T b, bool condition) { return condition ? b : a; }
template <class T, int N> inline vec<T, N> select(vec<T, N> a, vec<T, N> b, vec<bool, N> when) {
    for (int i = 0; i < N; i++) a[i] = when[i] ? b[i] : a[i];
    return a;
}
template <class T, int N> inline T dot(vec<T, N> a, vec<T, N> b) {
    T sum = T(0);
    for (int i = 0; i < N; i++) sum = T(sum + a[i] * b[i]);
    return sum;
}
template <int N> inline bool all(vec<bool, N> a) {
    for (int i = 0; i < N; i++) if (!a[i]) return false;
    return true;
}
template <int N> inline bool any(vec<bool, N> a) { return !all(a == vec<bool, N>(false)); }
template <class T> inline T popcount(T a) { return (T)__builtin_popcountll((uint64_t)a); }
inline uint clz(uint a) { return a ? (uint)__builtin_clz(a) : 32; }
inline uint mulhi(uint a, uint b) { return (uint)((uint64_t)a * b >> 32); }
inline int mulhi(int a, int b) { return (int)((int64_t)a * b >> 32); }
}  // namespace functions
using namespace functions;
namespace precise = functions;
namespace fast = functions;

// Barriers.
enum class mem_flags { mem_none = 0, mem_device = 1, mem_threadgroup = 2, mem_texture = 4 };
inline mem_flags operator|(mem_flags a, mem_flags b) { return mem_flags(int(a) | int(b)); }
#define EMULATION_LINE int line = __builtin_LINE()
inline void threadgroup_barrier(mem_flags, EMULATION_LINE) {
    emulation_barrier("threadgroup_barrier", line, 0);
}
inline void simdgroup_barrier(mem_flags flags, EMULATION_LINE) {
    emulation_meet("simdgroup_barrier", line, ~0u, &flags, emulation::no_result);
}

// Lanes of a simdgroup. All of them have to call.
inline int lane_id() { return (int)(emulation_number() % emulation::WARP); }
inline int lanes_here() {
    unsigned first = emulation_number() - (unsigned)lane_id(), left = emulation_count() - first;
    return (int)least(left, emulation::WARP);
}
#define EMULATION_SIMD(name, combine) \
    template <class T> inline T name(T value, EMULATION_LINE) { \
        return emulation::reduce<emulation::combine>(#name, line, ~0u, value); }
EMULATION_SIMD(simd_sum, Add) EMULATION_SIMD(simd_product, Multiply)
EMULATION_SIMD(simd_min, Least) EMULATION_SIMD(simd_max, Greatest)
EMULATION_SIMD(simd_and, And) EMULATION_SIMD(simd_or, Or) EMULATION_SIMD(simd_xor, Xor)
inline bool simd_all(bool value, EMULATION_LINE) { return simd_and(value ? 1 : 0, line) != 0; }
inline bool simd_any(bool value, EMULATION_LINE) { return simd_or(value ? 1 : 0, line) != 0; }
template <class T> inline T simd_shuffle(T value, ushort source, EMULATION_LINE) {
    return emulation::exchange("simd_shuffle", line, ~0u, value, source < 32 ? source : -1);
}
template <class T> inline T simd_broadcast(T value, ushort source, EMULATION_LINE) {
    return emulation::exchange("simd_broadcast", line, ~0u, value, source < 32 ? source : -1);
}
template <class T> inline T simd_broadcast_first(T value, EMULATION_LINE) {
    return emulation::exchange("simd_broadcast_first", line, ~0u, value, 0);
}
template <class T> inline T simd_shuffle_xor(T value, ushort by, EMULATION_LINE) {
    return emulation::exchange("simd_shuffle_xor", line, ~0u, value, (lane_id() ^ by) & 31);
}
template <class T> inline T simd_shuffle_down(T value, ushort by, EMULATION_LINE) {
    int source = lane_id() + by < lanes_here() ? lane_id() + by : lane_id();
    return emulation::exchange("simd_shuffle_down", line, ~0u, value, source);
}
template <class T> inline T simd_shuffle_up(T value, ushort by, EMULATION_LINE) {
    int source = lane_id() < by ? lane_id() : lane_id() - by;
    return emulation::exchange("simd_shuffle_up", line, ~0u, value, source);
}
template <class T> struct Prefix {
    T before, value;
    static void complete(void **brought, unsigned) {
        T sum = T(0);
        for (unsigned lane = 0; lane < emulation::WARP && brought[lane]; lane++) {
            Prefix *own = (Prefix *)brought[lane];
            own->before = sum;
            own->value = sum = T(sum + own->value);
        }
    }
};
template <class T> inline T simd_prefix_inclusive_sum(T value, EMULATION_LINE) {
    Prefix<T> mine = {value, value};
    emulation_meet("simd_prefix_inclusive_sum", line, ~0u, &mine, Prefix<T>::complete);
    return mine.value;
}
template <class T> inline T simd_prefix_exclusive_sum(T value, EMULATION_LINE) {
    Prefix<T> mine = {value, value};
    emulation_meet("simd_prefix_exclusive_sum", line, ~0u, &mine, Prefix<T>::complete);
    return mine.before;
}

// Matrices of 8 x 8 that the 32 lanes of a simdgroup hold together, two elements each.
template <class T, int ROWS, int COLUMNS> struct simdgroup_matrix {
    static_assert(ROWS == 8 && COLUMNS == 8, "8 x 8 only");
    vec<T, 2> mine;
    simdgroup_matrix() = default;
    explicit simdgroup_matrix(T diagonal) {
        for (int i = 0; i < 2; i++) mine[i] = row() == column() + i ? diagonal : T(0);
    }
    vec<T, 2> &thread_elements() { return mine; }
    static int row(int lane = lane_id()) { return (lane / 4 & 4) + lane / 2 % 4; }
    static int column(int lane = lane_id()) { return (lane / 4 & 2) * 2 + lane % 2 * 2; }
};
typedef simdgroup_matrix<float, 8, 8> simdgroup_float8x8;
typedef simdgroup_matrix<half, 8, 8> simdgroup_half8x8;
typedef simdgroup_matrix<bfloat, 8, 8> simdgroup_bfloat8x8;

template <class T, int R, int C>
inline simdgroup_matrix<T, R, C> make_filled_simdgroup_matrix(T value) {
    simdgroup_matrix<T, R, C> made;
    made.mine = vec<T, 2>(value);
    return made;
}
template <class T> inline void simdgroup_load(simdgroup_matrix<T, 8, 8> &matrix, const T *from,
        ulong row_length = 8, ulong2 origin = ulong2(0), bool transposed = false, EMULATION_LINE) {
    ulong row = (ulong)matrix.row() , column = (ulong)matrix.column();
    for (ulong i = 0; i < 2; i++)
        matrix.mine[(int)i] = transposed
            ? from[(origin.y + column + i) * row_length + origin.x + row]
            : from[(origin.y + row) * row_length + origin.x + column + i];
    emulation_meet("simdgroup_load", line, ~0u, &line, emulation::no_result);
}
template <class T> inline void simdgroup_store(simdgroup_matrix<T, 8, 8> matrix, T *to,
        ulong row_length = 8, ulong2 origin = ulong2(0), bool transposed = false, EMULATION_LINE) {
    ulong row = (ulong)matrix.row(), column = (ulong)matrix.column();
    emulation_meet("simdgroup_store", line, ~0u, &line, emulation::no_result);
    for (ulong i = 0; i < 2; i++)
        (transposed ? to[(origin.y + column + i) * row_length + origin.x + row]
                    : to[(origin.y + row) * row_length + origin.x + column + i])
            = matrix.mine[(int)i];
}
template <class D, class A, class B, class C> struct Product {
    vec<D, 2> d;
    vec<A, 2> a;
    vec<B, 2> b;
    vec<C, 2> c;
    // The lane that holds an element, and the first or the second of its two.
    static Product *holder(void **brought, int row, int column) {
        int lane = (row & 4) * 4 + (row & 3) * 2 + (column & 4) * 2 + (column & 2) / 2;
        return (Product *)brought[lane];
    }
    static void complete(void **brought, unsigned present) {
        if (present != ~0u) return;  // a simdgroup that is not full has no matrices
        for (int row = 0; row < 8; row++)
            for (int column = 0; column < 8; column++) {
                float sum = holder(brought, row, column)->c[column & 1];
                for (int k = 0; k < 8; k++)
                    sum += (float)holder(brought, row, k)->a[k & 1] *
                           (float)holder(brought, k, column)->b[column & 1];
                holder(brought, row, column)->d[column & 1] = D(sum);
            }
    }
};
template <class D, class A, class B, class C>
inline void simdgroup_multiply_accumulate(simdgroup_matrix<D, 8, 8> &d, simdgroup_matrix<A, 8, 8> a,
        simdgroup_matrix<B, 8, 8> b, simdgroup_matrix<C, 8, 8> c, EMULATION_LINE) {
    typedef Product<D, A, B, C> Together;
    if (lanes_here() != 32) emulation_fail(line, "a matrix needs a simdgroup of 32 lanes");
    Together mine = {d.mine, a.mine, b.mine, c.mine};
    emulation_meet("simdgroup_multiply_accumulate", line, ~0u, &mine, Together::complete);
    d.mine = mine.d;
}
template <class D, class A, class B>
inline void simdgroup_multiply(simdgroup_matrix<D, 8, 8> &d, simdgroup_matrix<A, 8, 8> a,
                               simdgroup_matrix<B, 8, 8> b, EMULATION_LINE) {
    simdgroup_multiply_accumulate(d, a, b, simdgroup_matrix<D, 8, 8>(D(0)), line);
}

// One lane runs at a time: plain code is atomic.
enum memory_order { memory_order_relaxed };
template <class T> struct atomic { T value; };
typedef atomic<int> atomic_int;
typedef atomic<uint> atomic_uint;
typedef atomic<float> atomic_float;
#define EMULATION_ATOMIC(name, changed) \
    template <class T> inline T name(atomic<T> *at, typename Same<T>::type value, memory_order) { \
        T old = at->value; at->value = T(changed); return old; }
EMULATION_ATOMIC(atomic_exchange_explicit, value)
EMULATION_ATOMIC(atomic_fetch_add_explicit, old + value)
EMULATION_ATOMIC(atomic_fetch_sub_explicit, old - value)
EMULATION_ATOMIC(atomic_fetch_max_explicit, most(old, value))
EMULATION_ATOMIC(atomic_fetch_min_explicit, least(old, value))
EMULATION_ATOMIC(atomic_fetch_and_explicit, old & value)
EMULATION_ATOMIC(atomic_fetch_or_explicit, old | value)
EMULATION_ATOMIC(atomic_fetch_xor_explicit, old ^ value)
template <class T>
inline void atomic_store_explicit(atomic<T> *at, typename Same<T>::type value, memory_order) {
    at->value = value;
}
template <class T> inline T atomic_load_explicit(const atomic<T> *at, memory_order) {
    return at->value;
}
template <class T> inline bool atomic_compare_exchange_weak_explicit(atomic<T> *at, T *expected,
        typename Same<T>::type value, memory_order, memory_order) {
    bool same = at->value == *expected;
    if (same) at->value = value;
    else *expected = at->value;
    return same;
}

}  // namespace metal

// How a launch calls a kernel: each parameter takes a buffer, a value, or a position in the grid.
namespace emulation {
template <int I, class F> struct At;
template <class First, class... Rest> struct At<0, void (*)(First, Rest...)> {
    typedef First type;
};
template <int I, class First, class... Rest> struct At<I, void (*)(First, Rest...)>
    : At<I - 1, void (*)(Rest...)> {};
template <class T> struct Argument {
    static T &of(void *argument) { return *(T *)argument; }
};
template <class T> struct Argument<T &> {
    static T &of(void *argument) { return *(T *)argument; }
};
template <class T> struct Position {
    static T of(EmulationIndex index) { return T(index.x); }
};
template <class T> struct Position<metal::vec<T, 2>> {
    static metal::vec<T, 2> of(EmulationIndex i) { return metal::vec<T, 2>((T)i.x, (T)i.y); }
};
template <class T> struct Position<metal::vec<T, 3>> {
    static metal::vec<T, 3> of(EmulationIndex i) {
        return metal::vec<T, 3>((T)i.x, (T)i.y, (T)i.z);
    }
};
template <class T> struct Referred { typedef T type; };
template <class T> struct Referred<T &> { typedef T type; };
template <class T> struct Described {
    typedef typename Referred<T>::type plain;
    static EmulationParameter in(int slot) {
        return {(unsigned)sizeof(plain), (unsigned)alignof(plain), Kind<plain>::value, slot};
    }
};

inline EmulationIndex times(EmulationIndex a, EmulationIndex b) {
    return {a.x * b.x, a.y * b.y, a.z * b.z};
}
inline EmulationIndex thread_position_in_threadgroup() { return emulation_lane; }
inline EmulationIndex threadgroup_position_in_grid() { return emulation_group; }
inline EmulationIndex threads_per_threadgroup() { return emulation_lanes; }
inline EmulationIndex dispatch_threads_per_threadgroup() { return emulation_lanes; }
inline EmulationIndex threadgroups_per_grid() { return emulation_groups; }
inline EmulationIndex threads_per_grid() { return times(emulation_groups, emulation_lanes); }
inline EmulationIndex thread_position_in_grid() {
    EmulationIndex first = times(emulation_group, emulation_lanes);
    return {first.x + emulation_lane.x, first.y + emulation_lane.y, first.z + emulation_lane.z};
}
inline EmulationIndex thread_index_in_threadgroup() { return {emulation_number(), 0, 0}; }
inline EmulationIndex thread_index_in_simdgroup() { return {emulation_number() % WARP, 0, 0}; }
inline EmulationIndex simdgroup_index_in_threadgroup() {
    return {emulation_number() / WARP, 0, 0};
}
inline EmulationIndex threads_per_simdgroup() { return {WARP, 0, 0}; }
inline EmulationIndex simdgroups_per_threadgroup() {
    return {(emulation_count() + WARP - 1) / WARP, 0, 0};
}
}  // namespace emulation

#define kernel
#define device
#define constant const
#define thread
#define threadgroup
