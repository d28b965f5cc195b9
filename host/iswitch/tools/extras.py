"""The name of this distribution, its extras, and sentences for a user who lacks one."""

import importlib.metadata
import importlib.util

from iswitch.wire import VERSION

__all__ = ["DISTRIBUTION", "EXTRAS", "demands", "extra_of", "lacking", "version"]

DISTRIBUTION = "iswitch-rl"
"""What `pip` calls the distribution. The package to import is `iswitch`."""

EXTRAS: dict[str, dict[str, str]] = {
    "cli": {"rich": "rich", "typer": "typer"},
    "plan": {
        "gymnasium": "gymnasium",
        "highspy": "highspy",
        "matplotlib": "matplotlib",
        "networkx": "networkx",
        "pyyaml": "yaml",
    },
    "torch": {"torch": "torch"},
}
"""Of each extra the distributions, and the module that each of them brings."""


def lacking(extra: str) -> list[str]:
    """Return the distributions of an extra that are not installed."""
    return [name for name, module in EXTRAS[extra].items() if importlib.util.find_spec(module) is None]


def extra_of(module: str | None) -> str | None:
    """Return the extra that brings a module, or the package above it; None if no extra brings it."""
    package = (module or "").partition(".")[0]
    return next((extra for extra, brings in EXTRAS.items() if package in brings.values()), None)


def demands(what: str, names: list[str], *extras: str) -> str:
    """Return a sentence: what needs which distributions, and how to install them.

    Parameters
    ----------
    what : str
        The command, as the subject of the sentence.
    names : list of str
        Distributions that are not installed.
    extras : str
        The extras to install.
    """
    wanted = f"[{','.join(extras)}]"
    listed = " and ".join([", ".join(names[:-1]), *names[-1:]] if len(names) > 1 else names)
    return (
        f"{what} needs {listed}, which {'is' if len(names) == 1 else 'are'} not installed: "
        f"pip install '{DISTRIBUTION}{wanted}', or in a checkout of the project pip install '.{wanted}'"
    )


def version() -> str:
    """Return the versions of the distribution and of the protocol, for people."""
    try:
        installed = importlib.metadata.version(DISTRIBUTION)
    except importlib.metadata.PackageNotFoundError:
        from iswitch import __version__

        installed = f"{__version__} (not installed, runs from a checkout)"
    return f"{DISTRIBUTION} {installed}, protocol version {VERSION}"
