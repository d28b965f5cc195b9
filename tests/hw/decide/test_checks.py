"""The checks of docs/protocol.md section 3: each fault by its name, and of two the one that stands first."""

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from amaranth.hdl import Value

import hw.decide.checks
from hw.decide.checks import Checks
from hw.interface.headers import Headers
from hw.interface.rows import job_row, member_row
from iswitch.config import Config
from iswitch.wire import FRAME, Format, JobState, Outcome, Type
from sim.bench.mutant import mutant
from sim.bench.stream import Bench, pack
from sim.frames.client import Client

CONFIG = Config(
    ports=4, bus_bits=64, members=5, jobs=2, window=4, elements=32, queue_bytes=4096, uplinks=False, half_width=True
)
CLIENT = Client.numbered(7, port=3, job=1)


class Case:
    """A frame, what the queue says of it, and the rows of its job and member. Sound until a fault spoils it."""

    def __init__(self, type=Type.CONTRIBUTION, payload=8):
        self.payload, self.type = payload, type
        self.frame = {"epoch": 0x1234, "member": 2, "token": 0xDEADBEEF, "format_flags": Format.WINDOW64}
        self.override = {}
        self.scan = {"ip_good": 1, "udp_good": 1}
        self.port = 3
        self.spoofed = self.corrupt = 0
        self.job = {
            "state": JobState.RUNNING,
            "epoch": 0x1234,
            "numeric": Format.WINDOW64,
            "elements": 20,
            "live": 0b00100,
        }
        self.member = {
            "live": 1,
            "token": 0xDEADBEEF,
            "port": 3,
            "address": {
                "mac": int.from_bytes(CLIENT.mac, "little"),
                "ip": int.from_bytes(CLIENT.ip, "little"),
                "udp": int.from_bytes(CLIENT.udp_port.to_bytes(2, "big"), "little"),
            },
        }

    def headers(self):
        frame = CLIENT.frame(self.type, bytes(self.payload), **self.frame)
        record = np.frombuffer(frame[:64].ljust(64, b"\0"), FRAME, 1).copy()
        for name, value in self.override.items():
            record[name] = value
        return {
            "frame": int.from_bytes(record.tobytes(), "little"),
            "ours": 1,
            "arrival": {"port": self.port, "scan": self.scan | {"length": self.scan.get("length", len(frame))}},
        }


def spoil(part, **values):
    def fault(case):
        getattr(case, part).update(values)

    return fault


def attribute(**values):
    return lambda case: case.__dict__.update(values)


FAULTS = [
    (Outcome.SPOOFED, "spoofed", attribute(spoofed=1)),
    (Outcome.VERSION, "version 0", spoil("frame", version_type=0)),
    (Outcome.VERSION, "version 1", spoil("frame", version_type=0x10)),
    (Outcome.LENGTH, "ip length", spoil("override", ip_length=59)),
    (Outcome.LENGTH, "udp length", spoil("override", udp_length=37)),
    (Outcome.LENGTH, "padded", spoil("scan", length=74)),
    (Outcome.LENGTH, "cut", spoil("scan", length=71)),
    (Outcome.IP_CHECKSUM, "ip", spoil("scan", ip_good=0)),
    (Outcome.UDP_CHECKSUM, "udp", spoil("scan", udp_good=0)),
    *((Outcome.TYPE, f"type {kind}", attribute(type=kind)) for kind in (1, 2, 4, 6, 8, 10, 15)),
    (Outcome.CORRUPT, "row", attribute(corrupt=1)),
    (Outcome.JOB, "number", spoil("frame", job=2)),
    (Outcome.JOB, "number 255", spoil("frame", job=255)),
    (Outcome.JOB, "none", spoil("job", state=JobState.NONE)),
    (Outcome.EPOCH, "epoch", spoil("frame", epoch=0x1235)),
    (Outcome.MEMBER, "index", spoil("frame", member=5)),
    (Outcome.MEMBER, "255", spoil("frame", member=255)),
    (Outcome.MEMBER, "left", spoil("member", live=0, left=1)),
    (Outcome.TOKEN, "token", spoil("frame", token=0xDEADBEEE)),
    (Outcome.PORT, "port", attribute(port=2)),
    (Outcome.ADDRESS, "mac", spoil("override", eth_src=np.frombuffer(b"\2\0\0\0\0\6", "u1"))),
    (Outcome.ADDRESS, "ip", spoil("override", ip_src=0x0A000068)),
    (Outcome.ADDRESS, "udp", spoil("override", udp_src=40008)),
    (Outcome.FORMING, "forming", spoil("job", state=JobState.FORMING)),
    (Outcome.FORMING, "joining", spoil("job", live=0b11011)),
    (Outcome.TYPE, "claim", attribute(type=Type.CLAIM)),
    (Outcome.HALTED, "halted", spoil("job", state=JobState.HALTED)),
    (Outcome.FORMAT, "other", spoil("frame", format_flags=Format.FP32)),
    (Outcome.FORMAT, "4", spoil("frame", format_flags=4)),
    (Outcome.LENGTH, "empty", attribute(payload=0)),
    (Outcome.LENGTH, "odd", attribute(payload=9)),
    (Outcome.LENGTH, "half", attribute(payload=10)),
    (Outcome.LENGTH, "too long", attribute(payload=84)),
]


def verdicts(cases, config=CONFIG):
    """(outcome or None, control, receipt) of each case."""
    dut, found = Checks(config), []

    async def bench(ctx):
        for case in cases:
            for port, shape, item in (
                (dut.headers, Headers, case.headers()),
                (dut.job, job_row(config), case.job),
                (dut.member, member_row(config), case.member),
            ):
                ctx.set(Value.cast(port), pack(shape, item))
            ctx.set(dut.spoofed, case.spoofed)
            await ctx.tick()
            ctx.set(dut.corrupt, case.corrupt)
            fault = ctx.get(dut.fault)
            found.append(
                (Outcome(ctx.get(dut.outcome)) if fault else None, ctx.get(dut.kind.control), ctx.get(dut.kind.receipt))
            )

    Bench(dut).drive(bench)
    return found


def spoilt(*faults, **options):
    case = Case(**options)
    for fault in faults:
        fault(case)
    return case


@pytest.mark.parametrize("size", [4, 8, 76, 80])
def test_sound_contribution_has_no_fault(size):
    assert (
        verdicts(
            [
                Case(payload=size),
                spoilt(spoil("frame", format_flags=Format.INT32), payload=size),
                spoilt(spoil("frame", format_flags=0xF0 | Format.WINDOW64), payload=size),
            ]
        )
        == [(None, 0, 0)] * 3
    )


def test_each_fault_has_its_name():
    assert [outcome for outcome, *_ in verdicts(spoilt(fault) for *_, fault in FAULTS)] == [
        outcome for outcome, *_ in FAULTS
    ]


def test_of_two_faults_the_first_in_the_documented_order_counts():
    # A number without a job has no rows that could have a bit error.
    no_rows = {(Outcome.CORRUPT, name) for name in ("number", "number 255")}
    pairs = [
        pair for pair in combinations(FAULTS, 2) if pair[0][0] != pair[1][0] and (pair[0][0], pair[1][1]) not in no_rows
    ]
    found = [outcome for outcome, *_ in verdicts(spoilt(second[2], first[2]) for first, second in pairs)]
    wrong = [
        (first[:2], second[:2], outcome)
        for (first, second), outcome in zip(pairs, found, strict=True)
        if outcome != first[0]
    ]
    # A payload of another length also makes the frame's and the scan's lengths differ where the scan's is spoilt: no
    # matter.
    assert wrong == []


def test_receipt_carries_nothing_and_needs_no_format():
    cases = [
        Case(Type.RECEIPT, 0),
        spoilt(spoil("frame", format_flags=0x8F), type=Type.RECEIPT, payload=0),
        Case(Type.RECEIPT, 4),
    ]
    assert verdicts(cases) == [(None, 0, 1), (None, 0, 1), (Outcome.LENGTH, 0, 1)]


def test_claim_carries_nothing_and_belongs_to_an_asynchronous_job_halted_or_not():
    asynchronous, halted = spoil("job", segments=3), spoil("job", state=JobState.HALTED)
    cases = [
        spoilt(asynchronous, type=Type.CLAIM, payload=0),
        spoilt(asynchronous, halted, type=Type.CLAIM, payload=0),
        spoilt(type=Type.CLAIM, payload=0),
        spoilt(asynchronous, type=Type.CLAIM, payload=4),
    ]
    assert [outcome for outcome, *_ in verdicts(cases)] == [None, None, Outcome.TYPE, Outcome.LENGTH]


def test_control_message_has_one_length_and_passes_from_any_sender():
    not_allowed = [
        fault
        for outcome, _, fault in FAULTS
        if outcome
        in (
            Outcome.JOB,
            Outcome.EPOCH,
            Outcome.MEMBER,
            Outcome.TOKEN,
            Outcome.PORT,
            Outcome.ADDRESS,
            Outcome.FORMING,
            Outcome.FORMAT,
        )
    ]
    cases = [Case(Type.CONTROL, 64), *(spoilt(fault, type=Type.CONTROL, payload=64) for fault in not_allowed)]
    assert verdicts(cases) == [(None, 1, 0)] * len(cases)
    assert verdicts(Case(Type.CONTROL, size) for size in (0, 4, 63, 65, 68, 128)) == [(Outcome.LENGTH, 1, 0)] * 6


def test_frame_shorter_than_our_header_is_of_wrong_length():
    case = spoilt(
        spoil("override", ip_length=49, udp_length=29), spoil("scan", length=63), type=Type.RECEIPT, payload=0
    )
    assert verdicts([case]) == [(Outcome.LENGTH, 0, 1)]


TREE = replace(CONFIG, uplinks=True)


@pytest.mark.parametrize(
    ("ranks", "outcome"), [(0b00001, None), (0b10000, None), (0b00011, Outcome.TYPE), (0b11110, Outcome.TYPE)]
)
def test_in_a_tree_a_member_of_several_ranks_contributes_nothing_itself(ranks, outcome):
    assert verdicts([spoilt(spoil("member", ranks=ranks))], TREE) == [(outcome, 0, 0)]


@pytest.mark.parametrize(
    ("format", "size", "said", "tainted", "outcome"),
    [
        (Format.FIXED64, 8 + 12, 0b110, 0, None),
        (Format.FIXED64, 8 * 20 + 12, 0, 0b100, None),
        (Format.FIXED64, 8 * 21 + 12, 0, 0, Outcome.LENGTH),
        (Format.FIXED64, 8, 0, 0, Outcome.LENGTH),
        (Format.FIXED64, 4 + 12, 0, 0, Outcome.LENGTH),
        (Format.FIXED64, 9 + 12, 0, 0, Outcome.LENGTH),
        (Format.FIXED64, 4, 0, 0, Outcome.LENGTH),
        (Format.INT32, 4 + 12, 0b010, 0, None),
        (Format.INT32, 4 * 20 + 12, 0, 0, None),
        (Format.INT32, 4 * 21 + 12, 0, 0, Outcome.LENGTH),
        (Format.INT32, 6 + 12, 0, 0, Outcome.LENGTH),
        (Format.WINDOW64, 8 + 12, 0, 0, Outcome.FORMAT),
        (Format.FP32, 8 + 12, 0, 0, Outcome.FORMAT),
        (Format.FIXED64, 8 + 12, 0b001, 0, Outcome.MEMBER),
        (Format.FIXED64, 8 + 12, 0, 0b001, Outcome.MEMBER),
        (Format.FIXED64, 8 + 12, 1 << 31, 0, Outcome.MEMBER),
        (Format.FIXED64, 8 + 12, 0, 1 << 5, Outcome.MEMBER),
    ],
)
def test_an_uplink_has_a_form_and_names_its_senders_ranks(format, size, said, tainted, outcome):
    case = spoilt(
        spoil("job", tree=1),
        spoil("member", ranks=0b110, sends_uplinks=1),
        spoil("frame", format_flags=format),
        spoil("scan", ranks=said, tainted=tainted),
        type=Type.UPLINK,
        payload=size,
    )
    assert verdicts([case], TREE) == [(outcome, 0, 0)]


@pytest.mark.parametrize(("tree", "named", "outcome"), [(1, 1, None), (0, 0, Outcome.TYPE), (1, 0, Outcome.TYPE)])
def test_only_a_switch_in_a_tree_sends_uplinks(tree, named, outcome):
    """A worker's Join names no ranks, and the switch chooses one."""
    case = spoilt(
        spoil("job", tree=tree),
        spoil("member", ranks=0b010, sends_uplinks=named),
        spoil("frame", format_flags=Format.FIXED64),
        spoil("scan", ranks=0b010),
        type=Type.UPLINK,
        payload=8 + 12,
    )
    assert verdicts([case], TREE) == [(outcome, 0, 0)]


HALVES = pytest.mark.parametrize("numeric", [Format.BF16, Format.FP16])


def half_width(numeric, format, size, **options):
    """A case in a job of a half-width format whose contributions have at most 20 elements."""
    return spoilt(spoil("job", numeric=numeric), spoil("frame", format_flags=format), payload=size, **options)


@HALVES
def test_a_half_width_contribution_has_an_even_number_of_elements_and_integers_have_four_bytes(numeric):
    sizes = {2: 0, 4: 1, 6: 0, 8: 1, 36: 1, 38: 0, 40: 1, 42: 0, 44: 0, 0: 0, 5: 0, 8192: 0, 8196: 0, 8232: 0}
    found = [outcome for outcome, *_ in verdicts([half_width(numeric, numeric, size) for size in sizes])]
    assert found == [None if good else Outcome.LENGTH for good in sizes.values()]
    integers = [half_width(numeric, Format.INT32, size) for size in (4, 44, 80, 84)]
    assert [outcome for outcome, *_ in verdicts(integers)] == [None, None, None, Outcome.LENGTH]


def test_a_half_width_format_belongs_to_jobs_of_it_alone():
    cases = [
        half_width(Format.WINDOW64, Format.BF16, 8),
        half_width(Format.BF16, Format.FP16, 8),
        half_width(Format.FP16, Format.WINDOW64, 8),
        half_width(Format.BF16, Format.FIXED64, 8),
    ]
    assert [outcome for outcome, *_ in verdicts(cases)] == [Outcome.FORMAT] * 4


@HALVES
def test_a_receipt_carries_nothing_whatever_its_format(numeric):
    sizes = (0, 4, 8192)
    found = [outcome for outcome, *_ in verdicts([half_width(numeric, numeric, n, type=Type.RECEIPT) for n in sizes])]
    assert found == [None, Outcome.LENGTH, Outcome.LENGTH]


@HALVES
def test_an_uplink_of_a_half_width_job_has_an_even_number_of_elements_but_for_integers(numeric):
    def uplink(format, size):
        case = half_width(numeric, format, size, type=Type.UPLINK)
        for part, values in (
            ("job", {"tree": 1}),
            ("member", {"ranks": 6, "sends_uplinks": 1}),
            ("scan", {"ranks": 2}),
        ):
            spoil(part, **values)(case)
        return case

    wide = [uplink(Format.FIXED64, 8 * count + 12) for count in (1, 2, 3, 20, 21, 22)]
    assert [outcome is None for outcome, *_ in verdicts(wide, TREE)] == [False, True, False, True, False, False]
    integers = [uplink(Format.INT32, 4 * count + 12) for count in (1, 2, 19, 20, 21)]
    assert [outcome is None for outcome, *_ in verdicts(integers, TREE)] == [True, True, True, True, False]
    assert verdicts([uplink(numeric, 2 * 4 + 12)], TREE)[0][0] == Outcome.FORMAT


@pytest.mark.mutant
@pytest.mark.parametrize(
    ("sound", "wrong"),
    [
        ("kind.contribution & half, body << 1", "kind.contribution & half, body"),
        ("elements[2:] <= job", "elements[2:14] <= job"),
        ("kind.contribution & half, body", "half, body"),
        ("payload[2] & (half | wide & is_half(job.numeric))", "payload[2] & half"),
        ("payload[2] & (half | wide & is_half(job.numeric))", "payload[2] & wide & is_half(job.numeric)"),
    ],
)
def test_a_mutant_of_the_lengths_is_noticed(sound, wrong, monkeypatch):
    module = mutant(hw.decide.checks, sound, wrong)
    monkeypatch.setitem(globals(), "Checks", module.Checks)
    with pytest.raises(AssertionError):
        for numeric in (Format.BF16, Format.FP16):
            test_a_half_width_contribution_has_an_even_number_of_elements_and_integers_have_four_bytes(numeric)
            test_a_receipt_carries_nothing_whatever_its_format(numeric)
            test_an_uplink_of_a_half_width_job_has_an_even_number_of_elements_but_for_integers(numeric)
