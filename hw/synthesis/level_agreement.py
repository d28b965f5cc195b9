"""`python -m hw.synthesis.level_agreement`: how logic levels, which are known after synthesis, agree with delays after
routing.

For Xilinx parts no tool here knows a delay, so designs are compared by their logic levels
(`hw.synthesis.timing_paths`). For ECP5 both are known: each component is synthesised, placed and routed, its levels are
counted by the same rule, and nextpnr says how long the signal to each register takes.
"""

import json
import time
from collections import defaultdict
from typing import Annotated, Any, NamedTuple

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from hw.synthesis import ecp5_primitives
from hw.synthesis.timing import BUILD, CONFIG, DEVICE, ELSEWHERE, PARTS, component, place
from hw.synthesis.timing_paths import Arrivals, Netlist

__all__ = ["DEFAULT", "Agreement", "agreement", "main", "rank_correlation"]

DEFAULT = ("queue", "parser", "sequencer", "composer", "output", "counters", "forwarder")


class Agreement(NamedTuple):
    """Levels and delays of the registers of one design.

    delays : dict[int, list[float]]
        By levels: for each register with so many levels before it, the longest delay to it in nanoseconds, from the
        clock's edge, with routing and set-up.
    rank_correlation : float
        Spearman's, over all registers.
    critical_levels : int
        Levels of the register with the longest delay.
    """

    delays: dict[int, list[float]]
    rank_correlation: float
    critical_levels: int


def agreement(netlist: dict[str, Any], routed: dict[str, Any]) -> Agreement:
    """Compare the levels of a netlist of `synth_ecp5`, top module `top`, with nextpnr's detailed timing report of the
    same design. Raises ValueError if the report has no detailed timing, or no register of the netlist."""
    flat = Netlist(netlist["modules"]["top"], ecp5_primitives)
    arrivals, levels = Arrivals(flat), dict[str, int]()
    for name, _, bit, more in flat.ends():
        levels[name] = max(levels.get(name, 0), arrivals.at(bit) + more)
    longest: dict[str, float] = {}
    for net in routed.get("detailed_net_timings", ()):
        if not net["event"].startswith("posedge"):  # from a pin
            continue
        for end in net["endpoints"]:
            if end["cell"] in levels:
                longest[end["cell"]] = max(longest.get(end["cell"], 0.0), end["delay"][1])
    if not longest:
        raise ValueError("routed must be nextpnr's report of this netlist, with --detailed-timing-report")
    delays: dict[int, list[float]] = defaultdict(list)
    for name, delay in longest.items():
        delays[levels[name]].append(delay)
    return Agreement(
        dict(sorted(delays.items())),
        rank_correlation([levels[name] for name in longest], list(longest.values())),
        levels[max(longest, key=longest.__getitem__)],
    )


def rank_correlation(a: list[int], b: list[float]) -> float:
    """Return Spearman's rank correlation of two lists; equal values share the mean of their ranks."""
    return float(np.corrcoef(_ranks(np.asarray(a)), _ranks(np.asarray(b)))[0, 1])


def _ranks(values: np.ndarray) -> np.ndarray:
    _, which, counts = np.unique(values, return_inverse=True, return_counts=True)
    return np.asarray((np.cumsum(counts) - (counts - 1) / 2)[which])


def main(
    only: Annotated[str, typer.Option(help=f"Only this component: {', '.join(PARTS)}.")] = "",
    seed: Annotated[int, typer.Option(help="Of the placement.")] = 1,
) -> None:
    """Print the delays of registers by the levels before them; minutes."""
    if only and only not in PARTS:
        raise typer.BadParameter(f"there is no {only!r}; there are {', '.join(PARTS)}")
    console, begun = Console(highlight=False), time.monotonic()
    all_delays: dict[int, list[float]] = defaultdict(list)
    parts = Table("component", "registers", "rank correlation", "most levels", "levels of the longest delay", "MHz")
    for name in [only] if only else DEFAULT:
        report = place(name, *component(PARTS[name](CONFIG)), seed=seed, device=ELSEWHERE.get(name, DEVICE))
        netlist, routed = (json.loads((BUILD / name / file).read_text()) for file in ("top.json", "nextpnr.json"))
        found = agreement(netlist, routed)
        for levels, delays in found.delays.items():
            all_delays[levels] += delays
        parts.add_row(
            name,
            f"{sum(map(len, found.delays.values())):,}",
            f"{found.rank_correlation:.2f}",
            str(max(found.delays)),
            str(found.critical_levels),
            f"{report['clocks']['core']['achieved_mhz']:.1f}",
        )
    console.print(parts)
    rows = Table("levels", "registers", "mean delay, ns", "longest, ns")
    for levels, delays in sorted(all_delays.items()):
        rows.add_row(str(levels), f"{len(delays):,}", f"{np.mean(delays):.2f}", f"{max(delays):.2f}")
    console.print(rows)
    console.print(f"{time.monotonic() - begun:.0f} s", style="dim")


if __name__ == "__main__":
    typer.run(main)
