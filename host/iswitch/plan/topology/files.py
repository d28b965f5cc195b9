"""Read a topology from a file of any format."""

from pathlib import Path

from iswitch.plan.topology.graph_file import from_graphml, from_json
from iswitch.plan.topology.topology import Topology
from iswitch.plan.topology.yaml_file import parse_yaml

__all__ = ["read_topology"]


def read_topology(path: Path) -> Topology:
    """Return the topology of a file: node-link JSON (`.json`), GraphML (`.graphml`), or else YAML.

    Raises
    ------
    TopologyError
        If the file cannot be planned with. The message names the file, and the line if it is known.
    OSError
        If the file cannot be read.
    """
    if path.suffix == ".graphml":
        return from_graphml(path)
    text = path.read_text(encoding="utf-8")
    return from_json(text, path.name) if path.suffix == ".json" else parse_yaml(text, path.name)
