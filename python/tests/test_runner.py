"""get_runner on real models: plans of every kind against plain PyTorch, checkpoints, schedulers."""

import json
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import runner_cases
import safetensors.torch
import torch
from runner_cases import BATCH, CASES, DEVICES, batches, build, train_plainly
from torch.utils.data import DataLoader, TensorDataset

import heterog
from heterog.errors import HeterogError
from heterog.native import find_library, find_program

if not {"HETEROG_LIBRARY", "HETEROG_BIN"} <= os.environ.keys():
    try:
        find_library(), find_program()
    except HeterogError as missing:
        pytest.skip(str(missing), allow_module_level=True)

STEPS = 4
TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-4}


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return str(tmp_path_factory.mktemp("runs"))


# Plans of equal shares, cut anew into 1, 7 and 4 samples.
UNEVEN = {"1:7:4-ar": "ev-ar", "1:7:4-ps": "ev-ps"}


def with_shares(path: str) -> str:
    plan = json.loads(Path(path).read_text())
    for decision in plan["decisions"]:
        decision["weights"] = [1.0, 7.0, 4.0]
    uneven = Path(path).with_suffix(".uneven.json")
    uneven.write_text(json.dumps(plan))
    return str(uneven)


@pytest.fixture
def make(cache):
    """Runners of a case, closed at the end."""
    made = []

    def make(name, planner="ev-ar", devices=DEVICES, **config):
        case = CASES[name]
        if planner in UNEVEN:
            config["plan"] = with_shares(make(name, UNEVEN[planner], devices, **config).plan_path)
        model, optimizer = build(case)
        settings = {"batch": BATCH, "planner": planner, "cache": cache, "double": True, "threads": 1}
        runner = heterog.get_runner(
            model,
            case.make_inputs,
            case.loss_fn,
            optimizer,
            devices,
            settings | case.config | config,
        )
        made.append(runner)
        return runner

    yield make
    for runner in made:
        runner.close()


def error_of(found: torch.Tensor, expected: torch.Tensor) -> float:
    """Relative to the norm."""
    assert found.shape == expected.shape
    difference = (found.double() - expected.double()).norm().item()
    return difference / max(expected.double().norm().item(), 1e-3)


def check_state(found: dict, expected: dict, tolerance: float) -> None:
    assert found.keys() == expected.keys()
    for key, value in expected.items():
        assert error_of(found[key], value) <= tolerance, key


def check_optimizer(found: dict, expected: dict, tolerance: float) -> None:
    assert found["param_groups"] == expected["param_groups"]
    assert found["state"].keys() == expected["state"].keys()
    for number, entry in expected["state"].items():
        for key, value in entry.items():
            assert error_of(found["state"][number][key], value) <= tolerance, (number, key)


PLANS = ["ev-ar", "ev-ps", "cp-ar", "cp-ps", "single", "random", *UNEVEN]
# Every plan on one case, and on each case plans that cut the batch unequally.
RUNS = [("mlp", plan) for plan in PLANS]
RUNS += [(name, plan) for name in ("convnet", "transformer", "tied", "embedding") for plan in UNEVEN]
RUNS += [("convnet", "random"), ("embedding", "random"), ("frozen", "1:7:4-ar"), ("frozen", "ev-ps")]


@pytest.mark.parametrize(("name", "planner"), RUNS)
def test_a_plan_trains_as_pytorch_does(make, name, planner):
    runner = make(name, planner)
    expected = train_plainly(CASES[name], STEPS)
    losses = [runner.step(batch) for batch in batches(CASES[name], STEPS)]
    assert losses == pytest.approx(expected.losses, rel=1e-10)
    assert list(runner.state_dict()) == list(expected.state)
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


# ---- what a step is given ----


def test_batches_in_all_forms(make):
    runner = make("mlp")
    x, y = batches(CASES["mlp"], 1)[0]
    losses = [runner.step(form) for form in ((x, y), [x, y], {"y": y, "x": x, "more": x})]
    expected = make("mlp", "single").run(3, [(x, y)])
    assert losses == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        ((torch.zeros(5, 6), torch.zeros(5, 3)), "the plan is for 12 samples.*drop_last"),
        ((torch.zeros(12, 6),), "1 values given; make_inputs makes 2"),
        ({"x": torch.zeros(12, 6)}, "the dict has no 'y'"),
        ((torch.zeros(12, 6, dtype=torch.int64), torch.zeros(12, 3)), "'x' is torch.int64"),
        (("text", torch.zeros(12, 3)), "str given for 'x'"),
        (7, "int given"),
    ],
)
def test_batches_that_do_not_fit_are_refused_and_change_nothing(make, batch, message):
    runner = make("mlp")
    before = runner.state_dict()
    with pytest.raises(HeterogError, match=message):
        runner.step(batch)
    assert runner.steps_done == 0
    check_state(runner.state_dict(), before, 0)
    runner.run(1)


def test_run_from_a_loader_leaves_incomplete_batches_out(make):
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(30, 6), torch.randn(30, 3))
    loader = DataLoader(data, batch_size=BATCH)  # 12, 12, 6
    runner = make("mlp")
    losses = runner.run(5, loader)
    whole = DataLoader(data, batch_size=BATCH, drop_last=True)
    assert losses == make("mlp").run(5, whole)
    with pytest.raises(HeterogError, match="drop_last"):
        make("mlp").run(3, loader, drop_last=False)
    with pytest.raises(HeterogError, match="after 2 of 5 steps"):
        make("mlp").run(5, iter(list(whole)))


def test_run_without_data_is_reproducible(make):
    runner = make("mlp")
    before = torch.get_rng_state()
    losses = runner.run(3)
    assert torch.equal(before, torch.get_rng_state())
    assert losses == make("mlp").run(3)
    assert len(set(losses)) == 3


def test_the_callers_threads_stay(make):
    before = torch.get_num_threads()
    make("mlp", threads=1).run(1)
    assert torch.get_num_threads() == before


def test_a_loss_that_is_no_number_ends_the_run(make):
    runner = make("mlp")
    with pytest.raises(HeterogError, match="rank 0 .*loss is not a finite number in step 1"):
        runner.step((torch.full((BATCH, 6), float("nan")), torch.zeros(BATCH, 3)))
    with pytest.raises(HeterogError, match="failed"):
        runner.run(1)


# ---- learning rates ----


def test_a_scheduler_of_torch_is_followed(make, recwarn):
    case = CASES["mlp"]
    runner = make("mlp", "cp-ar")
    scheduler = torch.optim.lr_scheduler.StepLR(runner.optimizer, step_size=1, gamma=0.5)
    model, _ = build(case)
    model = model.double()
    optimizer = case.optimizer(list(model.parameters()))
    plain = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.5)
    for x, y in batches(case, STEPS):
        runner.step((x, y))
        scheduler.step()
        optimizer.zero_grad()
        case.loss_fn(model, x.double(), y.double()).backward()
        optimizer.step()
        plain.step()
    check_state(runner.state_dict(), model.state_dict(), 1e-10)
    assert not recwarn.list


def test_groups_keep_their_ratio_and_settings(cache):
    def start():
        torch.manual_seed(11)
        model = runner_cases.mlp().double()
        groups = [{"params": model[0].parameters()}, {"params": model[2].parameters(), "lr": 0.01}]
        return model, torch.optim.SGD(groups, lr=0.1, momentum=0.9)

    model, optimizer = start()
    settings = {"batch": BATCH, "cache": cache, "planner": "ev-ps", "double": True}
    with heterog.get_runner(
        model, runner_cases.mlp_inputs, runner_cases.squares, optimizer, "cpu:2", settings
    ) as runner:
        scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.7)
        plain, plain_optimizer = start()
        plain_scheduler = torch.optim.lr_scheduler.ExponentialLR(plain_optimizer, 0.7)
        for x, y in batches(CASES["mlp"], STEPS):
            runner.step((x, y))
            scheduler.step()
            plain_optimizer.zero_grad()
            runner_cases.squares(plain, x.double(), y.double()).backward()
            plain_optimizer.step()
            plain_scheduler.step()
        check_state(runner.state_dict(), plain.state_dict(), 1e-10)
        check_optimizer(runner.optimizer_state_dict(), plain_optimizer.state_dict(), 1e-10)
        optimizer.param_groups[1]["lr"] *= 2
        with pytest.raises(HeterogError, match=r"param_groups\[1\]: lr is .* their ratio must stay"):
            runner.run(1)
        optimizer.param_groups[1]["lr"] /= 2
        optimizer.param_groups[0]["momentum"] = 0.5
        with pytest.raises(HeterogError, match="momentum is 0.5, the runner was made with 0.9"):
            runner.run(1)


# ---- state ----


@pytest.mark.parametrize("name", ["convnet", "tied", "embedding"])
def test_a_plain_optimizer_goes_on_from_the_runners_state(make, name):
    case = CASES[name]
    runner = make(name, "1:7:4-ps")
    data = batches(case, STEPS)
    for batch in data[:2]:
        runner.step(batch)
    model, _ = build(case)
    model = model.double()
    model.load_state_dict(runner.state_dict())
    optimizer = case.optimizer(list(model.parameters()))
    optimizer.load_state_dict(runner.optimizer_state_dict())
    for inputs in data[2:]:
        inputs = [x.double() if x.is_floating_point() else x for x in inputs]
        optimizer.zero_grad()
        case.loss_fn(model, *inputs).backward()
        optimizer.step()
    check_state(model.state_dict(), train_plainly(case, STEPS).state, 1e-10)


@pytest.mark.parametrize("name", ["mlp", "embedding"])
def test_a_runner_goes_on_from_a_plain_optimizers_state(cache, name):
    case = CASES[name]
    data = batches(case, STEPS)
    model, _ = build(case)
    model = model.double()
    optimizer = case.optimizer(list(model.parameters()))
    for inputs in data[:2]:
        inputs = [x.double() if x.is_floating_point() else x for x in inputs]
        optimizer.zero_grad()
        case.loss_fn(model, *inputs).backward()
        optimizer.step()
    settings = {"batch": BATCH, "planner": "cp-ps", "cache": cache, "double": True} | case.config
    with heterog.get_runner(
        model, case.make_inputs, case.loss_fn, optimizer, DEVICES, settings
    ) as runner:
        for batch in data[2:]:
            runner.step(batch)
        check_state(runner.state_dict(), train_plainly(case, STEPS).state, 1e-10)


def test_sync_to_model(make):
    runner = make("convnet", double=False)
    runner.run(2)
    assert error_of(runner.model.state_dict()["out.weight"], runner.state_dict()["out.weight"]) > 0
    model = runner.sync_to_model()
    check_state(model.state_dict(), runner.state_dict(), 0)
    assert int(model.norm.num_batches_tracked) == 2


def test_load_state_dict_is_strict(make):
    runner = make("mlp")
    state = runner.state_dict()
    with pytest.raises(HeterogError, match="lacks '2.bias'"):
        runner.load_state_dict({k: v for k, v in state.items() if k != "2.bias"})
    with pytest.raises(HeterogError, match="'more' too many"):
        runner.load_state_dict(dict(state) | {"more": torch.zeros(1)})
    with pytest.raises(HeterogError, match=r"'0.weight': shape \[2\] given"):
        runner.load_state_dict(dict(state) | {"0.weight": torch.zeros(2)})


# ---- checkpoints ----


@pytest.mark.parametrize("name", ["mlp", "convnet", "dropout", "tied", "frozen"])
def test_resuming_is_exact_to_the_bit(make, tmp_path, name):
    data = batches(CASES[name], 6)
    options = {"seed": 5, "double": False}
    whole = make(name, "1:7:4-ar", **options)
    losses = [whole.step(batch) for batch in data]
    first = make(name, "1:7:4-ar", **options)
    assert [first.step(batch) for batch in data[:3]] == losses[:3]
    first.save(tmp_path / "run" / "at.safetensors", extra={"epoch": 1})
    resumed = make(name, "1:7:4-ar", **options)
    assert resumed.load(tmp_path / "run" / "at.safetensors") == {"epoch": 1}
    assert resumed.steps_done == 3
    assert [resumed.step(batch) for batch in data[3:]] == losses[3:]
    expected = whole.state_dict()
    for key, value in resumed.state_dict().items():
        assert torch.equal(value, expected[key]), key
    for key, value in whole.optimizer_state_dict()["state"].items():
        for state, tensor in value.items():
            assert torch.equal(resumed.optimizer_state_dict()["state"][key][state], tensor)


def test_plain_pytorch_loads_a_checkpoint(make, tmp_path):
    runner = make("tied", double=False)
    runner.run(2)
    path = tmp_path / "at.safetensors"
    runner.save(path)
    model, optimizer = build(CASES["tied"])
    model.load_state_dict(safetensors.torch.load_file(path))
    check_state(model.state_dict(), runner.state_dict(), 0)
    optimizer.load_state_dict(heterog.load_checkpoint(path).optimizer)
    check_optimizer(optimizer.state_dict(), runner.optimizer_state_dict(), 0)


def test_a_checkpoint_is_replaced_whole_or_not_at_all(make, tmp_path, monkeypatch):
    runner = make("mlp")
    path = tmp_path / "at.safetensors"
    runner.run(1)
    runner.save(path)
    before = runner.state_dict()
    runner.run(1)
    rename, calls = os.replace, []

    def fail(source, target):
        calls.append(target)
        if len(calls) == 2:  # the state is there already, the model's file is not
            raise OSError(28, "No space left on device")
        return rename(source, target)

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(HeterogError, match="at.safetensors cannot be written: No space left"):
        runner.save(path)
    monkeypatch.undo()
    check_state(heterog.load_checkpoint(path).model, before, 0)
    runner.save(path)
    assert heterog.load_checkpoint(path).steps == 2
    assert len(list(tmp_path.iterdir())) == 2  # nothing of the others is left


def test_broken_checkpoints_are_refused(make, tmp_path):
    runner = make("mlp")
    path = tmp_path / "at.safetensors"
    with pytest.raises(HeterogError, match="no such file"):
        runner.load(path)
    runner.save(path)
    path.write_bytes(path.read_bytes()[:-8])
    with pytest.raises(HeterogError, match="no whole safetensors file"):
        runner.load(path)
    safetensors.torch.save_file(dict(runner.state_dict()), path)
    with pytest.raises(HeterogError, match="no checkpoint of a runner"):
        runner.load(path)


# ---- plans and devices ----


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


def test_settings_that_make_no_sense(make):
    for settings, message in (
        ({"bach": 3}, "'bach' is not known; known are batch"),
        ({"batch": 0}, "batch 0"),
        ({"batch": None}, "give 'batch'"),
        ({"slow": {"local/gpu9": 2}}, 'no device "local/gpu9"'),
        ({"slow": {"local/gpu0": 0}}, "does its work 1 to 1000 times"),
        ({"planner": "nobody"}, "nobody"),
        ({"threads": -1}, "threads: -1"),
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
    monkeypatch.setenv("HETEROG_BIN", "/nowhere/heterog")
    with pytest.raises(HeterogError, match="HETEROG_BIN: /nowhere/heterog is no file"):
        find_program()


# ---- processes ----


def torchrun(*arguments) -> subprocess.CompletedProcess:
    script = Path(__file__).with_name("runner_ranks.py")
    return subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2",
         str(script), *arguments],
        env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(script.parents[1])},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )  # fmt: skip


@pytest.mark.parametrize("planner", ["ev-ps", "ev-ar"])
def test_processes_of_torchrun_train_as_threads_do(make, cache, tmp_path, planner):
    runner = make("mlp", planner, devices="cpu:2")
    expected = [runner.step(batch) for batch in batches(CASES["mlp"], STEPS)]
    done = torchrun(planner, cache, str(tmp_path), "same")
    assert done.returncode == 0, done.stderr
    for rank in range(2):
        found = torch.load(tmp_path / f"rank{rank}.pt", weights_only=False)
        assert found["losses"] == pytest.approx(expected, rel=1e-10)
        check_state(found["state"], runner.state_dict(), 1e-10)
        check_optimizer(found["optimizer"], runner.optimizer_state_dict(), 1e-10)
    assert heterog.load_checkpoint(tmp_path / "at.safetensors").steps == STEPS


def test_processes_with_data_of_their_own_are_refused(cache, tmp_path):
    done = torchrun("ev-ar", cache, str(tmp_path), "apart")
    assert done.returncode != 0
    assert "rank 1 was given another batch than rank 0" in done.stderr


@pytest.mark.parametrize("end", ["raises", "is killed"])
def test_a_process_that_fails_ends_the_others(cache, tmp_path, end):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    script = Path(__file__).with_name("runner_ranks.py")
    ranks = []
    for rank in range(2):
        variables = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": 2, "MASTER_PORT": port}
        variables |= {"MASTER_ADDR": "127.0.0.1", "PYTHONPATH": script.parents[1]}
        ranks.append(
            subprocess.Popen(
                [sys.executable, str(script), "ev-ar", cache, str(tmp_path), end],
                env=os.environ | {name: str(value) for name, value in variables.items()},
                stderr=subprocess.PIPE,
                text=True,
            )
        )
    errors = [rank.communicate(timeout=120)[1] for rank in ranks]
    last = errors[0].splitlines()[-1]
    assert "HeterogError" in last and "rank 1 (local/gpu1)" in last
    assert ranks[0].returncode == 1
    assert "ValueError: of its own making" in errors[1] or end == "is killed"
