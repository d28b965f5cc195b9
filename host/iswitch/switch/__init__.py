"""The software switch: a process that is a whole switch, for workers without an FPGA."""
