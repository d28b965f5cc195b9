"""`python -m sim.prove`: prove every law of the catalogue, and that each proof notices its mutants."""

import argparse
import sys
import time

from sim.prove.catalogue import PROOFS, table
from sim.prove.proof import ProofError
from sim.prove.solver import SolverTimeoutError


def main() -> int:
    """Return 0 if every law holds and every mutant is noticed."""
    parser = argparse.ArgumentParser(prog="python -m sim.prove", description=__doc__)
    parser.add_argument("--only", default="", metavar="WORDS", help="laws that contain these words")
    parser.add_argument(
        "--table", action="store_true", help="print the table of docs/verification.md and prove nothing"
    )
    options = parser.parse_args()
    if options.table:
        print(table())
        return 0
    chosen = [proof for proof in PROOFS if options.only in proof.law]
    if not chosen:
        parser.error(f"no law contains {options.only!r}; --table shows all laws")
    failures = 0
    for number, proof in enumerate(chosen, 1):
        begin = time.monotonic()
        try:
            proof.prove()
            missed = [wrong for original, wrong in proof.mutants if proof.notices(original, wrong) is None]
            verdict = "".join(f"\n    does not notice the mutant {wrong!r}" for wrong in missed)
        except (ProofError, SolverTimeoutError) as error:
            verdict = f"\n    {error}"
        failures += bool(verdict)
        state = "FAILS" if verdict else f"holds, {len(proof.mutants)} mutants noticed"
        print(f"[{number}/{len(chosen)}] {proof.law}: {state} ({time.monotonic() - begin:.0f} s){verdict}", flush=True)
    print(f"{len(chosen) - failures} of {len(chosen)} laws hold")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
