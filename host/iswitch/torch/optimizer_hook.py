"""One line for a training loop that belongs to a library: the optimizer averages the gradients before each step."""

from typing import Any

import torch
from torch import nn
from torch.utils.hooks import RemovableHandle

from iswitch.worker import Worker

__all__ = ["distribute"]


def distribute(worker: Worker, model: nn.Module, optimizer: torch.optim.Optimizer) -> RemovableHandle:
    """Give all workers the weights of rank 0, and make the optimizer average the gradients before each of its steps.

    The training loop stays as it is. If it clips gradients, each worker clips its own before the average. Each worker
    needs data of its own, so give each another seed.

    Parameters
    ----------
    worker : Worker
        This rank's worker, as `iswitch.init()` makes it.
    model : torch.nn.Module
        The model, on the CPU. Its parameters and buffers become those of rank 0.
    optimizer : torch.optim.Optimizer
        An optimizer of parameters of the model. Its `step` must be called without a closure, which would compute the
        gradients after their average, and otherwise raises TypeError. A parameter that has a gradient at some
        workers only, such as a head that the others did not use, counts as zero at the others. One that has none at
        any worker keeps none. Only parameters with `requires_grad` are sent.

    Returns
    -------
    torch.utils.hooks.RemovableHandle
        Its `remove()` makes the optimizer an ordinary one again.

    Raises
    ------
    IswitchError
        As `Worker.broadcast`. A step of the optimizer raises the errors of `Worker.allreduce`, before it changes
        weights.

    Examples
    --------
    >>> agent = stable_baselines3.PPO("MlpPolicy", "CartPole-v1", seed=worker.rank)  # doctest: +SKIP
    >>> iswitch.torch.distribute(worker, agent.policy, agent.policy.optimizer)  # doctest: +SKIP
    >>> agent.learn(100_000)  # doctest: +SKIP
    """
    for tensor in (*model.parameters(), *model.buffers()):
        worker.broadcast(tensor)

    def average(optimizer: torch.optim.Optimizer, arguments: Any, keywords: Any) -> None:
        closure = keywords.get("closure", next((given for given in arguments if given is not optimizer), None))
        if closure is not None:
            raise TypeError(
                "call `optimizer.step()` without a closure in a training that `iswitch.torch.distribute` has made: the "
                "closure computes the gradients after the average, so each rank would step with its own. Call the "
                "closure first, `loss = closure()`, then `optimizer.step()`. With a library that always passes one, "
                "use DistributedDataParallel and the backend iswitch"
            )
        parameters = [p for group in optimizer.param_groups for p in group["params"] if p.requires_grad]
        gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]
        # Workers may differ in which parameters they used. So all send all, and how many of them have which gradient.
        dtype = gradients[0].dtype if gradients else torch.float32
        used = torch.tensor([p.grad is not None for p in parameters], dtype=dtype)
        worker.allreduce([*gradients, used], "mean")
        for parameter, gradient, share in zip(parameters, gradients, used.tolist(), strict=True):
            parameter.grad = gradient if share else None

    return optimizer.register_step_pre_hook(average)
