"""`python -m sim.mutation FILE`: mutants of a source file, and which of them the file's own tests notice."""

import argparse
import sys
import tempfile
from pathlib import Path

from sim.mutation.components import COMPONENTS
from sim.mutation.copied import ROOT, copied
from sim.mutation.operators import Mutant, mutants, sample
from sim.mutation.results import RESULTS, Result, Survivor, changed, digest, read, table, write

__all__ = ["main"]


def arguments() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(prog="python -m sim.mutation", description=__doc__)
    parser.add_argument("component", nargs="?", metavar="FILE", choices=COMPONENTS, help=", ".join(COMPONENTS))
    parser.add_argument("--count", type=int, default=60, help="size of the sample (60)")
    parser.add_argument("--seed", type=int, default=1, help="the same seed chooses the same mutants (1)")
    parser.add_argument("--again", action="store_true", help="try also those again that are known of this source")
    parser.add_argument("--survivors", action="store_true", help="try those again that nothing noticed before")
    parser.add_argument("--only", metavar="NAME", help="try this mutant alone, show what its tests print, keep nothing")
    parser.add_argument("--list", action="store_true", help="print the sample and run nothing")
    parser.add_argument("--table", action="store_true", help="print the tables of docs/verification.md and run nothing")
    parser.add_argument("--out", type=Path, default=RESULTS, help="where results are kept (docs/mutation.json)")
    return parser


def line(mutant: Mutant) -> str:
    """Return a mutant as a line."""
    return f"{mutant.name} {mutant.line} {mutant.operator}: {mutant.original}  ->  {mutant.wrong or 'left out'}"


def main() -> int:
    """Return 0 if each mutant that could be built was noticed, or is explained."""
    parser = arguments()
    options = parser.parse_args()
    results = read(options.out)
    if options.table:
        print(table(results, changed(results)))
        return 0
    if options.component is None:
        parser.error("which FILE? --help lists the files")
    source = (ROOT / options.component).read_text(encoding="utf-8")
    every = mutants(source)
    chosen = sample(every, options.count, options.seed)
    if options.list:
        print("\n".join(line(mutant) for mutant in chosen))
        return 0

    result = Result(digest(source), options.seed, len(every), {})
    before = results.get(options.component, result)
    if (before.source, before.seed) == (result.source, result.seed) and not options.again:
        again = before.survivors if options.survivors else {}
        result.outcomes = {name: said for name, said in before.outcomes.items() if name not in again}
        result.survivors = {name: one for name, one in before.survivors.items() if name not in again}
    if options.only:
        tried = [mutant for mutant in every if mutant.name == options.only]
    else:
        tried = [mutant for mutant in chosen if mutant.name not in result.outcomes]
    with (
        tempfile.NamedTemporaryFile("r") as log,
        copied(options.component, COMPONENTS[options.component], log=log.name) as copy,
    ):
        sound = copy.judge(source)
        if sound.outcome != "passed":
            print(f"the tests fail without a mutant: {sound.test}: {sound.message}")
            return 2
        print(f"{copy.tests} tests, {sound.processor_s:.0f} s of processor time without a mutant", flush=True)
        log.read()
        for number, mutant in enumerate(tried, 1):
            said = copy.judge(mutant.source)
            by = said.test.rpartition("::")[2] or said.message
            print(f"[{number}/{len(tried)}] {said.outcome} {said.processor_s:.1f} s {line(mutant)}  ({by})", flush=True)
            if options.only:
                print(log.read())
                return 0
            result.outcomes[mutant.name] = said.outcome
            if said.outcome == "passed":
                new = Survivor(mutant.where, mutant.original, mutant.wrong)
                result.survivors[mutant.name] = before.survivors.get(mutant.name, new)
            write({**results, options.component: result}, options.out)
    unexplained = sum(not survivor.reason for survivor in result.survivors.values())
    print(
        f"{options.component}: {result.noticed} of {result.built} mutants noticed, {len(result.survivors)} survive, "
        f"{unexplained} of them without a reason; {len(result.outcomes) - result.built} could not be built"
    )
    return 1 if unexplained else 0


if __name__ == "__main__":
    sys.exit(main())
