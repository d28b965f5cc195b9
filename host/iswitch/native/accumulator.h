/* The accumulators of one slot, in the cheapest form that keeps them exact. */

#ifndef ISWITCH_ACCUMULATOR_H
#define ISWITCH_ACCUMULATOR_H

#include <stddef.h>
#include <stdint.h>

#include "lanes.h"

/* `stored->form` says which of the three arrays count. */
struct accumulator {
    struct stored *stored;
    int64_t *sums;
    uint8_t *poison; /* 1: a rejected term belongs to the sum */
    uint8_t *kept;   /* the result's elements, if it has only one term */
};

/* In all functions, `terms` names the format on the wire, and `elements` are those of `added_format`. */

/* Add a contribution's elements, or, with `first`, begin with them. */
void add(struct terms terms, struct accumulator to, const uint8_t *elements, size_t count, int first);

/* Begin with sums of nothing. */
void clear(struct accumulator accumulator, size_t count);

/* Write the elements of a result, rounded once. Returns the sum of their 16-bit words. */
uint32_t round_accumulator(struct terms terms, struct accumulator from, uint8_t *result, size_t count);

/* Do what `add` and then `round_accumulator` do. */
uint32_t add_and_round(struct terms terms, struct accumulator to, const uint8_t *elements, size_t count, int first,
                       uint8_t *result);

#endif
