"""A packet socket at one end of an Ethernet cable, the kernel's UDP at the other: two network namespaces.

Without the rights to make them, all but the first test are skipped, and the report says why.
"""

import errno
import os
import random
import select
import socket
import struct
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress

import numpy as np
import pytest
from scapy.layers.inet import IP, UDP, IPOption_NOP
from scapy.layers.l2 import Dot1Q, Ether
from scapy.packet import Raw

from iswitch import AsyncWorker, PacketTransport, SwitchUnreachableError, Worker
from iswitch.driver import exchange, packet
from iswitch.driver.ethernet import Fault
from iswitch.driver.exchange import Exchange
from iswitch.driver.next_hop import Route, find_interface, find_mac, find_route
from iswitch.driver.transport import RECEIVE_BYTES
from iswitch.native.records import ExchangeEvent
from iswitch.switch.server import SwitchServer
from iswitch.switch.sizing import config_for
from iswitch.switch.sockets import open_ports
from iswitch.switch.software_switch import SoftwareSwitch
from sim.bench.namespaces import connect, obstacle
from sim.bench.until import until

NEAR, FAR = "10.99.0.1", "10.99.0.2"
SEGMENT, WAIT_S = 1434, 5.0
UDP_SEGMENT = 103


@pytest.fixture(scope="module")
def hosts():
    if why := obstacle():
        pytest.skip(why)
    with connect() as made:
        yield made


@pytest.fixture
def far(hosts):
    """The other host, while the test is at this one."""
    near, far = hosts
    with near.inside():
        yield far


@pytest.fixture
def peer(far):
    """A socket of the kernel at the other host."""
    with far.inside():
        made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    with made:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
        made.bind((FAR, 0))
        made.settimeout(WAIT_S)
        yield made


@contextmanager
def opened(peer, **options):
    """Yield a transport that the peer has connected to, and that knows the peer's MAC address."""
    transport = PacketTransport("{}:{}".format(*peer.getsockname()), **options)
    try:
        for _ in range(50):
            transport.send(b"hello", 5)
            assert peer.recvfrom(10)[0] == b"hello"
            if transport._mac:
                break
        peer.connect((NEAR, transport.endpoints.udp_port))
        yield transport
    finally:
        transport.close()


@pytest.fixture(params=[False, True], ids=["bursts", "frames"])
def transport(request, peer):
    with opened(peer, no_offload=request.param) as made:
        yield made


def octets(size):
    return np.random.default_rng(size).bytes(size)


def send_burst(peer, data, segment_bytes):
    """Let the kernel send datagrams as one buffer (UDP GSO)."""
    peer.sendmsg([data], [(socket.IPPROTO_UDP, UDP_SEGMENT, struct.pack("=H", segment_bytes))])


def received(transport, size):
    """Return bursts with so many bytes: each one's bytes, and the bytes of a datagram."""
    found, buffer = [], memoryview(bytearray(RECEIVE_BYTES))
    while sum(len(data) for data, _ in found) < size:
        got, segment_bytes = transport.receive(buffer, WAIT_S)
        if not got:
            break
        found.append((bytes(buffer[:got]), segment_bytes))
    return found


def nothing_comes(transport, timeout_s=0.05):
    return transport.receive(memoryview(bytearray(RECEIVE_BYTES)), timeout_s) == (0, 0)


def ignored(transport):
    """Wait until a frame was ignored, and return how many were, by the reason."""
    return dict(until(lambda: nothing_comes(transport, 0) and transport.ignored, WAIT_S))


# Rights


def test_without_the_capability_the_error_says_what_helps(monkeypatch):
    def refused(*_):
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr("socket.socket", refused)
    with pytest.raises(PermissionError, match=r"CAP_NET_RAW, which this process lacks: .*`sudo setpriv .*for UDP"):
        PacketTransport("10.0.0.1")


def test_the_kernel_refuses_a_process_without_the_capability(peer):
    child = os.fork()
    if not child:
        status = 1
        with suppress(BaseException):
            os.setuid(65534)
            try:
                PacketTransport(FAR)
            except PermissionError as error:
                status = 0 if "CAP_NET_RAW" in str(error) else 1
        os._exit(status)
    assert os.waitpid(child, 0)[1] == 0


# Sending


@pytest.mark.parametrize("size", [1, 100, SEGMENT, SEGMENT + 1, 45 * SEGMENT, 44 * SEGMENT + 5])
def test_a_burst_arrives_as_datagrams(transport, peer, size):
    burst = octets(size)
    transport.send(memoryview(burst), SEGMENT)
    got = [peer.recv(RECEIVE_BYTES) for _ in range(-(-size // SEGMENT))]
    assert b"".join(got) == burst and {len(part) for part in got[:-1]} <= {SEGMENT}
    assert not transport.fault


def test_most_of_what_is_sent_passes_no_udp_socket(transport, peer, monkeypatch):
    monkeypatch.setattr(transport._kernel, "send", None)
    transport.send(b"1", 1)
    assert peer.recv(10) == b"1"


def test_the_kernel_sends_until_the_next_hop_is_known(transport, peer, monkeypatch):
    assert transport.accepts(1472) and not transport.accepts(1473)
    transport._mac_until = 0.0
    assert not transport.accepts(1)
    monkeypatch.setattr(packet, "find_mac", lambda route: None)
    for number in b"123":
        transport.send(bytes([number]), 1)
        assert peer.recv(10) == bytes([number])
    assert not transport.accepts(1)


def test_a_segment_that_exceeds_the_mtu_is_an_error(transport):
    transport.send(bytes(1472), 1472)
    with pytest.raises(ValueError, match="fewer `elements`"):
        transport.send(bytes(1473), 1473)


def test_an_interface_that_is_down_is_a_fault_until_it_is_up(far, transport, peer):
    far.run("ip", "link", "set", "near", "down")  # of the host where the test is
    transport.send(b"1", 1)
    assert transport.fault.startswith("the network interface on the path to it is down; ")
    far.run("ip", "link", "set", "near", "up")
    transport._mac_until = 0.0  # the kernel has forgotten the next hop
    transport.send(b"2", 1)
    assert peer.recv(10) == b"2" and not transport.fault


def test_an_interface_that_was_down_makes_no_wait_end_early(far, transport):
    far.run("ip", "link", "set", "near", "down")
    far.run("ip", "link", "set", "near", "up")
    assert transport._readiness.wait(0) and nothing_comes(transport)
    assert not transport._readiness.wait(0) and "is down" in transport.fault


def test_new_sockets_without_a_route_leave_the_old_ring(far, transport, peer, monkeypatch):
    def unreachable(_):
        raise SwitchUnreachableError("no route")

    monkeypatch.setattr(packet, "find_route", unreachable)
    with pytest.raises(SwitchUnreachableError):
        transport.reopen()
    assert nothing_comes(transport)
    monkeypatch.undo()
    transport.reopen()
    peer.connect((NEAR, transport.endpoints.udp_port))
    peer.send(b"again")
    assert received(transport, 5) == [(b"again", 5)]


def test_the_next_hop_is_looked_up_again_after_its_time(far, transport, peer):
    mac = "02:" + random.SystemRandom().randbytes(5).hex(":")  # another one in each test
    with far.inside():
        far.run("ip", "link", "set", "far", "address", mac)
    transport.send(b"lost", 4)
    far.run("ip", "neighbour", "flush", "dev", "near")
    transport._mac_until = 0.0
    for _ in range(50):
        transport.send(b"found", 5)
        assert peer.recv(10) == b"found"
        if transport._mac_until:
            break
    assert transport._mac == bytes.fromhex(mac.replace(":", ""))
    transport.send(b"frame", 5)
    assert peer.recv(10) == b"frame"


def test_a_closed_transport_sends_nothing(peer):
    with opened(peer) as transport:
        transport.close()
        with pytest.raises(OSError, match="Bad file descriptor"):
            transport.send(b"1", 1)


# Receiving


@pytest.mark.parametrize("size", [1, 100, SEGMENT, SEGMENT + 1, 45 * SEGMENT, 44 * SEGMENT + 5])
def test_a_burst_longer_than_the_mtu_is_received_with_its_segments(transport, peer, size):
    data = octets(size)
    send_burst(peer, data, SEGMENT)
    got = received(transport, size)
    assert b"".join(part for part, _ in got) == data and not transport.ignored
    assert {segment_bytes for _, segment_bytes in got[:-1]} <= {SEGMENT}
    assert got[-1][1] == min(size, SEGMENT)


def test_the_kernel_delivers_one_frame_for_a_burst(transport, peer):
    """Else the test above tests nothing."""
    send_burst(peer, octets(5 * SEGMENT), SEGMENT)
    assert transport._readiness.wait(WAIT_S)
    assert len(transport._ring.peek().frame) == 42 + 5 * SEGMENT


def test_a_frame_without_its_checksum_yet_is_taken(transport, peer):
    """The kernel leaves the checksum of a frame for this machine to a device, which veth is not."""
    peer.send(octets(33))
    assert transport._readiness.wait(WAIT_S)
    arrived = transport._ring.peek()
    assert arrived.checked
    assert packet.payload_of(arrived.frame, transport.endpoints, checked=False) == Fault.UDP_CHECKSUM
    del arrived
    assert received(transport, 33) == [(octets(33), 33)]


def test_datagrams_of_one_size_are_received_together(transport, peer):
    sizes = [100, 100, 100, 60, 100, 100, 200, 200, 1]
    for size in sizes:
        peer.send(octets(size))
    bursts = received(transport, sum(sizes))
    assert [(len(data), segment_bytes) for data, segment_bytes in bursts] == [(360, 100), (200, 100), (401, 200)]
    assert b"".join(data for data, _ in bursts) == b"".join(octets(size) for size in sizes)


@pytest.mark.parametrize("seed", range(3))
def test_bursts_and_datagrams_of_all_sizes_come_whole_and_in_order(transport, peer, seed):
    chance, sent, got = random.Random(seed), [], []
    for _ in range(60):
        segment_bytes = chance.choice([24, 100, 1000, SEGMENT])
        data = chance.randbytes(chance.randint(1, 20 * segment_bytes))
        if chance.random() < 0.5:
            send_burst(peer, data, segment_bytes)
            sent += [data[at : at + segment_bytes] for at in range(0, len(data), segment_bytes)]
        else:
            sent.append(data[:segment_bytes])
            peer.send(sent[-1])
        for burst, size in received(transport, sum(map(len, sent)) - sum(map(len, got))):
            got += [burst[at : at + size] for at in range(0, len(burst), size)]
    assert got == sent and not transport.ignored


def test_a_full_ring_drops_the_latest_frames_and_counts_them(transport, peer):
    slots = transport._ring.slots
    for number in range(slots + 10):
        peer.send(struct.pack("!I", number))
    got = b"".join(data for data, _ in received(transport, 4 * slots))
    assert np.frombuffer(got, ">u4").tolist() == list(range(slots))
    assert transport.dropped == 10 and nothing_comes(transport)
    peer.send(b"again")
    assert received(transport, 5) == [(b"again", 5)]


def test_the_kernel_s_socket_holds_nothing_and_no_icmp_message_is_sent(transport, peer):
    for _ in range(20):
        peer.send(bytes(1000))  # raises ConnectionRefusedError after an ICMP message
    assert len(received(transport, 20_000)) >= 1
    with open("/proc/thread-self/net/udp") as table:
        (line,) = [line for line in table if f":{transport.endpoints.udp_port:04X} " in line]
    assert line.split()[4].endswith(":00000000")


def test_it_is_known_that_no_program_listens(far):
    with far.inside(), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as closed:
        closed.bind((FAR, 0))
        address = "{}:{}".format(*closed.getsockname())
    transport = PacketTransport(address)
    for _ in range(50):
        transport.send(b"1", 1)
        assert nothing_comes(transport)
        if transport.refused and transport._mac:
            break
    assert transport.refused
    transport.close()


def test_new_sockets_have_the_descriptor_of_the_old_ones(transport, peer):
    descriptors = transport.fileno(), transport._kernel.fileno()
    transport.reopen()
    assert (transport.fileno(), transport._kernel.fileno()) == descriptors
    peer.connect((NEAR, transport.endpoints.udp_port))
    for number in b"123":
        transport.send(bytes([number]), 1)
        assert peer.recv(10) == bytes([number])
    peer.send(b"back")
    assert received(transport, 4) == [(b"back", 4)]


# What is not for it


@pytest.fixture
def wire(far):
    """Sends whole frames from the other host."""
    with far.inside():
        made = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        made.bind(("far", 0))
    with made:
        yield made


def frame(transport, payload=b"payload", *, destination=None, tag=None, **fields):
    """Return a frame of the peer, with fields of IPv4 (`i_`) and UDP (`u_`)."""
    parts = {"i": {"flags": "DF"}, "u": {}}
    for name, value in fields.items():
        parts[name[0]][name[2:]] = value
    mac = transport.interface.mac.hex(":")
    outer = Ether(dst=destination or mac, src="02:00:00:00:99:99")
    outer = outer / Dot1Q(vlan=tag) if tag is not None else outer
    ports = {"sport": transport.endpoints.peer_udp_port, "dport": transport.endpoints.udp_port}
    return bytes(outer / IP(**{"src": FAR, "dst": NEAR} | parts["i"]) / UDP(**ports | parts["u"]) / Raw(payload))


def test_a_whole_frame_is_taken(transport, peer, wire):
    """Else the tests below test nothing."""
    wire.send(frame(transport))
    assert received(transport, 7) == [(b"payload", 7)]


def test_a_tag_that_gives_a_priority_alone_is_no_vlan(transport, wire):
    wire.send(frame(transport, tag=0))
    assert received(transport, 7) == [(b"payload", 7)]


MALFORMED = {
    "fragment": ({"i_flags": "MF"}, Fault.FRAGMENT),
    "last fragment": ({"i_frag": 3}, Fault.FRAGMENT),
    "options": ({"i_options": [IPOption_NOP()] * 4}, Fault.OPTIONS),
    "IPv4 checksum": ({"i_chksum": 1}, Fault.IP_CHECKSUM),
    "UDP checksum": ({"u_chksum": 1}, Fault.UDP_CHECKSUM),
    "UDP length": ({"u_len": 3}, Fault.LENGTH),
    "IPv4 length": ({"i_len": 2000}, Fault.LENGTH),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_a_malformed_frame_is_ignored_and_counted(transport, peer, wire, name):
    fields, fault = MALFORMED[name]
    wire.send(frame(transport, **fields))
    assert ignored(transport) == {fault: 1}
    wire.send(frame(transport))
    assert received(transport, 7) == [(b"payload", 7)]


OTHERS = {
    "port": {"u_dport": 9},
    "source port": {"u_sport": 9},
    "source": {"i_src": "10.99.0.3"},
    "protocol": {"i_proto": 6},
    "MAC address": {"destination": "02:00:00:00:99:77"},
    "VLAN": {"tag": 7},
}


@pytest.mark.parametrize("name", OTHERS)
def test_frames_of_others_do_not_wake_it(far, transport, peer, wire, name):
    far.run("ip", "link", "set", "near", "promisc", "on")
    try:
        wire.send(frame(transport, **OTHERS[name]))
        wire.send(frame(transport))
        assert received(transport, 7) == [(b"payload", 7)]
        assert nothing_comes(transport) and not transport.ignored
    finally:
        far.run("ip", "link", "set", "near", "promisc", "off")


def test_an_older_kernel_sends_and_receives_frames_and_ignores_bursts(peer, monkeypatch):
    monkeypatch.setattr(packet, "_kernel_version", lambda: (6, 1))
    with opened(peer) as transport:
        assert not transport.gso and not transport.gro
        burst = octets(4 * SEGMENT)
        transport.send(burst, SEGMENT)
        assert b"".join(peer.recv(RECEIVE_BYTES) for _ in range(4)) == burst
        send_burst(peer, burst, SEGMENT)
        assert ignored(transport) == {Fault.BURST: 1}
        peer.send(burst[:SEGMENT])
        assert received(transport, SEGMENT) == [(burst[:SEGMENT], SEGMENT)]


# The path


def test_the_route_and_the_mac_address_are_those_of_ip(far):
    far.run("ip", "neighbour", "replace", "10.99.0.77", "lladdr", "02:00:00:00:99:77", "dev", "near")
    far.run("ip", "route", "replace", "10.88.0.0/16", "via", "10.99.0.77")
    index = socket.if_nametoindex("near")
    direct, beyond = socket.inet_aton("10.99.0.77"), socket.inet_aton("10.88.1.2")
    assert find_route(direct) == find_route(beyond) == Route(index, direct)
    assert find_mac(find_route(beyond)) == bytes.fromhex("020000009977")
    assert find_mac(Route(index, socket.inet_aton("10.99.0.78"))) is None
    assert find_interface(index).mac.hex(":") in far.run("ip", "link", "show", "near")
    assert find_interface(index).mtu == 1500


def test_no_route_and_no_ethernet_are_errors_that_say_so(far):
    with pytest.raises(SwitchUnreachableError, match=r"203\.0\.113\.1.* cannot be reached: this machine has no route"):
        PacketTransport("203.0.113.1")
    with pytest.raises(ValueError, match="interface lo, which carries no Ethernet frames"):
        PacketTransport(NEAR)


# Jobs


@contextmanager
def serving(far, **options):
    """Yield the addresses of a software switch's ports at the other host."""
    with far.inside():
        sockets = open_ports(FAR, [0, 0])
        config = config_for(sockets)
    switch = SoftwareSwitch(config, mac=bytes(6), ip=bytes(4), seed=random.SystemRandom().getrandbits(64))
    with SwitchServer(switch, sockets) as server:
        thread = threading.Thread(target=server.serve)
        thread.start()
        try:
            yield ["{}:{}".format(*opened.getsockname()) for opened in sockets]
        finally:
            server.stop()
            thread.join()


class Relay:
    """At the other host, on the path of one worker to the switch: loses and repeats datagrams in both directions."""

    def __init__(self, far, switch, seed):
        self.chance, self.stopping, self.changed = random.Random(seed), False, 0
        host, port = switch.split(":")
        with far.inside():
            self.near, self.beyond = (socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2))
            self.near.bind((FAR, 0))
            self.beyond.connect((host, int(port)))
        self.address = "{}:{}".format(*self.near.getsockname())
        self.thread = threading.Thread(target=self.run)

    def run(self):
        worker = None
        while not self.stopping:
            for ready in select.select([self.near, self.beyond], [], [], 0.05)[0]:
                data, sender = ready.recvfrom(RECEIVE_BYTES)
                worker = sender if ready is self.near else worker
                copies = self.chance.choices([0, 1, 2], [3, 94, 3])[0]
                self.changed += copies != 1
                for _ in range(copies):
                    self.beyond.send(data) if ready is self.near else self.near.sendto(data, worker)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.stopping = True
        self.thread.join()
        self.near.close()
        self.beyond.close()


def sums(hosts, addresses, size, transports, *, repeat=3):
    vectors = np.random.default_rng(size).integers(-1000, 1000, (2, size)).astype(np.float32)

    def run(rank):
        with hosts[0].inside():
            transport = transports[rank](addresses[rank])
            address = addresses[rank] if transport is None else None
            with Worker(address, world=2, rank=rank, key=7, transport=transport) as worker:
                for _ in range(repeat):
                    array = vectors[rank].copy()
                    worker.allreduce(array)
                    np.testing.assert_array_equal(array, vectors.sum(axis=0))
                return worker.address

    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(run, range(2)))


@pytest.fixture(params=[True, False], ids=["compiled", "python"])
def events(request, monkeypatch):
    """Why the runs in C have ended; none, where the collectives run in Python."""
    found, run = [], Exchange.run

    def recorded(*arguments, **parameters):
        event, results = run(*arguments, **parameters)
        found.append(event)
        return event, results

    monkeypatch.setattr(Exchange, "run", recorded)
    if not request.param:
        monkeypatch.setattr(exchange, "_exchange_run", lambda: None)
    yield found
    assert bool(found) == request.param


@pytest.mark.parametrize("size", [1, 352, 10_000, 64 * 352 + 1])
def test_a_packet_socket_and_a_udp_socket_sum_exactly(hosts, far, events, size):
    with serving(far) as addresses:
        assert sums(hosts, addresses, size, [PacketTransport, lambda address: None]) == addresses


def test_sums_are_exact_where_datagrams_are_lost_and_repeated(hosts, far, events):
    with serving(far) as switch, Relay(far, switch[0], 0) as one, Relay(far, switch[1], 1) as two:
        sums(hosts, [one.address, two.address], 30_000, [PacketTransport, PacketTransport])
        assert one.changed and two.changed


def test_sums_are_exact_where_frames_pass_one_by_one(hosts, far):
    with serving(far) as addresses:
        sums(hosts, addresses, 30_000, [lambda address: PacketTransport(address, no_offload=True)] * 2)


def test_sums_are_exact_beside_malformed_frames(hosts, far, wire, events):
    """Also where a wrong frame is the next one of the ring, which C leaves to Python."""
    ended = threading.Event()
    made = []

    def disturb():
        transport = made[0]
        while not ended.wait(0.0005):
            for fields, _ in MALFORMED.values():
                chance = random.randbytes(random.choice([30, 1434]))
                with suppress(OSError):
                    wire.send(frame(transport, chance, **fields))

    def transports(address):
        made.append(PacketTransport(address))
        if len(made) == 2:
            disturber.start()
        return made[-1]

    disturber = threading.Thread(target=disturb)
    with serving(far) as addresses:
        try:
            sums(hosts, addresses, 30_000, [transports, transports], repeat=20)
        finally:
            ended.set()
            disturber.join()
    ignored_frames = made[0].ignored
    assert set(ignored_frames) == {fault for _, fault in MALFORMED.values()}
    assert not events or ExchangeEvent.FRAME in events


def test_the_exchange_leaves_bursts_to_the_kernel_while_the_next_hop_is_unknown(hosts, far, events, monkeypatch):
    monkeypatch.setattr(packet, "_REFRESH_S", 0.0005)
    with serving(far) as addresses:
        sums(hosts, addresses, 30_000, [PacketTransport, PacketTransport], repeat=20)


def test_an_asynchronous_job_and_its_keepalive_use_it(hosts, far):
    with serving(far) as addresses, hosts[0].inside():
        transport = PacketTransport(addresses[0])
        with AsyncWorker(rank=0, world=1, key=7, size=1000, transport=transport) as worker:
            worker.push(np.ones(1000, np.float32))
            (update,) = until(lambda: list(worker.updates()), WAIT_S)
            assert (update.mean() == 1).all()


def test_its_job_needs_a_key_as_over_udp(peer, monkeypatch):
    monkeypatch.delenv("ISWITCH_KEY", raising=False)
    with opened(peer) as transport, pytest.raises(ValueError, match="key must be given for a job of 2"):
        Worker(world=2, transport=transport)
