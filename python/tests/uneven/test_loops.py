"""auto_shares in the loops that people write: prefetchers, several passes of a batch, several models,
copies, hooks, parts of an epoch; each trains as one process does."""

import loop_cases as cases
import pytest
import torch
import torch.multiprocessing


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """What each rank found."""
    folder = str(tmp_path_factory.mktemp("ranks"))
    torch.multiprocessing.spawn(cases.worker, (cases.WORLD, folder), nprocs=cases.WORLD)
    return [torch.load(f"{folder}/{rank}.pt", weights_only=False) for rank in range(cases.WORLD)]


@pytest.mark.parametrize("name", list(cases.LOOPS))
def test_the_loop_trains_as_one_process(shared, name):
    expected = cases.train_alone(name)
    for rank in range(cases.WORLD):
        found = shared[rank][name]
        assert found["shares"] == cases.SHARES
        for ours, theirs in zip(found["parameters"], expected, strict=True):
            assert (ours - theirs).norm() <= 1e-12 * theirs.norm()


def test_what_is_returned_is_a_data_loader(shared):
    assert all(of_rank["plain"]["real"] for of_rank in shared)


def test_what_has_no_right_weight_is_refused(shared):
    for rank in range(cases.WORLD):
        said = shared[rank]["refused"]
        assert "another DistributedDataParallel model too (of Linear)" in said["another model"]
        assert "iterate over the loader that heterog.auto_shares returned" in said["old loader"]
        assert "draws batches before it computes" in said["changed ahead"]
        assert "is a copy of one that has unequal shares" in said["trained copy"]
        assert "give that one num_workers=0" in said["workers"]
