"""The figures of the GRID paper, made again: `python -m iswitch.plan.figures`."""
