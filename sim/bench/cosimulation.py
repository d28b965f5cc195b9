"""The compiled switch and the golden model side by side: for the same input frames, the same output frames and
counters."""

from collections import defaultdict
from typing import Any

from iswitch.config import Config
from iswitch.golden.decide.job import Jobs
from iswitch.golden.tree_switch import Parent, TreeSwitch
from iswitch.wire import (
    ADDRESSES,
    FRAME_BYTES,
    REGISTERS_PER_READ,
    Outcome,
    PortCounter,
    Type,
    have_view_register,
    job_view_register,
    member_view_register,
    port_counter_register,
    slot_view_register,
)
from sim.emulator.compile import Design
from sim.emulator.engine import Board
from sim.frames.client import SWITCH_IP, SWITCH_MAC, Client

__all__ = ["DivergenceError", "Pair", "registers_of"]

UDP = 17
STORES: dict[int, str] = {
    Type.RESULT: "result",
    Type.GRANT: "result",
    Type.UPLINK: "result",
    Type.ANSWER: "replay",
    Type.DATA: "replay",
}
"""The part of the switch that makes a message; all others come from the core. Messages of two parts have no order."""


def registers_of(config: Config) -> list[int]:
    """Return the addresses at which READs return every register of a switch, with jobs, members and slots."""
    rows = [*range(0, port_counter_register(config.ports, PortCounter(0)), REGISTERS_PER_READ)]
    for job in range(config.jobs):
        rows += [
            *range(job_view_register(job), job_view_register(job + 1), REGISTERS_PER_READ),
            *(have_view_register(job, member) for member in range(0, config.members, REGISTERS_PER_READ)),
            *(member_view_register(job, member) for member in range(config.members)),
            *(slot_view_register(job, slot) for slot in range(config.slots)),
        ]
    return rows


class DivergenceError(AssertionError):
    """The two switches disagree; the message says where."""


def _stores(mac: bytes, frames: list[bytes]) -> dict[str, list[bytes]]:
    """Return frames of one port by the part that makes them: the order between parts is not specified. `mac` is the
    switch's."""
    stores: dict[str, list[bytes]] = defaultdict(list)
    for frame in frames:
        ours = frame[6:14] == mac + b"\x08\0" and frame[23] == UDP and len(frame) >= FRAME_BYTES
        kind = frame[ADDRESSES.itemsize] & 0xF if ours else 0
        stores[STORES.get(kind, "reply") if ours else "ordinary"].append(frame)
    return stores


class Pair:
    """A compiled switch with the golden model beside it.

    `exchange` gives one frame to both and waits. `burst` lets frames of several ports race, and then gives them to the
    model in the order of the core's decisions. Every difference raises an error. `design` is another switch with the
    same ports.
    """

    def __init__(
        self,
        config: Config,
        *,
        engine: str = "verilator",
        mac: bytes = SWITCH_MAC,
        ip: bytes = SWITCH_IP,
        seed: int = 1,
        operator_key: int = 0,
        parents: dict[int, Parent] | None = None,
        design: Design | None = None,
    ):
        self.config, self.mac, self.parents = config, mac, parents or {}
        self.settings: dict[str, Any] = {"mac": mac, "ip": ip, "seed": seed, "operator_key": operator_key}
        self.engine, self.design = engine, design
        self.switch_on()
        self.now_us = 0
        self.frames = 0

    def switch_on(self) -> None:
        """Begin with a switch and a model that know nothing."""
        self.board = Board(self.config, engine=self.engine, **self.settings, watch=True, trace=True, design=self.design)
        for job, parent in self.parents.items():
            self.board.parent(job, port=parent.port, mac=parent.mac, ip=parent.ip, ranks=parent.ranks)
        self.model = self.new_model()

    def new_model(self) -> TreeSwitch:
        """Return a model that knows nothing."""
        return TreeSwitch(self.config, **self.settings, parents=self.parents)

    @property
    def jobs(self) -> Jobs:
        """The model's jobs."""
        return self.model.jobs

    def _same(self, wanted: list[tuple[int, bytes]], what: str, *, waits: bool = False) -> None:
        for port in range(self.config.ports):
            got = _stores(self.mac, [frame.data for frame in self.board.receive(port)])
            want = _stores(self.mac, [frame for egress, frame in wanted if egress == port])
            if waits:
                for stores in (got, want):
                    stores["result"].sort()
            if got != want and not self._expired(port, got, want):
                lines = [f"after {self.frames} frames, {what}, port {port}:"]
                lines += [f"  switch {store} {frame.hex()}" for store, sent in got.items() for frame in sent]
                lines += [f"  model  {store} {frame.hex()}" for store, sent in want.items() for frame in sent]
                raise DivergenceError("\n".join(lines))
        if broken := self.board.violations():
            raise DivergenceError(f"after {self.frames} frames the switch broke a handshake: {broken}")

    def _expired(self, port: int, got: dict[str, list[bytes]], want: dict[str, list[bytes]]) -> bool:
        """Return whether all frames that a port should have sent, and did not, have expired. Here none may expire."""
        return False

    def link(self, port: int, up: bool) -> None:
        """Take a port's cable out for both, or put it in."""
        self.board.link(port, up)
        self.board.run(20_000, self.now_us)
        self.model.set_link(port, up)

    def wait(self, us: int) -> None:
        """Let time pass for both."""
        self.now_us = self.now_us + us & 0xFFFFFFFF

    def exchange(self, port: int, frame: bytes, error: bool = False) -> list[bytes]:
        """Exchange one frame; return the frames of the switch."""
        us = 37 if (self.frames + 1) % 50 else 9000
        return [sent for _, sent in self.receive(port, frame, self.now_us + us & 0xFFFFFFFF, error)]

    def receive(self, port: int, frame: bytes, now_us: int, error: bool = False) -> list[tuple[int, bytes]]:
        """Implements a golden switch's `receive`."""
        self.frames += 1
        self.now_us = now_us
        self.board.send(port, frame, error)
        self.board.run(20_000, self.now_us)
        self.board.trace()
        sent = self.model.receive(port, frame, self.now_us, error)
        self._same(sent, f"frame {frame.hex()} into port {port}")
        return sent

    def burst(self, frames: list[tuple[int, bytes]], *, waits: bool = False) -> list[bytes]:
        """Exchange intact frames of several ports at once, at most as many as the ports' output queues hold.

        With `waits` there may be more results than a queue holds. Then they may leave in another order than the
        model's, which has no queues. No result may be requested again in the same burst, because the model answers
        that twice.
        """
        waiting: dict[int, list[bytes]] = defaultdict(list)
        for port, frame in frames:
            self.board.send(port, frame)
            waiting[port].append(frame)
        self.frames += len(frames)
        self.board.run(1_000_000, self.now_us)
        sent: list[tuple[int, bytes]] = []
        for decision in self.board.trace():
            sent += self.model.receive(decision.port, waiting[decision.port].pop(0), self.now_us)
        if left := {port: len(rest) for port, rest in waiting.items() if rest}:
            raise DivergenceError(f"frames without a decision: {left}")
        self._same(sent, "a burst", waits=waits)
        return [frame for _, frame in sent]

    def reset(self) -> None:
        """Reset the switch, and start a new model with empty tables."""
        self.board.reset()
        self.model = self.new_model()

    def counters_agree(self) -> None:
        """Compare every register of both, with jobs, members and slots. READ itself is counted, so the comparison goes
        page by page."""
        reader = Client.numbered(99, port=0)
        for address in registers_of(self.config):
            self.exchange(0, reader.read(address))
        if sum(self.model.outcomes) != sum(seen[PortCounter.RX_FRAMES] for seen in self.model.port_counters):
            raise DivergenceError(
                f"{sum(self.model.outcomes)} outcomes of {len(Outcome)} kinds for another number of frames"
            )

    def close(self) -> None:
        self.board.close()
