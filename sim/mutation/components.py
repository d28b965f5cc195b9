"""The components whose tests are examined with mutants, and the tests of each."""

__all__ = ["COMPONENTS"]

COMPONENTS = {
    "hw/numeric/lane.py": ("tests/hw/numeric/test_lane.py", "tests/hw/numeric/test_half.py"),
    "hw/numeric/fp32.py": ("tests/hw/numeric/test_lane.py", "tests/hw/numeric/test_half.py"),
    "hw/numeric/half.py": ("tests/hw/numeric/test_half.py",),
    "hw/numeric/window64.py": ("tests/hw/numeric/test_lane.py", "tests/hw/numeric/test_half.py"),
    "hw/decide/claims.py": ("tests/hw/decide/test_claims.py",),
    "hw/decide/ring.py": ("tests/hw/decide/test_ring.py", "tests/hw/decide/test_ring_tree.py"),
    "hw/replay/sampling/sum_tree.py": (
        "tests/hw/replay/sampling/test_sum_tree.py",
        "tests/hw/replay/sampling/test_sum_tree_rebuild.py",
    ),
    "hw/decide/lowest_missing.py": ("tests/hw/decide/test_lowest_missing.py",),
    "host/iswitch/driver/segment_ledger.py": ("tests/host/driver/test_segment_ledger.py",),
    "host/iswitch/driver/window.py": ("tests/host/driver/test_window.py",),
    "host/iswitch/driver/ring.py": ("tests/host/driver/test_ring.py", "tests/host/driver/test_exchange.py"),
    "host/iswitch/driver/stream.py": (
        "tests/host/driver/test_stream_alone.py",
        "tests/host/driver/test_stream.py",
        "tests/host/driver/test_claims.py",
    ),
    "host/iswitch/driver/receiver.py": (
        "tests/host/driver/test_loss_recovery.py",
        "tests/host/driver/test_ring.py",
        "tests/host/driver/test_stream_alone.py",
    ),
    "host/iswitch/driver/claims.py": ("tests/host/driver/test_claims.py", "tests/host/driver/test_stream_alone.py"),
    "host/iswitch/driver/loss_recovery.py": (
        "tests/host/driver/test_loss_recovery.py",
        "tests/host/driver/test_ring.py",
        "tests/host/driver/test_stream_alone.py",
    ),
    "host/iswitch/driver/membership.py": ("tests/host/driver/test_membership.py",),
}
"""By source file: the files of its own tests. Tests of larger parts, and proofs, do not count."""
