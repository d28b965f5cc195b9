"""Planning of the fabric: topologies, who sums where, and schedules of AllReduce; needs no gateware. Dependencies: the extra `plan`."""
