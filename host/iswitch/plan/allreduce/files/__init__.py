"""Schedules as files: JSON and the XML of MSCCL."""
