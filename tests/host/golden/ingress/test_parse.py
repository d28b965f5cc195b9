"""Any bytes at all are an ordinary frame, a refused frame or a message: the parser never fails, and never invents."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from iswitch.golden.ingress.parse import is_ours, parse
from iswitch.wire import FRAME, Action, Outcome
from sim.frames.client import SWITCH_IP, Client

CLIENT = Client.numbered(3)
GOOD = [
    CLIENT.contribution(5, np.arange(8, dtype=np.float32)),
    CLIENT.receipt(7, behind=2),
    CLIENT.join(world=2, elements=5, member=1),
    CLIENT.claim(1, weights=4),
    CLIENT.control(Action.LEAVE, seq=3),
]


@given(st.binary(min_size=60, max_size=200))
def test_any_bytes_are_parsed(frame):
    found = parse(1, frame, SWITCH_IP)
    assert isinstance(found, Outcome) or is_ours(frame, SWITCH_IP)


@given(st.sampled_from(GOOD), st.data())
def test_a_changed_byte_after_the_addresses_is_refused_or_ordinary(frame, data):
    """The IPv4 header and the UDP payload are covered by checksums, so no change of a byte gives another message."""
    at = data.draw(st.integers(14, len(frame) - 1), "at")
    byte = data.draw(st.integers(0, 255).filter(lambda value: value != frame[at]), "byte")
    if FRAME.fields["udp_checksum"][1] <= at < FRAME.fields["udp_checksum"][1] + 2:
        return  # two encodings of one checksum: 0 says that there is none, and zero is sent as 0xFFFF
    changed = frame[:at] + bytes([byte]) + frame[at + 1 :]
    assert isinstance(parse(3, frame, SWITCH_IP), Outcome) is False
    assert isinstance(parse(3, changed, SWITCH_IP), Outcome)
