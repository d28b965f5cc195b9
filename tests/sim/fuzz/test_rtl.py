"""The compiled RTL under sequences of payloads, and what its fuzzer notices."""

import numpy as np
import pytest

from iswitch.wire import Format, Outcome, Stat
from sim.fuzz.campaign import Violated, kept_corpus
from sim.fuzz.rtl import RtlCampaign
from sim.fuzz.steps import STARTS, STEP, from_text


@pytest.fixture(scope="module")
def campaign():
    made = RtlCampaign(seed=1)
    yield made
    made.pair.close()


@pytest.mark.parametrize("start", range(len(STARTS)))
def test_kept_sequences_give_the_frames_and_registers_of_the_golden_switch(start, campaign):
    sequences = [steps for of, steps in kept_corpus() if of == start]
    for steps in sequences[:: 1 + len(sequences) // 10]:
        campaign.give(start, steps)


def test_new_sequences_give_the_frames_and_registers_of_the_golden_switch(campaign):
    before = campaign.figures()
    after = campaign.run(sequences=before.sequences + 8)
    assert after.sequences == before.sequences + 8 and after.steps > before.steps
    assert after.frames > after.steps + 8 * 40
    assert after.outcomes[Outcome.ADDED.name] and after.outcomes[Outcome.CONTROL.name]


@pytest.mark.parametrize("wait_us", [2**29, 2**30, 2**31 - 1, 2**32 - 2**20])
def test_a_member_is_evicted_after_a_silence_of_any_length(wait_us, campaign):
    """The clock of silences wraps at 2^30 us. Segment 3 waits for two members when segment 11 needs its slot."""
    contribution = np.zeros(2, STEP)
    contribution["present"], contribution["length"], contribution["wait_us"] = 1, 30, [5, wait_us]
    contribution["header"]["seq"], contribution["header"]["format_flags"] = [3, 11], Format.WINDOW64
    campaign.give(1, contribution)
    assert campaign.pair.model.stats[Stat.EVICTED] == 1


@pytest.mark.mutant
def test_a_switch_that_counts_a_receipt_twice_is_noticed_and_the_sequence_kept(campaign, monkeypatch):
    model_receive = type(campaign.pair.model).receive

    def twice(self, port, frame, now_us, error=False):
        before = self.outcomes[Outcome.RECEIPT]
        sent = model_receive(self, port, frame, now_us, error)
        self.outcomes[Outcome.RECEIPT] += self.outcomes[Outcome.RECEIPT] - before
        return sent

    monkeypatch.setattr(type(campaign.pair.model), "receive", twice)
    with pytest.raises(Violated, match="compiled RTL") as found:
        campaign.run(sequences=campaign.sequences + 40)
    assert len(from_text(found.value.text)) == 1
