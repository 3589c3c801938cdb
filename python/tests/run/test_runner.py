"""get_runner on real models: plans of every kind against plain PyTorch, on any devices."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from runner_cases import BATCH, CASES, batches, train_plainly
from runner_support import STEPS, UNEVEN, check_optimizer, check_state, error_of

import heterog
from heterog.base.errors import HeterogError
from heterog.base.native import find_library
from heterog.run import prepare as planning
from heterog.run.config import read_config

PLANS = ["ev-ar", "ev-ps", "cp-ar", "cp-ps", "single", "random", *UNEVEN]
# Every plan on one case, and on each case plans that cut the batch unequally.
RUNS = [("mlp", plan) for plan in PLANS]
RUNS += [(name, plan) for name in ("convnet", "transformer", "tied", "embedding") for plan in UNEVEN]
RUNS += [("convnet", "random"), ("embedding", "random"), ("frozen", "1:7:4-ar"), ("frozen", "ev-ps")]
RUNS += [("records", plan) for plan in ("single", "cp-ar", *UNEVEN)]


@pytest.mark.parametrize(("name", "planner"), RUNS)
def test_a_plan_trains_as_pytorch_does(make, name, planner):
    runner = make(name, planner)
    expected = train_plainly(CASES[name], STEPS)
    losses = [runner.step(batch) for batch in batches(CASES[name], STEPS)]
    assert losses == pytest.approx(expected.losses, rel=1e-10)
    assert list(runner.state_dict()) == list(expected.state)
    check_state(runner.state_dict(), expected.state, 1e-10)
    check_optimizer(runner.optimizer_state_dict(), expected.optimizer, 1e-10)


# Two machines of two GPUs, whose hosts hold the optimizer's state.
SERVED = {
    "format": "heterog-cluster", "version": 1, "name": "served",
    "machines": [
        {"name": "m", "count": 2, "devices": [{"model": "T4", "count": 2}],
         "fabric": {"kind": "switch", "link": "pcie3"}, "nic": {"link": "10gbe-tcp"},
         "host_model": "CPU", "host_memory_bytes": 2**33, "serves_parameters": True}],
    "network": {"latency_seconds": 1e-5},
}  # fmt: skip


@pytest.mark.parametrize("name", ["mlp", "convnet", "embedding"])
def test_parameter_servers_on_hosts(make, name):
    runner = make(name, "ev-ps", SERVED)
    assert list(runner.devices) == [
        "m-0/gpu0", "m-0/gpu1", "m-1/gpu0", "m-1/gpu1", "m-0/host", "m-1/host"]  # fmt: skip
    assert runner.ranks == 6
    expected = train_plainly(CASES[name], STEPS)
    losses = [runner.step(batch) for batch in batches(CASES[name], STEPS)]
    assert losses == pytest.approx(expected.losses, rel=1e-10)
    check_state(runner.state_dict(), expected.state, 1e-10)
    check_optimizer(runner.optimizer_state_dict(), expected.optimizer, 1e-10)


# Not AdamW on attention: the gradient of the keys' bias is zero but for rounding, which Adam's
# division by its own size makes into whole steps.
@pytest.mark.parametrize("name", ["mlp", "convnet", "transformer-sgd", "embedding", "tied"])
def test_in_single_precision(make, name):
    runner = make(name, "1:7:4-ar", double=False)
    expected = train_plainly(CASES[name], STEPS, torch.float32)
    losses = [runner.step(batch) for batch in batches(CASES[name], STEPS)]
    assert losses == pytest.approx(expected.losses, rel=1e-4)
    found = runner.state_dict()
    assert all(found[key].dtype == value.dtype for key, value in expected.state.items())
    check_state(found, expected.state, 1e-4)


def test_batch_normalisation_by_the_slice_is_pytorchs_where_the_slice_is_the_batch(make):
    runner = make("convnet", "single", batch_norm="per-slice")
    expected = train_plainly(CASES["convnet"], STEPS)
    for batch in batches(CASES["convnet"], STEPS):
        runner.step(batch)
    check_state(runner.state_dict(), expected.state, 1e-10)
    apart = make("convnet", "ev-ar", batch_norm="per-slice")
    for batch in batches(CASES["convnet"], STEPS):
        apart.step(batch)
    assert error_of(apart.state_dict()["norm.running_var"], expected.state["norm.running_var"]) > 1e-6


def test_dropout_is_the_same_under_any_plan_and_of_the_seed(make):
    def train(planner, seed):
        runner = make("dropout", planner, seed=seed)
        losses = [runner.step(batch) for batch in batches(CASES["dropout"], STEPS)]
        return losses, runner.state_dict()

    losses, state = train("single", 3)
    for planner in ("ev-ar", "1:7:4-ps"):
        found, found_state = train(planner, 3)
        assert found == pytest.approx(losses, rel=1e-10)
        check_state(found_state, state, 1e-10)
    other, _ = train("single", 4)
    assert abs(other[0] - losses[0]) > 1e-6
    plain = train_plainly(CASES["transformer"], 1).losses[0]
    assert abs(losses[0] - plain) > 1e-6  # masks are applied


def test_a_plan_that_was_made_before(make, cache):
    made = make("mlp", "cp-ar")
    again = make("mlp", planner=None, plan=made.plan_path, batch=None)
    assert again.batch == BATCH
    assert again.run(2) == made.run(2)
    with pytest.raises(HeterogError, match="batch 16 given, .* is for batch 12"):
        make("mlp", plan=made.plan_path, batch=16)
    with pytest.raises(HeterogError, match="graph"):
        make("tied", plan=made.plan_path)


def test_device_info(make, tmp_path):
    expected = make("mlp", devices="cpu:2").run(2)
    machine = {"name": "a", "devices": [{"model": "CPU"}], "nic": {"link": "10gbe-tcp"}}
    cluster = {"machines": [machine, machine | {"name": "b"}], "network": {"latency_seconds": 1e-5}}
    runner = make("mlp", devices=cluster)
    assert runner.ranks == 2
    assert runner.run(2) == pytest.approx(expected, rel=1e-10)
    copied = shutil.copy(runner.cluster_path, tmp_path / "mine.json")
    assert make("mlp", devices=str(copied)).run(2) == pytest.approx(expected, rel=1e-10)
    assert make("mlp", devices=[{"model": "T4", "count": 3}]).ranks == 3
    assert make("mlp", devices="cpu").ranks == 1
    for wrong, message in (
        ("nowhere.json", "no such file"),
        (3, "give the path of a cluster file"),
        ({"hosts": []}, "no 'machines'"),
        (["no-such-card"], "no-such-card"),
    ):
        with pytest.raises(HeterogError, match=message):
            make("mlp", devices=wrong)


def test_a_changed_data_base_makes_another_plan(make, tmp_path):
    """Wherever above the cluster's folder it lies."""
    configs = Path(heterog.__file__).parents[2] / "configs"
    for name in ("devices.json", "links.json"):
        shutil.copy(configs / name, tmp_path / name)
    cluster = tmp_path / "clusters" / "here" / "mine.json"
    cluster.parent.mkdir(parents=True)
    shutil.copy(configs / "clusters" / "local-2cpu.json", cluster)
    first = make("mlp", devices=str(cluster)).plan_path
    assert make("mlp", devices=str(cluster)).plan_path == first
    for name in ("devices.json", "links.json"):
        changed = tmp_path / name
        changed.write_text(changed.read_text() + "\n")
        second = make("mlp", devices=str(cluster)).plan_path
        assert second != first
        first = second


def test_a_data_base_beside_the_cluster_may_hold_new_cards_alone(make, tmp_path):
    card = {"name": "CPU-of-mine", "memory_bytes": 8 << 30, "reserve_bytes": 0, "fp32_flops_per_second": 1e12,
            "half_flops_per_second": 1e12, "fp64_flops_per_second": 1e12, "memory_bytes_per_second": 1e10,
            "launch_seconds": 1e-6, "half_efficiency_flop": 0, "efficiency": "cpu", "calibration": "cpu"}  # fmt: skip
    base = {"format": "heterog-devices", "version": 1, "devices": [card]}
    (tmp_path / "devices.json").write_text(json.dumps(base))
    cluster = {
        "format": "heterog-cluster", "version": 1, "name": "mine",
        "machines": [{"name": "m", "devices": [{"model": "CPU-of-mine"}, {"model": "CPU"}],
                      "fabric": {"kind": "switch", "link": "10gbe-tcp"}}]}  # fmt: skip
    (tmp_path / "mine.json").write_text(json.dumps(cluster))
    assert make("mlp", devices=str(tmp_path / "mine.json")).ranks == 2


def test_auto_is_what_this_machine_has(make):
    assert make("mlp", devices="auto").ranks >= 1


def test_a_changed_policy_makes_another_plan(tmp_path, monkeypatch):
    policy = tmp_path / "mine.ckpt"
    files = [tmp_path / "graph", tmp_path / "cluster.json"]
    config = read_config({"batch": 4, "policy": str(policy)})
    asked = []
    for contents in ("a", "a", "b"):
        policy.write_text(contents)
        asked.append(planning._question(["--policy", str(policy)], *map(str, files), config))
    assert asked[0] == asked[1] != asked[2]


def test_devices_that_are_not_here_are_refused_unless_any_will_do(make):
    with pytest.raises(HeterogError, match=r"local/gpu0 is a V100-PCIE-16GB, and would run on the CPU"):
        make("mlp", any_device=False)
    assert make("mlp", devices="cpu:2", any_device=False).devices == {
        "local/gpu0": "cpu",
        "local/gpu1": "cpu",
    }
    assert list(make("mlp").devices.values()) == ["cpu"] * 3


def test_settings_that_make_no_sense(make):
    for settings, message in (
        ({"bach": 3}, "'bach' is not known; known are batch"),
        ({"batch": 0}, "batch 0"),
        ({"batch": None}, "give 'batch'"),
        ({"slow": {"local/gpu9": 2}}, 'no device "local/gpu9"'),
        ({"planner": "nobody"}, "nobody"),
        ({"threads": -1}, "threads -1"),
    ):
        with pytest.raises(HeterogError, match=message):
            make("mlp", **settings)


def test_a_slowed_device_changes_the_time_alone(make):
    assert make("mlp", slow={"local/gpu1": 5}).run(3) == make("mlp").run(3)


def test_a_closed_runner_says_so(make):
    runner = make("mlp")
    runner.close()
    runner.close()
    with pytest.raises(HeterogError, match="closed"):
        runner.run(1)


def test_what_is_not_built_is_named(monkeypatch):
    monkeypatch.setenv("HETEROG_LIBRARY", "/nowhere/libheterog.so")
    with pytest.raises(HeterogError, match="HETEROG_LIBRARY: /nowhere/libheterog.so is no file"):
        find_library()
