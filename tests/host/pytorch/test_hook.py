"""The communication hook, as far as no worker takes part."""

from types import SimpleNamespace

import pytest
import torch

from iswitch.torch import UnsupportedError, hook


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex64])
def test_gradients_that_float32_cannot_hold_are_refused(dtype):
    """They were rounded to float32 without a word, and complex ones lost their imaginary parts."""
    worker = SimpleNamespace(format="window64", allreduce=lambda *_, **__: pytest.fail("something was sent"))
    bucket = SimpleNamespace(buffer=lambda: torch.ones(3, dtype=dtype))
    with pytest.raises(UnsupportedError, match=r"not torch\.\w+: call `model.float\(\)`"):
        hook(worker, bucket)
