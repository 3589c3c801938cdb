"""Timings of DistributedDataParallel become profiles: what was made by the cost model times a factor gives
that factor back, and so does a link of a part of its bandwidth."""

import json
import math
import re

import pytest
from program import ROOT, run_program

import heterog
from heterog.base.errors import InputError
from heterog.profiles import timings_command
from heterog.profiles.believed import AllReduce, make_problem, op_times, step_seconds
from heterog.profiles.timed_costs import import_timings
from heterog.uneven.fair_shares import StepTime
from heterog.uneven.kept_shares import Training, write_kept
from heterog.uneven.shares_found import Found
from heterog.uneven.step_times import BUCKET

GRAPH = str(ROOT / "models/lenet5-tiny.json.gz")
SLOW_LINK, LATENCY = 2e6, 13.5e-6  # at which latencies are little of an all-reduce of 14 kB
TWO = [("CPU", 1), ("CPU-slow", 1)]


def write_cluster(folder, devices=TWO, bandwidth: float = SLOW_LINK) -> str:
    path = folder / f"cluster-{len(devices)}-{bandwidth:g}.json"
    fabric = {"kind": "switch", "bandwidth_bytes_per_second": bandwidth, "latency_seconds": LATENCY}
    machine = {"name": "here", "devices": [{"model": model, "count": count} for model, count in devices],
               "fabric": fabric}  # fmt: skip
    path.write_text(json.dumps({"format": "heterog-cluster", "version": 1, "name": "two", "machines": [machine]}))
    return str(path)


def believed(problem, rank: int, samples: int, update: bool) -> float:
    times = op_times(problem, list(problem.devices)[rank], samples)
    return sum(times.of_op.values()) + (times.update if update else 0.0)


@pytest.fixture
def made(tmp_path):
    """Timings as they would be if ranks took so many times what is believed, and links had so many times
    their bandwidth."""

    def make(factors, sizes=(32,), bandwidth: float = 1.0, update: bool = True, devices=TWO, **changed) -> tuple:
        cluster = write_cluster(tmp_path, devices)
        problem = make_problem(GRAPH, cluster, len(factors) * sizes[0], tmp_path)
        nbytes = sum(4 * math.prod(one["shape"]) for one in problem.contents["tensors"] if one["role"] == "parameter")
        other = write_cluster(tmp_path, devices, SLOW_LINK * bandwidth)
        reducing = AllReduce(other, len(factors), nbytes, BUCKET, tmp_path).taken().seconds
        ranks = []
        for rank, factor in enumerate(factors):
            passes = [{"samples": samples, "seconds": factor * believed(problem, rank, samples, update)}
                      for samples in sizes]  # fmt: skip
            ranks.append({"device": list(problem.devices.values())[rank], "passes": passes})
        fields = {"format": "heterog-ddp-timings", "version": 1, "gradient_bytes": nbytes,
                  "all_reduce_seconds": reducing, "update": update, "ranks": ranks}  # fmt: skip
        timings = tmp_path / "timings.json"
        timings.write_text(json.dumps(fields | changed))
        return str(timings), cluster, problem

    return make


@pytest.mark.parametrize("update", [True, False])
def test_ratios_and_bandwidths_come_back(made, tmp_path, update):
    timings, cluster, problem = made([1.0, 1.5], (32, 8), 0.5, update)
    found = import_timings(timings, GRAPH, cluster, tmp_path / "costs")
    assert found.ratios["CPU"] == pytest.approx({8: 1.0, 32: 1.0})
    assert found.ratios["CPU-slow"] == pytest.approx({8: 1.5, 32: 1.5})
    assert set(found.links.times) == {f"here/gpu{i}.{way}" for i in (0, 1) for way in ("in", "out")}
    assert list(found.links.times.values()) == pytest.approx([0.5] * 4, rel=1e-4)
    assert found.links.after == pytest.approx(found.links.measured, rel=1e-5)
    names = [file.name for file in found.files]
    assert names == ["CPU.profile.json", "CPU-slow.profile.json", "links.profile.json"]
    # Also at sizes that nobody timed, and as planning reads it.
    for device, factor in (("here/gpu0", 1.0), ("here/gpu1", 1.5)):
        for samples in (5, 32, 90):
            given = ["plan", "--graph", GRAPH, "--cluster", cluster, "--batch", str(samples), "--planner",
                     f"single:{device}", "--out", str(tmp_path / "plan.json")]  # fmt: skip
            before = run_program(given)["step_seconds"]
            after = run_program([*given, *(f"--profile={file}" for file in found.files)])["step_seconds"]
            assert after == pytest.approx(factor * before, rel=1e-3)
    # The links: a step with the halved bandwidth in the cluster file takes as long.
    other = make_problem(GRAPH, write_cluster(tmp_path, TWO, SLOW_LINK / 2), 64, tmp_path)
    shares = dict.fromkeys(problem.devices, 32)
    links, costs = found.files[2:], found.files[:2]
    assert step_seconds(problem, shares, links) == pytest.approx(step_seconds(other, shares), rel=1e-4)
    assert step_seconds(problem, shares, found.files) == pytest.approx(step_seconds(other, shares, costs), rel=1e-4)


def test_faster_links_come_back_too(made, tmp_path):
    timings, cluster, _ = made([1.0, 1.0], bandwidth=3.0)
    found = import_timings(timings, GRAPH, cluster, tmp_path / "costs")
    assert list(found.links.times.values()) == pytest.approx([3.0] * 4, rel=1e-4)


def test_the_slowest_link_alone_is_known(tmp_path):
    """Two NICs, the second a quarter as fast: an all-reduce of twice the time is its; one of a fifth says of
    the first that it is no slower than that."""
    nics = [{"bandwidth_bytes_per_second": bandwidth, "latency_seconds": 1e-6} for bandwidth in (8e6, 2e6)]
    machines = [{"name": name, "devices": [{"model": "CPU"}], "nic": nic} for name, nic in zip("ab", nics, strict=True)]
    cluster = tmp_path / "nics.json"
    cluster.write_text(json.dumps({"format": "heterog-cluster", "version": 1, "name": "nics", "machines": machines}))
    problem = make_problem(GRAPH, str(cluster), 64, tmp_path)
    nbytes = sum(4 * math.prod(one["shape"]) for one in problem.contents["tensors"] if one["role"] == "parameter")
    for times, first in ((2.0, {}), (0.2, {"a/nic.out", "a/nic.in"})):
        reducing = times * nbytes / 2e6
        timings = tmp_path / "timings.json"
        ranks = [{"device": "Some CPU", "passes": [{"samples": 32, "seconds": 0.1}]}] * 2
        timings.write_text(json.dumps({"format": "heterog-ddp-timings", "version": 1, "gradient_bytes": nbytes,
                                       "all_reduce_seconds": reducing, "ranks": ranks}))  # fmt: skip
        links = import_timings(timings, GRAPH, cluster, tmp_path / "costs").links
        assert links.after == pytest.approx(reducing, rel=1e-5)
        assert set(links.bandwidth) == {"b/nic.out", "b/nic.in", *first}
        slowest = nbytes / reducing
        assert list(links.bandwidth.values()) == pytest.approx([slowest] * len(links.bandwidth), rel=0.02)


def test_ranks_of_a_type_count_alike(made, tmp_path):
    timings, cluster, _ = made([2.0, 8.0, 1.0], devices=[("CPU", 2), ("CPU-slow", 1)])
    found = import_timings(timings, GRAPH, cluster, tmp_path / "costs")
    assert found.ratios == {"CPU": pytest.approx({32: 4.0}), "CPU-slow": pytest.approx({32: 1.0})}


def test_latencies_say_nothing_of_bandwidths(made, tmp_path, capsys):
    little = r"latencies and caps of the cluster file, which stay, are 0.013\d ms of it: it says nothing of bandwidths"
    for seconds, said in ((0, "no all-reduce was measured"), (1.9 * LATENCY, little)):
        timings, cluster, _ = made([1.0, 1.0], all_reduce_seconds=seconds)
        assert timings_command.main([timings, "--graph", GRAPH, "--cluster", cluster, "--out", str(tmp_path)]) == 0
        assert re.search(f"links stay as they are: {said}\n", capsys.readouterr().out)
        assert not (tmp_path / "links.profile.json").exists()


def test_a_step_is_predicted_by_what_was_measured(made, tmp_path, capsys):
    timings, cluster, problem = made([10.0, 20.0], (32, 8), step_seconds=0.1)
    arguments = [timings, "--graph", GRAPH, "--cluster", cluster, "--out", str(tmp_path / "costs")]
    assert timings_command.main(arguments) == 0
    said = capsys.readouterr().out
    shares = dict.fromkeys(problem.devices, 32)
    files = sorted((tmp_path / "costs").iterdir())
    before, after = step_seconds(problem, shares), step_seconds(problem, shares, files)
    assert after > 2 * before
    predicted = f"predicted {1e3 * before:.1f} ms before, {1e3 * after:.1f} ms now"
    assert f"a step of 32 32 samples: 100.0 ms measured; {predicted}" in said
    assert "CPU-slow: every operator takes what was believed 20.00 × at 8 samples, 20.00 × at 32 samples" in said
    # What it says to do next does it.
    command = said.splitlines()[-1].split()
    assert command[:2] == ["heterog", "plan"]
    run_program([*command[1:-1], str(tmp_path / "plan.json")])
    assert json.loads((tmp_path / "plan.json").read_text())["batch"] == 64


@pytest.mark.parametrize("accumulate", [1, 4])
def test_what_auto_shares_kept(made, tmp_path, accumulate):
    timings, cluster, problem = made([1.0, 1.0])
    nbytes = json.loads((tmp_path / "timings.json").read_text())["gradient_bytes"]
    micro = None if accumulate == 1 else 8
    times = [StepTime(0.1, 0.01, None, micro), StepTime(0.0, 0.02, None, micro)]
    training = Training(64, accumulate, nbytes, ("AMD EPYC", "AMD EPYC"), 1)
    write_kept(tmp_path / "kept.json", Found([40, 24], [32, 32], list(training.devices), times, 0.7, 0.6, 0.6, nbytes, 0.02),
               training, update=True)  # fmt: skip
    found = import_timings(tmp_path / "kept.json", GRAPH, cluster, tmp_path / "costs")
    timed = [(one.rank, one.samples, one.measured) for one in found.passes]
    if accumulate > 1:  # a pass of a micro-batch; steps are of several
        assert timed == [(0, 8, pytest.approx(0.18)), (1, 8, pytest.approx(0.16))]
        assert found.steps == []
        return
    assert timed == [(0, 32, pytest.approx(0.42)), (0, 40, pytest.approx(0.5)), (1, 32, 0.64), (1, 24, 0.48)]
    assert [(step.samples, step.measured) for step in found.steps] == [((32, 32), 0.7), ((40, 24), 0.6)]
    assert found.update
    ratio = found.ratios["CPU-slow"][24]
    assert ratio == pytest.approx(0.48 / believed(problem, 1, 24, update=True))
    planned = heterog.plan(GRAPH, cluster, 24, planner="single:here/gpu1", profiles=found.files)
    assert planned.simulation.step_seconds == pytest.approx(0.48, rel=1e-3)


def _rank(fields: dict, **changed) -> None:
    fields["ranks"][1].update(changed)


def _pass(fields: dict, **changed) -> None:
    fields["ranks"][1]["passes"][0].update(changed)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda f: f.update(format="heterog-shares"),
         "timings.json: format: expected 'heterog-ddp-timings' or 'heterog-measured-shares', found 'heterog-shares'"),
        (lambda f: f.update(version=2), "timings.json: version: expected 1, found 2"),
        (lambda f: f.pop("gradient_bytes"), 'timings.json: the field "gradient_bytes" is missing'),
        (lambda f: f.pop("all_reduce_seconds"), 'timings.json: the field "all_reduce_seconds" is missing'),
        (lambda f: f.pop("ranks"), 'timings.json: the field "ranks" is missing'),
        (lambda f: f.update(gradient_bytes=1000), "gradient_bytes: 1000, but the parameters of "),
        (lambda f: f.update(all_reduce_seconds=-1), "all_reduce_seconds: expected a number from 0 to 10000, found -1"),
        (lambda f: f.update(step_seconds=0), "step_seconds: expected more than 0 seconds, found 0"),
        (lambda f: f.update(update="yes"), "update: expected true or false, found 'yes'"),
        (lambda f: f["ranks"].pop(), "ranks: 1, but cluster 'two' has 2 devices"),
        (lambda f: f.update(ranks=[]), "ranks: expected at least one, found an empty list"),
        (lambda f: _rank(f, device="P100-PCIE-16GB"),
         "ranks[1].device: 'P100-PCIE-16GB', but device 1 of cluster 'two', here/gpu1, is of type CPU-slow"),
        (lambda f: _rank(f, device="Tesla T4"), "ranks[1].device: 'Tesla T4', but device 1 of cluster 'two'"),
        (lambda f: _rank(f, passes=[]), "ranks[1].passes: expected at least one, found an empty list"),
        (lambda f: _pass(f, seconds=-0.1), "ranks[1].passes[0].seconds: expected a number from 0 to 10000, found -0.1"),
        (lambda f: _pass(f, seconds=0), "ranks[1].passes[0].seconds: expected more than 0 seconds, found 0"),
        (lambda f: _pass(f, samples=0), "ranks[1].passes[0].samples: expected a whole number from 1"),
        (lambda f: f["ranks"][1]["passes"].append(f["ranks"][1]["passes"][0]),
         "ranks[1].passes[1].samples: 32 were timed already; give each size once"),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_refused(made, tmp_path, capsys, change, said):
    timings, cluster, _ = made([1.0, 1.0])
    fields = json.loads((tmp_path / "timings.json").read_text())
    change(fields)
    (tmp_path / "timings.json").write_text(json.dumps(fields))
    out = tmp_path / "costs"
    assert timings_command.main([timings, "--graph", GRAPH, "--cluster", cluster, "--out", str(out)]) == 2
    error = capsys.readouterr().err
    assert error.startswith("heterog: error: ") and len(error.splitlines()) == 1
    assert said in error
    assert not out.exists()


def test_gpus_are_known_by_what_drivers_call_them(made, tmp_path):
    timings, cluster, _ = made([1.0, 1.0], devices=[("T4", 1), ("RTX-2080-Ti", 1)])
    fields = json.loads((tmp_path / "timings.json").read_text())
    for names, right in ((("Tesla T4", "NVIDIA GeForce RTX 2080 Ti"), True), (("NVIDIA L4", "RTX-2080-Ti"), False),
                         (("AMD EPYC", "RTX-2080-Ti"), False)):  # fmt: skip
        for rank, name in zip(fields["ranks"], names, strict=True):
            rank["device"] = name
        (tmp_path / "timings.json").write_text(json.dumps(fields))
        if right:
            assert import_timings(timings, GRAPH, cluster, tmp_path / "costs").ratios["T4"] == {32: pytest.approx(1)}
            continue
        with pytest.raises(InputError, match=r"ranks\[0\].device: .* is of type T4: ranks are its devices"):
            import_timings(timings, GRAPH, cluster, tmp_path / "costs")


def test_a_sharded_model_is_refused(made, tmp_path):
    _, cluster, _ = made([1.0, 1.0])
    training = Training(64, 1, 64, ("a", "b"), 1, together=True)
    found = Found([40, 24], [32, 32], ["a", "b"], [StepTime(0.1, 0.01)] * 2, 0.7, 0.6, 0.6, 64, 0.0, together=True)
    write_kept(tmp_path / "kept.json", found, training)
    with pytest.raises(InputError, match="together: measured of a sharded model"):
        import_timings(tmp_path / "kept.json", GRAPH, cluster, tmp_path / "costs")
