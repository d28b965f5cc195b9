/* Numbers of the wire: little-endian, at any place. */

#ifndef ISWITCH_BYTES_H
#define ISWITCH_BYTES_H

#include <stdint.h>

static inline uint16_t u16_at(const uint8_t *at) { return (uint16_t)(at[0] | at[1] << 8); }

static inline uint32_t u32_at(const uint8_t *at) { return u16_at(at) | (uint32_t)u16_at(at + 2) << 16; }

static inline void put_u16(uint8_t *at, uint32_t value) {
    at[0] = (uint8_t)value;
    at[1] = (uint8_t)(value >> 8);
}

static inline void put_u32(uint8_t *at, uint32_t value) {
    put_u16(at, value);
    put_u16(at + 2, value >> 16);
}

#endif
