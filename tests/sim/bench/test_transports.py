"""All paths to a switch sum, and each has a row."""

import pytest
from typer import Typer
from typer.testing import CliRunner

from sim.bench import transports
from sim.bench.namespaces import obstacle
from sim.bench.transports import PATHS, SIZES, main, measure


def test_each_path_and_size_has_its_latency():
    if why := obstacle():
        pytest.skip(why)
    found = measure(world=2, calls=3)
    assert set(found) == {(size, path) for size in SIZES for path in PATHS}
    assert all(0 < latency.median_us <= latency.p99_us and latency.calls == 6 for latency in found.values())


def test_without_root_udp_sockets_are_measured_and_the_reason_is_printed(monkeypatch):
    monkeypatch.setattr(transports, "obstacle", lambda: "there is no `ip`")
    app = Typer()
    app.command()(main)
    ran = CliRunner().invoke(app, ["--calls", "3"])
    assert ran.exit_code == 0, ran.exception
    assert "UDP sockets on loopback alone, because there is no `ip`" in ran.stdout
    assert "UDP socket, in Python" in ran.stdout and "packet" not in ran.stdout
