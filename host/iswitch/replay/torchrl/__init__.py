"""A replay buffer of TorchRL whose storage, sampler and writer are the replay service in the switch.

It needs the packages `torch`, `torchrl` and `tensordict`; nothing else in iswitch imports it.
"""

from iswitch.replay.torchrl.buffer import SwitchReplayBuffer
from iswitch.replay.torchrl.fields import TensorFields
from iswitch.replay.torchrl.parts import SwitchSampler, SwitchStorage, SwitchWriter

__all__ = ["SwitchReplayBuffer", "SwitchSampler", "SwitchStorage", "SwitchWriter", "TensorFields"]
