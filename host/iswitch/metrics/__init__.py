"""Metrics of workers: for TensorBoard as scalars, for Prometheus as an endpoint.

`watch` counts a worker's collectives from then on. `serve` makes a Prometheus endpoint of such counts, and needs the
extra `metrics`; the rest needs no package beside iswitch.
"""

from iswitch.metrics.endpoint import Endpoint, serve_families
from iswitch.metrics.meter import LATENCY_BOUNDS_S, Meter, watch
from iswitch.metrics.worker_families import serve, worker_families

__all__ = ["LATENCY_BOUNDS_S", "Endpoint", "Meter", "serve", "serve_families", "watch", "worker_families"]
