"""The table of counts in docs/boards.md: written, read again, and compared."""

import pytest

from hw.board.expected import BEGIN, COLUMNS, END, TABLE, TOLERANCE, differences, read, update

ONE = {"LUT": 1000, "FF": 40_000, "RAMB36": 20, "RAMB18": 3, "URAM": 0, "DSP": 100, "levels": 7}


@pytest.fixture
def path(tmp_path):
    made = tmp_path / "boards.md"
    made.write_text(f"# Boards\n\nBefore.\n\n{BEGIN}\n{END}\n\nAfter | it.\n")
    return made


def test_rows_are_read_as_they_were_written_and_nothing_else_changes(path):
    update({"a": ONE, "b": ONE | {"LUT": 1}}, path)
    update({"a": ONE | {"FF": 2, "seconds": 8, "paths": []}, "c": ONE}, path)
    assert read(path) == {"a": ONE | {"FF": 2}, "b": ONE | {"LUT": 1}, "c": ONE}
    assert list(read(path)) == ["a", "b", "c"]
    update({}, path, order=("c", "none", "a"))
    assert list(read(path)) == ["c", "a", "b"]
    text = path.read_text()
    assert text.startswith(f"# Boards\n\nBefore.\n\n{BEGIN}\n| design | LUT | FF |") and text.endswith(
        f"|\n{END}\n\nAfter | it.\n"
    )
    assert "| b | 1 | 40,000 | 20 | 3 | 0 | 100 | 7 |" in text


def test_the_table_of_the_docs_is_read():
    assert all(row.keys() == set(COLUMNS) and row["LUT"] > 0 and row["levels"] > 0 for row in read().values())
    before = TABLE.read_text(encoding="utf-8")
    update({}, TABLE)
    assert TABLE.read_text(encoding="utf-8") == before


@pytest.mark.parametrize("text", ["", f"{BEGIN}", f"{END}", f"{BEGIN}\n{END}\n{BEGIN}\n{END}"])
def test_table_wrong(text, path):
    path.write_text(text)
    with pytest.raises(ValueError, match="must have one table of counts"):
        read(path)


@pytest.mark.parametrize(
    "row", ["| a | 1 | 2 |", "| a | 1 | 2 | 3 | 4 | 5 | 6 | many |", "| a | 1 | 2 | 3 | 4 | 5 | 6 | -7 |"]
)
def test_row_wrong(row, path):
    path.write_text(f"{BEGIN}\n| design |\n|---|\n{row}\n{END}\n")
    with pytest.raises(ValueError, match="a name and 7 numbers"):
        read(path)


@pytest.mark.parametrize("column", ["LUT", "FF", "DSP"])
def test_growth_and_shrinking_are_noticed_beyond_the_tolerance(column):
    edge = round(ONE[column] * TOLERANCE)
    for change in (-edge, -1, 0, 1, edge):
        assert differences("a", ONE | {column: ONE[column] + change}, ONE) == []
    (grew,) = differences("a", ONE | {column: ONE[column] + edge + 1}, ONE)
    (shrank,) = differences("a", ONE | {column: ONE[column] - edge - 1}, ONE)
    assert grew.startswith(f"{column} of a grew from") and shrank.startswith(f"{column} of a shrank from")
    assert grew.endswith("python -m hw.board.utilisation --update --only a")


def test_levels_and_what_was_none_have_no_tolerance():
    assert len(differences("a", ONE | {"levels": 8, "URAM": 1}, ONE)) == 2
    assert len(differences("a", ONE | {"levels": 6}, ONE)) == 1
    assert differences("a", ONE, ONE) == []
