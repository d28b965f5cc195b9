"""What there is to plan with: racks, switches, hosts, cables and the job; how files describe them."""
