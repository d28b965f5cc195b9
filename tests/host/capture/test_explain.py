"""`iswitch explain` on captures that scapy has written, of real workers at a software switch."""

import re
import threading
import time
import warnings

import numpy as np
import pytest
from scapy.layers.l2 import CookedLinux, Ether
from scapy.utils import PcapNgWriter, PcapWriter
from typer.testing import CliRunner

from iswitch import MissingWarning
from iswitch.capture.command import explain, read_messages
from iswitch.capture.pcap import CaptureError, read_capture
from iswitch.config import Config
from iswitch.tools.cli import app
from iswitch.wire import FRAME, Type
from sim.bench.udp_model import Faults, UdpModel, kill, together


class Recorded:
    """All frames that enter and leave the switch of a model, with their times."""

    def __init__(self, model):
        self.frames, receive = [], model.switch.receive

        def record(port, frame, now_us):
            sent = receive(port, frame, now_us)
            for each in (frame, *(reply for _, reply in sent)):
                self.frames.append((time.time_ns(), bytes(each)))
            return sent

        model.switch.receive = record


def write(path, frames):
    writer = PcapNgWriter(str(path)) if path.suffix == ".pcapng" else PcapWriter(str(path), nano=path.suffix == ".nano")
    for ns, frame in frames:
        packet = Ether(frame)
        packet.time = ns / 1e9
        writer.write(packet)
    writer.close()
    return path


def recorded(body, *, world=2, faults=None, **options):
    with UdpModel(Config(ports=2, window=4, elements=16), faults=faults) as model:
        record = Recorded(model)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", MissingWarning)
            together(model, world, body, **options)
        return record.frames


def lines_of(path, **options):
    return list(explain(read_messages([path]), **{"job": None, "seq": None} | options))


@pytest.mark.parametrize("name", ["a.pcap", "a.nano", "a.pcapng"])
def test_the_messages_of_a_capture_are_its_frames(tmp_path, name):
    frames = recorded(lambda worker: worker.allreduce(np.ones(40, np.float32)))
    found = read_messages([write(tmp_path / name, frames)])
    assert len(found) == len(frames)
    for message, (ns, frame) in zip(found, frames, strict=True):
        header = np.frombuffer(frame, FRAME, 1)[0]
        assert abs(message.time_ns - ns) < 2000
        assert (message.header["job"], message.header["seq"]) == (header["job"], header["seq"])
        assert message.type == header["version_type"] & 15
        assert message.payload == frame[64 : 42 - 8 + int(header["udp_length"])]
        assert message.source.endswith(f":{header['udp_src']}")
        assert message.target.endswith(f":{header['udp_dst']}")


def test_a_segment_is_told_from_its_contributions_to_its_result(tmp_path):
    frames = recorded(lambda worker: [worker.allreduce(np.ones(16, np.float32)) for _ in range(3)])
    path = write(tmp_path / "a.pcap", frames)
    contributions = [m for m in read_messages([path]) if m.type == Type.CONTRIBUTION]
    for seq in {int(message.header["seq"]) for message in contributions}:
        first, second = [int(m.header["member"]) for m in contributions if m.header["seq"] == seq]
        told = [line.partition(" ms  ")[2] for line in lines_of(path, seq=seq)[2:]]
        assert re.fullmatch(rf"Member {first} at \S+ contributes: 64 bytes of ALLREDUCE \d, digest 0x\w+\.", told[0])
        assert re.fullmatch(rf"Member {second} at \S+ contributes: 64 bytes of ALLREDUCE \d, digest 0x\w+\.", told[1])
        assert sum(line.startswith("The switch sends the result of ranks 0 and 1 to ") for line in told) == 2
        lines = lines_of(path, seq=seq)
        assert "The sum holds ranks 0 and 1." in lines
        assert any(line.startswith(f"Member {second} contributed last, ") for line in lines)


def test_repeats_in_a_lossy_network_are_all_told(tmp_path):
    frames = recorded(
        lambda worker: [worker.allreduce(np.ones(40, np.float32)) for _ in range(20)], faults=Faults(loss=0.1)
    )
    path = write(tmp_path / "a.pcap", frames)
    found = read_messages([path])
    sent = [(int(m.header["seq"]), int(m.header["member"])) for m in found if m.type == Type.CONTRIBUTION]
    repeats = len(sent) - len(set(sent))
    told = [line for seq in {seq for seq, _ in sent} for line in lines_of(path, seq=seq)]
    assert repeats > 0 and sum(" contributes again" in line for line in told) == repeats
    resent = sum(m.type == Type.RESULT and int(m.header["format_flags"]) >> 4 & 2 != 0 for m in found)
    assert sum("(resent)" in line or ", resent" in line for line in told) == resent
    total = re.search(r"(\d+) contributions and results that were sent again", lines_of(path)[0])
    assert int(total[1]) == repeats + resent


def test_a_member_that_has_acknowledged_a_result_does_not_contribute_to_it_again(tmp_path):
    """So an acknowledgement is never told of the segment whose result the member still lacks."""
    frames = recorded(
        lambda worker: [worker.allreduce(np.ones(64, np.float32)) for _ in range(20)], faults=Faults(loss=0.15)
    )
    path = write(tmp_path / "a.pcap", frames)
    acknowledgements = 0
    for seq in {int(m.header["seq"]) for m in read_messages([path]) if m.type == Type.CONTRIBUTION}:
        acknowledged = set()
        for line in lines_of(path, seq=seq):
            if found := re.search(r"Member (\d) (acknowledges|at \S+ contributes)", line):
                assert found[1] not in acknowledged, line
                if found[2] == "acknowledges":
                    acknowledged.add(found[1])
                    acknowledgements += 1
    assert acknowledgements > 80


def test_a_late_contribution_is_told_as_such(tmp_path):
    def body(worker):
        worker.barrier()
        if worker.rank:
            with worker._keepalive:  # a worker that has the result already does not contribute any more
                complete.wait()
        worker.allreduce(np.ones(16, np.float32))
        if not worker.rank:
            complete.wait()

    complete = threading.Barrier(2, timeout=30)
    path = write(tmp_path / "a.pcap", recorded(body, threshold=1))
    last = max(int(m.header["seq"]) for m in read_messages([path]) if m.type == Type.RESULT)
    lines = lines_of(path, seq=last)
    assert "The sum holds rank 0." in lines
    assert re.match(r"The sum lacks rank 1, .* its contribution came too late", lines[-1])


def test_a_rank_that_a_sum_lacks_is_named(tmp_path):
    def body(worker):
        worker.allreduce(np.ones(16, np.float32))
        both.wait()
        if worker.rank:
            kill(worker)
        else:
            worker.allreduce(np.ones(16, np.float32))

    both = threading.Barrier(2, timeout=30)
    path = write(tmp_path / "a.pcap", recorded(body, evict_s=1.0))
    last = max(int(m.header["seq"]) for m in read_messages([path]) if m.type == Type.CONTRIBUTION)
    lines = lines_of(path, seq=last)
    assert "The sum holds rank 0." in lines
    assert any(
        re.match(r"The sum lacks rank 1, whose last contribution came [1-9]\.\d+ s before: it has left", line)
        for line in lines
    )


def test_a_segment_without_a_result_is_the_one_that_is_told(tmp_path):
    frames = recorded(lambda worker: [worker.allreduce(np.ones(16, np.float32)) for _ in range(3)])
    results = {bytes(frame) for _, frame in frames if frame[42] & 15 == Type.RESULT}
    victim = max(int(np.frombuffer(frame, FRAME, 1)[0]["seq"]) for frame in results)
    kept = [
        (ns, frame)
        for ns, frame in frames
        if frame not in results or int(np.frombuffer(frame, FRAME, 1)[0]["seq"]) != victim
    ]
    lines = lines_of(write(tmp_path / "a.pcap", kept))
    assert "3 segments, 1 without a result" in lines[0]
    assert lines[-1] == "The capture has no result. It holds contributions of ranks 0 and 1."
    assert any(line.startswith(f"Segment {victim} of job 0") for line in lines)


def test_a_capture_of_any_interface_is_read(tmp_path):
    frames = recorded(lambda worker: worker.allreduce(np.ones(16, np.float32)))
    writer = PcapWriter(str(tmp_path / "any.pcap"), linktype=113)
    for ns, frame in frames:
        packet = CookedLinux() / Ether(frame).payload
        packet.time = ns / 1e9
        writer.write(packet)
    writer.close()
    told = [m[3:] for m in read_messages([tmp_path / "any.pcap"])]
    assert [repr(each) for each in told] == [repr(m[3:]) for m in read_messages([write(tmp_path / "a.pcap", frames)])]


@pytest.mark.parametrize("name", ["a.pcap", "a.pcapng"])
def test_a_capture_that_still_runs_ends_at_its_last_complete_packet(tmp_path, name):
    frames = recorded(lambda worker: worker.barrier())
    data = write(tmp_path / name, frames).read_bytes()
    whole = list(read_capture(tmp_path / name))
    for length in range(24 if name == "a.pcap" else len(data) - 400, len(data), 7):
        (tmp_path / "part").write_bytes(data[:length])
        part = list(read_capture(tmp_path / "part"))
        assert part == whole[: len(part)] and len(part) < len(whole)


@pytest.mark.parametrize("name", ["a.pcap", "a.pcapng"])
def test_a_damaged_capture_is_told_or_refused(tmp_path, name):
    data = write(tmp_path / name, recorded(lambda worker: worker.allreduce(np.ones(40, np.float32)))).read_bytes()
    rng, told = np.random.default_rng(3), 0
    for _ in range(200):
        damaged = bytearray(data)
        for at in rng.integers(4, len(data), 20):
            damaged[at] = rng.integers(256)
        (tmp_path / "damaged").write_bytes(damaged)
        try:
            told += len(lines_of(tmp_path / "damaged")) > 0
        except CaptureError:
            continue
    assert told > 20


def test_the_command_says_what_is_wrong_with_a_file(tmp_path):
    (tmp_path / "text").write_text("hello, this is no capture")
    with pytest.raises(CaptureError, match="neither pcap nor pcapng"):
        list(read_capture(tmp_path / "text"))
    done = CliRunner().invoke(app, ["explain", str(tmp_path / "text")])
    assert done.exit_code == 1 and "tcpdump -w" in done.stderr
    assert CliRunner().invoke(app, ["explain", str(tmp_path / "absent")]).exit_code == 1


def test_the_command_tells_about_a_capture(tmp_path):
    path = write(tmp_path / "a.pcap", recorded(lambda worker: worker.barrier()))
    done = CliRunner().invoke(app, ["explain", str(path)])
    assert done.exit_code == 0 and "The sum holds ranks 0 and 1." in done.output
    assert "no segment 77" in CliRunner().invoke(app, ["explain", str(path), "--segment", "77"]).output
    assert "of job 9." in CliRunner().invoke(app, ["explain", str(path), "--job", "9"]).output
