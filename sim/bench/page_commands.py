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
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import typer.core

__all__ = ["PAGES", "Command", "commands", "complaint", "program", "programs"]

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
_PROGRAMS = ("make", "iswitch", "python", "python3", "torchrun", "pip", "pytest")
_OTHERS = ("apt-get", "docker", "ip", "openFPGALoader", "torchft_lighthouse")
"""Programs whose options are not checked."""
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
    "test_... ": "",
}
"""What stands in a page for a value of the reader's, and such a value. A file only has to exist."""


class Command(NamedTuple):
    """A command of a page.

    Attributes
    ----------
    text : str
        The command, without prompt, comment, redirection and variables of the environment.
    in_sentence : bool
        The page shows it within a sentence, in which `iswitch plan` may be the name of the program only.
    """

    text: str
    in_sentence: bool = False


def commands(page: str) -> list[Command]:
    """Return the commands of a page in Markdown: lines of blocks, and code within sentences, each once.

    Parameters
    ----------
    page : str
        Text of the page.

    Returns
    -------
    list of Command
        Commands of programs of the project, and of some others.
    """
    blocks = re.findall(r"^```(?!mermaid)[a-z]*\n(.*?)^```", page, re.M | re.S)
    prose = re.sub(r"^```.*?^```", "", page, flags=re.M | re.S)
    lines = [line for block in blocks for line in block.splitlines()]
    lines += [line for line in prose.splitlines() if line.startswith("    ")]
    inline = [" ".join(code.split()) for code in re.findall(r"`([^`]+)`", re.sub(r"^    .*$", "", prose, flags=re.M))]
    shown = dict.fromkeys(filter(None, map(_command, lines)), False)
    named = dict.fromkeys(filter(None, map(_command, inline)), True)
    return [Command(text, in_sentence) for text, in_sentence in (named | shown).items()]


def _command(text: str) -> str:
    """Return the command of a line, or an empty text."""
    text = re.sub(r"^\$ |\s+(&\s*)?(#.*)?$|\s>.*$", "", text.strip())
    text = re.sub(r"^(sudo )?([A-Z_]+=\S+ )*(\S*/bin/)?", "", text.replace("[--", "--").replace(" 1]", " 1"))
    name, _, rest = text.partition(" ")
    return (
        text
        if name in _PROGRAMS + _OTHERS and rest and rest[0] not in "/*=|`" or re.match(r"python3? -[mc] ", text)
        else ""
    )


def program(command: str) -> str:
    """Return the program of a command: a module, a script, a subcommand of `iswitch`, a target of `make`, or a name."""
    name, *arguments = command.split()
    if name in ("python", "python3", "torchrun"):
        if "-m" in arguments:
            return arguments[arguments.index("-m") + 1]
        return next((f"python {argument}" for argument in arguments if argument.endswith(".py")), name)
    return f"{name} {arguments[0]}" if name in ("iswitch", "make") else name


def programs(command: str) -> list[str]:
    """Return the programs that a command runs: of a target of `make` the Python modules, or the target itself."""
    ran = [program(line) for line in _recipe(command.split()[1:])] if command.startswith("make ") else []
    return ran or [program(command)]


def complaint(command: Command) -> str:
    """Return what is wrong with a command, or an empty text.

    Parameters
    ----------
    command : Command
        One of `commands`.
    """
    text = command.text
    for placeholder, value in _PLACEHOLDERS.items():
        text = re.sub(rf"(?<![A-Z_.]){re.escape(placeholder)}(?![A-Z_=])", value, text)
    files = [word for word in text.split() if word.startswith(("docs/", "examples/", "tests/")) and "..." not in word]
    found = next(filter(None, (_missing_file(name.partition("::")[0]) for name in files)), "") or _complaint(text)
    if found and command.in_sentence and program(text) == text:
        return _complaint(f"{text} --help")
    return found


def _complaint(text: str) -> str:
    name, *arguments = shlex.split(text)
    if name in _OTHERS:
        return ""
    if name == "make":
        return _make_complaint(arguments)
    if name == "pip":
        return _pip_complaint(arguments)
    if name == "iswitch":
        return _module_complaint("iswitch.tools.cli", arguments)
    if name == "pytest":
        return _pytest_complaint(arguments)
    if name == "torchrun":
        return _torchrun_complaint(arguments)
    return _python_complaint(arguments)


def _python_complaint(arguments: list[str]) -> str:
    """Return what is wrong with arguments of Python: a module, a program of one line, or a script."""
    match arguments:
        case ["-m", "venv", *_]:
            return ""
        case ["-m", "pytest", *rest]:
            return _pytest_complaint(rest)
        case ["-m", module, *rest]:
            return _module_complaint(module, rest)
        case ["-c", line]:
            compile(line, "a page", "exec")
            return ""
    return _missing_file(arguments[0])


def _missing_file(name: str) -> str:
    return "" if name in _saved_scripts() or (ROOT / name).exists() else f"there is no file {name}"


@cache
def _saved_scripts() -> set[str]:
    """Return the names of the scripts that the pages show, and that their readers save."""
    return {name for page in PAGES for name in re.findall(r"[Ss]ave (?:it|this) as\s`(\S+)`", page.read_text())}


def _torchrun_complaint(arguments: list[str]) -> str:
    from torch.distributed.run import get_args_parser

    said = io.StringIO()
    try:
        with redirect_stderr(said):
            parsed = get_args_parser().parse_args(arguments)
    except SystemExit:
        return said.getvalue()
    script = [parsed.training_script, *parsed.training_script_args]
    return _python_complaint(["-m", *script] if parsed.module else script)


def _pytest_complaint(arguments: list[str]) -> str:
    """Return what is wrong with the options of pytest."""
    options = [argument.partition("=")[0] for argument in arguments if argument.startswith("-")]
    return next((f"pytest has no option {option}" for option in options if option not in _pytest_options()), "")


@cache
def _pytest_options() -> set[str]:
    command = [sys.executable, "-m", "pytest", "--help"]
    shown = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return set(re.findall(r"(?<![\w-])--?[a-z][\w-]*", shown))


def _make_complaint(arguments: list[str]) -> str:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for variable in (argument.partition("=")[0] for argument in arguments if "=" in argument):
        if not re.search(rf"^{variable}\s*\?=", makefile, re.M):
            return f"the Makefile has no variable {variable}"
    try:
        lines = _recipe(arguments)
    except subprocess.CalledProcessError as error:
        return error.stderr.strip()
    return next((found for line in lines if (found := _complaint(line))), "")


def _recipe(arguments: list[str]) -> list[str]:
    """Return the commands of Python that a target runs."""
    shown = subprocess.run(["make", "-n", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    lines = shown.replace("\\\n", " ").splitlines()
    return [line.strip() for line in lines if re.match(r"\s*python ", line)]


def _pip_complaint(arguments: list[str]) -> str:
    known = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    for listed in re.findall(r"(?:\.|iswitch-rl)\[([^\]]*)\]", " ".join(arguments)):
        if unknown := set(listed.split(",")) - known.keys():
            return f"pyproject.toml has no extra {', '.join(sorted(unknown))}"
    return ""


def _module_complaint(module: str, arguments: list[str]) -> str:
    spec = importlib.util.find_spec(module)
    if spec and spec.submodule_search_locations:
        spec = importlib.util.find_spec(f"{module}.__main__")
    if spec is None or spec.origin is None:
        return f"there is no program {module}"
    source = Path(spec.origin).read_text(encoding="utf-8")
    if "__main__" not in f"{spec.origin} {source}":
        return f"{module} is no program"
    if not _parses(source):
        return "" if not arguments or "sys.argv" in source else f"{module} has no options"
    said = io.StringIO()
    try:
        with (
            _only_parsing(),
            warnings.catch_warnings(action="ignore", category=RuntimeWarning),  # of runpy: the module is imported
            redirect_stderr(said),
            redirect_stdout(said),
            mock.patch.object(sys, "argv", [module, *arguments]),
        ):
            runpy.run_module(module, run_name="__main__")
    except SystemExit as end:
        if end.code not in (0, None):
            return said.getvalue() or str(end.code)
    return ""


def _parses(source: str) -> bool:
    """The module declares options, by typer or argparse."""
    names = {node.id for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Name)}
    return not names.isdisjoint({"typer", "argparse", "ArgumentParser", "app"})


@contextmanager
def _only_parsing() -> Iterator[None]:
    """Let command lines be parsed, and their programs do nothing."""
    parse = argparse.ArgumentParser.parse_args

    def parse_and_end(parser: argparse.ArgumentParser, *given: Any, **named: Any) -> None:
        parse(parser, *given, **named)
        raise SystemExit(0)

    with (
        mock.patch.object(typer.core.TyperCommand, "invoke", return_value=None),
        mock.patch.object(argparse.ArgumentParser, "parse_args", parse_and_end),
    ):
        yield
