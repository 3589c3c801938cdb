"""Reads `nvidia-smi -q -x`: names, memory and PCIe links of the cards."""

import re
from xml.etree import ElementTree

from heterog.base.errors import HeterogError
from heterog.base.reading import parse_xml
from heterog.base.values import shown, whole_in
from heterog.discover.facts import Gpu

_MIB = 1 << 20
_LONGEST_NAME = 100  # more than twice as long as any card's
_MOST = 1 << 30  # a pebibyte in MiB: no cluster file takes more


def read_smi_xml(text: str, source: str = "nvidia-smi -q -x") -> list[Gpu]:
    """In the order of the driver, that of the PCI bus."""
    log = parse_xml(text, source, "nvidia_smi_log", "`nvidia-smi -q -x` prints")
    return [_gpu(entry, source) for entry in log.findall("gpu")]


def _gpu(entry: ElementTree.Element, source: str) -> Gpu:
    name = (entry.findtext("product_name") or "").strip()
    if not name:
        raise HeterogError(f"{source}: GPU {shown(entry.get('id', '?'))} has no product_name")
    if len(name) > _LONGEST_NAME:
        raise HeterogError(f"{source}: product_name is {shown(name)}, of over {_LONGEST_NAME} characters")
    link = entry.find("pci/pci_gpu_link_info")
    # An idle card runs its link at the first generation, so that the current one says nothing. What
    # the slot can do newer drivers say; older ones have it in max_link_gen already.
    generations = [
        _number(link, f"pcie_gen/{key}", source)
        for key in ("max_link_gen", "max_device_link_gen", "max_host_link_gen")
    ]
    widths = [_number(link, f"link_widths/{key}", source) for key in ("current_link_width", "max_link_width")]
    slices = len(entry.findall("mig_devices/mig_device"))
    return Gpu(
        name=name,
        memory_bytes=_number(entry, "fb_memory_usage/total", source) * _MIB,
        pcie_generation=min((g for g in generations if g), default=0),
        pcie_width=widths[0] or widths[1],
        slices=slices if (entry.findtext("mig_mode/current_mig") or "") == "Enabled" else 0,
    )


def _number(entry: ElementTree.Element | None, path: str, source: str) -> int:
    """Of "23028 MiB", "16x", "4"; 0 of "N/A" and of nothing."""
    text = (entry.findtext(path) or "") if entry is not None else ""
    digits = re.match(r"\s*([0-9]*)", text)[1]
    number = whole_in(digits or "0", _MOST)
    if number is None:
        raise HeterogError(f"{source}: {path} is {shown(text)}, expected a number up to {_MOST}")
    return number
