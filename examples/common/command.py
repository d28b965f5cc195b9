"""Command lines of the training scripts: each field of an options dataclass is an option."""

import dataclasses
import inspect
import re
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal, get_type_hints

import typer
from rich.console import Console

from examples.common.processes import LaunchError
from iswitch import IswitchError

__all__ = [
    "Folder",
    "Presets",
    "Switch",
    "application",
    "check_ranges",
    "exit_code",
    "parse_addresses",
    "stop_on_signals",
]

Switch = Annotated[
    str,
    typer.Option(
        metavar="HOST:PORT[-PORT][,...]",
        help="Addresses of the switch's ports. The processes use them in turn, and again from the first.",
    ),
]
Folder = Annotated[Path, typer.Option("--out", metavar="FOLDER", help="Folder of the results.")]


def parse_addresses(text: str) -> list[str]:
    """Return ["host:27000", "host:27001"] for "host:27000,host:27001" and for "host:27000-27001"."""
    addresses: list[str] = []
    for part in text.split(","):
        if ports := re.fullmatch(r"(.+):(\d+)-(\d+)", part):
            addresses += [f"{ports[1]}:{port}" for port in range(int(ports[2]), int(ports[3]) + 1)]
        else:
            addresses.append(part)
    return addresses


def check_ranges(options: Any) -> None:
    """Check each field of a dataclass against the `min` and `max` of its `typer.Option`.

    Raises
    ------
    ValueError
        If a value is out of its range.
    """
    for name, hint in get_type_hints(type(options), include_extras=True).items():
        value = getattr(options, name)
        for option in getattr(hint, "__metadata__", ()):
            low, high = option.min, option.max
            if not ((low is None or low <= value) and (high is None or value <= high)):
                allowed = f"{low} to {high}" if None not in (low, high) else f"at least {low}"
                raise ValueError(f"{type(options).__name__} {name} must be {allowed}, not {value!r}")


@contextmanager
def stop_on_signals() -> Iterator[None]:
    """Let SIGTERM end this process as Ctrl-C does: through every `finally`."""

    def stop(number: int, _: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def exit_code(run: Callable[[], object]) -> int:
    """Run a training and return the program's exit code.

    It is 1 if `run` returns False. If `run` raises an expected error, its message is printed, and the exit code is 1.
    """
    console = Console(stderr=True)
    try:
        with stop_on_signals():
            return 1 if run() is False else 0
    except (LaunchError, IswitchError, ValueError) as error:
        console.print(str(error), style="red", markup=False, highlight=False, soft_wrap=True)
        return 1
    except KeyboardInterrupt:
        console.print("stopped")
        return 130


Presets = Mapping[str, Mapping[str, Any]]
"""By the name of a preset: the fields of the dataclass that it sets, and their values."""


def application(main: Callable[..., object], presets: Presets | None = None) -> typer.Typer:
    """Return the command-line program of `main(options, ...)`.

    Parameters
    ----------
    main : Callable
        Its first parameter is annotated with a dataclass, whose fields are annotated with `typer.Option`. Its other
        parameters have defaults. It returns False if the program failed. Its docstring is the help text.
    presets : Presets, optional
        Choices of the option --preset. The first is the default. Options on the command line win over a preset.

    Returns
    -------
    typer.Typer
        A program with an option for each field of the dataclass and for each other parameter. A ValueError of the
        dataclass is reported as a wrong option.
    """
    first, *others = inspect.signature(main, eval_str=True).parameters.values()
    options_class = first.annotation
    hints = get_type_hints(options_class, include_extras=True)
    fields = [
        inspect.Parameter(
            field.name, inspect.Parameter.KEYWORD_ONLY, default=field.default, annotation=hints[field.name]
        )
        for field in dataclasses.fields(options_class)
    ]

    def program(context: typer.Context, **given: Any) -> None:
        values = {field.name: given.pop(field.name) for field in fields}
        for name, value in presets[given.pop("preset")].items() if presets else ():
            source = context.get_parameter_source(name)
            if source is None or source.name != "COMMANDLINE":
                values[name] = value
        try:
            options = options_class(**values)
        except ValueError as error:
            raise typer.BadParameter(str(error)) from None
        raise typer.Exit(exit_code(lambda: main(options, **given)))

    parameters = [other.replace(kind=inspect.Parameter.KEYWORD_ONLY) for other in others] + fields
    context = inspect.Parameter("context", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)
    parameters.insert(0, context)
    if presets:
        option = typer.Option(help="Environment and hyperparameters; other options win over it.")
        choice = Annotated[Literal[tuple(presets)], option]  # type: ignore[valid-type]  # known only at run time
        parameters.insert(1, context.replace(name="preset", default=next(iter(presets)), annotation=choice))
    program.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # typer reads the attribute
    program.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    program.__doc__ = main.__doc__
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    app.command()(program)
    return app
