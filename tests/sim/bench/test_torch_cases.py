"""PyTorch's own cases over the switch have the outcomes of docs/torch_cases.md. They run in processes of their own."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from sim.bench.torch_case_runner import Case
from sim.bench.torch_cases import judge, table

ROOT = Path(__file__).parents[3]
COMMAND = [sys.executable, "-m", "sim.bench.torch_cases"]
SUM, LONGEST = "test_all_reduce_coalesced_sum", "test_ddp_hook_parity_powerSGD"

MUTANTS = f"""
import time
from iswitch.torch import IswitchProcessGroup
from sim.bench.torch_case_runner import open_runner
from sim.bench.torch_cases import judge

with open_runner(2) as runner:
    IswitchProcessGroup._sum = lambda group, tensor, op: None
    print(judge(runner, "{SUM}").outcome)
    IswitchProcessGroup._sum = lambda group, tensor, op: time.sleep(600)
    runner.limit_s = 3
    print(runner.run("{SUM}").outcome)
"""


def test_a_handful_of_cases_have_their_outcomes_and_ctrl_c_ends_the_one_after_them():
    chosen = [SUM, "test_reduce_max", "test_all_reduce_product", "test_gather_cuda", LONGEST]
    with subprocess.Popen(
        [*COMMAND, "--ranks", "2", *chosen], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        for line in process.stderr:
            if line.strip().startswith("4/5"):
                process.send_signal(signal.SIGINT)
                break
        printed, said = process.communicate(timeout=60)
    assert process.returncode == 130, said
    assert printed.splitlines()[2:] == [
        "| passed |  | 2 |  |",
        "| refused by name | the switch cannot reduce by PRODUCT | 1 | `all_reduce_product` |",
        "| not applicable | for other backends (NCCL, MPI) | 1 |  |",
        "| failed |  | 0 |  |",
    ]


@pytest.mark.mutant
def test_a_backend_that_sums_nothing_and_one_that_never_ends_are_noticed():
    done = subprocess.run([sys.executable, "-c", MUTANTS], cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.stdout.split() == ["failed", "failed"], done.stderr


WRONG, REFUSED = "AssertionError: 1 != 2", "iswitch.torch.dtypes.UnsupportedError: the switch cannot do send: it sums"
NO_GPU, GLOOS_OWN = (
    "ValueError: SyncBatchNorm layers only work with GPU modules",
    "ValueError: monitored_barrier is only",
)
JUDGEMENTS = {
    "wrong": (WRONG, "", {"backend": "gloo"}, "failed"),
    "wrong over gloo, too": (WRONG, NO_GPU, {"backend": "gloo"}, "not applicable"),
    "of gloo alone": (GLOOS_OWN, "", {"backend": "gloo"}, "not applicable"),
    "refused": (REFUSED, "", {"fallback": "gloo"}, "refused by name"),
    "refused, and wrong with the fallback": (REFUSED, WRONG, {"fallback": "gloo"}, "failed"),
}


@pytest.mark.parametrize(("first", "second", "how", "outcome"), JUDGEMENTS.values(), ids=JUDGEMENTS)
def test_a_case_that_fails_is_excused_by_a_refusal_or_by_gloo_alone(first, second, how, outcome):
    class Runs:
        calls: list[dict[str, str]] = []

        def run(self, name, **how):
            self.calls.append(how)
            text = first if len(self.calls) == 1 else second
            return Case(name, "failed" if text else "passed", text, 1.0)

    verdict = judge(Runs(), "test_name")
    assert (verdict.outcome, verdict.seconds, Runs.calls) == (outcome, 2.0, [{}, how])
    row = next(line for line in table([verdict]) if line.startswith(f"| {outcome} "))
    assert row.endswith(" | 1 | `name` |")


@pytest.mark.slow
def test_all_cases_have_the_outcomes_of_the_page():
    done = subprocess.run(COMMAND, cwd=ROOT, capture_output=True, text=True, timeout=3600)
    assert done.returncode == 0, done.stderr
    assert done.stdout in (ROOT / "docs/torch_cases.md").read_text(encoding="utf-8")
