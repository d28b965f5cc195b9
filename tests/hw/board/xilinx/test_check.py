"""The checker on every Xilinx board's project, and each of its rules on a project that breaks it in that one way."""

import re
from dataclasses import replace
from functools import cache

import pytest

from hw.board.boards import BOARDS
from hw.board.ecp5.lpf import check_lpf
from hw.board.ecp5.project import prepare
from hw.board.xilinx.check import check
from hw.board.xilinx.vivado import stubbed_project

XILINX = [name for name, board in BOARDS.items() if board.maker == "hw.board.xilinx.vivado:make"]
SUME = "netfpga_sume"


@cache
def project(name):
    return stubbed_project(BOARDS[name])


def broken(file, old, new, name=SUME, count=1):
    """The project with a text of one file replaced; it must be there."""
    sound = project(name)
    file = {"xdc": f"{name}.xdc", "tcl": "project.tcl"}.get(file, file)
    assert old in sound.files[file], f"{file} has no {old!r}"
    return check(replace(sound, files={**sound.files, file: sound.files[file].replace(old, new, count)}))


QUICK = ("netfpga_sume", "alveo_u250", "alveo_u50_1x100g")
"""One of each kind of port and of memory; the others differ from these in numbers."""


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in QUICK else [pytest.mark.slow]) for name in XILINX]
)
def test_every_board_is_sound(name):
    assert check(project(name)) == []


def line(name, start):
    (found,) = [text for text in project(name).files[f"{name}.xdc"].splitlines() if start in text]
    return found + "\n"


MUTANTS = {
    "a port without a pin": ("xdc", lambda: line(SUME, "{led[1]}"), "", "port led[1] has no pin"),
    "a serial port without a pin": ("xdc", lambda: line(SUME, "{rx_p[2]}"), "", "port rx_p[2] has no pin"),
    "a memory's port without a pin": (
        "memory.prj",
        lambda: 'name="ddr3_dq[7]"',
        'name="ddr3_dq[70]"',
        "port ddr3_dq[7] has no pin",
    ),
    "a pin twice": ("xdc", lambda: "PACKAGE_PIN AR23", "PACKAGE_PIN AR22", "pin AR22 is given to led[0] and to led[1]"),
    "a memory's pin for a light": (
        "xdc",
        lambda: "PACKAGE_PIN AR23",
        "PACKAGE_PIN M11",
        "pin M11 is given to led[1] and to ddr3_dq[0]",
    ),
    "no I/O standard": (
        "xdc",
        lambda: "PACKAGE_PIN AR22 IOSTANDARD LVCMOS15",
        "PACKAGE_PIN AR22",
        "port led[0] has no I/O standard",
    ),
    "a transceiver's pin with one": (
        "xdc",
        lambda: "PACKAGE_PIN A6",
        "PACKAGE_PIN A6 IOSTANDARD LVDS",
        "port rx_p[0] is a transceiver's pin, which has no I/O standard, and is given LVDS",
    ),
    "a port that is not there": (
        "xdc",
        lambda: "{led[1]}",
        "{leb[1]}",
        "constraints name port leb[1], which is not there",
    ),
    "a false path to a port that is not there": (
        "xdc",
        lambda: "{led[*] ",
        "{lid[*] ",
        "constraints name port lid[*], which is not there",
    ),
    "two pins for a port": (
        "xdc",
        lambda: line(SUME, "{led[1]}"),
        lambda: line(SUME, "{led[1]}") + line(SUME, "{led[1]}").replace("AR23", "AR24"),
        "port led[1] is given PACKAGE_PIN AR23 and AR24",
    ),
    "no clock at a pin": (
        "xdc",
        lambda: line(SUME, "create_clock -period 5.000"),
        "",
        "clock of port sys_clk_p, which mmcm/CLKIN1 takes, is not defined",
    ),
    "no reference clock": (
        "xdc",
        lambda: line(SUME, "-name refclk"),
        "",
        "clock of port refclk_p, which quad/wizard/q8_clk0_gtrefclk_pad_p_in takes, is not defined",
    ),
    "no memory clock": (
        "xdc",
        lambda: line(SUME, "-name ddr_clk"),
        "",
        "clock of port ddr_clk_p, which memory/sys_clk_i takes, is not defined",
    ),
    "a clock of a transceiver that Vivado does not know": (
        "xdc",
        lambda: line(SUME, "gt2_rxoutclk"),
        "",
        "clock of pin *gt2_*gthe2_i/RXOUTCLK is not defined",
    ),
    "a clock at a pin that is not there": (
        "xdc",
        lambda: "mmcm/CLKOUT0",
        "pll/CLKOUT0",
        "clock core is made at pin pll/CLKOUT0, which is not there",
    ),
    "a clock twice": ("xdc", lambda: "-name ddr_clk", "-name sys_clk", "clock sys_clk is defined twice"),
    "a clock without a period": ("xdc", lambda: "-period 4.290", "-period 0", "clock ddr_clk has no period"),
    "a constraint of an unknown clock": (
        "xdc",
        lambda: "-from [get_clocks core] -to $memory",
        "-from [get_clocks cor] -to $memory",
        "constraints name clock cor, which is not defined",
    ),
    "a crossing that is not declared": (
        "xdc",
        lambda: line(SUME, "-from $memory"),
        "",
        "signals go from clock memory to clock core",
    ),
    "a port's crossing that is not declared": (
        "xdc",
        lambda: line(SUME, "-from $port2_rx -to [get_clocks core]"),
        "",
        "signals go from clock port2_rx to clock core, as from port_2/",
    ),
    "a crossing that is timed": (
        "xdc",
        lambda: "set_max_delay -datapath_only -from $memory",
        "set_max_delay -from $memory",
        "signals go from clock memory to clock core",
    ),
    "a command that is not known": (
        "xdc",
        lambda: "set_false_path -from",
        "set_multicycle -from",
        "constraints use set_multicycle",
    ),
    "IP that nothing takes": (
        "tcl",
        lambda: "-module_name memory\n",
        "-module_name memory\ncreate_ip -name fifo_generator -module_name spare\n",
        "create_ip makes spare, which nothing instantiates",
    ),
    "IP that is not generated": (
        "tcl",
        lambda: "create_ip -name mig_7series -vendor xilinx.com -library ip -module_name memory\n",
        "",
        "cell memory is a memory, which no create_ip makes",
    ),
    "a source that is not there": (
        "tcl",
        lambda: "read_verilog top.v",
        "read_verilog tap.v",
        "project.tcl takes tap.v, which is not there",
    ),
    "a file of IP that is not there": (
        "tcl",
        lambda: "$here/memory.prj",
        "$here/memory2.prj",
        "project.tcl takes memory2.prj, which is not there",
    ),
    "another part": (
        "tcl",
        lambda: "vivado -part xc7vx690tffg1761-3",
        "vivado -part xc7vx690tffg1761-2",
        "create_project takes part xc7vx690tffg1761-2, not xc7vx690tffg1761-3",
    ),
    "a bitstream without a check of setup": (
        "tcl",
        lambda: "$setup < 0",
        "$setup < -9",
        "stopped for setup that is not met",
    ),
    "a bitstream without a check of hold": (
        "tcl",
        lambda: "-delay_type min -max_paths 1]]",
        "-delay_type max -max_paths 1]]",
        "stopped for hold that is not met",
    ),
    "a check that says nothing": ("tcl", lambda: '    error "', '    puts "', "stopped for setup that is not met"),
    "a check of paths that may not exist": ("tcl", lambda: "$hold eq {}", "0", "stopped for hold that is not met"),
    "no routing": ("tcl", lambda: "route_design\n", "", "project.tcl lacks route_design"),
    "placement behind routing": (
        "tcl",
        lambda: "opt_design\nplace_design\nphys_opt_design\nroute_design",
        "opt_design\nroute_design\nplace_design",
        "project.tcl has its steps not in the order",
    ),
    "no report of crossings": (
        "tcl",
        lambda: "report_cdc",
        "report_dcd",
        "project.tcl lacks report_cdc behind route_design",
    ),
    "a net with two drivers": (
        "top.v",
        lambda: "  BUFG core_clock (",
        "  BUFG second (.I(made[0]), .O(raw));\n  BUFG core_clock (",
        "the Verilog is not sound",
    ),
    "a pin that IP does not have": ("top.v", lambda: ".sys_rst(", ".sys_reset(", "the Verilog is not sound"),
}


@pytest.mark.parametrize("what", MUTANTS)
def test_a_breach_is_reported(what):
    file, old, new, sentence = MUTANTS[what]
    found = broken(file, old(), new() if callable(new) else new)
    assert any(sentence in breach for breach in found), found


def test_a_check_behind_the_bitstream_is_none():
    sound = project(SUME).files["project.tcl"]
    (last,) = [text for text in sound.splitlines() if text.startswith("write_bitstream")]
    found = broken("tcl", "\n# No bitstream unless", f"\n{last}\n# No bitstream unless")
    assert any("without having stopped for setup" in breach for breach in found)


def test_there_must_be_a_script():
    assert check(replace(project(SUME), files={})) == ["there is no project.tcl"]


ECP5 = [name for name, board in BOARDS.items() if board.family == "ecp5"]


@pytest.mark.parametrize("name", ECP5)
def test_preferences_of_every_ecp5_board_are_sound(name, tmp_path):
    """Against the ports of the top in Amaranth's RTLIL; what comes in and is called a clock is one."""
    prepare(BOARDS[name], tmp_path)
    text = (tmp_path / f"{name}.il").read_text()
    top = text[text.index("attribute \\top 1") :]
    ports = re.findall(
        r"^\s+wire width (\d+) (input|output|inout) \d+\s+\\(\S+)$", top[: top.index("\nend\n")], re.MULTILINE
    )
    bits = [f"{port}[{k}]" if int(width) > 1 else port for width, _, port in ports for k in range(int(width))]
    clocks = [port for _, flow, port in ports if "clk" in port and flow == "input"]
    assert len(bits) > 10 and len(clocks) > 1
    assert check_lpf((tmp_path / f"{name}.lpf").read_text(), bits, clocks) == []


LPF = """
BLOCK RESETPATHS;
LOCATE COMP "clk" SITE "P6";
IOBUF PORT "clk" IO_TYPE=LVCMOS33;
FREQUENCY PORT "clk" 25.0 MHZ;
LOCATE COMP "led[0]" SITE "T6";
IOBUF PORT "led[0]" IO_TYPE=LVCMOS33 DRIVE=4;
"""


def test_lpf_that_is_sound():
    assert check_lpf(LPF, ["clk", "led[0]"], ["clk"]) == []


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ('LOCATE COMP "led[0]" SITE "T6";', "", "port led[0] has no pin"),
        (
            'IOBUF PORT "led[0]" IO_TYPE=LVCMOS33 DRIVE=4;',
            'IOBUF PORT "led[0]" DRIVE=4;',
            "port led[0] has no I/O standard",
        ),
        ('SITE "T6"', 'SITE "P6"', "pin P6 is given to clk and to led[0]"),
        ("BLOCK", 'LOCATE COMP "lid" SITE "A1";BLOCK', "constraints name port lid, which is not there"),
        ('FREQUENCY PORT "clk" 25.0 MHZ;', "", "clock of port clk is not defined"),
        ("BLOCK", "MULTICYCLE x;BLOCK", "preferences have MULTICYCLE, which is not known here"),
    ],
)
def test_a_breach_in_lpf_is_reported(old, new, sentence):
    assert old in LPF and sentence in check_lpf(LPF.replace(old, new), ["clk", "led[0]"], ["clk"])
