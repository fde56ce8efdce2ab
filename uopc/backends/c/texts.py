"""Texts in C that kernels share: the head of a file, and functions by the names of their macros."""

HEAD = """\
#include <stdbool.h>
#include <float.h>

#if defined(__cplusplus)
#define restrict __restrict
#define _Alignas(bytes) __attribute__((aligned(bytes)))
#endif

/* 16 and 32: floats that are narrower than float are computed so, and there are none here. */
#if FLT_EVAL_METHOD != 0 && FLT_EVAL_METHOD != 16 && FLT_EVAL_METHOD != 32
#error "each operation must round to its own type: for x86 of 32 bits, -msse2 -mfpmath=sse"
#endif
#if defined(__FAST_MATH__)
#error "compile without -ffast-math: results are those of IEEE 754"
#endif
/* A product is fused into a sum where this text says so, and nowhere else. */
#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#elif defined(__GNUC__)
#pragma GCC optimize ("fp-contract=off", "no-trapping-math")
#endif"""

TABLE = {
    "INF": """\
#if defined(__GNUC__)
#define UOPC_INF __builtin_inf()
#define UOPC_INFF __builtin_inff()
#else
#include <math.h>
#define UOPC_INF ((double)INFINITY)
#define UOPC_INFF INFINITY
#endif""",
    "NAN": """\
#if defined(__GNUC__)
#define UOPC_NAN __builtin_nan("")
#define UOPC_NANF __builtin_nanf("")
#else
#include <math.h>
#define UOPC_NAN ((double)NAN)
#define UOPC_NANF NAN
#endif""",
    "FMA": """\
/* a*b + c, rounded once: an instruction, or the same bits by integers. */
#if defined(__FMA__) || defined(__aarch64__) || (defined(__ARM_FEATURE_FMA) && (__ARM_FP & 8)) \\
    || (defined(__riscv_flen) && __riscv_flen >= 64)
#define UOPC_FMA(a, b, c) __builtin_fma(a, b, c)
#else
struct uopc_wide { uint64_t high; uint64_t low; };

static struct uopc_wide uopc_product(uint64_t a, uint64_t b)
{
    const uint64_t mask = 0xFFFFFFFFu;
    const uint64_t low = (a & mask) * (b & mask);
    const uint64_t one = (a >> 32) * (b & mask) + (low >> 32);
    const uint64_t two = (a & mask) * (b >> 32) + (one & mask);
    const struct uopc_wide made = {
        (a >> 32) * (b >> 32) + (one >> 32) + (two >> 32), (two << 32) | (low & mask)};
    return made;
}

static struct uopc_wide uopc_left(struct uopc_wide x, int32_t n)
{
    struct uopc_wide y = x;
    if (n >= 64) {
        y.high = x.low << (n - 64);
        y.low = 0u;
    } else if (n > 0) {
        y.high = (x.high << n) | (x.low >> (64 - n));
        y.low = x.low << n;
    }
    return y;
}

/* A shift to the right; the last bit is 1 if anything was lost. */
static struct uopc_wide uopc_right(struct uopc_wide x, int32_t n)
{
    struct uopc_wide y = x;
    uint64_t lost = 0u;
    if (n >= 64) {
        lost = x.low | (n > 64 ? x.high << (128 - n) : 0u);
        y.low = x.high >> (n - 64);
        y.high = 0u;
    } else if (n > 0) {
        lost = x.low << (64 - n);
        y.low = (x.low >> n) | (x.high << (64 - n));
        y.high = x.high >> n;
    }
    y.low |= (lost != 0u) ? 1u : 0u;
    return y;
}

/* The size of the sum of numbers with signs; `negative` is that of the first, then of the sum. */
static struct uopc_wide uopc_total(struct uopc_wide a, struct uopc_wide b, bool opposite,
    bool *negative)
{
    struct uopc_wide y = {a.high + b.high, a.low + b.low};
    if (!opposite) {
        y.high += (y.low < a.low) ? 1u : 0u;
    } else if (a.high > b.high || (a.high == b.high && a.low >= b.low)) {
        y.low = a.low - b.low;
        y.high = a.high - b.high - ((a.low < b.low) ? 1u : 0u);
    } else {
        y.low = b.low - a.low;
        y.high = b.high - a.high - ((b.low < a.low) ? 1u : 0u);
        *negative = !*negative;
    }
    return y;
}

/* The number of zeros before the first bit that is 1. */
static int32_t uopc_zeros(uint64_t x)
{
#if defined(__GNUC__)
    return (int32_t)__builtin_clzll(x);
#else
    int32_t found = 0;
    uint64_t rest = x;
    for (int32_t step = 32; step > 0; step /= 2) {
        if ((rest >> (64 - step)) == 0u) {
            rest <<= step;
            found += step;
        }
    }
    return found;
#endif
}

static uint64_t uopc_fma_bits(double x)
{
    union { double number; uint64_t bits; } both;
    both.number = x;
    return both.bits;
}

/* The mantissa of a number other than 0, with its first bit in place, and its exponent. */
static uint64_t uopc_mantissa(uint64_t bits, int32_t *power)
{
    const uint64_t one = UINT64_C(1) << 52;
    const uint64_t size = bits & (UINT64_MAX >> 1);
    const int32_t up = (size < one) ? uopc_zeros(size) - 11 : 0;
    *power = (size < one) ? 1 - up : (int32_t)(size >> 52);
    return (size < one) ? size << up : ((size & (one - 1u)) | one);
}

/* A number of 64 bits, the first one 1, with this exponent, rounded to 53 bits or fewer. */
static double uopc_rounded(uint64_t top, int32_t power, bool negative)
{
    union { double number; uint64_t bits; } both;
    const uint64_t value = (top >> 2) | (((top & 3u) != 0u) ? 1u : 0u);
    const int32_t below = (power < 1) ? 1 - power : 0;
    const int32_t drop = (below > 54) ? 63 : 9 + below;
    const uint64_t field = (power < 1) ? 0u : (uint64_t)power - 1u;
    const uint64_t kept = value >> drop;
    const uint64_t rest = value - (kept << drop);
    const uint64_t half = UINT64_C(1) << (drop - 1);
    const bool up = rest > half || (rest == half && (kept & 1u) != 0u);
    both.bits = (field << 52) + kept + (up ? 1u : 0u);
    if (field > 2045u) {
        both.bits = UINT64_C(0x7FF0000000000000);
    }
    both.bits |= negative ? UINT64_C(0x8000000000000000) : 0u;
    return both.number;
}

static double uopc_fma(double a, double b, double c)
{
    const uint64_t infinity = UINT64_C(0x7FF0000000000000);
    const uint64_t x = uopc_fma_bits(a);
    const uint64_t y = uopc_fma_bits(b);
    const uint64_t z = uopc_fma_bits(c);
    if ((x << 1) >= (infinity << 1) || (y << 1) >= (infinity << 1) || a == 0.0 || b == 0.0) {
        return a * b + c;
    }
    if ((z << 1) >= (infinity << 1)) {
        return c + c;
    }
    if (c == 0.0) {
        return a * b;
    }
    int32_t x_power = 0;
    int32_t y_power = 0;
    int32_t z_power = 0;
    const uint64_t x_part = uopc_mantissa(x, &x_power);
    const uint64_t y_part = uopc_mantissa(y, &y_power);
    const struct uopc_wide third = {uopc_mantissa(z, &z_power) << 9, 0u};
    const struct uopc_wide both = uopc_left(uopc_product(x_part, y_part), 20);
    const int32_t power = x_power + y_power - 1095;
    const int32_t apart = power - (z_power - 73);
    const int32_t distance = (apart < 0) ? -apart : apart;
    const int32_t by = (distance > 127) ? 127 : distance;
    const bool first = apart >= 0;
    bool negative = ((first ? x ^ y : z) >> 63) != 0u;
    const bool opposite = ((x ^ y ^ z) >> 63) != 0u;
    const struct uopc_wide sum = uopc_total(first ? both : third,
        uopc_right(first ? third : both, by), opposite, &negative);
    if (sum.high == 0u && sum.low == 0u) {
        return 0.0;
    }
    const int32_t lead = (sum.high != 0u) ? uopc_zeros(sum.high) : 64 + uopc_zeros(sum.low);
    const struct uopc_wide top = uopc_left(sum, lead);
    const int32_t placed = (first ? power : z_power - 73) - lead + 75;
    return uopc_rounded(top.high | ((top.low != 0u) ? 1u : 0u), placed, negative);
}
#define UOPC_FMA(a, b, c) uopc_fma(a, b, c)
#endif""",
    "WIDE": """\
/* The number that 16 bits stand for: an instruction, or the same bits. NaN gets quiet. */
static float uopc_wide(uint16_t x)
{
#if defined(__F16C__) && defined(__GNUC__)
    typedef short bits __attribute__((vector_size(16)));
    return __builtin_ia32_vcvtph2ps((bits){(short)x})[0];
#elif defined(__ARM_FP16_FORMAT_IEEE)
    union { uint16_t bits; __fp16 number; } half;
    half.bits = x;
    return (float)half.number;
#else
    const uint32_t size = x & 0x7fffu;
    union { uint32_t bits; float number; } both;
    if (size < 0x400u) {
        both.number = (float)size * 5.960464477539063e-08f;
    } else if (size < 0x7c00u) {
        both.bits = (size << 13) + 0x38000000u;
    } else {
        both.bits = (size << 13) | 0x7f800000u | (size > 0x7c00u ? 0x400000u : 0u);
    }
    both.bits |= (uint32_t)(x & 0x8000u) << 16;
    return both.number;
#endif
}""",
    "HALF": """\
/* A number in 16 bits, to nearest, ties to even. NaN keeps its upper bits. */
static uint16_t uopc_half(float x)
{
#if defined(__F16C__) && defined(__GNUC__)
    typedef float lanes __attribute__((vector_size(16)));
    return (uint16_t)__builtin_ia32_vcvtps2ph((lanes){x}, 0)[0];
#elif defined(__ARM_FP16_FORMAT_IEEE)
    union { uint16_t bits; __fp16 number; } half;
    half.number = (__fp16)x;
    return half.bits;
#else
    union { uint32_t bits; float number; } both;
    both.number = x;
    const uint32_t sign = (both.bits >> 16) & 0x8000u;
    const uint32_t size = both.bits & 0x7fffffffu;
    if (size > 0x7f800000u) {
        return (uint16_t)(sign | 0x7e00u | ((size >> 13) & 0x3ffu));
    }
    if (size >= 0x47800000u) {
        return (uint16_t)(sign | 0x7c00u);
    }
    if (size < 0x38800000u) {
        both.bits = size;
        both.number += 0.5f;
        return (uint16_t)(sign | (both.bits - 0x3f000000u));
    }
    return (uint16_t)(sign | ((size - 0x38000000u + 0xfffu + ((size >> 13) & 1u)) >> 13));
#endif
}""",
    "FMAH": """\
/* a*b + c of 16 bits, rounded once: the product is exact, the last bit of the sum is 1 if that is
   not. */
static uint16_t uopc_fmah(uint16_t a, uint16_t b, uint16_t c)
{
    const float product = uopc_wide(a) * uopc_wide(b);
    const float last = uopc_wide(c);
    const float total = product + last;
    const float moved = total - product;
    const float lost = (product - (total - moved)) + (last - moved);
    union { float number; uint32_t bits; } both;
    both.number = total;
    if ((lost < 0.0f || lost > 0.0f) && (both.bits & 1u) == 0u) {
        both.bits = ((lost < 0.0f) == (total < 0.0f)) ? both.bits + 1u : both.bits - 1u;
    }
    return uopc_half(both.number);
}""",
    "FMAF": """\
#if defined(__FMA__) || defined(__aarch64__) || defined(__ARM_FEATURE_FMA) || defined(__riscv_flen)
#define UOPC_FMAF(a, b, c) __builtin_fmaf(a, b, c)
#else
static float uopc_fmaf(float a, float b, float c)
{
    const double product = (double)a * (double)b;
    const double total = product + (double)c;
    const double moved = total - product;
    const double lost = (product - (total - moved)) + ((double)c - moved);
    union { double number; uint64_t bits; } both;
    both.number = total;
    if ((lost < 0.0 || lost > 0.0) && (both.bits & 1u) == 0u) {
        both.bits = ((lost < 0.0) == (total < 0.0)) ? both.bits + 1u : both.bits - 1u;
    }
    return (float)both.number;
}
#define UOPC_FMAF(a, b, c) uopc_fmaf(a, b, c)
#endif""",
    "DOT4": """\
/* The products of the bytes of a, unsigned, with those of b, signed, and c. */
static int32_t uopc_dot4(int32_t a, int32_t b, int32_t c)
{
    uint32_t total = (uint32_t)c;
    for (int at = 0; at < 32; at += 8) {
        const int32_t first = (int32_t)(((uint32_t)a >> at) & 255u);
        const int32_t second = (int32_t)(((uint32_t)b >> at) & 255u);
        total += (uint32_t)(first * (second < 128 ? second : second - 256));
    }
    return (int32_t)total;
}
#define UOPC_DOT4(a, b, c) uopc_dot4(a, b, c)""",
}
# Square roots are instructions, which compilers take for `sqrt` only where no errno is asked for.
SQRT = {
    "sqrt": "_mm_cvtsd_f64(_mm_sqrt_sd(_mm_setzero_pd(), _mm_set_sd(x)))",
    "sqrtf": "_mm_cvtss_f32(_mm_sqrt_ss(_mm_set_ss(x)))",
}
NEON_SQRT = {
    "sqrt": "vget_lane_f64(vsqrt_f64(vdup_n_f64(x)), 0)",
    "sqrtf": "vget_lane_f32(vsqrt_f32(vdup_n_f32(x)), 0)",
}
