"""The errors of a worker whose collective, or whose applied results, differ from another worker's."""

from iswitch.driver.progress import STATELESS
from iswitch.errors import DivergedError, IswitchError, MismatchError
from iswitch.wire import POSITION_BITS, Collective, CollectiveKind

__all__ = ["conflict_error"]

_SYNC = "On all workers, call `rejoin`, then `sync_state`, and go on from the step that it returns"
_CORRECT = "Correct the programs and start all workers again: they must call the same collectives in the same order"


def conflict_error(own: Collective, theirs: Collective, *, job_name: str, rank: int, array: str) -> IswitchError:
    """Return the error for two workers whose contributions the switch refused to add.

    Parameters
    ----------
    own, theirs : Collective
        What this worker and the other one contributed to. If they are equal, the results that the workers have applied
        differ.
    job_name : str
        The job and the switch, for the message.
    rank : int
        This worker's rank.
    array : str
        Size and number format of this worker's array, for the message.

    Returns
    -------
    MismatchError or DivergedError
        The error, with the cause and the remedy.
    """
    if own == theirs:
        root = ", or they name different roots" if own.kind == CollectiveKind.BROADCAST else ""
        return DivergedError(
            f"the workers of {job_name} have applied different results in earlier collectives{root}: they call the "
            f"same collective ({describe(own)}), but the digests of rank {rank} and of another worker differ. Nothing "
            f"was added. {_SYNC}. If it happens again, look for a switch or a link that damages packets"
        )
    return MismatchError(
        f"the workers of {job_name} do not call the same collective: rank {rank} calls {describe(own)} with "
        f"{array}, and another worker calls {describe(theirs)}. Nothing was added. {_explain(own, theirs)}"
    )


def describe(collective: Collective) -> str:
    """Return a collective in words."""
    try:
        kind = CollectiveKind(collective.kind)
    except ValueError:
        return f"a collective of unknown kind {collective.kind}"
    if kind in STATELESS:
        return "`sync_state`"
    return (
        f"`{kind.name.lower()}` of {collective.segments} segments (modulo 16) after {collective.position} collectives"
    )


def _explain(own: Collective, theirs: Collective) -> str:
    """Return the likely cause of a mismatch, and the remedy."""
    if STATELESS & {own.kind, theirs.kind}:
        if own.kind in STATELESS and theirs.kind in STATELESS:
            return f"Their states differ in size: pass `sync_state` arrays of the same sizes. {_CORRECT}"
        other = "The other worker" if own.kind in STATELESS else "This worker"
        return f"{other} must call `sync_state`, too: the job was reset, or a worker has joined. {_SYNC}"
    half = 1 << POSITION_BITS - 1
    ahead = (own.position - theirs.position + half) % (2 * half) - half
    if not ahead and own.kind == theirs.kind:
        return f"Their arrays differ: pass arrays of the same size and dtype on all workers. {_CORRECT}"
    if not ahead:
        return _CORRECT
    behind, count = ("The other worker" if ahead > 0 else "This worker"), abs(ahead)
    return (
        f"{behind} is {count} collective{'s' * (count > 1)} behind. Most likely a call ended with an error at one "
        f"worker alone, which repeated or skipped it, or the programs call different collectives. {_SYNC}"
    )
