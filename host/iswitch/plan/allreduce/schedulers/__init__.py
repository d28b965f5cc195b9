"""Schedulers that do not learn."""
