"""One GPU as several devices: `heterog discover --split`."""

import pytest
from discover_support import described, plan, refused

H100 = "NVIDIA H100 80GB HBM3"


def test_one_gpu_becomes_unequal_devices_that_plan_takes(tmp_path):
    cluster = described(tmp_path, "--gpus", H100, "--split", "64,32,24,8")
    (machine,) = cluster["machines"]
    parts = [entry["part_of_gpu"] for entry in machine["devices"]]
    assert [part["multiprocessors"] for part in parts] == [64, 32, 24, 8]
    assert {entry["model"] for entry in machine["devices"]} == {"H100-SXM5-80GB"}
    # All of the memory, in proportion: a half of 85,027,979,264 bytes to the first.
    assert parts[0]["memory_bytes"] == 42_513_989_632
    assert 85_027_979_264 - 4 < sum(part["memory_bytes"] for part in parts) <= 85_027_979_264
    assert machine["fabric"]["kind"] == "bus"
    assert machine["fabric"]["bandwidth_bytes_per_second"] == 1.675e12  # half of the memory's
    planned = plan(tmp_path)
    assert 0 < planned["predicted"]["step_seconds"] < 1


@pytest.mark.parametrize(
    "arguments, said",
    [
        (("--gpus", H100, "--split", "64,x"), "--split '64,x': 'x' is no number of multiprocessors"),
        (("--gpus", H100, "--split", "64,0"), "'0' is no number of multiprocessors"),
        (("--gpus", H100, "--split", "64"), "give two parts or more"),
        (("--gpus", H100, "--split", "100,40"), "--split: 140 multiprocessors in all; a H100-SXM5-80GB has 132"),
        (("--gpus", f"{H100}:2", "--split", "64,32"), "--split: it is of a machine with one GPU; this one has 2"),
        (("--gpus", H100, "--count", "2", "--split", "64,32"), "give one machine"),
    ],
)
def test_what_cannot_be_split_is_refused(arguments, said, capsys):
    assert said in refused(capsys, *arguments)
