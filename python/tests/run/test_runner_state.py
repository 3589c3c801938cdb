"""What has been learnt: state in PyTorch's forms, and checkpoints."""

import os

import pytest
import safetensors.torch
import torch
from runner_cases import BATCH, CASES, DEVICES, batches, build, train_plainly
from runner_support import STEPS, check_optimizer, check_state, error_of

import heterog
from heterog.base.errors import HeterogError


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
    settings = {"batch": BATCH, "planner": "cp-ps", "cache": cache, "double": True,
                "any_device": True} | case.config
    with heterog.get_runner(
        model, case.make_inputs, case.loss_fn, optimizer, DEVICES, settings
    ) as runner:
        for batch in data[2:]:
            runner.step(batch)
        check_state(runner.state_dict(), train_plainly(case, STEPS).state, 1e-10)


def test_sync_to_model(make):
    runner = make("convnet", double=False)
    first = {key: value.clone() for key, value in runner.model.state_dict().items()}
    runner.run(2)
    model = runner.sync_to_model()
    assert error_of(model.state_dict()["out.weight"], first["out.weight"]) > 0
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
    header = b'{"' + b"a" * 5000 + b'":{"dtype":"' + b"b" * 5000 + b'","shape":[],"data_offsets":[0,0]}}'
    path.write_bytes(len(header).to_bytes(8, "little") + header)
    with pytest.raises(HeterogError, match="no whole safetensors file") as caught:
        runner.load(path)
    assert len(str(caught.value)) < 600
    with open(path, "wb") as file:
        file.truncate(1 << 40)  # no machine maps it
    with pytest.raises(HeterogError, match="no whole safetensors file"):
        runner.load(path)
    safetensors.torch.save_file(dict(runner.state_dict()), path)
    with pytest.raises(HeterogError, match="no checkpoint of a runner"):
        runner.load(path)
