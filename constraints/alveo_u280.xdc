# Alveo U280, 8 x 10G. Written by hw/board/xilinx/constraints.py; a test holds the two together.

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
set_property -dict {PACKAGE_PIN BJ43 IOSTANDARD LVDS} [get_ports {sys_clk_p}]
set_property -dict {PACKAGE_PIN BJ44 IOSTANDARD LVDS} [get_ports {sys_clk_n}]
set_property -dict {PACKAGE_PIN R40} [get_ports {refclk0_p}]
set_property -dict {PACKAGE_PIN R41} [get_ports {refclk0_n}]
set_property -dict {PACKAGE_PIN M42} [get_ports {refclk1_p}]
set_property -dict {PACKAGE_PIN M43} [get_ports {refclk1_n}]
set_property -dict {PACKAGE_PIN D32 IOSTANDARD LVCMOS18 SLEW SLOW DRIVE 8} [get_ports {hbm_cattrip}]
set_property -dict {PACKAGE_PIN H32 IOSTANDARD LVCMOS18 SLEW SLOW DRIVE 8} [get_ports {qsfp_refclk_oe_n[0]}]
set_property -dict {PACKAGE_PIN H30 IOSTANDARD LVCMOS18 SLEW SLOW DRIVE 8} [get_ports {qsfp_refclk_oe_n[1]}]
set_property -dict {PACKAGE_PIN G32 IOSTANDARD LVCMOS18 SLEW SLOW DRIVE 8} [get_ports {qsfp_refclk_fs[0]}]
set_property -dict {PACKAGE_PIN G33 IOSTANDARD LVCMOS18 SLEW SLOW DRIVE 8} [get_ports {qsfp_refclk_fs[1]}]
set_property -dict {PACKAGE_PIN L53} [get_ports {rx_p[0]}]
set_property -dict {PACKAGE_PIN K51} [get_ports {rx_p[1]}]
set_property -dict {PACKAGE_PIN J53} [get_ports {rx_p[2]}]
set_property -dict {PACKAGE_PIN H51} [get_ports {rx_p[3]}]
set_property -dict {PACKAGE_PIN L54} [get_ports {rx_n[0]}]
set_property -dict {PACKAGE_PIN K52} [get_ports {rx_n[1]}]
set_property -dict {PACKAGE_PIN J54} [get_ports {rx_n[2]}]
set_property -dict {PACKAGE_PIN H52} [get_ports {rx_n[3]}]
set_property -dict {PACKAGE_PIN L48} [get_ports {tx_p[0]}]
set_property -dict {PACKAGE_PIN L44} [get_ports {tx_p[1]}]
set_property -dict {PACKAGE_PIN K46} [get_ports {tx_p[2]}]
set_property -dict {PACKAGE_PIN J48} [get_ports {tx_p[3]}]
set_property -dict {PACKAGE_PIN L49} [get_ports {tx_n[0]}]
set_property -dict {PACKAGE_PIN L45} [get_ports {tx_n[1]}]
set_property -dict {PACKAGE_PIN K47} [get_ports {tx_n[2]}]
set_property -dict {PACKAGE_PIN J49} [get_ports {tx_n[3]}]
set_property -dict {PACKAGE_PIN G53} [get_ports {rx_p[4]}]
set_property -dict {PACKAGE_PIN F51} [get_ports {rx_p[5]}]
set_property -dict {PACKAGE_PIN E53} [get_ports {rx_p[6]}]
set_property -dict {PACKAGE_PIN D51} [get_ports {rx_p[7]}]
set_property -dict {PACKAGE_PIN G54} [get_ports {rx_n[4]}]
set_property -dict {PACKAGE_PIN F52} [get_ports {rx_n[5]}]
set_property -dict {PACKAGE_PIN E54} [get_ports {rx_n[6]}]
set_property -dict {PACKAGE_PIN D52} [get_ports {rx_n[7]}]
set_property -dict {PACKAGE_PIN G48} [get_ports {tx_p[4]}]
set_property -dict {PACKAGE_PIN E48} [get_ports {tx_p[5]}]
set_property -dict {PACKAGE_PIN C48} [get_ports {tx_p[6]}]
set_property -dict {PACKAGE_PIN A49} [get_ports {tx_p[7]}]
set_property -dict {PACKAGE_PIN G49} [get_ports {tx_n[4]}]
set_property -dict {PACKAGE_PIN E49} [get_ports {tx_n[5]}]
set_property -dict {PACKAGE_PIN C49} [get_ports {tx_n[6]}]
set_property -dict {PACKAGE_PIN A50} [get_ports {tx_n[7]}]

# Input clocks
create_clock -period 10.000 -name sys_clk [get_ports sys_clk_p]
create_clock -period 6.206 -name refclk0 [get_ports refclk0_p]
create_clock -period 6.206 -name refclk1 [get_ports refclk1_p]

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
set port4_tx [get_clocks -of_objects [get_pins quad_1/lane_0/gtwiz_userclk_tx_usrclk2_out]]
set port4_rx [get_clocks -of_objects [get_pins quad_1/lane_0/gtwiz_userclk_rx_usrclk2_out]]
set port5_tx [get_clocks -of_objects [get_pins quad_1/lane_1/gtwiz_userclk_tx_usrclk2_out]]
set port5_rx [get_clocks -of_objects [get_pins quad_1/lane_1/gtwiz_userclk_rx_usrclk2_out]]
set port6_tx [get_clocks -of_objects [get_pins quad_1/lane_2/gtwiz_userclk_tx_usrclk2_out]]
set port6_rx [get_clocks -of_objects [get_pins quad_1/lane_2/gtwiz_userclk_rx_usrclk2_out]]
set port7_tx [get_clocks -of_objects [get_pins quad_1/lane_3/gtwiz_userclk_tx_usrclk2_out]]
set port7_rx [get_clocks -of_objects [get_pins quad_1/lane_3/gtwiz_userclk_rx_usrclk2_out]]

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
set_max_delay -datapath_only -from [get_clocks core] -to $port4_rx 4.000
set_max_delay -datapath_only -from [get_clocks core] -to $port4_tx 4.000
set_max_delay -datapath_only -from [get_clocks core] -to $port5_rx 4.000
set_max_delay -datapath_only -from [get_clocks core] -to $port5_tx 4.000
set_max_delay -datapath_only -from [get_clocks core] -to $port6_rx 4.000
set_max_delay -datapath_only -from [get_clocks core] -to $port6_tx 4.000
set_max_delay -datapath_only -from [get_clocks core] -to $port7_rx 4.000
set_max_delay -datapath_only -from [get_clocks core] -to $port7_tx 4.000
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
set_max_delay -datapath_only -from $port4_rx -to [get_clocks core] 4.000
set_max_delay -datapath_only -from $port4_rx -to $port4_tx 6.400
set_max_delay -datapath_only -from $port4_tx -to [get_clocks core] 4.000
set_max_delay -datapath_only -from $port4_tx -to $port4_rx 6.400
set_max_delay -datapath_only -from $port5_rx -to [get_clocks core] 4.000
set_max_delay -datapath_only -from $port5_rx -to $port5_tx 6.400
set_max_delay -datapath_only -from $port5_tx -to [get_clocks core] 4.000
set_max_delay -datapath_only -from $port5_tx -to $port5_rx 6.400
set_max_delay -datapath_only -from $port6_rx -to [get_clocks core] 4.000
set_max_delay -datapath_only -from $port6_rx -to $port6_tx 6.400
set_max_delay -datapath_only -from $port6_tx -to [get_clocks core] 4.000
set_max_delay -datapath_only -from $port6_tx -to $port6_rx 6.400
set_max_delay -datapath_only -from $port7_rx -to [get_clocks core] 4.000
set_max_delay -datapath_only -from $port7_rx -to $port7_tx 6.400
set_max_delay -datapath_only -from $port7_tx -to [get_clocks core] 4.000
set_max_delay -datapath_only -from $port7_tx -to $port7_rx 6.400

# Resets are asserted asynchronously, and released by two registers of the clock that they reset
set_false_path -to [get_pins -hierarchical -filter {NAME =~ *stage*_reg*/PRE}]

# Slow pins, without a clock
set_false_path -to [get_ports {qsfp_refclk_fs[*] qsfp_refclk_oe_n[*] hbm_cattrip}]
