"""The parts of this package in C, which handle the usual case at the speed of the machine, and how they are loaded."""
