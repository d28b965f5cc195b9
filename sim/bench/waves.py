"""Waveforms of failing tests: each simulation of a test is written to a VCD file, with a view for GTKWave.

    pytest --waves build/waves tests/hw/stream/test_arbiter.py

The view shows the ports of the simulated component, or of the components of a simulated module, a group each, with the
marker where the simulation ended. The files of tests that pass are deleted.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from amaranth.hdl import Elaboratable, Module
from amaranth.lib.wiring import Component
from amaranth.sim import Simulator
from vcd.gtkw import GTKWSave

from sim.bench.port_view import mark_end

__all__ = ["Recording", "grouped_ports", "mark", "recorded"]

_TAIL = 4096
"""Bytes at the end of a VCD file in which its last time is looked for."""


class Recording:
    """Where a test's waveforms are.

    Attributes
    ----------
    views : list of Path
        The views, in the order in which simulations began; each stands beside its waveform, with the same name.
    """

    def __init__(self, folder: Path, name: str) -> None:
        self._folder = folder
        self._name = re.sub(r"[^\w.=-]+", "-", name).strip("-")
        self.views: list[Path] = []

    def next_view(self) -> Path:
        """Return the path of the view of the next simulation."""
        self._folder.mkdir(parents=True, exist_ok=True)
        number = f"-{len(self.views) + 1}" if self.views else ""
        self.views.append(self._folder / f"{self._name}{number}.gtkw")
        return self.views[-1]

    def delete(self) -> None:
        """Delete all files."""
        for view in self.views:
            view.unlink(missing_ok=True)
            view.with_suffix(".vcd").unlink(missing_ok=True)
        self.views.clear()


def grouped_ports(design: Elaboratable) -> dict[str, Any]:
    """Return the ports of a component by name, or those of a module's components by the name of each component."""
    if isinstance(design, Component):
        return {name: getattr(design, name) for name in design.signature.members}
    if not isinstance(design, Module):
        return {}
    named: dict[str, Any] = {name: part for name, (part, _) in _named_parts(design).items()}
    found = {name: grouped_ports(part) for name, part in named.items()}
    return {name: ports for name, ports in found.items() if ports}


def _named_parts(design: Module) -> dict[str, tuple[Any, Any]]:
    """Return a module's parts by name; a part without one has its class's name. Amaranth has no public list of them."""
    named = dict(design._named_submodules)
    for number, (part, source) in enumerate(design._anon_submodules):
        named[f"{type(part).__name__}{number}"] = part, source
    return named


def mark(view: Path, waveform: Path) -> None:
    """Set the marker of a view to the last time of its waveform."""
    with waveform.open("rb") as file:
        file.seek(max(0, waveform.stat().st_size - _TAIL))
        times = re.findall(rb"^#(\d+)", file.read(), re.MULTILINE)
    if times:
        with view.open("a", encoding="utf-8") as file:
            mark_end(GTKWSave(file), int(times[-1]), ns=10**6)


@contextmanager
def recorded(recording: Recording) -> Iterator[Recording]:
    """Write the waveforms of all simulations of Amaranth designs within the block."""
    initialise, run, run_until = Simulator.__init__, Simulator.run, Simulator.run_until
    designs: dict[int, Elaboratable] = {}

    def keep_design(self: Simulator, toplevel: Elaboratable, **options: Any) -> None:
        initialise(self, toplevel, **options)
        designs[id(self)] = toplevel

    def written(method: Callable[..., None]) -> Callable[..., None]:
        def simulate(self: Simulator, *arguments: Any, **options: Any) -> None:
            view = recording.next_view()
            waveform = view.with_suffix(".vcd")
            try:
                with self.write_vcd(str(waveform), str(view), traces=grouped_ports(designs[id(self)])):
                    method(self, *arguments, **options)
            finally:
                mark(view, waveform)

        return simulate

    Simulator.__init__, Simulator.run, Simulator.run_until = keep_design, written(run), written(run_until)
    try:
        yield recording
    finally:
        Simulator.__init__, Simulator.run, Simulator.run_until = initialise, run, run_until
