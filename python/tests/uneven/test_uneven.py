"""Unequal shares of the batch under DistributedDataParallel: real processes against one process."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import uneven_cases
from ranks_of_tests import found_by
from rounds import thorough
from torch.utils.data import DataLoader

import heterog
from heterog.uneven.sampler import split_by_shares

ROOT = Path(__file__).resolve().parents[3]

shared = found_by(uneven_cases.worker)
WORLDS = thorough([2, 3], but={3})


def largest_error(found: dict, expected: dict) -> float:
    """Over all parameters, relative to the norm."""
    assert found.keys() == expected.keys()
    return max(
        ((found[name] - value).norm() / value.norm()).item() for name, value in expected.items()
    )


WEIGHTED = [name for name, run in uneven_cases.RUNS.items() if run.weighted]
PLAIN = [name for name, run in uneven_cases.RUNS.items() if not run.weighted]


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("name", WEIGHTED)
def test_unequal_ranks_train_as_one_process(shared, name, world):
    run = uneven_cases.RUNS[name]
    expected = uneven_cases.train_alone(run, world)
    for rank in range(world):
        found = shared(world)[rank][name]
        assert largest_error(found["parameters"], expected["parameters"]) <= run.tolerance
        if found["losses"]:
            assert found["losses"] == pytest.approx(expected["losses"], rel=run.tolerance, nan_ok=True)
    if name == "sgd":
        assert len(found["losses"]) == 5 * uneven_cases.EPOCHS  # the last of 5 is not whole


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("name", PLAIN)
def test_a_plain_mean_of_unequal_ranks_is_another_training(shared, name, world):
    expected = uneven_cases.train_alone(uneven_cases.RUNS[name], world)
    found = shared(world)[0][name]
    assert largest_error(found["parameters"], expected["parameters"]) > 1e-3


@pytest.mark.parametrize("world", WORLDS)
def test_wrong_use_is_refused_on_every_rank(shared, world):
    for rank in range(world):
        said = shared(world)[rank]["errors"]
        assert "process group has" in said["other world"]
        assert f"this is rank {rank}" in said["other rank"]
        assert "wrap the model" in said["not wrapped"]
        assert "no sampler" in said["no sampler"]
        assert said["started twice"] == ""
        assert "has no weight" in said["not started"]


def slices(length, shares, **options):
    return [
        list(heterog.UnevenBatchSampler(length, shares, rank, **options))
        for rank in range(len(shares))
    ]


def test_slices_side_by_side_are_the_global_batches():
    whole = zip(*slices(22, [4, 3, 1]), strict=True)
    joined = [[index for part in parts for index in part] for parts in whole]
    assert joined == [list(range(8)), list(range(8, 16)), list(range(16, 22))]
    assert slices(22, [4, 3, 1])[1] == [[4, 5, 6], [12, 13, 14], [19, 20]]
    assert slices(22, [4, 3, 1], drop_last=True)[1] == [[4, 5, 6], [12, 13, 14]]


def test_a_rank_without_samples_runs_one_that_does_not_count():
    sampler = heterog.UnevenBatchSampler(9, [4, 3, 1], 2)
    assert sampler.sizes(1) == [1, 0, 0]
    assert list(sampler) == [[7], [8]]


def test_the_order_changes_with_the_epoch_and_agrees_between_ranks():
    ranks = [heterog.UnevenBatchSampler(50, [3, 2], rank, shuffle=True, seed=1) for rank in (0, 1)]
    epochs = []
    for epoch in (0, 1):
        for sampler in ranks:
            sampler.set_epoch(epoch)
        seen = [index for sampler in ranks for batch in sampler for index in batch]
        assert sorted(seen) == list(range(50))
        epochs.append(seen)
    assert epochs[0] != epochs[1] != list(range(50))


def test_a_loader_with_workers_gives_the_slices():
    data = torch.arange(23)
    sampler = heterog.UnevenBatchSampler(data, [4, 2], 1, shuffle=True)
    loader = DataLoader(data, batch_sampler=sampler, num_workers=2)
    assert len(loader) == 4
    assert [batch.tolist() for batch in loader] == list(sampler)


@pytest.mark.parametrize("count", range(0, 30))
def test_a_rest_is_split_in_proportion(count):
    shares = [7, 5, 1, 1]
    sizes = split_by_shares(count, shares)
    assert sum(sizes) == count
    assert all(abs(size - count * share / 14) < 1 for size, share in zip(sizes, shares, strict=True))
    if count in (14, 28):
        assert sizes == [share * count // 14 for share in shares]


def test_a_file_of_shares_is_read(tmp_path):
    path = tmp_path / "shares.json"
    content = {"format": "heterog-shares", "version": 1, "samples_per_rank": [3, 1]}
    path.write_text(json.dumps(content | {"batch": 4}))
    assert heterog.UnevenBatchSampler(10, path, 0).samples_per_rank == [3, 1]
    assert heterog.UnevenBatchSampler(10, str(path), 1).samples_per_rank == [3, 1]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "no JSON"),
        ("[]", "expected an object, found an empty list"),
        ('{"format": "heterog-plan"}', "format: expected 'heterog-shares', found 'heterog-plan'"),
        ('{"format": "heterog-shares", "version": 2}', "version: expected 1, found 2"),
        ('{"format": "heterog-shares", "version": 1}', 'the field "samples_per_rank" is missing'),
        ('{"format": "heterog-shares", "version": 1, "samples_per_rank": [1, 2.5]}', r"\[1\]: expected a whole number"),
    ],
)
def test_other_files_are_refused(tmp_path, content, message):
    path = tmp_path / "shares.json"
    path.write_text(content)
    with pytest.raises(heterog.InputError, match=message):
        heterog.UnevenBatchSampler(10, path, 0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((10, [3, 0], 0), "rank 1 gets no samples in any batch"),
        ((10, [3, -1], 0), "-1"),
        ((10, [True], 0), "True"),
        ((10, [], 0), "one a rank"),
        ((10, [3, 1], 2), "ranks 0 to 1"),
        ((0, [3, 1], 0), "at least 1"),
        ((iter([]), [3, 1], 0), "no length"),
    ],
)
def test_bad_arguments_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        heterog.UnevenBatchSampler(*arguments)
    with pytest.raises(ValueError, match="make no batch"):
        heterog.UnevenBatchSampler(3, [3, 1], 0, drop_last=True)


def test_the_example_prints_the_same_lines_in_one_process_and_in_two(tmp_path):
    shares = tmp_path / "shares.json"
    content = {"format": "heterog-shares", "version": 1, "samples_per_rank": [73, 23]}
    shares.write_text(json.dumps(content))
    script = str(ROOT / "examples" / "ddp_uneven" / "train.py")
    two = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    environment = os.environ | {"PYTHONPATH": str(ROOT / "python"), "OMP_NUM_THREADS": "1"}

    def run(*arguments):
        command = [sys.executable, *arguments, "--epochs", "2"]
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    alone = run(script)
    assert len(alone) == 2
    assert run(*two, script, "--shares", str(shares)) == alone
