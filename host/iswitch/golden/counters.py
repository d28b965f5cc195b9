"""The switch's counters, by name and as registers. Section 5 of `docs/protocol.md`."""

from iswitch.config import Config
from iswitch.golden.replay.service import Service
from iswitch.wire import MAGIC, STALENESS_MAX, VERSION, Outcome, PortCounter, Register, Stat, port_counter_register
from iswitch.wire.replay import ReplayOutcome

__all__ = ["Counters"]


class Counters:
    """Counters that never wrap here; as registers they are modulo 2^32.

    `outcomes` by `Outcome`, `stats` by `Stat`, `ages` by age of an accepted claim, `ports` by port and `PortCounter`.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        self.outcomes, self.stats = [0] * (max(Outcome) + 1), [0] * len(Stat)
        self.ages = [0] * (STALENESS_MAX + 1)
        self.ports = [[0] * len(PortCounter) for _ in range(config.ports)]

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
