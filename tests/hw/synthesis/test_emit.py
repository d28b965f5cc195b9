"""What is emitted: the ports that board projects, the emulator and cocotb rely on, and memories without initial
contents."""

import re
import subprocess
from collections import Counter

import pytest

from hw.switch import Switch
from hw.synthesis.emit import for_synthesis, payload_memories_uninitialised, rtlil, tool, verilog
from iswitch.config import Config

SMALL = Config(ports=2, bus_bits=64, members=2, jobs=2, window=1, elements=2, queue_bytes=4096)
PORTS = {
    ("input", "clk"): 1,
    ("input", "rst"): 1,
    ("input", "now_us"): 32,
    ("input", "link"): 2,
    ("input", "seed"): 64,
    ("input", "own_mac"): 48,
    ("input", "own_ip"): 32,
    ("input", "operator_key"): 64,
    ("input", "parents"): 256,
    ("output", "busy"): 1,
    ("output", "trace_valid"): 1,
    ("output", "trace_outcome"): 6,
    ("output", "trace_port"): 4,
    ("output", "trace_job"): 8,
    ("output", "trace_member"): 8,
    ("output", "trace_seq"): 32,
} | {
    (direction, f"{side}{port}_{name}"): width
    for port in range(2)
    for side, name, direction, width in (
        ("rx", "data", "input", 64),
        ("rx", "bytes", "input", 4),
        ("rx", "last", "input", 1),
        ("rx", "error", "input", 1),
        ("rx", "valid", "input", 1),
        ("rx", "ready", "output", 1),
        ("tx", "data", "output", 64),
        ("tx", "bytes", "output", 4),
        ("tx", "last", "output", 1),
        ("tx", "valid", "output", 1),
        ("tx", "ready", "input", 1),
    )
}


@pytest.fixture(scope="module")
def emitted() -> str:
    return verilog(SMALL)


def top(text: str) -> str:
    return re.search(r"\nmodule switch\(.*?endmodule", text, re.DOTALL).group()


def test_verilog_has_the_ports(emitted):
    found = re.findall(r"^  (input|output) (?:reg |wire )?(?:\[(\d+):0\] )?(\w+)\s*;", top(emitted), re.MULTILINE)
    assert {(direction, name): int(high or 0) + 1 for direction, high, name in found} == PORTS


def test_verilog_never_waits_for_nothing(emitted):
    """`always @*` around constants is run by no simulator: combinational logic is all continuous assignments."""
    assert "always @*" not in emitted and "always_comb" not in emitted


def test_verilog_tells_nothing_of_the_machine(emitted):
    assert "src" not in re.findall(r"\(\*\s*(\w+)", emitted) and ".py" not in emitted


def test_only_memories_that_are_written_first_lack_initial_contents():
    """Memories of words and sums, the ports' queues among them, and the table of MAC addresses (tags and states), which
    is wiped before it is used; those that hold other state are not."""
    unfilled = Counter()
    for module in re.split(r"^module ", rtlil(SMALL), flags=re.MULTILINE)[1:]:
        filled = set(re.findall(r"cell \$meminit_v2 .*\n\s*parameter \\MEMID \"\\\\(\w+)\"", module))
        for attribute, name in re.findall(
            r"(attribute \\never_read_before_written 1\n(?:\s*attribute .*\n)*)?\s*memory width .*\\(\w+)\n", module
        ):
            assert (name in filled) == (not attribute)
            unfilled[name] += bool(attribute)
    assert +unfilled == {"sums": 1, "tags": 1, "states": 1, "memory": 4 * SMALL.ports + 1}


def test_only_reads_that_meet_no_write_are_left_open_and_only_for_synthesis():
    """Of queues, stores, the words behind the parser, results that wait and counters; in what simulators run every read
    is of the old word."""
    from amaranth.back import rtlil as backend

    assert re.findall(r"COLLISION_X_MASK 1'(\d)", rtlil(SMALL)).count("1") == 0
    before = backend.ModuleEmitter.emit_read_port
    with for_synthesis():
        found = re.findall(r"COLLISION_X_MASK 1'(\d)", backend.convert(Switch(SMALL), name="switch"))
    assert found.count("1") == 4 * SMALL.ports + 4 and found.count("0") > 10
    assert backend.ModuleEmitter.emit_read_port is before


def test_memories_are_emitted_as_usual_afterwards():
    from amaranth.back import rtlil as backend

    before = backend.ModuleEmitter.emit_memory
    with pytest.raises(KeyError), payload_memories_uninitialised():
        assert backend.ModuleEmitter.emit_memory is not before
        raise KeyError
    assert backend.ModuleEmitter.emit_memory is before


def test_tool_tells_why_it_failed(tmp_path):
    with pytest.raises(RuntimeError, match="yosys failed"):
        tool("yosys", ["-q", "-p", "read_rtlil nothing.il"], tmp_path)


def test_tool_that_comes_to_no_end_is_stopped(tmp_path):
    with pytest.raises(subprocess.TimeoutExpired):
        tool("yosys", ["-q", "-p", "read_rtlil nothing.il"], tmp_path, seconds=0.01)
