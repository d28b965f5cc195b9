"""The name and version of this distribution, its optional extras, and messages for a user who lacks one of them."""

import importlib.util

from iswitch.wire import VERSION

__all__ = ["DISTRIBUTION", "EXTRAS", "__version__", "describe_missing", "extra_of", "missing_from", "version"]

__version__ = "0.1.0"

DISTRIBUTION = "iswitch-rl"
"""The name that `pip` knows. The package to import is `iswitch`."""

EXTRAS: dict[str, dict[str, str]] = {
    "cli": {"rich": "rich", "typer": "typer"},
    "metrics": {"prometheus-client": "prometheus_client"},
    "plan": {"highspy": "highspy", "networkx": "networkx", "pydantic": "pydantic", "pyyaml": "yaml"},
    "schedule": {"gymnasium": "gymnasium", "matplotlib": "matplotlib"},
    "torch": {"torch": "torch"},
    "torchft": {"torchft": "torchft"},
}
"""The distributions of each extra, and the module that each distribution installs."""


def missing_from(extra: str) -> list[str]:
    """Return the distributions of an extra that are not installed."""
    return [name for name, module in EXTRAS[extra].items() if importlib.util.find_spec(module) is None]


def extra_of(module: str | None) -> str | None:
    """Return the extra that installs a module, or the package above the module; None if no extra does."""
    package = (module or "").partition(".")[0]
    return next((extra for extra, modules in EXTRAS.items() if package in modules.values()), None)


def describe_missing(command: str, names: list[str], *extras: str) -> str:
    """Return a sentence that says which distributions a command needs, and how to install them.

    Parameters
    ----------
    command : str
        The command, as the subject of the sentence.
    names : list of str
        Distributions that are not installed.
    *extras : str
        The extras to install.
    """
    wanted = f"[{','.join(extras)}]"
    listed = " and ".join([", ".join(names[:-1]), *names[-1:]] if len(names) > 1 else names)
    return (
        f"{command} needs {listed}, which {'is' if len(names) == 1 else 'are'} not installed: "
        f"pip install '{DISTRIBUTION}{wanted}', or in a checkout of the project pip install '.{wanted}'"
    )


def version() -> str:
    """Return the versions of the distribution and of the protocol, as text for people."""
    import importlib.metadata  # here, since it takes a tenth of the time of `import iswitch`

    try:
        installed = importlib.metadata.version(DISTRIBUTION)
    except importlib.metadata.PackageNotFoundError:
        installed = f"{__version__} (not installed, runs from a checkout)"
    return f"{DISTRIBUTION} {installed}, protocol version {VERSION}"
