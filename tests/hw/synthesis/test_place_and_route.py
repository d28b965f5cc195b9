"""What becomes of nextpnr's words: timing is met when every clock is, no clock goes unseen, seeds are tried until one
serves."""

import json
import subprocess

import pytest

import hw.synthesis.place_and_route
from hw.board.boards import BOARDS
from hw.synthesis.place_and_route import SECONDS, Clock, bitstream, device_options, report

BOARD = BOARDS["colorlight_5a_75b"]
REQUIRED = {"core": Clock("clocks.", 50.0), "port_0": Clock("port_0.", 125.0)}
USED = {"TRELLIS_COMB": 20000, "TRELLIS_FF": 15000, "DP16KD": 54, "MULT18X18D": 0, "DCCA": 3}


def routed(core=52.0, wire=125.5, *, constraint=125.0, names=("$glbnet$clocks.clk", "$glbnet$port_0.mac.eth_tx_clk")):
    return {
        "fmax": dict(
            zip(
                names,
                ({"achieved": core, "constraint": 50.0}, {"achieved": wire, "constraint": constraint}),
                strict=False,
            )
        ),
        "utilization": {name: {"used": count, "available": 24288} for name, count in USED.items()},
    }


@pytest.mark.parametrize(
    ("core", "wire", "met"), [(52.0, 125.5, True), (50.0, 125.0, True), (49.99, 200.0, False), (90.0, 124.9, False)]
)
def test_timing_is_met_when_every_clock_is(core, wire, met):
    found = report(routed(core, wire), REQUIRED)
    assert found["timing_met"] == met
    assert found["clocks"]["core"] == {
        "required_mhz": 50.0,
        "achieved_mhz": core,
        "slack_ns": round(20 - 1000 / core, 3),
    }
    assert found["resources"]["LUT"] == {"used": 20000, "available": 24288} and found["resources"].keys() == {
        "LUT",
        "FF",
        "EBR",
        "DSP",
    }


@pytest.mark.parametrize(
    "wrong",
    [
        routed(names=("$glbnet$clocks.clk", "$glbnet$port_1.clk")),
        routed(names=("$glbnet$clocks.clk",)),
        routed(constraint=12.0),
        routed(names=("clocks.a", "clocks.b")),
    ],
    ids=["unknown", "missing", "asked for less", "twice"],
)
def test_a_clock_that_was_not_constrained_is_noticed(wrong):
    with pytest.raises(RuntimeError, match=r"is none of core, port_0|no path was timed with port_0"):
        report(wrong, REQUIRED)


def test_options_of_parts():
    assert device_options("LFE5U-25F-6BG256") == ["--25k", "--package", "CABGA256", "--speed", "6"]
    assert device_options("LFE5UM-45F-8BG381") == ["--um-45k", "--package", "CABGA381", "--speed", "8"]
    assert device_options("LFE5UM5G-85F-8BG554") == ["--um5g-85k", "--package", "CABGA554", "--speed", "8"]


def test_device_options_part_wrong():
    with pytest.raises(ValueError, match="part must be an ECP5 in a ball grid array, not 'xc7vx690tffg1761-3'"):
        device_options("xc7vx690tffg1761-3")


def tools(monkeypatch, results):
    """Instead of the tools: nextpnr finds these results one after another, and fails, as the real one does, when timing
    is not met. None: it comes to no end."""
    calls, left = [], list(results)

    def tool(name, arguments, folder, *, seconds=None):
        calls.append((name, arguments))
        if name == "nextpnr-ecp5":
            assert seconds == SECONDS
            result = left.pop(0)
            if result is None:
                raise subprocess.TimeoutExpired(name, seconds)
            seed = arguments[arguments.index("--seed") + 1]
            (folder / f"nextpnr.{seed}.json").write_text(json.dumps(result))
            if not report(result, REQUIRED)["timing_met"]:
                raise RuntimeError("timing")
        if name == "ecppack":
            (folder / "colorlight_5a_75b.bit").write_text("bits")

    monkeypatch.setattr(hw.synthesis.place_and_route, "tool", tool)
    return calls


def make(folder):
    return bitstream(
        BOARD.name,
        folder,
        part=BOARD.part,
        core_mhz=BOARD.core_mhz,
        required=REQUIRED,
        sources=["mac.v"],
        apart=("port_0",),
        progress=lambda what: None,
        placer="heap",
        seeds=(1, 2, 3),
    )


def test_seeds_are_tried_until_timing_is_met(monkeypatch, tmp_path):
    calls = tools(monkeypatch, [routed(core=45.0), routed(core=51.0), routed(core=99.0)])
    found = make(tmp_path)
    assert (
        found["timing_met"]
        and found["seed"] == 2
        and found["seeds"] == [1, 2]
        and (tmp_path / found["bitstream"]).exists()
    )
    assert [name for name, _ in calls] == ["yosys", "yosys", "yosys", "nextpnr-ecp5", "nextpnr-ecp5", "ecppack"]
    assert all(
        "--timing-allow-fail" not in arguments and "--lpf-allow-unconstrained" not in arguments
        for _, arguments in calls
    )
    assert all(arguments[arguments.index("--placer") + 1] == "heap" for name, arguments in calls if name[:4] == "next")


def test_without_a_seed_that_meets_timing_there_is_no_bitstream_and_the_best_is_reported(monkeypatch, tmp_path):
    (tmp_path / "colorlight_5a_75b.bit").write_text("of yesterday")
    tools(monkeypatch, [routed(core=45.0), routed(core=49.0), routed(core=40.0)])
    found = make(tmp_path)
    assert not found["timing_met"] and found["seed"] == 2 and found["seeds"] == [1, 2, 3]
    assert found["bitstream"] is None and not (tmp_path / "colorlight_5a_75b.bit").exists()


def test_a_seed_that_is_never_routed_is_given_up(monkeypatch, tmp_path):
    calls = tools(monkeypatch, [None, routed(core=51.0)])
    found = make(tmp_path)
    assert (
        found["timing_met"] and found["seed"] == 2 and found["late"] == [1] and (tmp_path / found["bitstream"]).exists()
    )
    assert [arguments[arguments.index("--seed") + 1] for name, arguments in calls if name == "nextpnr-ecp5"] == [
        "1",
        "2",
    ]


def test_abandoned_seeds_are_reported_beside_the_best(monkeypatch, tmp_path):
    tools(monkeypatch, [routed(core=45.0), None, None])
    found = make(tmp_path)
    assert not found["timing_met"] and found["seed"] == 1 and found["seeds"] == [1, 2, 3] and found["late"] == [2, 3]


def test_if_no_seed_is_routed_the_message_says_what_to_do(monkeypatch, tmp_path):
    tools(monkeypatch, [None, None, None])
    with pytest.raises(
        RuntimeError, match=f"none of the seeds 1, 2, 3 was routed within {SECONDS} seconds: raise SECONDS"
    ):
        make(tmp_path)


def test_a_tool_that_fails_for_another_reason_is_heard(monkeypatch, tmp_path):
    def tool(name, arguments, folder, *, seconds=None):
        if name == "nextpnr-ecp5":
            raise RuntimeError("out of pins")

    monkeypatch.setattr(hw.synthesis.place_and_route, "tool", tool)
    with pytest.raises(RuntimeError, match="out of pins"):
        make(tmp_path)
