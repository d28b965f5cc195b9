"""Systematic mutants of a source file, and which of them the file's own tests notice.

cosmic-ray and mutmut do this for Python. They do not know the statements of Amaranth, such as an `.eq` that is left
out, and do not tell a design that cannot be built from one that a test notices. cosmic-ray starts the tests anew for
each mutant, which takes longer here than most mutants do, and mutmut changes functions only.
"""
