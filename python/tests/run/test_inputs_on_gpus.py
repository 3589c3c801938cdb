"""Batches on a GPU stay there: ranks take them from it."""

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from heterog.run.batches import Inputs

GRAPH = {
    "tensors": [
        {"name": "x", "role": "input", "dtype": "float32", "shape": ["B", 3]},
        {"name": "y", "role": "input", "dtype": "float64", "shape": ["B"]},
    ],
    "ops": [],
}


def test_tensors_of_a_gpu_are_not_copied_to_the_host():
    inputs = Inputs(GRAPH, ["x", "y"], 4)
    with FakeTensorMode():
        x = torch.empty(3, 4, device="cuda:1").t()
        y = torch.empty(4, device="cuda:1", requires_grad=True)
        samples, found = inputs.of((x, y))
        own = inputs.of_rows((x[:2], y[:2]), 4, [(1, 3)])
    assert samples == 4
    for values in (found, own):
        assert [values[place].device for place in (0, 1)] == [torch.device("cuda:1")] * 2
        assert values[0].is_contiguous() and list(values[0].shape) == [4, 3]
        assert values[1].dtype == torch.float64 and not values[1].requires_grad


def test_tensors_of_other_devices_are_copied():
    inputs = Inputs(GRAPH, ["x", "y"], 4)
    with FakeTensorMode():
        _, found = inputs.of((torch.empty(4, 3, device="xpu"), torch.empty(4, dtype=torch.float64)))
    assert found[0].device == found[1].device == torch.device("cpu")
