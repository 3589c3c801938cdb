"""The model zoo: published sizes, graphs that match their code, and the memory estimate."""

import gzip
import json
import math
import warnings
from pathlib import Path

import pytest
import torch

import heterog
from heterog import zoo
from heterog.export.graph.writer import read_graph
from heterog.export.interpreter import data_inputs, dtype_of, given_values, initial_values, run, shape_of
from heterog.zoo import memory

MODELS = Path(__file__).resolve().parents[2] / "models"
LIMIT_BYTES = 20_000_000
BATCH = 7  # none of the batch sizes that graphs are traced at
TINY = [name for name in zoo.names() if name.endswith("-tiny")]
PUBLISHED = [name for name in zoo.names() if zoo.get(name).published]
# Exported again by the test: few operators, and between them a classifier with dropout, one
# without, tables of embeddings, SGD and Adam.
EXPORTED_AGAIN = ["lenet5-tiny", "vgg19-tiny", "ncf-tiny"]


def graph_of(name: str) -> dict:
    return read_graph(MODELS / f"{name}.json.gz")


def test_every_model_has_a_tiny_sibling():
    full = {name for name in zoo.names() if not name.endswith("-tiny")}
    assert {name.removesuffix("-tiny") for name in TINY} == full


def test_every_tiny_graph_is_there_and_all_graphs_are_small():
    assert [n for n in TINY if not (MODELS / f"{n}.json.gz").exists()] == []
    graphs = list(MODELS.glob("*.json.gz"))
    assert sum(path.stat().st_size for path in graphs) < LIMIT_BYTES
    assert {path.name.removesuffix(".json.gz") for path in graphs} <= set(zoo.names())


@pytest.mark.parametrize("name", PUBLISHED)
def test_parameters_are_those_published(name):
    published = zoo.get(name).published
    with torch.device("meta"):
        parameters = list(zoo.get(name).factory().parameters())
    count = sum(p.numel() for p in parameters)
    assert abs(count - published.parameters) <= published.tolerance * published.parameters
    path = MODELS / f"{name}.json.gz"
    if path.exists():
        tensors = graph_of(name)["tensors"]
        trained = sum(math.prod(t["shape"]) for t in tensors if t["role"] == "parameter")
        # XLNet's mask embedding is not trained without its second stream, nor what lies below adapters.
        assert trained == sum(p.numel() for p in parameters if p.requires_grad) <= count


@pytest.mark.parametrize("name", EXPORTED_AGAIN)
def test_export_gives_the_same_bytes(name, tmp_path):
    spec = zoo.get(name)
    path = tmp_path / f"{name}.json.gz"
    heterog.export_training_step(
        spec.factory, spec.make_inputs, spec.loss_fn, spec.optimizer, name
    ).save(path)
    committed = MODELS / path.name
    if path.read_bytes() != committed.read_bytes():
        with gzip.open(path, "rt") as new, gzip.open(committed, "rt") as old:
            assert new.read().splitlines() == old.read().splitlines()
        pytest.fail(f"{name}: the same lines, but other bytes")


@pytest.mark.parametrize("name", TINY)
def test_tiny_graph_runs_at_another_batch(name):
    """Every tensor of the step has the shape and dtype that the file says, and the loss is finite."""
    graph = graph_of(name)
    assert BATCH not in graph["traced_batches"]
    spec = zoo.get(name)
    torch.manual_seed(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = spec.factory()
    values = initial_values(graph, dict(model.named_parameters()) | dict(model.named_buffers()))
    inputs = dict(zip(data_inputs(graph), spec.make_inputs(BATCH), strict=True))
    values = given_values(graph, values, inputs, lr=0.1, step=1)
    seen = set()

    def observe(tensor_id, value):
        entry = graph["tensors"][tensor_id]
        assert list(value.shape) == shape_of(entry, BATCH), entry["name"]
        assert value.dtype == dtype_of(entry), entry["name"]
        seen.add(tensor_id)

    tensors = run(graph, values, BATCH, observe=observe)
    made = {o for op in graph["ops"] for o in op["outputs"] if o is not None}
    assert seen == made and made
    assert math.isfinite(tensors[graph["loss"]].item())


@pytest.mark.parametrize("name", TINY)
def test_tiny_graph_keeps_the_random_operators_of_its_model(name):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        modules = list(zoo.get(name).factory().modules())
    drops = any(isinstance(m, torch.nn.Dropout) and m.p > 0 for m in modules)
    drawn = any("dropout" in op["op"] for op in graph_of(name)["ops"])
    assert drops == drawn


def hand_made_step() -> dict:
    """x [B, 4] → relu → y [B, 4] → sum over the batch = gradient [4] → the parameter's update."""

    def tensor(name, role, shape, **more):
        return {"name": name, "role": role, "dtype": "float32", "shape": shape} | more

    return {
        "tensors": [
            tensor("x", "input", ["B", 4]),
            tensor("w", "parameter", [4]),
            tensor("m", "optimizer_state", [4]),
            tensor("y", "activation", ["B", 4]),
            tensor("z", "activation", [4, "B"]),
            tensor("g", "gradient", [4], of=1),
            tensor("s", "activation", [4]),
            tensor("n", "output", [4], replaces=1),
            tensor("loss", "output", []),
        ],
        "ops": [
            {"op": "aten.relu.default", "phase": "forward", "args": ["%0"], "outputs": [3]},
            {"op": "aten.t.default", "phase": "forward", "args": ["%3"], "outputs": [4]},
            {"op": "aten.sum.dim_IntList", "phase": "backward", "args": ["%4", [1]], "outputs": [5]},
            {"op": "aten.sum.default", "phase": "backward", "args": ["%4"], "outputs": [8]},
            {"op": "aten.mul.Tensor", "phase": "update", "args": ["%5", "%2"], "outputs": [6]},
            {"op": "aten.add.Tensor", "phase": "update", "args": ["%1", "%6"], "outputs": [7]},
        ],
    }


def test_peak_memory_of_a_step_made_by_hand():
    """At B = 10: x 160, w and m 16 each. y 160 lives, through its alias z, until the loss (4).

    In the graph's order y, the gradient 16 and the loss 4 meet: 192 + 160 + 16 + 4 = 372. With the
    update at once, s 16 is there beside y and g, and gone before the loss: 192 + 160 + 32 = 384.
    A device that keeps half of the state has 8 less.
    """
    model = memory.MemoryModel(hand_made_step())
    held, early = model.order(False), model.order(True)
    assert held == [0, 1, 2, 3, 4, 5]
    assert early == [0, 1, 2, 4, 5, 3]
    assert model.peak(10, held) == 372
    assert model.peak(10, early) == 384
    assert model.peak(10, early, state_share=0.5) == 376


def test_slices_by_largest_remainder():
    """48 samples by 2 : 1 over 2 fast and 6 slow devices: 9.6 and 4.8; the six get the remainder."""
    assert memory.slices(48, memory.EIGHT, False) == {"V100": 6, "GTX1080Ti": 6, "P100": 6}
    assert memory.slices(48, memory.EIGHT, True) == {"V100": 9, "GTX1080Ti": 5, "P100": 5}
    assert memory.slices(24, memory.EIGHT, True) == {"V100": 5, "GTX1080Ti": 3, "P100": 2}


def test_graph_files_are_plain_json_of_this_format():
    for path in MODELS.glob("*-tiny.json.gz"):
        graph = json.loads(gzip.decompress(path.read_bytes()))
        assert (graph["format"], graph["version"]) == ("heterog-graph", 1)
        assert graph["name"] == path.name.removesuffix(".json.gz")
