"""All proofs, and the table that the documentation shows."""

from sim.prove import (
    arbiter,
    arithmetic,
    claims,
    crossings,
    join,
    lowest_missing,
    membership,
    queues,
    ring,
    skid_buffer,
    streams,
    sum_tree,
)

__all__ = ["PROOFS", "table"]

PROOFS = [
    *skid_buffer.PROOFS,
    *arbiter.PROOFS,
    *queues.PROOFS,
    *streams.PROOFS,
    *arithmetic.PROOFS,
    *ring.PROOFS,
    *claims.PROOFS,
    *lowest_missing.PROOFS,
    *membership.PROOFS,
    *join.PROOFS,
    *sum_tree.PROOFS,
    *crossings.PROOFS,
]


def table() -> str:
    """Return the proofs as a Markdown table: law, file, extent and number of mutants."""
    rows = [
        f"| {proof.law[0].upper()}{proof.law[1:]} | `{proof.part.__name__.replace('.', '/')}.py` | {proof.extent} "
        f"| {len(proof.mutants)} |"
        for proof in PROOFS
    ]
    return "\n".join(["| law | file | proved for | mutants noticed |", "|---|---|---|---|", *rows])
