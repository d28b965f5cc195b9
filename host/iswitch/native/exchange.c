/* See exchange.h. Positions and the ledger are those of iswitch/driver/segment_ledger.py. */

#define _GNU_SOURCE
#include "exchange.h"

#include <errno.h>
#include <math.h>
#include <netinet/in.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#include "bytes.h"
#include "frame.h"
#include "udp.h"

#define RUN_S 0.02 /* the longest run without a look at Python's signals and timers */

static double now_s(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static uint32_t segment_bytes(const struct exchange *x, int64_t position) {
    return position == x->end - 1 ? x->last_bytes : x->segment_bytes;
}

/* Sending */

/* Send `count` neighbouring contributions as one burst. Returns 0, or the error. */
static int send_burst(struct exchange *x, int64_t first, uint32_t count) {
    uint8_t headers[BURST_SEGMENTS][HEADER_BYTES], frame_headers[BURST_HEADER_BYTES + FRAME_HEADER_BYTES];
    struct iovec parts[1 + 2 * BURST_SEGMENTS], *payloads = parts + 1;
    for (uint32_t k = 0; k < count; k++) {
        int64_t position = first + k;
        uint8_t *header = headers[k];
        memcpy(header, x->header, HEADER_BYTES);
        put_u32(header + SEQ_AT, x->first_seq + (uint32_t)position);
        put_u16(header + BEHIND_AT, (uint32_t)(position - x->low));
        put_u32(header + COLLECTIVE_AT, x->collective);
        put_u16(header + DIGEST_AT, x->digest);
        header[FORMAT_FLAGS_AT] = (uint8_t)x->format_flags;
        if (position == x->end - 1) header[FORMAT_FLAGS_AT] |= CONTRIBUTION_BOUNDARY << FLAGS_SHIFT;
        payloads[2 * k] = (struct iovec){header, HEADER_BYTES};
        payloads[2 * k + 1] = (struct iovec){(uint8_t *)x->array + (position - x->begin) * x->segment_bytes,
                                             segment_bytes(x, position)};
    }
    struct msghdr message = {.msg_iov = payloads, .msg_iovlen = 2 * count};
    struct segment_option option;
    if (x->frame_headers) {
        uint32_t bytes = count * HEADER_BYTES + (count - 1) * x->segment_bytes + segment_bytes(x, first + count - 1);
        write_headers(frame_headers, x->frame_headers, bytes, HEADER_BYTES + x->segment_bytes);
        parts[0] = (struct iovec){frame_headers, sizeof frame_headers};
        message = (struct msghdr){.msg_iov = parts, .msg_iovlen = 1 + 2 * count};
    } else if (count > 1) set_segment(&message, &option, HEADER_BYTES + x->segment_bytes);
    return sendmsg(x->fd, &message, 0) >= 0 ? 0 : errno;
}

/* Send what the window allows. Returns 0 if Python must do it. */
static int send_new(struct exchange *x) {
    int64_t end = x->low + x->window < x->end ? x->low + x->window : x->end;
    if (x->next < x->low) x->next = x->low;
    if (x->next >= end) return 1;
    if (x->next < x->high) return 0; /* results above are here already */
    double now = now_s();
    while (x->next < end) {
        int64_t left = end - x->next;
        uint32_t count = left < x->burst_segments ? (uint32_t)left : x->burst_segments;
        x->error = send_burst(x, x->next, count);
        if (x->error) return 0;
        for (int64_t at = x->next - x->origin; at < x->next - x->origin + count; at++) {
            ((uint32_t *)x->requests)[at]++;
            ((double *)x->requested_at)[at] = now;
        }
        x->next += count;
    }
    if (x->first_sent_s == 0) x->first_sent_s = now;
    return 1;
}

/* Receiving */

/* Number format and flags of a usual result: it has no flag. */
static uint32_t usual_flags(const struct exchange *x) { return x->format_flags & ((1u << FLAGS_SHIFT) - 1); }

/* The check of a result, as `result_checks` of iswitch/driver/progress.py computes it. */
static uint16_t result_check(const uint8_t *header, const uint8_t *tail) {
    uint32_t sum = u16_at(tail + TAIL_IDENTITY_AT) + u16_at(tail + TAIL_COMPLEMENT_AT) + u16_at(header) +
                   u16_at(header + 2) + u16_at(header + MEMBER_AT) + u16_at(header + TOKEN_AT) +
                   u16_at(header + TOKEN_AT + 2);
    while (sum >> 16) sum = (sum & 0xFFFF) + (sum >> 16);
    return (uint16_t)sum;
}

/* Take a result that was requested once, and that is lacked. Returns 0 for every other datagram. */
static int take_result(struct exchange *x, const uint8_t *datagram, uint32_t length) {
    if (length < HEADER_BYTES + TAIL_BYTES || u32_at(datagram) != x->first_word ||
        u32_at(datagram + TOKEN_AT) != x->token || datagram[FORMAT_FLAGS_AT] != usual_flags(x))
        return 0;
    int64_t position = x->low + (int32_t)(u32_at(datagram + SEQ_AT) - (x->first_seq + (uint32_t)x->low));
    if (position < x->low || position >= x->next) return 0;
    int64_t at = position - x->origin, segment = position - x->begin;
    uint32_t bytes = segment_bytes(x, position);
    if (!((uint8_t *)x->lacked)[at] || ((uint32_t *)x->requests)[at] != 1 ||
        length != HEADER_BYTES + bytes + TAIL_BYTES)
        return 0;
    const uint8_t *tail = datagram + HEADER_BYTES + bytes;
    if (u16_at(tail + TAIL_IDENTITY_AT) != x->identity) return 0;
    memcpy((uint8_t *)x->array + segment * x->segment_bytes, datagram + HEADER_BYTES, bytes);
    memcpy((uint8_t *)x->headers + segment * HEADER_BYTES, datagram, HEADER_BYTES);
    ((uint16_t *)x->checks)[segment] = result_check(datagram, tail);
    ((uint8_t *)x->lacked)[at] = 0;
    x->results++;
    if (position >= x->high) x->high = position + 1;
    double requested_at = ((double *)x->requested_at)[at];
    if (position > x->newest || requested_at > x->newest_request_s) {
        if (position > x->newest) x->newest = position;
        if (requested_at > x->newest_request_s) x->newest_request_s = requested_at;
        x->timed_request_s = requested_at;
    }
    return 1;
}

/* Take the results of the burst in the buffer. Returns 0 at a datagram for Python. */
static int take_burst(struct exchange *x) {
    while (x->offset < x->size) {
        uint32_t left = x->size - x->offset, length = left < x->datagram_bytes ? left : x->datagram_bytes;
        if (!take_result(x, (uint8_t *)x->buffer + x->offset, length)) return 0;
        x->offset += length;
    }
    return 1;
}

static void measure_delay(struct exchange *x, double now) {
    if (x->first_result_s == 0) {
        x->first_result_s = now;
    } else if (x->timed_request_s >= 0) {
        double begun = x->timed_request_s > x->first_result_s ? x->timed_request_s : x->first_result_s;
        x->delay_s = now - begun;
    }
    x->timed_request_s = -1;
}

static void advance(struct exchange *x) {
    while (x->low < x->high && !((uint8_t *)x->lacked)[x->low - x->origin]) x->low++;
}

/* Take a burst from the ring. Returns 1, 0 if there is none, or -1 if Python must take it. */
static int take_slot(struct exchange *x) {
    struct tpacket2_hdr *slot = slot_of(x);
    if (!(__atomic_load_n(&slot->tp_status, __ATOMIC_ACQUIRE) & TP_STATUS_USER)) return 0;
    uint32_t bytes, segment;
    const uint8_t *payload = slot_payload(x, slot, &bytes, &segment);
    if (!payload) return -1;
    memcpy(x->buffer, payload, bytes);
    __atomic_store_n(&slot->tp_status, TP_STATUS_KERNEL, __ATOMIC_RELEASE);
    x->slot = (x->slot + 1) % x->slots;
    x->offset = 0;
    x->size = bytes;
    x->datagram_bytes = segment;
    x->received = 1;
    return 1;
}

/* Receive a burst. Returns 1, 0 if there is none, or -1 if Python must receive, or with `error`. */
static int receive_burst(struct exchange *x) {
    if (x->frame_headers) return take_slot(x);
    struct iovec part = {x->buffer, BURST_BUFFER_BYTES};
    struct segment_option option;
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = option.bytes, .msg_controllen = sizeof option.bytes};
    ssize_t got = recvmsg(x->fd, &message, MSG_DONTWAIT);
    if (got < 0) {
        if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) return 0;
        x->error = errno;
        return -1;
    }
    x->offset = 0;
    x->size = (uint32_t)got;
    x->datagram_bytes = received_segment(&message, x->size);
    x->received = 1;
    return 1;
}

/* Wait for a datagram. Returns 0 after the time-out or a signal. */
static int wait_readable(const struct exchange *x, double seconds) {
    if (seconds <= 0) return 0;
    if (seconds > 1e6) seconds = 1e6;
    struct pollfd readable = {.fd = x->fd, .events = POLLIN};
    struct timespec time = {.tv_sec = (time_t)seconds, .tv_nsec = (long)((seconds - floor(seconds)) * 1e9)};
    return ppoll(&readable, 1, &time, NULL) > 0;
}

int exchange_run(struct exchange *x, double until_s) {
    double begun = now_s(), now = begun;
    x->results = x->size = x->offset = 0;
    x->error = x->received = 0;
    x->delay_s = x->timed_request_s = -1;
    for (;;) {
        if (!send_new(x)) return EXCHANGE_SEND;
        if (x->low == x->end) return EXCHANGE_DONE;
        int got = receive_burst(x);
        if (!got) {
            if (!wait_readable(x, until_s - now_s())) return EXCHANGE_TIMEOUT;
            got = receive_burst(x);
        }
        /* The window allows few segments: send them together with those of further results. */
        while (got > 0) {
            uint32_t before = x->results;
            int is_usual = take_burst(x);
            advance(x);
            now = now_s();
            if (x->results != before) {
                measure_delay(x, now);
                x->last_result_s = now;
                until_s = now + x->timeout_s;
            }
            if (!is_usual || x->high > x->low) return EXCHANGE_RESULTS;
            if (x->next == x->end || x->next - x->low <= x->window * 3 / 4) break;
            got = receive_burst(x);
        }
        if (got < 0) return x->error ? EXCHANGE_SOCKET : EXCHANGE_FRAME;
        now = now_s(); /* also if the wait ended with a datagram that the kernel then dropped */
        if (now - begun > RUN_S || x->low + x->reach >= x->origin + x->length) return EXCHANGE_RESULTS;
    }
}
