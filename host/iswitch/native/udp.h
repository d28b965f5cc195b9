/* Bursts of datagrams pass the kernel as one buffer (UDP GSO and GRO). */

#ifndef ISWITCH_UDP_H
#define ISWITCH_UDP_H

#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>

#define UDP_SEGMENT_OPTION 103
#define UDP_GRO_OPTION 104
#define BURST_BYTES 65507 /* an IPv4 datagram's */
#define BURST_SEGMENTS 64 /* the kernel's limit */
#define BURST_BUFFER_BYTES 65536

/* Room for the control message with a burst's bytes of a datagram. */
struct segment_option {
    union {
        char bytes[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    };
};

/* Tell the kernel to cut a message into datagrams of `segment` bytes. */
static inline void set_segment(struct msghdr *message, struct segment_option *option, uint32_t segment) {
    uint16_t value = (uint16_t)segment;
    memset(option, 0, sizeof *option);
    message->msg_control = option->bytes;
    message->msg_controllen = CMSG_SPACE(sizeof value);
    struct cmsghdr *header = CMSG_FIRSTHDR(message);
    header->cmsg_level = IPPROTO_UDP;
    header->cmsg_type = UDP_SEGMENT_OPTION;
    header->cmsg_len = CMSG_LEN(sizeof value);
    memcpy(CMSG_DATA(header), &value, sizeof value);
}

/* Return the bytes of each datagram of a received message; the last one may be shorter. */
static inline uint32_t received_segment(struct msghdr *message, uint32_t length) {
    for (struct cmsghdr *header = CMSG_FIRSTHDR(message); header; header = CMSG_NXTHDR(message, header))
        if (header->cmsg_level == IPPROTO_UDP && header->cmsg_type == UDP_GRO_OPTION) {
            int segment;
            memcpy(&segment, CMSG_DATA(header), sizeof segment);
            if (segment > 0) return (uint32_t)segment;
        }
    return length;
}

#endif
