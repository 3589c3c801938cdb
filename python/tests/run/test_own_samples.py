"""Processes that load their own samples alone train as those that load them all."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from runner_cases import BATCH, CASES
from runner_support import check_state

import heterog
from heterog.run.own_samples import spread


def local_ranks(*arguments) -> None:
    script = Path(__file__).parents[1] / "local_ranks.py"
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2",
         str(script), *map(str, arguments)],
        env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(script.parents[1])},
        capture_output=True,
        text=True,
        timeout=900,  # of what never ends
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("planner", "accumulate"), [("ev-ar", 1), ("ev-ar", 3), ("random:evaluations=30", 1)]
)
def test_own_samples_train_as_whole_batches_do(make, tmp_path, planner, accumulate):
    local_ranks(planner, accumulate, tmp_path)
    # The same steps in one process, on whole batches.
    torch.manual_seed(5)
    data = CASES["mlp"].make_inputs(3 * BATCH + 5)
    torch.manual_seed(11)
    runner = make("mlp", planner, devices="cpu:2", accumulate=accumulate)
    runner.load_state_dict({key: value.double() for key, value in _weights().items()})
    sampler = heterog.ShareSampler(len(data[0]), runner, shuffle=True, seed=3, drop_last=False)
    losses = []
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for indices in sampler:
            losses.append(runner.step(tuple(tensor[indices] for tensor in data)))
    ranks = [torch.load(tmp_path / f"rank{rank}.pt", weights_only=False) for rank in range(2)]
    for found in ranks:
        assert found["losses"] == pytest.approx(losses, rel=1e-10)
        check_state(found["state"], runner.state_dict(), 1e-10)
    # Each sample of an epoch is loaded by somebody, and by one alone where the plan has it so.
    loaded = [len(found["loaded"]) for found in ranks]
    assert sum(loaded) >= 2 * len(data[0])
    if planner == "ev-ar":
        assert sum(loaded) == 2 * len(data[0])
    if (planner, accumulate) == ("ev-ar", 1):
        assert [found["rows"] for found in ranks] == [[(0, 6)], [(6, 12)]]
    if (planner, accumulate) == ("ev-ar", 3):
        assert ranks[1]["rows"] == [(2, 4), (6, 8), (10, 12)]


def _weights() -> dict:
    torch.manual_seed(11)
    return CASES["mlp"].model().state_dict()


def test_threads_of_one_process_read_all(make):
    runner = make("mlp", "ev-ar", devices="cpu:2")
    assert runner.own_samples() == [(0, BATCH)] and runner.own_samples(7) == [(0, 7)]
    twin = make("mlp", "ev-ar", devices="cpu:2")
    batch = CASES["mlp"].make_inputs(7)
    assert runner.step_local(batch, samples=7) == twin.step(batch)


def test_what_is_not_ones_own_is_refused(make):
    runner = make("mlp", "ev-ar", devices="cpu:2")
    batch = CASES["mlp"].make_inputs(BATCH)
    with pytest.raises(heterog.InputError, match="in a batch of 7 of this process's samples it has"):
        runner.step_local(batch, samples=7)
    for samples in (0, -1, 2.0, True, "7"):
        with pytest.raises(heterog.InputError, match="samples: .*; it is a number of samples"):
            runner.step_local(batch, samples=samples)
    with pytest.raises(heterog.InputError, match="int given for 'x'"):
        runner.step_local((3, batch[1]))
    assert runner.steps_done == 0
    assert runner.step_local(batch) > 0


def test_batches_of_an_epoch():
    class Fixed:
        batch = 10

        def own_samples(self, samples):
            return [(0, 2), (samples - 1, samples)] if samples > 3 else []

    sampler = heterog.ShareSampler(23, Fixed(), drop_last=False)
    assert len(sampler) == 3 and [sampler.samples(i) for i in range(3)] == [10, 10, 3]
    assert list(sampler) == [[0, 1, 9], [10, 11, 19], [20]]
    assert len(heterog.ShareSampler(23, Fixed())) == 2
    shuffled = heterog.ShareSampler(20, Fixed(), shuffle=True, seed=4)
    first = list(shuffled)
    assert first == list(shuffled) != list(sampler)[:2]
    shuffled.set_epoch(1)
    assert first != list(shuffled)
    for wrong, message in ((9, "make no batch of 10"), (object(), "has no length")):
        with pytest.raises(heterog.InputError, match=message):
            heterog.ShareSampler(wrong, Fixed())
    with pytest.raises(heterog.InputError, match="an epoch has batches 0 to 1"):
        shuffled.samples(2)


def test_rows_are_put_where_they_belong():
    value = torch.arange(6.0).reshape(3, 2)
    whole = spread(value, [(1, 2), (4, 6)], 0, [7, 2])
    assert whole[[1, 4, 5]].equal(value) and whole[[0, 2, 3, 6]].abs().sum() == 0
    assert spread(value.T, [(1, 2), (4, 6)], 1, [2, 7]).equal(whole.T)
