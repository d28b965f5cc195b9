"""The positions of the latest frames in the log."""

from iswitch.replay.frame_cache import FrameCache


def test_frames_are_evicted_in_the_order_of_writing():
    cache = FrameCache(4)
    for k in range(4):
        cache.add(bytes([k]), 10 + k, 1)
        assert cache.find(bytes([0]), 0) == 10
    cache.add(b"x", 20, 2)
    assert [cache.find(bytes([k]), 0) for k in range(4)] == [None, None, 12, 13] and cache.find(b"x", 0) == 20
    assert cache.find(bytes([2]), 13) is None and cache.find(bytes([3]), 13) == 13
    cache.add(bytes([2]), 30, 1)
    assert cache.find(bytes([2]), 13) == 30 and cache.find(b"x", 0) == 20


def test_an_enlarged_cache_returns_to_its_size():
    cache = FrameCache(2)
    with cache.enlarged(4):
        for k in range(4):
            cache.add(bytes([k]), k, 1)
        assert cache.find(bytes([0]), 0) == 0
    assert [cache.find(bytes([k]), 0) for k in range(4)] == [None, None, 2, 3] and cache.hits == 3
