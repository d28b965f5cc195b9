"""Every command of README.md and docs/ is one that its program takes."""

import re

import pytest

from sim.bench.page_commands import PAGES, Command, commands, complaint

pytest.importorskip("torch")

SHOWN = {command for page in PAGES for command in commands(page.read_text(encoding="utf-8"))}


BENCHES, DEMOS = "python -m sim", "make (?!test|wireshark)"


def complaints(pattern):
    """The commands that match a pattern and with which something is wrong, and what it is."""
    chosen = [command for command in sorted(SHOWN) if re.match(pattern, command.text)]
    assert len(chosen) > 10
    return {command.text: found for command in chosen if (found := complaint(command))}


def test_every_command_of_iswitch_pip_and_torchrun_is_taken():
    assert complaints("(iswitch|pip|torchrun) ") == {}


def test_every_target_of_make_but_tests_is_taken():
    assert complaints(DEMOS) == {}


def test_every_simulation_and_bench_is_taken():
    assert complaints(BENCHES) == {}


def test_every_other_command_is_taken():
    assert complaints(f"(?!{BENCHES}|{DEMOS}|(iswitch|pip|torchrun) )") == {}


@pytest.mark.mutant
@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("iswitch switch --member 32", "No such option: --member"),
        ("iswitch swich", "No such command"),
        ("iswitch end-job", "Missing option"),
        ("iswitch plan docs/no_such_plan.yaml", "docs/no_such_plan.yaml"),
        ("make demmo", "demmo"),
        ("make demo LOSSES=0.05", "LOSSES"),
        ("make demo LOSS=much", "Invalid value for '--loss'"),
        ("pip install '.[command]'", "command"),
        ("python trane.py", "trane.py"),
        ("python -m sim.bench.flod", "sim.bench.flod"),
        ("python -m sim.bench.units", "sim.bench.units"),
        ("python -m sim.bench.imports --all", "no options"),
        ("python -m sim.bench.flood --second 1", "No such option: --second"),
        ("python -m sim.prove --tables", "--tables"),
        ("python -m hw.board.utilisation --half", "No such option: --half"),
        ("python -m pytest --tiers slow", "--tiers"),
        ("pytest tests/hw/test_swich.py::test_sums", "test_swich.py"),
        ("torchrun --process-per-node 4 train.py", "--process-per-node"),
        ("torchrun --nproc-per-node 4 -m examples.torchrun.a2c --presets cartpole", "No such option: --presets"),
    ],
    ids=lambda text: text if " " in text else "",
)
def test_what_a_program_does_not_take_is_noticed(text, wrong):
    assert commands(f"Text.\n\n    {text}\n") == [Command(text)]
    assert wrong in complaint(Command(text))


def test_commands_are_found_as_a_reader_finds_them():
    page = """
Run `make demo  LOSS=0.05`, `.venv/bin/iswitch top` or `iswitch`; `make` lists more, as `a == b` and `make -n` do not.

    $ .venv/bin/iswitch switch --replay default &     # a comment
    ISWITCH_KEY=7 python train.py > log

```
python -m sim.bench.compare   # a comment
```

```mermaid
iswitch --> iswitch.worker
```
"""
    assert set(commands(page)) == {
        Command("make demo LOSS=0.05", in_sentence=True),
        Command("iswitch top", in_sentence=True),
        Command("make -n", in_sentence=True),
        Command("iswitch switch --replay default"),
        Command("python train.py"),
        Command("python -m sim.bench.compare"),
    }


def test_the_name_of_a_program_in_a_sentence_needs_no_arguments():
    assert complaint(Command("iswitch end-job", in_sentence=True)) == ""
    assert "Missing option" in complaint(Command("iswitch end-job"))
    assert complaint(Command("iswitch ends-job", in_sentence=True))
