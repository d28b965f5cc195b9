/* See replay.h. */

#include "replay.h"

#include <string.h>

#include "bytes.h"

/* Reads */

static uint32_t body_bytes(const struct query_group *g, uint32_t k) { return ((const uint32_t *)g->body_bytes)[k]; }

uint32_t replay_build(struct query_group *g, uint32_t most, double now, uint8_t *out) {
    uint32_t first = g->next, left = g->count - first;
    if (most > left) most = left;
    while (g->next - first < most && body_bytes(g, g->next) == body_bytes(g, first)) {
        uint32_t k = g->next++, size = body_bytes(g, k);
        memcpy(out, g->header, REPLAY_HEADER_BYTES);
        put_u32(out + REPLAY_SEQ_AT, g->first_tag + k);
        put_u16(out + REPLAY_COUNT_AT, ((const uint32_t *)g->counts)[k]);
        memcpy(out + REPLAY_HEADER_BYTES, (const uint8_t *)g->bodies + (size_t)k * g->body_stride, size);
        ((double *)g->sent_at)[k] = now;
        out += REPLAY_HEADER_BYTES + size;
    }
    return g->next - first;
}

/* Take the reply to a request that has none, if nothing of it was overwritten. Returns 0 for every other datagram. */
static int take_data(struct query_group *g, const uint8_t *datagram, uint32_t length, double now) {
    if (length < REPLAY_HEADER_BYTES + REPLAY_END_BYTES || datagram[0] != g->data_type || datagram[REPLAY_KIND_AT] != g->kind ||
        u32_at(datagram + REPLAY_TOKEN_AT) != g->token || u32_at(datagram + REPLAY_TICKET_AT) != 0)
        return 0;
    uint32_t k = u32_at(datagram + REPLAY_SEQ_AT) - g->first_tag;
    if (k >= g->next || ((const uint8_t *)g->answered)[k]) return 0;
    uint32_t bytes = ((const uint32_t *)g->target_bytes)[k];
    if (length != REPLAY_HEADER_BYTES + bytes + REPLAY_END_BYTES) return 0;
    memcpy((uint8_t *)g->target + ((const uint64_t *)g->target_at)[k], datagram + REPLAY_HEADER_BYTES, bytes);
    ((uint8_t *)g->answered)[k] = 1;
    ((double *)g->delays)[g->delay_count++] = now - ((const double *)g->sent_at)[k];
    g->taken++;
    if (k >= g->reach) g->reach = k + 1;
    while (g->low < g->count && ((const uint8_t *)g->answered)[g->low]) g->low++;
    double wider = g->window + 1 / g->window;
    g->window = wider < g->largest_window ? wider : g->largest_window;
    return 1;
}

uint32_t replay_take(struct query_group *g, const uint8_t *burst, uint32_t size, uint32_t segment, uint32_t offset, double now) {
    g->delay_count = 0;
    while (offset < size && segment) {
        uint32_t left = size - offset, length = left < segment ? left : segment;
        if (!take_data(g, burst + offset, length, now)) break;
        offset += length;
    }
    return offset;
}

/* Pushes */

uint32_t replay_send(struct request_ring *r, uint32_t most, double now, double due_at, uint8_t *out) {
    const uint32_t *sizes = r->body_bytes;
    uint32_t first = r->next, left = r->end - first, size = sizes[first % r->slots];
    if (most > left) most = left;
    while (r->next - first < most && sizes[r->next % r->slots] == size) {
        uint32_t number = r->next++, slot = number % r->slots;
        memcpy(out, r->header, REPLAY_HEADER_BYTES);
        out[REPLAY_KIND_AT] = ((const uint8_t *)r->kinds)[slot];
        put_u32(out + REPLAY_SEQ_AT, r->first_seq + number);
        put_u16(out + REPLAY_COUNT_AT, ((const uint32_t *)r->counts)[slot]);
        put_u32(out + REPLAY_TICKET_AT, ((const uint32_t *)r->tickets)[slot]);
        memcpy(out + REPLAY_HEADER_BYTES, (const uint8_t *)r->bodies + (size_t)slot * r->body_stride, size);
        ((double *)r->sent_at)[slot] = now;
        ((double *)r->due_at)[slot] = due_at;
        out += REPLAY_HEADER_BYTES + size;
    }
    return r->next - first;
}

/* Take the answer to the oldest request, if that was executed. Returns 0 for every other datagram. */
static int take_answer(struct request_ring *r, const uint8_t *datagram, uint32_t length, double now) {
    uint32_t slot = r->low % r->slots;
    if (r->low == r->next || length != REPLAY_HEADER_BYTES + REPLAY_STATUS_BYTES + REPLAY_END_BYTES ||
        datagram[0] != r->answer_type || datagram[REPLAY_KIND_AT] != ((const uint8_t *)r->kinds)[slot] ||
        u32_at(datagram + REPLAY_TOKEN_AT) != r->token || u32_at(datagram + REPLAY_SEQ_AT) != r->first_seq + r->low ||
        datagram[REPLAY_HEADER_BYTES + REPLAY_OUTCOME_AT] != REPLAY_DONE)
        return 0;
    memcpy((uint8_t *)r->statuses + slot * REPLAY_STATUS_BYTES, datagram + REPLAY_HEADER_BYTES, REPLAY_STATUS_BYTES);
    ((double *)r->delays)[r->delay_count++] = now - ((const double *)r->sent_at)[slot];
    r->low++;
    return 1;
}

uint32_t replay_settle(struct request_ring *r, const uint8_t *burst, uint32_t size, uint32_t segment, uint32_t offset,
                       double now) {
    r->delay_count = 0;
    while (offset < size && segment) {
        uint32_t left = size - offset, length = left < segment ? left : segment;
        if (!take_answer(r, burst + offset, length, now)) break;
        offset += length;
    }
    return offset;
}
