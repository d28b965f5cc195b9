"""A view of the waveform of emitted Verilog shows the ports of the top by stream."""

import re

from hw.stream.fifo import Fifo
from hw.synthesis.emit import component_verilog
from sim.bench.port_view import top_ports, write_view

WIDTHS = {"i__payload": 9, "i__valid": 1, "i__ready": 1, "o__payload": 9, "o__valid": 1, "o__ready": 1, "level": 3}


def test_the_ports_of_the_top_have_their_widths(tmp_path):
    text = component_verilog(Fifo(9, depth=4), "top", tmp_path).read_text()
    assert WIDTHS.items() <= top_ports(text, "top").items()


def test_a_view_groups_the_ports_of_a_stream_and_marks_the_end(tmp_path):
    view, waveform = tmp_path / "ports.gtkw", tmp_path / "dump.vcd"
    ports = {"rx0_data": 64, "rx0_valid": 1, "now_us": 32, "clk": 1, "rx0_ready": 1}
    write_view(view, waveform, top="switch", ports=ports, end_ps=18_680_000)
    lines = [line for line in view.read_text().splitlines() if not line.startswith(("@", "[treeopen"))]
    assert lines[0] == f'[dumpfile] "{waveform}"' and re.match(r"\*\S+ 18680000 ", lines[1])
    assert lines.pop(2) == "[size] 1300 800"
    rx0 = ["switch.rx0_data[63:0]", "switch.rx0_valid", "switch.rx0_ready"]
    assert lines[2:] == ["-rx0", *rx0, "-rx0", "switch.now_us[31:0]", "switch.clk"]
