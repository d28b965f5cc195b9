"""The memory of a switch is counted once, and grows as its parts do."""

import re
from dataclasses import replace

from hw.synthesis.emit import rtlil
from hw.synthesis.memories import PARTS, memory_bits
from iswitch.config import Config

SMALL = Config(ports=2, bus_bits=64, members=2, jobs=2, window=4, elements=16)
SUM_BITS = 64 + 2
"""Of an element: the integer, and whether it is poisoned and clean."""


def test_each_memory_is_in_exactly_one_part():
    memories = re.findall(r"^\s*memory width (\d+) size (\d+) ", rtlil(SMALL), re.M)
    assert memory_bits(SMALL).total() == sum(int(width) * int(size) for width, size in memories) > 0


def test_jobs_multiply_the_sums_and_members_only_the_rows():
    larger = replace(SMALL, jobs=4)
    few, many = memory_bits(larger), memory_bits(replace(larger, members=8))
    assert few["sums"] == many["sums"] == larger.jobs * larger.slots * larger.elements * SUM_BITS
    assert {part for part in PARTS if many[part] != few[part]} == PARTS.keys() - {"sums", "MAC table"}
