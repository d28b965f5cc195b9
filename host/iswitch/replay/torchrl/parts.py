"""Storage, sampler and writer of TorchRL, as far as the replay service has them."""

import threading
from contextlib import AbstractContextManager
from typing import Any, Literal, NoReturn, cast

import numpy as np
import torch
from tensordict import TensorDictBase
from torch import Tensor
from torchrl.data.replay_buffers.samplers import Sampler
from torchrl.data.replay_buffers.storages import Storage
from torchrl.data.replay_buffers.writers import Writer

from iswitch.replay.client import ReplayClient
from iswitch.replay.fifo import Fifo, FifoBatch
from iswitch.replay.prefetch import Prefetch
from iswitch.replay.priorities import Normalize
from iswitch.replay.sampling import Batch
from iswitch.replay.torchrl.fields import Key, TensorFields
from iswitch.replay.update import PendingUpdate

__all__ = ["ORDERS", "UNCHANGING", "Order", "Service", "SwitchSampler", "SwitchStorage", "SwitchWriter"]

Order = Literal["prioritized", "uniform", "fifo"]
ORDERS: tuple[Order, ...] = ("prioritized", "uniform", "fifo")
"""In which order a sampler returns items."""
UNCHANGING = "an item in the switch never changes, and its place is the switch's choice: `extend`"
"""Why no item can be written by its place."""


class Service:
    """A replay client and its lock. The calls of all parts and of the keep-alive thread exclude each other.

    Parameters
    ----------
    client : ReplayClient
        The client.
    keepalive : bool
        Start the client's keep-alive thread.
    """

    def __init__(self, client: ReplayClient, *, keepalive: bool):
        self.client = client
        self._keepalive = client.start_keepalive() if keepalive else None
        self.lock = cast(AbstractContextManager[Any], self._keepalive or threading.RLock())

    def close(self, *, flush: bool = True) -> None:
        """End the thread, send what waits unless `flush` is False, and close the session."""
        if self._keepalive:
            self._keepalive.stop()
        if flush:
            self.client.close()
        else:
            self.client.__exit__(RuntimeError)  # as after an error in the client's own `with`


class LockedUpdate(PendingUpdate):
    """Priorities that were submitted. Waiting for the answer suspends the keep-alive thread, too."""

    def __init__(self, pending: PendingUpdate, lock: AbstractContextManager[Any]):
        super().__init__(pending._session, pending._requests, pending.ticket)
        self._lock = lock

    def _sum(self, name: str) -> int:
        with self._lock:
            return super()._sum(name)


class _InTheSwitch:
    """What TorchRL asks of every part, and the service has only for the table as such."""

    def _refuse(self, *_: Any) -> NoReturn:
        raise NotImplementedError(
            f"{type(self).__name__} has no state of its own: the table is in the switch. Call the buffer's `dumps` and "
            "`loads`, which write and read the table"
        )

    def state_dict(self) -> dict[str, Any]:
        self._refuse()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._refuse()

    def dumps(self, path: Any) -> None:
        self._refuse()

    def loads(self, path: Any) -> None:
        self._refuse()

    register_save_hook = register_load_hook = _refuse

    def _empty(self, *_: Any, **__: Any) -> NoReturn:
        raise NotImplementedError(
            "the replay service cannot remove items, so `empty` is not possible: new items overwrite the oldest. Take "
            "another table (`table=`), or restart the switch"
        )


class SwitchStorage(_InTheSwitch, Storage):
    """The table in the switch. Items are written by the writer and read by sampling, not by their position."""

    def __init__(self, service: Service):
        super().__init__(max_size=service.client.config.capacity)
        self.service = service

    def __len__(self) -> int:
        with self.service.lock:
            return self.service.client.count_items()

    def set(self, cursor: Any, data: Any, *, set_cursor: bool = True) -> NoReturn:
        raise NotImplementedError(UNCHANGING)

    def get(self, index: Any) -> NoReturn:
        raise NotImplementedError("items in the switch are read by sampling, not by an index: call `sample`")


class SwitchSampler(_InTheSwitch, Sampler):
    """The sum tree in the switch. `alpha`, `beta` and `eps` are this client's, and may be changed at any time.

    Parameters
    ----------
    service : Service
        The client.
    order : {"prioritized", "uniform", "fifo"}
        By priority; all with the same probability, where `alpha` is 0; or in the order of adding, each item once.
    alpha : float
        The switch stores (priority + eps) ** alpha. 0: all items are sampled with the same probability.
    beta : float
        Exponent of the importance weights.
    eps : float
        Added to each priority.
    reduction : str
        How several priorities of one item become one: "max", "min", "mean", "median" or "sum".
    stratified : bool
        Divide the sum of priorities into as many equal parts as the batch has items, and sample one from each. False:
        all items of a batch are independent of each other, as in TorchRL.
    normalize : {"table", "batch"}
        As in `ReplayClient.sample`. "table" is TorchRL's rule.

    Attributes
    ----------
    max_priority : float or None
        The largest priority that this buffer, or the one whose checkpoint it has loaded, has submitted.
    fifo : Fifo or None
        The reader of the order "fifo". It begins with the oldest item that is in the table now.

    Raises
    ------
    ValueError
        If an argument is wrong.
    """

    def __init__(
        self,
        service: Service,
        *,
        order: Order = "prioritized",
        alpha: float,
        beta: float,
        eps: float,
        reduction: str,
        stratified: bool,
        normalize: Normalize,
    ):
        if order not in ORDERS:
            raise ValueError(
                f"sampler must be one of {', '.join(map(repr, ORDERS))}, not {order!r}: the service samples by "
                "priority, or items are read in the order of adding. It has no other order, and no slices of "
                "trajectories"
            )
        for name, value in (("alpha", alpha), ("beta", beta), ("eps", eps)):
            if not value >= 0:
                raise ValueError(f"{name} must be at least 0, not {value!r}")
        self.order, alpha = order, 0.0 if order == "uniform" else alpha
        self.service, self.alpha, self.beta, self.eps, self.reduction = service, alpha, beta, eps, reduction
        self.stratified, self.normalize = stratified, normalize
        self.max_priority: float | None = None
        self.fifo: Fifo | None = None
        if order == "fifo":
            with service.lock:
                self.fifo = service.client.fifo(1)

    @property
    def default_priority(self) -> float:
        """The priority of items that are added without one: the largest that this buffer has submitted, at first 1."""
        return 1.0 if self.max_priority is None else self.max_priority

    def raised(self, priority: Tensor) -> np.ndarray:
        """Return (priority + eps) ** alpha, float64 of shape (n,), and remember the largest priority.

        Raises
        ------
        ValueError
            If a priority is negative or not finite.
        """
        real = priority.detach().to("cpu", torch.float64).reshape(-1).numpy()
        if not (np.isfinite(real) & (real >= 0)).all():
            raise ValueError(f"priorities must be finite and at least 0, not {real.tolist()}")
        if real.size:
            self.remember(float(real.max()))
        return (real + self.eps) ** self.alpha

    def remember(self, largest: float | None) -> None:
        """Take note of the largest of some priorities; None if there are none."""
        self.max_priority = max((each for each in (self.max_priority, largest) if each is not None), default=None)

    def sample_batch(self, count: int) -> Batch | FifoBatch:
        """Sample items and read them."""
        with self.service.lock:
            if self.fifo:
                return self.fifo.read(count)
            return self.service.client.sample(
                count, beta=self.beta, stratified=self.stratified, normalize=self.normalize, seed=self._seed()
            )

    def _seed(self) -> int | None:
        """Return a seed from the generator of TorchRL's `set_rng`; None if there is none."""
        generator = self._rng
        return None if generator is None else int(torch.randint(2**62, (), generator=generator))

    def can_sample(self, storage: Storage, batch_size: int) -> bool:
        """Return True if a batch can be sampled now."""
        if self.fifo:
            with self.service.lock:
                return self.fifo.available() >= batch_size
        return len(storage) > 0

    def prefetch(self, count: int, depth: int) -> Prefetch:
        """Return an iterator over batches, `depth` of which are in progress."""
        with self.service.lock:
            return self.service.client.prefetch(
                count,
                depth=depth,
                beta=lambda: self.beta,
                stratified=self.stratified,
                normalize=self.normalize,
                seed=self._seed(),
            )

    def info(self, batch: Batch | FifoBatch) -> dict[str, Tensor]:
        """Return what TorchRL adds to a batch, and which of its items were overwritten before they were read."""
        index = torch.from_numpy(batch.items.astype(np.int64))
        if isinstance(batch, FifoBatch):
            weight, overwritten = torch.ones(len(batch)), torch.zeros(len(batch), dtype=torch.bool)
        else:
            weight, overwritten = torch.from_numpy(batch.weights), torch.from_numpy(batch.overwritten)
        return {"index": index, "priority_weight": weight, "overwritten": overwritten}

    def sample(self, storage: Storage, batch_size: int) -> tuple[Tensor, dict[str, Tensor]]:
        """Return handles of sampled items, and their weights."""
        info = self.info(self.sample_batch(batch_size))
        return info.pop("index"), info

    def update_priority(self, index: Any, priority: Any, *, storage: Storage | None = None) -> PendingUpdate:
        """Submit priorities; see `SwitchReplayBuffer.update_priority`."""
        handles = torch.as_tensor(index).reshape(-1)
        given = torch.as_tensor(priority).reshape(-1)
        if given.numel() == 1:
            given = given.expand(handles.shape)
        if given.shape != handles.shape:
            raise ValueError(
                f"priority must be a number or have one element for each index, but there are {given.numel()} "
                f"priorities and {handles.numel()} indices"
            )
        raised = self.raised(given)
        with self.service.lock:
            pending = self.service.client.update_priority(handles.cpu().numpy(), raised)
        return LockedUpdate(pending, self.service.lock)

    def mark_update(self, index: Any, *, storage: Storage | None = None) -> None:
        """Give items the default priority, as TorchRL's `PrioritizedSampler` does."""
        self.update_priority(index, self.default_priority)


class SwitchWriter(_InTheSwitch, Writer):
    """Adds items to the table; new items overwrite the oldest.

    Parameters
    ----------
    service : Service
        The client.
    fields : TensorFields
        The fields of a transition.
    sampler : SwitchSampler
        Computes what the switch stores as priority.
    priority_key : Key
        Key of the priority, which is not stored unless it is among the fields.
    return_index : bool
        Wait until the switch has acknowledged the items, and return their handles; else None.
    """

    def __init__(
        self, service: Service, fields: TensorFields, sampler: SwitchSampler, priority_key: Key, *, return_index: bool
    ):
        super().__init__()
        self.service, self.fields, self.sampler, self.priority_key = service, fields, sampler, priority_key
        self.return_index = return_index
        self._write_count = 0

    def write(self, data: TensorDictBase, priority: Tensor) -> Tensor | None:
        """Add a batch of transitions with their priorities."""
        columns = self.fields.to_columns(data, ignored=(self.priority_key,))
        raised = self.sampler.raised(priority)
        with self.service.lock:
            added = self.service.client.extend(columns, raised)
            self._write_count += len(raised)
            return torch.from_numpy(added.items.astype(np.int64)) if self.return_index else None

    def extend(self, data: Any) -> Tensor | None:
        """Add a batch of transitions with the default priority."""
        return self.write(data, torch.full((len(data),), self.sampler.default_priority))

    def add(self, data: Any) -> Tensor | None:
        """Add one transition with the default priority."""
        return self.extend(data.unsqueeze(0))
