"""`python -m sim.refine`: compare gateware and golden model in every state of small jobs and for every frame."""

import argparse
import sys
import time

from sim.refine.catalogue import REFINEMENTS, table
from sim.refine.comparison import Difference

__all__ = ["main"]


def main() -> int:
    """Return 0 if gateware and model agree, the counts are those of the table, and every mutant is found."""
    parser = argparse.ArgumentParser(prog="python -m sim.refine", description=__doc__)
    parser.add_argument("--only", default="", metavar="WORDS", help="jobs whose names contain these words")
    parser.add_argument("--mutants", action="store_true", help="also compare each mutant, which must be found")
    parser.add_argument("--table", action="store_true", help="print the table of docs/verification.md, compare nothing")
    options = parser.parse_args()
    if options.table:
        print(table())
        return 0
    chosen = [each for each in REFINEMENTS if options.only in each.name]
    if not chosen:
        parser.error(f"no job's name contains {options.only!r}; --table shows all jobs")
    failures = 0
    for each in chosen:
        begin = time.monotonic()
        try:
            counts = each.run()
            said = f"{counts.states:,} states, {counts.pairs:,} pairs, {counts.inputs:,} inputs"
            wrong = "" if counts == each.counts else f"\n    the table says {each.counts}"
        except Difference as difference:
            said, wrong = "DIFFERS", f"\n    {difference}"
        seconds = time.monotonic() - begin
        missed = [mutant for mutant in each.mutants if options.mutants and each.notices(mutant) is None]
        wrong += "".join(f"\n    the mutant {mutant.wrong!r} is not found" for mutant in missed)
        failures += bool(wrong)
        print(f"{each.name}: {said} ({seconds:.1f} s){wrong}", flush=True)
    print(f"{len(chosen) - failures} of {len(chosen)} jobs agree")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
