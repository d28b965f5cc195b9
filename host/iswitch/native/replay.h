/* The usual case of a replay client's reads: many requests of one kind, and DATA with all that was requested.
   `iswitch.replay.query_group` says what the fields mean, and handles every other datagram. */

#ifndef ISWITCH_REPLAY_H
#define ISWITCH_REPLAY_H

#include "records.h"

/* Write the next `most` requests end to end, as far as they have the length of the first one, and record the time.
   Returns how many. */
__attribute__((visibility("default"))) uint32_t replay_build(struct query_group *g, uint32_t most, double now, uint8_t *out);

/* Take DATA from the datagrams of a burst, from `offset` on. Returns the offset of the first datagram for Python. */
__attribute__((visibility("default"))) uint32_t replay_take(struct query_group *g, const uint8_t *burst, uint32_t size,
                                                            uint32_t segment, uint32_t offset, double now);

#endif
