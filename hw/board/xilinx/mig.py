"""The project file of the 7 series memory controller: the module in each slot, its speed and its pins (UG586, chapter
1)."""

from xml.etree import ElementTree

from hw.board.xilinx.platform import Pin

__all__ = ["project"]

CONTROLLER = {
    "MemoryDevice": "DDR3_SDRAM/SODIMMs/MT8KTF51264HZ-1G9",
    "TimePeriod": "1320",
    "VccAuxIO": "1.8V",
    "PHYRatio": "4:1",
    "InputClkFreq": "233.1",
    "UIExtraClocks": "0",
    "MMCM_VCO": "757",
    "MMCMClkOut0": " 1.000",
    "MMCMClkOut1": "1",
    "MMCMClkOut2": "1",
    "MMCMClkOut3": "1",
    "MMCMClkOut4": "1",
    "DataWidth": "64",
    "DeepMemory": "1",
    "DataMask": "1",
    "ECC": "Disabled",
    "Ordering": "Normal",
    "CustomPart": "FALSE",
    "NewPartName": "",
    "RowAddress": "16",
    "ColAddress": "10",
    "BankAddress": "3",
    "MemoryVoltage": "1.5V",
    "UserMemoryAddressMap": "BANK_ROW_COLUMN",
}
"""757 MHz of memory clock, and a quarter of that at the controller's port: the maximum for this module with 1.8 V of
auxiliary supply."""
TIMING = {
    "twtr": "7.5",
    "trrd": "5",
    "trefi": "7.8",
    "tfaw": "27",
    "trtp": "7.5",
    "tcke": "5",
    "trfc": "260",
    "trp": "13.91",
    "tras": "34",
    "trcd": "13.91",
}
"""Values of the module's data sheet in nanoseconds, trefi in microseconds."""
MODES = (
    ("mrBurstLength", "Burst Length", "8 - Fixed"),
    ("mrBurstType", "Read Burst Type and Length", "Sequential"),
    ("mrCasLatency", "CAS Latency", "11"),
    ("mrMode", "Mode", "Normal"),
    ("mrDllReset", "DLL Reset", "No"),
    ("mrPdMode", "DLL control for precharge PD", "Slow Exit"),
    ("emrDllEnable", "DLL Enable", "Enable"),
    ("emrOutputDriveStrength", "Output Driver Impedance Control", "RZQ/7"),
    ("emrMirrorSelection", "Address Mirroring", "Disable"),
    ("emrCSSelection", "Controller Chip Select Pin", "Enable"),
    ("emrRTT", "RTT (nominal) - On Die Termination (ODT)", "RZQ/4"),
    ("emrPosted", "Additive Latency (AL)", "0"),
    ("emrOCD", "Write Leveling Enable", "Disabled"),
    ("emrDQS", "TDQS enable", "Enabled"),
    ("emrRDQS", "Qoff", "Output Buffer Enabled"),
    ("mr2PartialArraySelfRefresh", "Partial-Array Self Refresh", "Full Array"),
    ("mr2CasWriteLatency", "CAS write latency", "8"),
    ("mr2AutoSelfRefresh", "Auto Self Refresh", "Enabled"),
    ("mr2SelfRefreshTempRange", "High Temparature Self Refresh Rate", "Normal"),
    ("mr2RTTWR", "RTT_WR - Dynamic On Die Termination (ODT)", "Dynamic ODT off"),
)
"""Names as the tool spells them, with its misspelling."""
AXI = {
    "C0_C_RD_WR_ARB_ALGORITHM": "RD_PRI_REG",
    "C0_S_AXI_ADDR_WIDTH": "32",
    "C0_S_AXI_ID_WIDTH": "1",
    "C0_S_AXI_SUPPORTS_NARROW_BURST": "0",
}


def project(pins: tuple[Pin, ...], *, part: str, data_bits: int, module: str = "memory") -> str:
    """Return the file's text. `pins` are those of the memory, `ddr3_...`; `part` is spelled as in Vivado; the
    controller's AXI port has `data_bits`."""
    device, speed = part.rsplit("-", 1)
    top = ElementTree.Element("Project", NoOfControllers="1")

    def put(parent: ElementTree.Element, tag: str, text: str = "", **attributes: str) -> ElementTree.Element:
        element = ElementTree.SubElement(parent, tag, attributes)
        element.text = text
        return element

    for tag, text in (
        ("ModuleName", module),
        ("dci_inouts_inputs", "1"),
        ("dci_inputs", "1"),
        ("Debug_En", "OFF"),
        ("DataDepth_En", "1024"),
        ("LowPower_En", "ON"),
        ("XADC_En", "Enabled"),
        ("TargetFPGA", f"{device[:-7]}-{device[-7:]}/-{speed}"),
        ("Version", "4.0"),
        ("SystemClock", "No Buffer"),
        ("ReferenceClock", "No Buffer"),
        ("SysResetPolarity", "ACTIVE HIGH"),
        ("BankSelectionFlag", "FALSE"),
        ("InternalVref", "0"),
        ("dci_hr_inouts_inputs", "50 Ohms"),
        ("dci_cascade", "0"),
    ):
        put(top, tag, text)
    controller = put(top, "Controller", number="0")
    for tag, text in CONTROLLER.items():
        put(controller, tag, text)
    selection = put(controller, "PinSelection")
    for pin in pins:
        put(
            selection,
            "Pin",
            VCCAUX_IO="HIGH",
            IOSTANDARD=pin.standard,
            PADName=pin.site,
            SLEW="",
            name=pin.port,
            IN_TERM="",
        )
    control = put(controller, "System_Control")
    for name in ("sys_rst", "init_calib_complete", "tg_compare_error"):
        put(control, "Pin", PADName="No connect", Bank="Select Bank", name=name)
    put(put(controller, "TimingParameters"), "Parameters", **TIMING)
    for tag, name, text in MODES:
        put(controller, tag, text, name=name)
    put(controller, "PortInterface", "AXI")
    axi = put(controller, "AXIParameters")
    for tag, text in (AXI | {"C0_S_AXI_DATA_WIDTH": str(data_bits)}).items():
        put(axi, tag, text)
    ElementTree.indent(top)
    return (
        "<?xml version='1.0' encoding='UTF-8'?>\n"
        + ElementTree.tostring(top, encoding="unicode", short_empty_elements=False)
        + "\n"
    )
