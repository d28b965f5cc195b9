"""The programs in docs/replay_client.md do what the page says."""

import re
from pathlib import Path

import pytest

from iswitch.config import Config, Replay
from sim.bench.replay_network import Network

PAGE = Path(__file__).parents[3] / "docs" / "replay_client.md"


@pytest.mark.parametrize(
    ("call", "addresses", "prints"),
    [("learner.sample(", 2, ["1", "1000"]), ("client.fifo(", 1, ["[0.", "1.", "2.]", "0", "2112", "0"])],
)
def test_the_page_does_what_it_says(call, addresses, prints, capsys):
    snippets = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    [snippet] = [snippet for snippet in snippets if call in snippet]
    network = Network(Config(replay=Replay(capacity=1 << 11, log_bytes=1 << 16)))
    snippet, found = re.subn(r'"127\.0\.0\.1:2700[01]"', "transport()", snippet)
    assert found == addresses
    exec(snippet, {"transport": network.transport})
    assert capsys.readouterr().out.split() == prints
    assert not any(place.open for place in network.switch.service.sessions)
