/* Runs sequences of payloads through the data path of the software switch, one after another, each from the same state,
   and checks after each payload and at the end what docs/verification.md lists. The data path is compiled with the
   sanitizers and with calls of `__sanitizer_cov_trace_pc`; this file is not. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bytes.h"
#include "datapath.h"

#define EXPORT __attribute__((visibility("default")))
#define REGIONS 10
#define OUTPUT_ROOM 1 /* results */

enum fault { NONE, UNUSUAL_CHANGED, MANY_OUTPUTS, WRONG_LENGTH, WRONG_COMPLEMENT, STUCK, WRONG_SUM };

struct region {
    uint8_t *now, *before, *start;
    size_t bytes;
};

struct runner {
    struct switch_state state;
    struct region region[REGIONS];
    uint8_t seen[EDGES]; /* the counts of each edge, as bits, in all sequences so far */
};

/* A payload that arrives. */
struct arrival {
    struct source source;
    uint32_t now_us, length;
};

static uint8_t counts[EDGES];
static uintptr_t last_place;

/* The sequence that runs, for the report of a sanitizer, which ends the process. */
static struct {
    const char *path;
    const uint8_t *sequences;
    size_t bytes; /* of each */
    uint32_t running;
} dying;

extern void __sanitizer_set_death_callback(void (*)(void)) __attribute__((weak));

static void write_running(void) {
    FILE *file = fopen(dying.path, "wb");
    if (!file) return;
    fwrite(dying.sequences + dying.running * dying.bytes, 1, dying.bytes, file);
    fclose(file);
}

/* Write the sequence that runs to a file, if a sanitizer ends the process. */
EXPORT void runner_report(const char *path, const uint8_t *sequences, size_t bytes) {
    dying.path = path;
    dying.sequences = sequences;
    dying.bytes = bytes;
    if (__sanitizer_set_death_callback) __sanitizer_set_death_callback(write_running);
}

/* Called at each basic block of the data path. */
EXPORT void __sanitizer_cov_trace_pc(void) {
    uintptr_t place = (uintptr_t)__builtin_return_address(0);
    uint8_t *count = &counts[(place ^ last_place) % EDGES];
    if (*count < 255) ++*count;
    last_place = place << 1 | place >> 63;
}

static void keep(struct region *region, void **from, size_t bytes) {
    region->bytes = bytes;
    region->start = malloc(bytes);
    region->before = malloc(bytes);
    region->now = malloc(bytes);
    memcpy(region->start, *from, bytes);
    *from = region->now;
}

EXPORT void *runner_open(const struct switch_state *start, uint32_t ports) {
    struct runner *runner = calloc(1, sizeof *runner);
    struct switch_state *state = &runner->state;
    size_t slots = (size_t)start->jobs * start->slots, elements = slots * start->elements;
    *state = *start;
    struct region *region = runner->region;
    keep(region++, (void **)&state->job, start->jobs * sizeof *state->job);
    keep(region++, (void **)&state->slot, slots * sizeof *state->slot);
    keep(region++, (void **)&state->sums, elements * sizeof *state->sums);
    keep(region++, (void **)&state->poison, elements);
    keep(region++, (void **)&state->kept, 4 * elements);
    keep(region++, (void **)&state->stored, slots * sizeof *state->stored);
    keep(region++, (void **)&state->stats, STAT_COUNT * sizeof *state->stats);
    keep(region++, (void **)&state->ages, AGES * sizeof *state->ages);
    keep(region++, (void **)&state->noticed_us, ports * sizeof *state->noticed_us);
    keep(region++, (void **)&state->noticed, ports);
    state->output.payloads = malloc(OUTPUT_ROOM * (HEADER_BYTES + 4 * start->elements + TAIL_BYTES));
    state->output.sent = malloc(OUTPUT_ROOM * sizeof(struct sent));
    return runner;
}

/* The edges that sequences have taken: [EDGES], how many times as bits. */
EXPORT uint8_t *runner_seen(struct runner *runner) { return runner->seen; }

EXPORT void runner_close(struct runner *runner) {
    for (int k = 0; k < REGIONS; k++) {
        free(runner->region[k].now);
        free(runner->region[k].before);
        free(runner->region[k].start);
    }
    free(runner->state.output.payloads);
    free(runner->state.output.sent);
    free(runner);
}

/* Give the data path a payload, in memory of just its size. Returns a fault. */
static int arrive(struct runner *runner, const struct arrival *arrival, const uint8_t *payload, int *outcome) {
    struct output *output = &runner->state.output;
    uint8_t *exact = malloc(arrival->length ? arrival->length : 1);
    output->count = output->bytes = 0;
    memcpy(exact, payload, arrival->length);
    *outcome = handle_payload(&runner->state, &arrival->source, exact, arrival->length, arrival->now_us);
    free(exact);
    if (*outcome == UNUSUAL) {
        for (int k = 0; k < REGIONS; k++)
            if (memcmp(runner->region[k].now, runner->region[k].before, runner->region[k].bytes))
                return UNUSUAL_CHANGED;
        return output->count ? UNUSUAL_CHANGED : NONE;
    }
    for (int k = 0; k < REGIONS; k++)
        memcpy(runner->region[k].before, runner->region[k].now, runner->region[k].bytes);
    if (output->count > 1) return MANY_OUTPUTS;
    if (!output->count) return NONE;
    uint32_t length = output->sent[0].length, total = 0;
    if (length != output->bytes || output->sent[0].offset || length % 2) return WRONG_LENGTH;
    for (uint32_t at = 0; at < length; at += 2) total += u16_at(output->payloads + at);
    while (total >> 16) total = (total & 0xFFFF) + (total >> 16);
    return total == 0xFFFF ? NONE : WRONG_COMPLEMENT;
}

/* A good round: the members of each running synchronous job complete the slots that wait for them, and then use each slot
   once more. */

static uint32_t round_element(uint32_t m, uint32_t k) { return 0x01000193 * (m + 1) + 977 * k; }

static int give(struct runner *runner, uint32_t number, uint32_t m, uint32_t type, uint32_t seq, const struct slot *slot,
                uint32_t now_us, int *outcome) {
    const struct job *job = &runner->state.job[number];
    uint8_t *payload = calloc(1, HEADER_BYTES + slot->length);
    payload[VERSION_TYPE_AT] = (uint8_t)(VERSION << FLAGS_SHIFT | type);
    payload[JOB_AT] = (uint8_t)number;
    put_u16(payload + EPOCH_AT, job->epoch);
    put_u32(payload + SEQ_AT, seq);
    payload[MEMBER_AT] = (uint8_t)m;
    uint32_t flags = slot->boundary * CONTRIBUTION_BOUNDARY | slot->requires_all * CONTRIBUTION_REQUIRES_ALL;
    if (type == TYPE_CONTRIBUTION) payload[FORMAT_FLAGS_AT] = (uint8_t)(flags << FLAGS_SHIFT | slot->format);
    put_u16(payload + DIGEST_AT, slot->digest);
    put_u32(payload + COLLECTIVE_AT, slot->collective);
    put_u32(payload + TOKEN_AT, job->member[m].token);
    for (uint32_t k = 0; k < slot->length / 4u; k++) put_u32(payload + HEADER_BYTES + 4 * k, round_element(m, k));
    uint32_t length = HEADER_BYTES + (type == TYPE_CONTRIBUTION ? slot->length : 0);
    struct arrival arrival = {job->member[m].source, now_us, length};
    int fault = arrive(runner, &arrival, payload, outcome);
    free(payload);
    return fault;
}

static int sums_are_right(const struct runner *runner, const struct job *job, uint32_t count) {
    const struct output *output = &runner->state.output;
    if (output->count != 1 || output->bytes != HEADER_BYTES + 4 * count + TAIL_BYTES) return 0;
    uint32_t ranks = 0;
    for (uint32_t live = job->live; live; live &= live - 1) ranks |= job->member[__builtin_ctz(live)].ranks;
    if (u32_at(output->payloads + MEMBERS_AT) != ranks) return 0;
    for (uint32_t k = 0; k < count; k++) {
        uint32_t sum = 0;
        for (uint32_t live = job->live; live; live &= live - 1) sum += round_element((uint32_t)__builtin_ctz(live), k);
        if (u32_at(output->payloads + HEADER_BYTES + 4 * k) != sum) return 0;
    }
    return 1;
}

static int use_slot(struct runner *runner, uint32_t number, struct slot *slot, uint32_t now_us) {
    const struct job *job = &runner->state.job[number];
    int outcome, fault;
    for (uint32_t left = job->live; left; left &= left - 1) {
        uint32_t m = (uint32_t)__builtin_ctz(left);
        if (slot->state != SLOT_COLLECTING || !(slot->expected & ~slot->arrived & (uint32_t)1 << m)) continue;
        struct slot like = *slot;
        if ((fault = give(runner, number, m, TYPE_CONTRIBUTION, slot->seq, &like, now_us, &outcome))) return fault;
    }
    if (slot->state == SLOT_COLLECTING) return STUCK;
    struct slot next = {.length = (uint16_t)(4 * job->elements), .format = FORMAT_INT32, .requires_all = 1};
    uint32_t seq = slot->seq + runner->state.slots;
    for (uint32_t left = job->live; left; left &= left - 1) {
        uint32_t m = (uint32_t)__builtin_ctz(left);
        int lacks = (int32_t)(job->member[m].acknowledged - slot->seq) <= 0;
        if ((fault = give(runner, number, m, TYPE_RECEIPT, lacks ? slot->seq + 1 : job->member[m].acknowledged,
                          &next, now_us, &outcome)))
            return fault;
        if (outcome != OUTCOME_RECEIPT) return STUCK;
    }
    for (uint32_t left = job->live; left; left &= left - 1) {
        uint32_t m = (uint32_t)__builtin_ctz(left);
        if ((fault = give(runner, number, m, TYPE_CONTRIBUTION, seq, &next, now_us, &outcome))) return fault;
        if (outcome != OUTCOME_ADDED) return STUCK;
    }
    return sums_are_right(runner, job, job->elements) ? NONE : WRONG_SUM;
}

static int good_round(struct runner *runner, uint32_t now_us) {
    for (uint32_t number = 0; number < runner->state.jobs; number++) {
        const struct job *job = &runner->state.job[number];
        if (job->state != JOB_RUNNING || job->is_leaf || job->segments || job->joining || !job->live) continue;
        for (uint32_t index = 0; index < runner->state.slots; index++) {
            int fault = use_slot(runner, number, &runner->state.slot[number * runner->state.slots + index], now_us);
            if (fault) return fault;
        }
    }
    return NONE;
}

/* Return whether an edge was taken a number of times that no earlier sequence had, by powers of two. */
static int note_edges(struct runner *runner) {
    int is_new = 0;
    for (uint32_t k = 0; k < EDGES; k++) {
        if (!counts[k]) continue;
        uint8_t bit = (uint8_t)(1 << (31 - __builtin_clz(counts[k])));
        if (!(runner->seen[k] & bit)) is_new = 1, runner->seen[k] |= bit;
    }
    return is_new;
}

/* Run `sequences` sequences of `length` payloads each, which stand `stride` bytes apart; payloads of a length of ABSENT are
   left out. Writes to `is_new` whether a sequence reached something new, and counts payloads by outcome, UNUSUAL first.
   Returns the number of sequences that passed, and in `fault` what the next one violated. */
EXPORT uint32_t runner_run(struct runner *runner, const uint8_t *payloads, uint32_t stride,
                           const struct arrival *arrivals, uint32_t sequences, uint32_t length, uint8_t *is_new,
                           uint64_t *outcomes, uint32_t *fault) {
    for (uint32_t sequence = 0; sequence < sequences; sequence++) {
        uint32_t now_us = 0;
        size_t first = (size_t)sequence * length;
        for (int k = 0; k < REGIONS; k++) {
            memcpy(runner->region[k].now, runner->region[k].start, runner->region[k].bytes);
            memcpy(runner->region[k].before, runner->region[k].start, runner->region[k].bytes);
        }
        memset(counts, 0, sizeof counts);
        last_place = 0;
        dying.running = sequence;
        for (size_t at = first; at < first + length; at++) {
            int outcome;
            if (arrivals[at].length == ABSENT) continue;
            now_us = arrivals[at].now_us;
            *fault = (uint32_t)arrive(runner, &arrivals[at], payloads + at * stride, &outcome);
            if (*fault) return sequence;
            outcomes[outcome - UNUSUAL]++;
        }
        is_new[sequence] = (uint8_t)note_edges(runner);
        *fault = (uint32_t)good_round(runner, now_us);
        if (*fault) return sequence;
    }
    return sequences;
}
