"""A worker at the level of frames: builds the frames of a worker, parses those of the switch. No sockets, no timers.

The golden model, the gateware benches and the emulator share it, and it computes its checksums on its own. Every
builder takes header or body fields by name (`epoch=7`, `token=0`) that override the client's state, so that tests can
make malformed frames.
"""

import struct
from typing import Any, NamedTuple

import numpy as np

from iswitch.wire import (
    ACK,
    CONTROL,
    ETHERTYPE_IPV4,
    FLAGS_SHIFT,
    FRAME,
    FRAME_BYTES,
    HEADER,
    IP_PROTOCOL_UDP,
    IP_TTL,
    IPV4_DONT_FRAGMENT,
    IPV4_VERSION_IHL,
    NO_MEMBER,
    RESULT_FRAME,
    TAIL,
    TAIL_BYTES,
    UDP_PORT,
    AckRegister,
    Action,
    ContributionFlag,
    Format,
    Mode,
    Reason,
    Type,
    ones_complement_sum,
    version_type,
)
from iswitch.wire.formats import FORMATS

__all__ = ["SWITCH_IP", "SWITCH_MAC", "Client", "Reply", "ordinary", "parse", "udp_frame"]

SWITCH_MAC = bytes.fromhex("025749000001")
SWITCH_IP = bytes([10, 0, 0, 1])

ADDRESS_BYTES = FRAME_BYTES - HEADER.itemsize


def udp_frame(
    *,
    eth_dst: bytes,
    eth_src: bytes,
    ip_src: bytes,
    ip_dst: bytes,
    udp_src: int,
    udp_dst: int,
    payload: bytes,
    checksum: bool = True,
) -> bytes:
    """Return Ethernet, IPv4 and UDP around a payload, with correct checksums; `checksum=False` sends UDP checksum 0
    ("none"). Frames below 60 bytes are padded with zeros."""
    udp_length = 8 + len(payload)
    head = IPV4_VERSION_IHL, 0, 20 + udp_length, 0, IPV4_DONT_FRAGMENT, IP_TTL, IP_PROTOCOL_UDP, 0
    ip = struct.pack(">BBHHHBBH4s4s", *head, ip_src, ip_dst)
    ip = ip[:10] + struct.pack(">H", 0xFFFF - ones_complement_sum(ip)) + ip[12:]
    udp = struct.pack(">HHHH", udp_src, udp_dst, udp_length, 0)
    if checksum:
        pseudo = ip_src + ip_dst + struct.pack(">BBH", 0, IP_PROTOCOL_UDP, udp_length)
        value = 0xFFFF - ones_complement_sum(pseudo + udp + payload)
        udp = udp[:6] + struct.pack(">H", value or 0xFFFF)
    return (eth_dst + eth_src + ETHERTYPE_IPV4.to_bytes(2) + ip + udp + payload).ljust(60, b"\0")


def ordinary(eth_dst: bytes, eth_src: bytes, size: int = 60, eth_type: int = 0x88B5) -> bytes:
    """Return an ordinary frame, `size` bytes without FCS, filled with a counting pattern."""
    head = eth_dst + eth_src + struct.pack(">H", eth_type)
    return head + bytes(k & 0xFF for k in range(size - len(head)))


class Reply(NamedTuple):
    """A parsed frame from the switch. `header` is the first 64 bytes as `FRAME`, or `RESULT_FRAME`; `numbers` the
    payload of a result as u32, `tail` its end; `ack` the body of an acknowledgement. Parts that a type does not have
    are None or empty."""

    type: Type
    header: np.void
    numbers: np.ndarray
    tail: np.void | None
    ack: np.void | None

    @property
    def flags(self) -> int:
        return int(self.header["format_flags"]) >> 4

    @property
    def reason(self) -> Reason:
        """The reason in an acknowledgement or a notice."""
        return Reason(int(self.header["count"] if self.ack is None else self.ack["reason"]))


def parse(frame: bytes) -> Reply:
    """Parse a frame of the switch. Raises ValueError unless lengths, checksums and complement are correct."""
    header = np.frombuffer(frame, FRAME, 1)[0]
    ip, udp = frame[14:34], frame[34:]
    if int(header["ip_length"]) != len(frame) - 14 or int(header["udp_length"]) != len(udp):
        raise ValueError(
            f"lengths must agree with {len(frame)} bytes, not {header['ip_length']}, {header['udp_length']}"
        )
    if ones_complement_sum(ip) != 0xFFFF:
        raise ValueError(f"IPv4 checksum must be right, not {header['ip_checksum']:#06x}")
    pseudo = frame[26:34] + struct.pack(">BBH", 0, IP_PROTOCOL_UDP, len(udp))
    if header["udp_checksum"] == 0 or ones_complement_sum(pseudo + udp) != 0xFFFF:
        raise ValueError(f"UDP checksum must be right and present, not {header['udp_checksum']:#06x}")
    if ones_complement_sum(udp[8:]) != 0xFFFF:
        raise ValueError("UDP payload must sum to zero in ones' complement")
    kind = Type(int(header["version_type"]) & 0xF)
    if kind == Type.RESULT:
        header = np.frombuffer(frame, RESULT_FRAME, 1)[0]
    payload = frame[FRAME_BYTES:]
    numbers: np.ndarray = np.empty(0, "<u4")
    tail = ack = None
    if kind == Type.RESULT:
        numbers = np.frombuffer(
            payload[:-TAIL_BYTES], f"<u{FORMATS[Format(int(header['format_flags']) & 0xF)].element.itemsize}"
        )
        tail = np.frombuffer(payload[-TAIL_BYTES:], TAIL, 1)[0]
    elif kind == Type.ACK:
        ack = np.frombuffer(payload, ACK, 1)[0]
    return Reply(kind, header, numbers, tail, ack)


class Client:
    """One worker.

    `port` is its switch port. `member`, `challenge`, `epoch`, `first_seq` and `window` come from acknowledgements (see
    `take`). `job_token` is the one that the client proposes, afterwards the job's. `number` is the last control number
    used. `ranks` is the Join's `members`: in a tree of switches, the worker's global rank as a bit.
    """

    def __init__(
        self,
        mac: bytes,
        ip: bytes,
        udp_port: int,
        port: int,
        job: int,
        key: int,
        *,
        nonce: int | None = None,
        switch_mac: bytes = SWITCH_MAC,
        switch_ip: bytes = SWITCH_IP,
    ) -> None:
        self.mac, self.ip, self.udp_port, self.port, self.job, self.key = mac, ip, udp_port, port, job, key
        self.switch_mac, self.switch_ip = switch_mac, switch_ip
        self.nonce = nonce if nonce is not None else int.from_bytes(b"\x01" + mac, "little")
        self.member, self.epoch, self.challenge = NO_MEMBER, 0, 0
        self.token = self.chosen_token()
        self.is_member = False
        self.first_seq, self.window, self.elements, self.number = 0, 0, 0, 0
        self.format = Format.WINDOW64
        self.settings: dict[str, int] = {}
        self.ranks = 0
        self.job_token = self.proposed_job_token = int.from_bytes(mac[2:], "big") ^ 0x4A6F6254

    def chosen_token(self) -> int:
        """Return the token that goes with the client's nonce; a worker draws its own at random."""
        return (self.nonce * 0x9E3779B97F4A7C15 >> 32) % 2**32

    @classmethod
    def numbered(cls, index: int, *, port: int | None = None, job: int = 0, key: int = 0x6B6579) -> "Client":
        """Return the worker with MAC 02:00:00:00:00:index, address 10.0.0.(100 + index), by default at port `index`."""
        return cls(
            bytes([2, 0, 0, 0, 0, index]),
            bytes([10, 0, 0, 100 + index]),
            40000 + index,
            index if port is None else port,
            job,
            key,
        )

    def frame(self, kind: int, payload: bytes = b"", *, checksum: bool = True, **fields: Any) -> bytes:
        """Return any frame to the switch; `fields` override the header's."""
        header = np.zeros(1, HEADER)
        values = {
            "version_type": version_type(kind),
            "job": self.job,
            "epoch": self.epoch,
            "member": self.member,
            "token": self.token,
        } | fields
        for name, value in values.items():
            header[name] = value
        return self.datagram(header.tobytes() + payload, checksum=checksum)

    def datagram(self, payload: bytes, *, checksum: bool = True) -> bytes:
        """Return a frame to the switch with any UDP payload."""
        return udp_frame(
            eth_dst=self.switch_mac,
            eth_src=self.mac,
            ip_src=self.ip,
            ip_dst=self.switch_ip,
            udp_src=self.udp_port,
            udp_dst=UDP_PORT,
            payload=payload,
            checksum=checksum,
        )

    def contribution(
        self,
        seq: int,
        numbers: Any,
        *,
        behind: int = 0,
        flags: int = 0,
        format: int | None = None,
        collective: int = 0,
        digest: int = 0,
        checksum: bool = True,
        **fields: Any,
    ) -> bytes:
        """Return a contribution. `numbers`: an array of elements as they are on the wire, or raw bytes.
        `collective`: the 32 bits of a `Collective`."""
        payload = numbers if isinstance(numbers, bytes) else np.ascontiguousarray(numbers).tobytes()
        form = self.format if format is None else format
        return self.frame(
            Type.CONTRIBUTION,
            payload,
            checksum=checksum,
            **(
                {
                    "seq": seq % 2**32,
                    "behind": behind,
                    "count": digest,
                    "members": collective,
                    "format_flags": flags << FLAGS_SHIFT | form,
                }
                | fields
            ),
        )

    def receipt(self, seq: int, *, behind: int = 0, want: bool = False, **fields: Any) -> bytes:
        """Return a receipt: the worker lacks no result below `seq - behind`; with `want` it requests the result of
        `seq`."""
        flags = ContributionFlag.WANT if want else 0
        return self.frame(
            Type.RECEIPT, **({"seq": seq % 2**32, "behind": behind, "format_flags": flags << FLAGS_SHIFT} | fields)
        )

    def claim(self, k: int, weights: int, **fields: Any) -> bytes:
        """Return a claim: the member's vector `k` is ready, computed with weights that lack the results from seq
        `weights` on."""
        return self.frame(Type.CLAIM, **({"seq": k, "members": weights % 2**32} | fields))

    def control(self, action: int, body: dict[str, int] | None = None, **fields: Any) -> bytes:
        """Return any control message; `body` names fields of `CONTROL`, `fields` those of the header."""
        record = np.zeros(1, CONTROL)
        for name, value in ({"action": action} | (body or {})).items():
            record[name] = value
        return self.frame(Type.CONTROL, record.tobytes(), **fields)

    def join(
        self,
        *,
        member: int | None = None,
        token: int | None = None,
        nonce: int | None = None,
        challenge: int | None = None,
        seq: int = 0,
        **settings: int,
    ) -> bytes:
        """Return a Join.

        The first call names the job's settings: `world`, `elements`, and if they differ from the defaults `threshold`
        (world), `format` (window64), `fraction` (44), `mode` (quarantine), `deadline_us`, `evict_us`, `staleness`,
        `segments`, `key`, `operator_key`. Later calls repeat them, with the challenge that an answer has said.
        """
        if settings:
            world = settings["world"]
            self.settings = {
                "threshold": world,
                "format": Format.WINDOW64,
                "fraction": 44,
                "mode": Mode.QUARANTINE,
                "segments": 0,
                "staleness": 0,
                "key": self.key,
            } | settings
            self.format = Format(self.settings["format"]) if self.settings["format"] in FORMATS else self.format
        known = self.challenge if challenge is None else challenge
        asked = {"job_token": self.proposed_job_token, "challenge": known} | self.settings
        body = asked | {"nonce": self.nonce if nonce is None else nonce}
        return self.control(
            Action.JOIN,
            body,
            seq=seq,
            member=self.member if member is None else member,
            token=self.token if token is None else token,
            members=self.ranks,
        )

    def rising(self, action: int, body: dict[str, int] | None = None, **fields: Any) -> bytes:
        """Return a control message with the next number; `seq=` repeats an older one."""
        if "seq" not in fields:
            self.number += 1
            fields["seq"] = self.number
        return self.control(action, {"nonce": self.nonce} | (body or {}), **fields)

    def leave(self, **fields: Any) -> bytes:
        return self.rising(Action.LEAVE, **fields)

    def reset(self, **fields: Any) -> bytes:
        return self.rising(Action.RESET, **fields)

    def end_job(self, key: int | None = None, challenge: int | None = None, **fields: Any) -> bytes:
        """Return the END of the job by its key, or with `operator_key=`. The sender need not be a member."""
        return self.by_key(Action.END, key, challenge, **fields)

    def resume(self, key: int | None = None, challenge: int | None = None, **fields: Any) -> bytes:
        """Return the RESUME of the job by its key, or with `operator_key=`. The sender need not be a member."""
        return self.by_key(Action.RESUME, key, challenge, **fields)

    def by_key(
        self, action: Action, key: int | None, challenge: int | None, *, operator_key: int = 0, **fields: Any
    ) -> bytes:
        """Return an END or a RESUME; by default with the job's key and the last challenge."""
        body = {"key": self.key if key is None else key, "nonce": self.nonce, "operator_key": operator_key}
        return self.control(
            action,
            body | {"challenge": self.challenge if challenge is None else challenge},
            **({"member": NO_MEMBER, "token": 0} | fields),
        )

    def set_h(self, threshold: int, **fields: Any) -> bytes:
        return self.rising(Action.SET_H, {"threshold": threshold}, **fields)

    def fbcast(self, segment: int, **fields: Any) -> bytes:
        """Return an FBCAST: the segment of this seq completes with the contributions that it has."""
        return self.rising(Action.FBCAST, {"segment": segment % 2**32}, **fields)

    def halt(self, on: bool = True, **fields: Any) -> bytes:
        return self.rising(Action.HALT, {"mode": int(on)}, **fields)

    def read(self, address: int, **fields: Any) -> bytes:
        return self.control(Action.READ, {"address": address, "nonce": self.nonce}, **fields)

    def take(self, frame: bytes) -> Reply:
        """`parse` a frame, and learn from the answer to a Join or an END: the challenge, and if the Join is granted,
        member, epoch, first_seq, window, elements and the job's token. A new grant starts the control numbers anew."""
        reply = parse(frame)
        if reply.ack is None or reply.ack["action"] not in (Action.JOIN, Action.END, Action.RESUME):
            return reply
        if int(reply.ack["nonce"]) != self.nonce:
            return reply
        self.challenge = int(reply.ack["registers"][AckRegister.CHALLENGE])
        if reply.ack["action"] == Action.JOIN and reply.ack["reason"] == Reason.DONE:
            if not self.is_member:
                self.number, self.is_member = 0, True
            self.member, self.epoch = int(reply.header["member"]), int(reply.header["epoch"])
            self.first_seq, self.window = int(reply.ack["first_seq"]), int(reply.ack["window"])
            self.elements = int(reply.ack["elements"])
            self.job_token = int(reply.ack["registers"][AckRegister.JOB_TOKEN])
        return reply

    def forget(self, nonce: int) -> None:
        """Start again as another incarnation with another nonce."""
        self.nonce, self.member, self.epoch, self.number, self.is_member = nonce, NO_MEMBER, 0, 0, False
        self.token = self.chosen_token()
