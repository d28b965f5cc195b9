"""A Prometheus endpoint: a thread that answers HTTP requests with metrics in the text format."""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from iswitch.distribution import describe_missing, missing_from

if TYPE_CHECKING:
    from prometheus_client.core import Metric

__all__ = ["Endpoint", "exposition", "require_client", "serve_families"]


class Endpoint:
    """A Prometheus endpoint, which a thread serves until `close`. Also a context manager.

    Parameters
    ----------
    server : wsgiref.simple_server.WSGIServer
        The server, whose thread runs.
    thread : threading.Thread
        That thread.

    Attributes
    ----------
    port : int
        TCP port at which the endpoint listens.
    """

    def __init__(self, server: Any, thread: Any):
        self._server, self._thread = server, thread
        self.port: int = server.server_port

    def close(self) -> None:
        """Stop the thread and close the port."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def __enter__(self) -> "Endpoint":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Source:
    """What a registry of prometheus_client collects from."""

    def __init__(self, families: Callable[[], Iterable["Metric"]]):
        self._families = families

    def collect(self) -> Iterable["Metric"]:
        """Return the families of metrics as they are now."""
        return self._families()


def require_client(user: str, *extras: str) -> None:
    """Raise ImportError with a remedy if `prometheus_client` is not installed.

    Parameters
    ----------
    user : str
        What needs the package, as the subject of the sentence.
    *extras : str
        The extras to install.
    """
    if missing := missing_from("metrics"):
        raise ImportError(describe_missing(user, missing, *extras))


def exposition(families: Callable[[], Iterable["Metric"]]) -> str:
    """Return metrics in Prometheus' text format, version 0.0.4.

    Parameters
    ----------
    families : callable
        Returns the families of metrics, of `prometheus_client.core`.
    """
    from prometheus_client import generate_latest

    return generate_latest(_Source(families)).decode()  # type: ignore[arg-type]  # only `collect` is called


def serve_families(families: Callable[[], Iterable["Metric"]], *, port: int, address: str) -> Endpoint:
    """Serve metrics at `http://address:port/metrics`.

    Parameters
    ----------
    families : callable
        Returns the families of metrics, of `prometheus_client.core`, anew for each request. Threads call it.
    port : int
        TCP port; 0 for any free one.
    address : str
        Local address at which the endpoint listens.

    Returns
    -------
    Endpoint
        The endpoint.

    Raises
    ------
    OSError
        If the port is in use, or the address is not one of this machine.
    """
    from prometheus_client import CollectorRegistry, start_http_server

    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Source(families))  # type: ignore[arg-type]  # only `collect` is called
    return Endpoint(*start_http_server(port, address, registry))
