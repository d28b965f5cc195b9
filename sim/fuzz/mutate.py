"""Sequences of steps from others: fields of the wire records get other values, and steps come twice, later or not."""

from collections.abc import Iterator

import numpy as np

from iswitch.wire import CONTROL, FLAGS_SHIFT, HEADER, Action, ContributionFlag, Format, Type
from sim.fuzz.steps import CONFIG, LENGTH, STARTS, STEP, WORKERS

__all__ = ["mutated", "seeds"]

CHANGES = 6
"""Changed fields of a sequence, on average."""
LIKELY = {
    "present": 2.0,
    "sender": 4.0,
    "stray": 0.5,
    "pattern": 3.0,
    "wait_us": 3.0,
    "length": 3.0,
    "header.seq": 4.0,
    "header.behind": 3.0,
    "header.format_flags": 3.0,
    "header.members": 2.0,
    "header.version_type": 2.0,
    "body.action": 2.0,
}
"""How often a field is changed, beside 0.5 for the others."""
NOTABLE = np.array(
    [0, 1, 2, 3, 4, 7, 8, 9, 16, 22, 26, 60, 86, 99, 100, 182, 1 << 14, 1 << 16, (1 << 31) - 1, 1 << 31, (1 << 32) - 1],
    np.uint64,
)
"""Values at which rules have edges."""


def leaves(dtype: np.dtype = STEP, prefix: str = "") -> Iterator[str]:
    """Yield the fields of a step by path, those of the wire records included."""
    for name in dtype.names or ():
        inner = dtype.fields[name][0]
        if inner.names:
            yield from leaves(inner, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}"


LEAVES = list(leaves())
CHANCES = np.array([LIKELY.get(leaf, 0.5) for leaf in LEAVES])
CHANCES /= CHANCES.sum()


def mutated(rng: np.random.Generator, pool: np.ndarray, count: int) -> np.ndarray:
    """Return new sequences.

    Parameters
    ----------
    rng : numpy.random.Generator
        The source of all decisions.
    pool : numpy.ndarray
        `STEP`, shape (sequences, LENGTH): the sequences from which they are made.
    count : int
        How many.
    """
    at = np.arange(LENGTH)
    first, second, cut, shift, twice, source = (
        rng.integers(0, bound, (count, 1)) for bound in (len(pool), len(pool), LENGTH, LENGTH, LENGTH, LENGTH)
    )
    spliced = (rng.random((count, 1)) < 0.3) & (at >= cut)
    index = np.where(spliced, (at + shift) % LENGTH, at)
    which = np.where(spliced, second, first)
    repeated = (rng.random((count, 1)) < 0.3) & (at >= twice)  # a step of elsewhere comes in between
    before = np.where(at == twice, source, np.maximum(at - 1, 0))
    index = np.where(repeated, np.take_along_axis(index, before, 1), index)
    which = np.where(repeated, np.take_along_axis(which, before, 1), which)
    made = pool[which, index]
    changes = count * CHANGES
    row, leaf = rng.integers(0, count, changes), rng.choice(len(LEAVES), changes, p=CHANCES)
    column = rng.integers(0, LENGTH, changes)
    for k in range(len(LEAVES)):
        chosen = leaf == k
        change_field(rng, made, LEAVES[k].split("."), row[chosen], column[chosen])
    return made


def change_field(
    rng: np.random.Generator, steps: np.ndarray, path: list[str], row: np.ndarray, column: np.ndarray
) -> None:
    """Give a field another value in some steps: near the old one, a notable one, any one, or one with another bit."""
    field = steps
    for name in path:
        field = field[name]
    old = field[row, column].astype(np.uint64)
    bits = 8 * field.dtype.itemsize
    near = old + rng.integers(-4, 5, old.size).astype(np.uint64)
    flipped = old ^ np.uint64(1) << rng.integers(0, bits, old.size).astype(np.uint64)
    other = steps[rng.permutation(len(steps))[row % len(steps)], column]
    for name in path:
        other = other[name]
    new = np.select(
        [rng.random(old.size) < share for share in (0.35, 0.4, 0.45, 0.4)],
        [near, rng.choice(NOTABLE, old.size), flipped, other.astype(np.uint64)],
        rng.integers(0, 1 << 63, old.size, dtype=np.uint64),
    )
    field[row, column] = new.astype(f"u{field.dtype.itemsize}").view(field.dtype)


def seeds(start: int) -> np.ndarray:
    """Return sequences of correct workers, `STEP`, shape (sequences, LENGTH): the first ancestors of all others."""
    made = [rounds(start, job) for job in range(2)] + [orders(start, job) for job in range(2)]
    return np.stack(made)


def step(sender: int, kind: Type, **fields: int) -> np.ndarray:
    """Return a step; `fields` are of the step, its header or its body."""
    made = np.zeros((), STEP)
    made["present"], made["sender"], made["wait_us"], made["length"] = 1, sender, 5, HEADER.itemsize
    made["header"]["version_type"] = kind
    for name, value in fields.items():
        path = next(path for path in (name, f"header.{name}", f"body.{name}") if path in LEAVES)
        place = made[path.split(".")[0]] if "." in path else made
        place[name] = value
    return made


def padded(steps: list[np.ndarray]) -> np.ndarray:
    made = np.zeros(LENGTH, STEP)
    for k, one in enumerate(steps[:LENGTH]):
        made[k] = one
    return made


def rounds(start: int, job: int) -> np.ndarray:
    """Return segments of a job, one after another; in an asynchronous job they are claimed."""
    settings, steps = STARTS[start][job], []
    format, segments = settings.get("format", Format.WINDOW64), settings.get("segments", 0)
    size = 2 if format in (Format.BF16, Format.FP16) else 4
    senders = range(WORKERS * job, WORKERS * (job + 1))
    for seq in range(2 * CONFIG.slots):
        if segments and seq % segments == 0:
            steps += [step(m, Type.CLAIM, seq=seq // segments + 1, members=seq) for m in senders]
        flags = ContributionFlag.BOUNDARY * (seq % 3 == 2)
        length = HEADER.itemsize + size * (2 + 4 * seq % CONFIG.elements)
        for m in senders:
            steps.append(
                step(
                    m,
                    Type.CONTRIBUTION,
                    seq=seq,
                    pattern=7 * seq + m,
                    format_flags=flags << FLAGS_SHIFT | format,
                    length=length,
                )
            )
        steps += [step(m, Type.RECEIPT, seq=seq + 1) for m in senders if segments]
    return padded(steps)


def orders(start: int, job: int) -> np.ndarray:
    """Return control messages of members, among their contributions."""
    steps, body = [], {"length": HEADER.itemsize + CONTROL.itemsize}
    format = STARTS[start][job].get("format", Format.WINDOW64)
    for number, action in enumerate(Action, 1):
        sender = WORKERS * job + number % WORKERS
        steps.append(step(sender, Type.CONTROL, action=action, seq=number, threshold=2, world=3, elements=8, **body))
        steps += [
            step(WORKERS * job + m, Type.CONTRIBUTION, seq=number, format_flags=format, length=HEADER.itemsize + 32)
            for m in range(WORKERS)
        ]
    return padded(steps)
