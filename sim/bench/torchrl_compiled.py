"""TorchRL's compiled part, its sum tree in C++, built from the sources in its wheel for the torch that is installed.

The wheels of TorchRL up to 0.14.1 were built for an earlier torch, and their compiled part does not load beside torch
2.13. TorchRL (MIT licence) ships its sources in the wheel, so what is measured is TorchRL's own code. It is made once,
in about two minutes, and kept in build/.
"""

import importlib.metadata
import importlib.util
import sys
import sysconfig
from pathlib import Path

from sim.bench.compiled import BUILD
from sim.emulator.toolchain import CompileError, digest, made_once, shared

__all__ = ["load_compiled_torchrl"]

_MODULE = "torchrl._torchrl"
_LIBRARIES = ("libtorch.so", "libtorch_cpu.so", "libc10.so", "libtorch_python.so")


def load_compiled_torchrl() -> None:
    """Make TorchRL find its compiled part. Call this before anything imports TorchRL.

    Raises
    ------
    ImportError
        If TorchRL is missing or was imported before, if the compiler refuses, or if there is no compiler.
    """
    if _MODULE in sys.modules:
        return
    if "torchrl" in sys.modules:
        raise ImportError("TorchRL was imported without its compiled part: measure it in a process of its own")
    found = importlib.util.find_spec("torchrl")
    if found is None or found.origin is None:
        raise ImportError("TorchRL is not installed: pip install torchrl, or make setup")
    import torch
    from torch.utils.cpp_extension import include_paths, library_paths

    package = Path(found.origin).parent
    sources = sorted((package / "csrc").glob("*.cpp"))
    includes = [*include_paths(), sysconfig.get_path("include"), str(package.parent)]
    flags = ["-std=c++20", "-fPIC", "-w", "-DTORCH_EXTENSION_NAME=_torchrl", *(f"-I{path}" for path in includes)]
    libraries = [Path(path) / name for path in library_paths() for name in _LIBRARIES]
    versions = (importlib.metadata.version("torchrl"), torch.__version__, sys.version)
    try:
        built = made_once(
            BUILD / f"torchrl-{digest(*versions, *flags)}.so",
            lambda work: shared(([], flags, [(source, "-O3") for source in sources], libraries), work, "torchrl.so"),
            "compiling TorchRL's sum tree, once",
        )
    except CompileError as error:
        raise ImportError(f"TorchRL's compiled part: {error}") from error
    spec = importlib.util.spec_from_file_location(_MODULE, built)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[_MODULE] = module
    spec.loader.exec_module(module)
