"""A component with several clocks in the simulator."""

import random
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from amaranth.hdl import ClockDomain, Module, Value
from amaranth.lib.wiring import Component
from amaranth.sim import Simulator

from sim.bench.stream import pack

__all__ = ["Clocks", "drain", "feed"]


class Clocks:
    """`periods` of the clock domains in ns; no two clocks begin together. `domains` has their reset signals."""

    def __init__(self, dut: Component, periods: Mapping[str, float]) -> None:
        top = Module()
        top.submodules.dut = dut
        self.domains = {name: ClockDomain(name) for name in periods}
        for domain in self.domains.values():
            top.domains += domain
        self.simulator = Simulator(top)
        for k, (name, period) in enumerate(periods.items()):
            self.simulator.add_clock(period * 1e-9, phase=(0.5 + 0.13 * k) * period * 1e-9, domain=name)

    def process(self, function: Callable[..., Any]) -> None:
        self.simulator.add_process(function)

    def run(self, testbench: Callable[..., Any]) -> None:
        self.simulator.add_testbench(testbench)
        self.simulator.run()


async def feed(
    ctx, target, frames: Iterable[list[dict[str, int]]], *, domain: str, stalls: float = 0.0, seed: int = 0
) -> None:
    """Offer the words of frames, each until it is accepted. A reset of the domain ends a frame: its rest is not
    offered."""
    rng, payload = random.Random(seed), Value.cast(target.payload)
    for frame in frames:
        for word in frame:
            reset = taken = 0
            while rng.random() < stalls and not reset:
                _, reset = await ctx.tick(domain)
            ctx.set(payload, pack(target.payload.shape(), word))
            ctx.set(target.valid, not reset)
            while not reset and not taken:
                _, reset, taken = await ctx.tick(domain).sample(target.ready)
            ctx.set(target.valid, 0)
            if reset:
                break


async def drain(
    ctx, target, found: list, *, domain: str, stalls: float = 0.0, seed: int = 0, at: Callable[[], Any] = lambda: None
) -> None:
    """Take items; each is kept with the value of `at` in that cycle, and a reset of the domain as None."""
    rng, payload = random.Random(seed), Value.cast(target.payload)
    while True:
        _, reset, valid, ready, bits = await ctx.tick(domain).sample(target.valid, target.ready, payload)
        if reset:
            found.append((None, at()))
        elif valid and ready:
            found.append((target.payload.shape().from_bits(bits), at()))
        ctx.set(target.ready, rng.random() >= stalls)
