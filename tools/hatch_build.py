"""Hatchling's hook for wheels: compiles the library, so that users need no compiler.

Zig's C compiler comes from the package index and links against an old glibc, so the wheel runs on any Linux of the last
ten years. An editable install compiles the library when it is first used.
"""

import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

ZIG = "ziglang==0.13.0"
GLIBC = (2, 17)
"""manylinux2014."""


class LibraryHook(BuildHookInterface):
    """Adds the compiled libraries to a wheel for Linux on x86-64."""

    def dependencies(self) -> list[str]:
        """Return what the compilation needs."""
        return [] if self.target_name != "wheel" else [ZIG, "numpy>=2.0"]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile the library, unless the install is editable."""
        if version == "editable":
            return
        sys.path.insert(0, str(Path(self.root, "host")))
        from iswitch.native.loader import LEVELS, build

        target = f"x86_64-linux-gnu.{'.'.join(map(str, GLIBC))}"
        compiler = [sys.executable, "-m", "ziglang", "cc", "-target", target]
        for level in LEVELS:
            made = build(Path(self.root, "build", "wheel"), compiler, level)
            build_data["force_include"][str(made)] = f"iswitch/native/{made.name}"
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-manylinux_{GLIBC[0]}_{GLIBC[1]}_x86_64"
