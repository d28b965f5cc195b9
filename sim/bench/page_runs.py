"""How each program that the pages of the documentation name is known to run: by a short run, by a test, or not at all.

A program is what `sim.bench.page_commands.program` returns: a module, a subcommand of `iswitch`, a target of `make`
that runs no module, or the name of a program of others. That each command of a program has the right options is what
`sim.bench.page_commands.complaint` says.
"""

from typing import NamedTuple

__all__ = ["NOT_RUN", "SHORT_RUNS", "TESTED", "Run", "listed"]


class Run(NamedTuple):
    """A short run of a program.

    Attributes
    ----------
    arguments : str
        Its arguments, which make it end soon. ROOT stands for the folder of the checkout.
    says : str
        What it prints, among other things.
    status : int
        Its exit status.
    """

    arguments: str
    says: str
    status: int = 0


SHORT_RUNS = {
    "hw.synthesis.level_agreement": Run("--only sequencer", "rank correlation"),
    "hw.board.critical_paths": Run("--only lane --most 3", " -> "),
    "sim.bench.cluster_agreement": Run("--show ROOT/docs/loopback_agreement.json", "iswitch: modelled by measured"),
    "sim.bench.ddp_overlap": Run("--steps 1", "bucket"),
    "sim.bench.emulator_speed": Run("--repetitions 2", "kHz of processor time"),
    "sim.bench.flood": Run("--seconds 1 --senders 1 --workers 2", "wrong"),
    "sim.bench.imports": Run("", "iswitch.worker --> iswitch.control"),
    "sim.bench.recovery": Run("--workers 2 --evict-s 0.3", "weights at the end           equal"),
    "sim.bench.software_pair": Run("--frames 1000", "frames"),
    "sim.bench.retransmission": Run("--quick --loss 0 --size '1.4 KB' --ports 1", "1.4 KB"),
    "sim.bench.soak": Run("--frames 100 --operations 10 --only member_port", "no promise was broken"),
    "sim.coverage.rtl": Run("--show ROOT/docs/rtl_coverage.json", "| core.ring |"),
    "sim.coverage.crosses": Run("--show ROOT/docs/crosses.json", "| ADDED |"),
    "sim.cluster.system_costs": Run("--show ROOT/docs/cluster_costs.json", "udp_call_us"),
    "sim.cluster.host_costs": Run("--repetitions 1 --out costs.json", "udp_burst_us"),
    "sim.demo": Run("--engine software --workers 2 --total-steps 2048", "the same on all 2 workers", status=1),
    "sim.demo_apex": Run("--actors 1 --steps 256", "not solved", status=1),
    "sim.demo_atari": Run("--transitions 768", "were overwritten meanwhile"),
    "sim.demo_schedule": Run("--workers 2 --iterations 1", "the same on all 2 workers"),
    "sim.mutation": Run("hw/decide/claims.py --count 3 --list", "->"),
    "sim.prove": Run("--table", "|"),
    "sim.refine": Run("--table", "|"),
}
"""Programs that `tests/sim/bench/test_page_runs.py` runs, from training and measurement for a moment to tables."""

TESTED = {
    "examples.ppo": "tests/examples/common/test_launch.py::test_a_training_that_does_not_solve_the_environment_fails",
    "examples.ray_apex": "tests/examples/test_ray_apex.py"
    "::test_learners_on_ray_end_with_equal_weights_and_every_transition_is_in_the_table",
    "examples.torchrun.a2c": "tests/examples/torchrun/test_run.py::test_torchrun_trains_writes_its_files_and_goes_on",
    "examples.watch": "tests/examples/test_watch.py::test_the_command_plays_the_saved_policy",
    "hw.board.bitstream": "tests/hw/board/test_bitstream.py::test_the_report_is_written_and_shown",
    "hw.board.drop_in.core": "tests/hw/board/drop_in/test_core.py::test_the_switch_itself",
    "hw.board.lint": "tests/hw/board/test_lint.py"
    "::test_what_is_emitted_for_a_board_is_clean_and_every_waiver_is_needed",
    "hw.board.utilisation": "tests/hw/board/test_utilisation.py::test_counts_are_those_of_the_table",
    "hw.board.xilinx.check": "tests/hw/board/xilinx/test_check.py::test_every_board_is_sound",
    "hw.board.xilinx.constraints": "tests/hw/board/xilinx/test_top.py"
    "::test_constraints_in_the_tree_are_those_that_are_made",
    "hw.synthesis.timing": "tests/hw/synthesis/test_timing.py::test_each_part_is_placed_in_its_device",
    "ip": "tests/sim/emulator/test_linux.py::test_linux_stacks_talk_through_the_switch_while_a_job_sums",
    "iswitch counters": "tests/host/tools/test_cli.py::test_counters_are_explained",
    "iswitch dissector": "tests/host/capture/test_dissector.py::test_the_command_prints_the_dissector",
    "iswitch doctor": "tests/host/tools/test_cli.py::test_doctor_prints_a_line_for_each_check_and_exits_with_0",
    "iswitch end-job": "tests/host/tools/test_cli.py::test_end_job_frees_the_number_of_a_job",
    "iswitch estimate": "tests/host/estimate/test_command.py::test_the_command_prints_what_the_models_give",
    "iswitch explain": "tests/host/capture/test_explain.py::test_the_command_tells_about_a_capture",
    "iswitch metrics": "tests/host/tools/test_switch_families.py::test_the_command_prints_the_metrics_once",
    "iswitch plan": "tests/host/plan/test_command.py::test_the_docs_show_what_is_printed",
    "iswitch rebuild-replay": "tests/host/tools/test_cli.py"
    "::test_rebuild_replay_makes_a_corrupt_table_right_and_says_what_was_lost",
    "iswitch report": "tests/host/tools/test_report.py::test_the_command_writes_one_page_that_loads_nothing",
    "iswitch resume": "tests/host/tools/test_cli.py::test_resume_lets_a_halted_job_go_on",
    "iswitch status": "tests/host/tools/test_cli.py::test_status_shows_jobs_and_ports",
    "iswitch switch": "tests/host/switch/test_replay.py::test_the_command_serves_replay_if_it_is_asked_to",
    "iswitch top": "tests/host/tools/test_top.py::test_once_prints_one_update_or_saves_it_as_svg",
    "iswitch.plan.allreduce": "tests/host/plan/allreduce/test_main.py::test_table_prints_rounds_bound_and_gap",
    "iswitch.plan.figures": "tests/host/plan/figures/test_main.py"
    "::test_one_figure_is_a_table_a_picture_and_its_progress",
    "iswitch.plan.replan": "tests/host/plan/test_replan.py::test_a_row_shows_the_rates_and_changes_of_each_lost_cable",
    "iswitch.plan.sizes": "tests/host/plan/test_sizes.py::test_a_row_shows_the_plan_of_so_many_racks",
    "make setup": "tests/test_set_up.py::test_only_wheels_are_installed_and_only_with_their_hashes",
    "python replay.py": "tests/host/replay/test_page.py::test_the_page_does_what_it_says",
    "python train.py": "tests/host/test_pages.py::test_four_workers_of_the_start_page_end_with_equal_weights",
    "sim.bench.bench": "tests/sim/bench/test_replay_baselines.py::test_only_what_is_asked_for_is_measured",
    "sim.bench.compare": "tests/sim/bench/test_compare.py::test_every_system_gives_the_exact_result",
    "sim.bench.counted_figures": "tests/sim/bench/test_counted_figures.py::test_what_is_measured_is_written",
    "sim.bench.demo_seeds": "tests/sim/bench/test_demo_seeds.py"
    "::test_each_seed_is_a_row_and_a_seed_that_is_not_solved_fails",
    "sim.bench.loss_curve": "tests/sim/bench/test_loss_curve.py::test_all_clients_are_timed_and_drawn",
    "sim.bench.packet_wakeups": "tests/sim/bench/test_packet_wakeups.py::test_every_round_trip_ends",
    "sim.bench.replay_comparison": "tests/sim/bench/test_replay_comparison.py::test_the_command_writes_a_picture",
    "sim.bench.replay_costs": "tests/sim/bench/test_replay_comparison.py::test_costs_and_real_rounds_are_measured",
    "sim.bench.replay_switch": "tests/sim/bench/test_replay_comparison.py"
    "::test_fibre_before_the_learner_adds_two_round_trips_to_a_batch_of_the_switch_and_nothing_to_a_push",
    "sim.bench.replay_torchrl": "tests/sim/bench/test_replay_torchrl.py"
    "::test_the_figures_of_the_bench_are_the_ratios_and_the_reasons",
    "sim.bench.screenshots": "tests/sim/bench/test_screenshots.py"
    "::test_a_picture_is_small_and_a_page_shows_it_above_its_command",
    "sim.bench.stages": "tests/sim/bench/test_stages.py"
    "::test_the_stages_of_a_sum_add_up_to_the_latency_of_the_compiled_switch",
    "sim.bench.soak_long": "tests/sim/test_soak_network.py"
    "::test_a_tree_with_faults_does_as_its_models_and_the_same_seed_gives_the_same_run",
    "sim.bench.torch_cases": "tests/sim/bench/test_torch_cases.py::test_all_cases_have_the_outcomes_of_the_page",
    "sim.bench.transports": "tests/sim/bench/test_transports.py::test_each_path_and_size_has_its_latency",
    "sim.cluster.breakout": "tests/sim/cluster/test_breakout.py"
    "::test_the_command_trains_draws_and_ends_with_equal_weights",
    "sim.cluster.cartpole": "tests/sim/cluster/test_cartpole.py"
    "::test_the_command_trains_prints_a_table_and_writes_the_results",
    "sim.cluster.crossover": "tests/sim/cluster/test_crossover.py::test_the_command_writes_a_picture",
    "sim.cluster.headline": "tests/sim/cluster/test_headline.py"
    "::test_the_readme_shows_the_ratios_that_the_command_prints",
    "hw.synthesis.memories": "tests/hw/synthesis/test_memories.py::test_each_memory_is_in_exactly_one_part",
    "sim.cluster.lost_leaf": "tests/sim/cluster/test_lost_leaf.py"
    "::test_the_others_wait_once_for_the_silence_of_a_lost_leaf_and_go_on_without_its_workers",
    "sim.cluster.scale": "tests/sim/cluster/test_scale.py"
    "::test_the_command_prints_a_row_for_each_tree_and_writes_a_picture",
    "sim.cluster.plan": "tests/sim/cluster/test_plan.py::test_the_measured_rate_is_the_predicted_rate",
    "sim.coverage.python": "tests/sim/coverage/test_python.py"
    "::test_the_command_of_sim_coverage_python_prints_the_tables_of_a_file",
    "sim.emulator": "tests/sim/emulator/test_emulator.py::test_command_line",
    "sim.bench.replay_client_work": "tests/sim/bench/test_replay_client_work.py"
    "::test_work_is_measured_with_the_part_in_c_and_without_and_the_part_is_in_use_again",
    "sim.bench.run_cocotb": "tests/sim/bench/test_cocotb.py::test_emitted_verilog_is_the_model",
    "sim.fuzz.bursts": "tests/sim/fuzz/test_bursts.py"
    "::test_new_histories_have_the_outcomes_and_frames_of_the_software_switch",
    "sim.fuzz.data_path": "tests/sim/fuzz/test_data_path.py"
    "::test_a_campaign_finds_nothing_and_depends_on_its_seed_alone",
    "sim.fuzz.parsers": "tests/sim/fuzz/test_doors.py"
    "::test_a_parser_without_a_check_of_the_length_is_noticed_and_the_input_kept",
    "sim.fuzz.replay_client": "tests/sim/fuzz/test_replay_client.py"
    "::test_hostile_datagrams_write_nothing_that_python_would_not",
    "sim.fuzz.rtl": "tests/sim/fuzz/test_rtl.py::test_new_sequences_give_the_frames_and_registers_of_the_golden_switch",
    "iswitch.wire.c_header": "tests/examples/test_c_client.py::test_the_header_is_what_the_command_writes",
    "sim.mistakes": "tests/sim/test_mistakes.py::test_the_docs_show_the_messages",
}
"""Programs that another test runs: with its command line, or its functions with smaller cases."""

NOT_RUN = {
    "apt-get": "needs root, and a network",
    "docker": "needs a container engine",
    "make ray": "installs Ray from a package index; the slow tier has it run before",
    "make site": "`.ci/run` runs it",
    "openFPGALoader": "needs a board",
    "pip": "installs from a package index",
    "pytest": "runs these tests",
    "python3": "a line that draws a random number",
    "python tools/check_packages.py": "`make packages`: installs from a package index",
    "python tools/pin.py": "`make pins`: needs a package index, and writes tools/requirements/",
    "torchft_lighthouse": "torchft's own; `tests/host/pytorch/test_torchft.py` starts the same from Python",
    "venv": "Python's own",
}
"""Programs that no test runs, and why."""


def listed() -> list[str]:
    """Return the rows of the table in docs/testing.md: the programs that no test runs, and why."""
    return [f"| `{name}` | {reason} |" for name, reason in sorted(NOT_RUN.items())]
