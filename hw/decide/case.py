"""A frame that is being decided, for the parts of the core that say something of it."""

from types import SimpleNamespace

from amaranth.hdl import Const, Signal

from hw.interface.address import Parent
from hw.interface.headers import Headers
from iswitch.config import Config

__all__ = ["Case"]


class Case:
    """The frame's headers, `held` since `held_us`; the `rows` that they point at, and the `parent` of its job; in
    registers what `kind` of frame the checks say that it is, from the second cycle on, and what has been decided of it:
    by the ring (`decision`; the slot `stays` as it is if that is to send it again), and of a claim (`given`)."""

    def __init__(self, m, config: Config, *, tables, checks, ring, claims, membership):
        self.config, self.rows, self.checks, self.ring, self.claims, self.membership = (
            config,
            tables.frames,
            checks,
            ring,
            claims,
            membership,
        )
        self.held = Signal(Headers, reset_less=True)
        self.held_us = Signal(
            32, reset_less=True
        )  # a decision that waits to be handed on must not change with the time
        self.frame = self.held.frame
        self.parent = Signal(Parent)
        self.kind = SimpleNamespace(
            **{
                name: Signal(name=name) if hasattr(checks, name) else Const(0)
                for name in ("control", "claim", "request", "leaf", "answer", "install", "uplink")
            }
        )
        m.d.sync += [flag.eq(getattr(checks, name)) for name, flag in vars(self.kind).items() if hasattr(checks, name)]
        self.given = registers(claims, "given", ["outcome", "write", "grants", "base", "members", "receivers", "waits"])
        m.d.sync += [kept.eq(getattr(claims, name)) for name, kept in vars(self.given).items()]
        self.decision = registers(
            ring,
            "decided",
            [
                "outcome",
                "advance",
                "slot_write",
                "slot_next",
                "works",
                "operation",
                "first",
                "emit",
                "resend",
                "completes",
                *(["up", "reports", "report"] if config.uplinks else []),
            ],
        )
        self.stays = Signal()


def registers(part, prefix: str, names: list[str]) -> SimpleNamespace:
    """For some of a component's ports."""
    return SimpleNamespace(
        **{name: Signal(getattr(part, name).shape(), name=f"{prefix}_{name}", reset_less=True) for name in names}
    )
