"""What Yosys maps to an ECP5 does what it was made from: a memory of each shape and a component cycle by cycle, a
switch frame by frame."""

import re

import numpy as np
import pytest
from amaranth.hdl import Module
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import Component, In, Out

import sim.bench.netlist
import sim.emulator.compile
import sim.emulator.toolchain
from hw.board.boards import BOARDS, DEFAULT
from hw.ingress.packet_queue import PacketQueue
from hw.synthesis.emit import tool
from iswitch.config import Config
from iswitch.wire import Format, Outcome, Type
from sim.bench.compiled import Compiled
from sim.bench.cosimulation import Pair
from sim.bench.netlist import MODELS, mapped, netlist, through
from sim.bench.traffic import adverse_numbers
from sim.frames.client import Client, ordinary, parse

SMALL = Config(
    ports=2,
    bus_bits=64,
    members=2,
    jobs=2,
    window=1,
    elements=8,
    queue_bytes=4096,
    mac_entries=64,
    staleness=0,
    uplinks=False,
)


class Rows(Component):
    """Memories of several shapes, which become block RAMs of widths 36, 18, 9, 4, 2 and 1, one with initial contents,
    one with enables for bytes."""

    SHAPES = {"w36": (36, 512), "w18": (18, 1024), "w9": (9, 2048), "w4": (4, 4096), "w2": (2, 8192), "w1": (1, 16384)}

    def __init__(self):
        super().__init__(
            {
                "read": In(14),
                "write": In(14),
                "number": In(36),
                "enable": In(4),
                "on": In(1),
                **{name: Out(width) for name, (width, _) in self.SHAPES.items()},
            }
        )

    def elaborate(self, platform):
        m = Module()
        for name, (width, depth) in self.SHAPES.items():
            init = [(k * 2654435761 >> 7) % (1 << width) for k in range(depth)] if name in ("w9", "w2") else []
            memory = Memory(shape=width, depth=depth, init=init, attrs={"ram_style": "block"})
            m.submodules[name] = memory
            read = memory.read_port()
            write = memory.write_port(granularity=9 if name in ("w36", "w18") else None)
            m.d.comb += [
                read.addr.eq(self.read),
                read.en.eq(self.on),
                write.addr.eq(self.write),
                write.data.eq(self.number),
                write.en.eq(self.enable if name in ("w36", "w18") else self.enable[0]),
                getattr(self, name).eq(read.data),
            ]
        return m


def rows_of(compiled, count):
    rng = np.random.default_rng(3)
    near = lambda: np.where(rng.random(count) < 0.7, rng.integers(0, 64, count), rng.integers(0, 1 << 14, count))
    return compiled.rows(
        count,
        read=near(),
        write=near(),
        number=rng.integers(0, 1 << 36, count),
        enable=rng.integers(0, 16, count),
        on=rng.random(count) < 0.9,
    )


def memories_agree(models=""):
    sound, made = Compiled(Rows()), Compiled(Rows(), through=lambda text: through(text, models=models))
    rows = rows_of(sound, 30_000)
    return np.array_equal(sound.run(rows), made.run(rows))


def test_memories_of_every_width_are_block_rams_that_agree(monkeypatch):
    seen = []
    monkeypatch.setattr(
        sim.bench.netlist, "netlist", lambda *a: seen.append(netlist(*a).read_text()) or a[-1] / "netlist.v"
    )
    assert memories_agree()
    assert {int(width) for width in re.findall(r"\.DATA_WIDTH_B\(32'd(\d+)\)", seen[0])} == {36, 18, 9, 4, 2, 1}


MUTANTS = {
    "halves of a row change places": (
        "DATA_WIDTH_B == 36 ? dob[17:0] : doa[17:0]",
        "DATA_WIDTH_B == 36 ? dob[35:18] : doa[17:0]",
    ),
    "enables of bytes are one": ("{9{address[1]}}, {9{address[0]}}} : ", "{9{address[0]}}, {9{address[0]}}} : "),
    "narrow words are one bit off": ("width == 2 ? address[2:1] * 2", "width == 2 ? address[1:0] * 2"),
    "contents at configuration are lost": ("rows[8 + k / 2] = {", "rows[8 + k / 2] = 36'b0 & {"),
}


@pytest.mark.mutant
@pytest.mark.slow
@pytest.mark.parametrize("sound, wrong", MUTANTS.values(), ids=MUTANTS)
def test_a_model_with_a_mutant_is_noticed(sound, wrong):
    text = MODELS.read_text()
    assert text.count(sound) == 1
    assert not memories_agree(text.replace(sound, wrong))


def test_a_queue_s_netlist_gives_the_same_words_in_the_same_cycles():
    queue = lambda: PacketQueue(bus_bits=64, depth=512, frame_bytes_max=1518)
    sound, made = Compiled(queue()), Compiled(queue(), through=through)
    rng, count = np.random.default_rng(1), 40_000
    length = rng.integers(1, 30, count)
    last = np.zeros(count, bool)
    last[np.cumsum(length)[np.cumsum(length) < count]] = True
    rows = sound.rows(
        count,
        i_valid=rng.random(count) < 0.9,
        i_payload_data=rng.integers(0, 1 << 64, count, np.uint64),
        i_payload_last=last,
        i_payload_count=np.where(last, rng.integers(1, 9, count), 8),
        i_payload_error=last & (rng.random(count) < 0.1),
        o_ready=rng.random(count) < 0.8,
        scans_ready=rng.random(count) < 0.8,
        rst=np.arange(count) % 9000 == 8999,
    )
    wanted, got = sound.run(rows), made.run(rows)
    for name in wanted.dtype.names:
        stream = name.split("_payload")[0]
        meant = (
            wanted[f"{stream}_valid"] != 0 if "_payload" in name else slice(None)
        )  # what nobody offers may be anything
        assert np.array_equal(wanted[name][meant], got[name][meant]), name
    assert wanted["o_valid"].sum() > 5000 and wanted["stat_error"].sum() > 10


MITER = """
module lut_0(input A, B, C, D, output Z);
  parameter [15:0] INIT = 0;
  LUT4 #(.INIT(INIT)) it(.A(A), .B(B), .C(C), .D(D), .Z(Z)); endmodule
module lut_1(input A, B, C, D, output Z);
  parameter [15:0] INIT = 0;
  OURS #(.INIT(INIT)) it(.A(A), .B(B), .C(C), .D(D), .Z(Z)); endmodule
module miter(input [3:0] i, output same);
  wire [17:0] a, b;
  genvar k;
  generate for (k = 0; k < 18; k = k + 1) begin
    localparam INIT = k < 16 ? 1 << k : k == 16 ? 16'h6996 : 16'hcafe;
    lut_0 #(.INIT(INIT)) sound(.A(i[0]), .B(i[1]), .C(i[2]), .D(i[3]), .Z(a[k]));
    lut_1 #(.INIT(INIT)) short(.A(i[0]), .B(i[1]), .C(i[2]), .D(i[3]), .Z(b[k]));
  end endgenerate
  assign same = a == b;
endmodule
"""


@pytest.mark.parametrize("wrong", [False, True], ids=["sound", "mutant"])
def test_the_lut_of_ours_is_that_of_yosys(wrong, tmp_path):
    """Each bit of its contents alone, so at every input the same bit is chosen; and two contents of several bits."""
    ours = (
        MODELS.read_text().split("module LUT4")[1].replace("{D, C, B, A}", "{D, C, A, B}" if wrong else "{D, C, B, A}")
    )
    (tmp_path / "miter.v").write_text(f"module OURS{ours}{MITER}")
    prove = lambda: tool(
        "yosys",
        [
            "-q",
            "-p",
            "read_verilog -D NO_INCLUDES +/ecp5/cells_sim.v; read_verilog miter.v; hierarchy -top miter; proc; "
            "flatten -wb; opt_clean; sat -verify -prove same 1 miter",
        ],
        tmp_path,
    )
    if wrong:
        with pytest.raises(RuntimeError, match="yosys failed"):
            prove()
    else:
        prove()


@pytest.fixture
def compiled_soon(monkeypatch):
    """Of the code that a netlist becomes, a compiler would improve more minutes than it runs."""
    for module in (sim.emulator.compile, sim.emulator.toolchain):
        monkeypatch.setattr(module, "FAST", "-O0")


def smoke(config, *, design=mapped):
    """Join, ordinary frames, rounds of sums of two members whose frames race, a result asked for again: all as the
    golden switch."""
    pair, rng = Pair(config, seed=5, design=design), np.random.default_rng(7)
    workers = [Client.numbered(k, port=k) for k in range(2)]
    settings = {"world": 2, "elements": config.elements, "format": Format.WINDOW64}
    for asked in (settings, {}, {}):
        for worker in workers:
            for answer in pair.exchange(worker.port, worker.join(**asked)):
                worker.take(answer)
    assert all(worker.token for worker in workers)
    for size in (60, 61, 512, 1514):
        for worker, other in (workers, workers[::-1]):
            pair.exchange(worker.port, ordinary(other.mac, worker.mac, size))
    for turn in range(6):
        seqs = [(workers[0].first_seq + turn * config.window + k) % 2**32 for k in range(config.window)]
        frames = [
            (
                worker.port,
                worker.contribution(
                    seq,
                    adverse_numbers(rng, config.elements - turn % 2, 0.3 / config.elements),
                    behind=seq - seqs[0] & 0xFFFF,
                ),
            )
            for worker in workers
            for seq in seqs
        ]
        answers = [parse(frame) for frame in pair.burst([frames[k] for k in rng.permutation(len(frames))])]
        assert sum(answer.type == Type.RESULT for answer in answers) == 2 * config.window
        assert pair.exchange(workers[0].port, workers[0].receipt(seqs[0], want=True))
        pair.exchange(workers[1].port, frames[-1][1])
    outcomes = pair.model.outcomes
    assert outcomes[Outcome.ADDED] + outcomes[Outcome.QUARANTINED] == 12 * config.window
    assert outcomes[Outcome.ADDED] >= 6 * config.window and outcomes[Outcome.ORDINARY] >= 6
    pair.counters_agree()
    pair.close()


@pytest.mark.slow
@pytest.mark.parametrize("config", [SMALL, BOARDS[DEFAULT].config], ids=["smallest", DEFAULT])
def test_a_switch_s_netlist_joins_sums_and_answers_as_the_golden_switch(config, compiled_soon):
    smoke(config)
