"""The switch's counters, by name and as registers. Section 5 of `docs/protocol.md`."""

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from iswitch.config import Config
from iswitch.golden.replay.service import Service
from iswitch.wire import MAGIC, STALENESS_MAX, VERSION, Outcome, PortCounter, Register, Stat, port_counter_register
from iswitch.wire.replay import ReplayOutcome

__all__ = ["Counters", "Counts"]


class Counts(Protocol):
    """Numbers by index: a list, or an array."""

    def __getitem__(self, index: int, /) -> Any: ...
    def __setitem__(self, index: int, value: Any, /) -> None: ...
    def __iter__(self) -> Iterator[Any]: ...


class Counters:
    """Counters that never wrap here; as registers they are modulo 2^32.

    `outcomes` by `Outcome`, `stats` by `Stat`, `ages` by age of an accepted claim, `ports` by port and `PortCounter`.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        self.outcomes: Counts = self.zeros(max(Outcome) + 1)
        self.stats: Counts = self.zeros(len(Stat))
        self.ages: Counts = self.zeros(STALENESS_MAX + 1)
        self.ports: Sequence[Counts] = self.zeros(config.ports, len(PortCounter))

    def zeros(self, *shape: int) -> Any:
        """Return counts of one or two dimensions, which begin with 0."""
        return [0] * shape[0] if len(shape) == 1 else [[0] * shape[1] for _ in range(shape[0])]

    def by_name(self, service: Service | None) -> dict[str, int]:
        """Return every counter, zeros too: `outcome.ADDED`, `stat.RESULTS`, `port0.RX_ERROR`, `replay.DONE`."""
        counts = {f"outcome.{kind.name}": self.outcomes[kind] for kind in Outcome}
        counts |= {f"stat.{kind.name}": self.stats[kind] for kind in Stat}
        counts |= {f"replay.{outcome.name}": service.outcomes[outcome] for outcome in ReplayOutcome} if service else {}
        return counts | {
            f"port{port}.{kind.name}": count[kind] for port, count in enumerate(self.ports) for kind in PortCounter
        }

    def registers(self, service: Service | None) -> dict[int, int]:
        """Return constants and counters by register address."""
        config = self.config
        constants = {
            Register.MAGIC: MAGIC,
            Register.VERSION: VERSION,
            Register.PORTS: config.ports,
            Register.BUS_BITS: config.bus_bits,
            Register.MEMBERS: config.members,
            Register.JOBS: config.jobs,
            Register.WINDOW: config.window,
            Register.ELEMENTS: config.elements,
        }
        values: dict[int, int] = {int(address): value for address, value in constants.items()}
        blocks = [
            (Register.OUTCOMES, self.outcomes),
            (Register.STATS, self.stats),
            (Register.AGES, self.ages),
            *((port_counter_register(port, PortCounter(0)), counts) for port, counts in enumerate(self.ports)),
        ]
        if service:
            blocks += [(Register.REPLAY_OUTCOMES, service.outcomes), (Register.REPLAY, service.registers())]
        for first, counts in blocks:
            values |= {first + k: count % 2**32 for k, count in enumerate(counts)}
        return values
