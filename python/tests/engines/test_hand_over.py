"""From a model to its training in stages: exported, planned, handed over, and run."""

import json
from pathlib import Path

import engine_cases as cases
import pytest
import torch
from program import run_program
from rounds import thorough

import heterog


NAMES = ["gpt2", "llama", "llama_lora"]


@pytest.fixture(scope="module")
def graphs(tmp_path_factory):
    """The path of each case's training step."""
    folder = tmp_path_factory.mktemp("graphs")
    paths = {}
    for name in NAMES:
        model = cases.build(name)

        def loss_fn(model, words):
            return cases.loss_fn(model(input_ids=words, use_cache=False), words)

        step = heterog.export_training_step(
            model, lambda b: (torch.randint(0, cases.WORDS, (b, cases.LENGTH)),), loss_fn,
            cases.optimizer(model.parameters()), name, batches=[2, 3, 8], check=False,
        )  # fmt: skip
        paths[name] = str(folder / f"{name}.json.gz")
        step.save(paths[name])
    return paths


def handed_over(folder, graph, name, world):
    """The files that `heterog hand-over` writes of a plan of the case's model: of GPT-2 its gradients of
    parameters are put off, which a file says alone."""
    fabric = {"kind": "switch", "bandwidth_bytes_per_second": 1e10, "latency_seconds": 1e-5}
    devices = [{"model": "V100-PCIE-16GB", "count": world}]
    cluster = {"format": "heterog-cluster", "version": 1, "name": "cards",
               "machines": [{"name": "box", "devices": devices, "fabric": fabric}]}  # fmt: skip
    (folder / "cards.json").write_text(json.dumps(cluster))
    problem = ["--graph", graph, "--cluster", f"{folder}/cards.json", "--batch", str(cases.BATCH)]
    plan, out = f"{folder}/{name}.plan.json", f"{folder}/{name}.stages.json"
    # Rounded, or for the engine already; of three cards that may leave one out, and each rank needs a stage.
    words = ["--planner", f"spp:stages={world},micro_batches=4" + ",gradients=put-off" * (name == "gpt2")]
    if world == 4:
        words = ["--planner", "spp:stages=2,micro_batches=2" + ",gradients=put-off" * (name == "gpt2")]
    if name == "llama_lora" and world == 2:
        words = ["--for", "torch-pipelining", "--planner", "ev-ar"]
    run_program(["plan", *problem, *words, "--out", plan])
    csv = None if name == "llama" else f"{folder}/{name}.csv"
    order = ["--schedule-csv", csv] if csv else []
    run_program(["hand-over", *problem, "--plan", plan, "--to", "torch-pipelining", "--out", out, *order])
    return out, csv


def check_order(path, stages, micro_batches, kinds):
    """Every pass once, of a micro-batch in the order of `kinds`."""
    rows = [line.split(",") for line in path.read_text(encoding="utf-8").splitlines()]
    assert len(rows) == stages
    for stage, row in enumerate(rows):
        places = [[row.index(f"{stage}{kind}{m}") for kind in kinds] for m in range(micro_batches)]
        assert len(row) == len(kinds) * micro_batches and all(p == sorted(p) for p in places)


@pytest.mark.parametrize("world", thorough([2, 3, 4], but={2, 4}))
def test_a_plan_of_a_model_trains_it(graphs, tmp_path, world):
    files = {name: handed_over(tmp_path, graphs[name], name, world) for name in NAMES}
    torch.multiprocessing.spawn(cases.of_files, (world, str(tmp_path), files), nprocs=world)
    ranks = [torch.load(tmp_path / f"{rank}.pt", weights_only=False) for rank in range(world)]
    for name in NAMES:
        out, csv = files[name]
        with open(out, encoding="utf-8") as file:
            handed = json.load(file)
        assert all(stage["modules"] for stage in handed["stages"])
        assert handed["schedule"] == ("csv" if name == "gpt2" else "Schedule1F1B")
        assert len(handed["samples"]) == (2 if world == 4 else 1)
        if csv:
            kinds = "FIW" if name == "gpt2" else "FB"
            check_order(Path(csv), len(handed["stages"]), handed["micro_batches"], kinds)
        losses, gradients, parameters = cases.whole(name)
        found = [one[name] for one in ranks]
        for one in found:
            assert one["losses"] == pytest.approx(losses, rel=1e-12)
            for what, expected in (("gradients", gradients), ("parameters", parameters)):
                for key, value in one[what].items():
                    assert (value - expected[key]).norm() <= 1e-12 * expected[key].norm(), (what, key)
        assert set().union(*(one["parameters"] for one in found)) == parameters.keys()
