# amaranth: UnusedElaboratable=no
"""Each part of the service can be built alone, as a switch's Config asks for it."""

import pytest
from amaranth.hdl import Fragment

from hw.replay.components import COMPONENTS
from iswitch.config import Config, Replay

CONFIGS = [
    Config(
        ports=2,
        members=2,
        window=2,
        bus_bits=bus_bits,
        replay=Replay(tables=tables, capacity=32, single_copy=single_copy),
    )
    for bus_bits, tables, single_copy in ((64, 1, False), (256, 2, True))
]


@pytest.mark.parametrize("config", CONFIGS, ids=["mixed", "single_copy"])
@pytest.mark.parametrize("name", COMPONENTS)
def test_a_part_can_be_built_alone(name, config):
    part = COMPONENTS[name](config)
    assert Fragment.get(part, None) is not None and len(list(part.signature.flatten(part))) > 1
