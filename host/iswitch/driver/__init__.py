"""One member's end of a job: transports, the ring of a synchronous job, the stream of an asynchronous one.

- To the network: `transport` (the interface), `udp`, `address`, `ready`, `keepalive`, `termination`.
- Whole frames: `packet` (the transport), `packet_ring`, `packet_filter`, `ethernet`, `next_hop`.
- Both kinds of jobs: `membership`, `notices`, `packing`, `buffers`, `timer`, `activity`.
- A synchronous job: `ring`, `segment_ledger`, `window`.
- An asynchronous job: `stream`, `claims`, `update_layout`, `received_update`, `digest_chain`.

The driver imports `iswitch.wire` and `iswitch.errors` alone.
"""
