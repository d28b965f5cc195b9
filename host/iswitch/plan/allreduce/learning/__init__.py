"""Schedulers that grow flow trees: greedy and learned ones, their training, Gymnasium environments."""
