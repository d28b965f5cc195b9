"""A software switch in the place of a compiled board: frames in and out, without RTL."""

from collections import deque
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from iswitch.config import Config
from iswitch.golden.tree_switch import Parent
from iswitch.switch.software_switch import SoftwareSwitch
from sim.emulator.engine import QUEUE_FRAMES, Frame
from sim.frames.client import SWITCH_IP, SWITCH_MAC

__all__ = ["SoftwareBoard"]


class SoftwareBoard:
    """A software switch with the interface of `sim.emulator.engine.Board`, as far as the emulator uses it.

    A frame takes a cycle for each word of the bus, one frame after another, and what it causes leaves in the cycle of
    its first word. Parameters as of `Board`.
    """

    engine = "software"

    def __init__(
        self,
        config: Config | None = None,
        *,
        seed: int = 1,
        operator_key: int = 0,
        mac: bytes = SWITCH_MAC,
        ip: bytes = SWITCH_IP,
    ) -> None:
        self.config, self.mac, self.ip, self.seed = config or Config(), mac, ip, seed
        self.operator_key = operator_key
        self._parents: dict[int, Parent] = {}
        self._queues: list[deque[tuple[bytes, int]]] = [deque() for _ in range(self.config.ports)]
        self._left: list[list[Frame]] = [[] for _ in range(self.config.ports)]
        self._limit, self._next_port, self._remaining, self.cycles = QUEUE_FRAMES, 0, 0, 0
        self.reset()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """There is nothing to free."""

    def reset(self) -> None:
        """Begin anew, as after a reset of the board."""
        self.switch = SoftwareSwitch(
            self.config,
            mac=self.mac,
            ip=self.ip,
            seed=self.seed,
            parents=dict(self._parents),
            operator_key=self.operator_key,
        )

    def parent(self, job: int, *, port: int, mac: bytes, ip: bytes, ranks: int) -> None:
        """Make the switch a leaf in a job of a tree, as `Board.parent` does."""
        self._parents[job] = Parent(port, mac, ip, ranks)
        self.switch.set_parent(job, self._parents[job])

    def send_many(self, port: int, frames: Sequence[bytes], errors: Sequence[bool] | None = None) -> int:
        """Queue frames until the queue is full, and return the number of accepted frames."""
        accepted = min(len(frames), self.room(port))
        damaged = errors or [False] * len(frames)
        self._queues[port].extend(zip(frames[:accepted], damaged[:accepted], strict=True))
        return accepted

    def send(self, port: int, frame: bytes, error: bool = False) -> bool:
        """Queue a frame. Returns False if the queue is full."""
        return bool(self.send_many(port, [frame], [error]))

    def room(self, port: int) -> int:
        """Return the number of frames that `send_many` would accept at a port now."""
        return self._limit - len(self._queues[port])

    def run(self, max_cycles: int = 1_000_000, now_us: int = 0) -> int:
        """Run until no frame is queued, for at most `max_cycles`, and return the cycles run."""
        left = max_cycles
        while left:
            if not self._remaining and not self._take_frame(now_us):
                break
            cycles = min(left, self._remaining)
            left, self._remaining, self.cycles = left - cycles, self._remaining - cycles, self.cycles + cycles
        return max_cycles - left

    def _take_frame(self, now_us: int) -> bool:
        """Handle the next frame, port by port. Returns False if there is no frame."""
        for _ in self._queues:
            port, self._next_port = self._next_port, (self._next_port + 1) % len(self._queues)
            if self._queues[port]:
                data, damaged = self._queues[port].popleft()
                for egress, sent in self.switch.receive(port, data, now_us % 2**32, bool(damaged)):
                    self._left[egress].append(Frame(sent, self.cycles, self.cycles))
                self._remaining = -(-len(data) // self.config.bus_bytes)
                return True
        return False

    def receive(self, port: int) -> list[Frame]:
        """Return all frames that have left at a port since the last call."""
        frames, self._left[port] = self._left[port], []
        return frames

    def link(self, port: int, up: bool) -> None:
        """Take a port's cable out, or put it in."""
        self.switch.set_link(port, up)
