"""Command lines of the training scripts: each field of an options dataclass is an option."""

import dataclasses
import inspect
import re
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer
from rich.console import Console

from examples.common.processes import LaunchError
from iswitch import IswitchError

__all__ = ["Folder", "Switch", "application", "check_ranges", "exit_code", "parse_addresses", "stop_on_signals"]

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


def application(main: Callable[..., object]) -> typer.Typer:
    """Return the command-line program of `main(options, ...)`.

    Parameters
    ----------
    main : Callable
        Its first parameter is annotated with a dataclass, whose fields are annotated with `typer.Option`. Its other
        parameters have defaults. It returns False if the program failed. Its docstring is the help text.

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

    def program(**given: Any) -> None:
        try:
            options = options_class(**{field.name: given.pop(field.name) for field in fields})
        except ValueError as error:
            raise typer.BadParameter(str(error)) from None
        raise typer.Exit(exit_code(lambda: main(options, **given)))

    parameters = [other.replace(kind=inspect.Parameter.KEYWORD_ONLY) for other in others] + fields
    # typer reads the signature; mypy does not know that functions may have this attribute.
    program.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    program.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    program.__doc__ = main.__doc__
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    app.command()(program)
    return app
