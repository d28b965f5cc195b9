"""Tables of `iswitch status` and `iswitch counters`, and the lines of `iswitch doctor`."""

import io

from rich.console import Console

from iswitch.control.registers import JobStatus
from iswitch.control.switch_info import SwitchInfo
from iswitch.tools.path_checks import Finding, Mark
from iswitch.tools.tables import counter_table, finding_lines, job_table, port_table, summary
from iswitch.wire import JobState, PortCounter


def text(shown):
    console = Console(file=io.StringIO(), width=120)
    console.print(shown)
    return console.file.getvalue()


def row(shown, first):
    [found] = [line.split("│")[1:-1] for line in text(shown).splitlines() if line.startswith(f"│ {first} ")]
    return [cell.strip() for cell in found]


def test_the_summary_has_the_sizes_of_the_switch():
    info = SwitchInfo(ports=2, bus_bits=256, members=8, jobs=4, window=64, elements=352)
    assert summary("s:1", info) == (
        "iswitch at s:1: 2 ports, 256 bit bus, 4 jobs of up to 8 workers, window 64 segments of up to 352 elements "
        "(180 in a tree of switches)"
    )


def test_a_job_that_does_not_exist_is_free():
    jobs = [JobStatus(0, JobState.RUNNING, 17, 4, 3, 2), JobStatus(1, JobState.NONE, 0, 0, 0, 0)]
    assert row(job_table(jobs), "0") == ["0", "running", "3 of 4", "2", "17"]
    assert row(job_table(jobs), "1") == ["1", "free", "", "", ""]


def test_the_columns_of_a_port_add_up_its_counters():
    counters = {
        f"port{port}.{name}": 100 * port + k for port in range(2) for k, name in enumerate(PortCounter.__members__)
    }
    values = {name: counters[f"port1.{name}"] for name in PortCounter.__members__}
    damaged = values["RX_ERROR"] + values["RX_RUNT"] + values["RX_OVERSIZE"]
    dropped = (
        values["RX_OVERFLOW"]
        + values["TX_DROP_GRANT"]
        + values["TX_DROP_REPLY"]
        + values["TX_DROP_ORDINARY"]
        + values["TX_AGED"]
        + values["TX_LINK_DOWN"]
    )
    expected = [values["RX_FRAMES"], values["TX_FRAMES"], damaged, dropped]
    assert row(port_table(counters, 2), "1") == ["1", *map(str, expected)]


def test_a_counter_stands_with_its_meaning():
    assert row(counter_table({"RESULTS": 5}), "RESULTS") == ["RESULTS", "5", "results completed"]


def test_a_remedy_is_printed_unless_the_finding_is_ok():
    assert [len(list(finding_lines(Finding("loss", mark, "3 of 9", "look")))) for mark in Mark] == [1, 2, 2]
    assert [line.plain for line in finding_lines(Finding("loss", Mark.BAD, "3 of 9", "look"))] == [
        "    bad  loss            3 of 9",
        f"{'':25}look",
    ]
