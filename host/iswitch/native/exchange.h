/* The usual case of a worker's collective: contributions leave as the window allows, and results come in any order, each
   once. Whatever is unusual is left to Python (iswitch/driver/ring.py), on the same state. */

#ifndef ISWITCH_EXCHANGE_H
#define ISWITCH_EXCHANGE_H

#include "records.h"

/* Send and receive until one of the events `EXCHANGE_*`, which the function returns. `until_s`: the time-out, in seconds
   of CLOCK_MONOTONIC. */
__attribute__((visibility("default"))) int exchange_run(struct exchange *exchange, double until_s);

#endif
