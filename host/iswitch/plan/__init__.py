"""Which switch sums whose gradients, over which cables, so that all workers are as fast as can be. Needs `pip install
'iswitch-rl[plan]'`.

    from iswitch.plan.schemes import plan_of
    from iswitch.plan.output.configuration import configuration
    from iswitch.plan.topology.files import read_topology

    topology = read_topology(Path("fabric.yaml"))
    plan = plan_of(topology, "tree")
    print(plan.rate_gbps, plan.bound_gbps, configuration(topology, plan)["emulator"])
"""
