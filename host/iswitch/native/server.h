/* The ports of a software switch: UDP sockets, one for each port. */

#ifndef ISWITCH_SERVER_H
#define ISWITCH_SERVER_H

#include "state.h"

#define EXPORT __attribute__((visibility("default")))

struct server;

/* Open a server. `sockets`: a bound socket for each port. `counters`: [ports][PortCounter]. Returns NULL if there is no
   memory. */
EXPORT struct server *server_open(struct switch_state *state, const int *sockets, uint32_t ports, uint64_t *outcomes,
                                  uint64_t *counters);

EXPORT void server_close(struct server *server);

/* Receive and handle datagrams until one comes that the golden switch must handle (EVENT_PAYLOAD), or until `timeout_ms` have
   passed or a signal has come (EVENT_TIMEOUT). Everything that was to be sent has then been sent. */
EXPORT int server_run(struct server *server, int timeout_ms);

/* The payload for the golden switch, and where it came from. Valid until the next `server_run`. */
EXPORT const uint8_t *server_payload(struct server *server, struct source *source, uint32_t *length);

/* The switch's time: microseconds modulo 2^32. */
EXPORT uint32_t server_now_us(void);

#endif
