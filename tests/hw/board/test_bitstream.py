"""The command: a board by its name, a list where the name is wrong, one sentence and a status where there is no
bitstream."""

import json
import types

import pytest
import typer

import hw.board.bitstream
from hw.board.bitstream import main, verdict
from hw.board.boards import BOARDS, DEFAULT, DEFAULT_IP, DEFAULT_MAC

MET = {
    "timing_met": True,
    "clocks": {"core": {"required_mhz": 50, "achieved_mhz": 51.2, "slack_ns": 0.469}},
    "resources": {"LUT": {"used": 20_000, "available": 24_288}},
    "seeds": [1],
    "late": [],
    "bitstream": "top.bit",
}
MISSED = MET | {
    "timing_met": False,
    "seeds": [1, 2],
    "bitstream": None,
    "clocks": {"core": {"required_mhz": 50, "achieved_mhz": 47.5, "slack_ns": -1.05}},
}


@pytest.fixture
def maker(monkeypatch, tmp_path):
    """Instead of every board's maker: gives `report`, remembers how it was called."""
    made = types.SimpleNamespace(report=MET, calls=[])

    def make(board, folder, **options):
        made.calls.append((board.name, options))
        if isinstance(made.report, Exception):
            raise made.report
        return made.report

    monkeypatch.setattr(hw.board.bitstream, "BUILD", tmp_path)
    monkeypatch.setattr(hw.board.bitstream.importlib, "import_module", lambda name: types.SimpleNamespace(make=make))
    return made


def test_the_report_is_written_and_shown(maker, tmp_path, capsys):
    main("versa_ecp5", mac="02:00:00:00:00:09", ip="192.168.1.9")
    assert maker.calls == [("versa_ecp5", {"mac": "02:00:00:00:00:09", "ip": "192.168.1.9", "operator_key": 0})]
    assert json.loads((tmp_path / "versa_ecp5/report.json").read_text()) == MET
    said = capsys.readouterr().out
    assert all(word in said for word in ("51.20", "0.47", "20,000", "82%", "timing is met", "/versa_ecp5/top.bit"))


@pytest.mark.parametrize(("text", "key"), [("", 0), ("0x6F70657261746F72", 0x6F70657261746F72)])
def test_the_operator_key_comes_from_the_environment_and_is_not_printed(maker, monkeypatch, capsys, text, key):
    monkeypatch.setenv("OPERATOR_KEY", text)
    main("versa_ecp5", mac=DEFAULT_MAC, ip=DEFAULT_IP)
    assert maker.calls[0][1]["operator_key"] == key
    printed = "".join(capsys.readouterr()).lower()
    assert not key or not {text.lower(), str(key)} & set(printed.split())


def test_a_wrong_operator_key_builds_nothing(maker, monkeypatch):
    monkeypatch.setenv("OPERATOR_KEY", "0x1FFFFffffFFFFffff")
    with pytest.raises(typer.BadParameter, match="OPERATOR_KEY is wrong: operator key must be 0 to") as refused:
        main("versa_ecp5", mac=DEFAULT_MAC, ip=DEFAULT_IP)
    assert not maker.calls and "1FFFF" not in str(refused.value)


def test_without_a_name_it_is_the_cheapest_board(maker):
    main(DEFAULT, mac=DEFAULT_MAC, ip=DEFAULT_IP)
    assert maker.calls[0][0] == "colorlight_5a_75b"


def test_a_wrong_name_lists_the_boards(maker, capsys):
    with pytest.raises(SystemExit) as found:
        main("netfpga")
    said = capsys.readouterr().out
    assert (
        found.value.code
        and not maker.calls
        and all(board.name in said and board.part in said for board in BOARDS.values())
    )


def test_timing_that_is_not_met_is_one_sentence_and_a_status(maker, tmp_path, capsys):
    maker.report = MISSED
    with pytest.raises(SystemExit) as found:
        main("versa_ecp5", mac=DEFAULT_MAC, ip=DEFAULT_IP)
    said = " ".join(capsys.readouterr().out.split())
    assert (
        found.value.code
        and verdict(MISSED) in said
        and not json.loads((tmp_path / "versa_ecp5/report.json").read_text())["timing_met"]
    )
    assert (
        verdict(MISSED)
        == "no bitstream, as timing is not met with any of the seeds 1, 2: at best core reaches 47.5 of 50.0 MHz"
    )
    assert "any of the seeds 1, 2 (not routed in time: 2): at best" in verdict(MISSED | {"late": [2]})
    assert verdict(MET) == ""


def test_a_maker_that_cannot_says_why(maker, capsys):
    maker.report = RuntimeError("there is no Vivado here")
    with pytest.raises(SystemExit) as found:
        main("netfpga_sume", mac=DEFAULT_MAC, ip=DEFAULT_IP)
    assert found.value.code and "netfpga_sume: there is no Vivado here" in capsys.readouterr().out


@pytest.mark.parametrize(
    "address", [{"mac": "1.2.3.4"}, {"ip": "10.0.0"}, {"ip": "02:00:00:00:00:09"}, {"mac": "02:00"}]
)
def test_main_address_wrong(maker, address):
    with pytest.raises(typer.BadParameter, match="must be an address written with"):
        main("versa_ecp5", **({"mac": DEFAULT_MAC, "ip": DEFAULT_IP} | address))
    assert not maker.calls
