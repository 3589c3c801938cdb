"""Profiles of other planners, imported: costs and sizes are theirs, and the step can be run."""

import json

import pytest
from program import run_program

from heterog.base.errors import HeterogError
from heterog.export.graph.writer import read_graph
from heterog.profiles import command as import_profile, layer_graph, quickp

PIPEDREAM = """\
node1 -- Input0 -- forward_compute_time=0.000, backward_compute_time=0.000, activation_size=0.000, parameter_size=0.000
node2 -- Linear(in=8) -- forward_compute_time=1.500, backward_compute_time=3.000, activation_size=4096.000, parameter_size=2048.000
node3 -- ReLU(inplace) -- forward_compute_time=0.500, backward_compute_time=0.500, activation_size=[4096.0; 1024.0], parameter_size=0.000
node4 -- Add -- forward_compute_time=0.250, backward_compute_time=0.000, activation_size=4096.000, parameter_size=1024.000
\tnode1 -- node2
\tnode2 -- node3
\tnode2 -- node4
\tnode3 -- node4
"""


def _partitioning() -> dict:
    def node(i, latency, backward=False, **more):
        return {"id": i, "name": f"n{i}", "fpgaLatency": latency, "isBackwardNode": backward,
                "size": 4096.0} | more  # fmt: skip

    nodes = [node(1, 1.0, colorClass=1), node(2, 2.0, colorClass=2, size=6144.0),
             node(3, 3.0, True, colorClass=2), node(4, 1.5, True)]  # fmt: skip
    edges = [{"sourceId": a, "destId": b, "size": 4096.0} for a, b in ((1, 2), (2, 3), (3, 4))]
    return {"nodes": nodes, "edges": edges}


@pytest.fixture
def imported(tmp_path):
    source = tmp_path / "small.graph.txt"
    source.write_text(PIPEDREAM)
    graph, profile = tmp_path / "small.json.gz", tmp_path / "small.profile.json"
    arguments = [source, "--format", "pipedream", "--batch", 16, "--device", "V100-PCIE-16GB", "--out",
                 graph, "--profile", profile]  # fmt: skip
    assert import_profile.main([str(argument) for argument in arguments]) == 0
    cluster = tmp_path / "cluster.json"
    machine = {"name": "m", "count": 2, "devices": [{"model": "V100-PCIE-16GB"}],
               "nic": {"link": "10gbe-tcp"}}  # fmt: skip
    cluster.write_text(json.dumps({"format": "heterog-cluster", "version": 1, "name": "two",
                                   "machines": [machine]}))  # fmt: skip
    return ["--graph", str(graph), "--cluster", str(cluster), "--profile", str(profile)]


def test_one_device_takes_what_the_profile_adds_up_to(imported, tmp_path):
    plan = tmp_path / "plan.json"
    run_program(["plan", *imported, "--batch", "16", "--planner", "single:m-0/gpu0", "--out", str(plan)])
    step = json.loads(plan.read_text())["predicted"]["step_seconds"]
    assert step == pytest.approx(5.75e-3, rel=1e-4)


def test_sizes_are_those_of_the_profile(imported):
    tensors = {tensor["name"]: tensor for tensor in read_graph(imported[1])["tensors"]}
    assert tensors["node2/weight"]["shape"] == [512]
    assert tensors["node2/output"]["shape"] == ["B", 4096 // 4 // 16]
    assert tensors["node3/output"]["shape"] == ["B", 5120 // 4 // 16]  # both of its outputs
    assert tensors["node4/cat"]["shape"] == ["B", 64 + 80]


@pytest.mark.parametrize("planner", ["ev-ar", "ev-ps", "spp:micro_batches=3,stages=2", "random"])
def test_it_trains_as_one_device(imported, planner):
    run_program(["verify", *imported, "--batch", "16", "--planner", planner])


def test_classes_give_backward_times(tmp_path):
    source = tmp_path / "small.json"
    source.write_text(json.dumps(_partitioning()))
    first, second = layer_graph.read_partitioning(source)
    assert (first.name, second.inputs) == ("n1_1", ["n1_1"])
    # What has no class counts for all, by their forward times.
    assert first.backward_seconds == pytest.approx(0.5e-3)
    assert second.backward_seconds == pytest.approx(3e-3 + 1e-3)
    assert (first.parameter_bytes, second.parameter_bytes) == (0, 2048)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("node1 -- X\n", "graph.txt:1: 'node1 -- X', expected"),
        (PIPEDREAM + "\tnode4 -- node9\n", "graph.txt:9: no node 'node9'"),
        (PIPEDREAM + "\tnode4 -- node2\n", "expected no circles"),
        ("", "no nodes"),
        (PIPEDREAM.replace("=1.500", "=1.5.0"), "graph.txt:2: node 'node2': '1.5.0', expected a number from 0"),
        (PIPEDREAM.replace("=2048.000", "=1e999"), "'1e999', expected a number from 0"),
        (PIPEDREAM.replace("node3 -- R", "node2 -- R"), "graph.txt:3: node 'node2' stands twice"),
    ],
)
def test_what_is_no_graph_is_refused(tmp_path, capsys, text, said):
    source = tmp_path / "graph.txt"
    source.write_text(text)
    out = str(tmp_path / "x.json.gz")
    arguments = [str(source), "--format", "pipedream", "--batch", "16", "--device", "CPU", "--out", out,
                 "--profile", str(tmp_path / "x.json")]  # fmt: skip
    assert import_profile.main(arguments) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "x.json.gz").exists()


def test_what_lacks_a_field_is_refused(tmp_path):
    graph = _partitioning()
    del graph["nodes"][1]["fpgaLatency"]
    source = tmp_path / "small.json"
    source.write_text(json.dumps(graph))
    with pytest.raises(HeterogError, match=r'nodes\[1\]: the field "fpgaLatency" is missing'):
        layer_graph.read_partitioning(source)


def test_a_graph_of_inference_is_refused(tmp_path):
    graph = _partitioning()
    graph["nodes"] = graph["nodes"][:2]
    graph["edges"] = graph["edges"][:1]
    source = tmp_path / "small.json"
    source.write_text(json.dumps(graph))
    with pytest.raises(HeterogError, match="expected a training graph"):
        layer_graph.read_partitioning(source)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"id": [1]}, r"nodes\[0\].id: expected a whole number"),
        ({"colorClass": {}}, r"nodes\[0\].colorClass: expected a whole number"),
        ({"fpgaLatency": True}, r"nodes\[0\].fpgaLatency: expected a number from 0 to 1e\+12, found true"),
        ({"size": 1e300}, r"nodes\[0\].size: expected a number from 0"),
        ({"id": 2}, r"nodes\[1\].id: 2 stands twice"),
    ],
)
def test_values_that_are_none_are_refused(tmp_path, changed, said):
    graph = _partitioning()
    graph["nodes"][0] |= changed
    source = tmp_path / "small.json"
    source.write_text(json.dumps(graph))
    with pytest.raises(HeterogError, match=said):
        layer_graph.read_partitioning(source)


def test_long_graphs_take_no_square_of_their_length(tmp_path):
    """A chain of 20,000 nodes, the last one first: a search a node would take minutes."""
    count = 20_000
    nodes = [{"id": i, "fpgaLatency": 1, "size": 4, "isBackwardNode": False} for i in range(count)]
    nodes.append({"id": count, "fpgaLatency": 1, "size": 4, "isBackwardNode": True})
    edges = [{"sourceId": i + 1, "destId": i, "size": 4} for i in range(count - 1)]
    source = tmp_path / "long.json"
    source.write_text(json.dumps({"nodes": nodes, "edges": edges}))
    layers = layer_graph.read_partitioning(source)
    assert [layer.name for layer in layers[:2]] == [f"node_{count - 1}", f"node_{count - 2}"]
    assert layers[1].inputs == [layers[0].name]


def _quickp() -> dict:
    def node(name, kind, microseconds):
        return {"id": name, "op_type": kind, "mem": 0,
                "comp_cost": {"device_0": microseconds, "device_1": microseconds / 2}}  # fmt: skip

    nodes = [node("x", "Placeholder", 0.0), node("w", "ReadVariableOp", 0.0), node("net/a/mul", "MatMul", 30.0),
             node("net/a/add", "AddV2", 10.0), node("net/b/mul", "MatMul", 60.0), node("metric", "Equal", 5.0),
             node("gradient_tape/net/b/mul/mul_1", "MatMul", 90.0), node("gradient_tape/net/a/x", "Sum", 40.0),
             node("gradient_tape/other", "Mul", 20.0), node("adam/Sub", "Sub", 7.0)]  # fmt: skip
    links = [("x", "net/a/mul", 4096), ("w", "net/a/mul", 8192), ("net/a/mul", "net/a/add", 2048),
             ("net/a/add", "net/b/mul", 2048), ("net/a/add", "metric", 4096),
             ("net/b/mul", "gradient_tape/net/b/mul/mul_1", 1024),
             ("gradient_tape/net/b/mul/mul_1", "gradient_tape/net/a/x", 1024),
             ("gradient_tape/net/a/x", "adam/Sub", 1024)]  # fmt: skip
    return {"nodes": nodes,
            "links": [{"source": a, "target": b, "tensor_size_in_bit": bits} for a, b, bits in links]}  # fmt: skip


def test_scopes_give_backward_times(tmp_path):
    """Of 100 us forward, 20 us that name no layer are spread in proportion."""
    source = tmp_path / "quickp.json"
    source.write_text(json.dumps(_quickp()))
    first, second, third = quickp.read_quickp(source)
    assert [layer.name for layer in (first, second, third)] == ["net/a/mul", "net/a/add", "net/b/mul"]
    assert first.forward_seconds == pytest.approx(30e-6)
    assert first.backward_seconds == pytest.approx(30e-6 + 6e-6)
    assert second.backward_seconds == pytest.approx(10e-6 + 2e-6)
    assert third.backward_seconds == pytest.approx(90e-6 + 12e-6)
    assert (first.parameter_bytes, second.parameter_bytes) == (1024, 0)
    assert (first.output_bytes, second.output_bytes, third.output_bytes) == (256, 512, 128)
    assert (first.inputs, second.inputs, third.inputs) == ([], ["net/a/mul"], ["net/a/add"])


@pytest.mark.parametrize(
    "changed, said",
    [
        (lambda graph: graph["nodes"].append(graph["nodes"][0]), "nodes[10].id: 'x' stands twice"),
        (lambda graph: graph["nodes"][0]["comp_cost"].update(device_0=-1.0), "nodes[0].comp_cost"),
        (lambda graph: graph["nodes"][0].update(comp_cost={}), "nodes[0].comp_cost: no device"),
        (lambda graph: graph["links"][0].update(source="y"), "links[0]: no node 'y'"),
        (lambda graph: graph["links"][0].pop("tensor_size_in_bit"), "tensor_size_in_bit"),
        (lambda graph: graph.update(links=[]), "expected a training graph"),
    ],
)  # fmt: skip
def test_what_is_no_graph_of_quickp_is_refused(tmp_path, changed, said):
    graph = _quickp()
    changed(graph)
    source = tmp_path / "quickp.json"
    source.write_text(json.dumps(graph))
    with pytest.raises(HeterogError) as error:
        quickp.read_quickp(source)
    assert said in str(error.value)
