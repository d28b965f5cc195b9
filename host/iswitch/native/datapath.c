/* See datapath.h. The rules are those of iswitch/golden/decide/{checks,ring,tree}.py, in the same order. Seqs are
   compared as serial numbers, and sets of members are bit masks. */

#include "datapath.h"

#include <string.h>

#include "accumulator.h"
#include "bytes.h"
#include "half.h"

static int32_t ahead(uint32_t newer, uint32_t older) { return (int32_t)(newer - older); }

static int is_same_source(const struct source *a, const struct source *b) {
    return a->port == b->port && a->udp_port == b->udp_port && a->ip == b->ip && !memcmp(a->mac, b->mac, 6);
}

static int is_asynchronous(const struct job *job) { return job->segments != 0; }

/* A message of a member, and the rows that it concerns. */
struct message {
    struct switch_state *state;
    struct job *job;
    struct member *member;
    struct slot *row; /* where its slot is stored */
    uint32_t number, index, bit, seq, behind, flags, format, now_us;
    const uint8_t *elements;
    uint8_t *wide; /* room for half-width elements that are converted to binary32 */
    uint32_t bytes;    /* of the elements on the wire */
    uint32_t count;    /* of the elements of a contribution */
    struct survey survey; /* of the elements of a contribution that is added */
};

enum answer { NO_ANSWER, GRANT, KEPT_GRANT, REFUSE };

/* What a message does. `slot` is the slot afterwards. */
struct step {
    struct slot slot;
    int outcome, writes_slot, adds, forces, first, emits, resends;
    uint32_t waits_for;
    int is_new_claim, age; /* of a claim */
    enum answer answer;
    struct grant grant;
};

/* The rules of slots */

static int is_complete(const struct slot *slot, uint32_t threshold, int overdue) {
    int enough = (uint32_t)__builtin_popcount(slot->members) >= threshold || overdue;
    return !(slot->expected & ~slot->arrived) || (enough && !slot->requires_all);
}

static int is_overdue(const struct job *job, const struct slot *slot, uint32_t now_us) {
    return job->deadline_us && now_us - slot->opened_us >= job->deadline_us;
}

/* The live members that are not known to hold a slot's result. `acknowledged` is the sender's, which the message may
   have moved. */
static uint32_t lacking_members(const struct message *message, const struct slot *slot, uint32_t acknowledged) {
    const struct job *job = message->job;
    uint32_t lacking = 0;
    for (uint32_t live = job->live; live; live &= live - 1) {
        int m = __builtin_ctz(live);
        uint32_t known = &job->member[m] == message->member ? acknowledged : job->member[m].acknowledged;
        if (ahead(known, slot->seq) <= 0) lacking |= (uint32_t)1 << m;
    }
    return lacking;
}

static int may_overwrite(const struct slot *slot, uint32_t lacking) {
    return slot->state == SLOT_EMPTY || (slot->state == SLOT_COMPLETE && !lacking);
}

static uint32_t awaited_members(const struct slot *slot, uint32_t lacking) {
    return slot->state == SLOT_COLLECTING ? slot->expected & ~slot->arrived : lacking;
}

/* Return whether a granted update covers a seq, and the members to which it is granted. */
static int granted_members(const struct job *job, uint32_t seq, uint32_t *members) {
    for (uint32_t k = 0; k < job->grants; k++) {
        int32_t distance = ahead(seq, job->grant[k].base);
        if (distance >= 0 && (uint32_t)distance < job->segments) {
            *members = job->grant[k].members;
            return 1;
        }
    }
    *members = 0;
    return 0;
}

static int any_is_silent(const struct job *job, uint32_t members, uint32_t now_us) {
    if (!job->evict_ticks) return 0;
    for (; members; members &= members - 1) {
        uint32_t elapsed = (now_us / SILENCE_TICK_US - job->member[__builtin_ctz(members)].heard_tick) % TICKS;
        if ((elapsed < SILENCE_TICKS_MAX ? elapsed : SILENCE_TICKS_MAX) > job->evict_ticks) return 1;
    }
    return 0;
}

/* Messages. Each function fills in `step`, moves `acknowledged` and returns 0; or it returns UNUSUAL. */

/* Return whether a member may report that it holds every result below `low`. */
static int is_too_far(const struct message *message, uint32_t low) {
    return ahead(low, message->member->acknowledged) > (int32_t)message->state->slots;
}

static int contribute(struct message *message, struct step *step, uint32_t *acknowledged, const uint8_t *header) {
    struct switch_state *state = message->state;
    const struct job *job = message->job;
    const struct slot *old = message->row;
    struct slot *slot = &step->slot;
    uint32_t collective = u32_at(header + COLLECTIVE_AT), digest = u16_at(header + DIGEST_AT), granted;
    uint32_t boundary = (message->flags & CONTRIBUTION_BOUNDARY) && !is_asynchronous(job);
    uint32_t requires_all = (message->flags & CONTRIBUTION_REQUIRES_ALL) || is_asynchronous(job);
    int32_t distance = ahead(message->seq, old->seq);
    granted_members(job, message->seq, &granted);

    if (message->behind >= state->slots / 2 || is_too_far(message, message->seq - message->behind) ||
        distance > (int32_t)state->slots) {
        step->outcome = OUTCOME_WINDOW;
        return 0;
    }
    if (ahead(message->seq - message->behind, *acknowledged) > 0) *acknowledged = message->seq - message->behind;
    if (distance < 0 || (!distance && old->state == SLOT_EMPTY)) {
        step->outcome = OUTCOME_STALE;
        return 0;
    }
    *slot = *old;
    if (distance > 0) {
        uint32_t lacking = lacking_members(message, old, *acknowledged);
        if (!may_overwrite(old, lacking)) {
            step->outcome = OUTCOME_SLOT_HELD;
            step->waits_for = awaited_members(old, lacking);
            return 0;
        }
        uint32_t early = ahead(message->seq, job->admitted_seq) < 0 ? job->admitted : 0;
        memset(slot, 0, sizeof *slot);
        slot->seq = message->seq;
        slot->state = SLOT_COLLECTING;
        slot->expected = is_asynchronous(job) ? granted : job->live & ~early;
        slot->format = (uint8_t)message->format;
        slot->length = (uint16_t)message->bytes;
        slot->boundary = (uint8_t)boundary;
        slot->requires_all = (uint8_t)requires_all;
        slot->opened_us = message->now_us;
        slot->collective = collective;
        slot->digest = (uint16_t)digest;
    }
    if (is_asynchronous(job) && slot->state == SLOT_COLLECTING && !(slot->expected & message->bit)) {
        step->outcome = OUTCOME_WINDOW;
        return 0;
    }
    if (slot->collective != collective || slot->digest != digest) return UNUSUAL;
    if (slot->format != message->format || slot->boundary != boundary || slot->requires_all != requires_all) {
        step->outcome = OUTCOME_FORMAT;
        return 0;
    }
    if (slot->length != message->bytes) {
        step->outcome = OUTCOME_LENGTH;
        return 0;
    }
    int overdue = is_overdue(job, slot, message->now_us);
    if (slot->state != SLOT_COLLECTING || slot->arrived & message->bit) {
        step->outcome = slot->arrived & message->bit ? OUTCOME_DUPLICATE : OUTCOME_LATE;
        if (slot->state == SLOT_COMPLETE) {
            step->resends = 1;
            return 0;
        }
        if (slot->rival || is_complete(slot, job->threshold, overdue)) return UNUSUAL;
        step->waits_for = slot->expected & ~slot->arrived;
        return 0;
    }

    uint32_t limit = message->format == FORMAT_INT32 ? 256 : message->format == FORMAT_FP32 ? 255 : job->limit;
    if (is_half_width(message->format)) {
        widen_elements(message->format, message->elements, message->wide, message->count);
        message->elements = message->wide;
    }
    int added = (int)added_format(message->format);
    message->survey = survey_elements(added, job->fraction, message->elements, message->count);
    int tainted = message->survey.exponent >= limit;
    int included = !(tainted && job->mode == MODE_QUARANTINE);
    step->first = !slot->members;
    slot->arrived |= message->bit;
    if (included) slot->members |= message->bit;
    if (tainted) slot->tainted |= message->bit;
    if (!is_asynchronous(job)) {
        uint32_t ranks = message->member->ranks;
        if (included) slot->ranks |= ranks;
        if (tainted) slot->tainted_ranks |= ranks;
    }
    step->writes_slot = 1;
    step->adds = included;
    step->outcome = included ? OUTCOME_ADDED : OUTCOME_QUARANTINED;
    if (is_complete(slot, job->threshold, overdue)) {
        if (boundary && job->joining) return UNUSUAL;
        slot->state = SLOT_COMPLETE;
        step->emits = 1;
        step->forces = !included;
    }
    return 0;
}

static int receive_receipt(struct message *message, struct step *step, uint32_t *acknowledged) {
    const struct job *job = message->job;
    const struct slot *slot = message->row;
    uint32_t granted, low = message->seq - message->behind;
    if (message->behind > message->state->slots / 2 || is_too_far(message, low)) {
        step->outcome = OUTCOME_WINDOW;
        return 0;
    }
    if (ahead(low, *acknowledged) > 0) *acknowledged = low;
    step->outcome = OUTCOME_RECEIPT;
    step->slot = *slot;
    if (!(message->flags & CONTRIBUTION_WANT)) return 0;
    if (slot->seq == message->seq && slot->state == SLOT_COMPLETE) {
        step->resends = 1;
    } else if (is_asynchronous(job) && granted_members(job, message->seq, &granted) &&
               ahead(message->seq, slot->seq) == (int32_t)message->state->slots) {
        uint32_t lacking = lacking_members(message, slot, *acknowledged);
        if (!may_overwrite(slot, lacking))
            step->waits_for = awaited_members(slot, lacking);
        else if (granted)
            step->waits_for = granted;
        else
            return UNUSUAL;
    } else if (slot->seq == message->seq && slot->state == SLOT_COLLECTING) {
        step->waits_for = slot->expected & ~slot->arrived;
    }
    return 0;
}

/* Source: iswitch/golden/decide/claims.py. */
static void claim(struct message *message, struct step *step, uint32_t k, uint32_t weights) {
    const struct job *job = message->job;
    int32_t newer = ahead(k, message->member->claim);
    uint32_t waiting = 0, m;
    int quorum = __builtin_popcount(job->live);
    if (newer < 0) {
        step->outcome = OUTCOME_STALE;
        return;
    }
    if (ahead(weights, job->base) > 0) {
        step->outcome = OUTCOME_WINDOW;
        return;
    }
    if (ahead(weights, message->member->acknowledged) > 0) {
        step->outcome = OUTCOME_UNHELD;
        return;
    }
    step->outcome = OUTCOME_DUPLICATE;
    if (!newer && !message->member->waiting) {
        for (m = job->grants; m-- > 0 && step->answer == NO_ANSWER;)
            if (job->grant[m].members & message->bit) {
                step->answer = KEPT_GRANT;
                step->grant = job->grant[m];
            }
        return;
    }
    for (m = 0; m < job->grants; m++) step->age += ahead(job->grant[m].base, weights) >= 0;
    if (newer && step->age > (int)job->staleness) {
        step->outcome = OUTCOME_REFUSED;
        step->answer = REFUSE;
        return;
    }
    if (newer) {
        step->outcome = OUTCOME_CONTROL;
        step->is_new_claim = 1;
    }
    for (m = 0; m < job->world; m++) waiting |= (uint32_t)(job->member[m].waiting != 0) << m;
    waiting |= message->bit;
    if ((int)job->threshold < quorum) quorum = (int)job->threshold;
    if (__builtin_popcount(waiting) < quorum) {
        step->waits_for = job->live & ~waiting;
        return;
    }
    step->answer = GRANT;
    step->grant = (struct grant){job->base, waiting};
}

static void record_claim(struct message *message, const struct step *step, uint32_t k) {
    struct job *job = message->job;
    if (step->is_new_claim) {
        message->state->ages[step->age]++;
        message->member->claim = k;
        message->member->waiting = 1;
    }
    if (step->answer != GRANT) return;
    for (uint32_t m = 0; m < job->world; m++) job->member[m].waiting = 0;
    if (job->grants == job->staleness + 1) {
        memmove(job->grant, job->grant + 1, job->staleness * sizeof *job->grant);
        job->grants--;
    }
    job->grant[job->grants++] = step->grant;
    job->base += job->segments;
}

/* Results and answers */

/* Begin a payload with a header. What is not written later is 0. */
static uint8_t *begin_payload(struct output *output, uint32_t type, uint32_t job, uint32_t epoch, uint32_t seq,
                              uint32_t member, uint32_t token) {
    uint8_t *payload = output->payloads + output->bytes;
    memset(payload, 0, HEADER_BYTES);
    payload[VERSION_TYPE_AT] = (uint8_t)(VERSION << FLAGS_SHIFT | type);
    payload[JOB_AT] = (uint8_t)job;
    put_u16(payload + EPOCH_AT, epoch);
    put_u32(payload + SEQ_AT, seq);
    payload[MEMBER_AT] = (uint8_t)member;
    put_u32(payload + TOKEN_AT, token);
    return payload;
}

/* Send the payload, with the word at `complement_at` that makes it sum to zero. `total` is the sum of what stands between
   header and tail. */
static struct sent *end_payload(struct output *output, uint32_t length, uint32_t complement_at, uint32_t total) {
    uint8_t *payload = output->payloads + output->bytes;
    struct sent *sent = &output->sent[output->count++];
    put_u16(payload + complement_at, 0);
    for (uint32_t at = 0; at < HEADER_BYTES; at += 2) total += u16_at(payload + at);
    if (length > HEADER_BYTES)
        for (uint32_t at = length - TAIL_BYTES; at < length; at += 2) total += u16_at(payload + at);
    while (total >> 16) total = (total & 0xFFFF) + (total >> 16);
    put_u16(payload + complement_at, 0xFFFF - total);
    *sent = (struct sent){.offset = output->bytes, .length = length};
    output->bytes += length;
    return sent;
}

/* The same for a member's message: begin a payload, and send it to members of the job. */
static uint8_t *begin_answer(const struct message *message, uint32_t type, uint32_t seq, uint32_t member,
                             uint32_t token) {
    return begin_payload(&message->state->output, type, message->number, message->job->epoch, seq, member, token);
}

static void end_answer(const struct message *message, uint32_t length, uint32_t complement_at, uint32_t total,
                       uint32_t receivers) {
    struct sent *sent = end_payload(&message->state->output, length, complement_at, total);
    sent->job = (uint8_t)message->number;
    sent->members = receivers;
}

static void send_answer(struct message *message, const struct step *step, uint32_t k) {
    const struct job *job = message->job;
    uint8_t *payload;
    if (step->answer == REFUSE) {
        payload = begin_answer(message, TYPE_REFUSE, k, (uint32_t)(message->member - job->member),
                                message->member->token);
        put_u32(payload + MEMBERS_AT, job->base);
        end_answer(message, HEADER_BYTES, BEHIND_AT, 0, message->bit);
    } else {
        payload = begin_answer(message, TYPE_GRANT, step->grant.base, BROADCAST_MEMBER, job->token);
        put_u16(payload + COUNT_AT, (uint32_t)__builtin_popcount(step->grant.members));
        put_u32(payload + MEMBERS_AT, step->grant.members);
        end_answer(message, HEADER_BYTES, BEHIND_AT, 0, step->answer == GRANT ? job->live : message->bit);
    }
}

/* Send a slot's result. With `adds`, the message's elements are added first. */
static void send_result(struct message *message, const struct step *step, struct accumulator sums, uint32_t receivers,
                        uint32_t flags) {
    const struct job *job = message->job;
    const struct slot *slot = &step->slot;
    size_t count = slot->length / element_bytes(slot->format);
    struct terms terms = {slot->format, job->fraction, message->survey.exponent, job->limit};
    uint32_t ranks = is_asynchronous(job) ? slot->members : slot->ranks;
    uint32_t tainted = is_asynchronous(job) ? slot->tainted : slot->tainted_ranks;
    uint32_t length = HEADER_BYTES + slot->length + TAIL_BYTES;
    uint32_t identity = (slot->collective & 0xFFFF) ^ (slot->collective >> 16) ^ slot->digest;

    if (slot->partial || slot->expected & ~slot->members) flags |= RESULT_PARTIAL;
    if (tainted) flags |= RESULT_TAINTED;
    if (slot->members_changed) flags |= RESULT_MEMBERS_CHANGED;
    uint8_t *payload = begin_answer(message, TYPE_RESULT, slot->seq, BROADCAST_MEMBER, job->token);
    payload[FORMAT_FLAGS_AT] = (uint8_t)(flags << FLAGS_SHIFT | slot->format);
    put_u32(payload + TAINTED_AT, tainted);
    put_u32(payload + MEMBERS_AT, ranks);
    uint8_t *elements = payload + HEADER_BYTES;
    uint32_t total = step->adds ? add_and_round(terms, sums, message->elements, count, step->first, elements)
                                : round_accumulator(terms, sums, elements, count);
    put_u16(payload + length - 4, identity);
    end_answer(message, length, length - 2, total, receivers);
}

static void execute(struct message *message, struct step *step) {
    struct switch_state *state = message->state;
    struct job *job = message->job;
    size_t place = (size_t)message->number * state->slots + message->index, at = place * state->elements;
    struct accumulator sums = {state->stored + place, state->sums + at, state->poison + at, state->kept + 4 * at};
    if (step->adds) {
        state->stats[STAT_TERMS_FLUSHED] += message->survey.flushed;
        if (!step->emits) {
            struct terms terms = {(int)message->format, job->fraction, message->survey.exponent, job->limit};
            add(terms, sums, message->elements, message->count, step->first);
        }
    } else if (step->forces) {
        state->stats[STAT_FORCED]++;
        if (step->first) clear(sums, step->slot.length / element_bytes(step->slot.format));
    }
    if (step->emits) {
        state->stats[STAT_RESULTS]++;
        send_result(message, step, sums, job->live, 0);
    } else if (step->resends) {
        state->stats[STAT_RESENT]++;
        send_result(message, step, sums, message->bit, RESULT_RESENT);
    }
}

/* Frames that are refused */

/* Return whether a frame carries the token of a member, present or former, and comes from its port and address. */
static int is_from_member(const struct job *job, const struct source *source, const uint8_t *payload) {
    uint32_t m = payload[MEMBER_AT], token = u32_at(payload + TOKEN_AT);
    return m < job->world && token && token == job->member[m].token && is_same_source(source, &job->member[m].source);
}

/* Return the outcome of a frame of a host that is no member, or UNUSUAL. The hosts of a port share one NOTICE in an
   interval. */
static int refuse_unknown_host(struct switch_state *state, const struct source *source, const uint8_t *payload,
                               uint32_t now_us) {
    uint32_t number = payload[JOB_AT], m = payload[MEMBER_AT], token = u32_at(payload + TOKEN_AT);
    const struct job *job = number < state->jobs ? &state->job[number] : NULL;
    int outcome, reason;
    if (!job || job->state == JOB_NONE)
        outcome = OUTCOME_JOB, reason = REASON_JOB, job = NULL;
    else if (is_from_member(job, source, payload))
        return UNUSUAL;
    else if (u16_at(payload + EPOCH_AT) != job->epoch)
        outcome = OUTCOME_EPOCH, reason = REASON_EPOCH;
    else if (m >= job->world || !job->member[m].present)
        outcome = OUTCOME_MEMBER, reason = REASON_MEMBER;
    else if (token != job->member[m].token)
        outcome = OUTCOME_TOKEN, reason = REASON_TOKEN;
    else
        return UNUSUAL;
    if (state->noticed[source->port] && now_us - state->noticed_us[source->port] < NOTICE_INTERVAL_US) {
        state->stats[STAT_NOTICES_SUPPRESSED]++;
        return outcome;
    }
    state->noticed[source->port] = 1;
    state->noticed_us[source->port] = now_us;
    state->stats[STAT_NOTICES]++;
    uint8_t *notice = begin_payload(&state->output, TYPE_NOTICE, number, job ? job->epoch : 0,
                                    u32_at(payload + SEQ_AT), m, token);
    put_u16(notice + COUNT_AT, (uint32_t)reason);
    end_payload(&state->output, HEADER_BYTES, BEHIND_AT, 0)->to = *source;
    return outcome;
}

/* Return the outcome of a payload that holds no message for this switch; else UNUSUAL. */
static int check_form(const struct switch_state *state, const uint8_t *payload, uint32_t length) {
    if (!length) return OUTCOME_LENGTH;
    if (payload[VERSION_TYPE_AT] >> FLAGS_SHIFT != VERSION) return OUTCOME_VERSION;
    if (length < HEADER_BYTES) return OUTCOME_LENGTH;
    uint32_t type = payload[VERSION_TYPE_AT] & 0xF, body = length - HEADER_BYTES;
    if (!(state->types >> type & 1)) return OUTCOME_TYPE;
    if (type == TYPE_CONTROL && body != CONTROL_BYTES) return OUTCOME_LENGTH;
    if (type == TYPE_ACK && body != ACK_BYTES) return OUTCOME_LENGTH;
    if (type == TYPE_NOTICE && body) return OUTCOME_LENGTH;
    int from_parent = type == TYPE_RESULT || type == TYPE_ACK || type == TYPE_NOTICE;
    if (from_parent && (payload[JOB_AT] >= state->jobs || !state->job[payload[JOB_AT]].is_leaf)) return OUTCOME_TYPE;
    return UNUSUAL;
}

int handle_payload(struct switch_state *state, const struct source *source, const uint8_t *payload, uint32_t length,
                   uint32_t now_us) {
    int failed = check_form(state, payload, length);
    if (failed != UNUSUAL) return failed;
    uint32_t type = payload[VERSION_TYPE_AT] & 0xF, number = payload[JOB_AT], m = payload[MEMBER_AT];
    int is_usual = type == TYPE_CONTRIBUTION || type == TYPE_RECEIPT || type == TYPE_CLAIM;
    if (is_usual || type == TYPE_UPLINK) {
        failed = refuse_unknown_host(state, source, payload, now_us);
        if (failed != UNUSUAL) return failed;
    }
    if (!is_usual || number >= state->jobs) return UNUSUAL;
    struct job *job = &state->job[number];
    if (job->state != JOB_RUNNING || job->is_leaf || u16_at(payload + EPOCH_AT) != job->epoch || m >= job->world ||
        (is_asynchronous(job) && job->joining))
        return UNUSUAL;
    struct member *member = &job->member[m];
    if (!member->present || !(job->live >> m & 1) || u32_at(payload + TOKEN_AT) != member->token ||
        !is_same_source(source, &member->source))
        return UNUSUAL;
    uint32_t seq = u32_at(payload + SEQ_AT), flags_format = payload[FORMAT_FLAGS_AT];
    uint32_t index = seq & (state->slots - 1);
    uint8_t wide[ELEMENT_BYTES_MAX];
    struct message message = {.state = state,
                              .job = job,
                              .member = member,
                              .row = &state->slot[(size_t)number * state->slots + index],
                              .number = number,
                              .index = index,
                              .bit = (uint32_t)1 << m,
                              .seq = seq,
                              .behind = u16_at(payload + BEHIND_AT),
                              .flags = flags_format >> FLAGS_SHIFT,
                              .format = flags_format & 0xF,
                              .now_us = now_us,
                              .elements = payload + HEADER_BYTES,
                              .wide = wide,
                              .bytes = length - HEADER_BYTES};
    struct step step = {.outcome = UNUSUAL};
    uint32_t acknowledged = member->acknowledged;
    if (type == TYPE_CONTRIBUTION) {
        uint32_t size = element_bytes(message.format);
        int is_whole = message.bytes >= 4 && message.bytes <= size * job->elements && message.bytes % 4 == 0;
        int has_format = message.format == job->format || message.format == FORMAT_INT32;
        int has_one_rank = (member->ranks & (member->ranks - 1)) == 0;
        if (!is_whole || !has_format || !has_one_rank) return UNUSUAL;
        message.count = message.bytes / size;
        if (contribute(&message, &step, &acknowledged, payload) == UNUSUAL) return UNUSUAL;
    } else if (type == TYPE_CLAIM) {
        if (message.bytes || !is_asynchronous(job)) return UNUSUAL;
        claim(&message, &step, seq, u32_at(payload + MEMBERS_AT));
    } else {
        if (message.bytes || receive_receipt(&message, &step, &acknowledged) == UNUSUAL) return UNUSUAL;
    }
    uint32_t heard = member->heard_tick;
    member->heard_tick = now_us / SILENCE_TICK_US;
    if (any_is_silent(job, step.waits_for, now_us)) {
        member->heard_tick = heard;
        return UNUSUAL;
    }
    member->acknowledged = acknowledged;
    job->changed = 1;
    if (step.writes_slot) {
        *message.row = step.slot;
        if (step.emits && step.slot.boundary) {
            job->admitted = 0;
            job->admitted_seq = step.slot.seq + 1;
        }
    }
    execute(&message, &step);
    if (type == TYPE_CLAIM) record_claim(&message, &step, seq);
    if (step.answer) send_answer(&message, &step, seq);
    return step.outcome;
}
