"""Reads a board's registers as any station would: with READ messages, through a port."""

from iswitch.wire import REGISTERS_PER_READ, Outcome, PortCounter, Register, Stat, port_counter_register
from sim.emulator.device import Device
from sim.emulator.engine import BoardError
from sim.frames.client import Client, parse

__all__ = ["counters", "read"]

READER_MAC = b"\x02READ\xfe"
READER_IP = bytes([10, 255, 255, 254])
READER_UDP_PORT = 0x5244
CYCLES_PER_READ = 100_000


def read(board: Device, address: int, *, port: int = 0, now_us: int = 0) -> list[int]:
    """Return eight registers from an address. Other frames that leave at the port meanwhile are lost, so call it when
    the switch is idle."""
    client = Client(READER_MAC, READER_IP, READER_UDP_PORT, port, 0, 0, switch_mac=board.mac, switch_ip=board.ip)
    if not board.send(port, client.read(address)):
        raise BoardError(f"the queue of port {port} is full")
    board.run(CYCLES_PER_READ, now_us)
    for frame in board.receive(port):
        if frame.data[:6] != READER_MAC:
            continue
        try:
            reply = parse(frame.data)
        except ValueError as error:
            raise BoardError(f"the switch did not answer READ {address} as it should: {error}") from error
        if reply.ack is not None and int(reply.ack["address"]) == address:
            return [int(register) for register in reply.ack["registers"]]
    raise BoardError(f"the switch did not answer READ {address} at port {port}")


def counters(board: Device, *, now_us: int = 0) -> dict[str, int]:
    """Return every non-zero counter by name. The reads themselves are counted as CONTROL, and as frames of port 0."""
    registers = {Register.OUTCOMES + outcome: outcome.name for outcome in Outcome}
    registers |= {Register.STATS + stat: stat.name for stat in Stat}
    registers |= {
        port_counter_register(port, counter): f"port {port} {counter.name}"
        for port in range(board.config.ports)
        for counter in PortCounter
    }
    found: dict[str, int] = {}
    for start in sorted({address - address % REGISTERS_PER_READ for address in registers}):
        for address, value in enumerate(read(board, start, now_us=now_us), start):
            if value and address in registers:
                found[registers[address]] = value
    return found
