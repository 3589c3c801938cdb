"""Cards: names of drivers, figures of the data base, estimates from data sheets."""

import json
import shutil

import pytest
from discover_support import described, plan

from heterog.base.errors import HeterogError
from heterog.discover import command
from heterog.discover.bases import data_bases
from heterog.discover.cards import device_type, estimated, parse_card
from heterog.planning.devices import installed


def test_cards_by_data_sheet(tmp_path, capsys):
    card = "NVIDIA Future 9000:fp32=60,fp16=240,bandwidth=1500,memory=48,sms=150"
    cluster = described(tmp_path, "--gpus", "NVIDIA Future 9000:2", "--card", card)
    assert cluster["machines"][0]["devices"] == [{"model": "Future-9000", "count": 2}]
    (entry,) = json.loads((tmp_path / "devices.json").read_text())["devices"]
    assert entry["fp32_flops_per_second"] == 60e12 and entry["memory_bytes"] == 48 << 30
    assert entry["source"].startswith("estimated: ") and "estimated" in capsys.readouterr().err
    shutil.copy(installed("links.json"), tmp_path)
    assert plan(tmp_path)["predicted"]["step_seconds"] > 0
    # A second one joins it; the same one again takes its place.
    for other in ("Other 1:fp32=9,bandwidth=500,memory=16", "Other 1:fp32=10,bandwidth=500,memory=16"):
        described(tmp_path, "--gpus", "Other 1", "--card", other)
    names = [device["name"] for device in json.loads((tmp_path / "devices.json").read_text())["devices"]]
    assert names == ["Future-9000", "Other-1"]
    (tmp_path / "devices.json").write_text("// mine\n" + (tmp_path / "devices.json").read_text())
    assert command.main(["--gpus", "X", "--card", "X:fp32=9,bandwidth=5,memory=1", "--out", str(tmp_path / "c.json")]) == 2
    assert "holds comments" in capsys.readouterr().err


def test_an_estimated_card_is_like_its_neighbours():
    known = data_bases(None).devices
    name, given, like = parse_card("RTX 4090:fp32=82.6,fp16=165,tf32=82.6,bandwidth=1008,memory=24,sms=128")
    entry = estimated(name, given, like, known)
    for key in ("efficiency", "calibration", "half_flops_per_second", "tf32_flops_per_second", "multiprocessors"):
        assert entry[key] == known["RTX-4090"][key], key
    old = estimated(*parse_card("Tesla P40:fp32=11.8,bandwidth=346,memory=24"), known)
    assert old["calibration"] in ("gtx-1080-ti", "p4") and old["tf32_flops_per_second"] == 0
    assert estimated(*parse_card("Y:fp32=10,bandwidth=900,memory=16,like=T4"), known)["calibration"] == "t4"
    for wrong, message in (("X", "give NAME"), ("X:fp32=1", "bandwidth, memory is missing"),
                           ("X:fp32=a,bandwidth=1,memory=1", "fp32 is 'a'"), ("X:speed=1", "no figure 'speed'"),
                           ("X:fp32=-1,bandwidth=1,memory=1", "'-1'")):  # fmt: skip
        with pytest.raises(HeterogError, match=message):
            parse_card(wrong)
    with pytest.raises(HeterogError, match="no such card"):
        estimated(*parse_card("Y:fp32=10,bandwidth=900,memory=16,like=T44"), known)


def test_names_of_drivers():
    """As src/launch/gpu_type.cc, and in the data base."""
    known = data_bases(None).devices
    for driver, name in (
        ("Tesla V100-PCIE-16GB", "V100-PCIE-16GB"), ("NVIDIA A100-SXM4-40GB", "A100-SXM4-40GB"),
        ("NVIDIA GeForce GTX 1080 Ti", "GTX-1080-Ti"), ("GeForce GTX TITAN X", "TITAN-X-Maxwell"),
        ("NVIDIA H100 80GB HBM3", "H100-SXM5-80GB"), ("NVIDIA H200", "H200-SXM5-141GB"), ("Tesla T4", "T4"),
        ("NVIDIA TITAN RTX", "TITAN-RTX"), ("NVIDIA RTX A6000", "RTX-A6000"), ("NVIDIA A100 80GB PCIe", "A100-80GB-PCIe"),
        ("NVIDIA RTX 6000 Ada Generation", "RTX-6000-Ada-Generation"), ("NVIDIA H100 PCIe", "H100-PCIe"),
        ("NVIDIA GeForce RTX 3060 Ti", "RTX-3060-Ti"), ("NVIDIA L40S", "L40S"), ("NVIDIA B200", "B200"),
    ):  # fmt: skip
        assert device_type(driver) == name
        assert name in known
    assert device_type("Some Other 5") == "Some-Other-5"


def test_figures_of_the_data_base_hang_together():
    """Slips of the pen in data sheets: a factor of ten, GB for GiB, sparse figures for dense ones."""
    for name, card in data_bases(None).devices.items():
        if name.startswith("CPU"):
            continue
        fp32, half, tf32 = (card[f"{key}_flops_per_second"] for key in ("fp32", "half", "tf32"))
        assert card["memory_bytes"] % (1 << 20) == 0, name
        assert 4 <= card["memory_bytes"] >> 30 <= 288, name
        assert half == fp32 or 1.9 < half / fp32 < 31, name
        assert tf32 == 0 or 0.45 < tf32 / half < 0.55, name
        # A multiprocessor does 64 to 256 multiplications a clock, of 0.9 to 3 GHz.
        assert 1e11 < fp32 / card["multiprocessors"] < 1.1e12, name
        assert 7 < fp32 / card["memory_bytes_per_second"] < 110, name
