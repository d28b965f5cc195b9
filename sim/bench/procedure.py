"""A bench around one procedure of membership: the tables as dictionaries of rows, requests from frames."""

import functools
from collections.abc import Mapping
from typing import Any, NamedTuple

from amaranth.hdl import Value
from amaranth.lib import data

from hw.decide.membership.procedure import FollowUp
from hw.decide.tables.access import BY_MEMBER
from hw.interface.rows import claims_row, job_row, member_row, slot_row
from iswitch.config import Config
from iswitch.wire import CONTROL, FRAME_BYTES, Action, Reason
from sim.bench.stream import Bench, pack

__all__ = ["Outcome", "ProcedureBench", "address"]

ROW_OF = {"sender": "member", "entry": "member", "slot": "slot", "claims": "claims"}
"""The row that a record is part of, if it is not the job's."""

CHALLENGE_AT, OPERATOR_KEY_AT = (CONTROL.fields[name][1] for name in ("challenge", "operator_key"))


class Outcome(NamedTuple):
    """How a procedure ended: after `cycles` cycles with the tables, and with what its strobes showed on the way."""

    reason: Reason
    follow_up: FollowUp
    cycles: int
    strobes: dict[str, list[int]]


def fields(layout: Any, bits: int) -> dict[str, int]:
    """Return a row's fields as numbers."""
    return {name: bits >> field.offset & (1 << field.width) - 1 for name, field in data.Layout.cast(layout)}


class ProcedureBench:
    """Runs a procedure, request after request, on tables that a test fills and looks at.

    `jobs[j]`, `entries[j][m]`, `slots[j][s]` and `claims[j]` are rows, dictionaries of numbers; `acknowledged[j]` and
    `heard[j]` have a number for each member. A write outside of the cycles in which the procedure has the tables fails.

    Parameters
    ----------
    part
        The component, with the ports of `procedure_ports`.
    strobes
        Names of outputs to sample in each of its cycles.
    reset_cycles
        Cycles after the reset in which the component is busy with something else, and its writes do not count.
    at_end
        Name of an output; `after` is its value after the last request.
    """

    def __init__(self, part: Any, *, strobes: tuple[str, ...] = (), reset_cycles: int = 0, at_end: str = "") -> None:
        self.part, self.strobes, self.reset_cycles, self.at_end, self.after = part, strobes, reset_cycles, at_end, 0
        config: Config = part.config
        self.config = config
        self.layouts = {
            "job": job_row(config),
            "member": member_row(config),
            "slot": slot_row(config),
            "claims": claims_row(config),
        }
        empty = {row: fields(layout, 0) for row, layout in self.layouts.items()}
        self.jobs = [dict(empty["job"]) for _ in range(config.jobs)]
        self.entries = [[dict(empty["member"]) for _ in range(config.members)] for _ in range(config.jobs)]
        self.slots = [[dict(empty["slot"]) for _ in range(config.slots)] for _ in range(config.jobs)]
        self.claims = [dict(empty["claims"]) for _ in range(config.jobs)]
        self.acknowledged = [[0] * config.members for _ in range(config.jobs)]
        self.heard = [[0] * config.members for _ in range(config.jobs)]
        self.pending: tuple[dict[str, int], dict[str, dict[str, int]], dict[str, int]] | None = None

    def request(self, frame: bytes, *, port: int = 0, operator_key: int = 0, **others: Any) -> dict[str, Any]:
        """Return the Request that a frame makes, at a switch with an operator key."""
        same = int.from_bytes(frame[FRAME_BYTES + OPERATOR_KEY_AT :][:8], "little") == operator_key
        action = frame[FRAME_BYTES] if len(frame) > FRAME_BYTES else 0
        return {
            "headers": {
                "frame": int.from_bytes(frame[:FRAME_BYTES], "little"),
                "body": int.from_bytes(frame[FRAME_BYTES : 2 * FRAME_BYTES], "little"),
                "arrival": {"port": port},
            },
            "action": action if action <= max(Action) else 0,
            "job_in_range": frame[43] < self.config.jobs,
            "challenge": int.from_bytes(frame[FRAME_BYTES + CHALLENGE_AT :][:4], "little"),
            "operator_key_same": same,
            "from_operator": same and operator_key != 0,
        } | others

    def run(
        self, *requests: Mapping[str, Any], inputs: Mapping[str, Any] | None = None, member: int = 0
    ) -> list[Outcome]:
        """Start the procedure for each request, and return how each ended."""
        ended: list[Outcome] = []
        part = self.part

        async def bench(ctx: Any) -> None:
            for name, value in (inputs or {}).items():
                port = getattr(part, name)
                ctx.set(Value.cast(port), pack(port.shape(), value))
            ctx.set(part.member, member)
            for _ in range(self.reset_cycles):
                await ctx.tick()
            for request in requests:
                ctx.set(Value.cast(part.request), pack(part.request.shape(), request))
                for _ in range(4):
                    await self.tick(ctx, active=False)
                ctx.set(part.start, 1)
                await self.tick(ctx, active=False)
                ctx.set(part.start, 0)
                cycles, seen = 1, {name: [ctx.get(self.output(name))] for name in self.strobes}
                while not ctx.get(part.done):
                    await self.tick(ctx)
                    cycles += 1
                    for name, values in seen.items():
                        values.append(ctx.get(self.output(name)))
                    assert cycles < 1000, "the procedure does not end"
                reason, follow_up = Reason(ctx.get(part.reason)), FollowUp(ctx.get(part.follow_up))
                ended.append(Outcome(reason, follow_up, cycles, seen))
                await self.tick(ctx)
            await self.tick(ctx, active=False)
            self.after = ctx.get(Value.cast(getattr(part, self.at_end))) if self.at_end else 0

        Bench(part).drive(bench)
        return ended

    def output(self, path: str) -> Value:
        """Return an output by its dotted name."""
        return Value.cast(functools.reduce(getattr, path.split("."), self.part))

    async def tick(self, ctx: Any, *, active: bool = True) -> None:
        """Pass a cycle as `hw.decide.tables` does: rows follow pointers by a cycle, writes pass a register first."""
        tables = self.part.tables
        at = {name: ctx.get(getattr(tables, name)) for name in ("job", "member", "slot")}
        job, member, slot = at["job"], min(at["member"], self.config.members - 1), at["slot"] % self.config.slots
        shown = {
            "job_row": pack(self.layouts["job"], self.jobs[job]),
            "member_row": pack(self.layouts["member"], self.entries[job][member]),
            "slot_row": pack(self.layouts["slot"], self.slots[job][slot]),
            "claims_row": pack(self.layouts["claims"], self.claims[job]),
            "acknowledged": sum(value << 32 * k for k, value in enumerate(self.acknowledged[job])),
            "heard": sum(value << 16 * k for k, value in enumerate(self.heard[job])),
        }
        if self.pending:
            self.write(*self.pending)
        written: dict[str, dict[str, int]] = {}
        by_member: dict[str, int] = {}
        for name in tables.signature.members:
            record = name.removesuffix("_write")
            if record == name or not ctx.get(getattr(tables, name)):
                continue
            assert active, f"{name} while the procedure has no tables"
            has_value = f"{record}_next" in tables.signature.members  # else any value will do
            if record in BY_MEMBER:
                by_member[record] = ctx.get(getattr(tables, name))
                if has_value:
                    by_member[f"{record}_next"] = ctx.get(getattr(tables, f"{record}_next"))
            elif has_value:
                port = getattr(tables, f"{record}_next")
                written[record] = fields(port.shape(), ctx.get(Value.cast(port)))
        self.pending = ({"job": job, "member": member, "slot": slot}, written, by_member)
        await ctx.tick()
        for name, bits in shown.items():
            ctx.set(Value.cast(getattr(tables, name)), bits)

    def write(self, at: dict[str, int], written: dict[str, dict[str, int]], by_member: dict[str, int]) -> None:
        """Carry out the writes of one cycle."""
        job = at["job"]
        rows = {
            "job": self.jobs[job],
            "member": self.entries[job][at["member"]],
            "slot": self.slots[job][at["slot"]],
            "claims": self.claims[job],
        }
        for record, values in written.items():
            rows[ROW_OF.get(record, "job")].update(values)
        for member in range(self.config.members):
            if by_member.get("heard", 0) >> member & 1:
                self.heard[job][member] += 1
            for record in ("acknowledged", "admitted_seq"):
                if by_member.get(record, 0) >> member & 1:
                    self.acknowledged[job][member] = by_member.get(f"{record}_next", 0)


def address(client: Any) -> int:
    """Return a client's address as the member's row has it."""
    return int.from_bytes(client.mac + client.ip + client.udp_port.to_bytes(2, "big"), "little")
