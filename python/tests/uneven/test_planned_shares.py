"""Planned shares in auto_shares: taken as the file has them, and refused where they are of another
training."""

import json

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from heterog import InputError
from heterog.uneven.loader import LikeSampler
from heterog.uneven.planned_shares import read_planned, take_planned

PLANNED = {"format": "heterog-shares", "version": 1, "samples_per_rank": [6, 2], "micro_batches": 2}


def sampler(batch=16, parts=2, together=False) -> LikeSampler:
    made = LikeSampler(DataLoader(TensorDataset(torch.zeros(50, 1)), batch_size=4), batch, 2, 1, parts=parts)
    made.together = together
    return made


def written(folder, **changes):
    path = folder / "shares.json"
    path.write_text(json.dumps(PLANNED | changes))
    return path


@pytest.mark.parametrize("together", [False, True])
def test_each_pass_has_what_was_planned(tmp_path, together):
    path, own = written(tmp_path), sampler(together=together)
    shares = read_planned(path, own, [8, 8])
    assert shares == [12, 4]
    said = take_planned(own, shares, path, 0)
    assert f"rank 0: 12 in 2 micro-batches of 6; rank 1: 4 in 2 micro-batches of 2, as planned in {path}" in said
    # Two samples are left, one for this rank; where ranks meet in each pass, it has a stand-in in the other.
    assert [len(rows) for rows in own] == [2, 2] * 3 + [1] * (2 if together else 1)


def test_without_accumulation_a_step_is_a_pass(tmp_path):
    path, own = written(tmp_path, micro_batches=1), sampler(8, 1)
    assert read_planned(path, own, [8, 8]) == [6, 2]
    assert take_planned(own, [6, 2], path, 0).endswith(f"rank 0: 6; rank 1: 2, as planned in {path}")
    assert [len(rows) for rows in own] == [2] * 6 + [1]


def test_what_is_no_plan_is_left_to_others(tmp_path):
    assert read_planned(None, sampler(), [8, 8]) is None
    assert read_planned(tmp_path / "none.json", sampler(), [8, 8]) is None
    assert read_planned(written(tmp_path, format="heterog-measured-shares"), sampler(), [8, 8]) is None


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"samples_per_rank": [4, 2, 2]}, "planned for 3 ranks, this training has 2: start a process"),
        ({"micro_batches": 4}, "micro_batches: planned for 4, this training accumulates 2: give accumulate=4"),
        ({"micro_batches": 0}, "micro_batches: expected a whole number from 1"),
        ({"samples_per_rank": [6, 3]}, "planned for 18 samples a step, this training has 16: give batch=18"),
        ({"samples_per_rank": [7, 1]}, r"samples_per_rank\[0\]: planned with 7 samples a pass, this rank takes 1 to 6"),
        ({"samples_per_rank": [8, 0]}, "rank 1 gets no samples in any batch"),
        ({"version": 2}, "version: expected 1"),
    ],
)
def test_shares_of_another_training_are_refused(tmp_path, changes, said):
    with pytest.raises(InputError, match=said):
        read_planned(written(tmp_path, **changes), sampler(), [6, 6])


def test_batch_normalisation_wants_two_samples_a_pass(tmp_path):
    own = sampler()
    own.least = 2
    with pytest.raises(InputError, match=r"samples_per_rank\[1\]: planned with 1 samples a pass, this rank takes 2"):
        read_planned(written(tmp_path, samples_per_rank=[7, 1]), own, [8, 8])
