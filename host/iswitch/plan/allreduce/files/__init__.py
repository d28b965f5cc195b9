"""Networks and schedules as files: JSON, and the XML of MSCCL, which `msccl` reads and runs."""
