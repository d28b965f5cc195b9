"""What the emulator needs of a switch, whichever engine computes it."""

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from iswitch.config import Config
from sim.emulator.engine import Board, Frame
from sim.emulator.software import SoftwareBoard

__all__ = ["ENGINES", "Device", "open_device"]

ENGINES = ("verilator", "cxxrtl", "software")
"""Two simulators that compile the RTL, and the software switch."""


class Device(Protocol):
    """A switch that computes frames. Members as of `Board`."""

    config: Config
    mac: bytes
    ip: bytes

    @property
    def engine(self) -> str: ...
    @property
    def cycles(self) -> int: ...
    def close(self) -> None: ...
    def parent(self, job: int, *, port: int, mac: bytes, ip: bytes, ranks: int) -> None: ...
    def send(self, port: int, frame: bytes, error: bool = False) -> bool: ...
    def send_many(self, port: int, frames: Sequence[bytes], errors: Sequence[bool] | None = None) -> int: ...
    def room(self, port: int) -> int: ...
    def run(self, max_cycles: int = 1_000_000, now_us: int = 0) -> int: ...
    def receive(self, port: int) -> list[Frame]: ...
    def link(self, port: int, up: bool) -> None: ...
    def reset(self) -> None: ...


def open_device(
    config: Config | None,
    *,
    engine: str,
    seed: int,
    mac: bytes,
    ip: bytes,
    operator_key: int = 0,
    path: Path | None = None,
) -> Device:
    """Open a switch.

    Parameters
    ----------
    engine : str
        One of `ENGINES`.
    path : Path, optional
        A compiled board, which then decides about `config` and `engine`.
    config, seed, mac, ip, operator_key
        As of `Board`.

    Raises
    ------
    ValueError
        If there is no such engine.
    """
    if engine not in ENGINES:
        raise ValueError(f"engine must be one of {', '.join(ENGINES)}, not {engine!r}")
    if engine == "software" and path is None:
        return SoftwareBoard(config, seed=seed, operator_key=operator_key, mac=mac, ip=ip)
    return Board(config, engine=engine, seed=seed, operator_key=operator_key, mac=mac, ip=ip, path=path)
