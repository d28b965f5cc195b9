/* The state that the data path shares with the golden switch.

   The records and constants of records.h are declared in Python (iswitch/native/records.py, iswitch/wire), from which
   that file is written when this library is compiled. */

#ifndef ISWITCH_STATE_H
#define ISWITCH_STATE_H

#include <stdint.h>

#include "records.h"

/* What is sent: `count` records in `sent`, each of which names bytes of `payloads` and members of a job. */
struct output {
    uint8_t *payloads;
    struct sent *sent;
    uint32_t bytes, count;
};

struct switch_state {
    uint32_t jobs, slots, elements;
    uint32_t types;    /* the set of types that the switch handles */
    struct job *job;   /* [jobs] */
    struct slot *slot; /* [jobs][slots] */
    int64_t *sums;     /* [jobs][slots][elements] */
    uint8_t *poison;   /* [jobs][slots][elements] */
    uint8_t *kept;     /* [jobs][slots][elements] of 4 bytes */
    struct stored *stored; /* [jobs][slots]: which of the three arrays count */
    uint64_t *stats;   /* [Stat] */
    uint64_t *ages;    /* [staleness + 1]: accepted claims by age */
    uint32_t *noticed_us; /* [ports]: when a host of the port that is no member last got a NOTICE */
    uint8_t *noticed;     /* [ports]: whether one ever did */
    struct output output;
};

#endif
