/* A worker in C: joins a synchronous job, sums vectors over all workers, and leaves. docs/client.md explains it.
 *
 *     cc -O2 -o allreduce examples/c/allreduce.c -lm
 *     ISWITCH_ADDRESS=127.0.0.1:27000 RANK=0 WORLD_SIZE=2 ISWITCH_KEY=7 ./allreduce 100000 20
 *
 * It sums 20 vectors of 100,000 numbers and prints the CRC-32 of each sum, which is the same at every rank. Its settings
 * are those of `iswitch.Worker`, so workers in Python may take part. It does not survive the loss of a member: whatever
 * makes a sum other than that of all workers ends it with a message. */

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <netdb.h>
#include <poll.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "iswitch_wire.h"

enum { DATAGRAM_MAX = 65536, EVICT_US = 5000000, FRACTION = 44, LEAVE_NUMBER = 1 };
static const double FIRST_TIMEOUT_S = 0.05, LONGEST_TIMEOUT_S = 0.25, ANSWER_TIMEOUT_S = 10, SUM_TIMEOUT_S = 300;

struct worker {
    int socket;
    uint8_t job, member;
    uint16_t epoch, world, window, elements; // elements of a full segment
    uint32_t token, job_token;               // ours; the job's
    uint64_t key, nonce;
    uint32_t low;             // the lowest seq whose result we lack
    uint32_t position;        // collectives so far
    uint32_t digest;          // CRC-32 over the checks of all results so far
    double delay_s;           // smoothed time from a contribution to its result; 0: not measured
    uint8_t *in;              // the datagram that came last
};

static void fail(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    exit(1);
}

static double now_s(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec * 1e-9;
}

static void draw(void *secret, size_t bytes)
{
    if (getrandom(secret, bytes, 0) != (ssize_t)bytes)
        fail("the operating system gives no random numbers: %s", strerror(errno));
}

/* CRC-32 as zlib's, continued. */
static uint32_t crc32(uint32_t crc, const uint8_t *data, size_t bytes)
{
    crc = ~crc;
    for (size_t k = 0; k < bytes; k++) {
        crc ^= data[k];
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? 0xEDB88320 : 0);
    }
    return ~crc;
}

/* ---- Datagrams ---- */

static void transmit(const struct worker *w, const void *datagram, size_t bytes)
{
    // A datagram that the kernel cannot take is as one that the network loses. ECONNREFUSED reports an earlier one.
    if (send(w->socket, datagram, bytes, 0) < 0 && errno != ENOBUFS && errno != EAGAIN && errno != ECONNREFUSED)
        fail("cannot send to the switch: %s", strerror(errno));
}

/* Return the size of the datagram that is now in `w->in`, or 0 when no datagram of this job has come until `until_s`. */
static size_t receive(struct worker *w, double until_s)
{
    for (;;) {
        double left_s = until_s - now_s();
        struct pollfd ready = {.fd = w->socket, .events = POLLIN};
        if (poll(&ready, 1, left_s > 0 ? (int)ceil(left_s * 1e3) : 0) <= 0)
            return 0;
        ssize_t bytes = recv(w->socket, w->in, DATAGRAM_MAX, 0);
        const struct iswitch_header *header = (void *)w->in;
        if (bytes >= (ssize_t)sizeof *header && header->version_type >> 4 == ISWITCH_VERSION && header->job == w->job)
            return bytes;
    }
}

static enum iswitch_type received_type(const struct worker *w)
{
    return ((const struct iswitch_header *)w->in)->version_type & 0xF;
}

static struct iswitch_header header_of(const struct worker *w, enum iswitch_type type, uint32_t seq)
{
    return (struct iswitch_header){
        .version_type = ISWITCH_VERSION << 4 | type,
        .job = w->job,
        .epoch = w->epoch,
        .seq = seq,
        .member = w->member,
        .token = w->token,
    };
}

/* ---- Joining and leaving ---- */

/* Send a control message until its answer comes. Return the body of the answer, whose header is in `w->in`. */
static struct iswitch_ack ask(struct worker *w, uint32_t number, struct iswitch_control body)
{
    struct {
        struct iswitch_header header;
        struct iswitch_control body;
    } __attribute__((packed)) message = {header_of(w, ISWITCH_TYPE_CONTROL, number), body};
    const struct iswitch_header *header = (void *)w->in;
    double end_s = now_s() + ANSWER_TIMEOUT_S;
    for (double wait_s = FIRST_TIMEOUT_S; now_s() < end_s; wait_s = fmin(2 * wait_s, 0.5)) {
        transmit(w, &message, sizeof message);
        double until_s = now_s() + wait_s;
        for (size_t bytes; (bytes = receive(w, until_s));) {
            struct iswitch_ack ack;
            if (received_type(w) != ISWITCH_TYPE_ACK || bytes != sizeof *header + sizeof ack)
                continue;
            memcpy(&ack, w->in + sizeof *header, sizeof ack);
            if (ack.action == body.action && ack.nonce == body.nonce && header->seq == number)
                return ack;
        }
    }
    fail("no answer from the switch in %g s: is ISWITCH_ADDRESS the switch's?", ANSWER_TIMEOUT_S);
    abort();
}

static void join(struct worker *w)
{
    struct iswitch_control request = {
        .action = ISWITCH_ACTION_JOIN,
        .format = ISWITCH_FORMAT_WINDOW64,
        .fraction = FRACTION,
        .world = w->world,
        .threshold = w->world,
        .elements = 1, // until the switch has said how many it takes
        .mode = ISWITCH_MODE_QUARANTINE,
        .key = w->key,
        .evict_us = EVICT_US,
    };
    draw(&w->token, sizeof w->token);
    w->token |= 1; // not 0
    draw(&request.nonce, sizeof request.nonce);
    draw(&request.job_token, sizeof request.job_token);
    w->nonce = request.nonce;
    bool granted = false;
    for (;;) {
        struct iswitch_ack ack = ask(w, 0, request);
        const struct iswitch_header *header = (void *)w->in;
        uint32_t challenge = ack.registers[ISWITCH_ACK_REGISTER_CHALLENGE];
        if (ack.reason == ISWITCH_REASON_CHALLENGE) {
            if (ack.state >= ISWITCH_JOB_STATE_RUNNING)
                fail("job %u is running: wait until it has ended, or set another ISWITCH_JOB", w->job);
            request.challenge = challenge;
            request.elements = w->elements = ack.elements;
            granted = false;
            continue;
        }
        if (ack.reason != ISWITCH_REASON_DONE)
            fail("the switch refuses the Join: reason %u (docs/protocol.md, section 4)", ack.reason);
        if (ack.standing == ISWITCH_MEMBER_STATE_LIVE && ack.state >= ISWITCH_JOB_STATE_RUNNING) {
            w->epoch = header->epoch;
            w->low = ack.first_seq;
            w->window = ack.window;
            w->job_token = ack.registers[ISWITCH_ACK_REGISTER_JOB_TOKEN];
            return;
        }
        if (!granted)
            fprintf(stderr, "rank %u: waits for the other workers, %u of %u are here\n", w->member, ack.live, w->world);
        granted = true;
        poll(NULL, 0, 5);
    }
}

static void leave(struct worker *w)
{
    ask(w, LEAVE_NUMBER, (struct iswitch_control){.action = ISWITCH_ACTION_LEAVE, .nonce = w->nonce});
}

/* Send a sign of life. The switch evicts a member that is silent for EVICT_US while another one waits for it, so call
 * this several times in that time between sums. */
void keep_alive(struct worker *w)
{
    struct iswitch_header receipt = header_of(w, ISWITCH_TYPE_RECEIPT, w->low);
    transmit(w, &receipt, sizeof receipt);
}

/* ---- A sum ---- */

struct segment {
    double sent_s; // when it was sent; 0: not yet
    bool repeated, done;
    uint8_t check[2]; // of the result
};

struct sum {
    struct worker *w;
    float *array;
    uint32_t count, segments, first; // elements; seq of segment 0
    uint32_t next;                   // the next segment to send
    uint32_t newest;                 // 1 + the highest segment whose result has come; 0: none has
    uint32_t collective;             // its identity
    struct segment *segment;
};

static size_t elements_of(const struct sum *s, uint32_t k)
{
    return k + 1 < s->segments ? s->w->elements : s->count - k * s->w->elements;
}

static void contribute(struct sum *s, uint32_t k, bool again)
{
    uint8_t datagram[DATAGRAM_MAX];
    size_t bytes = 4 * elements_of(s, k);
    struct iswitch_header plain = header_of(s->w, ISWITCH_TYPE_CONTRIBUTION, s->first + k);
    struct iswitch_contribution_header header;
    memcpy(&header, &plain, sizeof header);
    unsigned flags = (again ? ISWITCH_CONTRIBUTION_FLAG_RETRANSMISSION : 0)
                     | (k + 1 == s->segments ? ISWITCH_CONTRIBUTION_FLAG_BOUNDARY : 0);
    header.format_flags = flags << ISWITCH_FLAGS_SHIFT | ISWITCH_FORMAT_WINDOW64;
    header.digest = s->w->digest & 0xFFFF;
    header.behind = s->first + k - s->w->low;
    header.collective = s->collective;
    memcpy(datagram, &header, sizeof header);
    memcpy(datagram + sizeof header, s->array + (size_t)k * s->w->elements, bytes);
    transmit(s->w, datagram, sizeof header + bytes);
    s->segment[k].repeated = again;
    s->segment[k].sent_s = now_s();
}

/* The ones' complement sum of the big-endian words that a result's check covers: no pass over the elements. */
static void note_check(uint8_t check[2], const uint8_t *header, const uint8_t *tail)
{
    const uint8_t *words[] = {header, header + 2, header + 8, header + 18, header + 20, tail, tail + 2};
    uint32_t total = 0;
    for (int k = 0; k < 7; k++)
        total += words[k][0] << 8 | words[k][1];
    total = (total & 0xFFFF) + (total >> 16);
    total = (total & 0xFFFF) + (total >> 16);
    total = total ? total : 0xFFFF;
    check[0] = total >> 8;
    check[1] = total;
}

/* Take the result that is in `w->in`. Return whether it is a new one of this sum. */
static bool take_result(struct sum *s, size_t bytes)
{
    struct worker *w = s->w;
    struct iswitch_result_header header;
    struct iswitch_tail tail;
    memcpy(&header, w->in, sizeof header);
    uint32_t k = header.seq - s->first;
    if (header.epoch != w->epoch || header.token != w->job_token || k >= s->next || s->segment[k].done)
        return false; // not from this job, of an earlier sum, or here already
    size_t payload = 4 * elements_of(s, k);
    if (bytes != sizeof header + payload + sizeof tail)
        fail("the result of seq %u has %zu bytes: do all workers sum vectors of one size?", header.seq, bytes);
    memcpy(&tail, w->in + sizeof header + payload, sizeof tail);
    uint16_t identity = (s->collective & 0xFFFF) ^ s->collective >> 16 ^ (w->digest & 0xFFFF);
    if (tail.identity != identity)
        fail("the result of seq %u is of another step: the workers are at different steps", header.seq);
    unsigned flags = header.format_flags >> ISWITCH_FLAGS_SHIFT;
    if (flags & ISWITCH_RESULT_FLAG_TAINTED)
        fail("ranks 0x%x sent NaN, an infinity or a number that is too large", header.tainted);
    if (flags & (ISWITCH_RESULT_FLAG_PARTIAL | ISWITCH_RESULT_FLAG_MEMBERS_CHANGED))
        fail("the members have changed: only ranks 0x%x are in the sum", header.members);
    memcpy(s->array + (size_t)k * w->elements, w->in + sizeof header, payload);
    note_check(s->segment[k].check, w->in, w->in + sizeof header + payload);
    s->segment[k].done = true;
    s->newest = k + 1 > s->newest ? k + 1 : s->newest;
    if (!s->segment[k].repeated) { // after a repetition the result may answer either of them (Karn's rule)
        double delay_s = now_s() - s->segment[k].sent_s;
        w->delay_s = w->delay_s ? w->delay_s + (delay_s - w->delay_s) / 8 : delay_s;
    }
    return true;
}

static void take_notice(const struct sum *s)
{
    const struct iswitch_header *header = (const void *)s->w->in;
    if (header->token != s->w->token || header->count == ISWITCH_REASON_HALTED)
        return; // a halted job takes contributions again when a member or the operator resumes it
    if (header->count == ISWITCH_REASON_EPOCH && header->epoch == s->w->epoch)
        return;
    uint32_t k = header->seq - s->first;
    if (header->count == ISWITCH_REASON_COLLECTIVE && (k >= s->next || s->segment[k].done))
        return; // about a repetition that was late
    fail("the switch does not take our contribution: reason %u (docs/protocol.md, section 3)", header->count);
}

/* Send again what is overdue: the lowest segment without a result, and once a result has come, those that it passed. */
static void repeat(struct sum *s)
{
    uint32_t low = s->w->low - s->first;
    contribute(s, low, true);
    for (uint32_t k = low + 1; s->newest && k < s->next; k++)
        if (!s->segment[k].done && (k < s->newest || k + 1 == s->next))
            contribute(s, k, true);
}

/* Replace `array` by its sum over all workers. All of them must call this with the same `count`. */
static void allreduce(struct worker *w, float *array, uint32_t count)
{
    if (!count) {
        w->position = (w->position + 1) & 0xFFFFFF;
        return;
    }
    struct sum s = {.w = w, .array = array, .count = count, .first = w->low};
    s.segments = (count + w->elements - 1) / w->elements;
    s.segment = calloc(s.segments, sizeof *s.segment);
    s.collective = w->position | ISWITCH_COLLECTIVE_ALLREDUCE << 24 | (s.segments & 0xF) << 28;
    if (!s.segment)
        fail("no memory for %u segments", s.segments);
    double end_s = now_s() + SUM_TIMEOUT_S, backoff = 1;
    double timer_s = now_s();
    while (w->low != s.first + s.segments) {
        for (; s.next < s.segments && s.first + s.next - w->low < w->window; s.next++)
            contribute(&s, s.next, false);
        double wait_s = w->delay_s ? 2 * w->delay_s + 0.002 : FIRST_TIMEOUT_S;
        size_t bytes = receive(w, timer_s + fmin(backoff * wait_s, LONGEST_TIMEOUT_S));
        if (bytes && received_type(w) == ISWITCH_TYPE_RESULT && take_result(&s, bytes)) {
            while (w->low - s.first < s.next && s.segment[w->low - s.first].done)
                w->low++;
            timer_s = now_s();
            end_s = timer_s + SUM_TIMEOUT_S;
            backoff = 1;
        } else if (bytes && received_type(w) == ISWITCH_TYPE_NOTICE) {
            take_notice(&s);
        } else if (now_s() >= end_s) {
            fail("no result of seq %u in %g s: `iswitch top` shows which member is missing", w->low, SUM_TIMEOUT_S);
        } else if (!bytes) {
            repeat(&s);
            timer_s = now_s();
            backoff *= 2;
        }
    }
    for (uint32_t k = 0; k < s.segments; k++)
        w->digest = crc32(w->digest, s.segment[k].check, sizeof s.segment[k].check);
    w->position = (w->position + 1) & 0xFFFFFF;
    free(s.segment);
}

/* ---- The program ---- */

static uint64_t number_of(const char *name, const char *text, uint64_t most)
{
    char *end = NULL;
    errno = 0;
    uint64_t number = text ? strtoull(text, &end, 0) : 0;
    if (!text || errno || end == text || *end || number > most || strchr(text, '-'))
        fail("%s must be a number, 0 to %" PRIu64 ", not %s", name, most, text ? text : "empty");
    return number;
}

static uint64_t setting(const char *name, const char *otherwise, uint64_t most)
{
    const char *text = getenv(name);
    return number_of(name, text ? text : otherwise, most);
}

static int connect_to(const char *address)
{
    char host[256];
    const char *colon = strrchr(address, ':');
    if (!colon || (size_t)(colon - address) >= sizeof host)
        fail("ISWITCH_ADDRESS must be HOST:PORT, not %s", address);
    memcpy(host, address, colon - address);
    host[colon - address] = 0;
    struct addrinfo *found, hints = {.ai_family = AF_INET, .ai_socktype = SOCK_DGRAM};
    int error = getaddrinfo(host, colon + 1, &hints, &found);
    if (error)
        fail("ISWITCH_ADDRESS %s: %s", address, gai_strerror(error));
    int made = socket(AF_INET, SOCK_DGRAM, 0), room = 1 << 22;
    setsockopt(made, SOL_SOCKET, SO_RCVBUF, &room, sizeof room); // a window of results; the kernel may give less
    if (made < 0 || connect(made, found->ai_addr, found->ai_addrlen))
        fail("ISWITCH_ADDRESS %s: %s", address, strerror(errno));
    freeaddrinfo(found);
    return made;
}

int main(int arguments, char **argument)
{
    uint32_t count = number_of("the number of elements", arguments > 1 ? argument[1] : "100000", UINT32_MAX / 4);
    uint32_t steps = number_of("the number of steps", arguments > 2 ? argument[2] : "20", UINT32_MAX);
    const char *address = getenv("ISWITCH_ADDRESS");
    struct worker w = {
        .socket = connect_to(address ? address : "127.0.0.1:27000"),
        .job = setting("ISWITCH_JOB", "0", 255),
        .member = setting("RANK", NULL, 31),
        .world = setting("WORLD_SIZE", NULL, 32),
        .key = setting("ISWITCH_KEY", NULL, UINT64_MAX),
        .in = malloc(DATAGRAM_MAX),
    };
    float *array = calloc(count ? count : 1, sizeof *array);
    if (!w.in || !array)
        fail("no memory for %u elements", count);
    uint32_t rank = w.member;
    join(&w);
    for (uint32_t step = 0; step < steps; step++) {
        for (uint32_t k = 0; k < count; k++) // your gradient
            array[k] = (float)((rank + 1) * 0.25 * ((k + step) % 1000));
        allreduce(&w, array, count);
        printf("rank %u: sum %u has the CRC-32 %08x\n", rank, step, crc32(0, (uint8_t *)array, 4 * (size_t)count));
    }
    leave(&w);
    close(w.socket);
    free(w.in);
    free(array);
}
