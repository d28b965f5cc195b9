"""The MAC as emitted Verilog, against an XGMII source and an XGMII sink that are not ours; mutants are noticed."""

import re

import pytest

import hw.ethernet.receive
import hw.ethernet.transmit
from sim.bench.mac import Mac
from sim.bench.mutant import mutant
from sim.bench.run_cocotb import BUILD, simulate
from sim.bench.units import verilog


def run(part, folder=BUILD, only="test_mac_"):
    return simulate("mac", verilog(part, "mac"), "sim.bench.cocotb_mac", only=only, folder=folder / "mac")


def test_the_mac_agrees_with_another_source_and_another_sink():
    assert len(run(Mac())) == 8


@pytest.mark.mutant
@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "sound", "wrong", "failing"),
    [
        (hw.ethernet.transmit, "deficit.eq(owed)]", "deficit.eq(0)]", "sent"),
        (hw.ethernet.transmit, "GAP_COLUMNS = 3", "GAP_COLUMNS = 2", "sent"),
        (hw.ethernet.receive, "part.word.error | ~right", "part.word.error", "damaged"),
        (hw.ethernet.receive, "m.d.sync += shifted.eq(late)", "m.d.sync += shifted.eq(0)", "received"),
    ],
)
def test_mutants_are_noticed(tmp_path, module, sound, wrong, failing):
    """Without the deficit count, with short gaps, with a wrong FCS not reported, without starts in lane 4. The
    quick tests are those of the halves."""
    broken = mutant(module, sound, wrong)
    part = Mac(transmitter=broken.Transmitter) if module is hw.ethernet.transmit else Mac(receiver=broken.Receiver)
    with pytest.raises(RuntimeError) as found:
        run(part, tmp_path)
    assert any(failing in name for name in re.findall(r"(test_\w+/stalls=none) failed", str(found.value)))
