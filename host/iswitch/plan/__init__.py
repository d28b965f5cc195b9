"""Which switch sums whose gradients, over which cables, so that all workers are as fast as can be. Needs `pip install 'iswitch[plan]'`.

    topology = read(Path("fabric.yaml"))
    plan = plan_of(topology, "tree")
    print(plan.rate_gbps, plan.bound_gbps, configuration(topology, plan)["emulator"])
"""

from iswitch.plan.check import examine
from iswitch.plan.compare import baselines, plan_of, plans
from iswitch.plan.configuration import configuration, difference, renewed
from iswitch.plan.exact import one_tree
from iswitch.plan.exchange import from_graphml, from_json, node_link, to_graphml, to_json
from iswitch.plan.picture import picture
from iswitch.plan.reading import read, read_text
from iswitch.plan.striped import several_trees
from iswitch.plan.topology import Job, Topology, TopologyError
from iswitch.plan.tree import Plan, Resource, Tree
from iswitch.plan.whatif import lose, reserve, upgrade_of

__all__ = ["Job", "Plan", "Resource", "Topology", "TopologyError", "Tree", "baselines", "configuration", "difference", "examine", "from_graphml",
           "from_json", "lose", "node_link", "one_tree", "picture", "plan_of", "plans", "read", "read_text", "renewed", "reserve", "several_trees",
           "to_graphml", "to_json", "upgrade_of"]
