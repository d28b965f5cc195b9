"""iswitch: gradient sums and prioritized replay inside an FPGA network switch."""
