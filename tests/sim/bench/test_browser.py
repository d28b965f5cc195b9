"""Pages in Chromium, which set-up does not ask for: so most laws are in the slow tier, and fail without Chromium."""

from datetime import UTC, datetime

import pytest
from PIL import Image

from iswitch.config import Config
from iswitch.report.charts import Series, line_chart
from iswitch.report.markup import document, section, table, tiles
from sim.bench.browser import chromium_program, run_script, take_picture

PAGE = (
    "<!DOCTYPE html><style>body{background:#00ff00}@media (prefers-color-scheme:dark){body{background:#0000ff}}</style>"
)
OVERFLOW = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
FAR_OUT = """[...document.querySelectorAll('figure svg text')].filter(each => {
  const box = each.getBoundingClientRect(), card = each.closest('figure').getBoundingClientRect();
  return box.left < card.left || box.right > card.right || box.bottom > card.bottom}).length"""
OVERLAPS = """[...document.querySelectorAll('figure svg')].map(svg => {
  const boxes = [...svg.querySelectorAll('text')].map(each => each.getBoundingClientRect());
  return boxes.filter((a, i) => boxes.slice(0, i).some(b =>
    a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom)).length
}).reduce((a, b) => a + b, 0)"""


@pytest.fixture
def page(tmp_path):
    path = tmp_path / "page.html"
    path.write_text(PAGE, encoding="utf-8")
    return path


def test_a_machine_without_chromium_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(FileNotFoundError, match=r"apt-get install .*chromium"):
        chromium_program()


def test_a_page_that_does_not_exist_is_an_error(tmp_path):
    with pytest.raises(FileNotFoundError, match="no page"):
        take_picture(tmp_path / "page.html", tmp_path / "page.png", width=600, height=200)


@pytest.mark.slow
@pytest.mark.parametrize(("dark", "colour"), [(False, (0, 255, 0)), (True, (0, 0, 255))])
def test_a_picture_has_the_size_and_the_colours_that_its_reader_prefers(page, tmp_path, dark, colour):
    take_picture(page, tmp_path / "page.png", width=600, height=200, dark=dark)
    with Image.open(tmp_path / "page.png") as picture:
        assert picture.size == (600, 200) and picture.getcolors() == [(600 * 200, colour)]


@pytest.mark.slow
@pytest.mark.parametrize("width", [500, 760, 1280, 1920])
def test_the_parts_of_a_report_fit_its_page_at_every_width(tmp_path, width):
    lines = [Series(f"job {k}", [(x, 1e9 * k * x) for x in range(60)]) for k in range(12)]
    chart = line_chart("A chart", lines, x_label="environment steps of all workers", y_label="members since the start")
    rows = [
        (f"counter{k}", k, "a sentence that is long enough to need two lines on a narrow page " * 3) for k in range(5)
    ]
    path = tmp_path / "report.html"
    sizes = {name: getattr(Config(), name) for name in ("ports", "members", "window", "elements", "bus_bits")}
    parts = [tiles(sizes), section("Charts", f'<div class="charts">{chart * 3}</div>')]
    parts.append(section("Tables", table(("counter", "total", "meaning"), rows)))
    path.write_text(document("A page", str(datetime.now(UTC)), parts, "The end."), encoding="utf-8")
    assert run_script(path, OVERFLOW, width=width) == "0"
    assert run_script(path, FAR_OUT, width=width) == "0"
    assert run_script(path, OVERLAPS, width=width) == "0"


@pytest.mark.slow
def test_what_does_not_fit_is_noticed(tmp_path):
    path = tmp_path / "wide.html"
    path.write_text("<!DOCTYPE html><p style='width:2000px'>wide</p>", encoding="utf-8")
    assert int(run_script(path, OVERFLOW, width=800)) > 1000
    over = "<text x='0' y='20'>one</text><text x='9' y='20'>two</text><text x='900' y='20'>three</text>"
    path.write_text(f"<!DOCTYPE html><figure style='width:300px'><svg>{over}</svg></figure>", encoding="utf-8")
    assert run_script(path, OVERLAPS, width=800) == "1" and run_script(path, FAR_OUT, width=800) == "1"


@pytest.mark.slow
def test_a_trimmed_picture_begins_and_ends_with_its_content(tmp_path):
    path = tmp_path / "page.html"
    path.write_text(
        "<!DOCTYPE html><body style='margin:40px'><div style='height:30px;background:#f00'>", encoding="utf-8"
    )
    take_picture(path, tmp_path / "page.png", width=600, height=200, trim=True)
    with Image.open(tmp_path / "page.png") as picture:
        assert picture.size == (600, 30) and picture.getpixel((300, 0)) == (255, 0, 0)
