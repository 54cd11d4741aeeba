// Arithmetic on elements with NumPy's results, for generated kernels. `program/cpu/apply.rs` has the same functions for
// the CPU.
//
// Integers wrap around, and integer division by 0 gives 0. If CUDA's version of a binary32 function may be off by more
// than 2 ulps, the function is computed in binary64 and rounded.
#pragma once
#include "cuzarr/elements.cuh"
#ifdef CUZARR_SIMT
#include <cmath>
using std::fmod; using std::floor; using std::ceil; using std::trunc; using std::sqrt; using std::copysign;
#endif

namespace ops {

template <class T> struct Complex { T re, im; };
template <class T> struct Bits { typedef T Unsigned; static const bool is_signed = false; };
template <> struct Bits<i8> { typedef u8 Unsigned; static const bool is_signed = true; };
template <> struct Bits<i16> { typedef u16 Unsigned; static const bool is_signed = true; };
template <> struct Bits<i32> { typedef u32 Unsigned; static const bool is_signed = true; };
template <> struct Bits<i64> { typedef u64 Unsigned; static const bool is_signed = true; };
template <class T> struct IsReal { static const bool value = false; };
template <> struct IsReal<float> { static const bool value = true; };
template <> struct IsReal<double> { static const bool value = true; };

/// `N` elements that are loaded and stored together.
template <class T, u32 N> struct alignas(sizeof(T) * N) Pack { T at[N]; };

CUZARR_DEVICE bool is_nan(float x) { return is_nan_32(bits_of(x)); }
CUZARR_DEVICE bool is_nan(double x) { return is_nan_64(bits_of(x)); }
CUZARR_DEVICE bool is_inf(float x) { return (bits_of(x) & 0x7fffffffu) == 0x7f800000u; }
CUZARR_DEVICE bool is_inf(double x) { return (bits_of(x) & 0x7fffffffffffffffull) == 0x7ff0000000000000ull; }
CUZARR_DEVICE bool is_finite(float x) { return (bits_of(x) & 0x7f800000u) != 0x7f800000u; }
CUZARR_DEVICE bool is_finite(double x) { return (bits_of(x) & 0x7ff0000000000000ull) != 0x7ff0000000000000ull; }
template <class T> CUZARR_DEVICE bool is_nan(T) { return false; }
template <class T> CUZARR_DEVICE bool is_inf(T) { return false; }
template <class T> CUZARR_DEVICE bool is_finite(T) { return true; }
template <class T> CUZARR_DEVICE bool is_nan(Complex<T> x) { return is_nan(x.re) || is_nan(x.im); }
template <class T> CUZARR_DEVICE bool is_inf(Complex<T> x) { return is_inf(x.re) || is_inf(x.im); }
template <class T> CUZARR_DEVICE bool is_finite(Complex<T> x) { return is_finite(x.re) && is_finite(x.im); }

/// Replaces any NaN by the canonical one, which results of computations have.
CUZARR_DEVICE float canonical(float x) { return ::canonical(x); }
CUZARR_DEVICE double canonical(double x) { return ::canonical(x); }
template <class T> CUZARR_DEVICE T canonical(T x) { return x; }
template <class T> CUZARR_DEVICE Complex<T> canonical(Complex<T> x) { return {canonical(x.re), canonical(x.im)}; }

// ------------------------------------------------------------------------------------------------- sums and products

template <class T> CUZARR_DEVICE T add(T a, T b) {
    typedef typename Bits<T>::Unsigned U;
    return (T)(U)((u64)(U)a + (u64)(U)b);
}
template <class T> CUZARR_DEVICE T subtract(T a, T b) {
    typedef typename Bits<T>::Unsigned U;
    return (T)(U)((u64)(U)a - (u64)(U)b);
}
template <class T> CUZARR_DEVICE T multiply(T a, T b) {
    typedef typename Bits<T>::Unsigned U;
    return (T)(U)((u64)(U)a * (u64)(U)b);
}
CUZARR_DEVICE float add(float a, float b) { return a + b; }
CUZARR_DEVICE double add(double a, double b) { return a + b; }
CUZARR_DEVICE float subtract(float a, float b) { return a - b; }
CUZARR_DEVICE double subtract(double a, double b) { return a - b; }
CUZARR_DEVICE float multiply(float a, float b) { return a * b; }
CUZARR_DEVICE double multiply(double a, double b) { return a * b; }
CUZARR_DEVICE bool add(bool a, bool b) { return a || b; }
CUZARR_DEVICE bool multiply(bool a, bool b) { return a && b; }
template <class T> CUZARR_DEVICE Complex<T> add(Complex<T> a, Complex<T> b) { return {a.re + b.re, a.im + b.im}; }
template <class T> CUZARR_DEVICE Complex<T> subtract(Complex<T> a, Complex<T> b) { return {a.re - b.re, a.im - b.im}; }
template <class T> CUZARR_DEVICE Complex<T> multiply(Complex<T> a, Complex<T> b) {
    return {a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
}
template <class T> CUZARR_DEVICE T square(T a) { return multiply(a, a); }
template <class T> CUZARR_DEVICE T negative(T a) { return subtract((T)0, a); }
CUZARR_DEVICE float negative(float a) { return -a; }
CUZARR_DEVICE double negative(double a) { return -a; }
template <class T> CUZARR_DEVICE Complex<T> negative(Complex<T> a) { return {-a.re, -a.im}; }

CUZARR_DEVICE float divide(float a, float b) { return a / b; }
CUZARR_DEVICE double divide(double a, double b) { return a / b; }
/// Divides complex numbers by R. L. Smith's algorithm (1962), in NumPy's order of operations.
template <class T> CUZARR_DEVICE Complex<T> divide(Complex<T> a, Complex<T> b) {
    T real = b.re < 0 ? -b.re : b.re, imaginary = b.im < 0 ? -b.im : b.im;
    if (real >= imaginary) {
        if (real == 0 && imaginary == 0) return {a.re / real, a.im / real};
        T ratio = b.im / b.re, scale = (T)1 / (b.re + b.im * ratio);
        return {(a.re + a.im * ratio) * scale, (a.im - a.re * ratio) * scale};
    }
    T ratio = b.re / b.im, scale = (T)1 / (b.im + b.re * ratio);
    return {(a.re * ratio + a.im) * scale, (a.im * ratio - a.re) * scale};
}

// ----------------------------------------------------------------------------------------------- quotients and rests

template <bool REAL> struct Division {
    template <class T> CUZARR_DEVICE static T fmod(T a, T b) {
        if (b == 0 || (Bits<T>::is_signed && b == (T)-1)) return 0;
        return (T)(a % b);
    }
    template <class T> CUZARR_DEVICE static T floor_divide(T a, T b) {
        if (b == 0) return 0;
        if (Bits<T>::is_signed && b == (T)-1) return negative(a);
        T quotient = (T)(a / b);
        return a % b != 0 && (a < 0) != (b < 0) ? (T)(quotient - 1) : quotient;
    }
    template <class T> CUZARR_DEVICE static T remainder(T a, T b) {
        T rest = fmod(a, b);
        return rest != 0 && (rest < 0) != (b < 0) ? (T)(rest + b) : rest;
    }
};

template <> struct Division<true> {
    template <class T> CUZARR_DEVICE static T fmod(T a, T b) { return ::fmod(a, b); }
    /// Computes the quotient, rounded down, and the remainder, in NumPy's steps. `b` must not be 0.
    template <class T> CUZARR_DEVICE static T divmod(T a, T b, T* rest) {
        T left = ::fmod(a, b), quotient = (a - left) / b;
        if (left != 0) {
            if ((b < 0) != (left < 0)) {
                left += b;
                quotient -= 1;
            }
        } else {
            left = ::copysign((T)0, b);
        }
        *rest = left;
        if (quotient == 0) return ::copysign((T)0, a / b);
        T down = ::floor(quotient);
        return quotient - down > (T)0.5 ? down + 1 : down;
    }
    template <class T> CUZARR_DEVICE static T floor_divide(T a, T b) {
        T rest;
        return b == 0 ? a / b : divmod(a, b, &rest);
    }
    template <class T> CUZARR_DEVICE static T remainder(T a, T b) {
        if (b == 0) return ::fmod(a, b);
        T rest;
        divmod(a, b, &rest);
        return rest;
    }
};

template <class T> CUZARR_DEVICE T fmod(T a, T b) { return Division<IsReal<T>::value>::fmod(a, b); }
template <class T> CUZARR_DEVICE T floor_divide(T a, T b) { return Division<IsReal<T>::value>::floor_divide(a, b); }
template <class T> CUZARR_DEVICE T remainder(T a, T b) { return Division<IsReal<T>::value>::remainder(a, b); }

/// Raises an integer to a power. A negative power sets `fault`.
template <class T> CUZARR_DEVICE T power(T a, T exponent, u32* fault) {
    if (exponent < 0) {
        *fault = 1;
        return 0;
    }
    T product = 1;
    for (u64 left = (u64)exponent; left; left >>= 1) {
        if (left & 1) product = multiply(product, a);
        a = multiply(a, a);
    }
    return product;
}
CUZARR_DEVICE double power(double a, double b, u32*) { return ::pow(a, b); }
CUZARR_DEVICE float power(float a, float b, u32*) { return (float)::pow((double)a, (double)b); }

// ------------------------------------------------------------------------------------------ comparisons and choices

template <class A, class B> CUZARR_DEVICE bool less(A a, B b) { return a < b; }
template <class A, class B> CUZARR_DEVICE bool equal(A a, B b) { return a == b; }
CUZARR_DEVICE bool less(i64 a, u64 b) { return a < 0 || (u64)a < b; }
CUZARR_DEVICE bool less(u64 a, i64 b) { return b > 0 && a < (u64)b; }
CUZARR_DEVICE bool equal(i64 a, u64 b) { return a >= 0 && (u64)a == b; }
CUZARR_DEVICE bool equal(u64 a, i64 b) { return equal(b, a); }
template <class T> CUZARR_DEVICE bool equal(Complex<T> a, Complex<T> b) { return a.re == b.re && a.im == b.im; }
template <class A, class B> CUZARR_DEVICE bool not_equal(A a, B b) { return !equal(a, b); }
template <class A, class B> CUZARR_DEVICE bool greater(A a, B b) { return less(b, a); }
// Not the negation of "less": both are false for NaN.
template <class A, class B> CUZARR_DEVICE bool less_equal(A a, B b) { return less(a, b) || equal(a, b); }
template <class A, class B> CUZARR_DEVICE bool greater_equal(A a, B b) { return less(b, a) || equal(a, b); }

template <class T> CUZARR_DEVICE T minimum(T a, T b) { return a <= b || is_nan(a) ? a : b; }
template <class T> CUZARR_DEVICE T maximum(T a, T b) { return a >= b || is_nan(a) ? a : b; }
template <class T> CUZARR_DEVICE T fmin(T a, T b) { return a <= b || is_nan(b) ? a : b; }
template <class T> CUZARR_DEVICE T fmax(T a, T b) { return a >= b || is_nan(b) ? a : b; }
template <class T> CUZARR_DEVICE T where(bool condition, T yes, T no) { return condition ? yes : no; }

template <class T> CUZARR_DEVICE T sign(T a) { return a > 0 ? (T)1 : a < 0 ? (T)-1 : a == 0 ? (T)0 : a; }
template <class T> CUZARR_DEVICE T absolute(T a) { return a < 0 ? negative(a) : a; }
CUZARR_DEVICE bool absolute(bool a) { return a; }
CUZARR_DEVICE float absolute(float a) { return float_of(bits_of(a) & 0x7fffffffu); }
CUZARR_DEVICE double absolute(double a) { return double_of(bits_of(a) & 0x7fffffffffffffffull); }
CUZARR_DEVICE double hypot_of(double a, double b) { return ::hypot(a, b); }
CUZARR_DEVICE float hypot_of(float a, float b) { return (float)::hypot((double)a, (double)b); }
template <class T> CUZARR_DEVICE T absolute(Complex<T> a) { return hypot_of(a.re, a.im); }
template <class T> CUZARR_DEVICE T conjugate(T a) { return a; }
template <class T> CUZARR_DEVICE Complex<T> conjugate(Complex<T> a) { return {a.re, -a.im}; }
template <class T> CUZARR_DEVICE T real(T a) { return a; }
template <class T> CUZARR_DEVICE T real(Complex<T> a) { return a.re; }
template <class T> CUZARR_DEVICE T imag(T) { return (T)0; }
template <class T> CUZARR_DEVICE T imag(Complex<T> a) { return a.im; }

// ------------------------------------------------------------------------------------------------------ bits and logic

CUZARR_DEVICE bool logical_and(bool a, bool b) { return a && b; }
CUZARR_DEVICE bool logical_or(bool a, bool b) { return a || b; }
CUZARR_DEVICE bool logical_xor(bool a, bool b) { return a != b; }
CUZARR_DEVICE bool logical_not(bool a) { return !a; }
template <class T> CUZARR_DEVICE T bitwise_and(T a, T b) { return (T)(a & b); }
template <class T> CUZARR_DEVICE T bitwise_or(T a, T b) { return (T)(a | b); }
template <class T> CUZARR_DEVICE T bitwise_xor(T a, T b) { return (T)(a ^ b); }
template <class T> CUZARR_DEVICE T invert(T a) { return (T)~a; }
CUZARR_DEVICE bool invert(bool a) { return !a; }
template <class T> CUZARR_DEVICE T left_shift(T a, T by) {
    typedef typename Bits<T>::Unsigned U;
    return (u64)by < sizeof(T) * 8 ? (T)(U)((u64)(U)a << (u64)by) : (T)0;
}
template <class T> CUZARR_DEVICE T right_shift(T a, T by) {
    return (u64)by < sizeof(T) * 8 ? (T)(a >> (u64)by) : a < 0 ? (T)-1 : (T)0;
}

// ------------------------------------------------------------------------------------------------- functions of reals

template <class T> CUZARR_DEVICE T floor(T a) { return a; }
template <class T> CUZARR_DEVICE T ceil(T a) { return a; }
template <class T> CUZARR_DEVICE T trunc(T a) { return a; }
CUZARR_DEVICE float floor(float a) { return ::floor(a); }
CUZARR_DEVICE double floor(double a) { return ::floor(a); }
CUZARR_DEVICE float ceil(float a) { return ::ceil(a); }
CUZARR_DEVICE double ceil(double a) { return ::ceil(a); }
CUZARR_DEVICE float trunc(float a) { return ::trunc(a); }
CUZARR_DEVICE double trunc(double a) { return ::trunc(a); }
template <class T> CUZARR_DEVICE T rint(T a) { return round_half_even(a); }
CUZARR_DEVICE bool signbit(float a) { return bits_of(a) >> 31; }
CUZARR_DEVICE bool signbit(double a) { return bits_of(a) >> 63; }
template <class T> CUZARR_DEVICE T copysign(T a, T sign) { return ::copysign(a, sign); }
CUZARR_DEVICE float sqrt(float a) { return ::sqrt(a); }
CUZARR_DEVICE double sqrt(double a) { return ::sqrt(a); }

#define CUZARR_DOUBLE(name, function)                                          \
    CUZARR_DEVICE double name(double a) { return ::function(a); }
#define CUZARR_OWN_FLOAT(name, function, single)                               \
    CUZARR_DOUBLE(name, function)                                              \
    CUZARR_DEVICE float name(float a) { return ::single(a); }
#define CUZARR_BY_DOUBLE(name, function)                                       \
    CUZARR_DOUBLE(name, function)                                              \
    CUZARR_DEVICE float name(float a) { return (float)::function((double)a); }

CUZARR_OWN_FLOAT(sin, sin, sinf)
CUZARR_OWN_FLOAT(cos, cos, cosf)
CUZARR_OWN_FLOAT(exp, exp, expf)
CUZARR_OWN_FLOAT(exp2, exp2, exp2f)
CUZARR_OWN_FLOAT(expm1, expm1, expm1f)
CUZARR_OWN_FLOAT(log, log, logf)
CUZARR_OWN_FLOAT(log2, log2, log2f)
CUZARR_OWN_FLOAT(log1p, log1p, log1pf)
CUZARR_OWN_FLOAT(cbrt, cbrt, cbrtf)
CUZARR_BY_DOUBLE(log10, log10)
CUZARR_BY_DOUBLE(tan, tan)
CUZARR_BY_DOUBLE(arcsin, asin)
CUZARR_BY_DOUBLE(arccos, acos)
CUZARR_BY_DOUBLE(arctan, atan)
CUZARR_BY_DOUBLE(sinh, sinh)
CUZARR_BY_DOUBLE(cosh, cosh)
CUZARR_BY_DOUBLE(tanh, tanh)
CUZARR_BY_DOUBLE(arcsinh, asinh)
CUZARR_BY_DOUBLE(arccosh, acosh)
CUZARR_BY_DOUBLE(arctanh, atanh)
CUZARR_DEVICE double hypot(double a, double b) { return ::hypot(a, b); }
CUZARR_DEVICE float hypot(float a, float b) { return (float)::hypot((double)a, (double)b); }
CUZARR_DEVICE double arctan2(double a, double b) { return ::atan2(a, b); }
CUZARR_DEVICE float arctan2(float a, float b) { return (float)::atan2((double)a, (double)b); }

// -------------------------------------------------------------------------------------------- conversions, as astype

/// Converts to an integer by the processor's rules, which elements.cuh spells out.
template <class To> struct Cast {
    template <class From> CUZARR_DEVICE static To of(From x) { return (To)x; }
    CUZARR_DEVICE static To of(float x) { return of((double)x); }
    CUZARR_DEVICE static To of(double x) { return (To)integer_of_double(x, CODE); }
    static const u32 CODE = sizeof(To) == 1   ? (Bits<To>::is_signed ? INT8 : UINT8)
                            : sizeof(To) == 2 ? (Bits<To>::is_signed ? INT16 : UINT16)
                            : sizeof(To) == 4 ? (Bits<To>::is_signed ? INT32 : UINT32)
                                              : (Bits<To>::is_signed ? INT64 : UINT64);
    template <class T> CUZARR_DEVICE static To of(Complex<T> x) { return of(x.re); }
};
template <> struct Cast<bool> {
    template <class From> CUZARR_DEVICE static bool of(From x) { return x != 0; }
    template <class T> CUZARR_DEVICE static bool of(Complex<T> x) { return x.re != 0 || x.im != 0; }
};
template <> struct Cast<float> {
    template <class From> CUZARR_DEVICE static float of(From x) { return (float)x; }
    template <class T> CUZARR_DEVICE static float of(Complex<T> x) { return (float)x.re; }
};
template <> struct Cast<double> {
    template <class From> CUZARR_DEVICE static double of(From x) { return (double)x; }
    template <class T> CUZARR_DEVICE static double of(Complex<T> x) { return (double)x.re; }
};
template <class P> struct Cast<Complex<P>> {
    template <class From> CUZARR_DEVICE static Complex<P> of(From x) { return {(P)x, (P)0}; }
    template <class T> CUZARR_DEVICE static Complex<P> of(Complex<T> x) { return {(P)x.re, (P)x.im}; }
};

/// The bits of a 2-byte float in memory.
struct Half { u16 bits; };
struct BFloat { u16 bits; };
CUZARR_DEVICE u16 half_bits(float x) { return (u16)half_of_float(bits_of(x)); }
CUZARR_DEVICE u16 half_bits(double x) { return (u16)half_of_double(bits_of(x)); }
template <class T> CUZARR_DEVICE u16 half_bits(T x) { return half_bits(Cast<float>::of(x)); }
template <class T> CUZARR_DEVICE u16 bfloat_bits(T x) { return (u16)bfloat_of_float(bits_of(Cast<float>::of(x))); }
CUZARR_DEVICE float load(Half x) { return float_of(float_of_half(x.bits)); }
CUZARR_DEVICE float load(BFloat x) { return float_of((u32)x.bits << 16); }
template <class T> CUZARR_DEVICE float round_half(T x) { return load(Half{half_bits(x)}); }
template <class T> CUZARR_DEVICE float round_bfloat(T x) { return load(BFloat{bfloat_bits(x)}); }
template <class T> CUZARR_DEVICE T load(T x) { return x; }
template <class T> struct Store {
    CUZARR_DEVICE static T of(T x) { return x; }
};
template <> struct Store<Half> {
    CUZARR_DEVICE static Half of(float x) { return Half{half_bits(x)}; }
};
/// A NaN keeps its bits: a computed NaN is already the canonical one, and any other NaN was a bfloat16 before.
template <> struct Store<BFloat> {
    CUZARR_DEVICE static BFloat of(float x) { return BFloat{is_nan(x) ? (u16)(bits_of(x) >> 16) : bfloat_bits(x)}; }
};

}  // namespace ops
