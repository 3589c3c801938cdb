"""Verbs as functions: the program's results to the byte, its refusals to the word, in a process
that goes on as it was."""

import dataclasses
import inspect
import json
import logging
import os
import pickle
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import runner_support  # noqa: F401  skips where nothing is built
import torch
from program import ROOT, error_of_program, run_program, started
from torch import nn

import heterog
from heterog.base.run_verb import run_verb

GRAPH = str(ROOT / "tests/data/mlp_sgd.json.gz")
CLUSTER = str(ROOT / "configs/clusters/local-2cpu.json")
TINY = str(ROOT / "models/vgg19-tiny.json.gz")
CARDS = str(ROOT / "configs/clusters/heterog-4gpu.json")
SMALL = {"machines": [{"name": "a", "devices": [{"model": "T4", "memory_bytes": 850_000_000}]}]}


@pytest.fixture(scope="module")
def found() -> heterog.Plan:
    return heterog.plan(TINY, CARDS, 32, planner="portfolio", evaluations=300, seed=5)


def _words(verb, graph, cluster, **options):
    words = [verb, "--graph", graph, "--cluster", cluster]
    for name, value in options.items():
        words += [f"--{name.replace('_', '-')}", str(value)]
    return words


def test_a_plan_is_that_of_the_program_to_the_byte(found, tmp_path):
    out = tmp_path / "plan.json"
    there = run_program(
        _words("plan", TINY, CARDS, batch=32, planner="portfolio", evaluations=300, seed=5, out=out)
    )
    assert found.text == out.read_text()
    assert found.step_seconds == there["step_seconds"] and found.feasible
    assert found.planner == there["planner"] and found.evaluations == there["evaluations"]
    assert [dataclasses.asdict(baseline) for baseline in found.baselines] == there["baselines"]
    assert {baseline.name for baseline in found.baselines} >= {"ev-ar", "cp-ps", "horovod"}
    first = found.simulation.devices[0]
    assert first.memory.parameters_bytes == there["devices"][0]["memory"]["parameters_bytes"]
    saved = tmp_path / "saved.json"
    found.save(saved)
    assert saved.read_text() == found.text


def test_a_plan_is_carried_over_to_another_batch(found, tmp_path):
    again = heterog.plan(TINY, CARDS, 64, start=found, evaluations=30)
    out = tmp_path / "plan.json"
    words = _words("plan", TINY, CARDS, batch=64, evaluations=30, out=out)
    found.save(tmp_path / "old.json")
    run_program([*words, "--from", str(tmp_path / "old.json")])
    assert again.text == out.read_text()
    assert again.planner.split(" + ")[0] in ("carried", "cp-ar")
    again = heterog.plan(TINY, CARDS, 32, evaluations=300, seed=5, threads=1, out=tmp_path / "t.json")
    assert (tmp_path / "t.json").read_text() == again.text == found.text


def test_every_verb_says_what_the_program_says(found, tmp_path):
    path = tmp_path / "plan.json"
    found.save(path)

    def program(verb, **options):
        return run_program(_words(verb, TINY, CARDS, **options))

    there = program("simulate", plan=path, order="fifo")
    here = heterog.simulate(TINY, CARDS, found, order="fifo", check=True)
    assert here.checked and here.step_seconds == there["step_seconds"]
    assert [link.bytes for link in here.links] == [link["bytes"] for link in there["links"]]

    there = program("explain", plan=path)
    here = heterog.explain(TINY, CARDS, path)
    assert [stretch.what for stretch in here.stretches] == [s["what"] for s in there["stretches"]]
    assert here.bounds == there["bounds"] and list(here.critical_path) == there["critical_path"]
    assert list(here.decisions) == there["decisions"]

    there = program("compare", batch=32, planner="random", evaluations=50, seed=2)
    here = heterog.compare(TINY, CARDS, 32, planners=["random"], evaluations=50, seed=2)
    for mine, theirs in zip(here.planners, there["planners"], strict=True):
        theirs["plan_seconds"] = mine.plan_seconds
        assert dataclasses.asdict(mine) == theirs
    assert here.best().step_seconds == min(row["step_seconds"] for row in there["planners"])

    file = tmp_path / "shares.json"
    there = program("shares", batch=32, out=file)
    here = heterog.shares(TINY, CARDS, 32)
    assert here.text == file.read_text()
    assert list(here.samples_per_rank) == there["samples_per_rank"]
    assert here.even.step_seconds == there["even"]["step_seconds"]

    there = program("verify", plan=path, steps=1)
    here = heterog.verify(TINY, CARDS, found, steps=1)
    assert here.passed and here.compared == there["compared"]
    assert [worst.relative for worst in here.worst] == [w["relative"] for w in there["worst"]]


def test_a_plan_for_an_engine_has_the_free_one_beside_it():
    plan = heterog.plan(TINY, CARDS, 32, engine="ddp", planner="spp")
    assert plan.planner == "for ddp"
    assert plan.free is not None and plan.free.step_seconds <= plan.step_seconds
    assert heterog.plan(TINY, CARDS, 32, planner="ev-ar").free is None


def test_refusals_are_the_programs_to_the_word(found, tmp_path):
    cases = [
        (heterog.plan, ("nowhere.json.gz", CLUSTER, 8), {}),
        (heterog.plan, (GRAPH, "nowhere.json", 8), {}),
        (heterog.plan, (GRAPH, CLUSTER, "x"), {}),
        (heterog.plan, (GRAPH, CLUSTER, 8), {"planner": "nobody"}),
        (heterog.plan, (GRAPH, CLUSTER, 8), {"planner": "random:speed=3"}),
        (heterog.plan, (GRAPH, CLUSTER, 8), {"collectives": "x"}),
        (heterog.plan, (GRAPH, CLUSTER, 8), {"evaluations": 0}),
        (heterog.plan, (GRAPH, CLUSTER, 8), {"evaluations": 5, "budget": 1.0}),
        (heterog.shares, (GRAPH, CLUSTER, 8), {"planner": "x"}),
        (heterog.verify, (GRAPH, CLUSTER), {}),
        (heterog.verify, (GRAPH, CLUSTER), {"planner": "ev-ar"}),
    ]
    for function, arguments, options in cases:
        with pytest.raises(heterog.InputError) as caught:
            function(*arguments, **options)
        words = _words(function.__name__, *arguments[:2], **options)
        words += ["--batch", arguments[2]] if len(arguments) > 2 else []
        words += ["--out", str(tmp_path / "o")] if function in (heterog.plan, heterog.shares) else []
        ended = started([str(word) for word in words])
        assert ended.returncode == caught.value.code == 2
        assert str(caught.value) == error_of_program(ended)
    with pytest.raises(heterog.InputError, match="plan.json: made for the graph|is for|made for"):
        heterog.simulate(GRAPH, CARDS, found)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((3, CLUSTER, 8), "graph: int given; it is the path of a graph"),
        (({"tensors": 3}, CLUSTER, 8), "graph: the dict is no graph"),
        ((GRAPH, 3, 8), "cluster: 3; give the path of a cluster file"),
        ((GRAPH, CLUSTER, [8]), r"batch: \[8\]; it is a word or a number"),
        ((GRAPH, CLUSTER, object()), "batch: .*; it is a word or a number"),
        ((GRAPH + "\0", CLUSTER, 8), "null character"),
    ],
)
def test_what_is_no_argument_is_named(arguments, message):
    with pytest.raises(heterog.InputError, match=message) as caught:
        heterog.plan(*arguments)
    assert "\n" not in str(caught.value)


def test_one_family_of_errors_by_their_codes():
    for code, kind in ((1, heterog.InternalError), (2, heterog.InputError), (3, heterog.NothingFits),
                       (4, heterog.RunFailed), (9, heterog.InternalError)):  # fmt: skip
        error = heterog.HeterogError("a\n b", code)
        assert type(error) is kind and error.code == code and str(error) == "a b"
        again = pickle.loads(pickle.dumps(error))
        assert type(again) is kind and again.code == code and str(again) == "a b"
    assert type(heterog.HeterogError("x")) is heterog.InputError
    assert heterog.NothingFits("x").code == 3
    assert issubclass(heterog.ExportError, heterog.InputError)


def test_what_does_not_fit_comes_with_the_closest():
    with pytest.raises(heterog.NothingFits, match="a/gpu0 lacks") as caught:
        heterog.plan(TINY, SMALL, 1_000_000, planner="single")
    closest = caught.value.result
    assert isinstance(closest, heterog.Plan) and not closest.feasible
    assert closest.simulation.reason.device == "a/gpu0"
    assert closest._repr_html_().startswith("<table>")
    with pytest.raises(heterog.InputError, match="does not fit"):
        os.fspath(closest)
    with pytest.raises(heterog.NothingFits) as caught:
        heterog.shares(TINY, SMALL, 1_000_000)
    closest = caught.value.result  # in parts as small as are tried
    assert closest.samples_per_rank == (1_000_000 // closest.micro_batches,)
    assert closest.micro_batches > 1


def test_a_verification_that_fails_says_what_differs():
    with pytest.raises(heterog.RunFailed, match="does not train as one device") as caught:
        heterog.verify(TINY, CARDS, planner="ev-ar", batch=16, steps=1, tolerance=1e-18)
    failed = caught.value.result
    assert not failed.passed and max(worst.relative for worst in failed.worst) > 1e-18


def test_steps_and_devices_as_a_program_has_them(found, tmp_path):
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 4))
    step = heterog.export_training_step(
        model, lambda b: (torch.randn(b, 6), torch.randn(b, 4)),
        lambda m, x, y: (m(x) - y).square().mean(), torch.optim.SGD(model.parameters(), lr=0.1), "m",
    )  # fmt: skip
    step.save(tmp_path / "m.json.gz")
    texts = {
        heterog.plan(graph, devices, 8, planner="cp-ar").text
        for graph in (step, step.graph, tmp_path / "m.json.gz")
        for devices in (["T4", "V100-PCIE-16GB"],)
    }
    assert len(texts) == 1 and json.loads(texts.pop())["batch"] == 8
    # A plan stands for its file.
    plan = heterog.plan(step, "cpu:2", 8, planner="ev-ar")
    with heterog.get_runner(
        model, lambda b: (torch.randn(b, 6), torch.randn(b, 4)),
        lambda m, x, y: (m(x) - y).square().mean(), torch.optim.SGD(model.parameters(), lr=0.1),
        "cpu:2", {"plan": plan, "cache": str(tmp_path), "name": "m"},
    ) as runner:  # fmt: skip
        assert runner.batch == 8 and runner.predicted_step_seconds == plan.step_seconds
    shares = heterog.shares(step, "cpu:2", 8)
    sampler = heterog.UnevenBatchSampler(64, shares, rank=0)
    assert sampler.samples_per_rank == list(shares.samples_per_rank)


def test_results_are_tables_and_pages(found, monkeypatch):
    page = found._repr_html_()
    assert page.startswith("<iframe srcdoc=") and page.count('"') == 8  # nothing unescaped within
    assert "&lt;script&gt;" in page and "vgg19" in page
    rows = heterog.compare(TINY, CARDS, 32, planners="ev-ar")
    table = rows._repr_html_()
    assert table.count("<tr>") == len(rows.planners) + 1 and "horovod" in table
    assert [row["device"] for row in found.rows()] == [d.name for d in found.simulation.devices]
    with pytest.raises(dataclasses.FrozenInstanceError):
        found.order = "fifo"
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(heterog.InputError, match="pandas is not installed"):
        rows.to_frame()


def test_every_setting_is_documented():
    # Help of the editor is all that many read.
    for function in (heterog.plan, heterog.simulate, heterog.compare, heterog.shares, heterog.verify):
        for name in inspect.signature(function).parameters:
            if name not in ("graph", "cluster", "profiles", "collectives", "batch"):
                known = function.__doc__ + heterog.plan.__doc__
                assert re.search(rf"\b{name}\b", known), (function, name)
    for field in dataclasses.fields(heterog.RunnerConfig):
        assert re.search(rf"^    {field.name}  ", heterog.RunnerConfig.__doc__, re.M), field.name


def test_frames():
    pandas = pytest.importorskip("pandas")
    frame = heterog.shares(TINY, CARDS, 32).to_frame()
    assert isinstance(frame, pandas.DataFrame) and frame["samples"].sum() == 32


def test_the_process_goes_on_as_it_was(capfd, monkeypatch):
    for name, value in (("RANK", "1"), ("WORLD_SIZE", "2"), ("MASTER_ADDR", "x"), ("MASTER_PORT", "1")):
        monkeypatch.setenv(name, value)
    torch.manual_seed(3)
    torch.set_default_dtype(torch.float64)
    try:
        before = (torch.get_num_threads(), torch.get_rng_state(), dict(os.environ))
        handler = signal.getsignal(signal.SIGINT)
        heterog.plan(TINY, CARDS, 32, evaluations=100)
        heterog.verify(TINY, CARDS, planner="cp-ar", batch=16, steps=1)
        threads, state, environment = before
        assert torch.get_num_threads() == threads and dict(os.environ) == environment
        assert torch.equal(torch.get_rng_state(), state)
        assert torch.get_default_dtype() == torch.float64
    finally:
        torch.set_default_dtype(torch.float32)
    assert signal.getsignal(signal.SIGINT) is handler
    out, err = capfd.readouterr()
    assert out == "" and err == ""


def test_what_is_found_is_logged_where_somebody_wants_it(caplog):
    with caplog.at_level(logging.WARNING, "heterog"):
        heterog.plan(TINY, CARDS, 32, evaluations=100)
    assert not caplog.records
    with caplog.at_level(logging.DEBUG, "heterog"):
        heterog.plan(TINY, CARDS, 32, evaluations=100)
    levels = {record.levelno for record in caplog.records}
    assert levels == {logging.INFO, logging.DEBUG}
    assert any("ops in" in record.message for record in caplog.records)


def test_threads_wait_for_each_other_and_python_goes_on(found):
    texts = []
    ticks = 0

    def one():
        texts.append(heterog.plan(TINY, CARDS, 32, evaluations=300, seed=5).text)

    threads = [threading.Thread(target=one) for _ in range(3)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        ticks += 1
        time.sleep(0.001)
    assert texts == [found.text] * 3 and ticks > 3


ENDLESS = """
import sys, heterog
from heterog.base.native import LOGGER, load_library
try:
    print("begins", flush=True)
    heterog.plan(sys.argv[1], sys.argv[2], 32, budget=1e6)
except KeyboardInterrupt:
    print("interrupted", flush=True)
heterog.plan(sys.argv[1], sys.argv[2], 32, planner="ev-ar")
print("goes on")
"""


def test_ctrl_c_ends_a_verb(tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-c", ENDLESS, TINY, CARDS], stdout=subprocess.PIPE, text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT / "python")},
    )  # fmt: skip
    try:
        assert process.stdout.readline() == "begins\n"
        time.sleep(0.3)
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=300)
        assert out == "interrupted\ngoes on\n" and process.returncode == 0
    finally:
        process.kill()
        process.wait()


def test_the_library_has_no_verb_that_starts_processes():
    for verb in ("run", "train", "finetune", "profile"):
        with pytest.raises(heterog.InputError, match=f'no verb "{verb}" in the library'):
            run_verb([verb])


def test_files_of_any_name(tmp_path):
    plan = heterog.plan(TINY, CARDS, 32, planner="ev-ar")
    names = ["-x.json", "a b=c.json", "ü.json", os.fsdecode(b"\xff.json")]
    here = Path.cwd()
    os.chdir(tmp_path)
    try:
        for name in names:
            plan.save(name)
            assert heterog.simulate(TINY, CARDS, name).step_seconds == plan.step_seconds
    finally:
        os.chdir(here)
