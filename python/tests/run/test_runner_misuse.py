"""What users get wrong: an error of heterog, in one line, that names what is wrong."""

import copy

import pytest
import torch
from runner_cases import CASES, batches
from runner_support import STEPS, check_state  # noqa: F401  skips where nothing is built
from torch import nn

import heterog
from heterog.base.errors import HeterogError

# A setting, what it is set to, and what the error says. None of them gets as far as exporting.
SETTINGS = [
    ("batch", True), ("batch", 2.0), ("batch", "4"), ("batch", 10**30), ("seed", "x"), ("seed", -1),
    ("threads", "x"), ("threads", 1.5), ("threads", -1), ("threads", 10**12), ("slow", [1]),
    ("slow", {"local/gpu0": "x"}), ("slow", {"local/gpu0": 2.5}), ("slow", {3: 2}),
    ("timeout", "x"), ("timeout", float("nan")), ("timeout", None), ("timeout", -1),
    ("profile", 3), ("profile", [3]), ("policy", 3), ("planner", 3), ("budget", "x"), ("budget", -1),
    ("budget", float("inf")), ("evaluations", 2.5), ("evaluations", 10**30), ("plan", 3),
    ("cache", 3), ("graph", 3), ("batches", 3), ("check", "x"), ("double", "x"), ("double", 1),
    ("dropout", None), ("clip_norm", "x"), ("processes", "x"), ("any_device", "x"),
    ("tune_process", 1), ("collectives", 3), ("transport", 3),
]  # fmt: skip


def _one_line(error: HeterogError) -> str:
    assert "\n" not in str(error)
    return str(error)


@pytest.mark.parametrize(("name", "value"), SETTINGS)
def test_a_setting_that_cannot_be_is_named(make, name, value):
    with pytest.raises(HeterogError, match=f"config: {name} ") as caught:
        make("mlp", **{name: value})
    assert "; it is " in _one_line(caught.value)


def test_files_that_cannot_be_written(make, tmp_path):
    for graph in (tmp_path, tmp_path / "nowhere" / "graph.json.gz"):
        with pytest.raises(HeterogError, match="cannot be written") as caught:
            make("mlp", graph=str(graph))
        assert str(graph) in _one_line(caught.value)
    runner = make("mlp")
    for path, message in ((tmp_path, "cannot be written"), (3, "is no path"), ("", "is no path")):
        with pytest.raises(HeterogError, match=message):
            runner.save(path)
    for path in (3, tmp_path):
        with pytest.raises(HeterogError):
            runner.load(path)


@pytest.mark.parametrize(
    ("devices", "message"),
    [
        ([{"model": "CPU", "count": "x"}], "count is a number of devices"),
        ([{"model": "CPU", "count": -1}], "count is a number of devices"),
        ([{"model": 3}], "is no device"),
        ({"machines": [{"name": "a", "devices": [object()]}]}, "holds what a cluster file holds"),
        (None, "give the path of a cluster file"),
        (b"cpu:2", "give the path of a cluster file"),
    ],
)
def test_devices_that_are_none(make, devices, message):
    with pytest.raises(HeterogError, match=message) as caught:
        make("mlp", devices=devices)
    _one_line(caught.value)


def test_a_model_or_an_optimizer_that_is_none(cache):
    def attempt(model=None, optimizer=None):
        built = nn.Linear(3, 2)
        heterog.get_runner(
            model or built, lambda b: (torch.randn(b, 3),), lambda m, x: m(x).square().mean(),
            optimizer or torch.optim.SGD(built.parameters(), lr=0.1), "cpu:2",
            {"batch": 4, "cache": cache},
        )  # fmt: skip

    def fails(*_):
        raise ZeroDivisionError("by zero")

    for given, message in (
        ({"model": 3}, "model: int given"),
        ({"model": fails}, "model: making it stopped at ZeroDivisionError: by zero"),
        ({"model": lambda: 3}, "model: the function returned int"),
        ({"model": nn.Linear(3, 2, device="meta")}, "'weight' holds no values"),
        ({"optimizer": 3}, "optimizer: int given"),
        ({"optimizer": fails}, "optimizer: making it stopped at ZeroDivisionError"),
    ):
        with pytest.raises(HeterogError, match=message) as caught:
            attempt(**given)
        _one_line(caught.value)


def test_a_model_or_an_optimizer_that_has_changed(make):
    def refused(message, runner, call):
        before = runner.steps_done
        with pytest.raises(HeterogError, match=message) as caught:
            call()
        _one_line(caught.value)
        assert runner.steps_done == before

    data = batches(CASES["mlp"], 1)[0]
    runner = make("mlp")
    runner.optimizer.add_param_group({"params": [nn.Parameter(torch.zeros(2))]})
    for call in (lambda: runner.step(data), runner.optimizer_state_dict):
        refused("2 param_groups, the runner was made with 1; make another", runner, call)
    del runner.optimizer.param_groups[1]
    runner.step(data)
    (group,) = runner.optimizer.param_groups
    group["params"].append(nn.Parameter(torch.zeros(2)))
    refused(r"param_groups\[0\] holds other parameters", runner, lambda: runner.step(data))
    del group["params"][-1]
    for rate in ("x", float("nan"), None, torch.zeros(2)):
        group["lr"] = rate
        refused(r"param_groups\[0\]: lr is .* it is a number", runner, lambda: runner.step(data))
    del group["lr"]
    refused("lr is None", runner, lambda: runner.step(data))
    group["lr"] = 0.1
    runner.step(data)
    weight = runner.model[0].weight
    runner.model[0].weight = nn.Parameter(torch.zeros(5, 5))
    refused(r"'0.weight' has become \[5, 5\]", runner, runner.sync_to_model)
    runner.model[0].weight = None
    refused("no '0.weight' any more", runner, runner.state_dict)
    runner.model[0].weight = weight
    runner.state_dict()


def test_states_that_are_none(make):
    runner = make("transformer-sgd")
    runner.run(1)
    state, optimizer = runner.state_dict(), runner.optimizer_state_dict()
    for given, message in (
        (3, "int given; it is a dict of tensors"),
        ({key: 3 for key in state}, "is a int, no tensor"),
    ):
        with pytest.raises(HeterogError, match=message):
            runner.load_state_dict(given)
    groups = copy.deepcopy(optimizer["param_groups"])
    groups[0]["lr"] = "fast"
    for given, message in (
        (3, "it is no dict of 'state' and 'param_groups'"),
        ({}, "it is no dict of 'state' and 'param_groups'"),
        ({"state": {}, "param_groups": [{}]}, "it is no dict of 'state' and 'param_groups'"),
        (optimizer | {"state": {10**6: {}}}, "it has a parameter 1000000"),
        (optimizer | {"state": {0: {"momentum_buffer": "x"}}}, "momentum_buffer of .* is a str"),
        (optimizer | {"param_groups": groups}, "lr is 'fast'"),
    ):
        with pytest.raises(HeterogError, match=message) as caught:
            runner.load_optimizer_state_dict(given)
        _one_line(caught.value)
    # The last one was refused whole.
    assert runner.optimizer.param_groups[0]["lr"] == optimizer["param_groups"][0]["lr"]
    runner.run(1)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda runner, x, y: runner.step((x.to_sparse(), y)), "'x' is a torch.sparse_coo tensor"),
        (lambda runner, x, y: runner.step((x.to("meta"), y)), "dense ones that hold values"),
        (lambda runner, x, y: runner.run("x"), "run: 'x' steps"),
        (lambda runner, x, y: runner.run(1.5), "run: 1.5 steps"),
        (lambda runner, x, y: runner.run(-1), "run: -1 steps"),
        (lambda runner, x, y: runner.run(1, 3), "run: int given to take batches from"),
    ],
)
def test_steps_that_cannot_be(make, call, message):
    runner = make("mlp")
    with pytest.raises(HeterogError, match=message) as caught:
        call(runner, *batches(CASES["mlp"], 1)[0])
    _one_line(caught.value)
    runner.run(1)


def test_what_a_loader_raises_comes_once_and_as_it_is(make):
    data = batches(CASES["mlp"], STEPS)

    def loader():
        yield from data[:2]
        raise ValueError("of its own making")

    runner = make("mlp")
    with pytest.raises(ValueError, match="of its own making"):
        runner.run(STEPS, loader())
    assert runner.steps_done == 2
    losses = runner.run(2, data[2:])
    whole = make("mlp")
    assert whole.run(STEPS, data)[2:] == losses
    check_state(runner.state_dict(), whole.state_dict(), 0)
