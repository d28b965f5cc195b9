"""A view for GTKWave of the waveform of emitted Verilog: the ports of the top, a group for each stream."""

import math
import re
from collections import defaultdict
from pathlib import Path

from vcd.gtkw import GTKWSave

__all__ = ["mark_end", "top_ports", "write_view"]

_SIZE = 1300, 800
"""Pixels of GTKWave's window."""


def mark_end(save: GTKWSave, end: int, *, ns: int) -> None:
    """Set the marker to the end of a simulation, and show 200 ns in 200 pixels.

    Parameters
    ----------
    save : GTKWSave
        The view.
    end : int
        End of the simulation, in units of the waveform's time.
    ns : int
        Units of the waveform's time in a nanosecond.
    """
    save.zoom_markers(-math.log2(200 * ns), end)
    save.size(*_SIZE)


def top_ports(verilog: str, top: str) -> dict[str, int]:
    """Return the ports of a module and their widths in bits, in the order of its port list."""
    module = verilog[verilog.rindex(f"\nmodule {top}(") :]
    module = module[: module.index("\nendmodule")]
    names = re.findall(r"\w+", module.partition(";")[0])[2:]
    widths = {
        name: int(high or 0) + 1
        for high, name in re.findall(r"(?m)^\s*(?:input|output)\s+(?:reg |wire )?(?:\[(\d+):0\] )?(\w+);", module)
    }
    return {name: widths[name] for name in names}


def write_view(view: Path, waveform: Path, *, top: str, ports: dict[str, int], end_ps: int) -> None:
    """Write a view.

    Parameters
    ----------
    view, waveform : Path
        File to write, and the waveform that it shows.
    top : str
        Name of the top module.
    ports : dict of str to int
        Widths of its ports. Ports whose names begin alike, as in `rx0_data` and `rx0_valid`, form a group.
    end_ps : int
        End of the simulation in picoseconds; the marker stands there.
    """
    groups: dict[str, list[str]] = defaultdict(list)
    for name, width in ports.items():
        stream = name.partition("_")[0] if "_" in name else ""
        groups[stream].append(f"{top}.{name}" + (f"[{width - 1}:0]" if width > 1 else ""))
    with view.open("w", encoding="utf-8") as file:
        save = GTKWSave(file)
        save.dumpfile(str(waveform.resolve()))
        save.treeopen(f"{top}.")
        mark_end(save, end_ps, ns=1000)
        for stream, names in groups.items():
            if stream and len(names) > 1:
                with save.group(stream):
                    for name in names:
                        save.trace(name)
            else:
                for name in names:
                    save.trace(name)
