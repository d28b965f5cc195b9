"""A memory behind AXI4 channels that uses all the freedom that the standard allows."""

import functools
import random
from collections import deque
from typing import Any, NamedTuple

from hw.interface.axi import Burst, Response

__all__ = ["Memory"]

AHEAD = 64
"""Bursts that are accepted before the first of them is served."""


class Request(NamedTuple):
    cycle: int
    id: int
    address: int
    beats: int

    @classmethod
    def of(cls, cycle: int, payload: Any, word: int) -> "Request":
        """Return the request, of beats of `word` bytes. Raise `AssertionError` if the standard forbids it, or this
        memory does not support it."""
        beats, end = payload.len + 1, payload.addr + (payload.len + 1) * word
        assert payload.burst == Burst.INCR and 1 << payload.size == word, (
            "Memory bursts must be of type INCR and of whole words"
        )
        assert payload.addr // 4096 == (end - 1) // 4096, (
            f"a burst from {payload.addr:#x} to {end:#x} crosses a multiple of 4096"
        )
        assert payload.addr % word == 0, f"a burst must begin with a whole word, not at {payload.addr:#x}"
        return cls(cycle, payload.id, payload.addr, beats)


class Memory:
    """A memory of `contents`, which may be read and changed between cycles. A write takes effect when its response is
    offered. Addresses beyond the end have the response DECERR. `reads` and `writes` list the addresses of all requests.

    Parameters
    ----------
    contents : bytearray
        The memory's bytes.
    stalls : float
        Share of cycles in which nothing is accepted, and of those in which nothing is offered.
    latency : int
        Least number of cycles from a request to its response.
    seed : int
        Of the stalls.
    beats_first : bool
        Accept a write's address only after all of its beats.
    """

    def __init__(
        self, contents: bytearray, *, stalls: float = 0, latency: int = 1, seed: int = 0, beats_first: bool = False
    ):
        self.word_bytes = 8
        self.contents, self.latency, self.beats_first, self.stalls = contents, latency, beats_first, stalls
        self.rngs = random.Random(seed), random.Random(seed + 1)
        self.reads: list[int] = []
        self.writes: list[int] = []

    def attach(
        self, bench: Any, *, ar: Any = None, r: Any = None, aw: Any = None, w: Any = None, b: Any = None
    ) -> "Memory":
        """Connect the memory to a bench's component by its channels for reading, for writing or both. The channels'
        width is that of a beat."""
        self.word_bytes = len((r if r is not None else w).payload.data) // 8
        if ar is not None:
            bench.process(functools.partial(self._reading, ar=ar, r=r))
        if aw is not None:
            bench.process(functools.partial(self._writing, aw=aw, w=w, b=b))
        return self

    async def _reading(self, ctx, ar, r):
        rng, cycle, requests, beats, offered = self.rngs[0], -1, deque(), deque(), False
        go = lambda: rng.random() >= self.stalls
        async for _, _, asked, ready, request, taken in ctx.tick().sample(ar.valid, ar.ready, ar.payload, r.ready):
            cycle += 1
            if asked and ready:
                requests.append(Request.of(cycle, request, self.word_bytes))
                self.reads.append(request.addr)
            if offered and taken:
                beats.popleft()
                offered = False
            if not beats and requests and cycle + 1 >= requests[0].cycle + self.latency:
                beats.extend(self._beats(requests.popleft()))
            if not offered:
                offered = bool(beats) and go()
                ctx.set(r.valid, offered)
                ctx.set(
                    r.payload,
                    beats[0]
                    if offered
                    else {"data": rng.getrandbits(8 * self.word_bytes), "resp": rng.choice(list(Response))},
                )
            ctx.set(ar.ready, len(requests) < AHEAD and go())

    def _beats(self, request):
        for k in range(request.beats):
            at = request.address + k * self.word_bytes
            there = at + self.word_bytes <= len(self.contents)
            yield {
                "id": request.id,
                "data": int.from_bytes(self.contents[at : at + self.word_bytes], "little") if there else 0,
                "resp": Response.OKAY if there else Response.DECERR,
                "last": k == request.beats - 1,
            }

    async def _writing(self, ctx, aw, w, b):
        rng, cycle, requests, bursts, beats, offered = self.rngs[1], -1, deque(), deque(), [], False
        go = lambda: rng.random() >= self.stalls
        async for _, _, asked, ready, request, here, put, beat, taken in ctx.tick().sample(
            aw.valid, aw.ready, aw.payload, w.valid, w.ready, w.payload, b.ready
        ):
            cycle += 1
            if asked and ready:
                requests.append(Request.of(cycle, request, self.word_bytes))
                self.writes.append(request.addr)
            if here and put:
                beats.append(beat)
                if beat.last:
                    bursts.append(beats)
                    beats = []
            if offered and taken:
                offered = False
            if not offered and requests and bursts and cycle + 1 >= requests[0].cycle + self.latency and go():
                offered, done = True, requests[0]
                ctx.set(b.payload, {"id": done.id, "resp": self._write(requests.popleft(), bursts.popleft())})
            ctx.set(b.valid, offered)
            ctx.set(aw.ready, len(requests) < AHEAD and go() and (not self.beats_first or len(bursts) > len(requests)))
            ctx.set(w.ready, len(bursts) < AHEAD and go())

    def _write(self, request, beats):
        assert len(beats) == request.beats, (
            f"a burst of {request.beats} beats must end with `last`, not after {len(beats)}"
        )
        response = Response.OKAY
        for k, beat in enumerate(beats):
            at = request.address + k * self.word_bytes
            if at + self.word_bytes > len(self.contents):
                response = Response.DECERR
                continue
            for place in range(self.word_bytes):
                if beat.strb >> place & 1:
                    self.contents[at + place] = beat.data >> 8 * place & 0xFF
        return response
