"""Build wheel and sdist, and use each of them in a new virtual environment of each Python: `make packages`.

`PYTHONS="python3.11 python3.13"` names the interpreters. In each environment, which has the package with its extra
`cli` alone, two workers sum a vector over `iswitch switch`.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
SUPPORTED = [f"python3.{minor}" for minor in (11, 12, 13)]
SMOKE = """
import json, multiprocessing, subprocess, sys, time
from pathlib import Path
import numpy as np
import iswitch

def work(address, rank, sums):
    with iswitch.init(address, rank=rank, world=2, key=1) as worker:
        vector = np.arange(5000, dtype=np.float32) * (rank + 1)
        worker.allreduce(vector)
        sums.put(vector.tobytes() == (np.arange(5000, dtype=np.float32) * 3).tobytes())

if __name__ == "__main__":
    ready = Path("ready.json")
    ready.unlink(missing_ok=True)
    command = [str(Path(sys.executable).with_name("iswitch")), "switch", "--udp-base", "0", "--ready-file", str(ready)]
    switch = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        until = time.monotonic() + 60
        while not ready.exists():
            assert switch.poll() is None and time.monotonic() < until, "iswitch switch has not started"
            time.sleep(0.05)
        host, port = json.loads(ready.read_text())["ports"][0]
        address = f"{host}:{port}"
        context = multiprocessing.get_context("spawn")
        sums = context.Queue()
        workers = [context.Process(target=work, args=(address, rank, sums)) for rank in range(2)]
        for worker in workers:
            worker.start()
        assert [sums.get(timeout=60) for _ in workers] == [True, True]
        for worker in workers:
            worker.join()
        print(f"Python {sys.version.split()[0]}, numpy {np.__version__}, iswitch {iswitch.__version__}: right sums")
    finally:
        switch.terminate()
"""


def run(*command: object, folder: Path = ROOT) -> None:
    """Run a command. Exit with its output if it fails."""
    done = subprocess.run([str(part) for part in command], cwd=folder, text=True, capture_output=True)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))} failed:\n{done.stdout}{done.stderr}")


def interpreters() -> list[str]:
    """Return the interpreters to check: PYTHONS, or all supported ones on PATH. Exit if one of PYTHONS cannot run."""
    named = os.environ.get("PYTHONS", "").split()
    found = [path for name in named or SUPPORTED if (path := shutil.which(name)) and runs(path)]
    if len(found) < len(named):
        sys.exit(f"PYTHONS must name interpreters that run, not {os.environ['PYTHONS']!r}; these do: {found}")
    return found or [sys.executable]


def runs(python: str) -> bool:
    """Return whether an interpreter runs: that of pyenv on PATH may stand for a version that is not chosen."""
    return subprocess.run([python, "-c", ""], capture_output=True).returncode == 0


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        dist = Path(folder, "dist")
        print("building the sdist, and from it the wheel ...", flush=True)
        run(sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", dist)
        [sdist] = dist.glob("*.tar.gz")
        run(sys.executable, "-m", "pip", "wheel", "--no-deps", "--wheel-dir", dist, sdist)
        [wheel] = dist.glob("*.whl")
        Path(folder, "smoke.py").write_text(SMOKE)
        for package, pythons in ((wheel, interpreters()), (sdist, interpreters()[:1])):
            for python in pythons:
                environment = Path(folder, "environment")
                run(python, "-m", "venv", "--clear", environment)
                run(environment / "bin" / "python", "-m", "pip", "install", f"{package}[cli]")
                print(f"{package.name}: ", end="", flush=True)
                subprocess.run([environment / "bin" / "python", "smoke.py"], cwd=folder, check=True, timeout=120)


if __name__ == "__main__":
    main()
