"""The program in docs/replay_client.md does what the page says."""

import re
from pathlib import Path

from iswitch.config import Config, Replay
from sim.bench.replay_network import Network


def test_the_page_does_what_it_says(capsys):
    page = (Path(__file__).parents[3] / "docs" / "replay_client.md").read_text(encoding="utf-8")
    [snippet] = [block for block in re.findall(r"```python\n(.*?)```", page, re.S) if "ReplayClient" in block]
    network = Network(Config(replay=Replay(capacity=1 << 11, log_bytes=1 << 16)))
    snippet, addresses = re.subn(r'"127\.0\.0\.1:2700[01]"', "transport()", snippet)
    assert addresses == 2
    exec(snippet, {"transport": network.transport})
    assert capsys.readouterr().out.split() == ["1", "1000"]
    assert not any(place.open for place in network.switch.service.sessions)
