"""Training scripts whose gradients the switch sums, or whose replay it serves. They run from a checkout: `python -m
examples.ppo --help`. They import `iswitch`, torch and Gymnasium, never `hw` or `sim`."""
