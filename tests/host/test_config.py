"""What a switch can be built with, and what not."""

import dataclasses
import json
import re

import pytest

from iswitch.config import Config, Replay

WRONG = [
    ("ports", 0, "1 to 16"),
    ("ports", 17, "1 to 16"),
    ("bus_bits", 128, "64, 256 or 512"),
    ("bus_bits", 0, "64, 256 or 512"),
    ("members", 1, "2 to 32"),
    ("members", 33, "2 to 32"),
    ("jobs", 1, "a power of two from 2 to 16"),
    ("jobs", 3, "a power of two from 2 to 16"),
    ("jobs", 32, "a power of two from 2 to 16"),
    ("window", 0, "a power of two from 1 to 4096"),
    ("window", 48, "a power of two from 1 to 4096"),
    ("window", 8192, "a power of two from 1 to 4096"),
    ("elements", 0, "a whole number of 256-bit words of at most 8,900 bytes"),
    ("elements", 12, "a whole number of 256-bit words of at most 8,900 bytes"),
    ("elements", 2232, "a whole number of 256-bit words of at most 8,900 bytes"),
    ("queue_bytes", 12288, "a power of two of at least 3164"),
    ("queue_bytes", 2048, "a power of two of at least 3164"),
    ("flood_interval_us", -1, "0 or a power of two from 1 to 65536"),
    ("flood_interval_us", 1000, "0 or a power of two from 1 to 65536"),
    ("flood_interval_us", 131072, "0 or a power of two from 1 to 65536"),
    ("mac_entries", 32, "a power of two from 64 to 65536"),
    ("mac_entries", 96, "a power of two from 64 to 65536"),
    ("mac_entries", 131072, "a power of two from 64 to 65536"),
    ("staleness", -1, "0 to 7"),
    ("staleness", 8, "0 to 7"),
    ("uplinks", 2, "True or False"),
    ("half_width", 2, "True or False"),
    ("replay", 1, "a Replay or None"),
]


@pytest.mark.parametrize(("name", "value", "rule"), WRONG)
def test_field_wrong(name, value, rule):
    with pytest.raises(ValueError, match=f"^Config {name} must be {rule}, not {value}$"):
        Config(**{name: value})


def test_every_field_has_a_wrong_value():
    assert {name for name, *_ in WRONG} == {field.name for field in dataclasses.fields(Config)}


WRONG_REPLAY = [
    ("tables", 0, "1 to 4"),
    ("tables", 5, "1 to 4"),
    ("capacity", 8, "a power of two from 16 to 2^20"),
    ("capacity", 48, "a power of two from 16 to 2^20"),
    ("capacity", 1 << 21, "a power of two from 16 to 2^20"),
    ("priority_bits", 3, "4 to 32"),
    ("priority_bits", 33, "4 to 32"),
    ("sample_count_bits", 17, "0 to 16"),
    ("sessions", 1, "2 to 32"),
    ("sessions", 33, "2 to 32"),
    ("cached_answers", 0, "a power of two from 1 to 16"),
    ("cached_answers", 3, "a power of two from 1 to 16"),
    ("samples_per_request", 8, "a power of two from 16 to 2048"),
    ("record_bytes", 32, "a power of two from 64 to 1024"),
    ("record_bytes", 96, "a power of two from 64 to 1024"),
    ("log_bytes", 2048, "a power of two from 4096 to 2^30"),
    ("request_bytes", 2048, "a power of two from 4096 to 2^20"),
    ("request_bytes", 5000, "a power of two from 4096 to 2^20"),
    ("single_copy", 2, "True or False"),
]


@pytest.mark.parametrize(("name", "value", "rule"), WRONG_REPLAY)
def test_replay_field_wrong(name, value, rule):
    with pytest.raises(ValueError, match=re.escape(f"Replay {name} must be {rule}, not {value}")):
        Replay(**{name: value})


def test_every_field_of_replay_has_a_wrong_value():
    assert {name for name, *_ in WRONG_REPLAY} == {field.name for field in dataclasses.fields(Replay)}


@pytest.mark.parametrize("replay", [None, Replay(), Replay(tables=2, capacity=16, log_bytes=4096)])
def test_a_config_comes_back_from_json(replay):
    config = Config(replay=replay)
    assert Config.from_dict(json.loads(json.dumps(dataclasses.asdict(config)))) == config


@pytest.mark.parametrize(
    "fields",
    [
        {"ports": 1},
        {"ports": 16},
        {"members": 2},
        {"members": 32},
        {"jobs": 16},
        {"window": 1},
        {"window": 4096},
        {"elements": 8},
        {"elements": 2224, "queue_bytes": 32768},
        {"queue_bytes": 4096},
        {"mac_entries": 64},
        {"mac_entries": 65536},
        {"staleness": 0},
        {"staleness": 7},
    ],
)
def test_extremes_are_allowed(fields):
    assert dataclasses.asdict(Config(**fields)).items() >= fields.items()


@pytest.mark.parametrize("bus_bits", [64, 256, 512])
def test_derived_sizes(bus_bits):
    config = Config(bus_bits=bus_bits)
    assert config.bus_bytes * 8 == config.lanes * 32 == bus_bits
    assert config.header_words * config.bus_bytes == 64
    assert config.segment_words * config.lanes == config.elements
    assert config.queue_words * config.bus_bytes == config.queue_bytes
    assert config.slots == 2 * config.window


def test_longest_frame_is_an_ordinary_one_or_a_result():
    assert Config(elements=8).frame_bytes_max == 1518
    assert Config(elements=2000, queue_bytes=32768).frame_bytes_max == 64 + 8000 + 4


def test_fields_are_given_by_name_and_stay():
    with pytest.raises(TypeError):
        Config(4)
    with pytest.raises(dataclasses.FrozenInstanceError):
        Config().ports = 5
