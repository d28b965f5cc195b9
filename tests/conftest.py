import pytest


@pytest.fixture
def one_thread():
    """Sums within torch in one order, and processor time for the other tests."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
