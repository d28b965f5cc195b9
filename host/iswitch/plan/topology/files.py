"""Read a topology from a file of any format."""

from pathlib import Path

from iswitch.plan.topology.errors import TopologyError
from iswitch.plan.topology.graph_file import from_graphml, from_json
from iswitch.plan.topology.shared_fabric import SharedFabric
from iswitch.plan.topology.topology import Topology
from iswitch.plan.topology.yaml_file import parse_fabric, parse_yaml

__all__ = ["read_fabric", "read_text", "read_topology"]


def read_text(path: Path) -> str:
    """Return the text of a file.

    Raises
    ------
    TopologyError
        If the file is not text.
    OSError
        If the file cannot be read.
    """
    try:
        return path.read_text(encoding="utf-8-sig")  # some editors begin a file with a byte order mark
    except UnicodeDecodeError as error:
        raise TopologyError(
            f"{path.name} is not text in UTF-8: byte {error.start} is {error.object[error.start]:#04x}; "
            "save it as UTF-8"
        ) from error


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
    text = read_text(path)
    return from_json(text, path.name) if path.suffix == ".json" else parse_yaml(text, path.name)


def read_fabric(path: Path) -> Topology | SharedFabric:
    """Return the topology of a file, or the shared fabric of a YAML file with `jobs`; else like `read_topology`."""
    if path.suffix in (".graphml", ".json"):
        return read_topology(path)
    return parse_fabric(read_text(path), path.name)
