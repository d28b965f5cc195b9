"""The compiled RTL under bursts of payloads beside the software switch, and what its fuzzer notices."""

from unittest.mock import patch

import numpy as np
import pytest

from hw.decide import core
from hw.synthesis.emit import rtlil
from iswitch.switch.software_switch import SoftwareSwitch
from iswitch.wire import UDP_PORT, Outcome, Type
from sim.bench.designs import HALF_WIDTH
from sim.bench.mutant import mutant
from sim.frames.client import SWITCH_IP, SWITCH_MAC, udp_frame
from sim.fuzz import bursts
from sim.fuzz.bursts import BurstCampaign
from sim.fuzz.campaign import Violated, kept_corpus
from sim.fuzz.frames import frames_of
from sim.fuzz.steps import STARTS, STEP, Senders, formed, from_text, sent_by


@pytest.fixture(scope="module")
def campaign():
    made = BurstCampaign(seed=1, config=HALF_WIDTH)
    yield made
    made.pair.close()


def test_frames_of_many_payloads_are_those_of_each():
    switch = SoftwareSwitch(HALF_WIDTH, mac=SWITCH_MAC, ip=SWITCH_IP, seed=1)
    clients = formed(0, lambda port, frame, error: [sent for _, sent in switch.receive(port, frame, 0, error)]).clients
    for _, steps in kept_corpus()[:40]:
        sent = sent_by(Senders.of(clients), steps[steps["present"] != 0])
        for k, frame in enumerate(frames_of(sent)):
            source = sent.arrivals["source"][k]
            assert frame == udp_frame(
                eth_dst=SWITCH_MAC,
                eth_src=source["mac"].tobytes(),
                ip_src=int(source["ip"]).to_bytes(4),
                ip_dst=SWITCH_IP,
                udp_src=int(source["udp_port"]),
                udp_dst=UDP_PORT,
                payload=sent.payloads[k, : sent.arrivals["length"][k]].tobytes(),
            )


@pytest.mark.parametrize("start", range(len(STARTS)))
def test_kept_sequences_in_bursts_have_the_outcomes_and_frames_of_the_software_switch(start, campaign):
    history = np.stack([steps for of, steps in kept_corpus() if of == start])[:60]
    history["wait_us"] *= np.random.default_rng(start).random(history.shape) < 0.4
    before = campaign.figures()
    campaign.give(start, history)
    after = campaign.figures()
    assert after.sequences == before.sequences + len(history) and after.by_data_path > before.by_data_path
    assert after.outcomes["ADDED"] > before.outcomes.get("ADDED", 0) and after.payloads - before.payloads > 100


def test_new_histories_have_the_outcomes_and_frames_of_the_software_switch(campaign, monkeypatch):
    monkeypatch.setattr(bursts, "HISTORY", 30)
    before = campaign.figures()
    after = campaign.run(payloads=before.payloads + 600)
    assert after.payloads >= before.payloads + 600 and after.histories > before.histories
    for outcome in (Outcome.ADDED, Outcome.CONTROL, Outcome.RECEIPT, Outcome.LATE, Outcome.DUPLICATE):
        assert after.outcomes[outcome.name]


def test_payloads_follow_each_other_without_a_pause(campaign):
    """A burst takes fewer cycles than its payloads one by one."""
    campaign.pair.reset()
    traffic = formed(0, campaign.pair.exchange)
    steps = np.zeros(6, STEP)
    steps["present"], steps["length"] = 1, 30
    taken = []
    for wait_us in (0, 5):
        steps["wait_us"] = wait_us
        before = campaign.pair.board.cycles
        campaign.pair.payloads(traffic.clients, steps)
        taken.append(campaign.pair.board.cycles - before)
    assert taken[0] < taken[1] / 2


def _twice(model, outcome, datagrams):
    model.outcomes[outcome] += outcome == Outcome.RECEIPT
    return outcome, datagrams


def _lost(model, outcome, datagrams):
    return outcome, [sent for sent in datagrams if sent.payload[0] & 0xF != Type.RESULT or sent.to.port == 0]


def _renamed(model, outcome, datagrams):
    return Outcome.STALE if outcome == Outcome.LATE else outcome, datagrams


@pytest.mark.mutant
@pytest.mark.parametrize("change", [_twice, _lost, _renamed])
def test_a_switch_that_differs_is_noticed_and_its_history_kept(change, campaign, monkeypatch):
    handle = type(campaign.pair).handle
    monkeypatch.setattr(type(campaign.pair), "handle", lambda pair, *frame: change(pair.model, *handle(pair, *frame)))
    monkeypatch.setattr(bursts, "HISTORY", 20)
    with pytest.raises(Violated, match="compiled RTL") as found:
        campaign.run(payloads=campaign.figures().payloads + 3000)
    history = from_text(found.value.text)
    assert 1 <= len(history) <= 20
    with pytest.raises(Violated, match="compiled RTL"):
        campaign.give(history[0][0], np.stack([steps for _, steps in history]))


@pytest.mark.mutant
def test_rtl_whose_next_frame_enters_before_the_row_of_its_slot_is_written_is_noticed():
    other_slot = "(next_frame.frame.seq[:slot_bits] != frame.seq[:slot_bits])"

    def design(config):
        with patch("hw.switch.Core", mutant(core, other_slot, "1").Core):
            return rtlil(config)

    campaign = BurstCampaign(seed=1, design=design)
    with pytest.raises(Violated, match="compiled RTL"):
        campaign.run(payloads=3000)
    campaign.pair.close()
