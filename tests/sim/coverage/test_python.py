"""The shares of lines and branches of the Python package."""

from pathlib import Path

import typer
from typer.testing import CliRunner

from sim.coverage.python import File, kept, least_covered, main, of_summary, part_of, table

DOCS = Path(__file__).parents[3] / "docs"


def test_a_part_has_the_sums_of_its_files():
    files = {
        "host/iswitch/wire/frames.py": File(8, 10, 1, 4),
        "host/iswitch/wire/formats.py": File(2, 10, 0, 0),
        "host/iswitch/worker.py": File(5, 5, 2, 2),
    }
    assert table(files).splitlines()[2:] == [
        "| iswitch | 5 of 5, 100 % | 2 of 2, 100 % |",
        "| wire | 10 of 20, 50 % | 1 of 4, 25 % |",
        "| all | 15 of 25, 60 % | 3 of 6, 50 % |",
    ]
    assert least_covered(files, 2).splitlines()[2:] == [
        "| `host/iswitch/wire/formats.py` | 2 of 10, 20 % |  |",
        "| `host/iswitch/wire/frames.py` | 8 of 10, 80 % | 1 of 4, 25 % |",
    ]


def test_figures_are_those_of_the_report():
    summary = {"covered_lines": 3, "num_statements": 4, "covered_branches": 1, "num_branches": 2, "missing_lines": 1}
    assert of_summary(summary) == File(3, 4, 1, 2) and of_summary(summary).left == 2


def test_a_file_belongs_to_its_folder():
    assert part_of("host/iswitch/plan/allreduce/files.py") == "plan"
    assert part_of("host/iswitch/errors.py") == "iswitch"


def test_the_command_of_sim_coverage_python_prints_the_tables_of_a_file(tmp_path):
    path = tmp_path / "kept.json"
    path.write_text('{"host/iswitch/wire/frames.py": [8, 10, 1, 4]}')
    app = typer.Typer()
    app.command()(main)
    shown = CliRunner().invoke(app, ["--show", str(path)])
    assert shown.exit_code == 0 and f"{table(kept(path))}\n\n{least_covered(kept(path))}" in shown.output


def test_the_docs_show_the_shares():
    """If this fails: `python -m sim.coverage.python --show docs/python_coverage.json` prints the table."""
    page = (DOCS / "verification.md").read_text(encoding="utf-8")
    assert table(kept(DOCS / "python_coverage.json")) in page
