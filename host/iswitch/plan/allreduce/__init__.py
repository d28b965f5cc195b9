"""Schedules of AllReduce in rounds: simulator and checker, bounds, baselines, exact and learned schedulers, files. See
docs/allreduce.md.

Read in the order network, schedule, replay, bounds; trees, baselines, in_network, overlap, exact; growth, policy,
greedy, train, learned; environments; export, msccl; plots, table, __main__.
"""
