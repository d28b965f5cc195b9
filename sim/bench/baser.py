"""10GBASE-R bit by bit, written from IEEE 802.3 clause 49: fields in the order in which they are sent, and shift
registers."""

from collections.abc import Iterable, Iterator

from sim.bench.xgmii import Character

__all__ = [
    "BLOCK_TYPES",
    "CODES",
    "ERRORS",
    "Shift",
    "block",
    "blocks_of",
    "descrambled",
    "header_of",
    "number",
    "scrambled",
    "word_of",
]

BLOCK_TYPES = {
    0x1E: "C0 C1 C2 C3 C4 C5 C6 C7",
    0x2D: "C0 C1 C2 C3 O4 D5 D6 D7",
    0x33: "C0 C1 C2 C3 -4 D5 D6 D7",
    0x66: "D1 D2 D3 O0 -4 D5 D6 D7",
    0x55: "D1 D2 D3 O0 O4 D5 D6 D7",
    0x78: "D1 D2 D3 D4 D5 D6 D7",
    0x4B: "D1 D2 D3 O0 C4 C5 C6 C7",
    0x87: "-7 C1 C2 C3 C4 C5 C6 C7",
    0x99: "D0 -6 C2 C3 C4 C5 C6 C7",
    0xAA: "D0 D1 -5 C3 C4 C5 C6 C7",
    0xB4: "D0 D1 D2 -4 C4 C5 C6 C7",
    0xCC: "D0 D1 D2 D3 -3 C5 C6 C7",
    0xD2: "D0 D1 D2 D3 D4 -2 C6 C7",
    0xE1: "D0 D1 D2 D3 D4 D5 -1 C7",
    0xFF: "D0 D1 D2 D3 D4 D5 D6",
}
"""Figure 49-7, after the block type field: data, control codes and O codes of lanes; "-4" is four zeros."""
CODES = {0x07: 0x00, 0x06: 0x06, 0xFE: 0x1E, 0x1C: 0x2D, 0x3C: 0x33, 0x7C: 0x4B, 0xBC: 0x55, 0xDC: 0x66, 0xF7: 0x78}
"""Table 49-1."""
O_CODES = {0x9C: 0x0, 0x5C: 0xF}
START_LANES, TERMINATE_LANES = (
    {0x33: 4, 0x66: 4, 0x78: 0},
    dict(zip((0x87, 0x99, 0xAA, 0xB4, 0xCC, 0xD2, 0xE1, 0xFF), range(8), strict=True)),
)
ERRORS: list[Character] = [(0xFE, True)] * 8
SYNC_DATA, SYNC_CONTROL = [0, 1], [1, 0]
"""In the order of transmission."""


def bits(value: int, width: int) -> list[int]:
    return [value >> k & 1 for k in range(width)]


def number(sent: Iterable[int]) -> int:
    """Return bits as a number, the bit that is sent first lowest."""
    return sum(bit << k for k, bit in enumerate(sent))


def block(word: list[Character]) -> list[int] | None:
    """Return the 66 bits of eight characters, not scrambled, in the order of transmission; None if no block has
    them."""
    if not any(is_control for _, is_control in word):
        return SYNC_DATA + [bit for byte, _ in word for bit in bits(byte, 8)]
    for block_type, fields in BLOCK_TYPES.items():
        lanes: dict[int, str] = {int(field[1]): field[0] for field in fields.split() if field[0] != "-"}
        for found, character in ((START_LANES, "S"), (TERMINATE_LANES, "T")):
            if block_type in found:
                lanes[found[block_type]] = character
        if all(fits(lanes[lane], *word[lane]) for lane in range(8)):
            sent = SYNC_CONTROL + bits(block_type, 8)
            for field in fields.split():
                sent += bits(0, int(field[1])) if field[0] == "-" else coded(field[0], word[int(field[1])][0])
            return sent
    return None


def fits(what: str, byte: int, is_control: bool) -> bool:
    if what == "D":
        return not is_control
    return is_control and byte in {"C": CODES, "O": O_CODES, "S": {0xFB}, "T": {0xFD}}[what]


def coded(what: str, byte: int) -> list[int]:
    return {"D": lambda: bits(byte, 8), "C": lambda: bits(CODES[byte], 7), "O": lambda: bits(O_CODES[byte], 4)}[what]()


def word_of(sent: list[int]) -> list[Character] | None:
    """Return the eight characters of a block; None if it is not legal."""
    sync, payload = sent[:2], sent[2:]
    if sync == SYNC_DATA:
        return [(number(payload[8 * k : 8 * k + 8]), False) for k in range(8)]
    fields = BLOCK_TYPES.get(number(payload[:8])) if sync == SYNC_CONTROL else None
    if fields is None:
        return None
    block_type, rest = number(payload[:8]), iter(payload[8:])
    word: dict[int, Character] = {}
    names = {
        "C": (7, {code: character for character, code in CODES.items()}),
        "O": (4, {code: character for character, code in O_CODES.items()}),
    }
    for field in fields.split():
        if field[0] == "-":
            number([next(rest) for _ in range(int(field[1]))])
        elif field[0] == "D":
            word[int(field[1])] = (number([next(rest) for _ in range(8)]), False)
        else:
            width, known = names[field[0]]
            code = number([next(rest) for _ in range(width)])
            if code not in known:
                return None
            word[int(field[1])] = (known[code], True)
    for found, character in ((START_LANES, 0xFB), (TERMINATE_LANES, 0xFD)):
        if block_type in found:
            word[found[block_type]] = (character, True)
    return [word[lane] for lane in range(8)]


class Shift:
    """The register of clause 49.2.6: the bits on the line 39 and 58 bits ago."""

    def __init__(self, seed: int = (1 << 58) - 1):
        self.line = [seed >> k & 1 for k in range(58)]

    def tap(self) -> int:
        return self.line[-39] ^ self.line[-58]

    def push(self, bit: int) -> None:
        self.line = [*self.line[1:], bit]


def scrambled(blocks: Iterable[list[int]], register: Shift) -> Iterator[int]:
    """Return the line: headers as they are, payloads scrambled."""
    for one in blocks:
        yield from one[:2]
        for bit in one[2:]:
            register.push(bit ^ register.tap())
            yield register.line[-1]


def descrambled(blocks: Iterable[list[int]], register: Shift) -> Iterator[list[int]]:
    for one in blocks:
        plain = list(one[:2])
        for bit in one[2:]:
            plain.append(bit ^ register.tap())
            register.push(bit)
        yield plain


def blocks_of(line: list[int], offset: int = 0) -> list[list[int]]:
    return [line[at : at + 66] for at in range(offset, len(line) - 65, 66)]


def header_of(sent: list[int]) -> int:
    return number(sent[:2])
