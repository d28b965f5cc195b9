"""A transceiver with a 64B/66B gearbox, as a port of 10GBASE-R sees it: a line of single bits, unaligned blocks,
pauses, slips."""

from collections.abc import Callable, Iterator

from sim.bench.baser import Shift, blocks_of, descrambled, word_of
from sim.bench.xgmii import Character

__all__ = ["Transceiver", "characters_on", "every"]

BLOCK_BITS = 66


def every(cycles: int) -> Iterator[bool]:
    """Return pauses in one of so many cycles; 0: never."""
    while True:
        yield from [False] * (cycles - 1 or 1) if cycles else [False]
        if cycles:
            yield True


def bits_of(header: int, payload: int) -> list[int]:
    """Return bits in the order of Xilinx gearboxes: the highest first."""
    return [header >> 1, header & 1, *(payload >> k & 1 for k in range(63, -1, -1))]


def number(bits: list[int]) -> int:
    return int("".join(map(str, bits)), 2)


class Transceiver:
    """Carries bits that `port` sends to its receiving side, through `spoil`, which gets the number of a bit on the line
    and the bit. `line` has all sent bits. The receiving side begins with the line's bit `offset`; a slip skips one."""

    def __init__(
        self, port, *, pause: int = 0, offset: int = 0, spoil: Callable[[int, int], int] = lambda place, bit: bit
    ) -> None:
        self.port, self.pause, self.at, self.spoil = port, pause, offset, spoil
        self.line: list[int] = []
        self.slips = 0

    async def transmit(self, ctx) -> None:
        port = self.port
        ctx.set(port.tx_ready, 1)
        for pauses in every(self.pause):
            _, _, header, payload, ready = await ctx.tick("tx").sample(port.txh, port.txd, port.tx_ready)
            if ready:
                self.line += bits_of(header, payload)
            ctx.set(port.tx_ready, not pauses)

    async def receive(self, ctx) -> None:
        """Give a block in each cycle for which the line has one."""
        port = self.port
        while True:
            slips = False
            if valid := len(self.line) >= self.at + BLOCK_BITS:
                block = [self.spoil(place, self.line[place]) for place in range(self.at, self.at + BLOCK_BITS)]
                ctx.set(port.rxh, number(block[:2]))
                ctx.set(port.rxd, number(block[2:]))
                self.at += BLOCK_BITS
            ctx.set(port.rx_valid, valid)
            _, _, slips = await ctx.tick("rx").sample(port.rx_slip)
            self.at += slips
            self.slips += slips


def characters_on(line: list[int]) -> list[Character]:
    """Return the characters of a line's blocks without the first two: one is the content at power-up, one is scrambled
    with bits that were not sent. Raises AssertionError if another block is not legal."""
    words = [word_of(block) for block in descrambled(blocks_of(line), Shift(0))][2:]
    assert None not in words, f"blocks {[k + 2 for k, word in enumerate(words) if word is None]} are none"
    return [character for word in words for character in word]
