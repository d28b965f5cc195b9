"""A job begins anew: by a RESET, and in a tree that runs also by a Join. Sections 4 and 7 of `docs/protocol.md`."""

from iswitch.config import Config
from iswitch.golden.decide.job import Job, new_claims, with_next_challenge
from iswitch.golden.decide.ring import new_ring
from iswitch.wire import JobState

__all__ = ["begin_anew"]


def begin_anew(config: Config, job: Job, *, is_leaf: bool) -> Job:
    """Return the job with empty slots, in its next epoch, so that frames sent before are refused. Its members stay.

    A leaf's epochs are those of the root. So the job of a leaf forms until the leaf has received the next one.
    """
    ring = new_ring(
        job.first_seq, config.window, config.members, job.live, job.ring.threshold, job.settings.deadline_us
    )
    job = with_next_challenge(job)._replace(
        ring=ring._replace(joining=job.ring.joining), claims=new_claims(job.settings, job.first_seq)
    )
    if is_leaf:
        return job._replace(state=JobState.FORMING)
    return job._replace(epoch=(job.epoch + 1) % 2**16, renewed=True)
