"""Vendor IP of the board projects: its configuration in Vivado, its licence, and its pins as we use them."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from amaranth.hdl import Const, Instance, Signal

__all__ = ["PRIMITIVES", "Ip", "Port", "cmac", "ddr3", "ddr4", "gth", "gty", "hbm", "stub"]


@dataclass(frozen=True)
class Port:
    """A pin. `clock` is the pin whose clock it belongs to, "async" if none, "clock" if it is a clock itself, "pad" for
    a pin of the chip."""

    name: str
    flow: str
    width: int
    clock: str


def ports(text: str) -> dict[str, Port]:
    """Parse lines of `in|out|inout clock name[:width] ...`."""
    found = {}
    for line in text.split("\n"):
        flow, clock, *names = line.split() or ("", "")
        for name in names:
            plain, _, width = name.partition(":")
            found[plain] = Port(plain, flow, int(width or 1), clock)
    return found


@dataclass(frozen=True, kw_only=True)
class Ip:
    """IP `core` of the vendor's catalogue as `module`. `config` has its properties without the prefix `CONFIG.`, with
    values as in Tcl. `first` is the property that presets others. `pins` are those that we connect; outputs that are
    left out stay open. `hidden` are clocks made inside that Vivado does not derive, each as the pattern of the pin that
    makes it, and its MHz. `files` are those to which the config refers, by name, with their content."""

    module: str
    core: str
    config: Mapping[str, str] = field(hash=False)
    pins: Mapping[str, Port] = field(hash=False)
    licence: str
    first: tuple[str, str] | None = None
    hidden: tuple[tuple[str, float], ...] = ()
    files: tuple[tuple[str, str], ...] = ()

    def instance(self, **connections) -> Instance:
        """Return an instance, with a value or a plain number for each pin by name. Raises ValueError unless every input
        is connected, and for names that are no pins; outputs may be left out."""
        unknown = sorted(connections.keys() - self.pins.keys())
        missing = sorted(name for name, port in self.pins.items() if port.flow != "out" and name not in connections)
        if unknown or missing:
            raise ValueError(
                f"Ip {self.module} connections must be its pins, all but outputs; not {unknown}, and not without "
                f"{missing}"
            )
        letters = {"in": "i", "out": "o", "inout": "io"}
        unused = {
            name: Signal(port.width, name=f"unused_{name}")
            for name, port in self.pins.items()
            if name not in connections
        }
        wired = {
            f"{letters[self.pins[name].flow]}_{name}": Const(value, self.pins[name].width)
            if isinstance(value, int)
            else value
            for name, value in (*connections.items(), *unused.items())
        }
        return Instance(self.module, **wired)

    def tcl(self) -> Iterator[str]:
        """Return the commands that make the IP, and stop if Vivado changes a given property."""
        yield f"create_ip -name {self.core} -vendor xilinx.com -library ip -module_name {self.module}"
        if self.first:
            yield f"set_property CONFIG.{self.first[0]} {{{self.first[1]}}} [get_ips {self.module}]"
        yield "set_property -dict [list \\"
        for name, value in self.config.items():
            yield f"    CONFIG.{name} {value if value.startswith('[') else f'{{{value}}}'} \\"
        yield f"] [get_ips {self.module}]"


def stub(name: str, pins: Mapping[str, Port]) -> str:
    """Return a black box with these pins, for Verilator, Yosys and the checker, which must know widths and directions
    of modules that Vivado brings: IP, primitives, and the shell in checks of its surroundings. A stub is never part of
    a project."""
    parameters = "".join(f"    parameter {parameter} = 0;\n" for parameter in PARAMETERS.get(name, ()))
    flows = {"in": "input", "out": "output", "inout": "inout"}
    listed = ",\n".join(
        f"    {flows[port.flow]} wire {f'[{port.width - 1}:0] ' if port.width > 1 else ''}{port.name}"
        for port in pins.values()
    )
    return f"(* blackbox *)\nmodule {name} (\n{listed}\n);\n{parameters}endmodule\n"


PRIMITIVES = {
    "IBUFDS": ports("in async I IB\nout async O"),
    "IBUFDS_GTE4": ports("in async I IB CEB\nout async O ODIV2"),
    "BUFG": ports("in async I\nout async O"),
    "IOBUF": ports("in async I T\nout async O\ninout pad IO"),
    "MMCME2_BASE": ports("in async CLKIN1 CLKFBIN RST PWRDWN\nout async CLKFBOUT CLKOUT0 CLKOUT1 LOCKED"),
    "MMCME4_BASE": ports("in async CLKIN1 CLKFBIN RST PWRDWN\nout async CLKFBOUT CLKOUT0 CLKOUT1 LOCKED"),
}
"""Primitives of the chip."""
PARAMETERS = dict.fromkeys(
    ("MMCME2_BASE", "MMCME4_BASE"),
    ("CLKIN1_PERIOD", "DIVCLK_DIVIDE", "CLKFBOUT_MULT_F", "CLKOUT0_DIVIDE_F", "CLKOUT1_DIVIDE"),
)
"""The parameters of the primitives that we set."""

VIVADO = "comes with Vivado, free of charge"


def gth(*, channels: tuple[str, ...], refclk: str, quad: int, freerun_mhz: int) -> Ip:
    """The 7 Series Transceivers Wizard (PG168): 10.3125 Gb/s, 64 bits and a header of 2 at 161.1328125 MHz, gearbox in
    the transceiver with an external counter, QPLL and user clocks inside. `channels` are places such as X1Y36; the
    wizard numbers its own from 0 on, from the lowest Y."""
    numbers = [
        int(place.rpartition("Y")[2]) for place in sorted(channels, key=lambda place: int(place.rpartition("Y")[2]))
    ]
    both = lambda name, value: {f"{name.replace('*', side)}": value for side in ("tx", "rx")}
    config = {
        **both("identical_val_*_line_rate", "10.3125"),
        **both("identical_val_*_reference_clock", "156.250"),
        **both("gt_val_*_pll", "QPLL"),
        "gt0_usesharedlogic": "1",
        "gt0_val": "false",
        "gt4_val": "false",
        **{f"gt{n}_val": "true" for n in numbers},
        **{f"gt{n}_val_{side}_refclk": f"{refclk}_Q{quad}" for n in numbers for side in ("tx", "rx")},
        "gt0_val_encoding": "64B/66B_with_Ext_Seq_Ctr",
        "gt0_val_decoding": "64B/66B",
        **both("gt0_val_*_line_rate", "10.3125"),
        **both("gt0_val_*_data_width", "64"),
        **both("gt0_val_*_int_datawidth", "32"),
        **both("gt0_val_*_reference_clock", "156.250"),
        "gt0_val_qpll_fbdiv": "66",
        "gt0_val_cpll_rxout_div": "1",
        "gt0_val_cpll_txout_div": "1",
        "gt0_val_drp": "false",
        "gt0_val_drp_clock": str(freerun_mhz),
        "gt0_val_rxcomma_deten": "false",
        "gt0_val_dec_mcomma_detect": "false",
        "gt0_val_dec_pcomma_detect": "false",
        "gt0_val_port_rxslide": "false",
        "gt0_val_rxslide_mode": "OFF",
    }
    text = "in async soft_reset_tx_in soft_reset_rx_in dont_reset_on_data_error_in\n"
    text += f"in pad q{quad}_clk0_gtrefclk_pad_p_in q{quad}_clk0_gtrefclk_pad_n_in\n"
    text += "in clock sysclk_in\n"
    hidden = []
    for k in range(len(channels)):
        gt = f"gt{k}_"
        text += f"""out async {gt}tx_fsm_reset_done_out {gt}rx_fsm_reset_done_out
in async {gt}data_valid_in
out clock {gt}txusrclk2_out {gt}rxusrclk2_out
in sysclk_in {gt}drpaddr_in:9 {gt}drpdi_in:16 {gt}drpen_in {gt}drpwe_in
in async {gt}eyescanreset_in {gt}eyescantrigger_in {gt}rxuserrdy_in {gt}txuserrdy_in {gt}gtrxreset_in {gt}gttxreset_in {gt}rxmonitorsel_in:2
in pad {gt}gthrxp_in {gt}gthrxn_in
out pad {gt}gthtxp_out {gt}gthtxn_out
in {gt}rxusrclk2_out {gt}rxgearboxslip_in
out {gt}rxusrclk2_out {gt}rxdata_out:64 {gt}rxheader_out:2 {gt}rxdatavalid_out {gt}rxheadervalid_out
in {gt}txusrclk2_out {gt}txdata_in:64 {gt}txheader_in:2 {gt}txsequence_in:7
"""
        hidden += [(f"*gt{k}_*gthe2_i/{side}OUTCLK", 322.265625) for side in ("TX", "RX")]
    return Ip(
        module="transceivers_10g",
        core="gtwizard",
        config=config,
        pins=ports(text),
        licence=VIVADO,
        hidden=tuple(hidden),
    )


GTY_CHANNEL = """in clock gtwiz_reset_clk_freerun_in
in async gtwiz_reset_all_in gtwiz_userclk_tx_reset_in gtwiz_reset_tx_pll_and_datapath_in gtwiz_reset_tx_datapath_in
in async gtwiz_userclk_rx_reset_in gtwiz_reset_rx_pll_and_datapath_in gtwiz_reset_rx_datapath_in
in pad gtyrxp_in gtyrxn_in
out pad gtytxp_out gtytxn_out
out clock gtwiz_userclk_tx_usrclk2_out gtwiz_userclk_rx_usrclk2_out
out async gtwiz_reset_tx_done_out gtwiz_reset_rx_done_out
in gtwiz_userclk_tx_usrclk2_out gtwiz_userdata_tx_in:64 txheader_in:6 txsequence_in:7
in gtwiz_userclk_rx_usrclk2_out rxgearboxslip_in
out gtwiz_userclk_rx_usrclk2_out gtwiz_userdata_rx_out:64 rxheader_out:6 rxheadervalid_out:2 rxdatavalid_out:2
"""
GTY_COMMON = "in clock gtrefclk00_in\nout clock qpll0outclk_out qpll0outrefclk_out\nout async qpll0lock_out\n"
GTY_BORROWED = "in clock qpll0clk_in qpll0refclk_in qpll1clk_in qpll1refclk_in\nin async gtwiz_reset_qpll0lock_in\n"


def gty(*, gbps: float, refclk_mhz: float, freerun_mhz: int) -> tuple[Ip, Ip]:
    """The UltraScale+ Transceivers Wizard (PG182), one lane, in two versions: with the quad's QPLL, and without. 64
    bits and a header of 2 at the line rate / 66 by the transceiver's asynchronous gearbox, which never pauses. The pins
    determine a lane's place."""
    if gbps not in (10.3125, 25.78125):
        raise ValueError(f"gty gbps must be 10.3125 or 25.78125, not {gbps!r}")
    both = lambda name, value: {f"{side}_{name}": value for side in ("TX", "RX")}
    config = {
        "CHANNEL_ENABLE": "",
        **both("LINE_RATE", str(gbps)),
        **both("REFCLK_FREQUENCY", str(refclk_mhz)),
        **both("QPLL_FRACN_NUMERATOR", "0"),
        **both("USER_DATA_WIDTH", "64"),
        **both("INT_DATA_WIDTH", "64"),
        "TX_DATA_ENCODING": "64B66B_ASYNC",
        "RX_DATA_DECODING": "64B66B_ASYNC",
        **both("BUFFER_MODE", "1"),
        "TX_OUTCLK_SOURCE": "TXPROGDIVCLK",
        "RX_OUTCLK_SOURCE": "RXPROGDIVCLK",
        "LOCATE_RESET_CONTROLLER": "CORE",
        "LOCATE_TX_USER_CLOCKING": "CORE",
        "LOCATE_RX_USER_CLOCKING": "CORE",
        "LOCATE_USER_DATA_WIDTH_SIZING": "CORE",
        "FREERUN_FREQUENCY": str(freerun_mhz),
        "DISABLE_LOC_XDC": "1",
    }
    speed = "10g" if gbps < 11 else "25g"
    found = []
    for kind, locate, extra, optional in (
        ("first", "CORE", GTY_COMMON, "qpll0lock_out"),
        ("other", "EXAMPLE_DESIGN", GTY_BORROWED, ""),
    ):
        module = f"transceiver_{speed}_{kind}"
        own = {
            **config,
            "CHANNEL_ENABLE": f"[lindex [get_property CONFIG.CHANNEL_ENABLE [get_ips {module}]] 0]",
            "LOCATE_COMMON": locate,
            **({"ENABLE_OPTIONAL_PORTS": optional} if optional else {}),
        }
        found.append(
            Ip(
                module=module,
                core="gtwizard_ultrascale",
                first=("preset", "GTY-10GBASE-R"),
                config=own,
                pins=ports(GTY_CHANNEL + extra),
                licence=VIVADO,
            )
        )
    return found[0], found[1]


CMAC_PINS = """in pad gt_rxp_in:4 gt_rxn_in:4 gt_ref_clk_p gt_ref_clk_n
out pad gt_txp_out:4 gt_txn_out:4
out clock gt_txusrclk2
in clock init_clk rx_clk drp_clk
in async sys_reset core_rx_reset core_tx_reset core_drp_reset gtwiz_reset_tx_datapath gtwiz_reset_rx_datapath gt_loopback_in:12
out gt_txusrclk2 usr_tx_reset usr_rx_reset
out gt_txusrclk2 rx_axis_tvalid rx_axis_tdata:512 rx_axis_tkeep:64 rx_axis_tlast rx_axis_tuser
in gt_txusrclk2 tx_axis_tvalid tx_axis_tdata:512 tx_axis_tkeep:64 tx_axis_tlast tx_axis_tuser tx_preamblein:56
out gt_txusrclk2 tx_axis_tready tx_ovfout tx_unfout stat_rx_aligned
in gt_txusrclk2 ctl_tx_enable ctl_tx_send_rfi ctl_tx_send_idle ctl_tx_send_lfi ctl_tx_test_pattern
in gt_txusrclk2 ctl_rx_enable ctl_rx_force_resync ctl_rx_test_pattern
in gt_txusrclk2 ctl_tx_rsfec_enable ctl_rx_rsfec_enable ctl_rsfec_ieee_error_indication_mode
in gt_txusrclk2 ctl_rx_rsfec_enable_correction ctl_rx_rsfec_enable_indication
in drp_clk drp_addr:10 drp_di:16 drp_en drp_we
"""


def cmac(*, refclk_mhz: float, freerun_mhz: int, core: str, lanes: tuple[str, ...], longest: int) -> Ip:
    """The integrated 100G MAC of UltraScale+ (PG203) with RS-FEC (clause 91) and its four transceivers: 512 bits at
    322.265625 MHz."""
    config = {
        "CMAC_CAUI4_MODE": "1",
        "NUM_LANES": "4x25",
        "GT_REF_CLK_FREQ": str(refclk_mhz),
        "USER_INTERFACE": "AXIS",
        "GT_DRP_CLK": f"{freerun_mhz}.00",
        "CMAC_CORE_SELECT": core,
        "GT_GROUP_SELECT": f"{lanes[0]}~{lanes[-1]}",
        **{f"LANE{k + 1}_GT_LOC": lane for k, lane in enumerate(lanes)},
        "ENABLE_AXI_INTERFACE": "0",
        "TX_FLOW_CONTROL": "0",
        "RX_FLOW_CONTROL": "0",
        "INCLUDE_RS_FEC": "1",
        "ENABLE_PIPELINE_REG": "1",
        "INCLUDE_STATISTICS_COUNTERS": "0",
        "RX_MIN_PACKET_LEN": "64",
        "RX_MAX_PACKET_LEN": str(longest),
    }
    return Ip(
        module="mac_100g",
        core="cmac_usplus",
        config=config,
        pins=ports(CMAC_PINS),
        licence="no charge, but a licence of its own that AMD's licence site gives for nothing (PG203, licensing)",
    )


AXI = """in {clock} {p}awid:{id} {p}awaddr:{address} {p}awlen:8 {p}awsize:3 {p}awburst:2 {p}awlock {p}awcache:4 {p}awprot:3 {p}awqos:4 {p}awvalid
in {clock} {p}wdata:{data} {p}wstrb:{strobes} {p}wlast {p}wvalid {p}bready
in {clock} {p}arid:{id} {p}araddr:{address} {p}arlen:8 {p}arsize:3 {p}arburst:2 {p}arlock {p}arcache:4 {p}arprot:3 {p}arqos:4 {p}arvalid {p}rready
out {clock} {p}awready {p}wready {p}bid:{id} {p}bresp:2 {p}bvalid {p}arready {p}rid:{id} {p}rdata:{data} {p}rresp:2 {p}rlast {p}rvalid
"""


def axi_pins(clock: str, prefix: str, *, address_bits: int, data_bits: int) -> str:
    return AXI.format(clock=clock, p=prefix, id=1, address=address_bits, data=data_bits, strobes=data_bits // 8)


def ddr3(*, project: str, data_bits: int) -> Ip:
    """The 7 series memory controller (UG586). Its `project` file has its whole configuration."""
    pins = """in clock sys_clk_i clk_ref_i
in async sys_rst aresetn
in ui_clk app_sr_req app_ref_req app_zq_req
out clock ui_clk
out ui_clk ui_clk_sync_rst init_calib_complete
inout pad ddr3_dq:64 ddr3_dqs_p:8 ddr3_dqs_n:8
out pad ddr3_addr:16 ddr3_ba:3 ddr3_ras_n ddr3_cas_n ddr3_we_n ddr3_reset_n ddr3_ck_p ddr3_ck_n ddr3_cke ddr3_cs_n ddr3_dm:8 ddr3_odt
""" + axi_pins("ui_clk", "s_axi_", address_bits=32, data_bits=data_bits)
    custom = dict.fromkeys(("RESET_BOARD_INTERFACE", "MIG_DONT_TOUCH_PARAM", "BOARD_MIG_PARAM"), "Custom")
    config = {"XML_INPUT_FILE": "[file normalize $here/memory.prj]", **custom}
    return Ip(
        module="memory",
        core="mig_7series",
        config=config,
        pins=ports(pins),
        licence=VIVADO,
        files=(("memory.prj", project),),
    )


def ddr4(*, input_ps: int, data_bits: int) -> Ip:
    """The DDR4 controller of UltraScale+ (PG150) for the 16 GB module of the card, at 1200 MHz: 300 MHz behind it."""
    config = {
        "System_Clock": "No_Buffer",
        "C0.DDR4_AxiSelection": "true",
        "C0.DDR4_AxiDataWidth": str(data_bits),
        "C0.DDR4_AxiIDWidth": "1",
        "C0.DDR4_AxiArbitrationScheme": "RD_PRI_REG",
        "C0.DDR4_TimePeriod": "833",
        "C0.DDR4_InputClockPeriod": str(input_ps),
        "C0.DDR4_MemoryType": "RDIMMs",
        "C0.DDR4_MemoryPart": "MTA18ASF2G72PZ-2G3",
        "C0.DDR4_AUTO_AP_COL_A3": "true",
        "C0.DDR4_CasLatency": "17",
        "C0.DDR4_CasWriteLatency": "12",
        "C0.DDR4_Mem_Add_Map": "ROW_COLUMN_BANK_INTLV",
    }
    p = "c0_ddr4_s_axi_"
    pins = f"""in clock c0_sys_clk_i
in async sys_rst c0_ddr4_aresetn
out clock c0_ddr4_ui_clk
out c0_ddr4_ui_clk c0_ddr4_ui_clk_sync_rst c0_init_calib_complete
in c0_ddr4_ui_clk {p}ctrl_awvalid {p}ctrl_awaddr:32 {p}ctrl_wvalid {p}ctrl_wdata:32 {p}ctrl_bready {p}ctrl_arvalid {p}ctrl_araddr:32 {p}ctrl_rready
inout pad c0_ddr4_dq:72 c0_ddr4_dqs_t:18 c0_ddr4_dqs_c:18
out pad c0_ddr4_adr:17 c0_ddr4_ba:2 c0_ddr4_bg:2 c0_ddr4_cke c0_ddr4_cs_n c0_ddr4_odt c0_ddr4_parity c0_ddr4_reset_n c0_ddr4_act_n
out pad c0_ddr4_ck_t c0_ddr4_ck_c
""" + axi_pins("c0_ddr4_ui_clk", p, address_bits=34, data_bits=data_bits)
    return Ip(module="memory", core="ddr4", config=config, pins=ports(pins), licence=VIVADO)


HBM_AXI = """in clock AXI_00_ACLK
in async AXI_00_ARESET_N
in AXI_00_ACLK AXI_00_AWID:6 AXI_00_AWADDR:33 AXI_00_AWLEN:4 AXI_00_AWSIZE:3 AXI_00_AWBURST:2 AXI_00_AWVALID
in AXI_00_ACLK AXI_00_WDATA:256 AXI_00_WSTRB:32 AXI_00_WDATA_PARITY:32 AXI_00_WLAST AXI_00_WVALID AXI_00_BREADY
in AXI_00_ACLK AXI_00_ARID:6 AXI_00_ARADDR:33 AXI_00_ARLEN:4 AXI_00_ARSIZE:3 AXI_00_ARBURST:2 AXI_00_ARVALID AXI_00_RREADY
out AXI_00_ACLK AXI_00_AWREADY AXI_00_WREADY AXI_00_BID:6 AXI_00_BRESP:2 AXI_00_BVALID
out AXI_00_ACLK AXI_00_ARREADY AXI_00_RID:6 AXI_00_RDATA:256 AXI_00_RRESP:2 AXI_00_RLAST AXI_00_RVALID
in clock HBM_REF_CLK_0 APB_0_PCLK
in async APB_0_PRESET_N
in APB_0_PCLK APB_0_PWDATA:32 APB_0_PADDR:22 APB_0_PENABLE APB_0_PSEL APB_0_PWRITE
out APB_0_PCLK apb_complete_0
out async DRAM_0_STAT_CATTRIP
"""


def hbm() -> Ip:
    """The HBM controller (PG276): one stack of 4 GB and one of its sixteen AXI3 ports, behind the switch inside the
    controller, which reaches the whole stack."""
    config = {
        "USER_HBM_DENSITY": "4GB",
        "USER_HBM_STACK": "1",
        "USER_SINGLE_STACK_SELECTION": "LEFT",
        "USER_SWITCH_ENABLE_00": "TRUE",
        "USER_CLK_SEL_LIST0": "AXI_00_ACLK",
        **{f"USER_SAXI_{k:02}": "false" for k in range(1, 16)},
        **{f"USER_MC{k}_ENABLE_ECC_CORRECTION": "true" for k in range(8)},
    }
    return Ip(module="memory", core="hbm", config=config, pins=ports(HBM_AXI), licence=VIVADO)
