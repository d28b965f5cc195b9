"""What C takes from the network for a replay client, under random datagrams and sanitizers."""

import os
import re
import subprocess
import sys

import pytest

from sim.emulator.toolchain import ROOT
from sim.fuzz.replay_client import IN_PROCESS, build
from sim.fuzz.runner import sanitized_environment


def fuzzed(folder, runs, mutant=None):
    """Fuzz the part in C, or a mutant of it, in a process of its own."""
    command = [sys.executable, "-c", IN_PROCESS, str(build(folder, mutant=mutant)), "1", str(runs)]
    environment = sanitized_environment() | {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "host")])}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def test_hostile_datagrams_write_nothing_that_python_would_not(tmp_path):
    found = fuzzed(tmp_path, 150)
    assert not found.returncode, found.stderr
    assert int(found.stdout.split()[0]) > 500


@pytest.mark.mutant
@pytest.mark.parametrize(
    "right, wrong",
    [
        ("length != REPLAY_HEADER_BYTES + bytes + REPLAY_END_BYTES", "0"),
        ("k >= g->next || ", ""),
        ("length != REPLAY_HEADER_BYTES + REPLAY_STATUS_BYTES + REPLAY_END_BYTES", "0"),
        ("length < REPLAY_HEADER_BYTES + REPLAY_END_BYTES || ", ""),
        ("r->low == r->next || ", ""),
        ("u32_at(datagram + REPLAY_TOKEN_AT) != g->token || ", ""),
        ("u32_at(datagram + REPLAY_TOKEN_AT) != r->token || ", ""),
        (" || ((const uint8_t *)g->answered)[k]", ""),
        ("datagram[REPLAY_HEADER_BYTES + REPLAY_OUTCOME_AT] != REPLAY_DONE", "0"),
        ("left < segment ? left : segment;\n        if (!take_data", "segment;\n        if (!take_data"),
    ],
)
def test_the_fuzzer_notices_a_mutant(right, wrong, tmp_path):
    found = fuzzed(tmp_path, 300, mutant=(right, wrong))
    assert found.returncode and re.search("AddressSanitizer|AssertionError", found.stderr)
