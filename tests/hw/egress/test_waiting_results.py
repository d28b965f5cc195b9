"""Results that wait in their slots: they are made again for their recipients, until the slot is written again."""

import functools

import pytest
from amaranth.hdl import Value
from amaranth.lib.memory import Memory

import hw.egress.waiting_results
import hw.stream.fifo
from hw.egress.waiting_results import Making, Row, WaitingResults
from iswitch.config import Config
from iswitch.wire import Operation
from sim.bench.mutant import mutant
from sim.bench.result_headers import with_parity
from sim.bench.stream import Bench

CONFIG = Config(ports=2, bus_bits=64, members=4, jobs=2, window=2, elements=64, queue_bytes=4096, staleness=0)
SLOTS = CONFIG.jobs * CONFIG.slots
BEHIND = {0: (0b0011, 0b0001), 1: (0b1100, 0b0010)}
"""Members behind each port, by job."""
AFTER = 12
"""Cycles from an operation to the first word of its result."""
WORDS = 4


def result(seq, recipients=0b1111, job=0, **fields):
    return {"job": job, "seq": seq, "recipients": recipients, "length": 16, "epoch": 5} | fields


def contribution(header, *, emit=True, write=True):
    slot = header["job"] * CONFIG.slots + header["seq"] % CONFIG.slots
    return {
        "operation": Operation.CONTRIBUTE,
        "slot": slot,
        "write": write,
        "emit": emit,
        "bindings": 100 + header["seq"],
        "fraction": 7,
        "result": header,
    }


class Ports:
    """The component between a sequence of operations and two ports, of which some have no room.

    `works` are (cycle, operation). `room(port, cycle)` says whether a port has room. `made` are the results that
    reached the ports: (header, whether it was a waiting one, the operation, the recipients who got it). `sound`: for
    each operation, whether the header's parity is right. `disturb(ctx, cycle)` is called in each cycle.
    """

    def __init__(
        self,
        works,
        room,
        *,
        component=WaitingResults,
        waiting=lambda cycle: False,
        cycles=1500,
        disturb=lambda ctx, cycle: None,
    ):
        self.dut = dut = component(CONFIG)
        self.made, self.counts, self.held, self.operations = [], {"waits": [0, 0], "expired": [0, 0]}, [], []
        self.room, self.sound = room, []
        pending, under_way = list(works), []
        bench = Bench(dut)

        async def drive(ctx):
            busy_until = 0
            for port, jobs in BEHIND.items():
                for job, members in enumerate(jobs):
                    ctx.set(dut.local[port][job], members)
            for cycle in range(cycles):
                offers = bool(pending) and pending[0][0] <= cycle and ctx.get(dut.erased)
                ctx.set(dut.works.valid, int(offers))
                if offers:
                    ctx.set(dut.works.payload, pending[0][1])
                ctx.set(dut.operations.ready, int(cycle >= busy_until))
                ctx.set(dut.aggregating, int(cycle < busy_until))
                ctx.set(dut.frames_waiting, int(waiting(cycle)))
                begins = bool(under_way) and under_way[0][0] == cycle
                ends = bool(under_way) and under_way[0][0] + WORDS - 1 == cycle
                ctx.set(dut.begins, int(begins))
                ctx.set(dut.ends, int(ends))
                for port in BEHIND:
                    ctx.set(dut.has_room[port], int(room(port, cycle)))
                    ctx.set(dut.refused[port], 0)
                if begins:
                    _, header, operation = under_way[0]
                    ctx.set(dut.header, header)
                    repeated, got = ctx.get(dut.repeated), 0
                    if with_parity(CONFIG, header) == header:
                        assert ctx.get(dut.decided) == 100 + header["seq"]
                    for port, jobs in BEHIND.items():
                        here = header["recipients"] & jobs[header["job"]]
                        if not room(port, cycle) or ctx.get(dut.held_back[port]) and not repeated:
                            ctx.set(dut.refused[port], here)
                        else:
                            got |= here
                    self.made.append((header["seq"], repeated, operation, got))
                if ends:
                    under_way.pop(0)
                for name, counts in self.counts.items():
                    for port in BEHIND:
                        counts[port] += ctx.get(getattr(dut, name)[port])
                self.held.append([ctx.get(dut.held_back[port]) for port in BEHIND])
                if ctx.get(dut.operations.valid) and ctx.get(dut.operations.ready):
                    operation = ctx.get(dut.operations.payload)
                    header = {name: ctx.get(operation.result[name]) for name, _ in operation.result.shape()}
                    self.sound.append(with_parity(CONFIG, header) == header)
                    self.operations.append((cycle, Operation(ctx.get(operation.operation)), ctx.get(operation.slot)))
                    if ctx.get(operation.emit):
                        begin = max([cycle + AFTER] + [at + WORDS for at, *_ in under_way])
                        under_way.append((begin, header, Operation(ctx.get(operation.operation))))
                    busy_until = cycle + 3
                if offers and ctx.get(dut.works.ready):
                    pending.pop(0)
                disturb(ctx, cycle)
                await ctx.tick()
            self.busy = ctx.get(dut.busy)

        bench.drive(drive)

    def received(self, seq):
        """Return how often each member got the result of `seq`."""
        copies = [got for number, _, _, got in self.made if number == seq]
        return [sum(got >> member & 1 for got in copies) for member in range(CONFIG.members)]


def test_result_with_room_at_all_ports_never_waits():
    ports = Ports([(20 * k, contribution(result(k))) for k in range(4)], lambda port, cycle: True)
    assert [ports.received(k) for k in range(4)] == [[1, 1, 1, 1]] * 4
    assert ports.counts == {"waits": [0, 0], "expired": [0, 0]}
    assert len(ports.operations) == 4 and not ports.busy


def test_refused_result_is_made_again_for_its_recipients_when_the_port_has_room():
    ports = Ports([(0, contribution(result(1)))], lambda port, cycle: port == 0 or cycle > 300)
    assert [made[1:] for made in ports.made] == [(0, Operation.CONTRIBUTE, 0b0011), (1, Operation.RESEND, 0b1100)]
    assert ports.operations[1][0] > 300 and ports.operations[1][2] == 1
    assert ports.counts == {"waits": [0, 1], "expired": [0, 0]}
    assert not ports.busy


def test_results_that_wait_for_one_port_leave_once_each_in_order():
    works = [(20 * k, contribution(result(k))) for k in range(4)]
    ports = Ports(works, lambda port, cycle: port == 1 or cycle > 200)
    assert [ports.received(k) for k in range(4)] == [[1, 1, 1, 1]] * 4
    assert [made[0] for made in ports.made if made[1]] == [0, 1, 2, 3]


def test_port_that_never_has_room_delays_no_other_port():
    works = [(20 * k, contribution(result(k))) for k in range(4)]
    ports = Ports(works, lambda port, cycle: port == 1 and cycle > 200)
    assert [ports.received(k) for k in range(4)] == [[0, 0, 1, 1]] * 4
    assert ports.busy


def test_new_result_waits_behind_an_earlier_one():
    """The port has room again before the second result comes, but the first still waits."""
    works = [(0, contribution(result(0))), (40, contribution(result(1)))]
    ports = Ports(works, lambda port, cycle: cycle > 45, waiting=lambda cycle: cycle < 200)
    assert [(seq, repeated, got) for seq, repeated, _, got in ports.made if got] == [(0, 1, 0b1111), (1, 1, 0b1111)]
    assert ports.held[60] == [1, 1] and ports.held[-1] == [0, 0]


def overwritten(component=WaitingResults, *, write_at=100):
    """Let a result wait while its slot is written again."""
    old, new = result(1), result(1 + CONFIG.slots, epoch=6)
    works = [(0, contribution(old)), (write_at, contribution(new, emit=False))]
    return Ports(works, lambda port, cycle: port == 0, component=component)


def test_waiting_result_is_void_when_its_slot_is_written_again():
    ports = overwritten()
    assert ports.received(1) == [1, 1, 0, 0]
    assert ports.counts == {"waits": [0, 1], "expired": [0, 1]}
    assert not ports.busy


def test_result_whose_slot_is_written_before_it_reaches_the_ports_never_waits():
    ports = overwritten(write_at=4)
    assert ports.received(1) == [1, 1, 0, 0]
    assert ports.counts == {"waits": [0, 0], "expired": [0, 1]}


def late_write(component=WaitingResults, *, cycles=range(40, 75)):
    """Let the slot be written around the cycle in which the waiting result is made again. Return what went wrong."""
    wrong = []
    for at in cycles:
        old, new = result(1), result(1 + CONFIG.slots)
        works = [(0, contribution(old)), (at, contribution(new, emit=False))]
        ports = Ports(works, lambda port, cycle: port == 0 or cycle > 45, component=component, cycles=250)
        order = [operation for _, operation, _ in ports.operations]
        if Operation.RESEND in order[order.index(Operation.CONTRIBUTE, 1) :]:
            wrong.append(at)
    return wrong


def test_old_result_is_never_made_after_its_slot_was_written():
    assert late_write() == []


def test_resend_that_is_refused_joins_the_recipients_that_wait():
    again = contribution(result(1, recipients=0b0100), write=False) | {"operation": Operation.RESEND}
    works = [(0, contribution(result(1, recipients=0b1011))), (40, again)]
    ports = Ports(works, lambda port, cycle: port == 0 or cycle > 300)
    assert ports.received(1) == [1, 1, 1, 1]
    assert [made[3] for made in ports.made if made[1]] == [0b1100]


def test_waiting_result_leaves_in_a_cycle_that_no_frame_needs_or_after_a_bounded_time():
    never, most = lambda cycle: True, 2000
    calm, loaded = (
        Ports([(0, contribution(result(1)))], lambda port, cycle: cycle > 40, waiting=waiting, cycles=most)
        for waiting in (lambda cycle: False, never)
    )
    assert calm.operations[1][0] < 100
    patience = loaded.dut.patience
    assert patience < loaded.operations[1][0] < patience + 150
    assert loaded.received(1) == [1, 1, 1, 1]


def upset(monkeypatch, memory: str, bit: int, module=hw.egress.waiting_results) -> Ports:
    """Let a result wait for port 1, and flip a bit of its row, or before that of its item in the FIFO `under_way`."""
    memories = []
    place = (module, "Memory") if memory == "rows" else (hw.stream.fifo, "Memory")
    make = lambda *arguments, **options: memories.append(Memory(*arguments, **options)) or memories[-1]
    monkeypatch.setattr(*place, make)
    number = 1 if memory == "rows" else 0

    def disturb(ctx, cycle):
        row = Value.cast(memories[0].data[number])
        if cycle == (100 if memory == "rows" else SLOTS + AFTER // 2):
            ctx.set(row, ctx.get(row) ^ 1 << bit)

    ports = Ports(
        [(0, contribution(result(1, token=1)))],
        lambda port, cycle: port == 0 or cycle > 300,
        component=module.WaitingResults,
        cycles=450,
        disturb=disturb,
    )
    monkeypatch.undo()
    return ports


def check_rows(monkeypatch, **options) -> None:
    layout = Row(CONFIG)
    header_bits = layout["header"].width
    ends = {bit for _, field in layout["header"].shape for bit in (field.offset, field.offset + field.width - 1)}
    for bit in (*sorted(ends), *range(header_bits, layout.size)):
        ports = upset(monkeypatch, "rows", bit, **options)
        assert not ports.busy, bit
        if bit < header_bits:
            # The composer finds the wrong parity.
            assert ports.sound == [True, False] and ports.counts == {"waits": [0, 1], "expired": [0, 0]}, bit
        else:
            assert len(ports.operations) == 1 and ports.counts == {"waits": [0, 1], "expired": [0, 1]}, bit


def check_under_way(monkeypatch, **options) -> None:
    layout = Making(CONFIG)
    for bit in (*range(layout["fraction"].offset, layout.size), 0):
        ports = upset(monkeypatch, "under_way", bit, **options)
        assert len(ports.operations) == 1 and ports.counts["expired"] == [0, 1] and not ports.busy, bit


def test_the_header_of_a_result_that_is_made_again_has_the_parity_of_the_first_copy():
    ports = Ports([(0, contribution(result(1, token=77)))], lambda port, cycle: port == 0 or cycle > 300)
    assert ports.sound == [True, True]


def test_a_bit_error_of_a_waiting_result_is_found(monkeypatch):
    """One in its header leaves with it, with a wrong parity; one in its fraction makes the result void."""
    check_rows(monkeypatch)


def test_a_bit_error_of_a_result_under_way_makes_its_row_void(monkeypatch):
    check_under_way(monkeypatch)


def check_repeated(monkeypatch, module=hw.egress.waiting_results) -> None:
    """Flip each copy of `repeated`, while the result that is made again is under way."""
    first = Making(CONFIG).size
    for bit in range(first, first + 3):
        memories, flipped = [], []
        make = functools.partial(record, memories)
        monkeypatch.setattr(hw.stream.fifo, "Memory", make)

        def disturb(ctx, cycle, memories=memories, flipped=flipped, bit=bit):
            row = Value.cast(memories[0].data[1])
            if not flipped and ctx.get(row):
                ctx.set(row, ctx.get(row) ^ 1 << bit)
                flipped.append(cycle)

        works = [(0, contribution(result(1)))]
        room = lambda port, cycle: port == 0 or cycle > 100
        ports = Ports(works, room, component=module.WaitingResults, cycles=200, disturb=disturb)
        monkeypatch.undo()
        assert flipped and ports.received(1) == [1, 1, 1, 1] and not ports.busy
        assert [repeated for _, repeated, *_ in ports.made] == [0, 1]


def record(memories, *arguments, **options) -> Memory:
    memories.append(Memory(*arguments, **options))
    return memories[-1]


def test_no_bit_error_hides_the_result_for_which_the_scan_waits(monkeypatch):
    check_repeated(monkeypatch)


@pytest.mark.mutant
def test_a_mutant_without_a_majority_is_noticed(monkeypatch):
    broken = mutant(
        hw.egress.waiting_results, "majority(under_way.o.payload.repeated)", "under_way.o.payload.repeated[0]"
    )
    with pytest.raises(AssertionError):
        check_repeated(monkeypatch, broken)


def coincidence(monkeypatch, module=hw.egress.waiting_results) -> Ports:
    """Let the slot of a waiting result be written again, and flip at the same time the one bit by which the numbers of
    writes differ."""
    memories, flipped = [], []
    monkeypatch.setattr(module, "Memory", lambda **options: memories.append(Memory(**options)) or memories[-1])
    old, new = result(1), result(1 + CONFIG.slots)

    def disturb(ctx, cycle):
        _, _, written, _, writes = (Value.cast(memory.data[1]) for memory in memories)
        if not flipped and ctx.get(writes) & 0xFF == 3:
            assert ctx.get(written) & 0xFF == 2
            ctx.set(written, ctx.get(written) ^ 1)
            flipped.append(cycle)

    works = [(0, contribution(old, emit=False)), (20, contribution(old)), (100, contribution(new, emit=False))]
    room = lambda port, cycle: port == 0 or cycle > 110
    ports = Ports(works, room, component=module.WaitingResults, cycles=300, disturb=disturb)
    monkeypatch.undo()
    assert flipped
    return ports


def test_no_bit_error_makes_two_numbers_of_writes_equal(monkeypatch):
    ports = coincidence(monkeypatch)
    assert Operation.RESEND not in [operation for _, operation, _ in ports.operations]
    assert ports.counts["expired"] == [0, 1] and not ports.busy


@pytest.mark.mutant
def test_a_mutant_without_the_parity_of_the_number_of_writes_is_noticed(monkeypatch):
    broken = mutant(hw.egress.waiting_results, "Cat(number, number.xor())", "number")
    ports = coincidence(monkeypatch, broken)
    assert Operation.RESEND in [operation for _, operation, _ in ports.operations]


@pytest.mark.mutant
@pytest.mark.parametrize(
    ("sound", "wrong"),
    [
        ("(making_parity(row_read.data) != row_read.data.parity)", "0"),
        ("under_way.i.payload.made.parity.eq(making_parity(entry.made))", "under_way.i.payload.made.parity.eq(0)"),
        ("row_write.data.parity.eq(made.parity)", "row_write.data.parity.eq(making_parity(made))"),
        ("header_parity(self.works.payload.result)", "0"),
        ("Cat(made.fraction, made.as_is).xor()", "made.fraction[:8].xor()"),
    ],
)
def test_a_mutant_of_the_parity_is_noticed(sound, wrong, monkeypatch):
    broken = mutant(hw.egress.waiting_results, sound, wrong)
    with pytest.raises(AssertionError):
        check_under_way(monkeypatch, module=broken)
        check_rows(monkeypatch, module=broken)


@pytest.mark.mutant
@pytest.mark.parametrize(
    ("sound", "wrong", "run"),
    [
        ("with m.If(waiting.any() & ~valid):", "with m.If(0):", "overwritten"),
        ("with m.If(made.writes == seen_read.data):", "with m.If(1):", "overwritten early"),
        ("(expected != seen_read.data)", "0", "late write"),
        ("count_read.data[:WRITES_BITS] + wrote", "count_read.data[:WRITES_BITS]", "overwritten"),
    ],
)
def test_mutant_is_noticed(sound, wrong, run):
    broken = mutant(hw.egress.waiting_results, sound, wrong).WaitingResults
    if run == "late write":
        assert late_write(broken) != []
    else:
        ports = overwritten(broken, write_at=4 if run == "overwritten early" else 100)
        waits = [0, 0] if run == "overwritten early" else [0, 1]
        assert ports.counts != {"waits": waits, "expired": [0, 1]} or ports.received(1) != [1, 1, 0, 0]
