# Alveo U50, 1 x 100G. Written by hw/board/xilinx/constraints.py; a test holds the two together.

# Configuration
set_property CFGBVS GND [current_design]
set_property CONFIG_VOLTAGE 1.8 [current_design]
set_property BITSTREAM.GENERAL.COMPRESS TRUE [current_design]
set_property BITSTREAM.CONFIG.CONFIGFALLBACK ENABLE [current_design]
set_property BITSTREAM.CONFIG.EXTMASTERCCLK_EN DISABLE [current_design]
set_property BITSTREAM.CONFIG.SPI_32BIT_ADDR YES [current_design]
set_property BITSTREAM.CONFIG.SPI_BUSWIDTH 4 [current_design]
set_property BITSTREAM.CONFIG.SPI_FALL_EDGE YES [current_design]
set_property BITSTREAM.CONFIG.UNUSEDPIN PULLUP [current_design]
set_property BITSTREAM.CONFIG.OVERTEMPSHUTDOWN ENABLE [current_design]
set_property CONFIG_MODE SPIx4 [current_design]
set_property BITSTREAM.CONFIG.CONFIGRATE 85.0 [current_design]

# Pins
set_property -dict {PACKAGE_PIN BB18 IOSTANDARD LVDS} [get_ports {sys_clk_p}]
set_property -dict {PACKAGE_PIN BC18 IOSTANDARD LVDS} [get_ports {sys_clk_n}]
set_property -dict {PACKAGE_PIN N36} [get_ports {refclk0_p}]
set_property -dict {PACKAGE_PIN N37} [get_ports {refclk0_n}]
set_property -dict {PACKAGE_PIN J18 IOSTANDARD LVCMOS18 SLEW SLOW DRIVE 8} [get_ports {hbm_cattrip}]
set_property -dict {PACKAGE_PIN E18 IOSTANDARD LVCMOS18 SLEW SLOW DRIVE 8} [get_ports {led[0]}]
set_property -dict {PACKAGE_PIN E16 IOSTANDARD LVCMOS18 SLEW SLOW DRIVE 8} [get_ports {led[1]}]
set_property -dict {PACKAGE_PIN F17 IOSTANDARD LVCMOS18 SLEW SLOW DRIVE 8} [get_ports {led[2]}]
set_property -dict {PACKAGE_PIN J45} [get_ports {rx_p[0]}]
set_property -dict {PACKAGE_PIN G45} [get_ports {rx_p[1]}]
set_property -dict {PACKAGE_PIN F43} [get_ports {rx_p[2]}]
set_property -dict {PACKAGE_PIN E45} [get_ports {rx_p[3]}]
set_property -dict {PACKAGE_PIN J46} [get_ports {rx_n[0]}]
set_property -dict {PACKAGE_PIN G46} [get_ports {rx_n[1]}]
set_property -dict {PACKAGE_PIN F44} [get_ports {rx_n[2]}]
set_property -dict {PACKAGE_PIN E46} [get_ports {rx_n[3]}]
set_property -dict {PACKAGE_PIN D42} [get_ports {tx_p[0]}]
set_property -dict {PACKAGE_PIN C40} [get_ports {tx_p[1]}]
set_property -dict {PACKAGE_PIN B42} [get_ports {tx_p[2]}]
set_property -dict {PACKAGE_PIN A40} [get_ports {tx_p[3]}]
set_property -dict {PACKAGE_PIN D43} [get_ports {tx_n[0]}]
set_property -dict {PACKAGE_PIN C41} [get_ports {tx_n[1]}]
set_property -dict {PACKAGE_PIN B43} [get_ports {tx_n[2]}]
set_property -dict {PACKAGE_PIN A41} [get_ports {tx_n[3]}]

# Input clocks
create_clock -period 10.000 -name sys_clk [get_ports sys_clk_p]
create_clock -period 6.206 -name refclk0 [get_ports refclk0_p]

# Clocks of the design
create_generated_clock -name core [get_pins mmcm/CLKOUT0]
create_generated_clock -name init [get_pins mmcm/CLKOUT1]
set port0_mac [get_clocks -of_objects [get_pins port_0/mac/gt_txusrclk2]]

# Clock domain crossings: between any two of these clocks there are only synchronisers and FIFOs with Gray code
# pointers. No path may take longer than the shorter of the two periods, so that at most one bit of a pointer is
# in flight. The phase is not constrained.
set_max_delay -datapath_only -from [get_clocks core] -to [get_clocks init] 3.333
set_max_delay -datapath_only -from [get_clocks core] -to $port0_mac 3.103
set_max_delay -datapath_only -from [get_clocks init] -to [get_clocks core] 3.333
set_max_delay -datapath_only -from $port0_mac -to [get_clocks core] 3.103

# Resets are asserted asynchronously, and released by two registers of the clock that they reset
set_false_path -to [get_pins -hierarchical -filter {NAME =~ *stage*_reg*/PRE}]

# Slow pins, without a clock
set_false_path -to [get_ports {led[*] hbm_cattrip}]
