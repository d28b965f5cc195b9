"""Bytes that others have made: every door raises its documented errors only, and returns soon."""

import struct
import subprocess
import sys
from contextlib import suppress

import numpy as np
import pytest

from sim.bench.pinned import needed
from sim.emulator.toolchain import ROOT
from sim.fuzz.doors import DOORS, Door
from sim.fuzz.parsers import kept_inputs

DIGITS = b"1" * 5000
ALIASES = b"a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + b"".join(
    b"a%d: &a%d [%s]\n" % (k, k, b", ".join([b"*a%d" % (k - 1)] * 10)) for k in range(1, 9)
)
SECTION = struct.pack("<IIIHHqI", 0x0A0D0D0A, 28, 0x1A2B3C4D, 1, 0, -1, 28)
HEAD = struct.Struct("<IIQ16s32s")

REGRESSIONS = {
    "an option of an interface that ends before its value": (
        "capture",
        SECTION + struct.pack("<IIHHIHHI", 1, 24, 101, 0, 0, 9, 1, 24),
    ),
    "a state of a job that the protocol does not name": ("registers", np.arange(32, dtype="<u4").tobytes()),
    "a live member above the world": (
        "registers",
        struct.pack("<8I", 1 << 8 | 2, 0, 1, 1 << 31, 0, 0, 0, 0) + bytes(32),
    ),
    "a broadcast without a beginning": ("parameters", bytes(3)),
    "parameters larger than any log": ("parameters", HEAD.pack(0x50574969, 1, 1 << 40, bytes(16), bytes(32))),
    "aliases that stand for billions of values": ("topology_yaml", ALIASES),
    "a number of more digits than Python reads": ("topology_json", b'{"nodes": [{"id": %s}], "edges": []}' % DIGITS),
    "a port above 65535": ("parent", b"0=10.0.0.9:70000/1"),
    "a size that is no number of binary64": ("size", b"9" * 400 + b"MB"),
    "a summary of a hundred thousand brackets": ("training", b"[" * 100_000),
}


def enter(door: Door, data: bytes) -> None:
    with suppress(*door.errors):
        door.enter(data)


@pytest.mark.parametrize("case", REGRESSIONS)
def test_an_input_that_broke_the_rule_stays_mended(case):
    name, data = REGRESSIONS[case]
    enter(DOORS[name], data)


@pytest.mark.parametrize("name", DOORS)
def test_a_door_raises_its_documented_errors_only(name):
    door, rng = DOORS[name], np.random.default_rng(7)
    inputs = [*door.first(), *kept_inputs(name)[:200]]
    assert inputs
    for data in inputs:
        enter(door, data)
    for _ in range(150):
        octets = np.frombuffer(inputs[rng.integers(len(inputs))], np.uint8)[:1500].copy()
        octets[rng.integers(0, len(octets), 3)] = rng.integers(0, 256, 3)
        cut = int(rng.integers(1, len(octets) + 1)) if rng.random() < 0.5 else len(octets)
        enter(door, octets[:cut].tobytes())


@pytest.mark.parametrize("name", [name for name in DOORS if name not in ("registers", "training")])
def test_a_door_lets_its_first_input_in(name):
    DOORS[name].enter(DOORS[name].first()[0])


BROKEN = """
import sys
from iswitch.replay import messages
from sim.bench.mutant import mutant
from sim.fuzz import doors, parsers
doors.parse_replay_message = mutant(messages, "len(payload) < _ROWS + _END", "len(payload) < 0").parse
parsers.fuzz_one("replay_message", [f"-artifact_prefix={sys.argv[1]}/", "-runs=20000", "-seed=1", sys.argv[2]])
"""


@pytest.mark.mutant
@pytest.mark.slow
def test_a_parser_without_a_check_of_the_length_is_noticed_and_the_input_kept(tmp_path):
    needed("atheris")
    first = tmp_path / "first"
    first.mkdir()
    for number, data in enumerate(DOORS["replay_message"].first()):
        (first / str(number)).write_bytes(data)
    command = [sys.executable, "-c", BROKEN, str(tmp_path), str(first)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode and "requires a buffer" in done.stdout + done.stderr
    assert list(tmp_path.glob("crash-*"))
