"""The probe of a loss: by what ranks are weighed is what makes their training that of one process."""

import itertools

import probe_cases as cases
import pytest
import torch
import torch.multiprocessing
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from heterog.uneven.loss_probe import cuts
from heterog.uneven.neutral import Neutral
from heterog.uneven.weighing import known_counts

WORLD = 3


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """What each rank found."""
    folder = str(tmp_path_factory.mktemp("ranks"))
    torch.multiprocessing.spawn(cases.worker, (WORLD, folder), nprocs=WORLD)
    return [torch.load(f"{folder}/{rank}.pt", weights_only=False) for rank in range(WORLD)]


@pytest.mark.parametrize("name", cases.EXACT)
def test_unequal_shares_train_as_one_process_does(shared, name):
    expected = cases.train_alone(cases.CASES[name])
    for rank in range(WORLD):
        found = shared[rank][name]
        assert found["shares"] == cases.SHARES
        for ours, theirs in zip(found["parameters"], expected, strict=True):
            assert (ours - theirs).norm() <= 1e-12 * theirs.norm()


@pytest.mark.parametrize("name", list(cases.CASES))
def test_what_is_weighed_by_is_said_and_nothing_is_changed(shared, name):
    case = cases.CASES[name]
    for rank in range(WORLD):
        found = shared[rank][name]
        assert found["shares"] == (cases.EVEN if case.kept else cases.SHARES)
        assert found["found"] is not case.kept
        assert all(map(torch.equal, found["before"][0], found["after"][0]))
        assert torch.equal(found["before"][1], found["after"][1])
        assert bool(found["said"]) == (rank == 0)
    said = shared[0][name]["said"]
    assert "probes the loss" in said[0]
    assert case.said in said[1], said
    assert "even shares are kept" in said[1] or not case.kept


def test_a_loss_that_talks_to_other_ranks_keeps_even_shares(shared):
    for rank in range(WORLD):
        said = shared[rank]["talks"]
        assert ("talks to other ranks (allreduce)" in said["even"]) == (rank == 0)
        assert "a batch has 2 for 3 ranks" in said["rest"]
        assert said["force"].startswith("force: step_fn talks to other ranks")


def test_batch_normalisation_is_said_and_left_as_it_was(shared):
    said = shared[0]["normalised"]["said"]
    assert "labels that count" in said[1]
    assert "BatchNorm1d takes the statistics of each rank's own samples, of 2 to 4 of them" in "".join(said)
    for rank in range(WORLD):
        found = shared[rank]["normalised"]
        assert found["shares"] == [4, 3, 2]
        assert found["momentum"] == 0.1 and not found["forward"]
        # The whole of the small batch is normalised by its own statistics, its parts by the same.
        assert found["means"][0] < 1e-12 < min(found["means"][1:])


@pytest.mark.parametrize("samples", range(3, 12))
def test_a_batch_is_cut_in_two_unlike_ways(samples):
    first, second = cuts(samples)
    for cut in (first, second):
        assert sorted(itertools.chain(*cut)) == list(range(samples))
        assert all(cut)
    assert len(first[0]) != len(first[1]) and first[0] not in second


def draws(x: torch.Tensor) -> torch.Tensor:
    attention = F.scaled_dot_product_attention(x, x, x, dropout_p=0.5)
    recurrent = nn.LSTM(4, 4, 2, dropout=0.5, batch_first=True)
    for parameter in recurrent.parameters():
        nn.init.constant_(parameter, 0.3)
    y = x + torch.randn_like(x) + torch.rand(x.shape) + torch.empty_like(x).exponential_()
    y = y + F.dropout(x, 0.3) + torch.bernoulli(torch.full_like(x, 0.2)) + attention
    y = y + F.feature_alpha_dropout(x, 0.3) + recurrent(x)[0] + torch.normal(x, 2.0)
    return y + torch.randint(0, 9, x.shape) + checkpoint(F.dropout, x, 0.4, use_reentrant=False)


def test_every_sample_draws_the_same_numbers():
    x = torch.randn(7, 3, 4)
    outs, grads = [], []
    for rows in (range(7), [0, 1, 2], [3, 4, 5, 6]):
        torch.manual_seed(3)
        part = x[list(rows)].requires_grad_()
        with Neutral() as seen:
            out = draws(part)
            (out * torch.arange(4)).sum().backward()
        assert seen.drew
        outs.append(out.detach())
        grads.append(part.grad)
    for whole, *parts in (outs, grads):
        torch.testing.assert_close(torch.cat(parts), whole)
    torch.manual_seed(3)
    assert not torch.allclose(draws(x[:3]), outs[1])  # without it, samples draw their own


def test_what_a_cross_entropy_divides_by_is_found_in_the_batch():
    labels = torch.tensor([[1, 2, -100], [0, -100, -100]])
    batch = {"inputs": [torch.tensor([[1, 2, 3], [0, 1, 1]])], "labels": labels}
    for target, name, count in (
        (labels, "batch['labels']", 3),
        (labels[:, 1:], "batch['labels'][..., 1:]", 1),
        (F.pad(labels, (0, 1), value=-100)[:, 1:], "batch['labels'][..., 1:]", 1),
    ):
        with Neutral() as seen:
            scores = torch.zeros(target.numel(), 4)
            F.cross_entropy(scores, target.flatten())
        certain, _ = known_counts(batch, seen.label_losses)
        assert [w.words for w in certain] == [f"the labels that count (not -100) in {name}"]
        assert certain[0].count(batch) == count
