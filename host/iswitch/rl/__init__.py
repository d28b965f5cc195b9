"""Reinforcement learning whose gradients are summed by the switch. Needs the extra `iswitch-rl[rl]`."""
