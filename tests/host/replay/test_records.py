"""Pack the fields of a transition, and unpack them."""

import numpy as np
import pytest

from iswitch.replay.records import Field, Layout

PLAIN = {
    "observation": Field((4,), np.float32),
    "action": Field((), np.int64),
    "reward": Field((), ">f4"),
    "flag": Field((), bool),
}
STACKED = {
    "observation": Field((4, 6, 6), np.uint8, stacked=4),
    "next": Field((4, 6, 6), np.uint8, stacked=4),
    "action": Field((), np.int32),
}
DEEP = {
    "a": Field((12, 2), np.uint8, stacked=12),
    "b": Field((12, 2), np.uint8, stacked=12),
    "c": Field((3,), np.float64),
    "d": Field((), "u1"),
}
LARGE = {"observation": Field((40,), np.float32), "action": Field((), np.int64)}
SPECS = {"plain": PLAIN, "stacked": STACKED, "deep": DEEP, "large": LARGE}


def arrays(spec, count, seed=0):
    rng = np.random.default_rng(seed)
    return {
        name: rng.integers(0, 2 if field.wire_dtype.kind == "b" else 100, (count, *field.axes)).astype(field.wire_dtype)
        for name, field in spec.items()
    }


def places(layout, count, seed=1):
    rng = np.random.default_rng(seed)
    positions = {name: rng.integers(0, 2**32, (count, layout.spec[name].stacked), np.uint32) for name in layout.stacked}
    return positions, rng.integers(0, 2**32, count, np.uint32)


@pytest.mark.parametrize(
    "name, record_bytes, logged, blob",
    [
        ("plain", 64, [], []),
        ("stacked", 64, ["log.session"], []),
        ("deep", 128, ["log.session"], []),
        ("deep", 64, ["log.session", "log.blob"], ["a", "b"]),
        ("large", 64, ["log.session", "log.blob"], ["observation"]),
        ("large", 256, [], []),
    ],
)
def test_the_smallest_fields_are_in_the_record_and_the_rest_in_the_log(name, record_bytes, logged, blob):
    layout = Layout(SPECS[name], record_bytes)
    assert layout.record.itemsize == record_bytes
    assert [
        field for field in layout.record.names if field in ("log.session", "log.blob")
    ] == logged and layout.uses_log == bool(logged)
    assert sorted(layout.blob.names if layout.blob else ()) == blob
    assert set(layout.record.names) - {"log.session", "log.blob", "log.padding"} == set(SPECS[name]) - set(blob)


@pytest.mark.parametrize("name", SPECS)
@pytest.mark.parametrize("record_bytes", [64, 128, 256])
@pytest.mark.parametrize("count", [0, 1, 7])
def test_packed_records_can_be_read_with_their_dtype(name, record_bytes, count):
    layout, data = Layout(SPECS[name], record_bytes), arrays(SPECS[name], count)
    positions, starts = places(layout, count)
    records = np.frombuffer(layout.pack_records(data, positions, starts, 5).tobytes(), layout.record)
    parts = {field: records[field] for field in records.dtype.names}
    if layout.blob:
        blobs = np.frombuffer(layout.pack_blobs(data, positions).tobytes(), layout.blob)
        parts |= {field: blobs[field] for field in blobs.dtype.names}
        assert np.array_equal(layout.blob_starts(records), starts)
    if layout.uses_log:
        assert (layout.sessions(records) == 5).all() and len(layout.sessions(records)) == count
    for field in SPECS[name]:
        assert np.array_equal(parts[field], positions.get(field, data[field]))


def test_the_layout_does_not_depend_on_the_order_of_fields():
    other = dict(reversed(DEEP.items()))
    assert Layout(DEEP, 64).record == Layout(other, 64).record and Layout(DEEP, 64).blob == Layout(other, 64).blob


def test_numbers_are_converted_if_they_fit():
    layout = Layout(PLAIN, 64)
    count, columns = layout.to_columns(
        {"observation": [[1, 2, 3, 4]], "action": np.array([7], np.uint8), "reward": [1.5], "flag": [True]}
    )
    assert count == 1 and [columns[name].dtype for name in PLAIN] == [
        np.dtype("<f4"),
        np.dtype("<i8"),
        np.dtype("<f4"),
        np.dtype(bool),
    ]
    count, columns = Layout({"a": Field(2, np.uint8)}, 64).to_columns({"a": [[0, 255]]})
    assert columns["a"].tolist() == [[0, 255]]


@pytest.mark.parametrize(
    "change, error, message",
    [
        ({"observation": np.zeros((1, 3))}, ValueError, r"observation must have the shape \(n, 4\), not \(1, 3\)"),
        ({"action": [0.5]}, TypeError, "action must be int64, not float64"),
        ({"reward": [1j]}, TypeError, "reward must be float32"),
        ({"action": [1, 2]}, ValueError, "as many transitions as the first, 1, but action has 2"),
        ({"extra": [1]}, ValueError, "extra is unknown"),
        ({"flag": [2]}, TypeError, "flag must be bool"),
    ],
)
def test_transition_wrong(change, error, message):
    with pytest.raises(error, match=message):
        Layout(PLAIN, 64).to_columns(
            {"observation": np.zeros((1, 4)), "action": [1], "reward": [0.0], "flag": [False]} | change
        )


def test_missing_field_wrong():
    with pytest.raises(ValueError, match="action, flag are missing"):
        Layout(PLAIN, 64).to_columns({"observation": np.zeros((1, 4)), "reward": [0.0]})


@pytest.mark.parametrize(
    ("given", "dtype", "value"),
    [
        ([0, 256], "u1", "256"),
        ([2**40 + 7], "<i4", "1099511627783"),
        ([0, -129], "i1", "-129"),
        (np.array([2**63], np.uint64), "<i8", "9223372036854775808"),
        ([1.0, 1e300], "<f4", "1e[+]300"),
        ([1.0, 70000.0], "<f2", "70000.0"),
        ([1, 70000], "<f2", "70000"),
        ([1 + 1e300j], "<c8", "1e[+]300j"),
        (np.array([b"abc"]), "S2", "b'abc'"),
    ],
)
def test_value_out_of_range_wrong(given, dtype, value):
    with pytest.raises(TypeError, match=rf"a must be \S+, and its value .*{value}.* does not fit"):
        Layout({"a": Field((), dtype)}, 64).to_columns({"a": given})


@pytest.mark.parametrize(
    ("given", "dtype"),
    [
        ([-(2**31), 2**31 - 1], "<i4"),
        ([], "<i4"),
        (np.array([2**63 - 1], np.uint64), "<i8"),
        ([3.4028234663852886e38, np.inf, -np.inf, np.nan], "<f4"),
        ([0.1, 1e-60], "<f4"),
        (np.array([b"ab"], "S9"), "S2"),
    ],
)
def test_value_at_the_edge_is_stored(given, dtype):
    _, columns = Layout({"a": Field((), dtype)}, 64).to_columns({"a": np.array(given, None if len(given) else int)})
    assert np.array_equal(columns["a"], np.array(given).astype(dtype), equal_nan=columns["a"].dtype.kind == "f")


@pytest.mark.parametrize(
    "make, error, message",
    [
        (
            lambda: Field((4, 84, 84), np.uint8, stacked=3),
            ValueError,
            "shape must begin with the number of its frames, 3",
        ),
        (lambda: Field((4,), np.uint8, stacked=4), ValueError, "shape must begin"),
        (lambda: Field((), object), TypeError, "must be numeric, not object"),
        (lambda: Layout({}, 64), ValueError, "a spec must have fields"),
        (lambda: Layout({"log.session": Field((), "u1")}, 64), ValueError, "none of them named"),
        (lambda: Layout({"a": np.float32}, 64), TypeError, r"spec\['a'\] must be a Field"),
    ],
)
def test_spec_wrong(make, error, message):
    with pytest.raises(error, match=message):
        make()
