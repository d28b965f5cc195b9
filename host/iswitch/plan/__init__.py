"""Which switch sums whose gradients, over which cables, so that all workers are as fast as can be."""
