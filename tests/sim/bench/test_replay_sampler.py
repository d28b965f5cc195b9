# amaranth: UnusedElaboratable=no
"""The sampler's cycles for a batch, and that they are not counted unless it did the work."""

import pytest

import hw.replay.sampling.sampler
from sim.bench.mutant import mutant
from sim.bench.replay_sampler import CompiledSampler, Cycles, sampler_cycles

SMALL = {"priority_bits": 7, "generation_bits": 3, "arity": 4}


def test_a_batch_takes_a_cycle_each_and_the_latency():
    latency = CompiledSampler(capacity=32, **SMALL).sampler.latency
    assert sampler_cycles(32, (1, 24, 32), **SMALL) == [
        Cycles(32, batch, batch + latency, batch + latency, 2 * (batch + latency), batch + latency)
        for batch in (1, 24, 32)
    ]


@pytest.mark.mutant
@pytest.mark.slow
def test_a_mutant_is_noticed():
    broken = mutant(hw.replay.sampling.sampler, "operation.new.eq(placed.new)", "operation.new.eq(placed.old)").Sampler
    with pytest.raises(RuntimeError, match="is not what numpy finds"):
        CompiledSampler(sampler=broken, capacity=32, **SMALL)
