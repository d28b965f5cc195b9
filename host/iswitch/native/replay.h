/* The usual cases of a replay client: many reads of one kind, answered by DATA with all that was requested, and pushes,
   whose requests are executed when they come. `iswitch.replay.query_group` and `iswitch.replay.request_ring` say what the
   fields mean. Every other datagram is left to Python. */

#ifndef ISWITCH_REPLAY_H
#define ISWITCH_REPLAY_H

#include "records.h"

/* Write the next `most` requests end to end, as far as they have the length of the first one, and record the time.
   Returns how many. */
__attribute__((visibility("default"))) uint32_t replay_build(struct query_group *g, uint32_t most, double now, uint8_t *out);

/* Take DATA from the datagrams of a burst, from `offset` on. Returns the offset of the first datagram for Python. */
__attribute__((visibility("default"))) uint32_t replay_take(struct query_group *g, const uint8_t *burst, uint32_t size,
                                                            uint32_t segment, uint32_t offset, double now);

/* As `replay_build`, of ordered requests. */
__attribute__((visibility("default"))) uint32_t replay_send(struct request_ring *r, uint32_t most, double now, double due_at,
                                                            uint8_t *out);

/* As `replay_take`, of answers in the order of their requests. */
__attribute__((visibility("default"))) uint32_t replay_settle(struct request_ring *r, const uint8_t *burst, uint32_t size,
                                                              uint32_t segment, uint32_t offset, double now);

#endif
