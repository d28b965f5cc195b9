"""`python -m sim.mistakes`: makes each mistake, and prints docs/mistakes.md."""

from sim.mistakes.table import text

print(text(), end="")
