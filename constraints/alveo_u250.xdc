# Alveo U250, 8 x 10G. Written by hw/board/xilinx/constraints.py; a test holds the two together.

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
set_property BITSTREAM.CONFIG.CONFIGRATE 63.8 [current_design]

# Pins
set_property -dict {PACKAGE_PIN AW20 IOSTANDARD LVDS} [get_ports {sys_clk_p}]
set_property -dict {PACKAGE_PIN AW19 IOSTANDARD LVDS} [get_ports {sys_clk_n}]
set_property -dict {PACKAGE_PIN AY37 IOSTANDARD LVDS} [get_ports {ddr_clk_p}]
set_property -dict {PACKAGE_PIN AY38 IOSTANDARD LVDS} [get_ports {ddr_clk_n}]
set_property -dict {PACKAGE_PIN K11} [get_ports {refclk0_p}]
set_property -dict {PACKAGE_PIN K10} [get_ports {refclk0_n}]
set_property -dict {PACKAGE_PIN P11} [get_ports {refclk1_p}]
set_property -dict {PACKAGE_PIN P10} [get_ports {refclk1_n}]
set_property -dict {PACKAGE_PIN BC21 IOSTANDARD LVCMOS12 SLEW SLOW DRIVE 8} [get_ports {led[0]}]
set_property -dict {PACKAGE_PIN BB21 IOSTANDARD LVCMOS12 SLEW SLOW DRIVE 8} [get_ports {led[1]}]
set_property -dict {PACKAGE_PIN BA20 IOSTANDARD LVCMOS12 SLEW SLOW DRIVE 8} [get_ports {led[2]}]
set_property -dict {PACKAGE_PIN BE16 IOSTANDARD LVCMOS12 SLEW SLOW DRIVE 8} [get_ports {qsfp_modsel_n[0]}]
set_property -dict {PACKAGE_PIN AY20 IOSTANDARD LVCMOS12 SLEW SLOW DRIVE 8} [get_ports {qsfp_modsel_n[1]}]
set_property -dict {PACKAGE_PIN BE17 IOSTANDARD LVCMOS12 SLEW SLOW DRIVE 8} [get_ports {qsfp_reset_n[0]}]
set_property -dict {PACKAGE_PIN BC18 IOSTANDARD LVCMOS12 SLEW SLOW DRIVE 8} [get_ports {qsfp_reset_n[1]}]
set_property -dict {PACKAGE_PIN BD18 IOSTANDARD LVCMOS12 SLEW SLOW DRIVE 8} [get_ports {qsfp_lpmode[0]}]
set_property -dict {PACKAGE_PIN AV22 IOSTANDARD LVCMOS12 SLEW SLOW DRIVE 8} [get_ports {qsfp_lpmode[1]}]
set_property -dict {PACKAGE_PIN AT22 IOSTANDARD LVCMOS12 SLEW SLOW DRIVE 8} [get_ports {qsfp_refclk_reset[0]}]
set_property -dict {PACKAGE_PIN AR21 IOSTANDARD LVCMOS12 SLEW SLOW DRIVE 8} [get_ports {qsfp_refclk_reset[1]}]
set_property -dict {PACKAGE_PIN AT20 IOSTANDARD LVCMOS12 SLEW SLOW DRIVE 8} [get_ports {qsfp_refclk_fs[0]}]
set_property -dict {PACKAGE_PIN AU22 IOSTANDARD LVCMOS12 SLEW SLOW DRIVE 8} [get_ports {qsfp_refclk_fs[1]}]
set_property -dict {PACKAGE_PIN AR22 IOSTANDARD LVCMOS12 SLEW SLOW DRIVE 8} [get_ports {qsfp_refclk_fs[2]}]
set_property -dict {PACKAGE_PIN AU20 IOSTANDARD LVCMOS12 SLEW SLOW DRIVE 8} [get_ports {qsfp_refclk_fs[3]}]
set_property -dict {PACKAGE_PIN N4} [get_ports {rx_p[0]}]
set_property -dict {PACKAGE_PIN M2} [get_ports {rx_p[1]}]
set_property -dict {PACKAGE_PIN L4} [get_ports {rx_p[2]}]
set_property -dict {PACKAGE_PIN K2} [get_ports {rx_p[3]}]
set_property -dict {PACKAGE_PIN N3} [get_ports {rx_n[0]}]
set_property -dict {PACKAGE_PIN M1} [get_ports {rx_n[1]}]
set_property -dict {PACKAGE_PIN L3} [get_ports {rx_n[2]}]
set_property -dict {PACKAGE_PIN K1} [get_ports {rx_n[3]}]
set_property -dict {PACKAGE_PIN N9} [get_ports {tx_p[0]}]
set_property -dict {PACKAGE_PIN M7} [get_ports {tx_p[1]}]
set_property -dict {PACKAGE_PIN L9} [get_ports {tx_p[2]}]
set_property -dict {PACKAGE_PIN K7} [get_ports {tx_p[3]}]
set_property -dict {PACKAGE_PIN N8} [get_ports {tx_n[0]}]
set_property -dict {PACKAGE_PIN M6} [get_ports {tx_n[1]}]
set_property -dict {PACKAGE_PIN L8} [get_ports {tx_n[2]}]
set_property -dict {PACKAGE_PIN K6} [get_ports {tx_n[3]}]
set_property -dict {PACKAGE_PIN U4} [get_ports {rx_p[4]}]
set_property -dict {PACKAGE_PIN T2} [get_ports {rx_p[5]}]
set_property -dict {PACKAGE_PIN R4} [get_ports {rx_p[6]}]
set_property -dict {PACKAGE_PIN P2} [get_ports {rx_p[7]}]
set_property -dict {PACKAGE_PIN U3} [get_ports {rx_n[4]}]
set_property -dict {PACKAGE_PIN T1} [get_ports {rx_n[5]}]
set_property -dict {PACKAGE_PIN R3} [get_ports {rx_n[6]}]
set_property -dict {PACKAGE_PIN P1} [get_ports {rx_n[7]}]
set_property -dict {PACKAGE_PIN U9} [get_ports {tx_p[4]}]
set_property -dict {PACKAGE_PIN T7} [get_ports {tx_p[5]}]
set_property -dict {PACKAGE_PIN R9} [get_ports {tx_p[6]}]
set_property -dict {PACKAGE_PIN P7} [get_ports {tx_p[7]}]
set_property -dict {PACKAGE_PIN U8} [get_ports {tx_n[4]}]
set_property -dict {PACKAGE_PIN T6} [get_ports {tx_n[5]}]
set_property -dict {PACKAGE_PIN R8} [get_ports {tx_n[6]}]
set_property -dict {PACKAGE_PIN P6} [get_ports {tx_n[7]}]
set_property -dict {PACKAGE_PIN AT36 IOSTANDARD SSTL12_DCI} [get_ports {ddr4_adr[0]}]
set_property -dict {PACKAGE_PIN AV36 IOSTANDARD SSTL12_DCI} [get_ports {ddr4_adr[1]}]
set_property -dict {PACKAGE_PIN AV37 IOSTANDARD SSTL12_DCI} [get_ports {ddr4_adr[2]}]
set_property -dict {PACKAGE_PIN AW35 IOSTANDARD SSTL12_DCI} [get_ports {ddr4_adr[3]}]
set_property -dict {PACKAGE_PIN AW36 IOSTANDARD SSTL12_DCI} [get_ports {ddr4_adr[4]}]
set_property -dict {PACKAGE_PIN AY36 IOSTANDARD SSTL12_DCI} [get_ports {ddr4_adr[5]}]
set_property -dict {PACKAGE_PIN AY35 IOSTANDARD SSTL12_DCI} [get_ports {ddr4_adr[6]}]
set_property -dict {PACKAGE_PIN BA40 IOSTANDARD SSTL12_DCI} [get_ports {ddr4_adr[7]}]
set_property -dict {PACKAGE_PIN BA37 IOSTANDARD SSTL12_DCI} [get_ports {ddr4_adr[8]}]
set_property -dict {PACKAGE_PIN BB37 IOSTANDARD SSTL12_DCI} [get_ports {ddr4_adr[9]}]
set_property -dict {PACKAGE_PIN AR35 IOSTANDARD SSTL12_DCI} [get_ports {ddr4_adr[10]}]
set_property -dict {PACKAGE_PIN BA39 IOSTANDARD SSTL12_DCI} [get_ports {ddr4_adr[11]}]
set_property -dict {PACKAGE_PIN BB40 IOSTANDARD SSTL12_DCI} [get_ports {ddr4_adr[12]}]
set_property -dict {PACKAGE_PIN AN36 IOSTANDARD SSTL12_DCI} [get_ports {ddr4_adr[13]}]
set_property -dict {PACKAGE_PIN AP35 IOSTANDARD SSTL12_DCI} [get_ports {ddr4_adr[14]}]
set_property -dict {PACKAGE_PIN AP36 IOSTANDARD SSTL12_DCI} [get_ports {ddr4_adr[15]}]
set_property -dict {PACKAGE_PIN AR36 IOSTANDARD SSTL12_DCI} [get_ports {ddr4_adr[16]}]
set_property -dict {PACKAGE_PIN AT35 IOSTANDARD SSTL12_DCI} [get_ports {ddr4_ba[0]}]
set_property -dict {PACKAGE_PIN AT34 IOSTANDARD SSTL12_DCI} [get_ports {ddr4_ba[1]}]
set_property -dict {PACKAGE_PIN BC37 IOSTANDARD SSTL12_DCI} [get_ports {ddr4_bg[0]}]
set_property -dict {PACKAGE_PIN BC39 IOSTANDARD SSTL12_DCI} [get_ports {ddr4_bg[1]}]
set_property -dict {PACKAGE_PIN AV38 IOSTANDARD DIFF_SSTL12_DCI} [get_ports {ddr4_ck_t[0]}]
set_property -dict {PACKAGE_PIN AW38 IOSTANDARD DIFF_SSTL12_DCI} [get_ports {ddr4_ck_c[0]}]
set_property -dict {PACKAGE_PIN BC38 IOSTANDARD SSTL12_DCI} [get_ports {ddr4_cke[0]}]
set_property -dict {PACKAGE_PIN AR33 IOSTANDARD SSTL12_DCI} [get_ports {ddr4_cs_n[0]}]
set_property -dict {PACKAGE_PIN BB39 IOSTANDARD SSTL12_DCI} [get_ports {ddr4_act_n}]
set_property -dict {PACKAGE_PIN AP34 IOSTANDARD SSTL12_DCI} [get_ports {ddr4_odt[0]}]
set_property -dict {PACKAGE_PIN AU36 IOSTANDARD SSTL12_DCI} [get_ports {ddr4_parity}]
set_property -dict {PACKAGE_PIN AU31 IOSTANDARD LVCMOS12} [get_ports {ddr4_reset_n}]
set_property -dict {PACKAGE_PIN AW28 IOSTANDARD POD12_DCI} [get_ports {ddr4_dq[0]}]
set_property -dict {PACKAGE_PIN AW29 IOSTANDARD POD12_DCI} [get_ports {ddr4_dq[1]}]
set_property -dict {PACKAGE_PIN BA28 IOSTANDARD POD12_DCI} [get_ports {ddr4_dq[2]}]
set_property -dict {PACKAGE_PIN BA27 IOSTANDARD POD12_DCI} [get_ports {ddr4_dq[3]}]
set_property -dict {PACKAGE_PIN BB29 IOSTANDARD POD12_DCI} [get_ports {ddr4_dq[4]}]
set_property -dict {PACKAGE_PIN BA29 IOSTANDARD POD12_DCI} [get_ports {ddr4_dq[5]}]
set_property -dict {PACKAGE_PIN BC27 IOSTANDARD POD12_DCI} [get_ports {ddr4_dq[6]}]
set_property -dict {PACKAGE_PIN BB27 IOSTANDARD POD12_DCI} [get_ports {ddr4_dq[7]}]
set_property -dict {PACKAGE_PIN BE28 IOSTANDARD POD12_DCI} [get_ports {ddr4_dq[8]}]
set_property -dict {PACKAGE_PIN BF28 IOSTANDARD POD12_DCI} [get_ports {ddr4_dq[9]}]
set_property -dict {PACKAGE_PIN BE30 IOSTANDARD POD12_DCI} [get_ports {ddr4_dq[10]}]
set_property -dict {PACKAGE_PIN BD30 IOSTANDARD POD12_DCI} [get_ports {ddr4_dq[11]}]
set_property -dict {PACKAGE_PIN BF27 IOSTANDARD POD12_DCI} [get_ports {ddr4_dq[12]}]
set_property -dict {PACKAGE_PIN BE27 IOSTANDARD POD12_DCI} [get_ports {ddr4_dq[13]}]
set_property -dict {PACKAGE_PIN BF30 IOSTANDARD POD12_DCI} [get_ports {ddr4_dq[14]}]
set_property -dict {PACKAGE_PIN BF29 IOSTANDARD POD12_DCI} [get_ports {ddr4_dq[15]}]
set_property -dict {PACKAGE_PIN BB31 IOSTANDARD POD12_DCI} [get_ports {ddr4_dq[16]}]
set_property -dict {PACKAGE_PIN BB32 IOSTANDARD POD12_DCI} [get_ports {ddr4_dq[17]}]
set_property -dict {PACKAGE_PIN AY32 IOSTANDARD POD12_DCI} [get_ports {ddr4_dq[18]}]
set_property -dict {PACKAGE_PIN AY33 IOSTANDARD POD12_DCI} [get_ports {ddr4_dq[19]}]
set_property -dict {PACKAGE_PIN BC32 IOSTANDARD POD12_DCI} [get_ports {ddr4_dq[20]}]
set_property -dict {PACKAGE_PIN BC33 IOSTANDARD POD12_DCI} [get_ports {ddr4_dq[21]}]
set_property -dict {PACKAGE_PIN BB34 IOSTANDARD POD12_DCI} [get_ports {ddr4_dq[22]}]
set_property -dict {PACKAGE_PIN BC34 IOSTANDARD POD12_DCI} [get_ports {ddr4_dq[23]}]
set_property -dict {PACKAGE_PIN AV31 IOSTANDARD POD12_DCI} [get_ports {ddr4_dq[24]}]
set_property -dict {PACKAGE_PIN AV32 IOSTANDARD POD12_DCI} [get_ports {ddr4_dq[25]}]
set_property -dict {PACKAGE_PIN AV34 IOSTANDARD POD12_DCI} [get_ports {ddr4_dq[26]}]
set_property -dict {PACKAGE_PIN AW34 IOSTANDARD POD12_DCI} [get_ports {ddr4_dq[27]}]
set_property -dict {PACKAGE_PIN AW31 IOSTANDARD POD12_DCI} [get_ports {ddr4_dq[28]}]
set_property -dict {PACKAGE_PIN AY31 IOSTANDARD POD12_DCI} [get_ports {ddr4_dq[29]}]
set_property -dict {PACKAGE_PIN BA35 IOSTANDARD POD12_DCI} [get_ports {ddr4_dq[30]}]
set_property -dict {PACKAGE_PIN BA34 IOSTANDARD POD12_DCI} [get_ports {ddr4_dq[31]}]
set_property -dict {PACKAGE_PIN AL30 IOSTANDARD POD12_DCI} [get_ports {ddr4_dq[32]}]
set_property -dict {PACKAGE_PIN AM30 IOSTANDARD POD12_DCI} [get_ports {ddr4_dq[33]}]
set_property -dict {PACKAGE_PIN AU32 IOSTANDARD POD12_DCI} [get_ports {ddr4_dq[34]}]
set_property -dict {PACKAGE_PIN AT32 IOSTANDARD POD12_DCI} [get_ports {ddr4_dq[35]}]
set_property -dict {PACKAGE_PIN AN31 IOSTANDARD POD12_DCI} [get_ports {ddr4_dq[36]}]
set_property -dict {PACKAGE_PIN AN32 IOSTANDARD POD12_DCI} [get_ports {ddr4_dq[37]}]
set_property -dict {PACKAGE_PIN AR32 IOSTANDARD POD12_DCI} [get_ports {ddr4_dq[38]}]
set_property -dict {PACKAGE_PIN AR31 IOSTANDARD POD12_DCI} [get_ports {ddr4_dq[39]}]
set_property -dict {PACKAGE_PIN AP29 IOSTANDARD POD12_DCI} [get_ports {ddr4_dq[40]}]
set_property -dict {PACKAGE_PIN AP28 IOSTANDARD POD12_DCI} [get_ports {ddr4_dq[41]}]
set_property -dict {PACKAGE_PIN AN27 IOSTANDARD POD12_DCI} [get_ports {ddr4_dq[42]}]
set_property -dict {PACKAGE_PIN AM27 IOSTANDARD POD12_DCI} [get_ports {ddr4_dq[43]}]
set_property -dict {PACKAGE_PIN AN29 IOSTANDARD POD12_DCI} [get_ports {ddr4_dq[44]}]
set_property -dict {PACKAGE_PIN AM29 IOSTANDARD POD12_DCI} [get_ports {ddr4_dq[45]}]
set_property -dict {PACKAGE_PIN AR27 IOSTANDARD POD12_DCI} [get_ports {ddr4_dq[46]}]
set_property -dict {PACKAGE_PIN AR28 IOSTANDARD POD12_DCI} [get_ports {ddr4_dq[47]}]
set_property -dict {PACKAGE_PIN AT28 IOSTANDARD POD12_DCI} [get_ports {ddr4_dq[48]}]
set_property -dict {PACKAGE_PIN AV27 IOSTANDARD POD12_DCI} [get_ports {ddr4_dq[49]}]
set_property -dict {PACKAGE_PIN AU27 IOSTANDARD POD12_DCI} [get_ports {ddr4_dq[50]}]
set_property -dict {PACKAGE_PIN AT27 IOSTANDARD POD12_DCI} [get_ports {ddr4_dq[51]}]
set_property -dict {PACKAGE_PIN AV29 IOSTANDARD POD12_DCI} [get_ports {ddr4_dq[52]}]
set_property -dict {PACKAGE_PIN AY30 IOSTANDARD POD12_DCI} [get_ports {ddr4_dq[53]}]
set_property -dict {PACKAGE_PIN AW30 IOSTANDARD POD12_DCI} [get_ports {ddr4_dq[54]}]
set_property -dict {PACKAGE_PIN AV28 IOSTANDARD POD12_DCI} [get_ports {ddr4_dq[55]}]
set_property -dict {PACKAGE_PIN BD34 IOSTANDARD POD12_DCI} [get_ports {ddr4_dq[56]}]
set_property -dict {PACKAGE_PIN BD33 IOSTANDARD POD12_DCI} [get_ports {ddr4_dq[57]}]
set_property -dict {PACKAGE_PIN BE33 IOSTANDARD POD12_DCI} [get_ports {ddr4_dq[58]}]
set_property -dict {PACKAGE_PIN BD35 IOSTANDARD POD12_DCI} [get_ports {ddr4_dq[59]}]
set_property -dict {PACKAGE_PIN BF32 IOSTANDARD POD12_DCI} [get_ports {ddr4_dq[60]}]
set_property -dict {PACKAGE_PIN BF33 IOSTANDARD POD12_DCI} [get_ports {ddr4_dq[61]}]
set_property -dict {PACKAGE_PIN BF34 IOSTANDARD POD12_DCI} [get_ports {ddr4_dq[62]}]
set_property -dict {PACKAGE_PIN BF35 IOSTANDARD POD12_DCI} [get_ports {ddr4_dq[63]}]
set_property -dict {PACKAGE_PIN BD40 IOSTANDARD POD12_DCI} [get_ports {ddr4_dq[64]}]
set_property -dict {PACKAGE_PIN BD39 IOSTANDARD POD12_DCI} [get_ports {ddr4_dq[65]}]
set_property -dict {PACKAGE_PIN BF43 IOSTANDARD POD12_DCI} [get_ports {ddr4_dq[66]}]
set_property -dict {PACKAGE_PIN BF42 IOSTANDARD POD12_DCI} [get_ports {ddr4_dq[67]}]
set_property -dict {PACKAGE_PIN BF37 IOSTANDARD POD12_DCI} [get_ports {ddr4_dq[68]}]
set_property -dict {PACKAGE_PIN BE37 IOSTANDARD POD12_DCI} [get_ports {ddr4_dq[69]}]
set_property -dict {PACKAGE_PIN BE40 IOSTANDARD POD12_DCI} [get_ports {ddr4_dq[70]}]
set_property -dict {PACKAGE_PIN BF41 IOSTANDARD POD12_DCI} [get_ports {ddr4_dq[71]}]
set_property -dict {PACKAGE_PIN BA30 IOSTANDARD DIFF_POD12_DCI} [get_ports {ddr4_dqs_t[0]}]
set_property -dict {PACKAGE_PIN BB26 IOSTANDARD DIFF_POD12_DCI} [get_ports {ddr4_dqs_t[1]}]
set_property -dict {PACKAGE_PIN BD28 IOSTANDARD DIFF_POD12_DCI} [get_ports {ddr4_dqs_t[2]}]
set_property -dict {PACKAGE_PIN BD26 IOSTANDARD DIFF_POD12_DCI} [get_ports {ddr4_dqs_t[3]}]
set_property -dict {PACKAGE_PIN BB35 IOSTANDARD DIFF_POD12_DCI} [get_ports {ddr4_dqs_t[4]}]
set_property -dict {PACKAGE_PIN BC31 IOSTANDARD DIFF_POD12_DCI} [get_ports {ddr4_dqs_t[5]}]
set_property -dict {PACKAGE_PIN AV33 IOSTANDARD DIFF_POD12_DCI} [get_ports {ddr4_dqs_t[6]}]
set_property -dict {PACKAGE_PIN BA32 IOSTANDARD DIFF_POD12_DCI} [get_ports {ddr4_dqs_t[7]}]
set_property -dict {PACKAGE_PIN AM31 IOSTANDARD DIFF_POD12_DCI} [get_ports {ddr4_dqs_t[8]}]
set_property -dict {PACKAGE_PIN AP30 IOSTANDARD DIFF_POD12_DCI} [get_ports {ddr4_dqs_t[9]}]
set_property -dict {PACKAGE_PIN AL28 IOSTANDARD DIFF_POD12_DCI} [get_ports {ddr4_dqs_t[10]}]
set_property -dict {PACKAGE_PIN AR30 IOSTANDARD DIFF_POD12_DCI} [get_ports {ddr4_dqs_t[11]}]
set_property -dict {PACKAGE_PIN AU29 IOSTANDARD DIFF_POD12_DCI} [get_ports {ddr4_dqs_t[12]}]
set_property -dict {PACKAGE_PIN AY27 IOSTANDARD DIFF_POD12_DCI} [get_ports {ddr4_dqs_t[13]}]
set_property -dict {PACKAGE_PIN BE35 IOSTANDARD DIFF_POD12_DCI} [get_ports {ddr4_dqs_t[14]}]
set_property -dict {PACKAGE_PIN BE31 IOSTANDARD DIFF_POD12_DCI} [get_ports {ddr4_dqs_t[15]}]
set_property -dict {PACKAGE_PIN BE38 IOSTANDARD DIFF_POD12_DCI} [get_ports {ddr4_dqs_t[16]}]
set_property -dict {PACKAGE_PIN BF39 IOSTANDARD DIFF_POD12_DCI} [get_ports {ddr4_dqs_t[17]}]
set_property -dict {PACKAGE_PIN BB30 IOSTANDARD DIFF_POD12_DCI} [get_ports {ddr4_dqs_c[0]}]
set_property -dict {PACKAGE_PIN BC26 IOSTANDARD DIFF_POD12_DCI} [get_ports {ddr4_dqs_c[1]}]
set_property -dict {PACKAGE_PIN BD29 IOSTANDARD DIFF_POD12_DCI} [get_ports {ddr4_dqs_c[2]}]
set_property -dict {PACKAGE_PIN BE26 IOSTANDARD DIFF_POD12_DCI} [get_ports {ddr4_dqs_c[3]}]
set_property -dict {PACKAGE_PIN BB36 IOSTANDARD DIFF_POD12_DCI} [get_ports {ddr4_dqs_c[4]}]
set_property -dict {PACKAGE_PIN BD31 IOSTANDARD DIFF_POD12_DCI} [get_ports {ddr4_dqs_c[5]}]
set_property -dict {PACKAGE_PIN AW33 IOSTANDARD DIFF_POD12_DCI} [get_ports {ddr4_dqs_c[6]}]
set_property -dict {PACKAGE_PIN BA33 IOSTANDARD DIFF_POD12_DCI} [get_ports {ddr4_dqs_c[7]}]
set_property -dict {PACKAGE_PIN AM32 IOSTANDARD DIFF_POD12_DCI} [get_ports {ddr4_dqs_c[8]}]
set_property -dict {PACKAGE_PIN AP31 IOSTANDARD DIFF_POD12_DCI} [get_ports {ddr4_dqs_c[9]}]
set_property -dict {PACKAGE_PIN AL29 IOSTANDARD DIFF_POD12_DCI} [get_ports {ddr4_dqs_c[10]}]
set_property -dict {PACKAGE_PIN AT30 IOSTANDARD DIFF_POD12_DCI} [get_ports {ddr4_dqs_c[11]}]
set_property -dict {PACKAGE_PIN AU30 IOSTANDARD DIFF_POD12_DCI} [get_ports {ddr4_dqs_c[12]}]
set_property -dict {PACKAGE_PIN AY28 IOSTANDARD DIFF_POD12_DCI} [get_ports {ddr4_dqs_c[13]}]
set_property -dict {PACKAGE_PIN BE36 IOSTANDARD DIFF_POD12_DCI} [get_ports {ddr4_dqs_c[14]}]
set_property -dict {PACKAGE_PIN BE32 IOSTANDARD DIFF_POD12_DCI} [get_ports {ddr4_dqs_c[15]}]
set_property -dict {PACKAGE_PIN BF38 IOSTANDARD DIFF_POD12_DCI} [get_ports {ddr4_dqs_c[16]}]
set_property -dict {PACKAGE_PIN BF40 IOSTANDARD DIFF_POD12_DCI} [get_ports {ddr4_dqs_c[17]}]

# Input clocks
create_clock -period 3.333 -name sys_clk [get_ports sys_clk_p]
create_clock -period 3.333 -name ddr_clk [get_ports ddr_clk_p]
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
set memory [get_clocks -of_objects [get_pins memory/c0_ddr4_ui_clk]]

# Clock domain crossings: between any two of these clocks there are only synchronisers and FIFOs with Gray code
# pointers. No path may take longer than the shorter of the two periods, so that at most one bit of a pointer is
# in flight. The phase is not constrained.
set_max_delay -datapath_only -from [get_clocks core] -to $memory 3.332
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
set_max_delay -datapath_only -from $memory -to [get_clocks core] 3.332
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
set_false_path -to [get_ports {led[*] qsfp_modsel_n[*] qsfp_reset_n[*] qsfp_lpmode[*] qsfp_refclk_reset[*] qsfp_refclk_fs[*]}]
