"""Hosts, cards, cables and ordinary switches that store and forward, in virtual time.

A burst is a run of packets that a host hands to its card at once. Its packets follow each other over a route, each one
forwarded when it has come whole. So a burst leaves a switch one packet after it began to come in, if the way out is
free. Ways out serve bursts first come, first served.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from iswitch.estimate.costs import TCP, Costs, Framing
from iswitch.estimate.simulation import Process, Processor, Signal, Simulation

__all__ = ["BURST_BYTES", "Connection", "Host", "Link", "Network"]

BURST_BYTES = 65536
"""The most bytes that a host hands to its card at once (TSO)."""


class Span(NamedTuple):
    """When the first packet of a burst has come whole, and the last one."""

    head_s: float
    tail_s: float


class Link:
    """One direction of a cable, with the port before it.

    Parameters
    ----------
    rate_bps : float
        Bits per second.
    latency_s : float
        Seconds from the last bit sent to the packet being ready for what comes next.
    framing : Framing
        Sizes of packets.
    """

    def __init__(self, rate_bps: float, latency_s: float, framing: Framing = TCP):
        self.rate_bps, self.latency_s, self.framing = rate_bps, latency_s, framing
        self.carried_bytes = 0
        """Payload so far."""
        self._free_s = 0.0

    def carry(self, ready: Span, size: int) -> Span:
        """Send a burst that becomes ready at that time, and return when it has come."""
        packet_s = 8 * self.framing.wire_bytes(min(size, self.framing.payload_bytes)) / self.rate_bps
        begin_s = max(ready.head_s, self._free_s)
        end_s = max(begin_s + 8 * self.framing.wire_bytes(size) / self.rate_bps, ready.tail_s + packet_s)
        self.carried_bytes += size
        self._free_s = end_s
        return Span(begin_s + packet_s + self.latency_s, end_s + self.latency_s)


class Host:
    """A machine with its processor."""

    def __init__(self, processor: Processor, costs: Costs):
        self.processor, self.costs = processor, costs

    def compute(self, seconds: float) -> Process:
        """Use a core."""
        yield from self.processor.use(seconds)


class Network:
    """Hosts at one switch, or in racks whose switches are below one root.

    Parameters
    ----------
    simulation : Simulation
        The clock.
    hosts : int
        Number of hosts.
    costs : Costs
        Times of hosts, cards, cables and switches.
    rate_bps : float, optional
        Rate of every cable; None: all hosts are one machine, and what is sent has come at once.
    rack : int, optional
        Hosts in a rack; None: all are at one switch.
    processors : Processor, optional
        What all hosts share. Default: each has as many cores as processes.
    """

    def __init__(
        self,
        simulation: Simulation,
        hosts: int,
        costs: Costs,
        *,
        rate_bps: float | None,
        rack: int | None = None,
        processors: Processor | None = None,
    ):
        self.simulation, self.costs = simulation, costs
        self.hosts = [Host(processors or Processor(simulation), costs) for _ in range(hosts)]
        self._rack = rack or hosts
        racks = range(-(-hosts // self._rack))
        card_s, cable_s, switch_s = costs.card_us / 1e6, costs.cable_us / 1e6, costs.forward_us / 1e6
        self._local = rate_bps is None
        if rate_bps is not None:
            self.up = [Link(rate_bps, card_s + cable_s + switch_s) for _ in self.hosts]
            self.down = [Link(rate_bps, cable_s + card_s) for _ in self.hosts]
            self.rack_up = [Link(rate_bps, cable_s + switch_s) for _ in racks]
            self.rack_down = [Link(rate_bps, cable_s + switch_s) for _ in racks]

    def route(self, source: int, target: int) -> list[Link]:
        """Return the links from one host to another."""
        if self._local:
            return []
        racks = source // self._rack, target // self._rack
        between = [] if racks[0] == racks[1] else [self.rack_up[racks[0]], self.rack_down[racks[1]]]
        return [self.up[source], *between, self.down[target]]

    def connect(self, source: int, target: int, *, blocking: bool = True) -> "Connection":
        """Return a new one-way connection between two hosts.

        Parameters
        ----------
        source, target : int
            Numbers of the hosts.
        blocking : bool
            If True, `send` waits until the receiver has taken all but `BUFFER_BYTES`. If False, it never does, as
            where a library sends in the background: neighbours that all send before they receive would otherwise wait
            for each other.
        """
        route = self.route(source, target)
        return Connection(self.simulation, self.hosts[source], self.hosts[target], route, blocking=blocking)


class Connection:
    """One direction of a TCP connection without loss, slow start and congestion.

    Attributes
    ----------
    left_s : float
        When the last burst so far has left the sender's card.
    """

    BUFFER_BYTES = 4 << 20
    """The most bytes that the receiver of a blocking connection has not taken yet."""

    def __init__(self, simulation: Simulation, sender: Host, receiver: Host, route: list[Link], *, blocking: bool):
        self._simulation, self._sender, self._receiver, self._route = simulation, sender, receiver, route
        self._blocking = blocking
        self._here = self._outstanding = 0
        self._came, self._taken = Signal(), Signal()
        self.left_s = 0.0

    def send(self, size: int) -> Process:
        """Send: return when the last byte is in the socket."""
        costs = self._sender.costs
        call_us = costs.tcp_call_us
        while size:
            burst = min(size, BURST_BYTES)
            while self._blocking and self._outstanding + burst > self.BUFFER_BYTES:
                yield self._taken
            self._outstanding += burst
            size -= burst
            yield from self._sender.compute(1e-6 * call_us + 1e-9 * costs.tcp_send_byte_ns * burst)
            call_us = 0.0
            now_s = self.left_s = self._simulation.now_s
            self._hop(0, Span(now_s, now_s), burst)

    def receive(self, size: int) -> Process:
        """Receive so many bytes by one call. A process is woken once: bytes of a vector include the later wakes."""
        costs = self._receiver.costs
        yield from self.wait()
        call_us = costs.tcp_call_us
        while size:
            while not self._here:
                yield self._came
            taken = min(size, self._here, BURST_BYTES)
            self._here -= taken
            size -= taken
            yield from self._receiver.compute(1e-6 * call_us + 1e-9 * costs.tcp_receive_byte_ns * taken)
            call_us = 0.0
            self._outstanding -= taken
            self._simulation.fire(self._taken)

    def wait(self) -> Process:
        """Wait until something has come."""
        waited = not self._here
        while not self._here:
            yield self._came
        if waited:
            yield from self._receiver.compute(1e-6 * self._receiver.costs.wake_us)

    def _hop(self, number: int, span: Span, burst: int) -> None:
        if number == len(self._route):
            self._at(span.tail_s, partial(self._arrive, burst))
            return
        link = self._route[number]
        span = link.carry(span, burst)
        if number == 0:
            self.left_s = span.tail_s - link.latency_s
        self._at(span.head_s, partial(self._hop, number + 1, span, burst))

    def _at(self, time_s: float, function: Callable[[], None]) -> None:
        if time_s > self._simulation.now_s:
            self._simulation.call_at(time_s, function)
        else:
            function()

    def _arrive(self, burst: int) -> None:
        self._here += burst
        self._simulation.fire(self._came)
