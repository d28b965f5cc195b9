"""Rules for an ECP5 board's preferences: pins and clocks."""

import re
from collections.abc import Iterable

__all__ = ["check_lpf"]


def check_lpf(text: str, bits: Iterable[str], clocks: Iterable[str]) -> list[str]:
    """Of an ECP5 board's preferences: every bit of every port has a site and an I/O type, no site is given twice,
    nothing is named that is not there, and each clock that comes in has a frequency. bits: as the file names them,
    name[k] of a bus."""
    found, wanted = [], set(bits)
    text = re.sub(r"#.*|//.*", "", text)
    sites: dict[str, str] = {}
    placed, typed, timed = {}, set(), set()
    for statement in (part.strip() for part in text.split(";")):
        if match := re.fullmatch(r'LOCATE\s+COMP\s+"([^"]+)"\s+SITE\s+"([^"]+)"', statement):
            port, site = match.groups()
            if sites.setdefault(site, port) != port:
                found.append(f"pin {site} is given to {sites[site]} and to {port}")
            placed[port] = site
        elif match := re.fullmatch(r'IOBUF\s+PORT\s+"([^"]+)"\s*(.*)', statement, re.DOTALL):
            if "IO_TYPE=" in match.group(2):
                typed.add(match.group(1))
        elif match := re.fullmatch(r'FREQUENCY\s+(?:PORT|NET)\s+"([^"]+)"\s+([\d.]+)(?:\s+MHZ|\s+HZ)?', statement):
            timed.add(match.group(1))
        elif statement and not re.match(r"BLOCK|SYSCONFIG|DEFINE|USE", statement):
            found.append(f"preferences have {statement.split()[0]}, which is not known here")
    found += [f"port {port} has no pin" for port in sorted(wanted - placed.keys())]
    found += [f"port {port} has no I/O standard" for port in sorted((wanted & placed.keys()) - typed)]
    found += [f"constraints name port {port}, which is not there" for port in sorted((placed.keys() | typed) - wanted)]
    found += [f"clock of port {clock} is not defined" for clock in sorted(set(clocks) - timed)]
    return found
