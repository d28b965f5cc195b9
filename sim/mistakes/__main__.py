"""`python -m sim.mistakes`: make each mistake, and print docs/mistakes.md."""

from sim.mistakes.table import text

print(text(), end="")
