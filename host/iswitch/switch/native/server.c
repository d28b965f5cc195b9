/* See server.h. A datagram of a socket passes the kernel together with its neighbours (UDP GRO and GSO), where the
   kernel can do that. */

#define _GNU_SOURCE
#include "server.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#include "datapath.h"

#define UDP_SEGMENT_OPTION 103
#define UDP_GRO_OPTION 104
#define BURST_BYTES 65507 /* an IPv4 datagram's */
#define BURST_SEGMENTS 64 /* the kernel's limit */
#define BUFFER_BYTES 65536
#define BATCH 8           /* bursts that one call takes from a port, so that no port waits for long */
#define RESULTS_MAX 1024  /* results that wait to be sent, as in software_switch.py */
#define SEND_WAIT_MS 10
#define PORTS_MAX 16

struct burst {
    uint8_t bytes[BUFFER_BYTES];
    struct sockaddr_in from;
    uint32_t length, segment; /* datagrams of `segment` bytes, the last may be shorter */
};

struct server {
    struct switch_state *state;
    uint64_t *outcomes, *counters;
    uint32_t ports;
    struct pollfd polled[PORTS_MAX];
    struct burst burst[BATCH];
    uint32_t bursts, current, offset; /* bursts received, the present one, and the bytes of it that are handled */
    uint32_t port, next_port;         /* of the bursts; where the next ones are looked for first */
    uint32_t now_us;
    uint32_t payload_length;
    int segments;                     /* 0: the kernel cannot send bursts */
};

uint32_t server_now_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint32_t)((uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000);
}

static uint64_t *counter(struct server *server, uint32_t port, uint32_t kind) {
    return &server->counters[port * PORT_COUNTERS + kind];
}

struct server *server_open(struct switch_state *state, const int *sockets, uint32_t ports, uint64_t *outcomes,
                           uint64_t *counters) {
    struct server *server = calloc(1, sizeof *server);
    if (!server) return NULL;
    server->state = state;
    server->outcomes = outcomes;
    server->counters = counters;
    server->ports = ports;
    server->segments = 1;
    for (uint32_t port = 0; port < ports; port++) {
        int on = 1;
        setsockopt(sockets[port], IPPROTO_UDP, UDP_GRO_OPTION, &on, sizeof on);
        server->polled[port] = (struct pollfd){.fd = sockets[port], .events = POLLIN};
    }
    return server;
}

void server_close(struct server *server) { free(server); }

/* A socket is a station with a MAC address of its own, made from its address. */
static struct source source_of(const struct server *server, const struct sockaddr_in *from) {
    uint32_t ip = ntohl(from->sin_addr.s_addr);
    uint16_t udp_port = ntohs(from->sin_port);
    uint8_t mac[6] = {2, (uint8_t)(ip >> 16), (uint8_t)(ip >> 8), (uint8_t)ip, (uint8_t)(udp_port >> 8), (uint8_t)udp_port};
    struct source source = {.ip = ip, .udp_port = udp_port, .port = (uint8_t)server->port};
    memcpy(source.mac, mac, sizeof mac);
    return source;
}

/* Sending */

/* Send datagrams of one length, of which the last may be shorter. What cannot be sent is lost, as on a wire. */
static void send_burst(struct server *server, const struct source *to, struct iovec *parts, uint32_t count) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(to->udp_port), .sin_addr = {htonl(to->ip)}};
    union {
        char bytes[CMSG_SPACE(sizeof(uint16_t))];
        struct cmsghdr align;
    } control;
    struct msghdr message = {.msg_name = &address, .msg_namelen = sizeof address, .msg_iov = parts, .msg_iovlen = count};
    int fd = server->polled[to->port].fd;
    if (count > 1) {
        memset(&control, 0, sizeof control);
        message.msg_control = control.bytes;
        message.msg_controllen = sizeof control.bytes;
        struct cmsghdr *header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = IPPROTO_UDP;
        header->cmsg_type = UDP_SEGMENT_OPTION;
        header->cmsg_len = CMSG_LEN(sizeof(uint16_t));
        uint16_t segment = (uint16_t)parts[0].iov_len;
        memcpy(CMSG_DATA(header), &segment, sizeof segment);
    }
    for (int tries = 0; tries < 3; tries++) {
        if (sendmsg(fd, &message, MSG_DONTWAIT) >= 0) {
            *counter(server, to->port, PORT_TX_FRAMES) += count;
            return;
        }
        if (errno == EAGAIN || errno == ENOBUFS) {
            struct pollfd writable = {.fd = fd, .events = POLLOUT};
            poll(&writable, 1, SEND_WAIT_MS);
        } else if (count > 1 && (errno == EIO || errno == EINVAL || errno == EOPNOTSUPP)) {
            server->segments = 0;
            for (uint32_t k = 0; k < count; k++) send_burst(server, to, parts + k, 1);
            return;
        } /* else: an ICMP message about an earlier datagram, or a signal */
    }
    *counter(server, to->port, PORT_TX_EXPIRED_RESULT) += count;
}

/* Send to one member of a job what is for it, in order. */
static void send_to_member(struct server *server, uint32_t number, uint32_t m) {
    const struct output *output = &server->state->output;
    const struct source *to = &server->state->job[number].member[m].source;
    struct iovec parts[BURST_SEGMENTS];
    uint32_t count = 0, bytes = 0;
    for (uint32_t k = 0; k < output->count; k++) {
        const struct sent *sent = &output->sent[k];
        if (sent->job != number || !(sent->members >> m & 1)) continue;
        uint32_t most = server->segments ? BURST_SEGMENTS : 1;
        if (count && (count == most || sent->length > parts[0].iov_len || bytes + sent->length > BURST_BYTES ||
                      parts[count - 1].iov_len < parts[0].iov_len)) {
            send_burst(server, to, parts, count);
            count = bytes = 0;
        }
        parts[count++] = (struct iovec){output->payloads + sent->offset, sent->length};
        bytes += sent->length;
    }
    if (count) send_burst(server, to, parts, count);
}

static void flush_output(struct server *server) {
    struct output *output = &server->state->output;
    uint32_t receivers[PORTS_MAX] = {0}; /* by job, of which there are as many at most */
    for (uint32_t k = 0; k < output->count; k++) receivers[output->sent[k].job] |= output->sent[k].members;
    for (uint32_t number = 0; number < server->state->jobs; number++)
        for (uint32_t members = receivers[number]; members; members &= members - 1)
            send_to_member(server, number, (uint32_t)__builtin_ctz(members));
    output->count = output->bytes = 0;
}

/* Receiving */

/* Take bursts from a port's socket. Returns how many there were. */
static uint32_t receive_bursts(struct server *server, uint32_t port) {
    struct mmsghdr messages[BATCH];
    struct iovec parts[BATCH];
    union {
        char bytes[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } control[BATCH];
    memset(messages, 0, sizeof messages);
    for (int k = 0; k < BATCH; k++) {
        struct burst *burst = &server->burst[k];
        parts[k] = (struct iovec){burst->bytes, BUFFER_BYTES};
        messages[k].msg_hdr = (struct msghdr){.msg_name = &burst->from,
                                              .msg_namelen = sizeof burst->from,
                                              .msg_iov = &parts[k],
                                              .msg_iovlen = 1,
                                              .msg_control = control[k].bytes,
                                              .msg_controllen = sizeof control[k].bytes};
    }
    int got = recvmmsg(server->polled[port].fd, messages, BATCH, MSG_DONTWAIT, NULL);
    for (int k = 0; k < got; k++) {
        struct burst *burst = &server->burst[k];
        burst->length = burst->segment = messages[k].msg_len;
        for (struct cmsghdr *header = CMSG_FIRSTHDR(&messages[k].msg_hdr); header;
             header = CMSG_NXTHDR(&messages[k].msg_hdr, header))
            if (header->cmsg_level == IPPROTO_UDP && header->cmsg_type == UDP_GRO_OPTION) {
                int segment;
                memcpy(&segment, CMSG_DATA(header), sizeof segment);
                if (segment > 0) burst->segment = (uint32_t)segment;
            }
    }
    server->bursts = got > 0 ? (uint32_t)got : 0;
    server->current = server->offset = 0;
    server->port = port;
    return server->bursts;
}

/* Handle what was received. Returns 1 at a payload for the golden switch, which `current` and `offset` then show. */
static int handle_bursts(struct server *server) {
    struct switch_state *state = server->state;
    for (; server->current < server->bursts; server->current++, server->offset = 0) {
        struct burst *burst = &server->burst[server->current];
        struct source source = source_of(server, &burst->from);
        do { /* an empty datagram is one, too */
            uint32_t left = burst->length - server->offset;
            uint32_t length = left < burst->segment ? left : burst->segment;
            uint8_t *payload = burst->bytes + server->offset;
            if (state->output.count == RESULTS_MAX) flush_output(server);
            int outcome = handle_payload(state, &source, payload, length, server->now_us);
            ++*counter(server, server->port, PORT_RX_FRAMES);
            if (outcome == UNUSUAL) {
                server->payload_length = length;
                return 1;
            }
            server->outcomes[outcome]++;
            server->offset += length;
        } while (server->offset < burst->length);
    }
    return 0;
}

const uint8_t *server_payload(struct server *server, struct source *source, uint32_t *length) {
    struct burst *burst = &server->burst[server->current];
    *source = source_of(server, &burst->from);
    *length = server->payload_length;
    return burst->bytes + server->offset;
}

/* Go on behind the payload that the golden switch has handled. */
static void skip_payload(struct server *server) {
    if (server->current == server->bursts) return;
    server->offset += server->payload_length;
    if (server->offset >= server->burst[server->current].length) {
        server->current++;
        server->offset = 0;
    }
}

/* Take bursts from the next port that has some. Returns how many there were. */
static uint32_t receive_from_next_port(struct server *server) {
    for (uint32_t tried = 0; tried < server->ports; tried++) {
        uint32_t port = server->next_port;
        server->next_port = (port + 1) % server->ports;
        if (receive_bursts(server, port)) return server->bursts;
    }
    return 0;
}

int server_run(struct server *server, int timeout_ms) {
    uint32_t begin_us = server_now_us();
    skip_payload(server);
    for (;;) {
        server->now_us = server_now_us();
        int needs_golden_switch = handle_bursts(server);
        flush_output(server);
        if (needs_golden_switch) return PAYLOAD;
        if (server->now_us - begin_us > (uint32_t)timeout_ms * 1000) return TIMEOUT;
        if (!receive_from_next_port(server) && poll(server->polled, server->ports, timeout_ms) <= 0) return TIMEOUT;
    }
}
