"""The pictures of the documentation: `python -m sim.bench.screenshots` makes them."""

import re

import pytest
import typer
from PIL import Image
from typer.testing import CliRunner

from sim.bench import screenshots
from sim.bench.screenshots import PICTURES, SHOTS

MOST_BYTES = 200_000


@pytest.mark.parametrize("shot", SHOTS, ids=lambda shot: shot.name)
def test_a_picture_is_small_and_a_page_shows_it_above_its_command(shot):
    picture = PICTURES / shot.name
    assert picture.stat().st_size < MOST_BYTES
    with Image.open(picture) as opened:
        assert opened.width == shot.width and (
            opened.height < shot.height if shot.trim else opened.height == shot.height
        )
    [text] = [text for page in PICTURES.glob("*.md") if f"]({shot.name})" in (text := page.read_text(encoding="utf-8"))]
    below = text.partition(f"]({shot.name})")[2].partition("\n#")[0]
    assert re.match(r"\n+(!\[.*\n+)*`python -m sim.bench.screenshots`", below)


def test_without_chromium_the_command_says_what_to_install_and_runs_nothing(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(screenshots, "make_runs", lambda folder: pytest.fail("the runs have begun"))
    app = typer.Typer()
    app.command()(screenshots.main)
    done = CliRunner().invoke(app, ["--out", str(tmp_path)], env={"COLUMNS": "200"})
    assert done.exit_code == 2 and "apt-get install" in done.stderr and not [*tmp_path.iterdir()]
