"""Random models that a program changes in the middle of their training: they go on as in PyTorch, or the
change is refused."""

import pytest
from change_generator import outcome
from rounds import thorough


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return str(tmp_path_factory.mktemp("changes"))


@pytest.mark.parametrize("seed", thorough(range(10), but=set(range(4))))
def test_a_changed_model_trains_as_in_pytorch(seed, cache):
    found = outcome(seed, cache)
    assert found.kind in ("equal", "refused"), found.detail
