"""The replay buffer itself."""

import json
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NoReturn, Self

import torch
from tensordict import TensorDictBase
from torch import Tensor
from torchrl.data import TensorDictReplayBuffer

from iswitch.driver.transport import Transport
from iswitch.replay.client import ReplayClient
from iswitch.replay.prefetch import Prefetch
from iswitch.replay.priorities import Normalize
from iswitch.replay.torchrl.fields import RESERVED, Key, TensorFields
from iswitch.replay.torchrl.parts import UNCHANGING, Order, Service, SwitchSampler, SwitchStorage, SwitchWriter
from iswitch.replay.update import PendingUpdate

__all__ = ["SwitchReplayBuffer"]

_CHECKPOINT, _SAMPLER = "items", "sampler.json"
"""Files of a checkpoint: the table, and what this buffer knows of its priorities."""


class SwitchReplayBuffer(TensorDictReplayBuffer):
    """TorchRL's `TensorDictReplayBuffer` whose table is in the switch, for any number of actors and learners.

    A sampled batch has the keys of the example, and three more: "index", the handles for `update_priority`;
    "priority_weight", the importance weights; and "overwritten", which is True where another client has overwritten an
    item after it was sampled and before it was read. The data of such an item is zeros and its weight is 0.

    The buffer may be used from several threads, since a lock lets one call pass at a time. It cannot be pickled: make
    one in each process.

    Parameters
    ----------
    address : str or Transport
        The switch's address, as for `ReplayClient`.
    example : TensorDictBase or Composite
        A transition, or with a batch dimension several; or TorchRL's spec of one. The same keys, shapes and dtypes for
        all clients of a table.
    sampler : {"prioritized", "uniform", "fifo"}
        By priority; with the same probability, where `alpha` counts as 0, which is right if all clients of the table do
        so; or in the order of adding, each item once (see `ReplayClient.fifo`).
    alpha : float
        Exponent of the priorities.
    beta : float
        Exponent of the importance weights.
    eps : float
        Added to each priority.
    priority_key : Key
        Key of the priority in a tensordict. It is not stored unless the example has it.
    reduction : str
        How several priorities of one item become one: "max", "min", "mean", "median" or "sum".
    stacked : iterable of keys
        Leaves whose first axis is a stack of frames; see `Field`.
    batch_size : int or None
        Items in a batch, unless `sample` says otherwise.
    prefetch : int or None
        Batches of `batch_size` that are sampled ahead. Their priorities are that much older.
    transform : Transform or callable or None
        As TorchRL's: its inverse before items are added, the transform itself on a sampled batch.
    stratified : bool
        One item from each of `batch_size` equal parts of the sum of priorities; False: independent, as in TorchRL.
    normalize : {"table", "batch"}
        Divide weights by that of the lowest priority in the table, as TorchRL does, or by the largest of the batch. The
        lowest priority is known to an eighth, so a weight is up to (9/8) ** beta smaller than TorchRL's.
    return_index : bool
        `add` and `extend` wait until the switch has acknowledged the items, and return their handles. False: they
        return None at once, and `flush` waits.
    keepalive : bool
        Serve the session by a thread while the program computes.
    table, scale, timeout_s, wait_s
        As for `ReplayClient`. `wait_s` limits how long `sample` waits for items.

    Raises
    ------
    SwitchUnreachableError, NoReplayServiceError, NoFreeSessionError, ValueError, TypeError
        As `ReplayClient` and `TensorFields`.
    """

    def __init__(
        self,
        address: str | Transport,
        example: Any,
        *,
        sampler: Order = "prioritized",
        alpha: float = 0.6,
        beta: float = 0.4,
        eps: float = 1e-8,
        priority_key: Key = "td_error",
        reduction: str = "max",
        stacked: Iterable[Key] = (),
        batch_size: int | None = None,
        prefetch: int | None = None,
        transform: Callable[[Any], Any] | None = None,
        stratified: bool = True,
        normalize: Normalize = "table",
        return_index: bool = True,
        keepalive: bool = True,
        table: int = 0,
        scale: float | None = None,
        timeout_s: float = 10.0,
        wait_s: float = 60.0,
    ):
        if prefetch and batch_size is None:
            raise ValueError("prefetch needs a batch_size, because batches are sampled before you ask: pass batch_size")
        if prefetch and sampler == "fifo":
            raise ValueError('prefetch must be None with sampler="fifo", whose batches are not read ahead')
        self.fields = TensorFields(example, stacked=stacked)
        client = ReplayClient(address, self.fields.spec, table=table, scale=scale, timeout_s=timeout_s, wait_s=wait_s)
        try:
            self.service = Service(client, keepalive=keepalive)
            switch_sampler = SwitchSampler(
                self.service,
                order=sampler,
                alpha=alpha,
                beta=beta,
                eps=eps,
                reduction=reduction,
                stratified=stratified,
                normalize=normalize,
            )
            super().__init__(
                storage=SwitchStorage(self.service),
                sampler=switch_sampler,
                writer=SwitchWriter(self.service, self.fields, switch_sampler, priority_key, return_index=return_index),
                collate_fn=lambda batch: batch,
                priority_key=priority_key,
                batch_size=batch_size,
                transform=transform,
            )
            self._depth, self._batches = prefetch or 0, None
        except BaseException:
            client.close()
            raise

    _depth: int
    _batches: Prefetch | None

    @property
    def client(self) -> ReplayClient:
        """The client, for statistics, parameters and tickets. While the keep-alive thread runs, use it within
        `with buffer.service.lock:`."""
        return self.service.client

    # Adding

    def add(self, data: TensorDictBase) -> Tensor | None:
        """Add one transition, and return its handle.

        Its priority is the one under `priority_key`, or else the largest that this buffer has submitted, at first 1.
        """
        if len(self._transform):
            data = self._transform.inv(data)
        if data is None:
            return torch.zeros((0, 1), dtype=torch.long)
        batch = data.unsqueeze(0)
        index = self._write(batch, self._get_priority_vector(batch))
        if index is not None:
            index = index[0]
            self._set_index(data, index)
        return index

    def extend(self, tensordicts: TensorDictBase, *, update_priority: bool | None = None) -> Tensor | None:
        """Add a batch of transitions, and return their handles.

        Parameters
        ----------
        tensordicts : TensorDictBase
            The transitions. As TorchRL does, this sets their "index".
        update_priority : bool or None
            False: ignore what is under `priority_key`.

        Returns
        -------
        int64 tensor of shape (n,) or None
            The handles; None if `return_index` is False.
        """
        if not isinstance(tensordicts, TensorDictBase):
            raise ValueError(f"SwitchReplayBuffer holds tensordicts, not {type(tensordicts).__name__}")
        data = self._transform.inv(tensordicts) if len(self._transform) else tensordicts
        if data is None:
            return torch.zeros((0, 1), dtype=torch.long)
        default = torch.full((len(data),), self._sampler.default_priority)
        index = self._write(data, default if update_priority is False else self._get_priority_vector(data))
        self._set_index(data, index)
        return index

    def _write(self, data: TensorDictBase, priority: Tensor) -> Tensor | None:
        return self._writer.write(data, priority)

    def _set_index(self, data: TensorDictBase, index: Tensor | None) -> None:
        if not data.is_locked:
            self._set_index_in_td(data, index)

    def flush(self) -> None:
        """Wait until the switch has acknowledged everything that this buffer has sent. Raises NotServedError."""
        with self.service.lock:
            self.client.flush()

    # Sampling

    def _sample(self, batch_size: int) -> tuple[TensorDictBase, dict[str, Tensor]]:
        if self._depth and batch_size == self._batch_size:
            with self.service.lock:
                self._batches = self._batches or self._sampler.prefetch(batch_size, self._depth)
                batch = next(self._batches)
        else:
            batch = self._sampler.sample_batch(batch_size)
        data = self.fields.to_tensordict(batch.data, len(batch))
        if len(self._transform):
            data = self._transform(data)
        return data, self._sampler.info(batch)

    # Priorities and limits

    def update_priority(self, index: Any, priority: Any) -> PendingUpdate:
        """Give items new priorities, up to 177 of them in one request. This does not wait for the switch.

        Parameters
        ----------
        index : int or integer tensor
            Handles: "index" of a batch, or what `extend` has returned.
        priority : float or tensor
            A priority for each item, or one for all; finite and at least 0. If an item is named several times, the last
            one counts.

        Returns
        -------
        PendingUpdate
            Unpacks to (updated, stale), which waits for the answer: the items that have the new priority, and those
            that were overwritten, where nothing changed.
        """
        return self._sampler.update_priority(index, priority)

    def update_tensordict_priority(self, data: TensorDictBase) -> PendingUpdate:
        """Give the items of a batch the priorities under its `priority_key`. Returns as `update_priority`."""
        if not data.ndim:
            return self.update_priority(data.get("index"), self._get_priority_item(data))
        priority, index = self._get_priority_vector(data), data.get("index")
        while index.ndim > priority.ndim:
            index = index[..., 0]
        return self.update_priority(index, priority)

    def set_limits(self, **limits: Any) -> int:
        """Limit the rate of samples, for all clients of the table; parameters as in `ReplayClient.set_limits`:
        `min_size_to_sample`, `samples_per_insert`, `max_insert_lag`, `max_insert_lead`, `max_times_sampled`."""
        with self.service.lock:
            return self.client.set_limits(**limits)

    # Checkpoints and the end

    def dumps(self, path: str | os.PathLike[str]) -> None:
        """Write the items of the table to a folder, while all clients continue, and the largest priority that this
        buffer has submitted."""
        Path(path).mkdir(parents=True, exist_ok=True)
        with self.service.lock:
            self.client.save(Path(path) / _CHECKPOINT)
            largest = self._sampler.max_priority
        (Path(path) / _SAMPLER).write_text(json.dumps({"max_priority": largest}), encoding="utf-8")

    def loads(self, path: str | os.PathLike[str]) -> None:
        """Add the items that `dumps` wrote to an empty table. Further items without a priority get the largest that the
        writing buffer, or this one, has submitted."""
        sampler = Path(path) / _SAMPLER
        about = json.loads(sampler.read_text(encoding="utf-8")) if sampler.exists() else {}  # absent from older folders
        with self.service.lock:
            self.client.restore(Path(path) / _CHECKPOINT)
            self._sampler.remember(about.get("max_priority"))

    def reopen(self) -> None:
        """Open a new session after SessionLostError; see `ReplayClient.reopen`."""
        with self.service.lock:
            self._batches = None
            self.client.reopen()

    def close(self) -> None:
        """Send what waits, and close the session. A second call does nothing."""
        self.service.close()

    def shutdown(self, timeout: float | None = None) -> None:
        """As `close`."""
        self.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self.service.close(flush=kind is None)  # after an error, what waits is not sent

    # What TorchRL's buffer has, and a table in the switch does not

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._storage.load_state_dict(state_dict)

    def share(self, shared: bool = True) -> Self:
        if shared:
            self.__getstate__()
        return super().share(False)

    def set_storage(self, storage: Any, collate_fn: Any = None) -> NoReturn:
        self._refuse_part("storage")

    def set_writer(self, writer: Any) -> NoReturn:
        self._refuse_part("writer")

    def set_sampler(self, sampler: Any) -> NoReturn:
        self._refuse_part("sampler")

    @staticmethod
    def _refuse_part(part: str) -> NoReturn:
        raise NotImplementedError(
            f"the {part} of a SwitchReplayBuffer is in the switch and cannot be another one: make a buffer with other "
            "arguments (`sampler=`, `table=`)"
        )

    def update_if_present(self, **_: Any) -> NoReturn:
        raise NotImplementedError(UNCHANGING)

    def submit_update_if_present(self, **_: Any) -> NoReturn:
        raise NotImplementedError(UNCHANGING)

    @classmethod
    def as_remote(cls, remote_config: Any = None) -> NoReturn:
        raise NotImplementedError(
            "a SwitchReplayBuffer needs no remote actor: make one in each process, and they share the table"
        )

    def __getstate__(self) -> NoReturn:
        raise TypeError("a SwitchReplayBuffer holds a session of this process: make one in each process")

    def __repr__(self) -> str:
        return f"SwitchReplayBuffer({self.client!r}, fields={list(self.fields.spec)}, {RESERVED})"
