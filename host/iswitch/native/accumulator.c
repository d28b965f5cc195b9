/* See accumulator.h. Where the first contribution is also the last one, no sum is needed: the result is kept, for
   requests. The last of several contributions is added and rounded block by block, so that a block's sums are still in
   the first cache when they are rounded. */

#include "accumulator.h"

#include <string.h>

#include "bytes.h"
#include "half.h"

#define BLOCK 512 /* elements */

static struct terms added(struct terms terms) {
    terms.format = (int)added_format((uint32_t)terms.format);
    return terms;
}

static uint32_t sum_of_words(const uint8_t *bytes, size_t length) {
    uint32_t total = 0;
    for (size_t at = 0; at < length; at += 2) total += u16_at(bytes + at);
    return total;
}

/* Begin to add to sums. Returns their poison, or NULL if none of them is poisoned. */
static uint8_t *begin_sums(struct terms terms, struct accumulator to, size_t count, int first) {
    int had_poison = !first && to.stored->form == SUMS_POISONED;
    int has_poison = had_poison || rejects(added(terms)) || is_half_width((uint32_t)terms.format);
    if (has_poison && !had_poison) memset(to.poison, 0, count);
    to.stored->form = has_poison ? SUMS_POISONED : SUMS_CLEAN;
    return has_poison ? to.poison : NULL;
}

void add(struct terms terms, struct accumulator to, const uint8_t *elements, size_t count, int first) {
    add_elements(added(terms), to.sums, begin_sums(terms, to, count, first), elements, count, first);
}

void clear(struct accumulator accumulator, size_t count) {
    memset(accumulator.sums, 0, count * sizeof *accumulator.sums);
    memset(accumulator.poison, 0, count);
    accumulator.stored->form = SUMS_POISONED;
}

/* Round the sums from one element on. */
static uint32_t round_from(size_t at, struct terms terms, struct accumulator from, uint8_t *result, size_t count) {
    const int64_t *sums = from.sums + at;
    const uint8_t *poison = from.poison + at;
    uint32_t size = element_bytes((uint32_t)terms.format);
    result += size * at;
    if (is_half_width((uint32_t)terms.format)) {
        round_to_half((uint32_t)terms.format, terms.fraction, sums, poison, result, count);
        return sum_of_words(result, size * count);
    }
    return round_sums(terms, sums, from.stored->form == SUMS_POISONED ? poison : NULL, result, count);
}

uint32_t round_accumulator(struct terms terms, struct accumulator from, uint8_t *result, size_t count) {
    if (from.stored->form != SUMS_RESULT) return round_from(0, terms, from, result, count);
    memcpy(result, from.kept, 4 * count);
    return sum_of_words(result, 4 * count);
}

uint32_t add_and_round(struct terms terms, struct accumulator to, const uint8_t *elements, size_t count, int first,
                       uint8_t *result) {
    if (first && rounds_alone(terms)) {
        *to.stored = (struct stored){.form = SUMS_RESULT, .fraction = (int16_t)terms.fraction};
        return round_alone(terms, elements, to.kept, result, count);
    }
    uint8_t *poison = begin_sums(terms, to, count, first);
    uint32_t total = 0;
    for (size_t at = 0, size; at < count; at += size) {
        size = count - at < BLOCK ? count - at : BLOCK;
        add_elements(added(terms), to.sums + at, poison ? poison + at : NULL, elements + 4 * at, size, first);
        total += round_from(at, terms, to, result, size);
    }
    return total;
}
