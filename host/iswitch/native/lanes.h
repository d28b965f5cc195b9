/* The arithmetic of the aggregator: what it does to the elements of one segment. Golden model: iswitch/golden/numeric.

   The accumulator of an element is a 64-bit integer. `window64` fills it with a fixed-point sum; `fp32` and `int32` keep
   their 32 bits in its low half and zeros above. `poison` is 1 for an element of `window64` to whose sum a rejected term
   belongs. */

#ifndef ISWITCH_LANES_H
#define ISWITCH_LANES_H

#include <stddef.h>
#include <stdint.h>

#include "records.h"

struct terms {
    int format;
    int fraction;       /* F: a term of window64 is x * 2^F */
    uint32_t exponent;  /* the largest biased exponent of the elements */
    uint32_t limit;     /* elements with this biased exponent, or a larger one, are rejected */
};

/* What a contribution's elements are. */
struct survey {
    uint32_t exponent; /* the largest biased exponent */
    uint32_t flushed;  /* how many non-zero terms of window64 become 0 */
};

struct survey survey_elements(int format, int fraction, const uint8_t *elements, size_t count);

/* Return whether an element is rejected. */
static inline int rejects(struct terms terms) {
    return terms.format == FORMAT_WINDOW64 && terms.exponent >= terms.limit;
}

/* Add elements to the sums, or, with `first`, replace the sums. `poison` is used if an element is rejected. */
void add_elements(struct terms terms, int64_t *sums, uint8_t *poison, const uint8_t *elements, size_t count, int first);

/* Write the elements of a result, rounded once. `poison` is NULL if none is poisoned. Returns the sum of the 16-bit words
   of the result. */
uint32_t round_sums(struct terms terms, const int64_t *sums, const uint8_t *poison, uint8_t *elements, size_t count);

/* Return whether `round_alone` can make the result of these terms, if they are the only ones. */
int rounds_alone(struct terms terms);

/* Write that result twice, with the same bits as `add_elements` and `round_sums`. Returns the same as `round_sums`. */
uint32_t round_alone(struct terms terms, const uint8_t *elements, uint8_t *kept, uint8_t *result, size_t count);

#endif
