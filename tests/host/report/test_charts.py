"""Charts are well-formed SVG whose lines go through their points."""

import re
from html import unescape
from xml.etree import ElementTree

import pytest

from iswitch.report.charts import Series, line_chart, share_bar

SVG = "{http://www.w3.org/2000/svg}"
EVIL = "<b>&\"'</script>"


def chart(*series):
    return line_chart("A & B", series, x_label="seconds", y_label="per second")


def drawing(text):
    """The chart itself, which comes before the keys of the legend."""
    return ElementTree.fromstring(re.search(r"<svg.*?</svg>", text, re.DOTALL)[0])


def lines(root):
    return [
        [tuple(map(float, point.split(","))) for point in each.get("points").split()]
        for each in root.iter(f"{SVG}polyline")
    ]


def test_a_line_is_linear_in_its_points():
    [line] = lines(drawing(chart(Series("a", [(0, 0), (1, 5), (2, 10), (4, 10)]))))
    (x0, y0), (x1, y1), (x2, y2), (x3, y3) = line
    assert x1 - x0 == pytest.approx(x2 - x1, abs=0.2) and x3 - x2 == pytest.approx(x2 - x0, abs=0.2)
    assert y0 - y1 == pytest.approx(y1 - y2, abs=0.2) and y1 > y2 == y3  # SVG counts downwards


def test_a_line_has_a_gap_where_a_value_is_none():
    root = drawing(chart(Series("a", [(0, 1), (1, 2), (2, None), (3, 4), (4, 3), (5, None), (6, 1)])))
    assert [len(line) for line in lines(root)] == [2, 2] and len([*root.iter(f"{SVG}circle")]) == 1


def test_the_axes_have_numbers_and_units():
    texts = [each.text for each in drawing(chart(Series("a", [(0, 0), (10, 2000)]))).iter(f"{SVG}text")]
    assert {"0", "10", "2k", "seconds", "per second"} <= set(texts)


def test_a_tooltip_lists_every_line_at_its_place():
    root = drawing(chart(Series("a", [(0, 1), (1, 2)]), Series("b", [(0, 3), (1, None)])))
    assert [each.text for each in root.iter(f"{SVG}title")] == [
        "seconds: 0\na: 1\nb: 3",
        "seconds: 1\na: 2\nb: no value",
    ]


def test_many_points_have_few_tooltips_and_a_whole_line():
    root = drawing(chart(Series("a", [(k, k % 7) for k in range(5000)])))
    assert len(lines(root)[0]) == 5000 and len([*root.iter(f"{SVG}title")]) <= 240


def test_every_line_is_in_the_legend_and_names_are_escaped():
    text = line_chart(EVIL, [Series(EVIL, [(0, 1)])], x_label=EVIL, y_label=EVIL, note=EVIL)
    text += share_bar(EVIL, {EVIL: 1.0}, EVIL)
    assert "<b>" not in text and "</script>" not in text
    found = [unescape(each) for each in re.findall(r"</svg>([^<]*)</li>", text)]
    assert found[0] == EVIL and found[1].startswith(EVIL)
    for each in re.findall(r"<svg.*?</svg>", text, re.DOTALL):
        ElementTree.fromstring(each)


def test_a_chart_without_values_says_so():
    assert "nothing yet" in line_chart("a", [Series("b", [(0, None)])], x_label="", y_label="", empty="nothing yet")
    assert "no values" in share_bar("a", {"b": 0.0}, "s")


def test_one_point_and_negative_values_have_a_place_in_the_chart():
    for points in ([(0, 0)], [(0.0, -5.0)], [(3, -5), (4, -1)]):
        for each in drawing(chart(Series("a", points))).iter():
            for name in ("cx", "cy", "x1", "y1"):
                assert 0 <= float(each.get(name, 0)) <= 640


def test_the_parts_of_a_bar_fill_it():
    root = drawing(share_bar("time", {"environment": 1.0, "compute": 2.0, "aggregation": 5.0}, "s"))
    widths = [float(each.get("width")) for each in root.iter(f"{SVG}rect")]
    assert sum(widths) == pytest.approx(640, abs=0.5) and widths[1] == pytest.approx(2 * widths[0], abs=0.2)
    assert [each.text for each in root.iter(f"{SVG}title")][2] == "aggregation: 5.0 s, 62.5%"
