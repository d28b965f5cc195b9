"""iswitch for PyTorch: a backend of torch.distributed, and a communication hook for DistributedDataParallel.

`import iswitch.torch` registers the backend "iswitch", so that `init_process_group("cpu:iswitch")` works. It needs the
extra `torch`.
"""

from iswitch.torch.dtypes import UnsupportedError
from iswitch.torch.elastic import ElasticTraining
from iswitch.torch.fallback import FallbackWarning
from iswitch.torch.hook import compressed_hook, hook
from iswitch.torch.optimizer_hook import distribute
from iswitch.torch.options import Options
from iswitch.torch.process_group import IswitchProcessGroup, register
from iswitch.torch.reducer import WorkersMissingError

__all__ = [
    "ElasticTraining",
    "FallbackWarning",
    "IswitchProcessGroup",
    "Options",
    "UnsupportedError",
    "WorkersMissingError",
    "compressed_hook",
    "distribute",
    "hook",
]

register()
