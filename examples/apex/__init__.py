"""Ape-X DQN (Horgan et al. 2018) whose prioritized replay, rate limit and parameters are the switch's."""
