# Alveo U50, 4 x 10G. Written by hw/board/xilinx/constraints.py; a test holds the two together.

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
set port0_tx [get_clocks -of_objects [get_pins quad_0/lane_0/gtwiz_userclk_tx_usrclk2_out]]
set port0_rx [get_clocks -of_objects [get_pins quad_0/lane_0/gtwiz_userclk_rx_usrclk2_out]]
set port1_tx [get_clocks -of_objects [get_pins quad_0/lane_1/gtwiz_userclk_tx_usrclk2_out]]
set port1_rx [get_clocks -of_objects [get_pins quad_0/lane_1/gtwiz_userclk_rx_usrclk2_out]]
set port2_tx [get_clocks -of_objects [get_pins quad_0/lane_2/gtwiz_userclk_tx_usrclk2_out]]
set port2_rx [get_clocks -of_objects [get_pins quad_0/lane_2/gtwiz_userclk_rx_usrclk2_out]]
set port3_tx [get_clocks -of_objects [get_pins quad_0/lane_3/gtwiz_userclk_tx_usrclk2_out]]
set port3_rx [get_clocks -of_objects [get_pins quad_0/lane_3/gtwiz_userclk_rx_usrclk2_out]]

# Clock domain crossings: between any two of these clocks there are only synchronisers and FIFOs with Gray code
# pointers. No path may take longer than the shorter of the two periods, so that at most one bit of a pointer is
# in flight. The phase is not constrained.
set_max_delay -datapath_only -from [get_clocks core] -to [get_clocks init] 4.000
set_max_delay -datapath_only -from [get_clocks core] -to $port0_rx 4.000
set_max_delay -datapath_only -from [get_clocks core] -to $port0_tx 4.000
set_max_delay -datapath_only -from [get_clocks core] -to $port1_rx 4.000
set_max_delay -datapath_only -from [get_clocks core] -to $port1_tx 4.000
set_max_delay -datapath_only -from [get_clocks core] -to $port2_rx 4.000
set_max_delay -datapath_only -from [get_clocks core] -to $port2_tx 4.000
set_max_delay -datapath_only -from [get_clocks core] -to $port3_rx 4.000
set_max_delay -datapath_only -from [get_clocks core] -to $port3_tx 4.000
set_max_delay -datapath_only -from [get_clocks init] -to [get_clocks core] 4.000
set_max_delay -datapath_only -from $port0_rx -to [get_clocks core] 4.000
set_max_delay -datapath_only -from $port0_rx -to $port0_tx 6.400
set_max_delay -datapath_only -from $port0_tx -to [get_clocks core] 4.000
set_max_delay -datapath_only -from $port0_tx -to $port0_rx 6.400
set_max_delay -datapath_only -from $port1_rx -to [get_clocks core] 4.000
set_max_delay -datapath_only -from $port1_rx -to $port1_tx 6.400
set_max_delay -datapath_only -from $port1_tx -to [get_clocks core] 4.000
set_max_delay -datapath_only -from $port1_tx -to $port1_rx 6.400
set_max_delay -datapath_only -from $port2_rx -to [get_clocks core] 4.000
set_max_delay -datapath_only -from $port2_rx -to $port2_tx 6.400
set_max_delay -datapath_only -from $port2_tx -to [get_clocks core] 4.000
set_max_delay -datapath_only -from $port2_tx -to $port2_rx 6.400
set_max_delay -datapath_only -from $port3_rx -to [get_clocks core] 4.000
set_max_delay -datapath_only -from $port3_rx -to $port3_tx 6.400
set_max_delay -datapath_only -from $port3_tx -to [get_clocks core] 4.000
set_max_delay -datapath_only -from $port3_tx -to $port3_rx 6.400

# Resets are asserted asynchronously, and released by two registers of the clock that they reset
set_false_path -to [get_pins -hierarchical -filter {NAME =~ *stage*_reg*/PRE}]

# Slow pins, without a clock
set_false_path -to [get_ports {led[*] hbm_cattrip}]
