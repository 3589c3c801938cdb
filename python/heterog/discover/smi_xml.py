"""Reads `nvidia-smi -q -x`: names, memory and PCIe links of the cards."""

import re
from xml.etree import ElementTree

from heterog.discover.facts import Gpu
from heterog.errors import HeterogError

_MIB = 1 << 20


def read_smi_xml(text: str, source: str = "nvidia-smi -q -x") -> list[Gpu]:
    """In the order of the driver, that of the PCI bus."""
    start = text.find("<nvidia_smi_log")  # what a shell printed before it is left out
    try:
        log = ElementTree.fromstring(text[max(start, 0) :].strip())
    except ElementTree.ParseError as error:
        raise HeterogError(
            f"{source}: no XML of nvidia-smi: {error}; give what `nvidia-smi -q -x` prints"
        ) from error
    if log.tag != "nvidia_smi_log":
        raise HeterogError(f"{source}: <{log.tag}> is no log of nvidia-smi; give `nvidia-smi -q -x`")
    return [_gpu(entry, source) for entry in log.findall("gpu")]


def _gpu(entry: ElementTree.Element, source: str) -> Gpu:
    name = (entry.findtext("product_name") or "").strip()
    if not name:
        raise HeterogError(f"{source}: GPU {entry.get('id', '?')} has no product_name")
    link = entry.find("pci/pci_gpu_link_info")
    # An idle card runs its link at the first generation, so that the current one says nothing. What
    # the slot can do newer drivers say; older ones have it in max_link_gen already.
    generations = [
        _number(link, f"pcie_gen/{key}")
        for key in ("max_link_gen", "max_device_link_gen", "max_host_link_gen")
    ]
    width = _number(link, "link_widths/current_link_width") or _number(link, "link_widths/max_link_width")
    slices = len(entry.findall("mig_devices/mig_device"))
    return Gpu(
        name=name,
        memory_bytes=_number(entry, "fb_memory_usage/total") * _MIB,
        pcie_generation=min((g for g in generations if g), default=0),
        pcie_width=width,
        slices=slices if (entry.findtext("mig_mode/current_mig") or "") == "Enabled" else 0,
    )


def _number(entry: ElementTree.Element | None, path: str) -> int:
    """Of "23028 MiB", "16x", "4"; 0 of "N/A" and of nothing."""
    text = (entry.findtext(path) or "") if entry is not None else ""
    found = re.match(r"\s*(\d+)", text)
    return int(found.group(1)) if found else 0
