/* Ethernet frames of a packet socket: their headers, and the slots of a receive ring (TPACKET_V2). The rules are those of
   iswitch/driver/ethernet.py and packet_ring.py; what is unusual is left to Python. */

#ifndef ISWITCH_FRAME_H
#define ISWITCH_FRAME_H

#include <linux/if_packet.h>
#include <stdint.h>
#include <string.h>

#include "records.h"

#define ETHERNET_BYTES 14
#define IP_BYTES 20
#define UDP_BYTES 8
#define FRAME_HEADER_BYTES (ETHERNET_BYTES + IP_BYTES + UDP_BYTES)
#define BURST_HEADER_BYTES 10
#define GSO_UDP 5

/* Big-endian, as in the headers of a frame. */
static inline uint32_t net_u16_at(const uint8_t *at) { return (uint32_t)at[0] << 8 | at[1]; }

static inline void put_net_u16(uint8_t *at, uint32_t value) {
    at[0] = (uint8_t)(value >> 8);
    at[1] = (uint8_t)value;
}

static inline uint32_t folded(uint32_t sum) {
    while (sum >> 16) sum = (sum & 0xFFFF) + (sum >> 16);
    return sum;
}

static inline uint32_t checksum_words(const uint8_t *at, uint32_t bytes) {
    uint32_t sum = 0;
    for (uint32_t k = 0; k < bytes; k += 2) sum += net_u16_at(at + k);
    return folded(sum);
}

/* Write the headers of a frame with `bytes` of datagrams, each of `segment` bytes. `made` begins as the headers of a
   frame without a payload, whose checksum the kernel completes. */
static inline void write_headers(uint8_t *made, const uint8_t *empty, uint32_t bytes, uint32_t segment) {
    memcpy(made, empty, BURST_HEADER_BYTES + FRAME_HEADER_BYTES);
    if (bytes > segment) {
        uint16_t size = (uint16_t)segment;
        made[1] = GSO_UDP;
        memcpy(made + 4, &size, sizeof size);
    }
    uint8_t *ip = made + BURST_HEADER_BYTES + ETHERNET_BYTES, *udp = ip + IP_BYTES;
    put_net_u16(ip + 2, IP_BYTES + UDP_BYTES + bytes);
    put_net_u16(ip + 10, 0);
    put_net_u16(ip + 10, ~checksum_words(ip, IP_BYTES));
    put_net_u16(udp + 4, UDP_BYTES + bytes);
    put_net_u16(udp + 6, folded(net_u16_at(udp + 6) + bytes)); /* the pseudo header has the length, too */
}

static inline struct tpacket2_hdr *slot_of(const struct exchange *x) {
    uint32_t block = x->slot / x->slots_per_block, at = x->slot % x->slots_per_block;
    return (struct tpacket2_hdr *)((uint8_t *)x->ring + (size_t)block * x->block_bytes + (size_t)at * x->slot_bytes);
}

/* Return the datagrams in a slot, and their bytes, or NULL if the frame is not a usual one from the switch. */
static inline const uint8_t *slot_payload(const struct exchange *x, const struct tpacket2_hdr *slot, uint32_t *bytes,
                                          uint32_t *segment) {
    const uint8_t *frame = (const uint8_t *)slot + slot->tp_mac, *ip = frame + ETHERNET_BYTES, *udp = ip + IP_BYTES;
    const uint8_t *sent = (const uint8_t *)x->frame_headers + BURST_HEADER_BYTES + ETHERNET_BYTES;
    const uint8_t *burst = frame - BURST_HEADER_BYTES;
    if (slot->tp_snaplen < slot->tp_len ||
        !(slot->tp_status & (TP_STATUS_CSUMNOTREADY | TP_STATUS_CSUM_VALID)))
        return NULL;
    if (net_u16_at(frame + 12) != 0x0800 || ip[0] != 0x45 || (net_u16_at(ip + 6) & 0x3FFF) || ip[9] != 17 ||
        memcmp(ip + 12, sent + 16, 4) || memcmp(ip + 16, sent + 12, 4) || memcmp(udp, sent + IP_BYTES + 2, 2) ||
        memcmp(udp + 2, sent + IP_BYTES, 2) || checksum_words(ip, IP_BYTES) != 0xFFFF)
        return NULL;
    uint32_t udp_bytes = net_u16_at(udp + 4);
    if (udp_bytes <= UDP_BYTES || net_u16_at(ip + 2) != IP_BYTES + udp_bytes ||
        ETHERNET_BYTES + IP_BYTES + udp_bytes > slot->tp_len)
        return NULL;
    *bytes = *segment = udp_bytes - UDP_BYTES;
    if (burst[1]) {
        uint16_t size;
        memcpy(&size, burst + 4, sizeof size);
        if (burst[1] != GSO_UDP || !size) return NULL;
        if (size < *bytes) *segment = size;
    }
    return udp + UDP_BYTES;
}

#endif
