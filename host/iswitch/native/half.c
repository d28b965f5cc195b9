/* See half.h. Loops are written so that a compiler makes vector instructions of them. */

#include "half.h"

#include <math.h>
#include <string.h>

/* 1.5 * 2^52: see lanes.c. */
static const double ROUNDER = 6755399441055744.0;
#define ROUNDER_BITS 0x4338000000000000
#define EXPONENT_BITS 0x7FF0000000000000

/* What a loop has to know about a format. */
struct shape {
    double least;      /* the smallest normal number, and below it the power of two whose multiples subnormals are */
    double last_bit;   /* 1.5 * 2^52 times the last bit of a number of 1 to 2 */
    float to_binary32; /* converts the exponent: binary32 has another bias */
    uint32_t shift, infinity, nan;
};

static struct shape shape_of(uint32_t format) {
    if (format == FORMAT_BF16)
        return (struct shape){ldexp(1, -126), ldexp(1.5, 52 - 7), 1.0f, 16, 0x7F80, 0x7FC0};
    return (struct shape){ldexp(1, -14), ldexp(1.5, 52 - 10), ldexpf(1, 112), 13, 0x7C00, 0x7E00};
}

static float as_float(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static uint32_t float_bits(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static double as_double(int64_t bits) {
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static int64_t double_bits(double value) {
    int64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static void widen_bf16(const uint8_t *restrict elements, uint8_t *restrict wide, size_t count) {
    for (size_t k = 0; k < count; k++) {
        uint16_t half;
        memcpy(&half, elements + 2 * k, sizeof half);
        uint32_t bits = (uint32_t)half << 16;
        memcpy(wide + 4 * k, &bits, sizeof bits);
    }
}

/* The product with 2^112 moves an exponent to the bias of binary32, and makes normal numbers of subnormal ones. */
static void widen_fp16(const uint8_t *restrict elements, uint8_t *restrict wide, size_t count) {
    const float to_binary32 = ldexpf(1, 112);
    for (size_t k = 0; k < count; k++) {
        uint16_t half;
        memcpy(&half, elements + 2 * k, sizeof half);
        uint32_t magnitude = half & 0x7FFF, bits = float_bits(as_float(magnitude << 13) * to_binary32);
        bits |= magnitude >= 0x7C00 ? 0x7F800000 : 0;
        bits |= (uint32_t)(half & 0x8000) << 16;
        memcpy(wide + 4 * k, &bits, sizeof bits);
    }
}

void widen_elements(uint32_t format, const uint8_t *elements, uint8_t *wide, size_t count) {
    (format == FORMAT_BF16 ? widen_bf16 : widen_fp16)(elements, wide, count);
}

/* Round a number once. The addition of 1.5 * 2^52 last bits rounds to a multiple of the last bit of a number with this
   exponent, ties to even. The rounded number is a binary32 that only loses zeros. */
static inline uint16_t round_once(struct shape shape, float from_binary32, double wide) {
    int64_t bits = double_bits(wide);
    double binade = as_double(bits & EXPONENT_BITS);
    double rounder = (binade > shape.least ? binade : shape.least) * shape.last_bit;
    double rounded = (wide + rounder) - rounder;
    uint32_t magnitude = (float_bits((float)rounded * from_binary32) & 0x7FFFFFFF) >> shape.shift;
    uint32_t sign = (uint32_t)((uint64_t)bits >> 48) & 0x8000;
    return (uint16_t)((magnitude < shape.infinity ? magnitude : shape.infinity) | sign);
}

static void put(uint8_t *at, uint16_t half) { memcpy(at, &half, sizeof half); }

void narrow_elements(uint32_t format, const uint8_t *restrict wide, uint8_t *restrict elements, size_t count) {
    struct shape shape = shape_of(format);
    const float from_binary32 = 1.0f / shape.to_binary32;
    for (size_t k = 0; k < count; k++) {
        uint32_t bits;
        memcpy(&bits, wide + 4 * k, sizeof bits);
        uint16_t rounded = round_once(shape, from_binary32, (double)as_float(bits));
        put(elements + 2 * k, (bits & 0x7FFFFFFF) > 0x7F800000 ? (uint16_t)shape.nan : rounded);
    }
}

/* Round sums of -2^51 to 2^51 - 1. Returns 0 if one of them is outside; what was written is then of no use. */
static int round_small(struct shape shape, double scale, const int64_t *restrict sums, uint8_t *restrict elements,
                       size_t count) {
    const float from_binary32 = 1.0f / shape.to_binary32;
    int64_t outside = 0;
    for (size_t k = 0; k < count; k++) {
        int64_t biased = (int64_t)((uint64_t)sums[k] + ROUNDER_BITS);
        outside |= biased ^ ROUNDER_BITS;
        put(elements + 2 * k, round_once(shape, from_binary32, (as_double(biased) - ROUNDER) * scale));
    }
    return outside >> 52 == 0;
}

static void round_any(struct shape shape, double scale, const int64_t *restrict sums, const uint8_t *restrict poison,
                      uint8_t *restrict elements, size_t count) {
    const float from_binary32 = 1.0f / shape.to_binary32;
    const int64_t exact = (int64_t)1 << 53;
    for (size_t k = 0; k < count; k++) {
        int64_t sum = sums[k];
        /* The upper 53 bits, the last of them set if anything was lost: see lanes.c. */
        double wide = sum >= -exact && sum <= exact ? (double)sum
                                                    : (double)(sum >> 11 | ((sum & 0x7FF) != 0)) * 2048.0;
        put(elements + 2 * k, poison[k] ? (uint16_t)shape.nan : round_once(shape, from_binary32, wide * scale));
    }
}

static int any(const uint8_t *flags, size_t count) {
    uint8_t all = 0;
    for (size_t k = 0; k < count; k++) all |= flags[k];
    return all;
}

void round_to_half(uint32_t format, int fraction, const int64_t *sums, const uint8_t *poison, uint8_t *elements,
                   size_t count) {
    struct shape shape = shape_of(format);
    double scale = ldexp(1.0, -fraction);
    if (any(poison, count) || !round_small(shape, scale, sums, elements, count))
        round_any(shape, scale, sums, poison, elements, count);
}
