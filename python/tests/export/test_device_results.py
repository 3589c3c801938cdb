"""Operators leave the same on GPUs as on CPUs: sizes, types and devices of all results, on tensors that
only claim to lie on a GPU (PyTorch's FakeTensorMode, which needs neither a GPU nor a driver).

Forward and backward may run on different kinds of device, and what one leaves the other reads. A graph
says what CPUs leave; where GPUs differ, the runtime makes it so (src/runtime/gpu/saved_results.cc),
and the operators that it does so for stand here.
"""

from pathlib import Path

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from heterog.export import interpreter
from heterog.export.graph.writer import read_graph
from heterog.export.operators import half_softmax
from heterog.export.optimizer import fused_update

ROOT = Path(__file__).resolve().parents[3]
GRAPHS = sorted([*(ROOT / "models").glob("*-tiny.json.gz"), *(ROOT / "tests" / "data").glob("*.json.gz")])
BATCH = 4
aten = torch.ops.aten
# Output → why another size does no harm: saved_results.cc makes it what CPUs leave.
MADE_ALIKE = {
    ("aten.log_sigmoid_forward.default", 1),  # exp(-|x|), which only CPUs save
    ("aten._embedding_bag.default", 1),  # which bag an index is of
    ("aten._embedding_bag.default", 3),  # places of maxima, of sums
    ("aten.native_batch_norm.default", 1),  # statistics, where the running ones are used
    ("aten.native_batch_norm.default", 2),
    ("aten._native_batch_norm_legit_no_training.default", 1),
    ("aten._native_batch_norm_legit_no_training.default", 2),
}
# GPUs keep the statistics of layer norms in float32: what is sent has the graph's type, and is made wide
# again for a GPU.
WIDE = {("aten.native_layer_norm.default", 1), ("aten.native_layer_norm.default", 2)}
# The runtime has kernels of its own for these (src/runtime/attention/attention.h).
ATTENTION = "aten._scaled_dot_product_flash_attention_for_cpu"


def on_gpu(sizes, strides, dtype):
    return torch.empty_strided(sizes, strides, dtype=dtype, device="cuda")


def declared(tensor):
    return interpreter.shape_of(tensor, BATCH), interpreter.strides_of(tensor, BATCH), interpreter.dtype_of(tensor)


def flat(results):
    if isinstance(results, torch.Tensor) or results is None:
        return [results]
    return [one for result in results for one in flat(result)]


def differences(graph):
    """(operator, output, what differs) of every operator of a graph, and how many were looked at."""
    found, looked = set(), 0
    own = half_softmax.operators() | fused_update.operators() | interpreter._VIEWS
    setting = interpreter.Setting(BATCH, BATCH, torch.device("cuda"))
    with FakeTensorMode(), torch.no_grad():
        tensors = [on_gpu(*declared(tensor)) for tensor in graph["tensors"]]
        for op in graph["ops"]:
            if op["op"].startswith(ATTENTION):
                continue
            args = interpreter.resolve(op["args"], tensors, setting)
            more = {key: interpreter.resolve(value, tensors, setting) for key, value in op.get("kwargs", {}).items()}
            call = own.get(op["op"]) or interpreter.operator_of(op["op"])
            results = flat(call(*args, **more))
            looked += 1
            for index, (output, result) in enumerate(zip(op["outputs"], results)):
                if output is None or result is None:
                    continue
                sizes, _, dtype = declared(graph["tensors"][output])
                for what, here, there in (("sizes", list(result.shape), sizes), ("type", result.dtype, dtype),
                                          ("device", result.device.type, "cuda")):  # fmt: skip
                    if here != there:
                        found.add((op["op"], index, f"{what}: {here} on a GPU, the graph has {there}"))
    return found, looked


@pytest.mark.parametrize("path", GRAPHS, ids=lambda path: path.name.removesuffix(".json.gz"))
def test_exported_steps(path):
    found, looked = differences(read_graph(path))
    assert looked > 3
    assert {each for each in found if each[:2] not in MADE_ALIKE | WIDE} == set()
    assert all("type: torch.float32" in what for *each, what in found if tuple(each) in WIDE)


def calls():
    """Operators that save something, as CPUs run them: (name, arguments)."""
    x, channels = torch.randn(5, 6), torch.randn(4, 3, 5)
    ones, zeros = torch.ones(3), torch.zeros(3)
    indices, offsets = torch.tensor([0, 2, 4, 1, 1, 3]), torch.tensor([0, 2, 5])
    yield "aten.log_sigmoid_forward.default", (x,)
    for mode in range(3):
        yield "aten._embedding_bag.default", (x, indices, offsets, False, mode)
        weights = torch.randn(6) if mode == 0 else None
        yield "aten._embedding_bag.default", (x, indices, offsets, False, mode, False, weights)
    for training in (False, True):
        yield "aten.native_batch_norm.default", (channels, ones, zeros, zeros, ones, training, 0.1, 1e-5)
    yield "aten._native_batch_norm_legit_no_training.default", (channels, ones, zeros, zeros, ones, 0.1, 1e-5)
    yield "aten._native_batch_norm_legit.no_stats", (channels, ones, zeros, True, 0.1, 1e-5)
    yield "aten.native_layer_norm.default", (x, [6], None, None, 1e-5)
    yield "aten.native_group_norm.default", (channels, ones, zeros, 4, 3, 5, 3, 1e-5)
    yield "aten.nll_loss_forward.default", (x, torch.tensor([1, 2, 3, 0, 5]), None, 1, -100)
    yield "aten.nll_loss2d_forward.default", (torch.randn(2, 3, 4, 5), torch.zeros(2, 4, 5, dtype=torch.long), None, 1, -100)
    yield "aten.max_pool2d_with_indices.default", (torch.randn(2, 3, 8, 8), [2, 2])
    yield "aten.adaptive_max_pool2d.default", (torch.randn(2, 3, 8, 8), [2, 2])
    yield "aten.multilabel_margin_loss_forward.default", (x, torch.zeros(5, 6, dtype=torch.long), 1)
    yield "aten.max.dim", (x, 1)
    yield "aten.topk.default", (x, 2)
    yield "aten.sort.default", (x,)
    yield "aten.cummax.default", (x, 1)
    yield "aten.kthvalue.default", (x, 2)
    yield "aten.median.dim", (x, 1)
    yield "aten.mode.default", (x,)
    yield "aten.var_mean.correction", (x, [1])
    yield "aten._log_softmax.default", (x, 1, False)
    yield "aten._weight_norm_interface.default", (x, torch.randn(5, 1))


def test_operators_that_save_something():
    """The sizes that differ are those that the runtime mends, each of them."""
    differ = set()
    for name, args in calls():
        call = interpreter.operator_of(name)
        on_cpu = flat(call(*args))
        with FakeTensorMode(), torch.no_grad():
            fake = [on_gpu(one.shape, one.stride(), one.dtype) if isinstance(one, torch.Tensor) else one for one in args]
            results = flat(call(*fake))
        for index, (here, there) in enumerate(zip(on_cpu, results)):
            assert there.device.type == "cuda" and there.dtype == here.dtype, (name, index)
            if tuple(here.shape) != tuple(there.shape):
                differ.add((name, index))
                # As saved_results.cc knows them.
                assert here.numel() == 0 or there.numel() == 0, (name, index)
    assert differ == MADE_ALIKE


def test_a_difference_is_found():
    graph = read_graph(ROOT / "tests" / "data" / "mlp_sgd.json.gz")
    loss = graph["ops"][-1]["outputs"][0]
    graph["tensors"][loss]["dtype"] = "float64"
    assert any("type" in what for *_, what in differences(graph)[0])
