"""What a host does in `test_linux.py`, one command a process: run in a network namespace, with nothing but sockets and
the driver."""

import hashlib
import json
import os
import random
import socket
import struct
import sys
import time
from pathlib import Path

import numpy as np

from iswitch import Worker

ECHO4, REPLY4, ECHO6, REPLY6 = 8, 0, 128, 129
ETH_P_ALL, SOL_PACKET, PACKET_AUXDATA = 3, 263, 8
CHUNK = 1 << 16


def family_of(address: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in address else socket.AF_INET


def checksum(data: bytes) -> int:
    """RFC 1071, by the remainder: 2^16 is 1 modulo 65535."""
    return 0xFFFF - (int.from_bytes(data) << 8 * (len(data) & 1)) % 0xFFFF


def ping(timeout_s: str, size: str, *addresses: str) -> dict[str, bool]:
    """Which of them answer an ICMP echo with the same bytes, within a time, tries a second apart."""
    return {address: answers(address, os.urandom(int(size)), float(timeout_s)) for address in addresses}


def answers(address: str, body: bytes, timeout_s: float) -> bool:
    six = ":" in address
    echo, reply = (ECHO6, REPLY6) if six else (ECHO4, REPLY4)
    protocol = socket.IPPROTO_ICMPV6 if six else socket.IPPROTO_ICMP
    until = time.monotonic() + timeout_s
    with socket.socket(family_of(address), socket.SOCK_RAW, protocol) as raw:
        raw.connect((address, 0))
        number = 0
        while (now := time.monotonic()) < until:
            number += 1
            head = struct.pack(">BBHHH", echo, 0, 0, os.getpid() & 0xFFFF, number)
            if not six:  # the kernel computes ICMPv6's
                head = head[:2] + checksum(head + body).to_bytes(2) + head[4:]
            raw.send(head + body)
            patience = min(until, now + 1)
            while (left := patience - time.monotonic()) > 0:
                raw.settimeout(left)
                try:
                    packet = raw.recv(CHUNK)
                except TimeoutError:
                    break
                message = packet if six else packet[20:]
                if message[0] == reply and message[4:6] == head[4:6] and message[8:] == body:
                    return True
    return False


def sink(address: str, port: str) -> dict[str, object]:
    """Takes one connection, reads it to its end, and answers with the digest."""
    digest, count = hashlib.sha256(), 0
    with socket.create_server((address, int(port)), family=family_of(address)) as server:
        print("listening", flush=True)
        connection, _ = server.accept()
        with connection:
            while data := connection.recv(CHUNK):
                digest.update(data)
                count += len(data)
            connection.sendall(digest.digest())
    return {"bytes": count, "sha256": digest.hexdigest()}


def source(address: str, port: str, size: str) -> dict[str, object]:
    """Sends random bytes and reads the digest of what the other end has got."""
    data = random.Random(size).randbytes(int(size))
    with socket.create_connection((address, int(port)), timeout=60) as connection:
        connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)
        told = b""
        while part := connection.recv(CHUNK):
            told += part
    return {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest(), "told": told.hex()}


def send_tagged(interface: str, destination: str, tag: str, size: str) -> dict[str, str]:
    """One frame with a VLAN tag, sent until it is told to stop: nobody repeats a raw frame that a full queue
    dropped."""
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as raw:
        raw.bind((interface, 0))
        mac = raw.getsockname()[4]
        body = random.Random(size).randbytes(int(size) - 18)
        frame = bytes.fromhex(destination.replace(":", "")) + mac + struct.pack(">HHH", 0x8100, int(tag), 0x88B5) + body
        while True:
            raw.send(frame)
            print(body.hex(), flush=True)
            time.sleep(0.2)  # nobody says whether it came; faster than this a full queue only stays full


def receive_tagged(interface: str) -> dict[str, object]:
    """The tag (which the kernel takes out of the frame) and the body of the next frame of EtherType 0x88B5."""
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL)) as raw:
        raw.setsockopt(SOL_PACKET, PACKET_AUXDATA, 1)
        raw.bind((interface, ETH_P_ALL))
        raw.settimeout(20)
        while True:
            frame, ancillary, _, _ = raw.recvmsg(CHUNK, 256)
            if frame[12:14] == b"\x88\xb5":
                (auxiliary,) = [
                    data for level, kind, data in ancillary if (level, kind) == (SOL_PACKET, PACKET_AUXDATA)
                ]
                return {"tag": struct.unpack("=IIIHHHH", auxiliary[:20])[5], "body": frame[14:].hex()}


def train(switch: str, rank: str, world: str, size: str, stop: str, progress: str) -> dict[str, int]:
    """Sums arrays that everybody can predict, until one of the workers has seen the file `stop`: the last element says
    so to all."""
    own, everybody, length = int(rank), range(int(world)), int(size)
    part = lambda worker, step: ((np.arange(length) * (worker + 3) + step) % 1009).astype(np.float32)
    rounds = wrong = 0
    with Worker(switch, rank=own, world=int(world), key=1, join_timeout_s=60, timeout_s=60) as worker:
        stopping = False
        while not stopping:
            array = np.append(part(own, rounds), np.float32(Path(stop).exists()))
            worker.allreduce(array)
            expected = sum(part(other, rounds) for other in everybody)
            wrong += int((array[:-1] != expected).sum())
            stopping, rounds = bool(array[-1]), rounds + 1
            Path(progress).write_text(str(rounds))
    return {"rounds": rounds, "wrong": wrong}


if __name__ == "__main__":
    commands = {
        "ping": ping,
        "sink": sink,
        "source": source,
        "send-tagged": send_tagged,
        "receive-tagged": receive_tagged,
        "train": train,
    }
    print(json.dumps(commands[sys.argv[1]](*sys.argv[2:])))
