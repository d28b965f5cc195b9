#!/usr/bin/env bash
# Installs one dependency group of pyproject.toml into .venv, and makes .venv if it is missing: tools/setup.sh emulator|demo|test|boards|ray|lint|site
# Everything but torch has its version and hashes in tools/requirements/; only wheels are installed, so nothing is compiled.
set -euo pipefail
cd "$(dirname "$0")/.."
PYTHON=${PYTHON:-python3}
TORCH_SPEC=${TORCH_SPEC:-torch==2.13.0}
ATTEMPTS=3
LOG=build/setup.log
COMPILED=build/compile.log

group=${1:-}
if ! [ -f "tools/requirements/$group.txt" ]; then
    echo "usage: tools/setup.sh $(cd tools/requirements && ls -- *.txt | sed 's/\.txt$//' | paste -sd '|')" >&2
    exit 2
fi

missing=()
need() {  # need <what> <Debian package> <command that proves that it is there>...
    local what=$1 package=$2
    shift 2
    "$@" >/dev/null 2>&1 || missing+=("$what (Debian: $package)")
}
need "Python 3.11 or newer as '$PYTHON'" python3 "$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 11))'
need "Python's venv and pip" python3-venv "$PYTHON" -c 'import venv, ensurepip'
need "a C++ compiler" g++ g++ --version
need "make" make make --version
case $group in test | lint) need "perl" perl perl -v ;; esac  # cocotb calls Verilator by its Perl script
if ((${#missing[@]})); then
    echo "Set-up needs something that this machine lacks:" >&2
    printf '  - %s\n' "${missing[@]}" >&2
    exit 1
fi

mkdir -p build
if [ -z "${ISWITCH_SET_UP:-}" ]; then  # one set-up at a time; those that this one calls are part of it
    export ISWITCH_SET_UP=1
    exec flock build/setup.lock tools/setup.sh "$@"
fi
say() { echo "[set-up] $*"; }

install() {  # install <what>, <pip's arguments>...: quiet unless it fails; a download that breaks off is tried again
    local what=$1 attempt
    shift
    for ((attempt = 1; ; attempt++)); do
        say "$what"
        if .venv/bin/python -m pip --disable-pip-version-check --retries 5 --timeout 60 install --quiet "$@" >"$LOG" 2>&1; then
            return
        fi
        if ((attempt == ATTEMPTS)); then
            echo "[set-up] $what failed $ATTEMPTS times. The end of $LOG:" >&2
            tail -n 20 "$LOG" >&2
            echo "[set-up] If a download broke off, try again: what is complete is kept." >&2
            exit 1
        fi
        say "attempt $attempt of $ATTEMPTS failed ($(grep -v '^ *$' "$LOG" | tail -n 1 | cut -c1-150)); trying again"
        sleep 2
    done
}

requirements() {
    install "$(grep -c == "$1") packages: $1" --no-deps --require-hashes --only-binary :all: --requirement "$1"
}

compile() {  # compile demo|test: the switches that are needed, while pip installs
    .venv/bin/python -m sim.bench.designs "$1" 2>"$COMPILED" &
}

compiled() {  # wait for `compile`
    say "waiting for the compiled switches"
    if ! wait $!; then
        echo "[set-up] compiling failed:" >&2
        tail -n 20 "$COMPILED" >&2
        exit 1
    fi
}

if ! .venv/bin/python -m pip --version >/dev/null 2>&1; then  # none yet, or one whose making was interrupted
    say ".venv with $("$PYTHON" --version)"
    "$PYTHON" -m venv --clear .venv
fi
case $group in
emulator)
    requirements "tools/requirements/$group.txt"
    install "this checkout" --no-deps --no-index --no-build-isolation --editable .
    ;;
demo)
    tools/setup.sh emulator
    compile demo
    requirements "tools/requirements/$group.txt"
    read -ra torch <<<"$TORCH_SPEC"
    install "$TORCH_SPEC" --only-binary :all: "${torch[@]}"
    compiled
    ;;
test | lint)
    tools/setup.sh demo
    compile test
    requirements "tools/requirements/$group.txt"
    compiled
    ;;
ray)
    tools/setup.sh demo
    requirements "tools/requirements/$group.txt"
    ;;
boards | site)
    tools/setup.sh emulator
    requirements "tools/requirements/$group.txt"
    ;;
esac
