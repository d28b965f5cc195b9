"""Schedulers that do not learn: parameter servers, rings, fixed flow trees, switches that sum, an exact one."""
