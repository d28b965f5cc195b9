/* The data path of the software switch: contributions, receipts and claims of members in running jobs. */

#ifndef ISWITCH_DATAPATH_H
#define ISWITCH_DATAPATH_H

#include "state.h"

#define UNUSUAL -1

/* Handle one UDP payload as the golden switch does: change the state and the statistics, and append what is sent to
   `output`, which must have room for one more result. Return the outcome, which the caller counts.

   Return UNUSUAL, having changed nothing, for every payload that is not an ordinary one: another message, most failed
   checks of a member's frame, a notice to send, a boundary that admits members, a member to evict. The golden switch
   handles those, with the same state. What hosts without a membership send at full speed is refused here. */
__attribute__((visibility("default"))) int handle_payload(struct switch_state *state, const struct source *source,
                                                          const uint8_t *payload, uint32_t length, uint32_t now_us);

#endif
