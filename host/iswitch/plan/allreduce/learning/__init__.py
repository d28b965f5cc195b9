"""Schedulers that grow flow trees, with a greedy or a learned policy.

Read in the order growth, policy, greedy, train, learned, environments.
"""
