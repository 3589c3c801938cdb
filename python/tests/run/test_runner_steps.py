"""What a step is given: batches in all forms, and learning rates."""

import threading

import pytest
import runner_cases
import torch
from runner_cases import BATCH, CASES, batches, build
from runner_support import STEPS, check_optimizer, check_state
from torch.utils.data import DataLoader, TensorDataset

import heterog
from heterog.base.errors import HeterogError


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
        ((torch.zeros(5, 6), torch.zeros(7, 3)), r"'y' has shape \[7, 3\]; in a batch of 5 samples"),
        ((torch.zeros(5, 7), torch.zeros(5, 3)), r"'x' has shape \[5, 7\]; .* it has \[5, 6\]"),
        ((torch.zeros(1, 6), torch.zeros(1, 3)), "batch 1: .* known to hold from 2 samples on"),
        ((torch.zeros(0, 6), torch.zeros(0, 3)), r"'x' has shape \[0, 6\]"),
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
    with pytest.raises(HeterogError, match="after 2 of 5 steps"):
        make("mlp").run(5, iter(list(whole)))


def test_run_without_data_is_reproducible(make):
    runner = make("mlp")
    before = torch.get_rng_state()
    losses = runner.run(3)
    assert torch.equal(before, torch.get_rng_state())
    assert losses == make("mlp").run(3)
    assert len(set(losses)) == 3


def test_a_run_tells_of_each_step_and_ends_where_it_is_told(make):
    runner, twin = make("mlp"), make("mlp")
    said = []

    def on_step(number, loss):
        said.append((number, loss))
        return number == 3

    losses = runner.run(STEPS + 5, on_step=on_step)
    assert said == [(1, losses[0]), (2, losses[1]), (3, losses[2])] and runner.steps_done == 3
    assert losses == twin.run(3, on_step=lambda number, loss: number)  # a number is no True
    loader = iter(batches(CASES["mlp"], 4))
    assert len(runner.run(2, loader, on_step=lambda *_: True)) == 1
    assert len(list(loader)) == 3  # nothing is taken that is not run
    with pytest.raises(HeterogError, match="on_step is a int"):
        runner.run(1, on_step=3)


def test_the_callers_threads_stay(make):
    before = torch.get_num_threads()
    make("mlp", threads=1).run(1)
    assert torch.get_num_threads() == before


def test_a_loss_that_is_no_number_is_an_error_after_which_all_goes_on(make, tmp_path):
    data = batches(CASES["mlp"], 3)
    runner, twin = make("mlp"), make("mlp")
    runner.step(data[0])
    runner.save(tmp_path / "before.safetensors")
    bad = (torch.full((BATCH, 6), float("nan")), torch.zeros(BATCH, 3))
    with pytest.raises(heterog.LossNotFinite, match="rank 0 .*loss is not a finite number in step 2"):
        runner.step(bad)
    assert runner.steps_done == 2
    assert all(value.isnan().all() for value in runner.state_dict().values())  # as PyTorch's would be
    runner.save(tmp_path / "after.safetensors")
    assert heterog.load_checkpoint(tmp_path / "after.safetensors").steps == 2
    with pytest.raises(heterog.LossNotFinite, match="step 3"):
        runner.step(data[1])
    runner.load(tmp_path / "before.safetensors")
    losses = [runner.step(batch) for batch in data[1:]]
    assert [twin.step(batch) for batch in data][1:] == losses


def test_calls_from_several_threads_run_one_after_the_other(make):
    data = batches(CASES["mlp"], 1)[0]
    runner, twin = make("mlp"), make("mlp")
    errors = []

    def work():
        try:
            for _ in range(5):
                runner.step(data)
                runner.model.state_dict()
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors and runner.steps_done == 20
    twin.run(20, [data] * 20)
    check_state(runner.state_dict(), twin.state_dict(), 0)


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
