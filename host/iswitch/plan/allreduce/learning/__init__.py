"""Schedulers that grow flow trees, with a greedy or a learned policy.

Read in the order network_arrays, growth, policy, rollout; greedy, learned; settings, batch, train; environments.
"""
