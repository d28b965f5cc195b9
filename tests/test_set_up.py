"""Set-up: what is installed is pinned with hashes, a download that breaks off is tried again, and what is missing is
named."""

import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
GROUPS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["dependency-groups"]
REQUIREMENTS = ROOT / "tools" / "requirements"


def installed(group):
    """Every `name==version` of a group's file and of the files that it includes, with whether it has hashes."""
    text = (REQUIREMENTS / f"{group}.txt").read_text(encoding="utf-8")
    found = {
        pin: "--hash=sha256:" in rest
        for pin, rest in re.findall(r"^([\w.-]+==[^\s;]+)((?:.*\\\n)*.*)$", text, re.MULTILINE)
    }
    for other in re.findall(r"^-r (\w+)\.txt$", text, re.MULTILINE):
        found |= installed(other)
    return found


@pytest.mark.parametrize("group", GROUPS)
def test_each_group_is_pinned_with_hashes_as_pyproject_says(group):
    """If this fails after a change of [dependency-groups], run `make pins`."""
    named = {entry.partition(";")[0].strip() for entry in GROUPS[group] if isinstance(entry, str)}
    found = installed(group)
    assert named - found.keys() == set()
    assert [pin for pin, hashes in found.items() if not hashes] == []


def test_requirements_name_no_registry():
    assert not re.search(
        r"https?:|--index|--find-links", "".join(path.read_text(encoding="utf-8") for path in REQUIREMENTS.iterdir())
    )


@pytest.fixture
def set_up(tmp_path):
    """Runs tools/setup.sh in a folder of its own, whose pip fails so many times before it succeeds."""
    shutil.copytree(ROOT / "tools", tmp_path / "tools")
    pip = tmp_path / ".venv" / "bin" / "python"
    pip.parent.mkdir(parents=True)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "sleep").symlink_to("/bin/true")

    def run(group, *, failures=0, **environment):
        pip.write_text(f"""#!/bin/sh
if [ "$3" = --version ]; then exit 0; fi
echo "$@" >> {tmp_path}/calls
if [ "$(wc -l < {tmp_path}/calls)" -le {failures} ]; then echo "ERROR: connection broken"; exit 1; fi
""")
        pip.chmod(0o755)
        path = f"{tmp_path / 'bin'}:{os.environ['PATH']}"
        done = subprocess.run(
            [tmp_path / "tools" / "setup.sh", group],
            capture_output=True,
            text=True,
            env=os.environ | {"PATH": path} | environment,
        )
        calls = (tmp_path / "calls").read_text().splitlines() if (tmp_path / "calls").exists() else []
        return done, calls

    return run


def test_only_wheels_are_installed_and_only_with_their_hashes(set_up):
    done, calls = set_up("boards")
    assert done.returncode == 0
    listed = [call for call in calls if "--requirement" in call]
    assert len(listed) == 2 and all("--only-binary :all:" in call and "--require-hashes" in call for call in listed)
    [checkout] = [call for call in calls if call not in listed]
    assert "--no-index" in checkout and "--editable ." in checkout


def test_torch_is_installed_as_the_user_says_and_never_compiled(set_up):
    _, calls = set_up("demo", TORCH_SPEC="torch==9.9 --index-url somewhere")
    [torch] = [call for call in calls if "torch==" in call]
    assert torch.endswith("--only-binary :all: torch==9.9 --index-url somewhere")


def test_switches_are_compiled_while_pip_installs(set_up):
    done, calls = set_up("test")
    assert [call.split()[-1] for call in calls if "sim.bench.designs" in call] == ["demo", "test"]
    assert done.stdout.count("waiting for the compiled switches") == 2


def test_a_download_that_breaks_off_is_tried_again(set_up):
    done, calls = set_up("emulator", failures=2)
    assert done.returncode == 0 and len(calls) == 4
    assert "attempt 2 of 3 failed (ERROR: connection broken); trying again" in done.stdout


def test_set_up_ends_with_the_reason_and_a_remedy(set_up):
    done, calls = set_up("emulator", failures=9)
    assert done.returncode == 1 and len(calls) == 3
    assert "failed 3 times" in done.stderr and "connection broken" in done.stderr and "try again" in done.stderr


def test_what_the_machine_lacks_is_named_with_its_package(set_up):
    done, calls = set_up("emulator", PYTHON="false")
    assert done.returncode == 1 and not calls
    assert "Python 3.11 or newer as 'false' (Debian: python3)" in done.stderr


def test_an_environment_whose_making_was_interrupted_is_made_anew(tmp_path):
    shutil.copytree(ROOT / "tools", tmp_path / "tools")
    python = tmp_path / "python"
    python.write_text(f"""#!/bin/sh
echo "$@" >> {tmp_path}/calls
case "$*" in *venv*--clear*) mkdir -p .venv/bin && ln -sf /bin/true .venv/bin/python ;; esac
""")
    python.chmod(0o755)
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    (tmp_path / ".venv" / "bin" / "python").symlink_to("/bin/false")  # as it is before pip is in it
    done = subprocess.run(
        ["../tools/setup.sh", "emulator"],
        cwd=tmp_path / ".venv",
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHON": str(python)},
    )
    assert done.returncode == 0, done.stderr
    assert "-m venv --clear .venv" in (tmp_path / "calls").read_text()


def test_stamps_of_other_packages_are_removed(tmp_path):
    """Otherwise a return to earlier packages would find their stamp and install nothing."""
    for name in ("Makefile", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    shutil.copytree(ROOT / "tools", tmp_path / "tools")
    (tmp_path / ".venv").mkdir()
    (tmp_path / "tools" / "setup.sh").write_text(
        '#!/bin/sh\nif [ "$1" = demo ]; then echo "$TORCH_SPEC" > .venv/torch; fi\n'
    )

    def installed(torch):
        command = ["make", "--no-print-directory", "-f", "Makefile", "-f", "-", "installed", f"TORCH_SPEC={torch}"]
        subprocess.run(command, cwd=tmp_path, check=True, text=True, capture_output=True, input="installed: $(DEMO)\n")
        return (tmp_path / ".venv" / "torch").read_text().strip()

    assert [installed(torch) for torch in ("one", "two", "one")] == ["one", "two", "one"]


def test_an_unknown_group_is_refused_with_those_there_are(set_up):
    done, _ = set_up("everything")
    assert done.returncode == 2 and done.stderr == "usage: tools/setup.sh boards|demo|emulator|lint|ray|site|test\n"
