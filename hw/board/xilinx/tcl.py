"""The part of Tcl that constraints and project scripts use: words, quotes, braces, brackets, variables. Nothing is
executed."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

__all__ = ["Command", "Nested", "TclError", "Word", "commands", "words"]


class TclError(ValueError):
    """The text is not Tcl, or uses more of Tcl than this parser knows."""


@dataclass(frozen=True)
class Nested:
    """A word in brackets: commands whose result replaces it."""

    text: str

    @property
    def commands(self) -> list["Command"]:
        return list(commands(self.text))


Word = str | Nested
Command = tuple[Word, ...]
"""The words of a command, without braces and quotes; `$name` is not replaced."""

PAIRS = {"{": "}", "[": "]", '"': '"'}


def closing(text: str, at: int) -> int:
    """Return the position at which the bracket, brace or quote at `at` closes. Braces nest and hide all else; quotes
    and brackets do not hide brackets."""
    opener = text[at]
    depth, k = 1, at + 1
    while k < len(text):
        c = text[k]
        if c == "\\":
            k += 1
        elif opener == "{":
            depth += (c == "{") - (c == "}")
            if not depth:
                return k
        elif c == PAIRS[opener]:
            return k
        elif c == "[" or (c in '{"' and opener == "["):
            k = closing(text, k)
        k += 1
    raise TclError(f"{opener!r} of line {text.count(chr(10), 0, at) + 1} is not closed")


def commands(text: str) -> Iterator[Command]:
    """Return the commands of a script; bodies stay words."""
    text = re.sub(r"\\\n[ \t]*", " ", text)
    found: list[Word] = []
    k = 0
    while k < len(text):
        c = text[k]
        if c == "#" and not found:
            end = text.find("\n", k)
            k = len(text) if end < 0 else end
        elif c in "\n;":
            if found:
                yield tuple(found)
            found = []
            k += 1
        elif c in " \t\r":
            k += 1
        elif c in PAIRS:
            end = closing(text, k)
            inside = text[k + 1 : end]
            if end + 1 < len(text) and text[end + 1] not in " \t\r\n;":
                raise TclError(
                    f"characters behind {text[k : end + 1][:40]!r} in line {text.count(chr(10), 0, end) + 1}"
                )
            found.append(Nested(inside) if c == "[" else inside)
            k = end + 1
        else:
            end = k
            while end < len(text) and text[end] not in " \t\r\n;":
                end = closing(text, end) + 1 if text[end] in "[{" and end > k else end + 1
            found.append(text[k:end])
            k = end
    if found:
        yield tuple(found)


def words(text: str) -> list[str]:
    """Return the elements of a list."""
    return [word.text if isinstance(word, Nested) else word for command in commands(text) for word in command]
