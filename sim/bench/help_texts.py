"""The words of a help text as a terminal prints it: rich reads `[plan]` as markup and prints none of it, and cuts long
words in narrow columns."""

import re

import click

__all__ = ["unprinted"]


def unprinted(command: click.Command, printed: str) -> list[str]:
    """Return the words of a command's help texts that the printed help lacks, whatever the width of the terminal."""
    shown = _packed(printed)
    texts = [command.help or "", *(getattr(parameter, "help", None) or "" for parameter in command.params)]
    return [word for text in texts for word in text.replace("\\[", "[").split() if _packed(word) not in shown]


def _packed(text: str) -> str:
    """Return the text without line breaks and boxes."""
    return re.sub(r"[\s│╭╮╰╯─]+", "", text)
