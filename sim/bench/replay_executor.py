"""A bench for one executor of the replay service: started once, it must be done once."""

from collections.abc import Iterable
from typing import Any

from amaranth.lib.wiring import Component

from sim.bench.stream import Bench

__all__ = ["ExecutorBench"]


class ExecutorBench(Bench):
    """An executor with the rows of a request's body, if it takes any.

    Parameters
    ----------
    dut : Component
        With ports `start` and `done`; `body` and `ended` if `rows` are given.
    rows : iterable of int, optional
        The body's rows. `ended` is 1 from the cycle after the last of them was taken.
    inputs : iterable of (signal, value)
        Ports that are constant.
    stalls : float
        Share of cycles in which a source or sink stalls.
    """

    def __init__(
        self,
        dut: Component,
        *,
        rows: Iterable[int] | None = None,
        inputs: Iterable[tuple[Any, Any]] = (),
        stalls: float = 0,
    ) -> None:
        super().__init__(dut, stalls=stalls, inputs=inputs)
        self.executor: Any = dut
        if rows is not None:
            self.body = self.source(self.executor.body, rows)
            self.process(self._end_body)

    async def _end_body(self, ctx: Any) -> None:
        body, left = self.executor.body, len(self.body.items)
        ctx.set(self.executor.ended, left == 0)
        async for _, _, valid, ready in ctx.tick().sample(body.valid, body.ready):
            left -= valid and ready
            ctx.set(self.executor.ended, left == 0)

    def execute(self, *, begin: int = 3, limit: int = 5000, read: Iterable[Any] = ()) -> tuple[int, list[Any]]:
        """Start the executor, and return the cycles until `done` and what the signals `read` are then.

        Raises
        ------
        AssertionError
            If it is not done within `limit` cycles, or is done twice, or takes rows when it is done.
        """
        cycles, values = 0, []

        async def run(ctx):
            nonlocal cycles
            await ctx.tick().repeat(begin)
            ctx.set(self.executor.start, 1)
            await ctx.tick()
            ctx.set(self.executor.start, 0)
            while not ctx.get(self.executor.done):
                await ctx.tick()
                cycles += 1
                assert cycles < limit, "an executor must be done"
            cycles += 1
            values.extend(ctx.get(signal) for signal in read)
            for _ in range(20):
                await ctx.tick()
                assert not ctx.get(self.executor.done), "an executor must be done once"

        self.drive(run)
        return cycles, values
