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
#include "udp.h"

#define BATCH 8           /* bursts that one call takes from a port, so that no port waits for long */
#define SEND_WAIT_MS 10
#define FULL_BYTES 57344

struct burst {
    uint8_t bytes[BURST_BUFFER_BYTES];
    struct sockaddr_in from;
    uint32_t length, segment; /* datagrams of `segment` bytes, the last may be shorter */
};

/* A port, with the bursts that were received last. `current` and `offset`: the first datagram that is not handled. */
struct port {
    struct burst burst[BATCH];
    uint32_t number, bursts, current, offset;
};

struct server {
    struct switch_state *state;
    uint64_t *outcomes, *counters;
    uint32_t ports, next_port;
    struct port port[PORTS_MAX];
    struct pollfd polled[PORTS_MAX];
    struct port *stopped; /* at a payload for the golden switch; or NULL */
    uint32_t now_us;
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
    for (uint32_t port = 0; port < ports; port++) {
        int on = 1, by_interface = IP_PMTUDISC_INTERFACE; /* any host can forge an ICMP message about the path's MTU */
        setsockopt(sockets[port], IPPROTO_UDP, UDP_GRO_OPTION, &on, sizeof on);
        setsockopt(sockets[port], IPPROTO_IP, IP_MTU_DISCOVER, &by_interface, sizeof by_interface);
        server->polled[port] = (struct pollfd){.fd = sockets[port], .events = POLLIN};
        server->port[port].number = port;
    }
    return server;
}

void server_close(struct server *server) { free(server); }

/* A socket is a station with a MAC address of its own, made from its address. */
static struct source source_of(const struct port *port, const struct sockaddr_in *from) {
    uint32_t ip = ntohl(from->sin_addr.s_addr);
    uint16_t udp_port = ntohs(from->sin_port);
    uint8_t mac[6] = {2, (uint8_t)(ip >> 16), (uint8_t)(ip >> 8), (uint8_t)ip, (uint8_t)(udp_port >> 8), (uint8_t)udp_port};
    struct source source = {.ip = ip, .udp_port = udp_port, .port = (uint8_t)port->number};
    memcpy(source.mac, mac, sizeof mac);
    return source;
}

/* Sending */

static uint32_t drop_counter(const uint8_t *payload) {
    uint32_t type = payload[VERSION_TYPE_AT] & 0xF;
    if (type == TYPE_GRANT) return PORT_TX_DROP_GRANT;
    return type == TYPE_RESULT ? PORT_TX_EXPIRED_RESULT : PORT_TX_DROP_REPLY;
}

/* Send datagrams of one length, of which the last may be shorter. What cannot be sent is lost, as on a wire. */
static void send_burst(struct server *server, const struct source *to, struct iovec *parts, uint32_t count) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(to->udp_port), .sin_addr = {htonl(to->ip)}};
    struct msghdr message = {.msg_name = &address, .msg_namelen = sizeof address, .msg_iov = parts, .msg_iovlen = count};
    int fd = server->polled[to->port].fd;
    struct segment_option option;
    if (count > 1) set_segment(&message, &option, (uint32_t)parts[0].iov_len);
    for (int tries = 0; tries < 3; tries++) {
        if (sendmsg(fd, &message, MSG_DONTWAIT) >= 0) {
            *counter(server, to->port, PORT_TX_FRAMES) += count;
            return;
        }
        if (errno == EAGAIN || errno == ENOBUFS) {
            struct pollfd writable = {.fd = fd, .events = POLLOUT};
            poll(&writable, 1, SEND_WAIT_MS);
        } else if (count > 1 && (errno == EIO || errno == EINVAL || errno == EOPNOTSUPP)) {
            /* The way to this receiver takes no bursts. Others may. */
            for (uint32_t k = 0; k < count; k++) send_burst(server, to, parts + k, 1);
            return;
        } /* else: an ICMP message about an earlier datagram, or a signal */
    }
    for (uint32_t k = 0; k < count; k++) ++*counter(server, to->port, drop_counter(parts[k].iov_base));
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
        if (count && (count == BURST_SEGMENTS || sent->length > parts[0].iov_len || bytes + sent->length > BURST_BYTES ||
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
    uint32_t receivers[JOBS_MAX] = {0};
    for (uint32_t k = 0; k < output->count; k++) {
        struct sent *sent = &output->sent[k];
        if (sent->members)
            receivers[sent->job] |= sent->members;
        else
            send_burst(server, &sent->to, &(struct iovec){output->payloads + sent->offset, sent->length}, 1);
    }
    for (uint32_t number = 0; number < server->state->jobs; number++)
        for (uint32_t members = receivers[number]; members; members &= members - 1)
            send_to_member(server, number, (uint32_t)__builtin_ctz(members));
    output->count = output->bytes = 0;
}

/* Receiving */

/* Take bursts from a port's socket. Returns how many there were. */
static uint32_t receive_bursts(const struct server *server, struct port *port) {
    struct mmsghdr messages[BATCH];
    struct iovec parts[BATCH];
    struct segment_option option[BATCH];
    memset(messages, 0, sizeof messages);
    for (int k = 0; k < BATCH; k++) {
        struct burst *burst = &port->burst[k];
        parts[k] = (struct iovec){burst->bytes, BURST_BUFFER_BYTES};
        messages[k].msg_hdr = (struct msghdr){.msg_name = &burst->from,
                                              .msg_namelen = sizeof burst->from,
                                              .msg_iov = &parts[k],
                                              .msg_iovlen = 1,
                                              .msg_control = option[k].bytes,
                                              .msg_controllen = sizeof option[k].bytes};
    }
    int got = recvmmsg(server->polled[port->number].fd, messages, BATCH, MSG_DONTWAIT, NULL);
    for (int k = 0; k < got; k++) {
        struct burst *burst = &port->burst[k];
        burst->length = messages[k].msg_len;
        burst->segment = received_segment(&messages[k].msg_hdr, burst->length);
    }
    port->bursts = got > 0 ? (uint32_t)got : 0;
    port->current = port->offset = 0;
    return port->bursts;
}

static uint32_t datagram_length(const struct port *port) {
    const struct burst *burst = &port->burst[port->current];
    uint32_t left = burst->length - port->offset;
    return left < burst->segment ? left : burst->segment;
}

static void skip_datagram(struct port *port) {
    port->offset += datagram_length(port);
    if (port->offset >= port->burst[port->current].length) {
        port->current++;
        port->offset = 0;
    }
}

/* Handle what a port has received, up to a payload for the golden switch. Returns whether there is one. */
static int handle_bursts(struct server *server, struct port *port) {
    struct switch_state *state = server->state;
    for (; port->current < port->bursts; skip_datagram(port)) {
        struct burst *burst = &port->burst[port->current];
        struct source source = source_of(port, &burst->from);
        /* What fills a burst leaves at once, so that the receivers work while the rest is handled. */
        if (state->output.count == RESULTS_MAX || state->output.bytes >= FULL_BYTES) flush_output(server);
        int outcome =
            handle_payload(state, &source, burst->bytes + port->offset, datagram_length(port), server->now_us);
        ++*counter(server, port->number, PORT_RX_FRAMES);
        if (outcome == UNUSUAL) return 1;
        server->outcomes[outcome]++;
    }
    return 0;
}

const uint8_t *server_payload(struct server *server, struct source *source, uint32_t *length) {
    const struct port *port = server->stopped;
    const struct burst *burst = &port->burst[port->current];
    *source = source_of(port, &burst->from);
    *length = datagram_length(port);
    return burst->bytes + port->offset;
}

/* Return the next port that has something to handle, or NULL. */
static struct port *next_port(struct server *server) {
    for (uint32_t tried = 0; tried < server->ports; tried++) {
        struct port *port = &server->port[server->next_port];
        server->next_port = (server->next_port + 1) % server->ports;
        if (port->current < port->bursts || receive_bursts(server, port)) return port;
    }
    return NULL;
}

int server_run(struct server *server, int timeout_ms) {
    uint32_t begin_us = server_now_us();
    if (server->stopped) skip_datagram(server->stopped);
    server->stopped = NULL;
    for (;;) {
        struct port *port = next_port(server);
        server->now_us = server_now_us();
        if (port) {
            /* A payload for the golden switch ends the port's turn, so that such payloads slow no other port much. */
            if (handle_bursts(server, port)) server->stopped = port;
            flush_output(server);
            if (server->stopped) return EVENT_PAYLOAD;
        } else if (poll(server->polled, server->ports, timeout_ms) <= 0) {
            return EVENT_TIMEOUT;
        }
        if (server->now_us - begin_us > (uint32_t)timeout_ms * 1000) return EVENT_TIMEOUT;
    }
}
