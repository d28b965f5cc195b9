"""Clients at the ports of an emulated board, for tests and measurements that send one frame after another."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from iswitch.config import Config
from sim.emulator.engine import Board
from sim.frames.client import Client, Reply

__all__ = ["checked_board", "exchange", "form_job"]


@contextmanager
def checked_board(config: Config | None = None) -> Iterator[Board]:
    """Yield a board that keeps a trace.

    Raises
    ------
    AssertionError
        If the switch has broken a handshake of its outputs.
    """
    with Board(config or Config(), seed=5, trace=True, watch=True) as board:
        yield board
        assert not board.violations()


def exchange(board: Board, client: Client, frame: bytes, now_us: int = 1) -> list[Reply]:
    """Send a client's frame, wait until the switch is idle, and return what the client has received.

    Frames to other stations are lost.
    """
    board.send(client.port, frame)
    board.run(now_us=now_us)
    sent = [frame.data for port in range(board.config.ports) for frame in board.receive(port)]
    return [client.take(data) for data in sent if data[:6] == client.mac]


def form_job(board: Board, clients: Sequence[Client], **settings: int) -> None:
    """Let the clients form a job. Its `world` is their number, and its segments are as long as the switch takes, unless
    `settings` say otherwise."""
    settings = {"world": len(clients), "elements": board.config.elements} | settings
    for named in (settings, {}, {}):
        for client in clients:
            exchange(board, client, client.join(**named))
