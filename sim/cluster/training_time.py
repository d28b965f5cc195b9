"""One training in virtual time: the seconds until distributed training has learned a task.

Drivers, trainers and gradients are real, and the switch is compiled; the time is virtual. A step of an environment and
a gradient take the times of `sim.cluster.training_costs`. Hosts and cables take the times of `iswitch.estimate.costs`,
and the switch takes those of the RTL. So the figures do not depend on the machine that computes them, and the same
seeds give the same figures.

The same workers also train asynchronously at a parameter server, which is a model with the same hosts and cables.

All trainings of a task have the same options, environments and initial weights, and the same work takes the same time.
They stop by the same rule: after every `epochs` * `num_minibatches` optimizer steps they check if the latest
`solved_episodes` episodes of all workers have a mean return of at least `solved_return`.
"""

import statistics

from examples import ppo
from examples.ppo import Options
from iswitch.config import Config
from sim.cluster.trainers import Trainer
from sim.cluster.training_costs import Costs
from sim.cluster.training_outcome import Outcome, Row
from sim.emulator.cluster import Cluster
from sim.emulator.engine import Board
from sim.emulator.fabric import Fabric
from sim.emulator.program import Machine

__all__ = ["measure"]


def measure(trainer: Trainer, options: Options, costs: Costs, machine: Machine) -> Row:
    """Run one training, with each worker at its own port of one switch.

    Raises
    ------
    RuntimeError
        If the workers end with different weights.
    """
    with Board(Config(), seed=options.seed) as board, Fabric([board]) as fabric:
        cluster = Cluster(fabric, seed=options.seed)
        for rank in range(options.workers):
            program = lambda program, rank=rank: trainer(
                program, rank, options, costs.simulate_on(program, slow=rank == options.workers - 1)
            )
            cluster.add((0, rank), program, name=f"worker {rank}", machine=machine)
        cluster.run()
    outcomes: list[Outcome] = [program.result for program in cluster.programs]
    if len({outcome.weights_sha256 for outcome in outcomes}) != 1:
        raise RuntimeError("the workers' weights differ, so they received different sums")
    first = outcomes[0]
    start_s = min(outcome.start_s for outcome in outcomes)
    return Row(
        seed=options.seed,
        solved=first.mean_return >= options.solved_return,
        seconds=max(outcome.end_s for outcome in outcomes) - start_s,
        mean_return=first.mean_return,
        updates=first.updates,
        steps=first.steps,
        greedy_return=statistics.mean(ppo.evaluate(first.weights, options)),
        weights_sha256=first.weights_sha256,
        curve=[point._replace(seconds=point.seconds - start_s) for point in first.curve],
    )
