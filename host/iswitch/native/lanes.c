/* See lanes.h. Loops are written so that a compiler makes vector instructions of them: with counters of type size_t,
   because an index that may wrap around is no row of neighbours. */

#include "lanes.h"

#include <math.h>
#include <string.h>

#define NAN_BITS 0x7FC00000u

/* 1.5 * 2^52. A double of at most 2^51 in magnitude that is added to it is rounded to the nearest integer, ties to
   even, and that integer stands in the low bits of the sum. */
static const double ROUNDER = 6755399441055744.0;
#define ROUNDER_BITS 0x4338000000000000

static uint32_t load(const uint8_t *at) {
    uint32_t value;
    memcpy(&value, at, sizeof value);
    return value;
}

static void store(uint8_t *at, uint32_t value) { memcpy(at, &value, sizeof value); }

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

static int64_t double_bits(double value) {
    int64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static double as_double(int64_t bits) {
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Every NaN leaves as one. */
static uint32_t canonical(uint32_t bits) { return (bits & 0x7FFFFFFF) > 0x7F800000 ? NAN_BITS : bits; }

struct survey survey_elements(int format, int fraction, const uint8_t *elements, size_t count) {
    int32_t largest = 0;
    uint32_t flushed = 0;
    /* Half a unit of window64, 2^-(fraction + 1): all elements but zero up to it become 0. */
    int32_t half = format == FORMAT_WINDOW64 ? (int32_t)float_bits(ldexpf(1.0f, -fraction - 1)) : 0;
    for (size_t k = 0; k < count; k++) {
        int32_t magnitude = (int32_t)(load(elements + 4 * k) & 0x7FFFFFFF);
        largest = magnitude > largest ? magnitude : largest;
        flushed += (magnitude > 0) & (magnitude <= half);
    }
    return (struct survey){(uint32_t)largest >> 23, flushed};
}

/* Add terms of window64 that are smaller than 2^51, so that ROUNDER rounds them. */
static void add_small(double scale, int64_t *restrict sums, const uint8_t *restrict elements, size_t count,
                              int first) {
    for (size_t k = 0; k < count; k++) {
        double rounded = (double)as_float(load(elements + 4 * k)) * scale + ROUNDER;
        int64_t term = double_bits(rounded) - ROUNDER_BITS;
        sums[k] = first ? term : sums[k] + term;
    }
}

/* Add terms of window64 that a 64-bit integer holds. */
static void add_large(double scale, int64_t *restrict sums, const uint8_t *restrict elements, size_t count,
                              int first) {
    for (size_t k = 0; k < count; k++) {
        int64_t term = (int64_t)rint((double)as_float(load(elements + 4 * k)) * scale);
        sums[k] = (int64_t)((first ? 0 : (uint64_t)sums[k]) + (uint64_t)term);
    }
}

/* Add terms of window64, and poison the lanes of those that it rejects. */
static void add_rejecting(struct terms terms, double scale, int64_t *sums, uint8_t *poison, const uint8_t *elements,
                          size_t count, int first) {
    for (size_t k = 0; k < count; k++) {
        uint32_t bits = load(elements + 4 * k);
        int is_rejected = (bits >> 23 & 0xFF) >= terms.limit;
        int64_t term = is_rejected ? 0 : llrint((double)as_float(bits) * scale);
        if (is_rejected) poison[k] = 1;
        sums[k] = (int64_t)((first ? 0 : (uint64_t)sums[k]) + (uint64_t)term);
    }
}

static void add_floats(int64_t *restrict sums, const uint8_t *restrict elements, size_t count) {
    for (size_t k = 0; k < count; k++)
        sums[k] = canonical(float_bits(as_float((uint32_t)sums[k]) + as_float(load(elements + 4 * k))));
}

static void copy_floats(int64_t *restrict sums, const uint8_t *restrict elements, size_t count) {
    for (size_t k = 0; k < count; k++) sums[k] = canonical(load(elements + 4 * k));
}

static void add_integers(int64_t *restrict sums, const uint8_t *restrict elements, size_t count, int first) {
    for (size_t k = 0; k < count; k++) sums[k] = (uint32_t)((first ? 0 : sums[k]) + load(elements + 4 * k));
}

void add_elements(struct terms terms, int64_t *sums, uint8_t *poison, const uint8_t *elements, size_t count, int first) {
    if (terms.format == FORMAT_FP32) {
        (first ? copy_floats : add_floats)(sums, elements, count);
        return;
    }
    if (terms.format == FORMAT_INT32) {
        add_integers(sums, elements, count, first);
        return;
    }
    double scale = ldexp(1.0, terms.fraction);
    if (rejects(terms))
        add_rejecting(terms, scale, sums, poison, elements, count, first);
    else if ((int)terms.exponent - 126 + terms.fraction <= 51)
        add_small(scale, sums, elements, count, first);
    else
        add_large(scale, sums, elements, count, first);
}

/* A word's two halves, as terms of a checksum. */
static uint32_t halves(uint32_t word) { return (word & 0xFFFF) + (word >> 16); }

/* Round sums of -2^51 to 2^51 - 1. Returns 0 if one of them is outside; what was written is then of no use. */
static int round_small(double scale, const int64_t *restrict sums, uint8_t *restrict elements, size_t count,
                       uint32_t *checksum) {
    int64_t outside = 0;
    uint32_t total = 0;
    for (size_t k = 0; k < count; k++) {
        int64_t biased = (int64_t)((uint64_t)sums[k] + ROUNDER_BITS);
        outside |= biased ^ ROUNDER_BITS;
        uint32_t bits = float_bits((float)((as_double(biased) - ROUNDER) * scale));
        store(elements + 4 * k, bits);
        total += halves(bits);
    }
    *checksum = total;
    return outside >> 52 == 0;
}

static uint32_t low_halves(const int64_t *restrict sums, uint8_t *restrict elements, size_t count) {
    uint32_t total = 0;
    for (size_t k = 0; k < count; k++) {
        store(elements + 4 * k, (uint32_t)sums[k]);
        total += halves((uint32_t)sums[k]);
    }
    return total;
}

static uint32_t round_any(double scale, const int64_t *restrict sums, const uint8_t *restrict poison,
                          uint8_t *restrict elements, size_t count) {
    const int64_t exact = (int64_t)1 << 53;
    uint32_t total = 0;
    for (size_t k = 0; k < count; k++) {
        int64_t sum = sums[k];
        /* A sum too long for a double is cut to its upper 53 bits, the last of them set if anything was lost. That bit
           is far below a float's last, so the one rounding, double to float, sees on which side of a tie the sum is. */
        double wide = sum >= -exact && sum <= exact ? (double)sum
                                                    : (double)(sum >> 11 | ((sum & 0x7FF) != 0)) * 2048.0;
        uint32_t bits = (poison && poison[k]) ? NAN_BITS : float_bits((float)(wide * scale));
        store(elements + 4 * k, bits);
        total += halves(bits);
    }
    return total;
}

uint32_t round_sums(struct terms terms, const int64_t *sums, const uint8_t *poison, uint8_t *elements, size_t count) {
    uint32_t checksum;
    if (terms.format != FORMAT_WINDOW64) return low_halves(sums, elements, count);
    double scale = ldexp(1.0, -terms.fraction);
    if (!poison && round_small(scale, sums, elements, count, &checksum)) return checksum;
    return round_any(scale, sums, poison, elements, count);
}

/* 2^(23 - F) must be a float. */
int rounds_alone(struct terms terms) {
    return terms.format == FORMAT_WINDOW64 && !rejects(terms) && terms.fraction >= 23 - 127;
}

/* An element smaller than `least`, 2^(23 - F), is rounded when that is added to it, because the last bit of such a float
   is 2^-F. Every other one is a multiple of 2^-F. The addition of 0 makes +0 of -0. */
uint32_t round_alone(struct terms terms, const uint8_t *restrict elements, uint8_t *restrict kept,
                     uint8_t *restrict result, size_t count) {
    const float least = ldexpf(1.0f, 23 - terms.fraction);
    const int32_t least_bits = (int32_t)float_bits(least);
    uint32_t total = 0;
    for (size_t k = 0; k < count; k++) {
        uint32_t bits = load(elements + 4 * k), magnitude = bits & 0x7FFFFFFF;
        uint32_t rounded = float_bits((as_float(magnitude) + least) - least) | (bits & 0x80000000);
        uint32_t is_small = (uint32_t)-((int32_t)magnitude < least_bits);
        bits = (float_bits(as_float(rounded) + 0.0f) & is_small) | (bits & ~is_small);
        store(kept + 4 * k, bits);
        store(result + 4 * k, bits);
        total += halves(bits);
    }
    return total;
}
