"""Shares that the program hands over, taken by auto_shares."""

import json

import pytest
import torch
from program import run_program
from torch.utils.data import DataLoader, TensorDataset

from heterog.uneven.loader import LikeSampler
from heterog.uneven.planned_shares import read_planned


@pytest.mark.parametrize("engine", ["ddp", "fsdp2"])
def test_what_the_program_hands_over_is_taken(tmp_path, engine):
    problem = ["--graph", "vgg19", "--cluster", "workstation-3090-4090"]
    plan, path = f"{tmp_path}/plan.json", f"{tmp_path}/shares.json"
    run_program(["plan", *problem, "--batch", "64", "--for", engine, "--planner", "ev-ar", "--out", plan])
    run_program(["hand-over", *problem, "--plan", plan, "--to", engine, "--out", path])
    with open(path, encoding="utf-8") as file:
        fields = json.load(file)
    parts = fields.get("micro_batches", 1)
    own = LikeSampler(DataLoader(TensorDataset(torch.zeros(64, 1)), batch_size=4), 64, 2, 1, parts=parts)
    taken = read_planned(path, own, [64, 64])
    assert taken == [samples * parts for samples in fields["samples_per_rank"]]
    assert taken[0] > taken[1] > 0 and sum(taken) == 64
    assert ("parameter_row_bytes" in fields) == (engine == "fsdp2")
