"""Commands that the pages of the documentation show, and whether their programs take them as they are written.

No program runs: its command line is parsed, and parsing ends it. So a command with a misspelt option, a target that the
Makefile does not have, or a file that is missing is found in little time, also where the program runs for hours.
"""

import argparse
import ast
import importlib.util
import io
import re
import runpy
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from unittest import mock

import typer.core

__all__ = ["commands", "complaint", "modules", "program"]

ROOT = Path(__file__).parents[2]
_PROGRAMS = ("make", "iswitch", "python", "python3", "torchrun", "pip", "pytest")
_PLACEHOLDERS = {
    "<name>": "colorlight_5a_75b",
    "<board>": "colorlight_5a_75b",
    "<design>": "netfpga_sume",
    "0x...": "0x1",
    "PORT=...": "PORT=28000",
    "HOST:PORT": "127.0.0.1:27000",
    "ADDRESS": "127.0.0.1",
    "KEY": "7",
    "FILE.pcap": "README.md",
    "port*.pcap": "README.md",
    "BEFORE.so": "README.md",
    "FOLDER": "build",
    "FILE": "README.md",
}
"""What stands in a page for a value of the reader's, and such a value. A file only has to exist."""


def commands(page: str) -> list[str]:
    """Return the commands of a page in Markdown: lines of blocks, and code within sentences, each once.

    Parameters
    ----------
    page : str
        Text of the page.

    Returns
    -------
    list of str
        Commands of programs of the project, of pip, torchrun and pytest, without prompt, comment, redirection and
        variables of the environment.
    """
    blocks = re.findall(r"^```[a-z]*\n(.*?)^```", page, re.M | re.S)
    prose = re.sub(r"^```.*?^```", "", page, flags=re.M | re.S)
    lines = [line for block in blocks for line in block.splitlines()]
    lines += [line for line in prose.splitlines() if line.startswith("    ")]
    inline = [" ".join(code.split()) for code in re.findall(r"`([^`]+)`", re.sub(r"^    .*$", "", prose, flags=re.M))]
    found = {command: None for text in (*lines, *inline) if (command := _command(text))}
    return list(found)


def _command(text: str) -> str:
    """Return the command of a line, or an empty text."""
    text = re.sub(r"^\$ |\s+#.*$|\s+&?$|\s>.*$", "", text.strip())
    text = re.sub(r"^(sudo )?([A-Z_]+=\S+ )*(\S*/bin/)?", "", text.replace("[--", "--").replace(" 1]", " 1"))
    name, _, rest = text.partition(" ")
    return text if name in _PROGRAMS and rest and rest[0] not in "/-*=|`" or re.match(r"python3? -[mc] ", text) else ""


def program(command: str) -> str:
    """Return the program of a command: a target of `make`, a subcommand of `iswitch`, or a module."""
    words = command.split()
    if words[0] in ("python", "python3", "torchrun") and "-m" in words:
        return words[words.index("-m") + 1]
    return " ".join(words[:2])


def modules(command: str) -> list[str]:
    """Return the Python modules that a command runs, those of a target of `make` too."""
    if command.startswith("make "):
        return [program(line) for line in _recipe(command.split()[1:])]
    return [program(command)]


def complaint(command: str) -> str:
    """Return what is wrong with a command, or an empty text.

    Parameters
    ----------
    command : str
        One of `commands`.
    """
    for placeholder, value in _PLACEHOLDERS.items():
        command = re.sub(rf"(?<![A-Z_.]){re.escape(placeholder)}(?![A-Z_=])", value, command)
    name, *arguments = shlex.split(command)
    if name == "make":
        return _make_complaint(arguments)
    if name == "pip":
        return _pip_complaint(arguments)
    if name == "iswitch":
        return _module_complaint("iswitch.tools.cli", arguments)
    if name in ("python", "python3", "torchrun") and "-m" in arguments:
        module, *rest = arguments[arguments.index("-m") + 1 :]
        return "" if module in ("venv", "pytest") else _module_complaint(module, rest)
    if name in ("python", "python3") and arguments[0] == "-c":
        compile(arguments[1], "a page", "exec")
    return ""


def _make_complaint(arguments: list[str]) -> str:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for variable in (argument.partition("=")[0] for argument in arguments if "=" in argument):
        if not re.search(rf"^{variable}\s*\?=", makefile, re.M):
            return f"the Makefile has no variable {variable}"
    try:
        lines = _recipe(arguments)
    except subprocess.CalledProcessError as error:
        return error.stderr.strip()
    return next((found for line in lines if (found := complaint(line))), "")


def _recipe(arguments: list[str]) -> list[str]:
    """Return the modules that a target runs, as commands."""
    shown = subprocess.run(["make", "-n", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    lines = shown.replace("\\\n", " ").splitlines()
    return [line.strip() for line in lines if re.match(r"\s*python -m (?!pytest)", line)]


def _pip_complaint(arguments: list[str]) -> str:
    known = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    for listed in re.findall(r"(?:\.|iswitch-rl)\[([^\]]*)\]", " ".join(arguments)):
        if unknown := set(listed.split(",")) - known.keys():
            return f"pyproject.toml has no extra {', '.join(sorted(unknown))}"
    return ""


def _module_complaint(module: str, arguments: list[str]) -> str:
    spec = importlib.util.find_spec(module)
    if spec is None:
        return f"there is no module {module}"
    if spec.submodule_search_locations:
        spec = importlib.util.find_spec(f"{module}.__main__")
    if spec is None or spec.origin is None:
        return f"{module} is a package that does not run"
    if not _parses(Path(spec.origin).read_text(encoding="utf-8")):
        return (
            "" if not arguments or "sys.argv" in Path(spec.origin).read_text(encoding="utf-8") else "takes no options"
        )
    said = io.StringIO()
    try:
        with (
            _only_parsing(),
            redirect_stderr(said),
            redirect_stdout(said),
            mock.patch.object(sys, "argv", [module, *arguments]),
        ):
            runpy.run_module(module, run_name="__main__")
    except SystemExit as end:
        if end.code not in (0, None):
            return f"{end.code}: {said.getvalue()}"
    return ""


def _parses(source: str) -> bool:
    """The module declares options, by typer or argparse."""
    names = {node.id for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Name)}
    return "typer" in names or "argparse" in names or "ArgumentParser" in names or "app" in names


@contextmanager
def _only_parsing() -> Iterator[None]:
    """Let command lines be parsed, and their programs do nothing."""
    parse = argparse.ArgumentParser.parse_args

    def parse_and_end(parser: argparse.ArgumentParser, *given: object, **named: object) -> None:
        parse(parser, *given, **named)  # type: ignore[call-overload]
        raise SystemExit(0)

    with (
        mock.patch.object(typer.core.TyperCommand, "invoke", return_value=None),
        mock.patch.object(argparse.ArgumentParser, "parse_args", parse_and_end),
    ):
        yield
