# NetFPGA-SUME. Written by hw/board/xilinx/constraints.py; a test holds the two together.

# Configuration
set_property CFGBVS GND [current_design]
set_property CONFIG_VOLTAGE 1.8 [current_design]
set_property BITSTREAM.GENERAL.COMPRESS TRUE [current_design]
set_property BITSTREAM.CONFIG.UNUSEDPIN PULLUP [current_design]
set_property BITSTREAM.CONFIG.OVERTEMPSHUTDOWN ENABLE [current_design]

# Pins
set_property -dict {PACKAGE_PIN H19 IOSTANDARD LVDS} [get_ports {sys_clk_p}]
set_property -dict {PACKAGE_PIN G18 IOSTANDARD LVDS} [get_ports {sys_clk_n}]
set_property -dict {PACKAGE_PIN E34 IOSTANDARD LVDS} [get_ports {ddr_clk_p}]
set_property -dict {PACKAGE_PIN E35 IOSTANDARD LVDS} [get_ports {ddr_clk_n}]
set_property -dict {PACKAGE_PIN E10} [get_ports {refclk_p}]
set_property -dict {PACKAGE_PIN E9} [get_ports {refclk_n}]
set_property -dict {PACKAGE_PIN AR13 IOSTANDARD LVCMOS15} [get_ports {reset}]
set_property -dict {PACKAGE_PIN AR22 IOSTANDARD LVCMOS15 SLEW SLOW DRIVE 12} [get_ports {led[0]}]
set_property -dict {PACKAGE_PIN AR23 IOSTANDARD LVCMOS15 SLEW SLOW DRIVE 12} [get_ports {led[1]}]
set_property -dict {PACKAGE_PIN G13 IOSTANDARD LVCMOS15 SLEW SLOW DRIVE 12} [get_ports {sfp_led[0]}]
set_property -dict {PACKAGE_PIN AL22 IOSTANDARD LVCMOS15 SLEW SLOW DRIVE 12} [get_ports {sfp_led[1]}]
set_property -dict {PACKAGE_PIN AY18 IOSTANDARD LVCMOS15 SLEW SLOW DRIVE 12} [get_ports {sfp_led[2]}]
set_property -dict {PACKAGE_PIN P31 IOSTANDARD LVCMOS15 SLEW SLOW DRIVE 12} [get_ports {sfp_led[3]}]
set_property -dict {PACKAGE_PIN M18 IOSTANDARD LVCMOS15 SLEW SLOW DRIVE 12} [get_ports {sfp_tx_disable[0]}]
set_property -dict {PACKAGE_PIN B31 IOSTANDARD LVCMOS15 SLEW SLOW DRIVE 12} [get_ports {sfp_tx_disable[1]}]
set_property -dict {PACKAGE_PIN J38 IOSTANDARD LVCMOS15 SLEW SLOW DRIVE 12} [get_ports {sfp_tx_disable[2]}]
set_property -dict {PACKAGE_PIN L21 IOSTANDARD LVCMOS15 SLEW SLOW DRIVE 12} [get_ports {sfp_tx_disable[3]}]
set_property -dict {PACKAGE_PIN N19 IOSTANDARD LVCMOS15 SLEW SLOW DRIVE 12} [get_ports {sfp_rs[0]}]
set_property -dict {PACKAGE_PIN P20 IOSTANDARD LVCMOS15 SLEW SLOW DRIVE 12} [get_ports {sfp_rs[1]}]
set_property -dict {PACKAGE_PIN F39 IOSTANDARD LVCMOS15 SLEW SLOW DRIVE 12} [get_ports {sfp_rs[2]}]
set_property -dict {PACKAGE_PIN H38 IOSTANDARD LVCMOS15 SLEW SLOW DRIVE 12} [get_ports {sfp_rs[3]}]
set_property -dict {PACKAGE_PIN P18 IOSTANDARD LVCMOS15 SLEW SLOW DRIVE 12} [get_ports {sfp_rs_tx[0]}]
set_property -dict {PACKAGE_PIN N20 IOSTANDARD LVCMOS15 SLEW SLOW DRIVE 12} [get_ports {sfp_rs_tx[1]}]
set_property -dict {PACKAGE_PIN G36 IOSTANDARD LVCMOS15 SLEW SLOW DRIVE 12} [get_ports {sfp_rs_tx[2]}]
set_property -dict {PACKAGE_PIN G38 IOSTANDARD LVCMOS15 SLEW SLOW DRIVE 12} [get_ports {sfp_rs_tx[3]}]
set_property -dict {PACKAGE_PIN BA29 IOSTANDARD LVCMOS18 SLEW SLOW DRIVE 12} [get_ports {si5324_reset}]
set_property -dict {PACKAGE_PIN AM39 IOSTANDARD LVCMOS15 SLEW SLOW DRIVE 12} [get_ports {i2c_mux_reset}]
set_property -dict {PACKAGE_PIN AK24 IOSTANDARD LVCMOS18 SLEW SLOW DRIVE 12 PULLUP TRUE} [get_ports {i2c_scl}]
set_property -dict {PACKAGE_PIN AK25 IOSTANDARD LVCMOS18 SLEW SLOW DRIVE 12 PULLUP TRUE} [get_ports {i2c_sda}]
set_property -dict {PACKAGE_PIN A6} [get_ports {rx_p[0]}]
set_property -dict {PACKAGE_PIN B8} [get_ports {rx_p[1]}]
set_property -dict {PACKAGE_PIN C6} [get_ports {rx_p[2]}]
set_property -dict {PACKAGE_PIN D8} [get_ports {rx_p[3]}]
set_property -dict {PACKAGE_PIN A5} [get_ports {rx_n[0]}]
set_property -dict {PACKAGE_PIN B7} [get_ports {rx_n[1]}]
set_property -dict {PACKAGE_PIN C5} [get_ports {rx_n[2]}]
set_property -dict {PACKAGE_PIN D7} [get_ports {rx_n[3]}]
set_property -dict {PACKAGE_PIN B4} [get_ports {tx_p[0]}]
set_property -dict {PACKAGE_PIN C2} [get_ports {tx_p[1]}]
set_property -dict {PACKAGE_PIN D4} [get_ports {tx_p[2]}]
set_property -dict {PACKAGE_PIN E2} [get_ports {tx_p[3]}]
set_property -dict {PACKAGE_PIN B3} [get_ports {tx_n[0]}]
set_property -dict {PACKAGE_PIN C1} [get_ports {tx_n[1]}]
set_property -dict {PACKAGE_PIN D3} [get_ports {tx_n[2]}]
set_property -dict {PACKAGE_PIN E1} [get_ports {tx_n[3]}]

# Input clocks
create_clock -period 5.000 -name sys_clk [get_ports sys_clk_p]
create_clock -period 4.290 -name ddr_clk [get_ports ddr_clk_p]
create_clock -period 6.400 -name refclk [get_ports refclk_p]

# Clocks of the transceivers, which Vivado does not derive in this family
create_clock -period 3.103 -name gt0_txoutclk [get_pins -hierarchical -filter {NAME =~ *gt0_*gthe2_i/TXOUTCLK}]
create_clock -period 3.103 -name gt0_rxoutclk [get_pins -hierarchical -filter {NAME =~ *gt0_*gthe2_i/RXOUTCLK}]
create_clock -period 3.103 -name gt1_txoutclk [get_pins -hierarchical -filter {NAME =~ *gt1_*gthe2_i/TXOUTCLK}]
create_clock -period 3.103 -name gt1_rxoutclk [get_pins -hierarchical -filter {NAME =~ *gt1_*gthe2_i/RXOUTCLK}]
create_clock -period 3.103 -name gt2_txoutclk [get_pins -hierarchical -filter {NAME =~ *gt2_*gthe2_i/TXOUTCLK}]
create_clock -period 3.103 -name gt2_rxoutclk [get_pins -hierarchical -filter {NAME =~ *gt2_*gthe2_i/RXOUTCLK}]
create_clock -period 3.103 -name gt3_txoutclk [get_pins -hierarchical -filter {NAME =~ *gt3_*gthe2_i/TXOUTCLK}]
create_clock -period 3.103 -name gt3_rxoutclk [get_pins -hierarchical -filter {NAME =~ *gt3_*gthe2_i/RXOUTCLK}]

# Clocks of the design
create_generated_clock -name core [get_pins mmcm/CLKOUT0]
create_generated_clock -name init [get_pins mmcm/CLKOUT1]
set port0_tx [get_clocks -of_objects [get_pins quad/wizard/gt3_txusrclk2_out]]
set port0_rx [get_clocks -of_objects [get_pins quad/wizard/gt3_rxusrclk2_out]]
set port1_tx [get_clocks -of_objects [get_pins quad/wizard/gt2_txusrclk2_out]]
set port1_rx [get_clocks -of_objects [get_pins quad/wizard/gt2_rxusrclk2_out]]
set port2_tx [get_clocks -of_objects [get_pins quad/wizard/gt1_txusrclk2_out]]
set port2_rx [get_clocks -of_objects [get_pins quad/wizard/gt1_rxusrclk2_out]]
set port3_tx [get_clocks -of_objects [get_pins quad/wizard/gt0_txusrclk2_out]]
set port3_rx [get_clocks -of_objects [get_pins quad/wizard/gt0_rxusrclk2_out]]
set memory [get_clocks -of_objects [get_pins memory/ui_clk]]

# Clock domain crossings: between any two of these clocks there are only synchronisers and FIFOs with Gray code
# pointers. No path may take longer than the shorter of the two periods, so that at most one bit of a pointer is
# in flight. The phase is not constrained.
set_max_delay -datapath_only -from [get_clocks core] -to $memory 5.000
set_max_delay -datapath_only -from [get_clocks core] -to $port0_rx 5.000
set_max_delay -datapath_only -from [get_clocks core] -to $port0_tx 5.000
set_max_delay -datapath_only -from [get_clocks core] -to $port1_rx 5.000
set_max_delay -datapath_only -from [get_clocks core] -to $port1_tx 5.000
set_max_delay -datapath_only -from [get_clocks core] -to $port2_rx 5.000
set_max_delay -datapath_only -from [get_clocks core] -to $port2_tx 5.000
set_max_delay -datapath_only -from [get_clocks core] -to $port3_rx 5.000
set_max_delay -datapath_only -from [get_clocks core] -to $port3_tx 5.000
set_max_delay -datapath_only -from $memory -to [get_clocks core] 5.000
set_max_delay -datapath_only -from $port0_rx -to [get_clocks core] 5.000
set_max_delay -datapath_only -from $port0_rx -to $port0_tx 6.206
set_max_delay -datapath_only -from $port0_tx -to [get_clocks core] 5.000
set_max_delay -datapath_only -from $port0_tx -to $port0_rx 6.206
set_max_delay -datapath_only -from $port1_rx -to [get_clocks core] 5.000
set_max_delay -datapath_only -from $port1_rx -to $port1_tx 6.206
set_max_delay -datapath_only -from $port1_tx -to [get_clocks core] 5.000
set_max_delay -datapath_only -from $port1_tx -to $port1_rx 6.206
set_max_delay -datapath_only -from $port2_rx -to [get_clocks core] 5.000
set_max_delay -datapath_only -from $port2_rx -to $port2_tx 6.206
set_max_delay -datapath_only -from $port2_tx -to [get_clocks core] 5.000
set_max_delay -datapath_only -from $port2_tx -to $port2_rx 6.206
set_max_delay -datapath_only -from $port3_rx -to [get_clocks core] 5.000
set_max_delay -datapath_only -from $port3_rx -to $port3_tx 6.206
set_max_delay -datapath_only -from $port3_tx -to [get_clocks core] 5.000
set_max_delay -datapath_only -from $port3_tx -to $port3_rx 6.206

# Resets are asserted asynchronously, and released by two registers of the clock that they reset
set_false_path -to [get_pins -hierarchical -filter {NAME =~ *stage*_reg*/PRE}]

# Slow pins, without a clock
set_false_path -to [get_ports {led[*] sfp_led[*] sfp_tx_disable[*] sfp_rs[*] sfp_rs_tx[*] si5324_reset i2c_mux_reset}]
set_false_path -from [get_ports {reset}]
set_false_path -from [get_ports {i2c_scl i2c_sda}]
set_false_path -to [get_ports {i2c_scl i2c_sda}]
