# amaranth: UnusedElaboratable=no
"""ECP5 boards: every pin where it belongs, every clock constrained; a bitstream, timing met, of a board whose switch is
a cable."""

import json
import re
from collections import Counter

import pytest
from amaranth.hdl import Cat, Module
from amaranth.lib.wiring import Component, connect, flipped

import hw.board.ecp5.project
from hw.board.boards import BOARDS
from hw.board.ecp5.clocks import PLL_DOMAIN
from hw.board.ecp5.project import WIRE_MHZ, WIRINGS, make, platform_of, prepare
from hw.board.ecp5.rgmii import MAC

ECP5 = pytest.mark.parametrize("name", WIRINGS)


class Cable(Component):
    """In the place of the shell: what comes in by a port leaves by the next."""

    def __init__(self, config, *, clock_hz):
        self.config = config
        super().__init__(hw.board.shell.Shell(config, clock_hz=clock_hz).signature)

    def elaborate(self, platform):
        m = Module()
        ports = self.config.ports
        for port in range(ports):
            connect(m, flipped(self.rx[port]), flipped(self.tx[(port + 1) % ports]))
        m.d.comb += self.leds.eq(Cat(self.link, self.own_mac.xor(), self.own_ip.xor() ^ self.operator_key.xor()))
        return m


@pytest.fixture
def cable(monkeypatch):
    monkeypatch.setattr(hw.board.ecp5.project, "Shell", Cable)


def test_every_ecp5_board_has_its_wiring():
    assert WIRINGS.keys() == {name for name, board in BOARDS.items() if board.family == "ecp5"}


PINS = {
    # Typed by hand, from descriptions of the boards.
    "colorlight_5a_75b": {
        "clk25_0__io": "P6",
        "port_0__tx_clk__io": "M2",
        "port_0__rx_ctl__io": "N6",
        "port_1__rx_clk__io": "M16",
        "port_1__tx_data__io[3]": "R14",
        "phy_reset_0__io": "P5",
        "led_0__io": "P11",
    },
    "versa_ecp5": {
        "clk100_0__p": "P3",
        "rst_0__io": "T1",
        "port_0__rx_clk__io": "L20",
        "port_1__tx_ctl__io": "E19",
        "port_1__rx_data__io[0]": "G18",
        "phy_reset_1__io": "F20",
        "led_0__io": "E16",
        "switch_3__io": "F2",
    },
    "ecpix5_85f": {
        "clk100_0__io": "K23",
        "rst_0__io": "AB1",
        "port_0__tx_clk__io": "A12",
        "port_0__rx_ctl__io": "A11",
        "phy_reset_0__io": "C13",
    },
}


@ECP5
def test_every_pin_has_one_place_and_every_clock_its_frequency(name, cable, tmp_path):
    board = BOARDS[name]
    prepare(board, tmp_path)
    text = (tmp_path / f"{name}.lpf").read_text()
    places = dict(re.findall(r'LOCATE COMP "(\S+)" SITE "(\w+)";', text))
    assert PINS[name].items() <= places.items()
    assert max(Counter(places.values()).values()) == 1
    assert len(re.findall(r'IOBUF PORT "(\S+)" .*IO_TYPE=\w+', text)) == len(places)
    clocks = {port: float(hertz) for port, hertz in re.findall(r'FREQUENCY PORT "(\S+)" (\S+) HZ;', text)}
    oscillator = next(port for port in places if port.startswith(WIRINGS[name].clock))
    assert clocks == {oscillator: WIRINGS[name].mhz * 1e6} | {
        f"port_{k}__rx_clk__io": WIRE_MHZ * 1e6 for k in range(board.config.ports)
    }
    ports = {
        f"port_{k}__{pin}__io" for k in range(board.config.ports) for pin in ("tx_clk", "tx_ctl", "rx_clk", "rx_ctl")
    }
    assert ports <= places.keys() and len(platform_of(WIRINGS[name]).resources) > 0
    assert f"module {MAC}" in (tmp_path / f"{MAC}.v").read_text()


def test_the_operator_key_reaches_the_switch(cable, tmp_path):
    board, key = BOARDS["colorlight_5a_75b"], 0x6F70657261746F72
    for given in (0, key):
        prepare(board, tmp_path, operator_key=given)
        assert (f"64'{key:064b}" in (tmp_path / f"{board.name}.il").read_text()) == bool(given)


def test_a_bitstream_is_made_and_its_timing_met(cable, tmp_path):
    board = BOARDS["colorlight_5a_75b"]
    report = make(board, tmp_path)
    assert report["timing_met"] and report["clocks"].keys() == {"core", "port_0", "port_1", PLL_DOMAIN}
    assert {name: clock["required_mhz"] for name, clock in report["clocks"].items()} == {
        "core": board.core_mhz,
        "port_0": 125.0,
        "port_1": 125.0,
        PLL_DOMAIN: board.core_mhz,
    }
    assert all(
        clock["achieved_mhz"] >= clock["required_mhz"] and clock["slack_ns"] >= 0 for clock in report["clocks"].values()
    )
    assert {name: resource["available"] for name, resource in report["resources"].items()} == dict(board.available)
    assert (tmp_path / f"{board.name}.bit").stat().st_size > 50_000 and (tmp_path / f"{board.name}.svf").exists()
    # What the tool itself wrote, not what was made of it.
    routed = json.loads((tmp_path / f"nextpnr.{report['seed']}.json").read_text())
    assert sorted(round(clock["constraint"]) for clock in routed["fmax"].values()) == [
        *(2 * [round(board.core_mhz)]),
        125,
        125,
    ]


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("name", ["colorlight_5a_75b", "versa_ecp5", "ecpix5_85f"])
def test_whole_boards_meet_their_timing(name, tmp_path):
    board = BOARDS[name]
    report = make(board, tmp_path)
    assert report["timing_met"] and (tmp_path / f"{name}.bit").exists()
    assert all(resource["used"] <= board.available[kind] for kind, resource in report["resources"].items())
