/* Elements of two bytes, bf16 and fp16: converted to binary32 before they are added, and sums rounded to them. Golden
   model: iswitch/golden/numeric/half.py. */

#ifndef ISWITCH_HALF_H
#define ISWITCH_HALF_H

#include <stddef.h>
#include <stdint.h>

#include "records.h"

static inline int is_half_width(uint32_t format) { return format == FORMAT_BF16 || format == FORMAT_FP16; }

static inline uint32_t element_bytes(uint32_t format) { return is_half_width(format) ? 2 : 4; }

/* The format as which elements are added: half-width ones, once they are converted, as those of window64. */
static inline uint32_t added_format(uint32_t format) { return is_half_width(format) ? FORMAT_WINDOW64 : format; }

/* Write elements as binary32. No value is changed. */
__attribute__((visibility("default"))) void widen_elements(uint32_t format, const uint8_t *elements, uint8_t *wide,
                                                           size_t count);

/* Write binary32 numbers as elements, each rounded once to nearest even. Every NaN becomes the quiet one. */
__attribute__((visibility("default"))) void narrow_elements(uint32_t format, const uint8_t *wide, uint8_t *elements,
                                                            size_t count);

/* Write the elements of a result, rounded once from sums * 2^-fraction. */
void round_to_half(uint32_t format, int fraction, const int64_t *sums, const uint8_t *poison, uint8_t *elements,
                   size_t count);

#endif
