"""The reader of Tcl on what constraints contain, and on what no Tcl contains."""

import pytest

from hw.board.xilinx.tcl import Nested, TclError, commands, words


def test_words_end_at_spaces_braces_and_brackets():
    (command,) = commands("set_property -dict {PACKAGE_PIN A1 IOSTANDARD {LVDS}} [get_ports {led[0]}]")
    assert command == ("set_property", "-dict", "PACKAGE_PIN A1 IOSTANDARD {LVDS}", Nested("get_ports {led[0]}"))
    assert command[3].commands == [("get_ports", "led[0]")]


def test_commands_end_at_lines_and_semicolons():
    assert list(commands("a b; c\nd \\\n  e\n\n")) == [("a", "b"), ("c",), ("d", "e")]


def test_comments_stand_where_commands_begin():
    assert list(commands("# a {\nb # c\n  ;# d [\n")) == [("b", "#", "c")]


def test_brackets_nest_and_may_stand_in_a_word():
    assert list(commands("set x [a [b c] {]}]")) == [("set", "x", Nested("a [b c] {]}"))]
    assert list(commands("get_ports led[0] $x")) == [("get_ports", "led[0]", "$x")]


def test_quotes_hold_lines_and_escapes():
    assert list(commands('puts "a [b "c"]\n\\" d"')) == [("puts", 'a [b "c"]\n\\" d')]


def test_lists():
    assert words("a {b c} d[1]") == ["a", "b c", "d[1]"]


@pytest.mark.parametrize("text", ["a {b", "a [b", 'a "b', "a {b}c"])
def test_unclosed_brace_bracket_or_quote_is_reported(text):
    with pytest.raises(TclError):
        list(commands(text))
