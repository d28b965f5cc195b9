"""DQN, A2C, PPO and DDPG as scripts for torchrun, a file each: `torchrun --nproc-per-node 4 -m examples.torchrun.a2c`.

Each process is a worker: it steps its own environments, and the switch sums its gradients with those of the others.
"""
