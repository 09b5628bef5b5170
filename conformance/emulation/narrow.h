// Floating types of 16 bits: kept as bits, computed as float, rounded to nearest even.
#pragma once
#include "emulator.h"

namespace emulation {

template <class T> struct Number { static const bool whole = false, real = false; };
#define EMULATION_NUMBER(type, is_whole) \
    template <> struct Number<type> { static const bool whole = is_whole, real = !is_whole; };
EMULATION_NUMBER(bool, true) EMULATION_NUMBER(char, true) EMULATION_NUMBER(signed char, true)
EMULATION_NUMBER(unsigned char, true) EMULATION_NUMBER(short, true)
EMULATION_NUMBER(unsigned short, true) EMULATION_NUMBER(int, true) EMULATION_NUMBER(unsigned, true)
EMULATION_NUMBER(long, true) EMULATION_NUMBER(unsigned long, true)
EMULATION_NUMBER(long long, true) EMULATION_NUMBER(unsigned long long, true)
EMULATION_NUMBER(float, false) EMULATION_NUMBER(double, false)

template <bool condition, class T> struct If {};
template <class T> struct If<true, T> { typedef T type; };

// 1 sign bit, 15 - MANTISSA exponent bits, MANTISSA bits of mantissa.
template <int MANTISSA> struct Narrow {
    uint16_t data;

    static const int LEAST = 2 - (1 << (14 - MANTISSA));  // exponent of the least normal number
    static const unsigned INFINITE = 0x7fff >> MANTISSA << MANTISSA;

    Narrow() = default;
    template <class T> constexpr Narrow(T value,
            typename If<Number<T>::whole || Number<T>::real, int>::type = 0)
        : data(encode((double)value)) {}
    operator float() const { return decode(data); }
    static Narrow from_bits(uint16_t data) {
        Narrow made;
        made.data = data;
        return made;
    }

    static uint16_t encode(double value) {
        uint16_t sign = (uint16_t)(__builtin_signbit(value) ? 0x8000 : 0);
        if (value != value) return 0x7fff;
        double magnitude = __builtin_fabs(value);
        if (magnitude == 0) return sign;
        if (magnitude > 1e300) return (uint16_t)(sign | INFINITE);
        int exponent = 0;
        __builtin_frexp(magnitude, &exponent);
        exponent = exponent - 1 < LEAST ? LEAST : exponent - 1;
        double units = __builtin_rint(__builtin_ldexp(magnitude, MANTISSA - exponent));
        if (exponent - LEAST > 1 << (15 - MANTISSA)) return (uint16_t)(sign | INFINITE);
        unsigned all = (unsigned)units + ((unsigned)(exponent - LEAST) << MANTISSA);
        return (uint16_t)(sign | (all < INFINITE ? all : INFINITE));
    }
    static float decode(uint16_t data) {
        unsigned magnitude = data & 0x7fff, sign = (unsigned)(data & 0x8000) << 16;
        if (magnitude >= INFINITE)
            return bits<float>(sign | 0x7f800000 | (magnitude - INFINITE) << (23 - MANTISSA));
        float scale = bits<float>((unsigned)(LEAST - 1 + 254) << 23);  // 2 ** (LEAST - 1 + 127)
        float wide = bits<float>(magnitude << (23 - MANTISSA)) * scale;
        return bits<float>(sign | bits<unsigned>(wide));
    }

    static Narrow narrow(float value) { return Narrow(value); }
    Narrow operator-() const { return from_bits((uint16_t)(data ^ 0x8000)); }
    Narrow operator+() const { return *this; }
    template <class T> Narrow &operator+=(T other) { return *this = narrow(*this + other); }
    template <class T> Narrow &operator-=(T other) { return *this = narrow(*this - other); }
    template <class T> Narrow &operator*=(T other) { return *this = narrow(*this * other); }
    template <class T> Narrow &operator/=(T other) { return *this = narrow(*this / other); }
};

typedef Narrow<10> Half;
typedef Narrow<7> Brain;

// Narrow with narrow, and with a whole number, is narrow; with float or double it is that.
#define EMULATION_NARROW_OPERATOR(op) \
    template <int M> inline Narrow<M> operator op(Narrow<M> a, Narrow<M> b) { \
        return Narrow<M>((float)a op (float)b); } \
    template <int M, class T> inline typename If<Number<T>::whole, Narrow<M>>::type \
    operator op(Narrow<M> a, T b) { return Narrow<M>((float)a op (float)Narrow<M>(b)); } \
    template <int M, class T> inline typename If<Number<T>::whole, Narrow<M>>::type \
    operator op(T a, Narrow<M> b) { return Narrow<M>((float)Narrow<M>(a) op (float)b); } \
    template <int M, class T> inline typename If<Number<T>::real, T>::type \
    operator op(Narrow<M> a, T b) { return (float)a op b; } \
    template <int M, class T> inline typename If<Number<T>::real, T>::type \
    operator op(T a, Narrow<M> b) { return a op (float)b; }
EMULATION_NARROW_OPERATOR(+) EMULATION_NARROW_OPERATOR(-)
EMULATION_NARROW_OPERATOR(*) EMULATION_NARROW_OPERATOR(/)

#define EMULATION_NARROW_COMPARISON(op) \
    template <int M> inline bool operator op(Narrow<M> a, Narrow<M> b) { \
        return (float)a op (float)b; } \
    template <int M, class T> inline typename If<Number<T>::whole || Number<T>::real, bool>::type \
    operator op(Narrow<M> a, T b) { return (float)a op b; } \
    template <int M, class T> inline typename If<Number<T>::whole || Number<T>::real, bool>::type \
    operator op(T a, Narrow<M> b) { return a op (float)b; }
EMULATION_NARROW_COMPARISON(<) EMULATION_NARROW_COMPARISON(>) EMULATION_NARROW_COMPARISON(<=)
EMULATION_NARROW_COMPARISON(>=) EMULATION_NARROW_COMPARISON(==) EMULATION_NARROW_COMPARISON(!=)

}  // namespace emulation
