"""Frames as others see them: a Wireshark dissector, and captures told in sentences."""
