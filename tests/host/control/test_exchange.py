"""One control message and its acknowledgement, over a scripted transport on a clock of its own."""

import numpy as np
import pytest

from iswitch.control.exchange import Exchange
from iswitch.errors import SwitchUnreachableError
from iswitch.wire import ACK, CONTROL, HEADER, Action, Reason, Type, version_type


class Script:
    """A transport whose `replies` are lists of bursts, one list for each transmission. A burst is a list of datagrams
    of the same size."""

    fault, refused = "", False

    def __init__(self, replies=lambda number, message: []):
        self.replies, self.clock, self.sent, self.inbox, self.drawn = replies, 0.0, [], [], 0

    def randbits(self, bits):
        self.drawn += 1
        return self.drawn

    def now(self):
        return self.clock

    def send(self, burst, segment_bytes):
        self.sent.append((self.clock, bytes(burst)))
        self.inbox += self.replies(len(self.sent), bytes(burst))

    def receive(self, into, timeout_s):
        if not self.inbox:
            self.clock += timeout_s
            return 0, 0
        burst = self.inbox.pop(0)
        octets = b"".join(burst)
        into[: len(octets)] = octets
        return len(octets), len(burst[0])


def acknowledgement(message, *, nonce=None, seq=None, reason=Reason.DONE):
    asked = np.frombuffer(message, np.dtype(HEADER.descr + CONTROL.descr))[0]
    header, body = np.zeros(1, HEADER), np.zeros(1, ACK)
    header["version_type"], header["seq"] = version_type(Type.ACK), asked["seq"] if seq is None else seq
    body["action"], body["reason"] = asked["action"], reason
    body["nonce"] = asked["nonce"] if nonce is None else nonce
    return header.tobytes() + body.tobytes()


def test_a_message_is_sent_again_with_doubling_pauses_until_it_is_acknowledged():
    script = Script(lambda number, message: [[acknowledgement(message)]] if number == 6 else [])
    answer = Exchange(script).request(Action.READ, address=3)
    assert answer.reason == Reason.DONE
    assert [when for when, _ in script.sent] == pytest.approx([0, 0.05, 0.15, 0.35, 0.75, 1.25])
    assert len({message for _, message in script.sent}) == 1


def test_a_refusal_is_an_answer():
    script = Script(lambda number, message: [[acknowledgement(message, reason=Reason.KEY)]])
    assert Exchange(script).request(Action.RESET).reason == Reason.KEY


def test_answers_to_other_messages_and_other_bursts_are_handed_on():
    others = []

    def replies(number, message):
        return [
            [acknowledgement(message, nonce=99)],
            [acknowledgement(message, seq=99)],
            [b"other datagram"] * 2,
            [acknowledgement(message)],
        ]

    exchange = Exchange(Script(replies), on_other_burst=lambda buffer, size, segment: others.append((size, segment)))
    assert exchange.request(Action.READ).reason == Reason.DONE
    length = HEADER.itemsize + ACK.itemsize
    assert others == [(length, length), (length, length), (28, 14)]


def test_an_acknowledgement_inside_a_burst_is_found():
    script = Script(lambda number, message: [[acknowledgement(message, nonce=99), acknowledgement(message)]])
    assert Exchange(script).request(Action.READ).reason == Reason.DONE


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        (
            {},
            r"the switch at 10\.0\.0\.9 has not answered for 2 s \(`patience`\): start the switch .* \(26963, because",
        ),
        ({"refused": True}, "for 2 s .*: its host says that no program listens at this port; start the switch"),
        (
            {"fault": "the interface is down; set it up"},
            "for 2 s .*: the interface is down; set it up; start the switch",
        ),
    ],
)
def test_silence_is_an_error_with_the_facts_of_the_transport(facts, message):
    script = Script()
    for name, value in facts.items():
        setattr(script, name, value)
    with pytest.raises(SwitchUnreachableError, match=message):
        Exchange(script, address="10.0.0.9", timeout_s=2.0, timeout_name="patience").request(Action.READ)
    assert script.clock == pytest.approx(2.0)


def test_a_time_limit_of_one_request_is_not_called_by_the_name_of_the_parameter():
    with pytest.raises(SwitchUnreachableError, match=r"has not answered for 0\.5 s: start the switch"):
        Exchange(Script(), timeout_name="patience").request(Action.READ, timeout_s=0.5)
