"""The figures of docs/results.md that do not depend on the machine are those that are measured."""

import pytest
from rich.console import Console

from sim.bench import counted_figures
from sim.bench.counted_figures import COUNTED, PAGE, keys_of, measured, renewed, require_known

TABLE = """| key | before | figure |
|---|---|---|
| `aggregate.latency_cycles.*`: all sizes | 38 | 1 |
| the same: `mixed.words_per_cycle`, `mixed.share_least` | | 1 |
| `emulator.verilator.khz` | | 356 |
text about `mixed.words_per_cycle` | 1 |"""
FIGURES = {
    "aggregate.latency_cycles.1_elements": 24,
    "aggregate.latency_cycles.44_elements": 1025,
    "aggregate.latency_cycles.last_to_last.1_elements": 99,
    "mixed.words_per_cycle": 0.5,
    "mixed.share_least": 0.5,
    "emulator.verilator.khz": 1,
}


def test_the_last_cell_of_a_row_has_the_figures_of_its_keys_and_nothing_else_changes():
    assert renewed(TABLE, FIGURES) == TABLE.replace("| 38 | 1 |", "| 38 | 24; 1,025 |").replace(
        "share_least` | | 1 |", "share_least` | | 0.5000 |"
    )


def test_a_row_whose_figures_were_not_all_measured_stays():
    assert renewed(TABLE, {"mixed.share_least": 0.25}) == TABLE


def test_a_key_that_does_not_exist_is_named():
    require_known(TABLE, FIGURES)
    with pytest.raises(ValueError, match=r"no figure aggregate\.latency_cycle, which"):
        require_known(TABLE.replace("latency_cycles.*", "latency_cycle"), FIGURES)


def test_the_page_has_rows_of_every_counted_measurement():
    found = [key for row in PAGE.read_text(encoding="utf-8").split("\n") for key in keys_of(row)]
    assert all(any(key.startswith(name.split(".")[0]) for key in found) for name in COUNTED)
    assert len(found) > 40


def test_what_is_measured_is_written(monkeypatch, tmp_path, capsys):
    page = tmp_path / "results.md"
    page.write_text("| `mixed.share_least` | 1 |\n", encoding="utf-8")
    monkeypatch.setattr(counted_figures, "PAGE", page)
    monkeypatch.setattr(counted_figures, "measured", lambda names, console: FIGURES)
    counted_figures.main()
    assert page.read_text(encoding="utf-8") == "| `mixed.share_least` | 0.5000 |\n"
    assert "| `mixed.share_least` | 0.5000 |" in capsys.readouterr().out


@pytest.mark.parametrize("name", COUNTED)
def test_the_page_has_the_figures_that_are_measured(name):
    page = PAGE.read_text(encoding="utf-8")
    assert renewed(page, measured([name], Console())) == page
