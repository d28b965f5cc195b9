"""A training whose workers may die and come back while the others go on."""

import logging
from collections.abc import Callable
from typing import Any, Protocol

from iswitch.errors import RecoverableError
from iswitch.torch.plain_state import plain, state_bytes, state_from
from iswitch.worker import Worker

__all__ = ["ElasticTraining", "Stateful"]

logger = logging.getLogger("iswitch")


class Stateful(Protocol):
    """A module, an optimizer, a learning rate scheduler, or anything else with a state in tensors and plain values.
    Scalars of numpy become plain numbers."""

    def state_dict(self) -> Any: ...

    def load_state_dict(self, state_dict: Any) -> Any: ...


class ElasticTraining:
    """Steps of a training that all workers of an elastic job take together, from the same state.

    Parameters
    ----------
    worker : Worker
        An elastic worker, as `iswitch.init(elastic=True)` makes it.
    rejoin_timeout_s : float
        Seconds that a step waits for the switch and for a place in the job before its error ends the training.
    **parts : Stateful
        All that must be equal at all workers: `model=model, optimizer=optimizer`.

    Attributes
    ----------
    step : int
        Steps that are complete. A checkpoint contains it; set it after you have loaded one.

    Examples
    --------
    >>> with iswitch.init(elastic=True) as worker:  # doctest: +SKIP
    ...     training = ElasticTraining(worker, model=model, optimizer=optimizer)
    ...     training.run(train_step, steps=1000)
    """

    def __init__(self, worker: Worker, *, rejoin_timeout_s: float = 600.0, **parts: Stateful) -> None:
        if not parts:
            raise ValueError("ElasticTraining needs the parts of the state: pass model=model, optimizer=optimizer")
        self.worker, self.parts, self.step, self._rejoin_timeout_s = worker, parts, 0, rejoin_timeout_s

    def synchronize(self) -> None:
        """Replace the state of all workers by that of the worker with the most steps.

        Raises
        ------
        IswitchError
            As `Worker.sync_bytes`. The state is then as it was.
        TypeError
            If a part's state has values that the other workers could not load. Nothing was sent.
        """
        states = {name: part.state_dict() for name, part in self.parts.items()}
        sent = plain(states)
        own = state_bytes(sent)
        data, step = self.worker.sync_bytes(own, self.step)
        if data != own or sent is not states:  # all go on with plain numbers, also the worker that has numpy's
            state = state_from(data)
            for name, part in self.parts.items():
                part.load_state_dict(state[name])
        self.step = step

    def run(self, train_step: Callable[[int], object], *, steps: int) -> None:
        """Take steps until `steps` are complete.

        If a worker dies, the switch evicts it, and the steps go on without it. If a worker joins, all workers receive
        the state of the most advanced one before the next step. A step that fails with a RecoverableError is repeated.

        Parameters
        ----------
        train_step : callable
            `train_step(step)` computes gradients, sums them by `worker.allreduce(..., "mean")`, and then changes the
            parts. It must not change them before the last collective has ended.
        steps : int
            Steps of the whole training.

        Raises
        ------
        RecoverableError
            If the worker does not return to its job within `rejoin_timeout_s`.
        """
        while self.step < steps:
            try:
                if self.worker.needs_sync:
                    self.synchronize()
                    continue  # the most advanced worker may have taken all steps
                train_step(self.step)
            except RecoverableError as error:
                logger.info("step %d is repeated: %s", self.step, error)
                self.worker.rejoin(timeout_s=self._rejoin_timeout_s)
                continue
            self.step += 1
