"""Find the fastest plan and prove it: integer and linear programs, solved by HiGHS.

Read in the order linear_program; tree; arcs, paths, sites; tree_program, single_tree_model, pricing; single_tree,
several_trees; shadow_prices.
"""
