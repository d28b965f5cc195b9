"""Plan which switch sums whose gradients, and over which cables, so that the slowest worker is as fast as possible.

Needs `pip install 'iswitch-rl[plan]'`.

    from iswitch.plan.output.configuration import make_configuration
    from iswitch.plan.schemes import make_plan
    from iswitch.plan.topology.files import read_topology

    topology = read_topology(Path("fabric.yaml"))
    plan = make_plan(topology, "tree")
    print(plan.rate_gbps, plan.bound_gbps, make_configuration(topology, plan)["emulator"])

`topology` is what there is to plan with, `solver` finds the plans, `baselines` are what they are compared with,
`output` turns them into files and text. Each imports only those before it. `allreduce` schedules AllReduce in rounds.
"""
